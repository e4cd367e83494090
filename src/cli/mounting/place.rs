//! Where may be mounted: the directory, and how it lies to the base and the session.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::table;
use crate::cli::error::CliError;
use crate::cli::text;

/// Symbolic links that are followed to a directory at most, as many as Linux follows.
const MAX_LINKS: u32 = 40;

/// The absolute path, without symbolic links, of a directory to be mounted at, or that something
/// is mounted at: the directory itself is not touched then.
pub(in crate::cli) fn resolve(dir: &Path) -> Result<PathBuf, CliError> {
    let failed = |error: &io::Error| cannot(dir, error);
    let mut path = std::path::absolute(dir).map_err(|error| failed(&error))?;
    for _ in 0..MAX_LINKS {
        let Some(name) = path.file_name() else {
            return path.canonicalize().map_err(|error| failed(&error));
        };
        let parent = path.parent().unwrap_or(Path::new("/"));
        let real = parent.canonicalize().map_err(|error| failed(&error))?.join(name);
        if table::at(&real)?.is_some() {
            return Ok(real);
        }
        match fs::read_link(&real) {
            Ok(target) => path = real.parent().unwrap_or(Path::new("/")).join(target),
            // No link.
            Err(error) if error.kind() == ErrorKind::InvalidInput => return Ok(real),
            Err(error) => return Err(failed(&error)),
        }
    }
    Err(failed(&io::Error::other("too many levels of symbolic links")))
}

fn cannot(dir: &Path, error: &io::Error) -> CliError {
    let shown = text::name(dir.as_os_str().as_encoded_bytes());
    let failed = CliError::new(format_args!("{shown}: {error}"));
    match error.kind() {
        ErrorKind::NotFound => failed.with_hint(format_args!("make it first: mkdir -p {shown}")),
        ErrorKind::NotADirectory => failed.with_hint("something on the way is no directory"),
        _ => failed,
    }
}

/// The absolute path of a session file that there is, or that is to be made.
pub(in crate::cli) fn session(path: &Path) -> Result<PathBuf, CliError> {
    let failed = |error: io::Error| {
        let failed = CliError::new(format_args!("{}: {error}", path.display()));
        failed.with_hint("the directory that the session is to be in must be there")
    };
    if path.symlink_metadata().is_ok() {
        return path.canonicalize().map_err(failed);
    }
    let absolute = std::path::absolute(path).map_err(failed)?;
    let (Some(name), Some(parent)) = (absolute.file_name(), absolute.parent()) else {
        return Err(CliError::new(format_args!("{}: not a session file", path.display())));
    };
    Ok(parent.canonicalize().map_err(failed)?.join(name))
}

/// Whether `dir`, where nothing is mounted, will do; says whether there is something in it.
pub(in crate::cli) fn check(
    dir: &Path,
    base: Option<&Path>,
    session: &Path,
) -> Result<bool, CliError> {
    let found = fs::metadata(dir).map_err(|error| cannot(dir, &error))?;
    if !found.is_dir() {
        let what = CliError::new(format_args!("{}: not a directory", dir.display()));
        return Err(what.with_hint("give an empty directory"));
    }
    if let Some(error) = conflict(dir, base, session) {
        return Err(error);
    }
    let mut entries = fs::read_dir(dir).map_err(|error| cannot(dir, &error))?;
    Ok(entries.next().is_some())
}

/// What mounting at `dir` would hide, or ask for without end.
fn conflict(dir: &Path, base: Option<&Path>, session: &Path) -> Option<CliError> {
    let shown = dir.display();
    let elsewhere = "mount at an empty directory of its own, say /mnt/agent";
    if let Some(base) = base {
        let at = base.display();
        let what = if dir == base {
            format!("{shown}: is the base itself, which the mount would hide")
        } else if dir.starts_with(base) {
            format!("{shown}: is in the base {at}; the tree would contain itself")
        } else if base.starts_with(dir) {
            format!("{shown}: has the base {at} in it, which the mount would hide")
        } else {
            String::new()
        };
        if !what.is_empty() {
            return Some(CliError::new(what).with_hint(elsewhere));
        }
    }
    session.starts_with(dir).then(|| {
        let session = session.display();
        let what = format!("{shown}: has the session {session} in it, which the mount would hide");
        CliError::new(what).with_hint(elsewhere)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::conflict;

    fn said(dir: &str, base: Option<&str>) -> Option<String> {
        let found = conflict(Path::new(dir), base.map(Path::new), Path::new("/home/ann/s.db"))?;
        assert!(found.hint().is_some());
        Some(found.to_string())
    }

    #[test]
    fn a_mount_may_hide_neither_base_nor_session() {
        for (dir, base, part) in [
            ("/b/x", Some("/b"), "is in the base /b"),
            ("/b", Some("/b"), "the base itself"),
            ("/", Some("/b"), "has the base /b in it"),
            ("/home", Some("/b"), "has the session /home/ann/s.db in it"),
            ("/home/ann", None, "has the session"),
        ] {
            let said = said(dir, base).unwrap_or_else(|| panic!("{dir} over {base:?}"));
            assert!(said.contains(part), "{said}");
        }
        for (dir, base) in [("/mnt/agent", Some("/b")), ("/bc", Some("/b")), ("/home/an", None)] {
            assert_eq!(said(dir, base), None);
        }
    }
}
