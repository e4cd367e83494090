//! Checks where a session may be mounted: the directory, and its relation to the base and session.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{MountError, PlaceAdvice};
use super::point::{MountPoint, cannot};
use super::user::User;

use crate::system_error::words;

/// The absolute path of an existing session file, or of one to be created.
pub(crate) fn session(path: &Path) -> Result<PathBuf, MountError> {
    let failed = |error: io::Error| {
        let failed = MountError::new(format_args!("{}: {}", path.display(), words(&error)));
        failed.with_advice(PlaceAdvice::MakeSessionDirectory)
    };
    if path.symlink_metadata().is_ok() {
        return path.canonicalize().map_err(failed);
    }
    let absolute = std::path::absolute(path).map_err(failed)?;
    let (Some(name), Some(parent)) = (absolute.file_name(), absolute.parent()) else {
        return Err(MountError::new(format_args!("{}: not a session file", path.display())));
    };
    Ok(parent.canonicalize().map_err(failed)?.join(name))
}

/// Checks that `point`, on which nothing is mounted, is suitable for `user`; returns whether it has
/// entries.
pub(crate) fn check(
    point: &MountPoint,
    base: Option<&Path>,
    session: &Path,
    user: Option<&User>,
) -> Result<bool, MountError> {
    let (dir, open) = (point.path(), point.by_descriptor());
    if !fs::metadata(&open).map_err(|error| cannot(dir, &error))?.is_dir() {
        let what = MountError::new(format_args!("{}: not a directory", dir.display()));
        return Err(what.with_advice(PlaceAdvice::GiveEmptyDirectory));
    }
    point.check_owner(user)?;
    if let Some(error) = conflict(dir, base, session) {
        return Err(error);
    }
    let mut entries = fs::read_dir(&open).map_err(|error| cannot(dir, &error))?;
    Ok(entries.next().is_some())
}

/// The error if a mount at `dir` would hide the base or the session, or put the tree into itself.
fn conflict(dir: &Path, base: Option<&Path>, session: &Path) -> Option<MountError> {
    let shown = dir.display();
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
            return Some(MountError::new(what).with_advice(PlaceAdvice::MountElsewhere));
        }
    }
    session.starts_with(dir).then(|| {
        let session = session.display();
        let what = format!("{shown}: has the session {session} in it, which the mount would hide");
        MountError::new(what).with_advice(PlaceAdvice::MountElsewhere)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{PlaceAdvice, conflict};

    fn said(dir: &str, base: Option<&str>) -> Option<String> {
        let found = conflict(Path::new(dir), base.map(Path::new), Path::new("/home/ann/s.db"))?;
        assert_eq!(found.advice(), Some(&PlaceAdvice::MountElsewhere.into()));
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
