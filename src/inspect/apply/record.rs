//! The record of an apply, from which it is undone: lines of JSON in the undo directory.
//!
//! Paths are either those *before* the apply, or those *after* it: directories may have moved in
//! between. [`Moves`] converts one into the other.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::journal::{
    attrs, bytes, optional, seen, time, to_attrs, to_bytes, to_merged, to_path, to_seen, to_time,
};
use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::vfs::{FileKind, Time};
use crate::writeback::{Attrs, SeenObject, StagingSlot};

/// Format version, in the first line.
const VERSION: u64 = 1;

/// The parsed record.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Record {
    /// The session's id.
    pub session: String,
    /// The directory that was written to.
    pub target: PathBuf,
    /// The device and inode number of that directory; records of earlier versions have none.
    pub top: Option<(u64, u64)>,
    /// When the apply began; names the directory of the kept objects ([`round`]).
    pub begun: Time,
    /// The apply was undone: the next undo repeats it.
    pub is_undone: bool,
    /// The paths of the changes, by number.
    pub changes: Vec<MergedPath>,
    pub placed: Vec<Placed>,
    pub removed: Vec<RemovedByApply>,
    /// Descendants of directories that an undo put back as a whole.
    pub inside: Vec<PlacedDescendant>,
    pub before: Vec<Before>,
    pub shared: Vec<KeptHardLink>,
}

/// An object that the apply placed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Placed {
    /// Path after.
    pub path: BasePath,
    /// Path before, if it was moved.
    pub from: Option<BasePath>,
    /// Slot of the kept file that it replaced.
    pub over: Option<StagingSlot>,
    /// The object as the apply put it; `None` if its state is not known.
    pub left: Option<PlacedState>,
    /// Number of its change.
    pub change: usize,
}

/// The state in which the apply left an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlacedState {
    pub seen: SeenObject,
    pub attrs: Attrs,
    /// Digest of its content or link target, unless that is large.
    pub digest: Option<Vec<u8>>,
}

/// An object that the apply removed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RemovedByApply {
    /// Path before.
    pub path: BasePath,
    /// Slot of the kept object.
    pub slot: StagingSlot,
    /// Number of its change.
    pub change: usize,
}

/// A descendant of a directory that was placed as a whole.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlacedDescendant {
    /// Path after the steps.
    pub path: BasePath,
    pub seen: SeenObject,
    pub mode: u32,
    /// User and group; records of earlier versions have none.
    pub owner: Option<(u32, u32)>,
    /// As [`PlacedState::digest`].
    pub digest: Option<Vec<u8>>,
}

/// Attributes of an object that steps set or moved, as they were before. What something else set
/// during the apply counts as earlier.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Before {
    /// Path before.
    pub path: BasePath,
    pub attrs: Attrs,
    /// Attributes after the last step; `None` if it was removed.
    pub left: Option<Attrs>,
    /// Number of its change; `None` for a directory in which only entries changed.
    pub change: Option<usize>,
}

/// A kept file with further hard links, which stayed in the target.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KeptHardLink {
    /// The kept object's slot, and the path of the file below it.
    pub slot: StagingSlot,
    pub below: BasePath,
    pub seen: SeenObject,
}

impl PlacedState {
    pub fn json(&self) -> Value {
        let (seen, attrs) = (seen(&self.seen), attrs(&self.attrs));
        json!({ "seen": seen, "attrs": attrs, "digest": self.digest })
    }

    pub fn read(value: &Value) -> Option<Self> {
        Some(Self {
            seen: to_seen(value.get("seen")?)?,
            attrs: to_attrs(value.get("attrs")?)?,
            digest: optional(value.get("digest")?, to_bytes)?,
        })
    }
}

impl PlacedDescendant {
    pub fn json(&self) -> Value {
        json!({
            "path": bytes(self.path.as_bytes()), "seen": seen(&self.seen), "mode": self.mode,
            "owner": self.owner.map(|(uid, gid)| json!([uid, gid])), "digest": self.digest,
        })
    }

