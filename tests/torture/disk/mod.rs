//! A disk that remembers: every write, sync and name of the databases in one directory, in
//! order, together with what their user was told meanwhile; and that fails when it is told to.
//!
//! | File | What |
//! |---|---|
//! | `vfs` | the layer under SQLite |
//! | `image` | what a power cut may leave of it all |

mod image;
mod vfs;

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rusqlite::ffi::{SQLITE_IOERR, SQLITE_OK};
use tempfile::TempDir;

pub use image::{Files, Platter, Survival};

/// What the databases' user was told, or is about to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The change after which state `n` holds is on its way.
    Issued(usize),
    /// It was answered.
    Answered(usize),
    /// Everything up to state `n` was promised to survive a power cut.
    Stable(usize),
}

/// What happened, in order.
#[derive(Debug, Clone)]
pub enum Event {
    /// A name appeared, with a new and empty file.
    Create(u32, String),
    /// A name went.
    Delete(String),
    /// All names are on the medium.
    SyncDirectory,
    /// Bytes were written at an offset.
    Write(u32, u64, Vec<u8>),
    /// A file got a size.
    Truncate(u32, u64),
    /// All of the file's changes are on the medium.
    Sync(u32),
    /// A sync failed: the changes before it may be lost, and later syncs do not bring them back.
    LoseSync(u32),
    /// What its user was told.
    Mark(Mark),
}

/// Calls that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Open,
    Read,
    Write,
    Truncate,
    Sync,
    Size,
    Delete,
    Lock,
    ShmMap,
    /// Taking the one lock of all that write.
    WriteLock,
}

/// A failure to come.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub call: Call,
    /// The how-manieth of these calls from now on fails, counted from 1.
    pub nth: u32,
    /// With what (`SQLITE_…`).
    pub code: c_int,
    /// Whether all that follow fail as well.
    pub lasts: bool,
}

/// One directory's databases.
pub struct Disk {
    directory: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    events: Vec<Event>,
    is_recording: bool,
    /// Whether syncs reach the system.
    syncs: bool,
    is_dead: bool,
    /// Changes after which the process is dead.
    changes_left: Option<u32>,
    fault: Option<Fault>,
    /// How often it happened.
    hits: u32,
    /// The names that there are, by number.
    names: Vec<(String, u32)>,
    next_number: u32,
}

static DISKS: RwLock<Vec<(PathBuf, Arc<Disk>)>> = RwLock::new(Vec::new());

/// The disk that holds the file `path`.
fn disk_of(path: &Path) -> Option<Arc<Disk>> {
    let parent = path.parent()?;
    let disks = DISKS.read().unwrap_or_else(PoisonError::into_inner);
    disks.iter().find(|(directory, _)| directory == parent).map(|(_, disk)| Arc::clone(disk))
}

/// A directory of its own with a disk; it is gone when this is dropped.
pub struct Medium {
    directory: TempDir,
    pub disk: Arc<Disk>,
}

impl Medium {
    /// A medium that holds these files. Its syncs reach nobody while it does not record: the
    /// system's power stays on.
    pub fn new<'a>(files: impl IntoIterator<Item = (&'a String, &'a Vec<u8>)>) -> Self {
        vfs::install();
        let directory = scratch();
        for (name, content) in files {
            std::fs::write(directory.path().join(name), content).unwrap();
        }
        let path = directory.path().canonicalize().unwrap();
        let disk = Arc::new(Disk { directory: path.clone(), state: Mutex::default() });
        disk.know_names();
        DISKS.write().unwrap().push((path, Arc::clone(&disk)));
        Self { directory, disk }
    }

    /// The path of a file on it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.disk.directory.join(name)
    }

    /// The files on it, as any process sees them now.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(self.directory.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let stored = names.filter(|name| is_stored(name));
        stored.map(|name| (name.clone(), std::fs::read(self.path(&name)).unwrap())).collect()
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        let mut disks = DISKS.write().unwrap_or_else(PoisonError::into_inner);
        disks.retain(|(directory, _)| *directory != self.disk.directory);
    }
}

/// A new directory in memory, where the system has such a place: thousands are made.
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("acetate-torture-").tempdir_in(parent).unwrap()
}

impl Disk {
    /// Writes down what happens from now on; returns what is there.
    pub fn record(&self) -> Files {
        let mut state = self.lock();
        (state.is_recording, state.syncs) = (true, true);
        let names = state.names.clone();
        let file = |(name, number): (String, u32)| {
            let content = std::fs::read(self.directory.join(&name)).unwrap();
            (name, (number, content))
        };
        names.into_iter().map(file).collect()
    }

    /// What has happened so far.
    pub fn events(&self) -> Vec<Event> {
        std::mem::take(&mut self.lock().events)
    }

    /// Writes down what its user was told.
    pub fn mark(&self, mark: Mark) {
        self.lock().note(Event::Mark(mark));
    }

