//! The paths that changed since the checkpoint before a tool call: by the call, and by others.

use std::collections::{BTreeMap, BTreeSet};

use super::refusal::{CallRefusal, LaterChanges};
use super::{RestorableCall, failed};
use crate::delta::sqlite::{AuditFilter, AuditReader, Order, RowRemains, Session, UndoneRows};
use crate::delta::{AuditProcedure, AuditRow, MergedPath, RestorePaths, StoreError};
use crate::inspect::error::Result;
use crate::inspect::opened::find_if_there;
use crate::overlay::TreeView;
use crate::vfs::{Attr, FileKind};

/// How a path changed, as far as it matters to the paths above and below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathChange {
    /// Attributes were set, and nothing else changed.
    AttributesSet,
    /// The object was made, removed, replaced or written.
    Changed,
    /// The object was renamed, with all below it.
    Renamed,
}

/// How others changed a path.
#[derive(Debug)]
struct OtherChange {
    how: PathChange,
    /// The later tool calls among the others.
    calls: BTreeSet<i64>,
    /// Whether any of the changes is in no such call.
    is_outside_calls: bool,
}

/// The paths that changed since the checkpoint before a call, without what restores took back.
#[derive(Debug, Default)]
pub(super) struct CallChanges {
    pub(super) by_call: BTreeMap<MergedPath, PathChange>,
    /// Before the call or since.
    by_others: BTreeMap<MergedPath, OtherChange>,
    /// Whether the call changed anything, also if it was taken back.
    pub(super) has_any: bool,
    /// The last row of the log that was read.
    pub(super) last: i64,
}

impl CallChanges {
    pub(super) fn read(session: &Session, call: &RestorableCall) -> Result<Self> {
        let read = session.audit().and_then(|log| match log {
            Some(log) => log.at_once(|| Self::read_log(&log, call)),
            None => Ok(Ok(Self::default())),
        });
        read.map_err(|source| failed(session, source))?.map_err(|why| call.refused(why))
    }

    fn read_log(
        log: &AuditReader,
        call: &RestorableCall,
    ) -> std::result::Result<std::result::Result<Self, CallRefusal>, StoreError> {
        let undone = log.undone_rows()?;
        let mut changes = Self { last: log.last_id()?, ..Self::default() };
        let first = call.to.last_op.saturating_add(1);
        let mut rest = Some(first..=changes.last);
        while let Some(ids) = rest.take().filter(|ids| !ids.is_empty()) {
            let is_first = *ids.start() == first;
            let page = log.page(&AuditFilter::default(), Order::OldestFirst, ids, &|_| true)?;
            if is_first && page.rows.first().is_none_or(|(id, _)| *id != first) {
                return Ok(Err(CallRefusal::LogCut));
            }
            for (id, row) in page.rows {
                let Ok(row) = row else { return Ok(Err(CallRefusal::UnknownPath(id))) };
                if let Err(why) = changes.add(id, &row, (call, &undone)) {
                    return Ok(Err(why));
                }
            }
            rest = page.rest;
        }
        Ok(Ok(changes))
    }

    fn add(
        &mut self,
        id: i64,
        row: &AuditRow,
        (call, undone): (&RestorableCall, &UndoneRows),
    ) -> std::result::Result<(), CallRefusal> {
        let is_of_call = call.bounds.has(id);
        let (is_at_path, is_at_path2) = remaining_paths(id, row, (call, undone));
        if is_of_call && is_at_path && row.is_shortened() {
            return Err(CallRefusal::UnknownPath(id));
        }
        let is_change = !matches!(row.procedure, AuditProcedure::Refuse | AuditProcedure::Apply);
        self.has_any |= is_of_call && is_change;
        let how = match row.procedure {
            AuditProcedure::Rename => PathChange::Renamed,
            AuditProcedure::Setattr if !row.is_shortened() => PathChange::AttributesSet,
            _ => PathChange::Changed,
        };
        let path2 = row.path2.as_ref().filter(|_| is_at_path2);
        let paths = [is_at_path.then_some(&row.path), path2];
        for path in paths.into_iter().flatten() {
            if is_of_call {
                let known = self.by_call.entry(path.clone()).or_insert(how);
                *known = how.max(*known);
                continue;
            }
            let (calls, is_outside_calls) = (BTreeSet::new(), false);
            let new = OtherChange { how, calls, is_outside_calls };
            let known = self.by_others.entry(path.clone()).or_insert(new);
            known.how = how.max(known.how);
            match call.later_call_of(id) {
                Some(later) => drop(known.calls.insert(later)),
                None => known.is_outside_calls = true,
            }
        }
        Ok(())
    }

    /// Whether only the call changed anything.
    pub(super) fn is_alone(&self) -> bool {
        self.by_others.is_empty()
    }

