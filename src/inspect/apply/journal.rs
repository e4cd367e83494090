//! The journal of an apply and its notes: lines of JSON in the staging. The notes have facts that
//! the slots of the staging do not show.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

use serde_json::{Map, Value, json};

use super::dir_times::DirTime;
use super::kept_hard_links::SharedFiles;
use super::locked_dirs::OpenedDir;
use super::record::{Before, PlacedDescendant, PlacedState};
use super::steps::{AppliedChange, PutStep, Set, Steps, Take};
use super::unchanged::DroppedCopy;
use super::{LostLink, Skipped};
use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::inspect::hunks::ChosenPart;
use crate::overlay::{MergedParts, PathRows};
use crate::vfs::{FileId, FileKind, Time};
use crate::writeback::{Attrs, SeenObject, StagingDir};

/// The version of the format.
const VERSION: u64 = 1;

/// The version of a journal with partly applied changes, or of an undo. A program that knows only
/// [`VERSION`] refuses it; otherwise it would drop too much from the session.
const VERSION_NOT_FOR_OLDER: u64 = 2;

/// All that a run needs to finish the work of another.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Journal {
    /// The session's id.
    pub session: String,
    /// The path of its file, for messages.
    pub file: String,
    /// When the staging was created: the plan may not include later changes of the target.
    pub begun: Time,
    /// The device and inode number of the target's top; a journal of an older version has none.
    pub top_id: Option<(u64, u64)>,
    /// The attributes that the target's top gets at the end; `None` leaves them as they are then.
    pub top: Option<Attrs>,
    /// The attributes that the top had for the plan. A journal of an older version has none.
    pub top_from: Option<Attrs>,
    /// Replaced and removed objects are kept for undo.
    pub keeps: bool,
    /// An undo of an apply: the session has nothing to drop.
    pub is_undo: bool,
    /// Only times of directories are set: the record of an earlier apply stays.
    pub leaves_kept: bool,
    /// An undo that repeats an apply, which an undo took back.
    pub is_redo: bool,
    pub steps: Steps,
    pub changes: Vec<AppliedChange>,
    /// Copies that the session drops at the end. A journal of an older version has none.
    pub unchanged: Vec<DroppedCopy>,
    /// Changes that are left out without steps. A journal of an older version has none.
    pub left_out: Vec<Skipped>,
    /// Files that an undo does not link to their further names again. A journal of an older version
    /// has none.
    pub lost_links: Vec<LostLink>,
    /// Attributes from before the first step.
    pub before: Vec<Before>,
    /// Objects in directories that are put as a whole.
    pub inside: Vec<PlacedDescendant>,
    /// Directories that an undo opens before the first step.
    pub opened: Vec<OpenedDir>,
}

/// Facts noted while the steps are done.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes {
    /// All takes are done.
    pub is_taken: bool,
    /// The session was informed, or is being informed, of the applied changes.
    pub session_informed: bool,
    /// Nothing is kept, despite [`Journal::keeps`].
    pub keeps_nothing: bool,
    /// Directories are being closed, after all steps.
    pub is_closing: bool,
    /// The kept files that have further names in the target.
    pub shared: Option<SharedFiles>,
    /// The mtimes of directories after the steps in them.
    pub dir_times: Vec<DirTime>,
    /// Skipped changes by number, and why. Those without a number have no steps, or are objects
    /// that could not be put back.
    pub skipped: Vec<(Option<usize>, Skipped)>,
    /// Attributes that something else changed and that stay, of objects whose change is made.
    pub kept_attributes: Vec<Skipped>,
}

