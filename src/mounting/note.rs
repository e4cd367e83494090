//! Notes that `mount` leaves for `umount`: which session is mounted where, and whether its server
//! was started for the mount.
//!
//! One small file per mount point, in a directory that does not outlive a reboot (`/run/acetate`
//! for root). The mount table only has the server's address, and a killed server cannot be asked.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use sha1::{Digest, Sha1};

use super::address::reached;
use super::error::MountError;

/// The environment variable with another directory for the notes, for tests.
const VARIABLE: &str = "ACETATE_RUNTIME_DIR";

/// The suffix of the notes.
const SUFFIX: &str = ".mount";

/// The field that marks a lazily unmounted mount.
const HIDDEN: &[u8] = b"hidden";

/// The prefix of the last field of a mount by `run`.
const RUN: &[u8] = b"run ";

/// The largest valid note, in bytes: two paths, an address and a few numbers.
const MAX_BYTES: u64 = 16 << 10;

/// A mount by acetate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) dir: PathBuf,
    pub(crate) session: PathBuf,
    /// The address at which the server listens.
    pub(crate) address: SocketAddr,
    /// The pid of the server, if it was started for a mount.
    pub(crate) started: Option<u32>,
    pub(crate) is_read_only: bool,
    /// Lazily unmounted: processes may still use the mount.
    pub(crate) is_hidden: bool,
    /// The `run` that the mount is for, if it is in a mount namespace.
    pub(crate) run: Option<RunNote>,
}

/// An `acetate run` with a mount namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunNote {
    /// The pid of `run`.
    pub(crate) pid: u32,
    /// The start time of that process, in clock ticks since boot: pids are reused.
    pub(crate) start: u64,
    /// The inode number of the namespace, once the session is mounted in it.
    pub(crate) namespace: Option<u64>,
}

impl Note {
    /// The address at which this machine reaches the server.
    pub(crate) fn reached(&self) -> SocketAddr {
        reached(self.address)
    }

    /// Writes the note.
    pub(crate) fn write(&self) -> Result<(), MountError> {
        let written = folder().and_then(|folder| self.write_in(&folder));
        self.written(written)
    }

    /// Writes the note in the directory `folder`, which may be another path of the notes.
    #[cfg(target_os = "linux")]
    pub(super) fn write_at(&self, folder: &Path) -> Result<(), MountError> {
        self.written(self.write_in(folder))
    }

    fn write_in(&self, folder: &Path) -> io::Result<()> {
        let path = folder.join(self.file_name());
        let new = path.with_extension("new");
        fs::write(&new, self.encode())?;
        fs::rename(new, path)
    }

    fn written(&self, written: io::Result<()>) -> Result<(), MountError> {
        written.map_err(|error| {
            let what = format!("cannot remember the mount at {}", self.dir.display());
            MountError::caused(what, &error)
        })
    }

    /// The note of the mount at `dir`.
    pub(crate) fn of(dir: &Path) -> Option<Self> {
        let note = read(&folder().ok()?.join(name(dir, SUFFIX)))?;
        (note.dir == dir && note.run.is_none()).then_some(note)
    }

    /// The note of the `run` with this pid, at `dir`.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn of_run(dir: &Path, pid: u32) -> Option<Self> {
        let note = read(&folder().ok()?.join(run_name(dir, pid)))?;
        (note.dir == dir && note.run.is_some_and(|run| run.pid == pid)).then_some(note)
    }

    /// Whether both notes are of one mount.
    pub(super) fn is_of_same_mount(&self, other: &Self) -> bool {
        self.file_name() == other.file_name()
    }

    /// Includes the pid for a run: several runs can have the same directory.
    fn file_name(&self) -> String {
        match self.run {
            Some(run) => run_name(&self.dir, run.pid),
            None => name(&self.dir, SUFFIX),
        }
    }

    /// All notes.
    pub(crate) fn all() -> Vec<Self> {
        let entries = folder().and_then(fs::read_dir);
        let entries = entries.into_iter().flatten().flatten().map(|entry| entry.path());
        let ours = |path: &PathBuf| path.as_os_str().as_bytes().ends_with(SUFFIX.as_bytes());
        entries.filter(ours).filter_map(|path| read(&path)).collect()
    }

    /// Deletes the note.
    pub(crate) fn forget(&self) {
        if let Ok(folder) = folder() {
            let _gone = fs::remove_file(folder.join(self.file_name()));
        }
    }

    fn encode(&self) -> Vec<u8> {
        let started = self.started.unwrap_or(0).to_string();
        let (address, mode) = (self.address.to_string(), self.mode());
        let mut fields: Vec<&[u8]> = vec![
            self.dir.as_os_str().as_bytes(),
            self.session.as_os_str().as_bytes(),
            address.as_bytes(),
            started.as_bytes(),
            mode.as_bytes(),
        ];
        if self.is_hidden {
            fields.push(HIDDEN);
        }
        let run = self.run.map(|run| run.encode());
        if let Some(run) = &run {
            fields.push(run);
        }
        // Paths have no NUL bytes.
        fields.join(&0)
    }

    fn mode(&self) -> &'static str {
        if self.is_read_only { "ro" } else { "rw" }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let fields: Vec<&[u8]> = bytes.split(|byte| *byte == 0).collect();
        let (fields, run) = match fields.split_last() {
            Some((last, fields)) if last.starts_with(RUN) => (fields, Some(RunNote::decode(last)?)),
            _ => (&fields[..], None),
        };
        let (fields, is_hidden) = match fields.split_last() {
            Some((&HIDDEN, fields)) => (fields, true),
            _ => (fields, false),
        };
        let &[dir, session, address, started, mode] = fields else {
            return None;
        };
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        let text = |bytes: &'_ [u8]| String::from_utf8(bytes.to_vec()).ok();
        let started: u32 = text(started)?.parse().ok()?;
        Some(Self {
            dir: path(dir),
            session: path(session),
            address: text(address)?.parse().ok()?,
            started: (started != 0).then_some(started),
            is_read_only: mode == b"ro",
            is_hidden,
            run,
        })
    }
}

