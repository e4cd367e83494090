//! One connection's part of the tree: random changes, one after the other, and what must be
//! there of them after the server was killed.
//!
//! kill -9 takes nothing back that was answered, stable or not. What was on its way may be done
//! or not, each call by itself; it is then sent once more, as clients do.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::calls::{STALE, status};
use super::change::{Change, FIRST_MODE, File, kills, may_be};
use super::end::End;
use super::nfs::{Client, Handle, Stability, Written};
use super::random::Random;
use super::rpc::{Error, Result};

/// Files in a lane's directory of the base, and their size in bytes.
pub const BASE_FILES: usize = 40;
pub const BASE_FILE_BYTES: usize = 3000;

/// The size of its large file, in bytes.
pub const LARGE_BYTES: usize = 2 << 20;

/// The large file's name.
pub const LARGE: &str = "large";

/// Names in a directory that changes choose from.
const NAMES: usize = 60;

/// No write reaches further into a small file, in bytes.
const SMALL_BYTES: usize = 200_000;

/// Handles of removed files that are tried again.
const MOST_DEAD: usize = 20;

/// A directory: files by name; `None` for an empty directory.
pub struct Directory {
    handle: Handle,
    entries: BTreeMap<String, Option<File>>,
}

/// A connection and its two directories: one of the base, one of the session.
pub struct Lane {
    index: u32,
    client: Client,
    random: Random,
    directories: Vec<Directory>,
    /// Sent and not answered, in the directory of this number.
    on_its_way: (usize, Vec<Change>),
    dead: Vec<Handle>,
    /// Of every answer.
    verifier: Option<u64>,
    /// Answered changes.
    pub answered: u64,
}

/// What a base file holds.
pub fn base_content(lane: usize, file: usize, bytes: usize) -> Vec<u8> {
    let mut random = Random::new((lane * 1000 + file) as u64);
    (0..bytes).map(|_| random.next() as u8).collect()
}

/// The name of a lane's directory in the base.
pub fn base_directory(lane: usize) -> String {
    format!("base-{lane}")
}

impl Lane {
    /// Makes the lane's own directory, and finds that of the base.
    pub fn open(address: SocketAddr, root: &[u8], index: u32, seed: u64) -> Result<Self> {
        let mut client = Client::open(address, index)?;
        let born = client.mkdir(root, &format!("born-{index}"))?;
        let handle = client.lookup(root, &base_directory(index as usize))?.0;
        let mut entries = BTreeMap::new();
        for number in 0..=BASE_FILES {
            let large = number == BASE_FILES;
            let name = if large { LARGE.to_owned() } else { format!("f{number}") };
            let bytes = if large { LARGE_BYTES } else { BASE_FILE_BYTES };
            let content = base_content(index as usize, number, bytes);
            let handle = client.lookup(&handle, &name)?.0;
            entries.insert(name, Some(File { handle, content, mode: FIRST_MODE }));
        }
        let directories = vec![
            Directory { handle, entries },
            Directory { handle: born, entries: BTreeMap::new() },
        ];
        let random = Random::new(seed ^ u64::from(index) << 32);
        let on_its_way = (0, Vec::new());
        let (dead, verifier, answered) = (Vec::new(), None, 0);
        Ok(Self { index, client, random, directories, on_its_way, dead, verifier, answered })
    }

    /// Changes things until the server is gone, which it must not be before `end`.
    pub fn load(&mut self, end: &End) -> Result<()> {
        loop {
            let at = self.random.below(self.directories.len());
            let changes = self.choose(at);
            self.on_its_way = (at, changes.clone());
            let done = match &changes[..] {
                [change] => self.send(at, change).map(|()| self.answered(0)),
                changes => self.send_writes(at, changes),
            };
            match done {
                Ok(()) => {}
                Err(error) if end.explains(&error) => return Ok(()),
                Err(error) => return Err(self.blame(&error, &format!("{changes:?}"))),
            }
        }
    }

    /// A change is no longer on its way: from now on it has to be there.
    fn answered(&mut self, number: usize) {
        let (at, changes) = &mut self.on_its_way;
        let (at, change) = (*at, changes.remove(number));
        self.apply(at, &change);
        self.answered += 1;
    }

    fn blame(&self, error: &Error, what: &str) -> Error {
        let what: String = what.chars().take(200).collect();
        format!("lane {}: {what}: {error}", self.index).into()
    }

