//! Tools, on sessions that are served and on others.

mod apply;
mod check;
pub mod checkpoints;
mod compact;
mod cookbook;
mod cycles;
mod diff;
mod export;
mod fork;
mod hunks;
mod incomplete;
mod kv;
mod log;
mod log_names;
mod merge;
mod migrate;
mod odd_rows;
mod original;
mod patch;
mod removed;
mod repair;
mod restore;
mod restore_call;
mod restore_paths;
mod seal;
mod selection;
mod snapshot;
mod sparse;
mod stop;
mod text_merge;
mod tool;

pub use compact::half_empty;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

/// All that the session at `path` holds: each table's rows, in an order of their own.
pub fn all_rows(path: &Path) -> Vec<String> {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let mut tables = conn.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").unwrap();
    let tables = tables.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let mut all = Vec::new();
    for table in tables.map(Result::unwrap) {
        let mut rows = conn.prepare(&format!("SELECT * FROM \"{table}\"")).unwrap();
        let columns = rows.column_count();
        let rows = rows.query_map([], |row| {
            let values = (0..columns).map(|at| row.get_ref(at).map(short));
            let values: Vec<_> = values.collect::<Result<_, _>>()?;
            Ok(format!("{table}: {}", values.join(", ")))
        });
        all.extend(rows.unwrap().map(Result::unwrap));
    }
    all.sort();
    all
}

/// A value in words; of a BLOB the digest.
fn short(value: ValueRef<'_>) -> String {
    match value {
        // Some tests store what is no text as such.
        ValueRef::Text(bytes) => format!("Text({:?})", String::from_utf8_lossy(bytes)),
        ValueRef::Blob(bytes) => {
            let mut hasher = DefaultHasher::new();
            bytes.hash(&mut hasher);
            format!("{} bytes, {:x}", bytes.len(), hasher.finish())
        }
        value => format!("{value:?}"),
    }
}
