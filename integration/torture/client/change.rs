//! What a lane asks for, and what it does to a file and to the names of a directory.

use super::nfs::{Handle, Stability};

/// The mode of a file in the base, and of one that a lane makes.
pub const FIRST_MODE: u32 = 0o644;

const EXIST: u32 = 17;
const NOENT: u32 = 2;

/// A file, as all that was answered has left it.
#[derive(Clone)]
pub struct File {
    pub handle: Handle,
    pub content: Vec<u8>,
    /// The permissions.
    pub mode: u32,
}

/// A change.
#[derive(Debug, Clone)]
pub enum Change {
    Create(String),
    Mkdir(String),
    Remove(String),
    Rename(String, String),
    Write { name: String, offset: usize, data: Vec<u8>, stability: Stability },
    Resize(String, usize),
    Chmod(String, u32),
    Commit(String),
}

/// Whether one of the changes takes the file called `name` away.
pub fn kills(changes: &[&Change], name: &str) -> bool {
    changes.iter().any(|change| match change {
        Change::Remove(removed) => removed == name,
        Change::Rename(_, replaced) => replaced == name,
        _ => false,
    })
}

/// Whether `file`, called `name`, may have this mode and content after some of the changes: each
/// by itself is done or not. They do not overlap, but may all move the file's end.
pub fn may_be(file: &File, changes: &[&Change], name: &str, mode: u32, content: &[u8]) -> bool {
    let about = changes.iter().filter(|change| change.file() == Some(name));
    let about: Vec<_> = about.collect();
    (0..1u32 << about.len()).any(|subset| {
        let mut file = file.clone();
        for (bit, change) in about.iter().enumerate() {
            if subset & 1 << bit != 0 {
                change.apply_to(&mut file);
            }
        }
        file.mode == mode && file.content == content
    })
}

impl Change {
    /// The file whose content or mode it changes.
    fn file(&self) -> Option<&str> {
        match self {
            Self::Write { name, .. } | Self::Resize(name, _) | Self::Chmod(name, _) => Some(name),
            _ => None,
        }
    }

    /// Where a WRITE begins, in bytes.
    pub fn offset(&self) -> Option<u64> {
        match self {
            Self::Write { offset, .. } => Some(*offset as u64),
            _ => None,
        }
    }

    /// What it does to its file.
    pub fn apply_to(&self, file: &mut File) {
        let content = &mut file.content;
        match self {
            Self::Write { offset, data, .. } => {
                let end = offset + data.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*offset..end].copy_from_slice(data);
            }
            Self::Resize(_, bytes) => content.resize(*bytes, 0),
            Self::Chmod(_, mode) => file.mode = *mode,
            _ => {}
        }
    }

    /// What it does to the names of its directory, in order.
    pub fn rename_in(&self, names: &mut Vec<String>) {
        match self {
            Self::Create(name) | Self::Mkdir(name) => names.push(name.clone()),
            Self::Remove(name) => names.retain(|known| known != name),
            Self::Rename(from, to) => {
                names.retain(|known| known != from && known != to);
                names.push(to.clone());
            }
            _ => {}
        }
        names.sort();
    }

    /// Whether this status says that the change had been done before it was sent again.
    pub fn was_done(&self, status: u32) -> bool {
        match self {
            Self::Mkdir(_) => status == EXIST,
            Self::Remove(_) | Self::Rename(..) => status == NOENT,
            _ => false,
        }
    }
}
