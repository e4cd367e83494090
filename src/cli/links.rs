//! Follows symbolic links of the merged tree, as the kernel of a client does.

use super::error::CliError;
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::opened::OpenSession;
use crate::vfs::FileKind;

/// The most links that one path follows, as in Linux.
const MAX_LINKS: usize = 40;

/// The path to which `path` leads. The last component need not exist.
///
/// # Errors
/// A link leads out of the tree, as each with an absolute target does, or there are too many.
pub(super) fn followed(opened: &OpenSession, path: &MergedPath) -> Result<MergedPath, CliError> {
    let failed = |source| InspectError::at(path, source);
    let invalid = |why| InspectError::Invalid { what: format!("{}: {why}", path.display()) };
    let outside = || invalid("a symbolic link leads out of the tree");
    let found = opened.with_tree(|view| {
        let mut left: Vec<_> = path.names().map(|name| name.as_bytes().to_vec()).collect();
        left.reverse();
        let (mut at, mut links) = (MergedPath::root(), 0);
        while let Some(name) = left.pop() {
            let next = at.resolve(&name).ok_or_else(outside)?;
            match view.find(&next).map_err(failed)? {
                Some(link) if link.attr().kind == FileKind::Symlink => {
                    links += 1;
                    let target = view.target(&link).map_err(failed)?;
                    if links > MAX_LINKS {
                        return Err(invalid("too many levels of symbolic links"));
                    }
                    if target.starts_with(b"/") {
                        return Err(outside());
                    }
                    let names = target.split(|byte| *byte == b'/').rev();
                    left.extend(names.filter(|name| !name.is_empty()).map(<[u8]>::to_vec));
                }
                _ => at = next,
            }
        }
        Ok(at)
    });
    found.map_err(|error| CliError::from(error).about_path())
}