    pub fn read(value: &Value) -> Option<Self> {
        Some(Self {
            path: to_path(value.get("path")?)?,
            seen: to_seen(value.get("seen")?)?,
            mode: to_number(value.get("mode")?)?,
            owner: optional(value.get("owner").unwrap_or(&Value::Null), |owner| {
                Some((to_number(owner.get(0)?)?, to_number(owner.get(1)?)?))
            })?,
            digest: optional(value.get("digest").unwrap_or(&Value::Null), to_bytes)?,
        })
    }
}

impl KeptHardLink {
    pub fn json(&self) -> Value {
        let below = bytes(self.below.as_bytes());
        json!({ "slot": self.slot, "below": below, "seen": seen(&self.seen) })
    }

    pub fn read(value: &Value) -> Option<Self> {
        Some(Self {
            slot: value.get("slot")?.as_u64()?,
            below: to_path(value.get("below")?)?,
            seen: to_seen(value.get("seen")?)?,
        })
    }
}

impl Before {
    pub fn json(&self) -> Value {
        json!({
            "path": bytes(self.path.as_bytes()), "attrs": attrs(&self.attrs),
            "left": self.left.as_ref().map(attrs), "change": self.change,
        })
    }

    pub fn read(value: &Value) -> Option<Self> {
        Some(Self {
            path: to_path(value.get("path")?)?,
            attrs: to_attrs(value.get("attrs")?)?,
            left: optional(value.get("left")?, to_attrs)?,
            change: optional(value.get("change")?, to_index)?,
        })
    }
}

impl Record {
    /// Name of the directory of the kept objects.
    pub fn round(&self) -> String {
        round(self.begun)
    }
}

/// Maps paths before the apply to paths after it, and back.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Of each placed object, by its path after: its path before, if it was moved.
    placed: HashMap<BasePath, Option<BasePath>>,
    /// Of each moved or removed object, by its path before: its path after; `None` if removed.
    left: HashMap<BasePath, Option<BasePath>>,
}

impl Moves {
    /// Adds a placed object.
    pub fn place(&mut self, after: BasePath, before: Option<BasePath>) {
        if let Some(before) = &before {
            self.left.insert(before.clone(), Some(after.clone()));
        }
        self.placed.insert(after, before);
    }

    /// Adds a removed object.
    pub fn remove(&mut self, before: BasePath) {
        self.left.entry(before).or_insert(None);
    }

    /// Path before of the object with this path after; `None` if it did not exist.
    pub fn before(&self, after: &BasePath) -> Option<BasePath> {
        nearest(after, &self.placed)
    }

    /// Path after of the object with this path before; `None` if it was removed.
    pub fn after(&self, before: &BasePath) -> Option<BasePath> {
        nearest(before, &self.left)
    }

    /// Path before of a directory entry that did not move by itself.
    pub fn entry_before(&self, after: &BasePath) -> Option<BasePath> {
        let (dir, name) = after.split()?;
        Some(self.before(&dir)?.join(&name))
    }

    /// Path after of the name to which an undo returns an object with this path before.
    pub fn entry_after(&self, before: &BasePath) -> Option<BasePath> {
        let (dir, name) = before.split()?;
        Some(self.after(&dir)?.join(&name))
    }
}

/// Maps a path by the entry of `known` for it or its nearest ancestor; unchanged without one.
fn nearest(path: &BasePath, known: &HashMap<BasePath, Option<BasePath>>) -> Option<BasePath> {
    let mut above = Some(path.clone());
    while let Some(at) = above {
        if let Some(to) = known.get(&at) {
            let rest = &path.as_bytes()[at.as_bytes().len()..];
            let joined = to.as_ref().map(|to| [to.as_bytes(), rest].concat());
            return joined.and_then(|joined| BasePath::from_bytes(&joined));
        }
        above = at.split().map(|(parent, _)| parent);
    }
    Some(path.clone())
}

/// Name of the directory of the objects kept by the apply that began at this time.
pub(super) fn round(begun: Time) -> String {
    format!("{}.{:09}", begun.secs, begun.nanos)
}

