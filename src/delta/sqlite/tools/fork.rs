//! Forks a session: a new session that begins with the tree of a checkpoint.
//!
//! Rows are copied, not pages, so the time is linear in what the session holds at the checkpoint
//! and in its log, and not in its other checkpoints and its free pages. Tables of other programs
//! are not copied.
//!
//! Both sessions give new objects the same numbers, from the checkpoint's `next_ino` on; an older
//! number is the same object in both. The fork remembers where it began, for a merge.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, Transaction, TransactionBehavior, params_from_iter};

use crate::delta::{
    Checkpoint, CheckpointId, CheckpointKind, ForkOrigin, NewCheckpoint, Result, StoreError,
};

use super::new_file::{NewFile, SessionCopy};
use crate::delta::sqlite::file::config;
use crate::delta::sqlite::file::connect::{self, Role};
use crate::delta::sqlite::file::create::APPLICATION_ID;
use crate::delta::sqlite::file::error::OpenError;
use crate::delta::sqlite::file::host::Host;
use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::table::{
    checkpoint, copy_up, dentry, dentry_ids, inode, inode_numbers, meta, old_rows, past, prune,
    schema, tree_sum, value,
};
use crate::delta::sqlite::wal::frames;

/// Bytes of content between two progress reports.
const PROGRESS_BYTES: u64 = 4 << 20;

/// The tables whose counter of AUTOINCREMENT a fork continues.
const COUNTED: [&str; 2] = ["fs_dentry", "tool_calls"];

/// The tables that are not copied as they are.
const NOT_COPIED: [&str; 2] = ["tool_calls", "acetate_op"];

impl Session {
    /// Copies the tree of the session file `path` at the checkpoint `at`, with its keys, values and
    /// limits, to the new file `to`, with the permissions of [`Session::copy_to`]. The fork is a
    /// session of its own, has one checkpoint, at its beginning, and no tool calls. Of the audit
    /// log it has the last row, and the facts that `apply` needs.
    ///
    /// `tell` receives progress: bytes of content copied and in total.
    ///
    /// # Errors
    /// As [`Session::copy_to`]; also if the checkpoint is not there.
    pub fn fork_to(
        path: &Path,
        to: &Path,
        at: &Checkpoint,
        host: &Host,
        tell: &mut dyn FnMut(u64, u64),
    ) -> std::result::Result<SessionCopy, OpenError> {
        let new = NewFile::create(path, to)?;
        let failed = |source| new.failed(source);
        let from = open_at(new.original(), at).map_err(failed)?;
        let all = content_bytes(&from).map_err(failed)?;
        new.require_room(all)?;
        let id = fill(new.unfinished(), &from, (at, host), &mut |done| tell(done, all));
        let id = id.map_err(|source| new.failed_with(source, all))?;
        new.finish(id)
    }

    /// Where the session began, if it is a fork.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn fork_origin(&self) -> Result<Option<ForkOrigin>> {
        let conn = open_read_only(&self.path)?;
        let session = meta::get(&conn, meta::FORK_OF)?;
        let point = meta::get(&conn, meta::FORK_POINT)?;
        Ok(session
            .zip(point)
            .map(|(session, point)| ForkOrigin { session, checkpoint: CheckpointId(point) }))
    }
}

/// Opens a session as it was at a checkpoint, in one read transaction.
fn open_at(path: &Path, at: &Checkpoint) -> Result<Connection> {
    let from = open_read_only(path)?;
    // Temporary tables count as a change in SQLite, though not of the file.
    from.execute_batch("PRAGMA temp_store = FILE; PRAGMA query_only = 0; BEGIN")?;
    if checkpoint::get(&from, at.id)?.is_none() {
        return Err(StoreError::busy("the checkpoint was removed"));
    }
    old_rows::show_at(&from, (at.id, at.next_ino))?;
    Ok(from)
}

fn content_bytes(from: &Connection) -> Result<u64> {
    let sum = "SELECT ifnull(sum(length(data)), 0) FROM fs_data";
    Ok(from.query_row(sum, [], |row| value::unsigned(row, 0))?)
}

