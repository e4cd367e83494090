//! Repairs the findings of `check`, in one transaction, after a backup (docs/decisions/0019).
//!
//! No byte of content is lost: content without a place is moved to `/lost+found`. One file per
//! group of rules, as in `check`. The order matters, because repairing one rule can break another:
//! first inodes and their chunks, then entries, whiteouts, and counts at the end.

mod copies;
mod data;
mod entries;
mod inodes;
mod repairer;
mod session_rules;
mod whiteouts;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::delta::{Result, StoreError};

use crate::delta::sqlite::file::connect::{self, Role, companion_path};
use crate::delta::sqlite::file::error::OpenError;
use crate::delta::sqlite::file::host::Host;
use crate::delta::sqlite::file::lock::SessionLock;
use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::file::{config, epoch, probe};
use crate::delta::sqlite::table::{chunk, dentry, inode, meta, schema, tree_sum};
use crate::delta::sqlite::tools::backup;
use crate::delta::sqlite::tools::check::{CheckOptions, INTEGRITY};
use crate::delta::sqlite::tools::new_file::{self, SessionCopy};
use crate::delta::sqlite::wal::frames;
use repairer::Repairer;
pub use repairer::{AskBase, BaseListing, Repairs};

/// Suffix of the backup's name.
const BACKUP_SUFFIX: &str = ".before-repair";

/// Options for a repair.
#[derive(Debug, Clone, Copy)]
pub struct RepairOptions<'p> {
    /// Path of the backup; `None` for a name beside the session.
    pub backup: Option<&'p Path>,
    /// Only report what would be done.
    pub dry_run: bool,
    /// Maximum number of repairs reported per rule; further ones are only counted.
    pub most: usize,
}

/// The result of a repair.
#[derive(Debug)]
pub struct RepairReport {
    /// The repairs that were done, or would be, by rule.
    pub mended: Vec<Repairs>,
    /// The backup of the old session; `None` if nothing was written.
    pub backup: Option<SessionCopy>,
}

impl Session {
    /// The base directory recorded in the session file `path`, even if other parts are damaged.
    ///
    /// # Errors
    /// The file is no session, or cannot be read.
    pub fn recorded_base(path: &Path) -> std::result::Result<Option<PathBuf>, OpenError> {
        let path = &Self::existing(path)?;
        probe::check(path)?;
        let asked = open_read_only(path).and_then(|conn| config::base_path(&conn));
        asked.map_err(|error| OpenError::store(path, error))
    }

    /// Repairs the session file `path`. `base` lists base directories, so that hidden base names
    /// stay hidden. `tell` receives the progress of the backup: bytes copied and bytes in total.
    ///
    /// # Errors
    /// See [`OpenError`]. In particular, a server has the session, the backup's path exists, or
    /// SQLite reports that the file itself is damaged. The session is unchanged.
    pub fn repair(
        path: &Path,
        options: &RepairOptions<'_>,
        base: &AskBase<'_>,
        host: &Host,
        tell: &mut dyn FnMut(u64, u64),
    ) -> std::result::Result<RepairReport, OpenError> {
        let path = &Self::existing(path)?;
        let _lock = SessionLock::take(path, true)?;
        probe::check(path)?;
        let checked = Self::check(path, &CheckOptions { most: 1, quick: false })?;
        let damage = checked.broken.iter().find(|broken| broken.rule == INTEGRITY);
        if let Some(damage) = damage {
            let what = damage.first.first().map(|breach| breach.what.clone()).unwrap_or_default();
            return Err(OpenError::store(path, StoreError::corrupt(what)));
        }
        if checked.broken.is_empty() {
            return Ok(RepairReport { mended: Vec::new(), backup: None });
        }
        let default = companion_path(path, BACKUP_SUFFIX);
        let copy = options.backup.unwrap_or(&default);
        if !options.dry_run {
            new_file::require_absent(copy)?;
        }
        let store = |error| OpenError::store(path, error);
        let conn = connect::open(path, Role::Writer).map_err(store)?;
        if !options.dry_run {
            connect::prepare_to_write(&conn).map_err(store)?;
            frames::rewrite_frames(&conn).map_err(store)?;
        }
        let transaction = Transaction::new_unchecked(&conn, TransactionBehavior::Immediate)
            .map_err(|error| store(error.into()))?;
        let mended = mend(&transaction, options, base, host).map_err(store)?;
        if options.dry_run || mended.is_empty() {
            return Ok(RepairReport { mended, backup: None });
        }
        // Other connections do not see the uncommitted repair: the backup has the old state.
        let copied = backup::back_up(path, copy, tell)?;
        transaction.commit().map_err(|error| store(error.into()))?;
        // The repair is committed and synced. If a reader blocks this checkpoint, a later one
        // copies the WAL.
        let _copied = frames::checkpoint(&conn, "TRUNCATE");
        Ok(RepairReport { mended, backup: Some(copied) })
    }
}

fn mend(
    conn: &Connection,
    options: &RepairOptions<'_>,
    base: &AskBase<'_>,
    host: &Host,
) -> Result<Vec<Repairs>> {
    let was_served = schema::has_table(conn, "acetate_meta")?
        && conn.prepare("SELECT 1 FROM acetate_meta")?.exists([])?;
    schema::complete(conn)?;
    let known = if was_served {
        session_rules::before(conn)?
    } else {
        // As when the session is first served.
        config::found(conn, host)?;
        Vec::new()
    };
    let (bytes, is_told) = session_rules::chunk_bytes(conn)?;
    let mut mender = Repairer::new(conn, host, base, bytes, options.most)?;
    known.into_iter().for_each(|(rule, what)| mender.mended(rule, what));
    if is_told {
        mender.mended("D1", format!("the chunks say that chunk_size is {bytes}"));
    }
    session_rules::mend(&mut mender)?;
    inodes::mend(&mut mender)?;
    data::mend(&mut mender)?;
    entries::mend(&mut mender)?;
    copies::mend(&mut mender)?;
    whiteouts::mend(&mut mender)?;
    counts(&mut mender)?;
    mender.end()
}

/// S7, D3 and C2: link counts and holes; also the subdirectory counts.
fn counts(mender: &mut Repairer<'_>) -> Result<()> {
    let conn = mender.conn;
    let links = inode::recount(conn)? as u64;
    mender.mended_all("S7", links, "a link count is recounted".to_owned());
    let holes = chunk::recount_holes(conn, mender.chunk)? as u64;
    mender.mended_all("D3", holes, "the holes of a file are recounted".to_owned());
    if epoch::is_clean(conn)? {
        meta::put(conn, meta::LAST_DENTRY, dentry::last_id(conn)?)?;
        tree_sum::store(conn)?;
    }
    Ok(())
}