    /// A change, or writes to several places of one file.
    fn choose(&mut self, at: usize) -> Vec<Change> {
        let name = format!("n{}", self.random.below(NAMES));
        let entries = &self.directories[at].entries;
        let files = entries.iter().filter_map(|(name, file)| file.as_ref().map(|_| name));
        let files: Vec<&String> = files.collect();
        let file = match files.len() {
            0 if entries.contains_key(&name) => return Vec::new(),
            0 => return vec![Change::Create(name)],
            count => files[self.random.below(count)].clone(),
        };
        let is_free = !entries.contains_key(&name);
        let is_large = file == LARGE;
        match self.random.below(20) {
            0..4 if is_free => vec![Change::Create(name)],
            4 if is_free => vec![Change::Mkdir(name)],
            5..7 if !is_large => vec![Change::Remove(file)],
            7..9 if !is_large && (is_free || entries[&name].is_some()) => {
                vec![Change::Rename(file, name)]
            }
            9 if !is_large => vec![Change::Resize(file, self.random.below(SMALL_BYTES))],
            10 => vec![Change::Chmod(file, self.random.below(0o1000) as u32 | 0o600)],
            11..13 => vec![Change::Commit(file)],
            13..15 => self.writes(&file, 4),
            _ => self.writes(&file, 1),
        }
    }

    /// Writes to `count` places of a file that do not overlap.
    fn writes(&mut self, file: &str, count: usize) -> Vec<Change> {
        let end = if file == LARGE { LARGE_BYTES } else { SMALL_BYTES };
        let most = [20, 6000, 40_000][self.random.below(3)];
        let part = end / count;
        let one = |number: usize| {
            let length = self.random.below(most) + 1;
            let offset = number * part + self.random.below(part - length);
            let fill = self.random.next() as u8;
            let stability =
                if self.random.below(8) == 0 { Stability::FileSync } else { Stability::Unstable };
            Change::Write { name: file.to_owned(), offset, data: vec![fill; length], stability }
        };
        (0..count).map(one).collect()
    }

    fn handle(&self, at: usize, name: &str) -> Handle {
        let file = self.directories[at].entries.get(name).and_then(Option::as_ref);
        file.map_or_else(Vec::new, |file| file.handle.clone())
    }

    fn same_verifier(&mut self, found: u64) -> Result<()> {
        match *self.verifier.get_or_insert(found) {
            known if known == found => Ok(()),
            known => Err(format!("the write verifier was {known} and is {found}").into()),
        }
    }

    /// Sends one change, and waits for its answer.
    fn send(&mut self, at: usize, change: &Change) -> Result<()> {
        let dir = self.directories[at].handle.clone();
        match change {
            Change::Create(name) => {
                let handle = self.client.create(&dir, name)?;
                self.apply(at, change);
                let entries = &mut self.directories[at].entries;
                if let Some(Some(file)) = entries.get_mut(name) {
                    file.handle = handle;
                }
                Ok(())
            }
            Change::Mkdir(name) => self.client.mkdir(&dir, name).map(drop),
            Change::Remove(name) => self.client.remove(&dir, name),
            Change::Rename(from, to) => self.client.rename(&dir, from, to),
            Change::Resize(name, bytes) => {
                let handle = self.handle(at, name);
                self.client.resize(&handle, *bytes as u64)
            }
            Change::Chmod(name, mode) => {
                let handle = self.handle(at, name);
                self.client.chmod(&handle, *mode)
            }
            Change::Write { name, offset, data, stability } => {
                let handle = self.handle(at, name);
                let written = self.client.write(&handle, *offset as u64, data, *stability)?;
                self.same_verifier(written.verifier)
            }
            Change::Commit(name) => {
                let handle = self.handle(at, name);
                // Of any answer; before the first, there is nothing to compare with.
                let Some(verifier) = self.verifier else { return Ok(()) };
                self.client.commit(&handle, Written { needs_commit: true, verifier })
            }
        }
    }

    /// Sends writes all at once. The answers count one by one, as the end may come between.
    fn send_writes(&mut self, at: usize, changes: &[Change]) -> Result<()> {
        let mut sent = Vec::new();
        for change in changes {
            if let Change::Write { name, offset, data, stability } = change {
                let handle = self.handle(at, name);
                self.client.send_write(&handle, *offset as u64, data, *stability)?;
                sent.push((*offset as u64, data.len(), *stability));
            }
        }
        while self.client.in_flight() > 0 {
            let (answered, written) = self.client.receive_any_write(&sent)?;
            self.same_verifier(written.verifier)?;
            let changes = &self.on_its_way.1;
            let number = changes.iter().position(|change| change.offset() == Some(answered));
            self.answered(number.ok_or("an answer to no write")?);
        }
        Ok(())
    }