/// Fills the empty file `path`, and returns the fork's session id.
fn fill(
    path: &Path,
    from: &Connection,
    (at, host): (&Checkpoint, &Host),
    tell: &mut dyn FnMut(u64),
) -> Result<Option<String>> {
    let conn = connect::open(path, Role::Writer)?;
    conn.pragma_update(None, "page_size", connect::page_bytes(from)?.cast_signed())?;
    conn.pragma_update(None, "encoding", "UTF-8")?;
    conn.pragma_update(None, "auto_vacuum", 0)?;
    // Synced at the end, and removed if the end is not reached.
    conn.pragma_update(None, "synchronous", "OFF")?;
    conn.query_row("PRAGMA journal_mode = OFF", [], |_| Ok(()))?;
    let transaction = Transaction::new_unchecked(&conn, TransactionBehavior::Immediate)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    schema::complete(&transaction)?;
    for table in schema::table_names().filter(|table| !NOT_COPIED.contains(table)) {
        copy_rows(from, &transaction, (table, &schema::column_names(table), ""), tell)?;
    }
    copy_up::narrow(&transaction, config::chunk_bytes(&transaction)?)?;
    for table in COUNTED {
        copy_counter(from, &transaction, table)?;
    }
    checkpoint::create_tables(&transaction)?;
    copy_log(from, &transaction, at)?;
    if old_rows::any_saved(from, at.id)? {
        // The counts are those of now.
        inode::forget_subdirs(&transaction)?;
    }
    put_meta(from, &transaction, (at, host))?;
    let labels = BTreeMap::from([("of".to_owned(), name_of(from))]);
    let first = NewCheckpoint {
        name: None,
        kind: CheckpointKind::Fork,
        labels,
        time: host.now,
        reuses: false,
        needed: None,
    };
    checkpoint::insert(&transaction, &first, at.next_ino)?;
    tree_sum::store(&transaction)?;
    transaction.commit()?;
    connect::prepare_to_write(&conn)?;
    frames::checkpoint(&conn, "TRUNCATE")?;
    meta::get(&conn, meta::SESSION_ID)
}

/// The file name of the session that is forked.
fn name_of(from: &Connection) -> String {
    let name = from.path().and_then(|path| Path::new(path).file_name());
    name.unwrap_or_default().to_string_lossy().into_owned()
}

/// Copies the rows of a table that meet the condition, or all if it is empty.
fn copy_rows(
    from: &Connection,
    to: &Connection,
    (table, columns, condition): (&str, &[&str], &str),
    tell: &mut dyn FnMut(u64),
) -> Result<()> {
    let all = columns.join(", ");
    let mut rows = from.prepare(&format!("SELECT {all} FROM {table} {condition}"))?;
    let mut rows = rows.query([])?;
    let places = vec!["?"; columns.len()].join(", ");
    let mut insert =
        to.prepare(&format!("INSERT OR REPLACE INTO {table} ({all}) VALUES ({places})"))?;
    let (mut done, mut told) = (0, 0);
    while let Some(row) = rows.next()? {
        let values = (0..columns.len()).map(|at| row.get_ref(at).map(ToSqlOutput::Borrowed));
        insert.execute(params_from_iter(values.collect::<rusqlite::Result<Vec<_>>>()?))?;
        if table == old_rows::CONTENT {
            done += value::bytes(row, 2)?.len();
            if (done - told) as u64 >= PROGRESS_BYTES {
                told = done;
                tell(done as u64);
            }
        }
    }
    Ok(())
}

/// Continues the numbers of a table.
fn copy_counter(from: &Connection, to: &Connection, table: &str) -> Result<()> {
    let counted = "SELECT ifnull(max(seq), 0) FROM main.sqlite_sequence WHERE name = ?1";
    dentry_ids::raise(to, table, from.query_row(counted, [table], |row| row.get(0))?)
}

/// Copies what the audit log up to the checkpoint says, and then deletes all rows but the last, so
/// that no number is used twice.
fn copy_log(from: &Connection, to: &Connection, at: &Checkpoint) -> Result<()> {
    if checkpoint::is_cut(from, at.last_op)? {
        // What was kept of the deleted rows is of later changes too.
        return past::note_incomplete(to);
    }
    if schema::has_table(from, past::TABLE)? {
        past::create(to)?;
        copy_rows(from, to, (past::TABLE, &past::NAMES, ""), &mut |_| {})?;
    }
    let until = format!("WHERE id <= {}", at.last_op);
    let columns = schema::column_names("acetate_op");
    copy_rows(from, to, ("acetate_op", &columns, &until), &mut |_| {})?;
    prune::cut(to, at.last_op - 1, prune::PrunedFacts::Kept).map(drop)
}

/// Makes the copied `acetate_meta` that of a new session.
fn put_meta(from: &Connection, to: &Connection, (at, host): (&Checkpoint, &Host)) -> Result<()> {
    config::identify(to, host)?;
    inode_numbers::put_mark(to, at.next_ino.0)?;
    // No reply was ever sent from the fork, and it is synced as a whole before it gets its name
    // (invariant M4).
    meta::put(to, meta::CLEAN, 1)?;
    meta::put(to, meta::LAST_DENTRY, dentry::last_id(to)?)?;
    for key in [meta::LATE_OP, meta::RESTORED_TO, meta::RESTORED_FROM] {
        meta::delete(to, key)?;
    }
    let of: Option<String> = meta::get(from, meta::SESSION_ID)?;
    meta::put(to, meta::FORK_OF, of)?;
    meta::put(to, meta::FORK_POINT, at.id.0)
}
