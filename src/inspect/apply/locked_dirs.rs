//! Directories that the user owns, but may not use because of their modes.
//!
//! An apply sets such a mode after all other steps. An undo opens the directories that the record
//! names, while it plans and while it does its steps. A list of them is synced first, so that the
//! next run closes them if this one is killed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde_json::{Value, json};

use super::advice::ApplyAdvice;
use super::journal::{Journal, attrs, bytes, to_attrs, to_path};
use super::keep;
use super::record::{Before, Record};
use super::steps::Set;
use super::target_dir::ApplyTarget;
use crate::base::BasePath;
use crate::inspect::InspectError;
use crate::inspect::error::Result;
use crate::vfs::FileKind;
use crate::writeback::{Attrs, Target, TargetError, TargetObject, UndoDir, effective_user};

/// The mode bits that let an owner read a directory, and make and remove its entries.
const OWNER_RIGHTS: u32 = 0o700;

/// The user to whom no mode denies access.
const ROOT: u32 = 0;

/// A directory that is opened temporarily.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OpenedDir {
    /// Its path before the first step.
    pub path: BasePath,
    pub ino: u64,
    /// Its attributes while it is closed.
    pub attrs: Attrs,
}

impl OpenedDir {
    pub fn json(&self) -> Value {
        let path = bytes(self.path.as_bytes());
        json!({ "path": path, "ino": self.ino, "attrs": attrs(&self.attrs) })
    }

    pub fn read(value: &Value) -> Option<Self> {
        Some(Self {
            path: to_path(value.get("path")?)?,
            ino: value.get("ino")?.as_u64()?,
            attrs: to_attrs(value.get("attrs")?)?,
        })
    }
}

/// `attrs`, for a directory with [`OWNER_RIGHTS`] added. Root does not need them.
pub(super) fn open_attrs(attrs: &Attrs) -> Attrs {
    let is_kept_out = attrs.kind == FileKind::Directory && effective_user() != ROOT;
    let added = if is_kept_out { OWNER_RIGHTS } else { 0 };
    Attrs { mode: attrs.mode | added, ..attrs.clone() }
}

fn is_closed(attrs: &Attrs) -> bool {
    open_attrs(attrs) != *attrs
}

/// Refuses a target whose top is closed to this user, its owner: the top holds the staging, which a
/// run needs before it can note what it opens.
pub(super) fn check_top_is_open(path: &Path, top: &Attrs) -> Result<()> {
    if top.uid != effective_user() || !is_closed(top) {
        return Ok(());
    }
    let what = format!("{}: its mode {:04o} keeps its owner out", path.display(), top.mode);
    Err(InspectError::Refused { what, advice: ApplyAdvice::OpenTop })
}

fn depth(path: &BasePath) -> usize {
    path.components().count()
}