    /// Lets a call fail.
    pub fn arm(&self, fault: Fault) {
        let mut state = self.lock();
        (state.fault, state.hits) = (Some(fault), 0);
    }

    /// Takes back what was to fail, and says how often it did.
    pub fn disarm(&self) -> u32 {
        let mut state = self.lock();
        state.fault = None;
        std::mem::take(&mut state.hits)
    }

    /// The process that has the databases open is killed: nothing that it still does changes
    /// anything.
    pub fn kill(&self) {
        self.lock().is_dead = true;
    }

    /// The same after `changes` more changes.
    pub fn kill_after(&self, changes: u32) {
        self.lock().changes_left = Some(changes);
    }

    /// Whether it is dead.
    pub fn is_dead(&self) -> bool {
        self.lock().is_dead
    }

    /// Another process may come, once all that the dead one had open is closed.
    pub fn revive(&self) {
        let mut state = self.lock();
        (state.is_dead, state.changes_left) = (false, None);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn know_names(&self) {
        let mut state = self.lock();
        for entry in std::fs::read_dir(&self.directory).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if is_stored(&name) {
                let number = state.next_number;
                state.next_number += 1;
                state.names.push((name, number));
            }
        }
    }

    // What the layer under SQLite calls.

    /// Asks whether a call may go on.
    fn before(&self, call: Call) -> Result<(), c_int> {
        self.lock().before(call)
    }

    fn opened(&self, path: &Path, existed: bool) -> u32 {
        let name = name_of(path);
        let mut state = self.lock();
        let known = state.names.iter().find(|(known, _)| *known == name);
        if let (true, Some((_, number))) = (existed, known) {
            return *number;
        }
        let number = state.next_number;
        state.next_number += 1;
        state.names.retain(|(known, _)| *known != name);
        state.names.push((name.clone(), number));
        state.note(Event::Create(number, name));
        number
    }

    fn deleting(&self, path: &Path) -> Result<(), c_int> {
        let name = name_of(path);
        let mut state = self.lock();
        state.change(Call::Delete)?;
        state.names.retain(|(known, _)| *known != name);
        state.note(Event::Delete(name));
        Ok(())
    }

    fn synced_directory(&self) {
        let mut state = self.lock();
        if !state.is_dead {
            state.note(Event::SyncDirectory);
        }
    }

    /// Writes, the first half at least: a write that fails may have done a part.
    fn write(
        &self,
        file: u32,
        offset: u64,
        data: &[u8],
        real: impl FnOnce(&[u8]) -> c_int,
    ) -> c_int {
        let mut state = self.lock();
        let allowed = state.change(Call::Write);
        let data = match allowed {
            Ok(()) => data,
            Err(_) if state.is_dead => return SQLITE_IOERR,
            Err(_) => &data[..data.len() / 2],
        };
        let done = real(data);
        if done == SQLITE_OK {
            state.note(Event::Write(file, offset, data.to_vec()));
        }
        allowed.err().unwrap_or(done)
    }

    fn truncate(&self, file: u32, size: u64, real: impl FnOnce() -> c_int) -> c_int {
        let mut state = self.lock();
        if let Err(code) = state.change(Call::Truncate) {
            return code;
        }
        let done = real();
        if done == SQLITE_OK {
            state.note(Event::Truncate(file, size));
        }
        done
    }

    fn sync(&self, file: u32, real: impl FnOnce() -> c_int) -> c_int {
        let mut state = self.lock();
        if let Err(code) = state.change(Call::Sync) {
            if !state.is_dead {
                state.note(Event::LoseSync(file));
            }
            return code;
        }
        let syncs = state.syncs;
        drop(state);
        // The real one tells of the directory, so nothing may be locked here.
        let done = if syncs { real() } else { SQLITE_OK };
        let mut state = self.lock();
        if done == SQLITE_OK && !state.is_dead {
            state.note(Event::Sync(file));
        }
        done
    }
}

impl State {
    fn note(&mut self, event: Event) {
        if self.is_recording {
            self.events.push(event);
        }
    }

    fn before(&mut self, call: Call) -> Result<(), c_int> {
        let Some(fault) = &mut self.fault else { return Ok(()) };
        if fault.call != call || fault.nth == 0 {
            return Ok(());
        }
        fault.nth -= 1;
        if fault.nth > 0 {
            return Ok(());
        }
        if fault.lasts {
            fault.nth = 1;
        }
        self.hits += 1;
        Err(fault.code)
    }

    /// The same for a call that changes something: a dead process does none.
    fn change(&mut self, call: Call) -> Result<(), c_int> {
        if let Some(left) = &mut self.changes_left {
            *left = left.saturating_sub(1);
            self.is_dead |= *left == 0;
        }
        if self.is_dead {
            return Err(SQLITE_IOERR);
        }
        self.before(call)
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// The shared memory beside a database is made anew, and our lock holds nothing.
fn is_stored(name: &str) -> bool {
    !name.ends_with("-shm") && !name.ends_with("-lock")
}
