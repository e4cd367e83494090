//! Rows of the audit log whose changes a restore took back.
//!
//! After a RESTORE row, the tree is what it was after the last row before the checkpoint.

use std::ops::RangeInclusive;

use rusqlite::Connection;

use crate::delta::Result;

use super::restore_rows::RestoreRows;

/// The ids of those rows.
#[derive(Debug, Default)]
pub struct UndoneRows {
    /// Ranges of ids, the last one first. A range ends with its RESTORE row.
    ranges: Vec<RangeInclusive<i64>>,
}

impl UndoneRows {
    /// Whether a restore took back the change of the row with this id. A RESTORE row counts as
    /// taken back too.
    pub fn has(&self, id: i64) -> bool {
        self.range_of(id).is_some()
    }

    /// The same; a RESTORE row only if a later one took it back.
    pub fn has_undone(&self, id: i64) -> bool {
        self.range_of(id).is_some_and(|range| *range.end() != id)
    }

    fn range_of(&self, id: i64) -> Option<&RangeInclusive<i64>> {
        let at = self.ranges.partition_point(|range| *range.start() > id);
        self.ranges.get(at).filter(|range| range.contains(&id))
    }

    /// Adds a RESTORE row with the last row before its checkpoint; the newest comes first.
    fn add_restore(&mut self, id: i64, last_op: i64) {
        // A later restore took this one back.
        if self.ranges.last().is_none_or(|later| id < *later.start()) {
            self.ranges.push(last_op.saturating_add(1)..=id);
        }
    }
}

/// Reads which rows restores took back.
pub fn load(conn: &Connection) -> Result<UndoneRows> {
    let mut undone = UndoneRows::default();
    for (id, last_op) in RestoreRows::load(conn)?.newest_first() {
        undone.add_restore(id, last_op);
    }
    Ok(undone)
}

#[cfg(test)]
mod tests {
    use super::UndoneRows;

    #[test]
    fn rows_after_the_checkpoint_are_undone_up_to_the_restore() {
        let mut undone = UndoneRows::default();
        // 10 goes back to 5, 15 takes that back, 30 goes back to 20.
        for (id, last_op) in [(30, 20), (15, 9), (10, 5)] {
            undone.add_restore(id, last_op);
        }
        let all: Vec<_> = (0..35).filter(|id| undone.has(*id)).collect();
        assert_eq!(all, (10..=15).chain(21..=30).collect::<Vec<_>>());
        let all: Vec<_> = (0..35).filter(|id| undone.has_undone(*id)).collect();
        assert_eq!(all, (10..=14).chain(21..=29).collect::<Vec<_>>());
        // 30 goes back to before 15, which is then no restore any more.
        let mut undone = UndoneRows::default();
        for (id, last_op) in [(30, 12), (15, 9), (11, 3)] {
            undone.add_restore(id, last_op);
        }
        let all: Vec<_> = (0..35).filter(|id| undone.has(*id)).collect();
        assert_eq!(all, (4..=11).chain(13..=30).collect::<Vec<_>>());
    }
}
