//! Which rows of the audit log are about a path: what it was called before, and what was there.
//!
//! Paths in the log are as they were then, so [`PathHistory`] reads it backwards, from the path
//! that was given: at each RENAME that brought the object there, or a directory above it, the name
//! becomes the one before; at what made it, it ends. The given path itself stays one of the names:
//! what was there earlier is a part of its history too. Numbers of objects are never used again, so
//! once an object is known to be one of those, its rows are known by its number, whichever of its
//! names they give.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use crate::delta::sqlite::MentionedNames;
use crate::delta::{AuditProcedure, MergedPath};
use crate::vfs::FileId;

/// What is known to be at a path now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Now {
    /// It was not looked up.
    Unknown,
    /// Nothing.
    Nothing,
    /// This.
    Object(FileId),
}

/// Reads the log backwards, from a path as it is now.
pub(super) struct PathHistory {
    asked: Vec<u8>,
    /// Whether something may have been at the asked path after the row that comes next.
    is_there: bool,
    /// What the object at the asked path was called then, where that is another path.
    others: Vec<Vec<u8>>,
    /// What is known to have been there later, or to have come there.
    objects: HashSet<FileId>,
    /// The rows that are about it, the last ones first.
    rows: Vec<RangeInclusive<i64>>,
}

impl PathHistory {
    /// From `path` on, which leads to `now`.
    pub(super) fn of(path: &MergedPath, now: Now) -> Self {
        let object = if let Now::Object(id) = now { Some(id) } else { None };
        Self {
            asked: path.as_bytes().to_vec(),
            is_there: now != Now::Nothing,
            others: Vec::new(),
            objects: object.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Takes the row before the last one.
    pub(super) fn take(&mut self, id: i64, mention: Option<MentionedNames<'_>>) {
        // What cannot be read may be about it.
        let is_about = mention.is_none_or(|mention| self.go_back(&mention));
        if !is_about {
            return;
        }
        match self.rows.last_mut() {
            Some(rows) if rows.start().checked_sub(1) == Some(id) => *rows = id..=*rows.end(),
            _ => self.rows.push(id..=id),
        }
    }

    /// Whether a row that was taken is about the path.
    pub(super) fn has(&self, id: i64) -> bool {
        let at = self.rows.partition_point(|rows| *rows.start() > id);
        self.rows.get(at).is_some_and(|rows| rows.contains(&id))
    }

    /// The first and the last of those rows.
    pub(super) fn ends(&self) -> Option<RangeInclusive<i64>> {
        Some(*self.rows.last()?.start()..=*self.rows.first()?.end())
    }

    /// Undoes the change: whether it was about any of the names, or any of the objects.
    fn go_back(&mut self, mention: &MentionedNames<'_>) -> bool {
        let MentionedNames { procedure, path, path2, fileid } = *mention;
        if takes_away(procedure) {
            // What left before cannot be what was there later.
            self.others.retain(|name| below(name, path).is_none());
        }
        let paths = || [Some(path), path2].into_iter().flatten();
        let names = || self.others.iter().chain([&self.asked]);
        let is_below = names().any(|name| paths().any(|path| below(path, name).is_some()));
        let is_known = self.objects.contains(&fileid);
        // Where the object is after the change, and before.
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

    /// Whether one of the names was moved, by itself or with a directory above it.
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
            // What it replaced was there before; a directory can only have been empty.
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

    /// The name `new` was a second one of the object at `old`.
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

/// Watches a path from now on: by its name, and by the object that is there.
pub(super) struct PathWatch {
    path: Vec<u8>,
    object: Option<FileId>,
}

impl PathWatch {
    /// From now on, where `path` leads to `now`.
    pub(super) fn of(path: &MergedPath, now: Now) -> Self {
        let object = if let Now::Object(id) = now { Some(id) } else { None };
        Self { path: path.as_bytes().to_vec(), object }
    }

    /// Whether the next change is about the path.
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

/// Whether nothing is at the path of the change after it.
fn takes_away(procedure: AuditProcedure) -> bool {
    matches!(procedure, AuditProcedure::Remove | AuditProcedure::Rmdir | AuditProcedure::Rename)
}

/// What is behind `dir` in `path`, where that is `dir` or below it.
fn below<'p>(path: &'p [u8], dir: &[u8]) -> Option<&'p [u8]> {
    let rest = path.strip_prefix(dir)?;
    (rest.is_empty() || rest[0] == b'/').then_some(rest)
}
