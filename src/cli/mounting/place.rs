//! Checks where a session may be mounted: the directory, and its relation to the base and session.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::point::{MountPoint, cannot};
use super::user::User;
use crate::cli::error::CliError;

/// The absolute path of an existing session file, or of one to be created.
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

/// Checks that `point`, on which nothing is mounted, is suitable for `user`; returns whether it has
/// entries.
pub(in crate::cli) fn check(
    point: &MountPoint,
    base: Option<&Path>,
    session: &Path,
    user: Option<&User>,
) -> Result<bool, CliError> {
    let (dir, open) = (point.path(), point.by_descriptor());
    if !fs::metadata(&open).map_err(|error| cannot(dir, &error))?.is_dir() {
        let what = CliError::new(format_args!("{}: not a directory", dir.display()));
        return Err(what.with_hint("give an empty directory"));
    }
    point.check_owner(user)?;
    if let Some(error) = conflict(dir, base, session) {
        return Err(error);
    }
    let mut entries = fs::read_dir(&open).map_err(|error| cannot(dir, &error))?;
    Ok(entries.next().is_some())
}

/// The error if a mount at `dir` would hide the base or the session, or put the tree into itself.
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