    /// The paths that go back, none below another; those that were there only in between do not.
    ///
    /// A directory whose attributes alone were set goes back whole if nothing else changed in it.
    /// Otherwise it stays, if only its times differ: they follow the changes in it.
    pub(super) fn restored_paths(
        &self,
        call: &RestorableCall,
        trees: [&TreeView<'_>; 2],
    ) -> Result<BTreeSet<MergedPath>> {
        let mut paths: BTreeSet<MergedPath> = BTreeSet::new();
        let mut in_the_way = BTreeSet::new();
        let (mut dirs, mut in_dirs) = (BTreeSet::new(), BTreeSet::new());
        for (path, how) in &self.by_call {
            if path.is_within_any(&paths) {
                continue;
            }
            let [current, past] = [find_if_there(trees[0], path)?, find_if_there(trees[1], path)?];
            match (*how, &current, &past) {
                // Others may have moved what the call made there.
                (_, None, None) => {
                    in_the_way.extend(self.by_others_above(path, PathChange::Renamed));
                }
                (PathChange::AttributesSet, Some(current), Some(past))
                    if current.attr().kind == FileKind::Directory
                        && self.by_others_within(path).next().is_some() =>
                {
                    let set = |attr: &Attr| (attr.kind, attr.mode, attr.uid, attr.gid);
                    if set(current.attr()) == set(past.attr()) {
                        continue;
                    }
                    if self.by_others.contains_key(path) {
                        in_the_way.extend(self.by_others_within(path));
                    } else {
                        dirs.insert(path.clone());
                        in_dirs.extend(self.by_others_within(path));
                    }
                }
                _ => drop(paths.insert(path.clone())),
            }
        }
        self.check_empty(call, &in_the_way)?;
        if !dirs.is_empty() {
            let (later, to) = (self.later(call, &in_dirs), call.to.id);
            let (dirs, paths) =
                (dirs.into_iter().collect(), in_dirs.into_iter().cloned().collect());
            return Err(call.refused(CallRefusal::DirAttributes { dirs, paths, later, to }));
        }
        Ok(paths)
    }

    /// A path and those above it that others changed, at least in this way.
    fn by_others_above(
        &self,
        path: &MergedPath,
        at_least: PathChange,
    ) -> impl Iterator<Item = &MergedPath> {
        let all = std::iter::once(path.clone()).chain(path.above());
        let found = all.filter_map(move |path| self.by_others.get_key_value(&path));
        found.filter(move |(_, change)| change.how >= at_least).map(|(path, _)| path)
    }

    /// The paths at and below a path that others changed.
    fn by_others_within<'a>(
        &'a self,
        path: &'a MergedPath,
    ) -> impl Iterator<Item = &'a MergedPath> {
        // A path sorts before all below it, but `/a.b` sorts between `/a` and `/a/b`.
        let from = self.by_others.range(path.clone()..).map(|(other, _)| other);
        let is_near = |other: &&MergedPath| other.as_bytes().starts_with(path.as_bytes());
        from.take_while(is_near).filter(|other| other.is_within(path))
    }

    /// Refuses if others changed anything that a restore of these paths takes back.
    pub(super) fn check(&self, call: &RestorableCall, closed: &RestorePaths) -> Result<()> {
        let mut found = BTreeSet::new();
        for path in &closed.paths {
            found.extend(self.by_others_within(path));
        }
        found.extend(closed.dirs.iter().filter(|dir| self.by_others.contains_key(*dir)));
        for path in closed.paths.union(&closed.dirs) {
            // What moved or went with a directory above.
            found.extend(self.by_others_above(path, PathChange::Changed));
        }
        self.check_empty(call, &found)
    }

    fn check_empty(&self, call: &RestorableCall, others: &BTreeSet<&MergedPath>) -> Result<()> {
        if others.is_empty() {
            return Ok(());
        }
        let (later, to) = (self.later(call, others), call.to.id);
        let paths = others.iter().copied().cloned().collect();
        Err(call.refused(CallRefusal::ChangedAgain { paths, later, to }))
    }

    /// What changed these paths.
    fn later(&self, call: &RestorableCall, paths: &BTreeSet<&MergedPath>) -> LaterChanges {
        let mut calls = BTreeSet::new();
        let mut is_outside_calls = false;
        for change in paths.iter().filter_map(|path| self.by_others.get(*path)) {
            calls.extend(&change.calls);
            is_outside_calls |= change.is_outside_calls;
        }
        let calls = calls.iter().rev().filter_map(|id| call.later_call(*id)).collect();
        LaterChanges { calls, is_outside_calls }
    }
}

/// Whether restores left the change of a row at its path, and at its second path.
fn remaining_paths(
    id: i64,
    row: &AuditRow,
    (call, undone): (&RestorableCall, &UndoneRows),
) -> (bool, bool) {
    match (row.procedure, row.offset) {
        // An apply changes the base, and not the tree.
        (AuditProcedure::Refuse | AuditProcedure::Apply, _) => return (false, false),
        // The rows that are left tell what it changed, unless it took back earlier ones.
        (AuditProcedure::Restore, Some(last)) => {
            let is_further = last < call.to.last_op.cast_unsigned();
            return (is_further && !undone.is_taken_back(id, row), false);
        }
        _ => {}
    }
    match undone.remains(id, row.path.as_bytes(), row.path2.as_ref().map(MergedPath::as_bytes)) {
        RowRemains::All => (true, true),
        RowRemains::OnlyAtPath => (true, false),
        RowRemains::OnlyAtPath2 => (false, true),
        RowRemains::Nothing => (false, false),
    }
}
