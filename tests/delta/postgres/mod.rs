//! The store over a database: sessions in a real PostgreSQL, which the tests start if none is
//! named.

mod agent;
mod dialect;
mod doubt;
mod follow;
mod kept;
mod left_out;
mod mark;
mod proxy;
mod queries;
mod renewals;
mod retried;
mod schemas;
mod tables;
mod unnoticed;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use acetate::delta::postgres::{
    HeldLease, HeldSession, PostgresStore, SessionRow, SessionUrl, Shipper, find, hydrate, take,
    upload,
};
use acetate::delta::sqlite::{CreateOptions, Host, Session};
use acetate::delta::{Ino, Writer};
use acetate::vfs::FileKind;
use tempfile::TempDir;

use super::make;
use crate::support::database::rows::{AllRows, differences, rows_of_database, rows_of_file};
use crate::support::database::server::{TestDatabase, any};

/// The term of the leases.
const TERM: Duration = Duration::from_secs(3600);

/// A session in the database, and a replica that holds its lease.
struct Kept {
    dir: TempDir,
    database: &'static TestDatabase,
    url: SessionUrl,
    row: SessionRow,
    lease: Arc<HeldLease>,
    store: PostgresStore,
}

fn host() -> Host {
    Host::current().unwrap()
}

impl Kept {
    fn new() -> Self {
        Self::with(None, |_| ())
    }

    /// With the batches through another port.
    fn through(port: u16) -> Self {
        Self::with(Some(port), |_| ())
    }

    /// With a change of the replica before it is served.
    fn changed_early(change: impl FnOnce(&mut Session) + Send) -> Self {
        Self::with(None, change)
    }

    fn with(port: Option<u16>, change: impl FnOnce(&mut Session) + Send) -> Self {
        let (database, dir) = (any(), tempfile::tempdir().unwrap());
        let url = database.new_url();
        let file = dir.path().join("new.db");
        let file = Session::create(&file, &CreateOptions::default(), &host()).unwrap();
        let path = dir.path().join("replica.db");
        let (row, replica, lease) = database.with(|client, runtime| {
            let row = upload((client, runtime), &url, &file, TERM).unwrap();
            let (mut replica, mark) =
                runtime.block_on(hydrate(client, (&url, row.id), (&path, &host()))).unwrap();
            assert_eq!(mark, row.mark);
            replica.note_rows().unwrap();
            change(&mut replica);
            let lease = runtime.block_on(take(client, &url.schema, &row, ("a test", "here")));
            (row, replica, lease.unwrap().unwrap())
        });
        let lease = Arc::new(lease);
        let held = HeldSession {
            connection: port.map_or_else(|| url.clone(), |port| database.through(port)).connection,
            schema: url.schema.clone(),
            id: row.id,
            lease: Arc::clone(&lease),
        };
        let shipper = Shipper::new(held, database.runtime().clone(), row.mark);
        let store = PostgresStore::new(replica, Arc::clone(&lease), shipper);
        Self { dir, database, url, row, lease, store }
    }

    /// The rows in the database.
    fn rows(&self) -> AllRows {
        let (schema, id) = (&self.url.schema, self.row.id);
        self.database.with(|client, runtime| runtime.block_on(rows_of_database(client, schema, id)))
    }

    /// The session's row.
    fn row(&self) -> SessionRow {
        self.database.with(|client, runtime| runtime.block_on(find(client, &self.url)).unwrap())
    }

    /// Another server takes the lease.
    fn take_away(&self) {
        let (row, schema) = (self.row(), &self.url.schema);
        let taken = self.database.with(|client, runtime| {
            runtime.block_on(take(client, schema, &row, ("another", "there"))).unwrap()
        });
        assert!(taken.is_some());
    }

    /// The rows of a second replica, which is made now.
    fn second(&self) -> AllRows {
        let path = self.dir.path().join("second.db");
        let of = (&self.url, self.row.id);
        let (session, _) = self.database.with(|client, runtime| {
            runtime.block_on(hydrate(client, of, (&path, &host()))).unwrap()
        });
        rows_of_file(&session).unwrap()
    }

    /// The rows of the replica.
    fn ours(&self) -> AllRows {
        rows_of_file(self.store.replica()).unwrap()
    }
}

/// Makes files, one in each batch, as the worker does it.
fn make_files(writer: &mut dyn Writer, names: &[&str]) -> acetate::delta::Result<()> {
    for name in names {
        writer.begin(true)?;
        writer.next();
        let mut file = make(writer.txn(), Ino::ROOT, name, FileKind::Regular);
        writer.txn().write_data(&mut file, 0, name.as_bytes())?;
        writer.txn().put_inode(&file)?;
        if let Err(error) = writer.prepare() {
            writer.abort()?;
            return Err(error);
        }
        writer.commit()?;
    }
    Ok(())
}

#[track_caller]
fn assert_alike(ours: &AllRows, theirs: &AllRows) {
    let differences = differences(ours, theirs, &BTreeSet::new());
    assert!(differences.is_empty(), "{differences}");
}

/// The names of the entries of a session.
fn names(rows: &AllRows) -> Vec<String> {
    use crate::support::database::rows::Cell;
    let entries = rows.iter().filter(|((table, _), _)| table == "fs_dentry");
    let mut names: Vec<_> = entries
        .map(|(_, cells)| match &cells[1] {
            Cell::Bytes(Some(name)) => name.escape_ascii().to_string(),
            _ => panic!("an entry has a name"),
        })
        .collect();
    names.sort();
    names
}
