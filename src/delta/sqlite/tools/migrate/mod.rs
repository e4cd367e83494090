//! Migrates a session of an old version of the specification, or of another implementation, to
//! acetate's form of version 0.4 (docs/decisions/0019).
//!
//! Everything happens in one transaction, after a backup: if the process dies, the file is the old
//! one or the new one. Columns identify the version, and each table is compared with acetate's form
//! of it. `plan` lists the steps; `rebuild` and `chunks` carry them out.

mod chunks;
mod plan;
mod rebuild;
mod shape;

use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use crate::delta::Result;

use crate::delta::sqlite::file::connect::{self, Role, companion_path};
use crate::delta::sqlite::file::error::OpenError;
use crate::delta::sqlite::file::host::Host;
use crate::delta::sqlite::file::lock::SessionLock;
use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::file::{config, create, epoch, probe};
use crate::delta::sqlite::table::schema::SPEC_VERSION;
use crate::delta::sqlite::table::{chunk, dentry, inode, meta, schema, tree_sum};
use crate::delta::sqlite::tools::backup;
use crate::delta::sqlite::tools::check::{Broken, CheckOptions};
use crate::delta::sqlite::tools::new_file::SessionCopy;
use crate::delta::sqlite::wal::frames;
use plan::MigrationPlan;
pub use plan::MigrationStep;

/// Suffix of the backup's name.
const BACKUP_SUFFIX: &str = ".before-migrate";

/// Tables that a session of any version has.
const CORE_TABLES: [&str; 3] = ["fs_inode", "fs_dentry", "fs_data"];

/// Options for a migration.
#[derive(Debug, Clone, Copy)]
pub struct MigrateOptions<'p> {
    /// Path of the backup; `None` for a name beside the session.
    pub backup: Option<&'p Path>,
    /// Only report what would be done.
    pub dry_run: bool,
    /// Maximum number of findings reported per rule; further ones are only counted.
    pub most: usize,
}

/// The result of a migration.
#[derive(Debug)]
pub struct Migrated {
    /// The specification's version of the file before the migration.
    pub from: &'static str,
    /// The steps that were done, or would be; empty if the session already has acetate's form.
    pub steps: Vec<MigrationStep>,
    /// The backup of the old session.
    pub backup: Option<SessionCopy>,
    /// Rules of docs/SCHEMA.md that are broken after the migration.
    pub left: Vec<Broken>,
}

impl Session {
    /// Migrates the session file `path` to acetate's form of version [`SPEC_VERSION`].
    ///
    /// `tell` receives the progress of the backup: bytes copied and bytes in total.
    ///
    /// # Errors
    /// See [`OpenError`]. In particular, another program has the session, or the backup's path
    /// exists. The session is unchanged.
    pub fn migrate(
        path: &Path,
        options: &MigrateOptions<'_>,
        host: &Host,
        tell: &mut dyn FnMut(u64, u64),
    ) -> std::result::Result<Migrated, OpenError> {
        let path = &Self::existing(path)?;
        let mut migrated = look(path, options)?;
        if migrated.steps.is_empty() || options.dry_run {
            return Ok(migrated);
        }
        let _lock = SessionLock::take(path, true)?;
        // Read again under the lock: another program may have changed the file before.
        migrated.from = version(path)?;
        let default = companion_path(path, BACKUP_SUFFIX);
        let copy = options.backup.unwrap_or(&default);
        let (steps, copied) = write(path, copy, host, tell)?;
        (migrated.steps, migrated.backup) = (steps, Some(copied));
        let asked = CheckOptions { most: options.most, quick: true };
        migrated.left = Self::check(path, &asked)?.broken;
        migrated.left.retain(|broken| !broken.is_note);
        Ok(migrated)
    }
}

