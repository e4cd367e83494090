//! Removes replicas of sessions in databases that are not used any more.
//!
//! A replica can be made again, unless it has rows that its database lacks: such a one stays, and
//! so does one whose database does not answer. When a replica was used last is its file's mtime:
//! opening a session does not change it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, utimensat};
use tokio::runtime::Handle;

use crate::delta::postgres::{HoldError, SessionState, SessionUrl, connect, session_state};
use crate::delta::sqlite::{BatchMark, Session, remove_session};
use crate::inspect::opened::host;

/// A replica that was not used for so long is removed.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The most replicas that are looked at, the oldest ones first.
const MAX_LOOKED: usize = 32;

/// The most entries of the directory that are read.
const MAX_ENTRIES: usize = 10_000;

/// A replica by its file.
struct OldReplica {
    path: PathBuf,
    /// The session's number, and its incarnation.
    of: (i64, i64),
    used: SystemTime,
}

impl OldReplica {
    fn is_unused(&self) -> bool {
        self.used.elapsed().is_ok_and(|age| age >= UNUSED)
    }

    /// Whether the replica may go: `found` is what the database has of its session.
    fn may_go(&self, mark: BatchMark, found: Option<&SessionState>) -> bool {
        match found.filter(|found| found.incarnation == self.of.1) {
            Some(found) if mark.seq > found.mark.seq => false,
            // The database came to this number by another way: it was restored.
            Some(found) if mark.seq == found.mark.seq && mark != found.mark => false,
            Some(found) if found.stamp.is_some_and(|stamp| stamp != mark.stamp) => false,
            Some(found) if found.is_moved && found.stamp.is_some() => true,
            // The session is gone, or it was never there: the database may have been restored.
            Some(_) | None => self.is_unused(),
        }
    }
}

/// Removes the replicas in `dir` that nothing has used for 30 days, and those of sessions that were
/// moved out of the schema of `url`; returns how many. Blocks; must not run on a runtime thread.
pub fn remove_old_replicas(dir: &Path, url: &SessionUrl, runtime: &Handle) -> usize {
    let mut removed = 0;
    let Ok(client) = runtime.block_on(connect(&url.connection, runtime)) else { return 0 };
    let here = |id, seq| Ok(runtime.block_on(session_state(&client, &url.schema, id, seq))?);
    for replica in oldest(dir) {
        match remove(&replica, (url, &here), runtime) {
            Ok(true) => removed += 1,
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "the database of an old replica does not answer"),
        }
    }
    if removed > 0 {
        tracing::info!(removed, dir = %dir.display(), "old replicas removed");
    }
    removed
}

/// The replicas in a directory that were not used for the longest time.
fn oldest(dir: &Path) -> Vec<OldReplica> {
    let entries = fs::read_dir(dir).into_iter().flatten().take(MAX_ENTRIES);
    let mut found: Vec<_> = entries.filter_map(|entry| of_file(&entry.ok()?.path())).collect();
    found.sort_by_key(|replica| replica.used);
    found.truncate(MAX_LOOKED);
    found
}

fn of_file(path: &Path) -> Option<OldReplica> {
    let name = path.file_name()?.to_str()?.strip_suffix(".db")?;
    let mut parts = name.splitn(3, '-');
    let mut number = || {
        let part = parts.next().filter(|part| part.len() == 16)?;
        u64::from_str_radix(part, 16).ok().map(u64::cast_signed)
    };
    let of = (number()?, number()?);
    let used = changed(path)?;
    let wal = path.with_extension(OsStr::new("db-wal"));
    Some(OldReplica { path: path.to_owned(), of, used: used.max(changed(&wal).unwrap_or(used)) })
}

fn changed(path: &Path) -> Option<SystemTime> {
    let about = path.symlink_metadata().ok()?;
    about.is_file().then(|| about.modified().ok())?
}

/// What the database has of the session with a number, and of a batch.
type StateOf<'a> = &'a dyn Fn(i64, i64) -> Result<Option<SessionState>, HoldError>;

/// Removes a replica if it may go; returns whether it did. `here` looks into the schema of `url`.
fn remove(
    replica: &OldReplica,
    (url, here): (&SessionUrl, StateOf<'_>),
    runtime: &Handle,
) -> Result<bool, HoldError> {
    let (id, incarnation) = replica.of;
    if !replica.is_unused() {
        let found = here(id, 0)?;
        if !found.is_some_and(|found| found.is_moved && found.incarnation == incarnation) {
            return Ok(false);
        }
    }
    let Some((mark, of)) = mark_of(&replica.path) else { return Ok(false) };
    let is_here = of.connection == url.connection && of.schema == url.schema;
    let found = match is_here {
        true => here(id, mark.seq),
        false => elsewhere(&of, (id, mark.seq), runtime),
    };
    let may_go = found.as_ref().is_ok_and(|found| replica.may_go(mark, found.as_ref()));
    // A server may have opened it in between.
    if may_go && remove_session(&replica.path).is_ok() {
        return Ok(true);
    }
    found.map(|_| false)
}

/// The last batch of a replica, and its session; `None` if it is in use, or no replica.
fn mark_of(path: &Path) -> Option<(BatchMark, SessionUrl)> {
    let session = Session::open_any(path, &host().ok()?).ok()?;
    let of = session.replica_of()?.parse().ok()?;
    Some((session.replica_mark().ok()??, of))
}

/// What another database or schema has of a session.
fn elsewhere(
    url: &SessionUrl,
    (id, seq): (i64, i64),
    runtime: &Handle,
) -> Result<Option<SessionState>, HoldError> {
    runtime.block_on(async {
        let client = connect(&url.connection, runtime).await?;
        Ok(session_state(&client, &url.schema, id, seq).await?)
    })
}

/// Records that a replica is used now. By its path: closing a descriptor of the file would release
/// SQLite's locks.
pub(super) fn mark_used(path: &Path) {
    let time = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let now = Timestamps { last_access: time(UTIME_OMIT), last_modification: time(UTIME_NOW) };
    if let Err(error) = utimensat(CWD, path, &now, AtFlags::SYMLINK_NOFOLLOW) {
        tracing::debug!(%error, path = %path.display(), "when a replica was used is not recorded");
    }
}
