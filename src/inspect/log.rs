//! Reads the audit log: who changed what, and when. For a path, also under its earlier names.

use std::collections::HashSet;
use std::fmt;
use std::ops::{ControlFlow, RangeInclusive};
use std::path::PathBuf;
use std::rc::Rc;

use super::error::{InspectError, Result};
use super::names::{PathHistory, PathWatch};
use super::opened::OpenSession;
use crate::delta::sqlite::{
    AuditFilter, AuditReader, InvalidRow, Order, RowRemains, Session, UndoneRows,
};
use crate::delta::{AuditProcedure, AuditRow, Dropped, MergedPath, StoreError};
use crate::vfs::Time;

pub use super::names::PathState;

/// Row ids that one step of [`AuditLog::read_on`] reads.
const STEP_IDS: i64 = 10_000;

/// Which rows to read.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// Conditions on the row itself.
    pub filter: AuditFilter,
    /// Only rows about this path, about anything below it, and about the object that is there.
    pub path: Option<(MergedPath, PathState)>,
    /// Only rows that this filter accepts.
    pub rows: Option<RowFilter>,
    /// Only the last rows of the result, at most this many.
    pub last: Option<u64>,
    /// The order of the rows.
    pub order: Order,
}

/// A filter of rows.
#[derive(Clone)]
pub struct RowFilter(pub Rc<dyn Fn(&AuditRow) -> bool>);

impl fmt::Debug for RowFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RowFilter")
    }
}

/// Called for each row, with its id; breaks to stop. A row that cannot be decoded arrives as the
/// reason.
pub type EachRow<'a> =
    dyn FnMut(i64, std::result::Result<AuditRow, InvalidRow>) -> ControlFlow<()> + 'a;

/// The audit log of a session.
pub struct AuditLog {
    reader: AuditReader,
    session: PathBuf,
    options: LogOptions,
    watch: Option<PathWatch>,
    /// The id of the last row at the time of the last read.
    seen: i64,
}

/// The object at a path now; its number identifies it under all its names.
pub fn now(opened: &OpenSession, path: &MergedPath) -> PathState {
    match opened.with_tree(|view| Ok(view.find(path))) {
        Ok(Ok(Some(object))) => PathState::Object(object.attr().fileid),
        Ok(Ok(None)) => PathState::Nothing,
        Ok(Err(_)) | Err(_) => PathState::Unknown,
    }
}

