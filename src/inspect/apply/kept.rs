//! What is kept of the last apply, for people who ask how a session stands.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::record::Record;
use crate::delta::sqlite::Session;
use crate::vfs::Time;

/// What is kept of the last apply of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The directory that has it.
    pub dir: PathBuf,
    /// The directory that was written to.
    pub target: PathBuf,
    /// When the apply, or what took it back, was begun.
    pub begun: Time,
    /// The apply was taken back: an undo does it again.
    pub is_taken_back: bool,
    /// Files, directories and other things that are kept.
    pub objects: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// Looks at it without waiting for an apply that is under way. `None` where nothing is kept, or
/// nothing of it may be read.
pub fn kept(session: &Session) -> Option<Kept> {
    let dir = session.undo_dir();
    let record = Record::read(File::open(dir.join("record")).ok()?).ok()?;
    if record.session != session.id() {
        return None;
    }
    let (mut objects, mut bytes) = (0, 0);
    match count(&dir.join(record.round()), &mut objects, &mut bytes) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return None,
        _ => {}
    }
    let Record { target, begun, is_taken_back, .. } = record;
    Some(Kept { dir, target, begun, is_taken_back, objects, bytes })
}

fn count(dir: &Path, objects: &mut u64, bytes: &mut u64) -> io::Result<()> {
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            *objects += 1;
            if meta.is_dir() {
                left.push(entry.path());
            } else if meta.is_file() {
                *bytes += meta.len();
            }
        }
    }
    Ok(())
}
