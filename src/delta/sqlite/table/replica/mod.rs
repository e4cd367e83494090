//! A session file as a replica of rows that another store has: which rows a batch changed, and the
//! rows of whole tables.
//!
//! The other store knows rows by their SQLite row id. `VACUUM` gives new ones, so a replica is
//! never compacted.

mod cells;
mod mark;
mod notes;
mod rows;
mod tables;

pub use cells::{CellColumn, ColumnKind};
pub use mark::BatchMark;
pub(in crate::delta::sqlite) use mark::{get as get_mark, put as put_mark};
pub use notes::RowNotes;
pub use rows::{NotedRows, TableRows};
pub use tables::{SessionColumn, SessionTable, session_tables};
