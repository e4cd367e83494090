//! The lock file of `exports.d`: a user who may change exports may lock it, and no other.
//!
//! It is in the directory itself, so that only these users can put one there.

use std::fs::{File, Metadata, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;
use std::time::{Duration, Instant};

use super::added_dir::{AddedDir, EntryStat, own_user};
use crate::system_error::words;

/// Name of the lock file. No server reads it.
pub(super) const LOCK_NAME: &str = ".lock";

/// Time to wait for another process that changes the exports.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Time to wait for root, who makes a lock file and then gives it to the directory's owner.
const OPEN_TIMEOUT: Duration = Duration::from_millis(500);

/// Time between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Waits for the lock of the directory, whose path is `path`; made if it does not exist. It is
/// unlocked once the file is closed.
///
/// # Errors
/// It cannot be made or opened, is no regular file, or users may open it who may not change
/// exports; `TimedOut` if another process has it for 30 seconds.
pub(super) fn lock(dir: &AddedDir, path: &Path) -> io::Result<File> {
    let begin = Instant::now();
    loop {
        let locked = open(dir, path, begin)?;
        match locked.try_lock() {
            Ok(()) if is_there(dir, &locked) => return Ok(locked),
            // Removed while it was waited for: others lock another one.
            Ok(()) | Err(TryLockError::WouldBlock) if begin.elapsed() < LOCK_TIMEOUT => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Ok(()) | Err(TryLockError::WouldBlock) => return Err(ErrorKind::TimedOut.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Whether the file is the one in the directory.
fn is_there(dir: &AddedDir, locked: &File) -> bool {
    let found = dir.stat(LOCK_NAME).and_then(|there| Ok((there, locked.metadata()?)));
    found.is_ok_and(|(there, own)| (there.dev, there.ino) == (own.dev(), own.ino()))
}

/// Opens the lock file, and gives it owner and mode.
fn open(dir: &AddedDir, path: &Path, begin: Instant) -> io::Result<File> {
    let of_dir = dir.metadata()?;
    let opened = loop {
        match dir.open_or_make(LOCK_NAME, mode_of(&of_dir)) {
            Ok(opened) => break opened,
            Err(error) if dir.stat(LOCK_NAME).is_err() => return Err(error),
            Err(error)
                if error.kind() == ErrorKind::PermissionDenied
                    && begin.elapsed() < OPEN_TIMEOUT =>
            {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(error) => return Err(refusal(dir, path, &of_dir, &words(&error))),
        }
    };
    let found = opened.metadata()?;
    if !found.is_file() || found.len() != 0 || found.nlink() > 1 {
        // Root would give away what is no lock file.
        return Err(refusal(dir, path, &of_dir, "not an empty file of one name"));
    }
    correct(&opened, &of_dir)?;
    let found = opened.metadata()?;
    if !is_owned(&found, &of_dir) || found.mode() & 0o077 & !mode_of(&of_dir) != 0 {
        return Err(refusal(dir, path, &of_dir, "other users may lock it"));
    }
    Ok(opened)
}

/// The mode of the lock file: for those who may write the directory.
fn mode_of(of_dir: &Metadata) -> u32 {
    let write = of_dir.mode() & 0o022;
    0o600 | write | write << 1
}

/// Gives the file owner and mode, as far as the process may: its owner, and root.
fn correct(opened: &File, of_dir: &Metadata) -> io::Result<()> {
    let found = opened.metadata()?;
    let own = own_user();
    if own != 0 && found.uid() != own {
        return Ok(());
    }
    // A file system may not have owners: what counts is what it has then.
    if own == 0 && (found.uid(), found.gid()) != (of_dir.uid(), of_dir.gid()) {
        let _changed = fchown(opened, Some(of_dir.uid()), Some(of_dir.gid()));
    } else if found.gid() != of_dir.gid() {
        let _changed = fchown(opened, None, Some(of_dir.gid()));
    }
    let of_group = match opened.metadata()?.gid() == of_dir.gid() {
        true => 0o777,
        false => 0o707,
    };
    let mode = mode_of(of_dir) & of_group;
    if found.mode() & 0o777 != mode {
        let _changed = opened.set_permissions(Permissions::from_mode(mode));
    }
    Ok(())
}

/// Whether the file is that of a user who may change exports.
fn is_owned(found: &Metadata, of_dir: &Metadata) -> bool {
    let own = own_user();
    // All of a group that may write the directory may be its owner.
    let is_of_group = of_dir.mode() & 0o020 != 0 && found.gid() == of_dir.gid();
    [own, 0, of_dir.uid()].contains(&found.uid()) || is_of_group || of_dir.mode() & 0o002 != 0
}

/// The error of a lock file, with its path, owner and mode, and what mends it.
fn refusal(dir: &AddedDir, path: &Path, of_dir: &Metadata, what: &str) -> io::Error {
    let file = path.join(LOCK_NAME);
    let file = file.display();
    let is_lock = |found: &EntryStat| found.is_file && found.size == 0 && found.has_one_name;
    let mend = match dir.stat(LOCK_NAME) {
        Ok(found) if !is_lock(&found) => "move it away".to_owned(),
        _ => format!(
            "let root or its owner run `chown {}:{} {file}` and `chmod {:o} {file}`",
            of_dir.uid(),
            of_dir.gid(),
            mode_of(of_dir)
        ),
    };
    let found = dir.stat(LOCK_NAME).map_or_else(
        |_| "cannot be looked at".to_owned(),
        |it| format!("of user {} with mode {:04o}", it.uid, it.mode),
    );
    io::Error::new(ErrorKind::InvalidData, format!("the lock file {file}, {found}: {what}; {mend}"))
}
