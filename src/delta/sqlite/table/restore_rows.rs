//! The RESTORE rows of the audit log, and the rows by which two moments differ.
//!
//! The log is not rolled back: after a RESTORE row, the tree is what it was after the last row
//! before the checkpoint. So the moments of a log are a tree of branches, and a restore begins one.

use std::ops::RangeInclusive;

use rusqlite::Connection;

use crate::delta::Result;

use super::{checkpoint, schema, value};

/// The RESTORE rows.
#[derive(Debug, Default)]
pub struct RestoreRows {
    /// The id of each, with that of the last row before its checkpoint; by id.
    rows: Vec<(i64, i64)>,
}

/// The rows by which the trees of two moments differ. They are no RESTORE rows.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DifferingRows {
    /// Ids of rows whose changes are in the first tree alone.
    pub only_first: Vec<RangeInclusive<i64>>,
    /// Ids of rows whose changes are in the second tree alone.
    pub only_second: Vec<RangeInclusive<i64>>,
    /// The RESTORE rows that led to the first tree alone, the newest first.
    pub restores: Vec<i64>,
}

impl RestoreRows {
    /// Reads them. A session that never had a checkpoint has none.
    pub fn load(conn: &Connection) -> Result<Self> {
        let mut restores = Self::default();
        if !checkpoint::is_used(conn)? || !schema::has_table(conn, "acetate_op")? {
            return Ok(restores);
        }
        let mut all = conn.prepare_cached(
            "SELECT id, ifnull(offset, 0) FROM acetate_op WHERE procedure = 'RESTORE' ORDER BY id",
        )?;
        let mut rows = all.query([])?;
        while let Some(row) = rows.next()? {
            restores.add(row.get(0)?, value::int(row, 1)?);
        }
        Ok(restores)
    }

    fn add(&mut self, id: i64, last_op: i64) {
        // Of a row that another program wrote, only one that leads back makes sense.
        if last_op < id {
            self.rows.push((id, last_op));
        }
    }

    /// The id of each, with that of the last row before its checkpoint.
    pub fn newest_first(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.rows.iter().rev().copied()
    }

    /// The last restore up to the row `id`.
    fn last_upto(&self, id: i64) -> Option<(i64, i64)> {
        let at = self.rows.partition_point(|(restore, _)| *restore <= id);
        at.checked_sub(1).map(|at| self.rows[at])
    }

    /// The rows by which the tree after the row `first` differs from that after the row `second`.
    pub fn differing(&self, first: i64, second: i64) -> DifferingRows {
        let mut differing = DifferingRows::default();
        let mut at = [first, second];
        // The later of both moves back, until both are at one moment.
        while at[0] != at[1] {
            let later = usize::from(at[1] > at[0]);
            let (upper, lower) = (at[later], at[1 - later]);
            let restore = self.last_upto(upper).filter(|(restore, _)| *restore > lower);
            let (ends, next) = restore.unwrap_or((lower, lower));
            let rows = match later {
                0 => &mut differing.only_first,
                _ => &mut differing.only_second,
            };
            if ends < upper {
                rows.push(ends + 1..=upper);
            }
            if later == 0 && restore.is_some() {
                differing.restores.push(ends);
            }
            at[later] = next;
        }
        differing
    }
}

#[cfg(test)]
mod tests {
    use super::{DifferingRows, RestoreRows};

    /// Row 10 goes back to 5, 15 takes that back, 30 goes back to 20.
    fn restores() -> RestoreRows {
        let mut restores = RestoreRows::default();
        for (id, last_op) in [(10, 5), (15, 9), (30, 20)] {
            restores.add(id, last_op);
        }
        restores
    }

    #[test]
    fn rows_that_a_restore_took_back_are_in_no_later_tree() {
        let all = restores();
        let of = |first, second| all.differing(first, second);
        let taken_back = DifferingRows { only_first: vec![21..=29], ..Default::default() };
        assert_eq!(of(29, 30), taken_back);
        // What came back with the second restore is in both.
        let since = DifferingRows { only_second: vec![16..=20, 6..=9], ..Default::default() };
        assert_eq!(of(5, 30), since);
        assert_eq!(of(9, 15), DifferingRows::default());
        assert_eq!(of(20, 30), DifferingRows::default());
    }

    #[test]
    fn the_way_back_from_a_restore_names_it() {
        let all = restores();
        let back =
            DifferingRows { only_second: vec![21..=29], restores: vec![30], ..Default::default() };
        assert_eq!(all.differing(30, 29), back);
        let further = DifferingRows {
            only_first: vec![31..=33],
            only_second: vec![21..=29],
            restores: vec![30],
        };
        assert_eq!(all.differing(33, 29), further);
        let plain = DifferingRows { only_first: vec![3..=4], ..Default::default() };
        assert_eq!(all.differing(4, 2), plain);
    }
}
