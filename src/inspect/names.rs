//! Finds the rows of the audit log that are about a path, under its earlier names too.
//!
//! Rows have the paths of their time, so [`PathHistory`] reads the log backwards from the given
//! path. At a RENAME that moved the object or a directory above it, the name becomes the earlier
//! one. At the row that created the object, its history ends. The given path stays one of the
//! names, because earlier objects at it belong to its history. Numbers of objects are never reused:
//! rows of an object found at one of the names are also recognized by its number.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use crate::delta::sqlite::MentionedNames;
use crate::delta::{AuditProcedure, MergedPath};
use crate::vfs::FileId;

/// What is at a path now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathState {
    /// The path was not looked up.
    Unknown,
    /// The path is free.
    Nothing,
    /// The path leads to this object.
    Object(FileId),
}

/// Reads the log backwards, from the current state of a path.
pub(super) struct PathHistory {
    asked: Vec<u8>,
    /// Whether the asked path may have had an object right after the next row.
    is_there: bool,
    /// Other names at that time of the objects that came to the asked path.
    others: Vec<Vec<u8>>,
    /// Objects that were at the asked path later, or came there.
    objects: HashSet<FileId>,
    /// Ids of the rows about the path, newest first.
    rows: Vec<RangeInclusive<i64>>,
}