/// The specification's version of a file, identified by its columns.
fn version(path: &Path) -> std::result::Result<&'static str, OpenError> {
    let version = match probe::check(path) {
        Ok(()) => return Ok(SPEC_VERSION),
        Err(OpenError::OldSpec { version, .. }) => version,
        Err(error) => return Err(error),
    };
    let store = |error| OpenError::store(path, error);
    let conn = open_read_only(path).map_err(store)?;
    for table in CORE_TABLES {
        if !schema::has_table(&conn, table).map_err(store)? {
            return Err(OpenError::NotSession { path: path.to_owned(), tables: table.to_owned() });
        }
    }
    Ok(version)
}

/// The planned steps, and for a dry run the findings that would be left.
fn look(path: &Path, options: &MigrateOptions<'_>) -> std::result::Result<Migrated, OpenError> {
    let from = version(path)?;
    let looked = || -> Result<Migrated> {
        let conn = open_read_only(path)?;
        let plan = MigrationPlan::of(&conn)?;
        let mut left = Vec::new();
        if options.dry_run && !plan.steps.is_empty() {
            let asked = CheckOptions { most: options.most, quick: true };
            left = plan::left(&conn, &plan, &asked)?;
        }
        Ok(Migrated { from, steps: plan.steps, backup: None, left })
    };
    looked().map_err(|error| OpenError::store(path, error))
}

/// Backs the session up to `copy`, and migrates it.
fn write(
    path: &Path,
    copy: &Path,
    host: &Host,
    tell: &mut dyn FnMut(u64, u64),
) -> std::result::Result<(Vec<MigrationStep>, SessionCopy), OpenError> {
    let store = |error| OpenError::store(path, error);
    let conn = connect::open(path, Role::Writer).map_err(store)?;
    connect::prepare_to_write(&conn).map_err(store)?;
    frames::rewrite_frames(&conn).map_err(store)?;
    // ALTER TABLE RENAME must not rewrite references to the table: they name its replacement.
    conn.pragma_update(None, "legacy_alter_table", true).map_err(|error| store(error.into()))?;
    // From here on no other program can write, so the backup has all rows.
    let transaction = Transaction::new_unchecked(&conn, TransactionBehavior::Immediate)
        .map_err(|error| store(error.into()))?;
    let plan = MigrationPlan::of(&transaction).map_err(store)?;
    let copied = backup::back_up(path, copy, tell)?;
    carry_out(&transaction, &plan, host).map_err(store)?;
    transaction.commit().map_err(|error| store(error.into()))?;
    // The migration is committed and synced. If a reader blocks this checkpoint, a later one copies
    // the WAL.
    let _copied = frames::checkpoint(&conn, "TRUNCATE");
    Ok((plan.steps, copied))
}

fn carry_out(conn: &Connection, plan: &MigrationPlan, host: &Host) -> Result<()> {
    let bytes = plan.chunk_bytes.map_or_else(|| plan::chunk_bytes(conn, false), Ok)?;
    for odd in &plan.odd {
        if plan::is_first(odd) {
            odd.rebuild(conn, |conn| chunks::cut(conn, &odd.old_name(), bytes))?;
        } else {
            odd.rebuild(conn, |conn| odd.fill(conn))?;
        }
    }
    schema::complete(conn)?;
    conn.execute(
        "INSERT OR IGNORE INTO fs_config (key, value) VALUES ('chunk_size', ?1)",
        params![bytes.to_string()],
    )?;
    conn.execute(
        "INSERT INTO fs_config (key, value) VALUES ('schema_version', ?1)
         ON CONFLICT(key) DO UPDATE SET value = excluded.value",
        params![SPEC_VERSION],
    )?;
    if meta::get::<i64>(conn, meta::FORMAT)?.is_none() {
        config::found(conn, host)?;
    }
    inode::recount(conn)?;
    chunk::recount_holes(conn, bytes)?;
    conn.pragma_update(None, "application_id", create::APPLICATION_ID)?;
    if epoch::is_clean(conn)? {
        meta::put(conn, meta::LAST_DENTRY, dentry::last_id(conn)?)?;
        tree_sum::store(conn)?;
    }
    Ok(())
}
