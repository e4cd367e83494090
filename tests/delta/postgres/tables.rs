//! Rows of every table travel: to the database, and into a replica.

use std::sync::Arc;

use acetate::delta::postgres::{HeldSession, Shipper};
use acetate::delta::sqlite::{CellColumn, ColumnKind, TableRows, session_tables};

use super::{Kept, assert_alike};

/// Two rows with all kinds of values, of which a session has no others by these ids.
fn rows(index: usize) -> TableRows {
    let table = &session_tables()[index];
    let mut rows = TableRows::new(table);
    for number in [1_000_000_001, 1_000_000_002] {
        rows.ids.push(number);
        for (at, (values, column)) in rows.columns.iter_mut().zip(&table.columns).enumerate() {
            let odd = number % 2;
            match values {
                CellColumn::Ints(values) if table.key == Some(at) => values.push(Some(number)),
                CellColumn::Ints(values) => {
                    values.push(Some(if odd == 1 { i64::MIN } else { number }))
                }
                CellColumn::Texts(values) => values.push(Some(match (column.kind, odd) {
                    (ColumnKind::Any, 1) => number.to_string(),
                    (ColumnKind::Any, _) => format!("\"\u{e9}\\\"{number}\""),
                    _ => format!("\u{1f427} ' {number}"),
                })),
                CellColumn::Blobs(values) => {
                    let invalid: &[u8] = if odd == 1 { b"\xff\0" } else { b"" };
                    values.push(Some([number.to_string().as_bytes(), invalid].concat()));
                }
            }
        }
    }
    rows
}

#[test]
fn a_row_of_every_table_travels_there_and_back_and_goes() {
    let kept = Kept::new();
    let late = ["acetate_checkpoint", "acetate_past", "acetate_old_fs_inode"];
    for name in late {
        assert!(session_tables().iter().any(|table| table.name == name), "{name}");
    }
    let held = HeldSession {
        connection: kept.url.connection.clone(),
        schema: kept.url.schema.clone(),
        id: kept.row.id,
        lease: Arc::clone(&kept.lease),
    };
    let mut shipper = Shipper::new(held, kept.database.runtime().clone(), kept.row.mark);
    let before = kept.rows();
    let is_inside = |at: &usize| !session_tables()[*at].is_outside;
    let all: Vec<_> = (0..session_tables().len()).filter(is_inside).map(rows).collect();
    let mark = shipper.next_mark();
    shipper.keep(mark, &all).unwrap();
    let there = kept.rows();
    for rows in &all {
        for id in &rows.ids {
            assert!(there.contains_key(&(rows.table.name.clone(), *id)), "{}", rows.table.name);
        }
    }
    assert_alike(&there, &kept.second());
    let gone = all.iter().map(|rows| {
        let mut gone = TableRows::new(rows.table);
        gone.gone.clone_from(&rows.ids);
        gone
    });
    let (mark, gone) = (shipper.next_mark(), gone.collect::<Vec<_>>());
    shipper.keep(mark, &gone).unwrap();
    assert_alike(&before, &kept.rows());
}