impl Record {
    /// Whether only times of directories changed, which follow their entries.
    pub fn changes_nothing(&self) -> bool {
        let is_time = |before: &Before| {
            let (was, is_dir) = (&before.attrs, before.attrs.kind == FileKind::Directory);
            let is_same = |left: &Attrs| is_dir || left.mtime == was.mtime;
            before.left.as_ref().is_some_and(|left| left.has_rights_of(was) && is_same(left))
        };
        self.placed.is_empty() && self.removed.is_empty() && self.before.iter().all(is_time)
    }

    pub fn moves(&self) -> Moves {
        let mut moves = Moves::default();
        for placed in &self.placed {
            moves.place(placed.path.clone(), placed.from.clone());
        }
        for removed in &self.removed {
            moves.remove(removed.path.clone());
        }
        moves
    }

    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let mut line = |value: Value| writeln!(out, "{value}");
        line(json!({
            "v": VERSION, "session": self.session, "begun": time(self.begun),
            "is_taken_back": self.is_undone,
            "target": bytes(self.target.as_os_str().as_bytes()),
            "top": self.top.map(|(dev, ino)| json!([dev, ino])),
        }))?;
        for change in &self.changes {
            line(json!({ "change": bytes(change.as_bytes()) }))?;
        }
        for placed in &self.placed {
            let left = placed.left.as_ref().map(PlacedState::json);
            line(json!({ "placed": {
                "path": bytes(placed.path.as_bytes()),
                "from": placed.from.as_ref().map(|from| bytes(from.as_bytes())),
                "over": placed.over, "left": left, "change": placed.change,
            }}))?;
        }
        for removed in &self.removed {
            let path = bytes(removed.path.as_bytes());
            let (slot, change) = (removed.slot, removed.change);
            line(json!({ "removed": { "path": path, "slot": slot, "change": change }}))?;
        }
        for shared in &self.shared {
            line(json!({ "shared": shared.json() }))?;
        }
        self.inside.iter().try_for_each(|inside| line(json!({ "inside": inside.json() })))?;
        self.before.iter().try_for_each(|before| line(json!({ "before": before.json() })))
    }

    /// Reads what [`Record::write`] wrote.
    pub fn read(file: File) -> io::Result<Self> {
        let mut record = Self::default();
        for (at, line) in BufReader::new(file).lines().enumerate() {
            let value: Value = serde_json::from_str(&line?)?;
            if record.read_line(&value, at == 0).is_none() {
                let what = format!("line {} of the record is malformed", at + 1);
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        Ok(record)
    }

    fn read_line(&mut self, line: &Value, is_first: bool) -> Option<()> {
        use std::os::unix::ffi::OsStringExt;
        if is_first {
            (line.get("v")?.as_u64()? == VERSION).then_some(())?;
            self.session = line.get("session")?.as_str()?.to_owned();
            self.begun = to_time(line.get("begun")?)?;
            let is_undone = line.get("is_taken_back").and_then(Value::as_bool);
            self.is_undone = is_undone.unwrap_or(false);
            self.top = line
                .get("top")
                .and_then(|top| Some((top.get(0)?.as_u64()?, top.get(1)?.as_u64()?)));
            let target = to_bytes(line.get("target")?)?;
            self.target = std::ffi::OsString::from_vec(target).into();
            return Some(());
        }
        let (what, value) = line.as_object()?.iter().next()?;
        match what.as_str() {
            "change" => self.changes.push(to_merged(value)?),
            "placed" => self.placed.push(Placed {
                path: to_path(value.get("path")?)?,
                from: optional(value.get("from")?, to_path)?,
                over: optional(value.get("over")?, Value::as_u64)?,
                left: optional(value.get("left")?, PlacedState::read)?,
                change: to_index(value.get("change")?)?,
            }),
            "removed" => self.removed.push(RemovedByApply {
                path: to_path(value.get("path")?)?,
                slot: value.get("slot")?.as_u64()?,
                change: to_index(value.get("change")?)?,
            }),
            "shared" => self.shared.push(KeptHardLink::read(value)?),
            "inside" => self.inside.push(PlacedDescendant::read(value)?),
            "before" => self.before.push(Before::read(value)?),
            _ => return None,
        }
        Some(())
    }
}

fn to_number(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

fn to_index(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok()
}
