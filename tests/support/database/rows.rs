//! All rows of a session, from its file and from the database, and what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use acetate::delta::postgres::SchemaName;
use acetate::delta::postgres::statement::read_after;
use acetate::delta::sqlite::{CellColumn, ColumnKind, Host, OpenMode, Session, session_tables};
use tokio_postgres::{Client, Row};

/// A table's name and a row id.
pub type RowKey = (String, i64);

/// The most rows that a difference shows.
const SHOWN_ROWS: usize = 12;

/// The most characters of a value that a difference shows.
const SHOWN_CHARS: usize = 60;

/// A value.
#[derive(Clone, PartialEq, Eq)]
pub enum Cell {
    Int(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

impl Cell {
    fn shown(&self) -> String {
        let full = match self {
            Self::Int(Some(number)) => number.to_string(),
            Self::Text(Some(text)) => format!("{text:?}"),
            Self::Bytes(Some(bytes)) => bytes.escape_ascii().to_string(),
            Self::Int(None) | Self::Text(None) | Self::Bytes(None) => "NULL".to_owned(),
        };
        full.chars().take(SHOWN_CHARS).collect()
    }
}

/// Rows by table and id.
pub type AllRows = BTreeMap<RowKey, Vec<Cell>>;

/// All rows of an open session.
pub fn rows_of_file(session: &Session) -> Result<AllRows, String> {
    let mut all = AllRows::new();
    let read = session.each_row(false, &mut |rows| {
        for (at, id) in rows.ids.iter().enumerate() {
            let cells = rows.columns.iter().map(|column| match column {
                CellColumn::Ints(values) => Cell::Int(values[at]),
                CellColumn::Texts(values) => Cell::Text(values[at].clone()),
                CellColumn::Blobs(values) => Cell::Bytes(values[at].clone()),
            });
            all.insert((rows.table.name.clone(), *id), cells.collect());
        }
        Ok(())
    });
    read.map_err(|error| error.to_string())?;
    Ok(all)
}

/// All rows of the session file at `path`, which no server has open. It stays the same: a copy is
/// read.
pub fn rows_at_rest(path: &Path, host: &Host) -> Result<(AllRows, Session), String> {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.db");
    for suffix in ["", "-wal"] {
        let (from, to) = (path.display(), copy.display());
        if Path::new(&format!("{from}{suffix}")).exists() {
            std::fs::copy(format!("{from}{suffix}"), format!("{to}{suffix}")).unwrap();
        }
    }
    let session = Session::open(&copy, OpenMode::Inspect, host).map_err(|e| e.to_string())?;
    Ok((rows_of_file(&session)?, session))
}

/// All rows of the session `id` in the database.
pub async fn rows_of_database(client: &Client, schema: &SchemaName, id: i64) -> AllRows {
    let mut all = AllRows::new();
    for table in session_tables().iter().filter(|it| !it.is_outside) {
        let text = read_after(schema, table);
        let found = client.query(&text, &[&id, &i64::MIN, &i64::MAX]).await.unwrap();
        for row in &found {
            let mut next = 1;
            let cells = table.columns.iter().enumerate().map(|(at, column)| {
                let from = if table.key == Some(at) { 0 } else { next };
                next += usize::from(table.key != Some(at));
                cell(row, from, column.kind)
            });
            let cells = cells.collect();
            all.insert((table.name.clone(), row.get(0)), cells);
        }
    }
    all
}

fn cell(row: &Row, at: usize, kind: ColumnKind) -> Cell {
    match kind {
        ColumnKind::Int => Cell::Int(row.get(at)),
        ColumnKind::Text | ColumnKind::Any => Cell::Text(row.get(at)),
        ColumnKind::Name | ColumnKind::Blob => Cell::Bytes(row.get(at)),
    }
}

/// The rows that differ, except those of `ignored`, as text; empty if there are none.
pub fn differences(file: &AllRows, database: &AllRows, ignored: &BTreeSet<RowKey>) -> String {
    let keys: BTreeSet<_> = file.keys().chain(database.keys()).collect();
    let differ = keys.into_iter().filter(|key| !ignored.contains(*key));
    let differ: Vec<_> = differ.filter(|key| file.get(*key) != database.get(*key)).collect();
    let shown = |row: Option<&Vec<Cell>>| match row {
        Some(cells) => cells.iter().map(Cell::shown).collect::<Vec<_>>().join(" | "),
        None => "missing".to_owned(),
    };
    let mut text = String::new();
    for key in differ.iter().take(SHOWN_ROWS) {
        let (table, id) = key;
        let (ours, theirs) = (shown(file.get(*key)), shown(database.get(*key)));
        text += &format!("{table} {id}\n  file:     {ours}\n  database: {theirs}\n");
    }
    if differ.len() > SHOWN_ROWS {
        text += &format!("and {} more\n", differ.len() - SHOWN_ROWS);
    }
    text
}