impl RunNote {
    fn encode(self) -> Vec<u8> {
        let Self { pid, start, namespace } = self;
        [RUN, format!("{pid} {start} {}", namespace.unwrap_or(0)).as_bytes()].concat()
    }

    fn decode(field: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(field.strip_prefix(RUN)?).ok()?;
        let mut numbers = text.split(' ');
        let pid = numbers.next()?.parse().ok()?;
        let start = numbers.next()?.parse().ok()?;
        let namespace: u64 = numbers.next()?.parse().ok()?;
        let namespace = (namespace != 0).then_some(namespace);
        numbers.next().is_none().then_some(Self { pid, start, namespace })
    }
}

fn run_name(dir: &Path, pid: u32) -> String {
    let mut key = dir.as_os_str().to_owned();
    key.push(format!("\n{pid}"));
    name(Path::new(&key), SUFFIX)
}

fn read(path: &Path) -> Option<Note> {
    let size = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?.len();
    (size <= MAX_BYTES).then_some(())?;
    Note::decode(&fs::read(path).ok()?)
}

/// A file in the directory of the notes, named after `path`.
///
/// # Errors
/// There is no directory that only this user can write to.
pub(super) fn file(path: &Path, suffix: &str) -> io::Result<PathBuf> {
    Ok(folder()?.join(name(path, suffix)))
}

/// A digest, because a path can be longer than a file name.
fn name(path: &Path, suffix: &str) -> String {
    let digest = Sha1::digest(path.as_os_str().as_bytes());
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    digits + suffix
}

/// The directory of the notes. Only this user may write to it: a note decides which process ends.
pub(super) fn folder() -> io::Result<PathBuf> {
    let uid = geteuid();
    let folder = match std::env::var_os(VARIABLE) {
        Some(folder) => PathBuf::from(folder),
        None if uid.is_root() && Path::new("/run").is_dir() => "/run/acetate".into(),
        None => match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
            // In a directory of another user, that user may rename entries.
            Some(runtime) if runtime.metadata().is_ok_and(|found| found.uid() == uid.as_raw()) => {
                runtime.join("acetate-mounts")
            }
            _ => std::env::temp_dir().join(format!("acetate-mounts-{}", uid.as_raw())),
        },
    };
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(&folder)?;
    if !found.is_dir() || found.uid() != uid.as_raw() || found.mode() & 0o022 != 0 {
        let what = format!("{} is not a directory of ours alone", folder.display());
        return Err(io::Error::other(what));
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::{Note, RunNote};

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let mut note = Note {
            dir: "/mnt/a b\n".into(),
            session: "/home/ann/s.db".into(),
            address: "[::1]:2049".parse().unwrap(),
            started: Some(77),
            is_read_only: true,
            is_hidden: true,
            run: Some(RunNote { pid: 5, start: 9_000_000_000, namespace: None }),
        };
        assert_eq!(Note::decode(&note.encode()), Some(note.clone()));
        note.run = Some(RunNote { pid: 5, start: 0, namespace: Some(4_026_531_840) });
        assert_eq!(Note::decode(&note.encode()), Some(note.clone()));
        note.run = None;
        assert_eq!(Note::decode(&note.encode()), Some(note.clone()));
        note.is_hidden = false;
        assert_eq!(Note::decode(&note.encode()), Some(note.clone()));
        note.started = None;
        note.is_read_only = false;
        let bytes = note.encode();
        assert_eq!(Note::decode(&bytes), Some(note));
        for cut in 0..bytes.len() - 2 {
            assert_eq!(Note::decode(&bytes[..cut]), None, "{cut}");
        }
    }
}