/// Whether the session set attributes of the top since it last had those of the base.
///
/// # Errors
/// The session cannot be read.
pub(super) fn is_top_set(opened: &OpenSession) -> Result<bool> {
    let procedures = vec![AuditProcedure::Setattr, AuditProcedure::Apply, AuditProcedure::Discard];
    let filter = AuditFilter { procedures, ..AuditFilter::default() };
    let options = LogOptions { filter, order: Order::NewestFirst, ..LogOptions::default() };
    let log = match AuditLog::open(opened.session(), options) {
        Err(InspectError::NoAudit { .. }) => return Ok(false),
        log => log?,
    };
    let mut last = None;
    log.read_for_tree(&mut |row| {
        last = (row.path == MergedPath::root()).then_some(row.procedure);
        if last.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(last == Some(AuditProcedure::Setattr))
}

impl AuditLog {
    /// Opens the audit log of a session.
    ///
    /// # Errors
    /// The session has no audit log, or cannot be read.
    pub fn open(session: &Session, mut options: LogOptions) -> Result<Self> {
        let path = session.path().to_owned();
        let reader = session.audit().map_err(|source| failed(&path, source))?;
        let reader = reader.ok_or_else(|| InspectError::NoAudit { session: path.clone() })?;
        // A filter by the root would match every row.
        options.path = options.path.filter(|(path, _)| *path != MergedPath::root());
        let watch = options.path.as_ref().map(|(path, now)| PathWatch::of(path, *now));
        Ok(Self { reader, session: path, options, watch, seen: 0 })
    }

    /// The id of the last row that may be pruned at `now`, such that the `keep` newest rows and all
    /// rows from `since` on stay; 0 if no row may be pruned.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn prunable(&self, now: Time, keep: Option<u64>, since: Option<Time>) -> Result<i64> {
        let last = self.reader.last_prunable(now);
        let last = last.map_err(|source| failed(&self.session, source))?;
        Ok(last.min(self.unwanted(keep, since)?))
    }

    /// The id of the last row that is neither one of the `keep` newest nor from `since` on, whether
    /// or not it may be pruned; 0 if there is none.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn unwanted(&self, keep: Option<u64>, since: Option<Time>) -> Result<i64> {
        let last = || -> std::result::Result<i64, StoreError> {
            let mut last = i64::MAX;
            if let Some(keep) = keep {
                last = last.min(self.reader.last_but(keep)?);
            }
            if let Some(since) = since {
                last = last.min(self.reader.last_before(since)?);
            }
            Ok(last)
        };
        last().map_err(|source| failed(&self.session, source))
    }

    /// Calls `each` for the rows with these ids, oldest first.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn read_ids(&self, ids: RangeInclusive<i64>, each: &mut EachRow<'_>) -> Result<()> {
        self.pages(Order::OldestFirst, ids, &|_| true, each)
    }

    /// The rows that the log's size bound deleted, if any.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn dropped(&self) -> Result<Option<Dropped>> {
        self.reader.dropped().map_err(|source| failed(&self.session, source))
    }

    /// The rows whose changes a restore took back.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn undone_rows(&self) -> Result<UndoneRows> {
        self.reader.undone_rows().map_err(|source| failed(&self.session, source))
    }

    /// Whether any row is about a path.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn knows(&self, path: &MergedPath, now: PathState) -> Result<bool> {
        let mut past = PathHistory::of(path, now);
        let ids = i64::MIN..=self.last_id()?;
        let read = self.reader.mentions(Order::NewestFirst, &ids, &mut |id, mention| {
            past.process_row(id, mention);
        });
        read.map_err(|source| failed(&self.session, source))?;
        Ok(past.ends().is_some())
    }

    /// Calls `each` for the rows written so far.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn read(&mut self, each: &mut EachRow<'_>) -> Result<()> {
        self.seen = self.last_id()?;
        let mut ids = i64::MIN..=self.seen;
        let past = self.past(&ids)?;
        if let Some(past) = &past {
            let Some(ends) = past.ends() else { return Ok(()) };
            ids = ends;
        }
        let wanted = |id| past.as_ref().is_none_or(|past| past.has(id));
        let Some(mut left) = self.options.last else {
            return self.pages(self.options.order, ids, &wanted, each);
        };
        if self.options.order == Order::OldestFirst {
            let Some(first) = self.nth_last(left, ids.clone(), &wanted)? else { return Ok(()) };
            return self.pages(Order::OldestFirst, first..=*ids.end(), &wanted, each);
        }
        if left == 0 {
            return Ok(());
        }
        self.pages(Order::NewestFirst, ids, &wanted, &mut |id, row| {
            left -= 1;
            let flow = each(id, row);
            if left == 0 { ControlFlow::Break(()) } else { flow }
        })
    }

    /// Calls `each`, in one snapshot, for the rows that say how the tree came about: all readable
    /// ones and those that pruning kept for `apply`, but for what a restore took back. Ignores all
    /// options but `order` and `filter`; to the rows that pruning kept, only `filter.procedures`
    /// applies.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn read_for_tree(&self, each: &mut dyn FnMut(&AuditRow) -> ControlFlow<()>) -> Result<()> {
        let procedures = &self.options.filter.procedures;
        let mut wanted =
            |row: &AuditRow| match procedures.is_empty() || procedures.contains(&row.procedure) {
                true => each(row),
                false => ControlFlow::Continue(()),
            };
        let order = self.options.order;
        let session = &self.session;
        let read = self.reader.at_once(|| -> std::result::Result<(), StoreError> {
            let undone = self.reader.undone_rows()?;
            let mut kept = |id: i64, row: &AuditRow| {
                let (path, path2) = (&row.path, row.path2.as_ref());
                let second = path2.map(MergedPath::as_bytes);
                match undone.remains(id, path.as_bytes(), second) {
                    RowRemains::Nothing => ControlFlow::Continue(()),
                    RowRemains::All => wanted(row),
                    RowRemains::OnlyAtPath => wanted(&change_of(path, row)),
                    RowRemains::OnlyAtPath2 => wanted(&change_of(path2.unwrap_or(path), row)),
                }
            };
            if order == Order::OldestFirst && self.reader.past(order, &mut kept)?.is_break() {
                return Ok(());
            }
            let mut rest = Some(i64::MIN..=self.reader.last_id()?);
            while let Some(ids) = rest {
                let page = self.reader.page(&self.options.filter, order, ids, &|_| true)?;
                for (id, row) in &page.rows {
                    if row.as_ref().is_ok_and(|row| kept(*id, row).is_break()) {
                        return Ok(());
                    }
                }
                rest = page.rest;
            }
            if order == Order::NewestFirst {
                let _ends = self.reader.past(order, &mut kept)?;
            }
            Ok(())
        });
        read.map_err(|source| failed(session, source))
    }

    /// Calls `each`, oldest first, for the rows since the last call of this method or of
    /// [`AuditLog::read`]. With a path, these are the rows about its current name.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn read_on(&mut self, each: &mut EachRow<'_>) -> Result<()> {
        let last = self.last_id()?;
        let mut stopped = false;
        while self.seen < last && !stopped {
            let step = last.min(self.seen.saturating_add(STEP_IDS));
            let ids = self.seen.saturating_add(1)..=step;
            let mut about = HashSet::new();
            if let Some(watch) = &mut self.watch {
                let mentions =
                    self.reader.mentions(Order::OldestFirst, &ids, &mut |id, mention| {
                        // A row that cannot be decoded may be about the path.
                        if mention.is_none_or(|mention| watch.take(&mention)) {
                            about.insert(id);
                        }
                    });
                mentions.map_err(|source| failed(&self.session, source))?;
            }
            let wanted = |id| self.watch.is_none() || about.contains(&id);
            self.pages(Order::OldestFirst, ids, &wanted, &mut |id, row| {
                let flow = each(id, row);
                stopped = flow.is_break();
                flow
            })?;
            self.seen = step;
        }
        Ok(())
    }

    /// The rows about the path of the options, if there is one.
    fn past(&self, ids: &RangeInclusive<i64>) -> Result<Option<PathHistory>> {
        let Some((path, now)) = &self.options.path else { return Ok(None) };
        let mut past = PathHistory::of(path, *now);
        let read = self.reader.mentions(Order::NewestFirst, ids, &mut |id, mention| {
            past.process_row(id, mention);
        });
        read.map_err(|source| failed(&self.session, source))?;
        Ok(Some(past))
    }

    /// The id of the first of the last `count` rows.
    fn nth_last(
        &self,
        count: u64,
        ids: RangeInclusive<i64>,
        wanted: &dyn Fn(i64) -> bool,
    ) -> Result<Option<i64>> {
        let (mut first, mut left) = (None, count);
        if left > 0 {
            self.pages(Order::NewestFirst, ids, wanted, &mut |id, _| {
                first = Some(id);
                left -= 1;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
        }
        Ok(first)
    }

    fn pages(
        &self,
        order: Order,
        ids: RangeInclusive<i64>,
        wanted: &dyn Fn(i64) -> bool,
        each: &mut EachRow<'_>,
    ) -> Result<()> {
        let mut rest = Some(ids);
        while let Some(ids) = rest {
            let page = self.reader.page(&self.options.filter, order, ids, wanted);
            let page = page.map_err(|source| failed(&self.session, source))?;
            for (id, row) in page.rows {
                let is_taken = |filter: &RowFilter| row.as_ref().map_or(true, |row| filter.0(row));
                if !self.options.rows.as_ref().is_none_or(is_taken) {
                    continue;
                }
                if each(id, row).is_break() {
                    return Ok(());
                }
            }
            rest = page.rest;
        }
        Ok(())
    }

    fn last_id(&self) -> Result<i64> {
        self.reader.last_id().map_err(|source| failed(&self.session, source))
    }
}

/// What is left of a move or a new name if one end was taken back: the other one changed.
fn change_of(path: &MergedPath, row: &AuditRow) -> AuditRow {
    let procedure = AuditProcedure::Write;
    AuditRow { procedure, path: path.clone(), path2: None, ..row.clone() }
}

fn failed(session: &std::path::Path, source: StoreError) -> InspectError {
    InspectError::Store { session: session.to_owned(), source }
}