    /// What an answered change has done.
    fn apply(&mut self, at: usize, change: &Change) {
        let entries = &mut self.directories[at].entries;
        match change {
            Change::Create(name) => {
                let (handle, content) = (Vec::new(), Vec::new());
                let empty = || Some(File { handle, content, mode: FIRST_MODE });
                entries.entry(name.clone()).or_insert_with(empty);
            }
            Change::Mkdir(name) => drop(entries.insert(name.clone(), None)),
            Change::Remove(name) => {
                let gone = entries.remove(name).flatten();
                self.bury(gone);
            }
            Change::Rename(from, to) => {
                if from != to
                    && let Some(moved) = entries.remove(from)
                {
                    let gone = entries.insert(to.clone(), moved).flatten();
                    self.bury(gone);
                }
            }
            Change::Write { name, .. } | Change::Resize(name, _) | Change::Chmod(name, _) => {
                if let Some(Some(file)) = entries.get_mut(name) {
                    change.apply_to(file);
                }
            }
            Change::Commit(_) => {}
        }
    }

    fn bury(&mut self, file: Option<File>) {
        self.dead.extend(file.map(|file| file.handle));
        let surplus = self.dead.len().saturating_sub(MOST_DEAD);
        self.dead.drain(..surplus);
    }

    /// After a kill and a restart: checks all that was answered, sends again what was not, and
    /// checks that.
    pub fn verify(&mut self, address: SocketAddr) -> Result<()> {
        self.client = Client::open(address, self.index)?;
        let (at, changes) = std::mem::take(&mut self.on_its_way);
        let checked = self.check_names(at, &changes).and_then(|()| self.check_files(at, &changes));
        checked.map_err(|error| self.blame(&error, &format!("{changes:?} on its way")))?;
        for change in &changes {
            match self.send(at, change) {
                Err(error) if status(&error).is_some_and(|status| change.was_done(status)) => {}
                sent => sent.map_err(|error| self.blame(&error, &format!("{change:?} again")))?,
            }
            self.apply(at, change);
        }
        let checked = self.check_names(at, &[]).and_then(|()| self.check_files(at, &[]));
        checked.map_err(|error| self.blame(&error, &format!("after {changes:?}")))
    }

    /// The names in both directories.
    fn check_names(&mut self, at: usize, changes: &[Change]) -> Result<()> {
        for number in 0..self.directories.len() {
            let directory = &self.directories[number];
            let found = self.client.names(&directory.handle)?;
            let mut names: Vec<String> = directory.entries.keys().cloned().collect();
            if found == names {
                continue;
            }
            for change in changes.iter().filter(|_| number == at) {
                change.rename_in(&mut names);
            }
            if found != names {
                return Err(format!("the names are {found:?}, not {names:?}").into());
            }
        }
        Ok(())
    }

    /// The files' modes and content, by the handles that they always had, and that the dead stay
    /// dead.
    fn check_files(&mut self, at: usize, changes: &[Change]) -> Result<()> {
        for (number, directory) in self.directories.iter().enumerate() {
            for (name, file) in &directory.entries {
                let Some(file) = file else { continue };
                let changes: Vec<_> = changes.iter().filter(|_| number == at).collect();
                let (mode, found) = match self.client.mode_and_content(&file.handle) {
                    Ok(found) => found,
                    // It may have been removed, or replaced, by what was on its way.
                    Err(error) if status(&error) == Some(STALE) && kills(&changes, name) => {
                        continue;
                    }
                    Err(error) => return Err(format!("{name}: {error}").into()),
                };
                if !may_be(file, &changes, name, mode, &found) {
                    let (ours, theirs) = (file.content.len(), found.len());
                    let differ = file.content.iter().zip(&found).position(|(a, b)| a != b);
                    return Err(format!(
                        "{name}: mode {mode:o}, not {:o}; {theirs} bytes, not {ours}; {differ:?}",
                        file.mode
                    )
                    .into());
                }
            }
        }
        for handle in &self.dead {
            match self.client.mode_and_size(handle) {
                Err(error) if status(&error) == Some(STALE) => {}
                other => return Err(format!("a removed file: {other:?}").into()),
            }
        }
        Ok(())
    }
}