impl Journal {
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut line = |value: Value| writeln!(out, "{value}");
        let has_parts = self.changes.iter().any(|change| change.part.is_some());
        line(json!({
            "v": if has_parts || self.is_undo { VERSION_NOT_FOR_OLDER } else { VERSION },
            "session": self.session,
            "file": self.file,
            "begun": time(self.begun),
            "top_id": self.top_id.map(|(dev, ino)| json!([dev, ino])),
            "top": self.top.as_ref().map(attrs),
            "top_from": self.top_from.as_ref().map(attrs),
            "keeps": self.keeps,
            "is_undo": self.is_undo,
            "is_redo": self.is_redo,
            "leaves_kept": self.leaves_kept,
            // Not in lines of their own: an older program refuses a line of an unknown kind.
            "unchanged": self.unchanged.iter().map(DroppedCopy::json).collect::<Vec<_>>(),
            "left_out": self.left_out.iter().map(skipped).collect::<Vec<_>>(),
            "lost_links": self.lost_links.iter().map(lost_link).collect::<Vec<_>>(),
        }))?;
        for change in &self.changes {
            line(json!({ "change": {
                "path": bytes(change.path.as_bytes()),
                "from": change.from.as_ref().map(|from| bytes(from.as_bytes())),
                "object": change.object.map(object),
                "is_whole": change.is_whole,
                "planned": change.planned.map(state),
                "was_linked": change.was_linked,
                "merged": merged(change.merged),
                "part": change.part.as_ref().map(part),
                "paths": change.paths,
            }}))?;
        }
        for take in &self.steps.takes {
            line(json!({ "take": {
                "slot": take.slot, "from": bytes(take.from.as_bytes()), "stays": take.stays,
                "seen": seen(&take.seen), "change": take.change,
            }}))?;
        }
        for put in &self.steps.puts {
            line(json!({ "put": {
                "slot": put.slot, "is_new": put.dir == StagingDir::New,
                "to": bytes(put.to.as_bytes()), "over": put.over.as_ref().map(seen),
                "made": put.made.as_ref().map(PlacedState::json), "change": put.change,
            }}))?;
        }
        for set in &self.steps.sets {
            line(json!({ "set": {
                "path": bytes(set.path.as_bytes()), "attrs": attrs(&set.attrs),
                "from": set.from.as_ref().map(attrs), "seen": set.seen.as_ref().map(seen),
                "change": set.change,
            }}))?;
        }
        self.opened.iter().try_for_each(|opened| line(json!({ "opened": opened.json() })))?;
        self.inside.iter().try_for_each(|inside| line(json!({ "inside": inside.json() })))?;
        self.before.iter().try_for_each(|before| line(json!({ "before": before.json() })))
    }

    /// Reads what [`Journal::write`] wrote.
    pub fn read(file: File) -> io::Result<Self> {
        let (mut journal, mut is_empty) = (Self::default(), true);
        for (at, line) in BufReader::new(file).lines().enumerate() {
            let value: Value = serde_json::from_str(&line?)?;
            is_empty = false;
            if journal.read_line(&value, at == 0).is_none() {
                let what = format!("line {} of the journal is malformed", at + 1);
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        if is_empty {
            // It is written atomically: something emptied it later.
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the journal is empty"));
        }
        Ok(journal)
    }

    fn read_line(&mut self, line: &Value, is_first: bool) -> Option<()> {
        if is_first {
            matches!(line.get("v")?.as_u64()?, VERSION | VERSION_NOT_FOR_OLDER).then_some(())?;
            self.session = line.get("session")?.as_str()?.to_owned();
            self.file = line.get("file")?.as_str()?.to_owned();
            self.begun = to_time(line.get("begun")?)?;
            self.top_id = optional(line.get("top_id").unwrap_or(&Value::Null), to_id)?;
            self.top = optional(line.get("top")?, to_attrs)?;
            self.top_from = optional(line.get("top_from").unwrap_or(&Value::Null), to_attrs)?;
            let flag = |key: &str| line.get(key).and_then(Value::as_bool).unwrap_or(false);
            (self.keeps, self.is_undo) = (flag("keeps"), flag("is_undo"));
            (self.is_redo, self.leaves_kept) = (flag("is_redo"), flag("leaves_kept"));
            let unchanged = line.get("unchanged").and_then(Value::as_array);
            let unchanged = unchanged.into_iter().flatten().map(DroppedCopy::read);
            self.unchanged = unchanged.collect::<Option<_>>()?;
            let left_out = line.get("left_out").and_then(Value::as_array);
            let left_out = left_out.into_iter().flatten().map(to_skipped);
            self.left_out = left_out.collect::<Option<_>>()?;
            let lost_links = line.get("lost_links").and_then(Value::as_array);
            let lost_links = lost_links.into_iter().flatten().map(to_lost_link);
            self.lost_links = lost_links.collect::<Option<_>>()?;
            return Some(());
        }
        let (what, value) = line.as_object()?.iter().next()?;
        let index = |key: &str| usize::try_from(value.get(key)?.as_u64()?).ok();
        match what.as_str() {
            "change" => self.changes.push(AppliedChange {
                path: to_merged(value.get("path")?)?,
                from: optional(value.get("from")?, to_merged)?,
                object: optional(value.get("object")?, to_object)?,
                is_whole: value.get("is_whole")?.as_bool()?,
                planned: optional(value.get("planned").unwrap_or(&Value::Null), to_state)?,
                base_ctime: None,
                not_given: None,
                merged: to_merged_parts(value.get("merged"))?,
                was_linked: value.get("was_linked").and_then(Value::as_bool).unwrap_or(false),
                part: optional(value.get("part").unwrap_or(&Value::Null), to_part)?,
                // Older versions do not store it.
                paths: value.get("paths").map_or(Some(1), Value::as_u64)?,
            }),
            "take" => self.steps.takes.push(Take {
                slot: value.get("slot")?.as_u64()?,
                from: to_path(value.get("from")?)?,
                stays: value.get("stays")?.as_bool()?,
                seen: to_seen(value.get("seen")?)?,
                change: index("change")?,
            }),
            "put" => self.steps.puts.push(PutStep {
                slot: value.get("slot")?.as_u64()?,
                dir: if value.get("is_new")?.as_bool()? {
                    StagingDir::New
                } else {
                    StagingDir::Taken
                },
                to: to_path(value.get("to")?)?,
                over: optional(value.get("over")?, to_seen)?,
                made: optional(value.get("made").unwrap_or(&Value::Null), PlacedState::read)?,
                change: index("change")?,
            }),
            "set" => self.steps.sets.push(Set {
                path: to_path(value.get("path")?)?,
                attrs: to_attrs(value.get("attrs")?)?,
                from: optional(value.get("from").unwrap_or(&Value::Null), to_attrs)?,
                seen: optional(value.get("seen")?, to_seen)?,
                change: optional(value.get("change")?, |at| usize::try_from(at.as_u64()?).ok())?,
            }),
            "opened" => self.opened.push(OpenedDir::read(value)?),
            "inside" => self.inside.push(PlacedDescendant::read(value)?),
            "before" => self.before.push(Before::read(value)?),
            _ => return None,
        }
        Some(())
    }
}

impl Notes {
    /// The line for [`Notes::is_taken`].
    pub const TAKEN: &str = r#"{"taken":true}"#;

    /// The line for [`Notes::session_informed`], before the session is informed.
    pub const SESSION_INFORMED: &str = r#"{"told":true}"#;

    /// The line for [`Notes::keeps_nothing`].
    pub const KEEPS_NOTHING: &str = r#"{"keeps_nothing":true}"#;

    /// The line for [`Notes::is_closing`], before directories are closed.
    pub const CLOSING: &str = r#"{"closing":true}"#;

    /// The line for a change that is not made.
    pub fn skipped(change: Option<usize>, what: &Skipped) -> String {
        let mut line = skipped(what);
        line["change"] = json!(change);
        json!({ "skipped": line }).to_string()
    }

    /// The line for an attribute that stays as something else set it.
    pub fn kept_attribute(what: &Skipped) -> String {
        json!({ "kept_attribute": skipped(what) }).to_string()
    }

    /// The line for the kept files that have further names in the target.
    pub fn shared(shared: &SharedFiles) -> String {
        json!({ "shared": shared.json() }).to_string()
    }

    /// Reads the lines. An incomplete line is ignored: the run finds that fact again.
    pub fn read(file: File) -> io::Result<Self> {
        let mut notes = Self::default();
        for line in BufReader::new(file).split(b'\n') {
            let Ok(value) = serde_json::from_slice::<Map<String, Value>>(&line?) else { continue };
            notes.is_taken |= value.contains_key("taken");
            notes.session_informed |= value.contains_key("told");
            notes.is_closing |= value.contains_key("closing");
            notes.keeps_nothing |= value.contains_key("keeps_nothing");
            notes.shared = value.get("shared").and_then(SharedFiles::read).or(notes.shared);
            notes.dir_times.extend(value.get("dir_time").and_then(DirTime::read));
            notes.kept_attributes.extend(value.get("kept_attribute").and_then(to_skipped));
            notes.skipped.extend(value.get("skipped").and_then(|skipped| {
                let change = skipped.get("change")?.as_u64();
                let change = change.and_then(|at| usize::try_from(at).ok());
                Some((change, to_skipped(skipped)?))
            }));
        }
        Ok(notes)
    }
}

fn skipped(what: &Skipped) -> Value {
    json!({ "path": bytes(what.path.as_bytes()), "why": what.why })
}

fn to_skipped(value: &Value) -> Option<Skipped> {
    let why = value.get("why")?.as_str()?.to_owned();
    Some(Skipped { path: to_merged(value.get("path")?)?, why })
}

fn lost_link(file: &LostLink) -> Value {
    json!({ "path": bytes(file.path.as_bytes()), "why": file.why, "change": file.change })
}

fn to_lost_link(value: &Value) -> Option<LostLink> {
    let why = value.get("why")?.as_str()?.to_owned();
    let change = usize::try_from(value.get("change")?.as_u64()?).ok()?;
    Some(LostLink { path: to_merged(value.get("path")?)?, why, change })
}

/// `Some(None)` for null.
pub(super) fn optional<T>(
    value: &Value,
    read: impl FnOnce(&Value) -> Option<T>,
) -> Option<Option<T>> {
    if value.is_null() { Some(None) } else { read(value).map(Some) }
}

/// A path or content: a string if it is UTF-8, else an array of bytes.
pub(super) fn bytes(path: &[u8]) -> Value {
    match std::str::from_utf8(path) {
        Ok(text) => text.into(),
        Err(_) => path.to_vec().into(),
    }
}

pub(super) fn to_bytes(value: &Value) -> Option<Vec<u8>> {
    if let Some(text) = value.as_str() {
        return Some(text.as_bytes().to_vec());
    }
    let byte = |byte: &Value| u8::try_from(byte.as_u64()?).ok();
    value.as_array()?.iter().map(byte).collect()
}

pub(super) fn to_path(value: &Value) -> Option<BasePath> {
    let path = BasePath::from_bytes(&to_bytes(value)?)?;
    // A name of the host is neither of these.
    let is_name = |name: &[u8]| !matches!(name, b"." | b"..");
    let is_path = path.components().all(is_name);
    is_path.then_some(path)
}

pub(super) fn to_merged(value: &Value) -> Option<MergedPath> {
    MergedPath::from_bytes(&to_bytes(value)?)
}

pub(super) fn object((id, at): (FileId, Time)) -> Value {
    json!([id.0, at.secs, at.nanos])
}

pub(super) fn to_object(object: &Value) -> Option<(FileId, Time)> {
    let time = Time { secs: object.get(1)?.as_i64()?, nanos: nanos(object, 2)? };
    Some((FileId(object.get(0)?.as_u64()?), time))
}

fn state(state: PathRows) -> Value {
    let entry = state.entry.map(|(id, at)| json!([id.0, at.map(time)]));
    json!({ "entry": entry, "is_whited_out": state.is_whited_out })
}

fn to_state(state: &Value) -> Option<PathRows> {
    let entry = optional(state.get("entry")?, |entry| {
        let changed = optional(entry.get(1)?, to_time)?;
        Some((FileId(entry.get(0)?.as_u64()?), changed))
    })?;
    Some(PathRows { entry, is_whited_out: state.get("is_whited_out")?.as_bool()? })
}

fn merged(merged: MergedParts) -> Value {
    let MergedParts { content, attributes, mtime } = merged;
    json!({ "content": content, "attributes": attributes, "mtime": mtime })
}

fn to_merged_parts(value: Option<&Value>) -> Option<MergedParts> {
    // Older versions do not store it.
    let Some(value) = value else { return Some(MergedParts::default()) };
    let attributes = value.get("attributes")?.as_array()?;
    let attributes: Option<Vec<_>> = attributes.iter().map(Value::as_bool).collect();
    Some(MergedParts {
        content: value.get("content")?.as_bool()?,
        attributes: attributes?.try_into().ok()?,
        mtime: value.get("mtime")?.as_bool()?,
    })
}

fn to_id(value: &Value) -> Option<(u64, u64)> {
    Some((value.get(0)?.as_u64()?, value.get(1)?.as_u64()?))
}

fn part(part: &ChosenPart) -> Value {
    let content = bytes(&part.content);
    json!({ "content": content, "has_lines": part.has_lines, "attributes": part.attributes })
}

fn to_part(part: &Value) -> Option<ChosenPart> {
    let number = |number: &Value| u32::try_from(number.as_u64()?).ok();
    let attributes: Option<Vec<_>> =
        part.get("attributes")?.as_array()?.iter().map(number).collect();
    Some(ChosenPart {
        content: to_bytes(part.get("content")?)?.into(),
        has_lines: part.get("has_lines")?.as_bool()?,
        attributes: attributes?.try_into().ok()?,
    })
}

pub(super) fn time(time: Time) -> Value {
    json!([time.secs, time.nanos])
}

fn nanos(value: &Value, at: usize) -> Option<u32> {
    u32::try_from(value.get(at)?.as_u64()?).ok()
}

pub(super) fn to_time(value: &Value) -> Option<Time> {
    Some(Time { secs: value.get(0)?.as_i64()?, nanos: nanos(value, 1)? })
}

pub(super) fn seen(seen: &SeenObject) -> Value {
    json!({
        "kind": seen.kind.mode_bits(), "dev": seen.dev, "ino": seen.ino, "size": seen.size,
        "mtime": time(seen.mtime), "ctime": seen.ctime.map(time),
    })
}

fn kind(value: &Value) -> Option<FileKind> {
    FileKind::from_mode(u32::try_from(value.get("kind")?.as_u64()?).ok()?)
}

pub(super) fn to_seen(value: &Value) -> Option<SeenObject> {
    Some(SeenObject {
        kind: kind(value)?,
        dev: value.get("dev")?.as_u64()?,
        ino: value.get("ino")?.as_u64()?,
        size: value.get("size")?.as_u64()?,
        mtime: to_time(value.get("mtime")?)?,
        ctime: optional(value.get("ctime")?, to_time)?,
    })
}

pub(super) fn attrs(attrs: &Attrs) -> Value {
    json!({
        "kind": attrs.kind.mode_bits(), "mode": attrs.mode, "uid": attrs.uid, "gid": attrs.gid,
        "mtime": time(attrs.mtime),
    })
}

pub(super) fn to_attrs(value: &Value) -> Option<Attrs> {
    let number = |key: &str| u32::try_from(value.get(key)?.as_u64()?).ok();
    Some(Attrs {
        kind: kind(value)?,
        mode: number("mode")?,
        uid: number("uid")?,
        gid: number("gid")?,
        mtime: to_time(value.get("mtime")?)?,
    })
}
