//! What a power cut may leave.
//!
//! What was synced is there. Of what was not, any part may be: files as they were at the last
//! sync, as they would have become, or with some of the changes and not others, whatever their
//! order; a write torn at any sector; a size without the bytes. Names come and go in their
//! order, as journals keep it, but no further than the directory was synced is certain.

use std::collections::BTreeMap;

use super::Event;
use crate::random::Random;

/// A sector is written whole or not at all, in bytes.
const SECTOR_BYTES: u64 = 512;

/// Files by name: number and content.
pub type Files = BTreeMap<String, (u32, Vec<u8>)>;

/// How much survives of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    Nothing,
    Everything,
    /// Some changes, whole, and not others.
    Some,
    /// Some sectors of some changes.
    Torn,
}

/// The medium, and what is on its way to it.
pub struct Platter {
    names: BTreeMap<String, u32>,
    /// Not on the medium yet: a name's new file, or that it goes.
    renames: Vec<(String, Option<u32>)>,
    files: BTreeMap<u32, Content>,
}

/// A file.
#[derive(Default)]
struct Content {
    medium: Vec<u8>,
    changes: Vec<(Change, Fate)>,
}

enum Change {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

/// What becomes of a change when the power is cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It was not synced yet.
    Open,
    /// It was synced.
    Kept,
    /// A sync that failed was to keep it.
    Doubtful,
}

impl Platter {
    /// A medium that holds `files`.
    pub fn new(files: &Files) -> Self {
        let names = files.iter().map(|(name, (number, _))| (name.clone(), *number)).collect();
        let content = |medium: &Vec<u8>| Content { medium: medium.clone(), changes: Vec::new() };
        let files = files.values().map(|(number, bytes)| (*number, content(bytes))).collect();
        Self { names, renames: Vec::new(), files }
    }

    /// Goes on in time.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Create(number, name) => {
                self.files.insert(*number, Content::default());
                self.renames.push((name.clone(), Some(*number)));
            }
            Event::Delete(name) => self.renames.push((name.clone(), None)),
            Event::SyncDirectory => {
                for (name, number) in std::mem::take(&mut self.renames) {
                    rename(&mut self.names, name, number);
                }
            }
            Event::Write(number, offset, data) => {
                self.file(*number).change(Change::Write(*offset, data.clone()));
            }
            Event::Truncate(number, size) => self.file(*number).change(Change::Truncate(*size)),
            Event::Sync(number) => self.file(*number).sync(),
            Event::LoseSync(number) => {
                for (_, fate) in &mut self.file(*number).changes {
                    *fate = if *fate == Fate::Open { Fate::Doubtful } else { *fate };
                }
            }
            Event::Mark(_) => {}
        }
    }

    fn file(&mut self, number: u32) -> &mut Content {
        self.files.entry(number).or_default()
    }

    /// What a cut at this moment leaves.
    pub fn image(&self, survival: Survival, random: &mut Random) -> BTreeMap<String, Vec<u8>> {
        let renames = match survival {
            Survival::Nothing => 0,
            Survival::Everything => self.renames.len(),
            Survival::Some | Survival::Torn => random.below(self.renames.len() + 1),
        };
        let mut names = self.names.clone();
        for (name, number) in &self.renames[..renames] {
            rename(&mut names, name.clone(), *number);
        }
        let content = |number: &u32| match self.files.get(number) {
            Some(file) => file.survivor(survival, random),
            None => Vec::new(),
        };
        let contents: Vec<_> = names.values().map(content).collect();
        names.into_keys().zip(contents).collect()
    }
}

fn rename(names: &mut BTreeMap<String, u32>, name: String, number: Option<u32>) {
    match number {
        Some(number) => names.insert(name, number),
        None => names.remove(&name),
    };
}

impl Content {
    fn change(&mut self, change: Change) {
        self.changes.push((change, Fate::Open));
    }

    fn sync(&mut self) {
        for (_, fate) in &mut self.changes {
            *fate = if *fate == Fate::Open { Fate::Kept } else { *fate };
        }
        // What came after something doubtful may lie over it.
        let sure = self.changes.iter().take_while(|(_, fate)| *fate == Fate::Kept).count();
        for (change, _) in self.changes.drain(..sure) {
            change.apply(&mut self.medium);
        }
    }

    fn survivor(&self, survival: Survival, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.medium.clone();
        // Most files of most cuts keep most of it, or next to nothing: not always half.
        let chance = [1, 5, 9][random.below(3)];
        for (change, fate) in &self.changes {
            let survives = match survival {
                _ if *fate == Fate::Kept => true,
                Survival::Nothing => false,
                Survival::Everything => true,
                Survival::Some => random.below(10) < chance,
                Survival::Torn => {
                    change.tear(&mut bytes, chance, random);
                    false
                }
            };
            if survives {
                change.apply(&mut bytes);
            }
        }
        bytes
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(offset, data) => put(bytes, *offset as usize, data),
            Self::Truncate(size) => bytes.resize(*size as usize, 0),
        }
    }

    /// Applies a part.
    fn tear(&self, bytes: &mut Vec<u8>, chance: usize, random: &mut Random) {
        let Self::Write(offset, data) = self else {
            if random.below(10) < chance {
                self.apply(bytes);
            }
            return;
        };
        let end = offset + data.len() as u64;
        if random.below(4) == 0 && bytes.len() < end as usize {
            // The size alone.
            bytes.resize(end as usize, 0);
        }
        let mut at = *offset;
        while at < end {
            let next = ((at / SECTOR_BYTES + 1) * SECTOR_BYTES).min(end);
            if random.below(10) < chance {
                put(bytes, at as usize, &data[(at - offset) as usize..(next - offset) as usize]);
            }
            at = next;
        }
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}