/// Sets the mode of a directory, if it has the inode number `ino` and the mode `from`.
fn change(target: &Target, (path, ino): (&BasePath, u64), from: u32, to: u32) -> Result<()> {
    match target.object(path) {
        Ok(Some(now)) if now.is_dir() && now.seen.ino == ino && now.attrs.mode == from => {
            target.set(path, &Attrs { mode: to, ..now.attrs })?;
            Ok(())
        }
        Err(error) if !error.is_of_object() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Opens the closed directories that the record names, and closes them after `work`.
pub(super) fn while_open<T>(
    target: &ApplyTarget<'_>,
    (dir, record): (&UndoDir, &Record),
    work: impl FnOnce(&[OpenedDir]) -> Result<T>,
) -> Result<T> {
    close_listed(target, dir)?;
    let mut opened = Vec::new();
    let done = open_all(target, (dir, record), &mut opened).and_then(|()| work(&opened));
    let closed = close_again(&target.dir, dir, &opened);
    let done = done?;
    closed.map(|()| done)
}

fn open_all(
    target: &ApplyTarget<'_>,
    (dir, record): (&UndoDir, &Record),
    opened: &mut Vec<OpenedDir>,
) -> Result<()> {
    let moves = record.moves();
    let placed = record.placed.iter().map(|placed| placed.path.clone());
    let inside = record.inside.iter().map(|inside| inside.path.clone());
    let before = record.before.iter().filter_map(|before| moves.after(&before.path));
    let mut levels: BTreeMap<usize, HashSet<BasePath>> = BTreeMap::new();
    for path in placed.chain(inside).chain(before).filter(|path| !path.is_root()) {
        levels.entry(depth(&path)).or_default().insert(path);
    }
    let user = effective_user();
    // The entries of a closed directory can be examined only after it is opened.
    for paths in levels.into_values() {
        let known = opened.len();
        for path in paths {
            let object = match target.dir.object(&path) {
                Err(error) if error.is_of_object() => None,
                object => object?,
            };
            let is_ours = |attrs: &Attrs| attrs.uid == user && is_closed(attrs);
            if let Some(object) = object.filter(|object| is_ours(&object.attrs)) {
                opened.push(OpenedDir { path, ino: object.seen.ino, attrs: object.attrs });
            }
        }
        if opened.len() > known {
            dir.note_opened(&mut |out| {
                opened.iter().try_for_each(|opened| writeln!(out, "{}", opened.json()))
            })?;
        }
        for OpenedDir { path, ino, attrs } in &opened[known..] {
            change(&target.dir, (path, *ino), attrs.mode, open_attrs(attrs).mode)?;
        }
    }
    Ok(())
}

fn close_again(target: &Target, dir: &UndoDir, opened: &[OpenedDir]) -> Result<()> {
    for OpenedDir { path, ino, attrs } in opened.iter().rev() {
        change(target, (path, *ino), open_attrs(attrs).mode, attrs.mode)?;
    }
    match opened.is_empty() {
        true => Ok(()),
        false => Ok(dir.forget_opened()?),
    }
}

/// Closes directories that an undo opened before it was killed while it planned.
pub(super) fn close_left_open(target: &ApplyTarget<'_>) -> Result<()> {
    // An undo directory that cannot be used is refused when something is to be kept.
    let Ok(Some(dir)) = UndoDir::open(&target.undo_dir(), false) else { return Ok(()) };
    close_listed(target, &dir)
}

fn close_listed(target: &ApplyTarget<'_>, dir: &UndoDir) -> Result<()> {
    let Some(file) = dir.opened()? else { return Ok(()) };
    let mut opened = Vec::new();
    for line in BufReader::new(file).lines() {
        let line = line.map_err(|source| TargetError { path: dir.path().to_owned(), source })?;
        let value = serde_json::from_str::<Value>(&line).ok();
        opened.extend(value.as_ref().and_then(OpenedDir::read));
    }
    // The undo may have been of an apply to another directory.
    let other = keep::read(dir)?.filter(|record| !target.is_of(record));
    let other = other.map(|record| Target::open(&record.target)).transpose();
    match other {
        Ok(other) => close_again(other.as_ref().unwrap_or(&target.dir), dir, &opened)?,
        Err(error) => tracing::warn!(%error, "directories that an undo opened are not closed"),
    }
    Ok(dir.forget_opened()?)
}

/// Gives opened directories in `before` the attributes that they have while closed.
pub(super) fn add_before(before: &mut Vec<Before>, opened: &[OpenedDir]) {
    for OpenedDir { path, attrs, .. } in opened {
        let attrs = attrs.clone();
        match before.iter_mut().find(|before| before.path == *path) {
            Some(before) => before.attrs = attrs,
            None => before.push(Before { path: path.clone(), attrs, left: None, change: None }),
        }
    }
}

/// Whether an undo opened the directory of this inode number.
pub(super) fn is_opened(journal: &Journal, ino: u64) -> bool {
    journal.opened.iter().any(|opened| opened.ino == ino)
}

/// Whether the steps may leave the directory of a set open, so that it is to be closed.
fn is_left_open(journal: &Journal, set: &Set) -> bool {
    let is_changed = set.from.as_ref().is_none_or(|from| from.mode != set.attrs.mode);
    let is_opened = || set.seen.as_ref().is_some_and(|seen| is_opened(journal, seen.ino));
    is_closed(&set.attrs) && (is_changed || is_opened())
}

/// Opens the directories that the journal lists, before the first step.
pub(super) fn open(target: &Target, journal: &Journal) -> Result<()> {
    for OpenedDir { path, ino, attrs } in &journal.opened {
        change(target, (path, *ino), attrs.mode, open_attrs(attrs).mode)?;
    }
    Ok(())
}

/// The directories to close after all steps, by path, with their final attributes.
pub(super) fn closed_after(
    target: &Target,
    journal: &Journal,
    skipped: &HashSet<usize>,
) -> Result<HashMap<BasePath, Attrs>> {
    // A change may have been skipped for the owner, after the mode was set.
    let may_be_open =
        |set: &Set| set.from.as_ref().is_some_and(|from| from.mode != open_attrs(&set.attrs).mode);
    let is_done =
        |set: &&Set| set.change.is_none_or(|change| !skipped.contains(&change)) || may_be_open(set);
    let sets: HashMap<_, _> =
        journal.steps.sets.iter().filter(is_done).map(|set| (&set.path, set)).collect();
    let closed = sets.values().filter(|set| is_left_open(journal, set));
    let mut closed: HashMap<_, _> =
        closed.map(|set| (set.path.clone(), set.attrs.clone())).collect();
    let moves = keep::moves(&journal.steps);
    for OpenedDir { path, ino, attrs } in &journal.opened {
        // A directory whose change was skipped is still at its old path.
        for path in [moves.after(path), Some(path.clone())].into_iter().flatten() {
            let now = match target.object(&path) {
                Err(error) if error.is_of_object() => None,
                now => now?,
            };
            if let Some(now) = now
                && now.seen.ino == *ino
                && !sets.contains_key(&path)
            {
                closed.insert(path, Attrs { mode: attrs.mode, ..now.attrs });
            }
        }
    }
    Ok(closed)
}

/// Closes directories, the deepest first. Calls `each_depth` with those of one depth while the
/// directories above them are open. Returns those that something else gave another mode, which
/// stays.
pub(super) fn close(
    target: &Target,
    closed: &HashMap<BasePath, Attrs>,
    each_depth: &mut dyn FnMut(&[&BasePath]) -> Result<()>,
) -> Result<Vec<BasePath>> {
    let mut left = Vec::new();
    let mut closed: Vec<_> = closed.iter().collect();
    closed.sort_by_key(|(path, _)| Reverse(depth(path)));
    for level in closed.chunk_by(|(a, _), (b, _)| depth(a) == depth(b)) {
        for (path, attrs) in level {
            let close = |now: TargetObject| {
                let to = Attrs { mode: attrs.mode, ..now.attrs };
                let from = Attrs { mode: open_attrs(attrs).mode, ..to.clone() };
                target.change(path, &from, &to).map(|(_, changed)| changed.mode)
            };
            let now = target.object(path);
            match now.and_then(|now| now.filter(TargetObject::is_dir).map(close).transpose()) {
                Err(error) if !error.is_of_object() => return Err(error.into()),
                Ok(Some(true)) => left.push((*path).clone()),
                _closed_or_gone => {}
            }
        }
        let paths: Vec<_> = level.iter().map(|(path, _)| *path).collect();
        each_depth(&paths)?;
    }
    Ok(left)
}

/// Opens directories that an interrupted run has closed already.
pub(super) fn open_again(target: &Target, journal: &Journal) -> Result<()> {
    let sets = journal.steps.sets.iter().filter(|set| is_left_open(journal, set));
    let mut closed: Vec<_> = sets.map(|set| (set.path.clone(), set.attrs.clone())).collect();
    let moves = keep::moves(&journal.steps);
    for OpenedDir { path, attrs, .. } in &journal.opened {
        let after = moves.after(path).into_iter().chain([path.clone()]);
        closed.extend(after.map(|path| (path, attrs.clone())));
    }
    closed.sort_by_key(|(path, _)| depth(path));
    for (path, attrs) in closed {
        match target.object(&path) {
            Ok(Some(now)) if now.is_dir() && now.attrs.mode == attrs.mode => {
                target.set(&path, &open_attrs(&now.attrs))?;
            }
            Err(error) if !error.is_of_object() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}