impl PathHistory {
    /// Starts at `path`, which has `now`.
    pub(super) fn of(path: &MergedPath, now: PathState) -> Self {
        let object = if let PathState::Object(id) = now { Some(id) } else { None };
        Self {
            asked: path.as_bytes().to_vec(),
            is_there: now != PathState::Nothing,
            others: Vec::new(),
            objects: object.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Processes the next older row.
    pub(super) fn process_row(&mut self, id: i64, mention: Option<MentionedNames<'_>>) {
        // A row that cannot be decoded may be about the path.
        let is_about = mention.is_none_or(|mention| self.undo_row(&mention));
        if !is_about {
            return;
        }
        match self.rows.last_mut() {
            Some(rows) if rows.start().checked_sub(1) == Some(id) => *rows = id..=*rows.end(),
            _ => self.rows.push(id..=id),
        }
    }

    /// Whether a processed row is about the path.
    pub(super) fn has(&self, id: i64) -> bool {
        let at = self.rows.partition_point(|rows| *rows.start() > id);
        self.rows.get(at).is_some_and(|rows| rows.contains(&id))
    }

    /// The first and the last id of the rows about the path.
    pub(super) fn ends(&self) -> Option<RangeInclusive<i64>> {
        Some(*self.rows.last()?.start()..=*self.rows.first()?.end())
    }

    /// Undoes a change; returns whether it was about one of the names or objects.
    fn undo_row(&mut self, mention: &MentionedNames<'_>) -> bool {
        let MentionedNames { procedure, path, path2, fileid } = *mention;
        if takes_away(procedure) {
            // The change made `path` free, so no object of later rows had that name.
            self.others.retain(|name| below(name, path).is_none());
        }
        let paths = || [Some(path), path2].into_iter().flatten();
        let names = || self.others.iter().chain([&self.asked]);
        let is_below = names().any(|name| paths().any(|path| below(path, name).is_some()));
        let is_known = self.objects.contains(&fileid);
        // The object's path after the change, and before it.
        let (after, before) = match (procedure, path2) {
            (AuditProcedure::Rename | AuditProcedure::Link, Some(path2)) => {
                (Some(path2), Some(path))
            }
            (AuditProcedure::Remove | AuditProcedure::Rmdir, _) => (None, Some(path)),
            (
                AuditProcedure::Create
                | AuditProcedure::Mkdir
                | AuditProcedure::Symlink
                | AuditProcedure::Mknod,
                _,
            ) => (Some(path), None),
            _ => (Some(path), Some(path)),
        };
        let is_at = names().any(|name| after == Some(name)) || before == Some(&self.asked);
        if is_at {
            self.objects.insert(fileid);
        }
        let moved = match procedure {
            AuditProcedure::Setattr
            | AuditProcedure::Write
            | AuditProcedure::Discard
            | AuditProcedure::Apply
            | AuditProcedure::Publish
            | AuditProcedure::Refuse => false,
            // It may have changed any path below.
            AuditProcedure::Restore => {
                (path == b"/" || below(&self.asked, path).is_some())
                    && (self.is_there || !self.rows.is_empty())
            }
            AuditProcedure::Remove | AuditProcedure::Rmdir => {
                self.is_there |= path == self.asked;
                false
            }
            AuditProcedure::Create
            | AuditProcedure::Mkdir
            | AuditProcedure::Symlink
            | AuditProcedure::Mknod => {
                self.others.retain(|name| below(name, path).is_none());
                self.is_there &= below(&self.asked, path).is_none();
                false
            }
            AuditProcedure::Rename => self.undo_rename(path, after.unwrap_or(path)),
            AuditProcedure::Link => {
                self.undo_link(path, after.unwrap_or(path));
                false
            }
        };
        is_below || is_known || moved
    }

    /// Undoes a RENAME; returns whether it moved one of the names, directly or with a directory.
    fn undo_rename(&mut self, from: &[u8], to: &[u8]) -> bool {
        let mut moved = false;
        let mut earlier = Vec::new();
        self.others.retain(|name| {
            if let Some(rest) = below(name, to) {
                earlier.push([from, rest].concat());
            }
            below(name, to).is_none()
        });
        if let Some(rest) = below(&self.asked, to).filter(|_| self.is_there || self.asked == to) {
            earlier.push([from, rest].concat());
            // The RENAME may have replaced an object at the path itself. Below a replaced directory
            // there was nothing: RENAME only replaces empty ones.
            self.is_there = rest.is_empty();
        } else if below(&self.asked, from).is_some() {
            self.is_there = true;
            moved = true;
        }
        moved |= !earlier.is_empty();
        for name in earlier {
            self.add(name);
        }
        moved
    }

    /// Undoes a LINK that made `new` a name of the object at `old`.
    fn undo_link(&mut self, old: &[u8], new: &[u8]) {
        let count = self.others.len();
        self.others.retain(|name| name != new);
        if self.others.len() < count || self.asked == new {
            self.add(old.to_vec());
        }
        if self.asked == new {
            self.is_there = false;
        }
    }

    fn add(&mut self, name: Vec<u8>) {
        if name != self.asked && !self.others.contains(&name) {
            self.others.push(name);
        }
    }
}

/// Follows a path forwards from now on: by its name, and by the object that is there.
pub(super) struct PathWatch {
    path: Vec<u8>,
    object: Option<FileId>,
}

impl PathWatch {
    /// Starts at `path`, which has `now`.
    pub(super) fn of(path: &MergedPath, now: PathState) -> Self {
        let object = if let PathState::Object(id) = now { Some(id) } else { None };
        Self { path: path.as_bytes().to_vec(), object }
    }

    /// Whether the next row is about the path.
    pub(super) fn take(&mut self, mention: &MentionedNames<'_>) -> bool {
        let MentionedNames { procedure, path, path2, fileid } = *mention;
        let watched = &*self.path;
        let is_rename = procedure == AuditProcedure::Rename;
        let both = [Some(path), path2];
        let is_about = both.into_iter().flatten().any(|path| {
            below(path, watched).is_some() || (is_rename && below(watched, path).is_some())
        }) || self.object == Some(fileid);
        let leaves = takes_away(procedure) && below(watched, path).is_some();
        let is_here = path2.unwrap_or(path) == watched;
        if leaves {
            self.object = None;
        } else if is_here {
            self.object = Some(fileid);
        }
        is_about
    }
}

/// Whether `path` of a row is free after the change.
fn takes_away(procedure: AuditProcedure) -> bool {
    matches!(procedure, AuditProcedure::Remove | AuditProcedure::Rmdir | AuditProcedure::Rename)
}

/// The rest of `path` after `dir`, if `path` is `dir` or below it.
fn below<'p>(path: &'p [u8], dir: &[u8]) -> Option<&'p [u8]> {
    let rest = path.strip_prefix(dir)?;
    (rest.is_empty() || rest[0] == b'/').then_some(rest)
}
