//! Makes a session readable for any implementation of the specification: without holes, redirects
//! and anything else that only acetate's own tables record.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::apply::check_finished;
use super::error::{InspectError, Result};
use super::opened::OpenSession;
use super::walk::{WalkControl, walk};
use crate::delta::sqlite::{CheckOptions, NonUtf8Names, OpenMode};
use crate::delta::{MergedPath, Store, StoreError};
use crate::overlay::{SealStep, Sealed, Sealing, TreeObject};
use crate::vfs::{FileKind, FsError, Time};

/// Space for the WAL and for tables, in bytes.
const MARGIN_BYTES: u64 = 64 << 20;

/// The most obstacles that are listed by name.
const MAX_NAMED: usize = 100;

/// The work that sealing takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SealPlan {
    /// Directories with a redirect.
    pub redirects: u64,
    /// Opaque directories.
    pub opaque: u64,
    /// Objects that are copied up because of redirects.
    pub objects: u64,
    /// Bytes of the files among them.
    pub moved_bytes: u64,
    /// Bytes of pending content, at most.
    pub pending_bytes: u64,
    /// Bytes of zeros in place of holes.
    pub zero_bytes: u64,
}

impl SealPlan {
    /// All bytes that are written.
    pub fn bytes(&self) -> u64 {
        self.moved_bytes.saturating_add(self.pending_bytes).saturating_add(self.zero_bytes)
    }

    /// The free space that sealing needs, in bytes: content, overhead of pages, and the WAL.
    fn needed(&self) -> u64 {
        let bytes = self.bytes();
        bytes.saturating_add(bytes / 16).saturating_add(self.objects * 1024 + MARGIN_BYTES)
    }
}

/// Obstacles for other implementations that sealing cannot remove.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Obstacles {
    /// Names that are not UTF-8.
    pub odd_names: NonUtf8Names,
    /// Entries that a whiteout hides from other implementations (W1).
    pub hidden: u64,
    /// The paths of the first of these entries.
    pub first_hidden: Vec<Vec<u8>>,
}

/// Computes the work that sealing takes.
///
/// # Errors
/// The session or its base cannot be read.
pub fn plan(opened: &OpenSession) -> Result<SealPlan> {
    check_finished(opened)?;
    let session = opened.session();
    let failed = |source| InspectError::Store { session: session.path().to_owned(), source };
    let mut plan = SealPlan {
        pending_bytes: session.stats().map_err(failed)?.pending.bytes,
        zero_bytes: session.hole_bytes().map_err(failed)?,
        ..SealPlan::default()
    };
    opened.with_tree(|view| {
        let path = MergedPath::root();
        let failed = |source| InspectError::Path { path: path.clone(), source };
        if let Some(lost) = view.lost_dirs().map_err(failed)?.first() {
            let what = format!("{}: {lost}: what showed of it would be lost", lost.path.display());
            return Err(InspectError::Invalid { what });
        }
        let dirs = view.moved_dirs().map_err(failed)?;
        plan.opaque = view.opaque_dirs().map_err(failed)?;
        plan.redirects = dirs.len() as u64;
        let is_inner = |dir: &&TreeObject| !dirs.iter().any(|outer| is_below(dir, outer));
        for dir in dirs.iter().filter(is_inner) {
            walk(view, dir, &mut |_, object, _| {
                if object.row().is_none() {
                    plan.objects += 1;
                    if object.attr().kind == FileKind::Regular {
                        plan.moved_bytes = plan.moved_bytes.saturating_add(object.attr().size);
                    }
                }
                Ok(WalkControl::Deeper)
            })?;
        }
        Ok(())
    })?;
    Ok(plan)
}

fn is_below(dir: &TreeObject, outer: &TreeObject) -> bool {
    let rest = dir.path().as_bytes().strip_prefix(outer.path().as_bytes());
    rest.is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// Seals the session `path` over `base`, or over the base that it records. With `for_agentfs`, the
/// table of origins is emptied; otherwise, it is filled again if it had been emptied.
///
/// Calls `tell` with the bytes written and the bytes in all.
///
/// # Errors
/// A server has the session, its base cannot be read, or there is too little space. Work done so
/// far stays, the session is valid, and the next call continues.
pub fn seal(
    path: &Path,
    base: Option<&Path>,
    for_agentfs: bool,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<Sealed> {
    // A running apply has the session in use: it is to be named, and not the session's lock.
    check_finished(&OpenSession::open(path, base)?)?;
    let opened = OpenSession::open_as(path, base, OpenMode::Serve)?;
    let session = opened.session();
    let failed = |source| InspectError::Store { session: session.path().to_owned(), source };
    let plan = plan(&opened)?;
    let disk = session.disk_usage().map_err(failed)?;
    if disk.total_bytes > 0 && disk.available_bytes < plan.needed() {
        return Err(InspectError::NoRoom {
            session: session.path().to_owned(),
            needed: plan.needed(),
            available: disk.available_bytes,
        });
    }
    let mut writer = session.writer().map_err(failed)?;
    let mut sealing = Sealing::new(opened.lower(), Arc::new(now));
    loop {
        writer.begin(false).map_err(failed)?;
        match sealing.step(writer.txn()) {
            Ok(SealStep::Made) => writer.commit().map_err(failed)?,
            Ok(SealStep::Skipped) => writer.abort().map_err(failed)?,
            Ok(SealStep::Over) => {
                writer.abort().map_err(failed)?;
                break;
            }
            Err(error) => {
                writer.abort().map_err(failed)?;
                return Err(stopped(session.path(), error.path, error.source));
            }
        }
        if writer.wants_maintenance() {
            writer.maintenance();
        }
        let done = sealing.done();
        tell(done.copied_bytes.saturating_add(done.zero_bytes), plan.bytes());
    }
    writer.begin(true).map_err(failed)?;
    writer.txn().show_origins(!for_agentfs).map_err(failed)?;
    writer.commit().map_err(failed)?;
    writer.close().map_err(failed)?;
    Ok(sealing.done().clone())
}

fn stopped(session: &Path, path: MergedPath, source: FsError) -> InspectError {
    match source {
        FsError::NoSpace => InspectError::Store {
            session: session.to_owned(),
            source: StoreError::full("no space left for more"),
        },
        _ => InspectError::Path { path, source },
    }
}

/// Finds what other implementations cannot handle in a session, sealed or not.
///
/// # Errors
/// The session cannot be read.
pub fn obstacles(path: &Path) -> Result<Obstacles> {
    let session = super::opened::open_session(path)?;
    let odd_names = session
        .odd_names(MAX_NAMED)
        .map_err(|source| InspectError::Store { session: path.to_owned(), source })?;
    let options = CheckOptions { most: MAX_NAMED, quick: true };
    let checked = crate::delta::sqlite::Session::check(path, &options)?;
    let hidden = checked.broken.into_iter().find(|broken| broken.rule == "W1");
    let (count, first) = hidden.map_or((0, Vec::new()), |found| (found.count, found.first));
    let first_hidden = first.into_iter().filter_map(|breach| breach.path).collect();
    Ok(Obstacles { odd_names, hidden: count, first_hidden })
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}
