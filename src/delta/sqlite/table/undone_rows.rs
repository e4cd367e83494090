//! Rows of the audit log whose changes a restore took back.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::RangeInclusive;

use rusqlite::Connection;

use crate::delta::{AuditRow, MergedPath, Result};

use super::path_branches::PathBranches;
use super::restore_rows::RestoreRows;

/// Ranges of taken-back rows that are kept in memory. Before there would be more, all are dropped.
const MAX_KEPT_RANGES: usize = 1 << 16;

/// Tells for each row of the log what restores left of its change.
#[derive(Debug, Default)]
pub struct UndoneRows {
    branches: PathBranches,
    kept: RefCell<KeptRanges>,
}

/// Ranges of ids of undone rows, by the key of [`PathBranches`].
#[derive(Debug, Default)]
struct KeptRanges {
    by_key: HashMap<Vec<u8>, Vec<RangeInclusive<i64>>>,
    /// The number of ranges under all keys.
    count: usize,
}

/// What restores left of the change of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowRemains {
    /// No restore took back any of it.
    All,
    /// The row has two paths, and a restore took back the change at `path2`.
    OnlyAtPath,
    /// The row has two paths, and a restore took back the change at `path`.
    OnlyAtPath2,
    /// Restores took back the change at each path of the row.
    Nothing,
}

impl UndoneRows {
    /// What restores left of the change of the row with this id.
    ///
    /// [`RowRemains::Nothing`] for a RESTORE row with an offset: the rows that are left tell what
    /// it changed. A RESTORE row without one, of a directory that came back alone, is as other
    /// rows.
    pub fn remains(&self, id: i64, path: &[u8], path2: Option<&[u8]>) -> RowRemains {
        let is_undone = |path: &[u8]| self.undone_by(id, path).is_some();
        match (is_undone(path), path2.map(is_undone)) {
            (true, None | Some(true)) => RowRemains::Nothing,
            (true, Some(false)) => RowRemains::OnlyAtPath2,
            (false, Some(true)) => RowRemains::OnlyAtPath,
            (false, None | Some(false)) => RowRemains::All,
        }
    }

    /// Whether restores took back the change of the row with this id. A row with two paths, such as
    /// a rename, counts only if the change was taken back at both. A RESTORE row does not take back
    /// itself.
    pub fn is_taken_back(&self, id: i64, row: &AuditRow) -> bool {
        let is_undone = |path: &MergedPath| {
            self.undone_by(id, path.as_bytes()).is_some_and(|restore| restore != id)
        };
        is_undone(&row.path) && row.path2.as_ref().is_none_or(is_undone)
    }

    /// The RESTORE row that took back the change of a row at a path. A RESTORE row with an offset
    /// that no later one took back gives itself.
    fn undone_by(&self, id: i64, path: &[u8]) -> Option<i64> {
        let mut kept = self.kept.borrow_mut();
        let ranges = kept.of(&self.branches, self.branches.key_of(path));
        let at = ranges.partition_point(|range| *range.start() > id);
        ranges.get(at).filter(|range| range.contains(&id)).map(|range| *range.end())
    }
}

impl KeptRanges {
    fn of(&mut self, branches: &PathBranches, key: &[u8]) -> &[RangeInclusive<i64>] {
        if !self.by_key.contains_key(key) {
            let ranges = branches.history(key).undone();
            if self.count + ranges.len() > MAX_KEPT_RANGES {
                *self = Self::default();
            }
            self.count += ranges.len();
            self.by_key.insert(key.to_vec(), ranges);
        }
        self.by_key.get(key).map_or(&[], Vec::as_slice)
    }
}

/// Reads which rows restores took back.
pub fn load(conn: &Connection) -> Result<UndoneRows> {
    let branches = RestoreRows::load(conn)?.into_branches();
    Ok(UndoneRows { branches, ..UndoneRows::default() })
}

#[cfg(test)]
mod tests {
    use super::{PathBranches, RowRemains, UndoneRows};
    use crate::delta::sqlite::table::path_branches::PathRestore;

    fn undone(restores: &[(i64, i64, &str)]) -> UndoneRows {
        let mut branches = PathBranches::default();
        for &(id, last_op, path) in restores {
            branches.add(path.as_bytes(), PathRestore { id, last_op });
        }
        UndoneRows { branches, ..UndoneRows::default() }
    }

    fn all(undone: &UndoneRows, path: &str) -> Vec<i64> {
        let is_undone = |id: &i64| undone.remains(*id, path.as_bytes(), None) != RowRemains::All;
        (0..35).filter(is_undone).collect()
    }

    #[test]
    fn rows_after_the_checkpoint_are_undone_up_to_the_restore() {
        // 10 goes back to 5, 15 takes that back, 30 goes back to 20.
        let some = undone(&[(10, 5, "/"), (15, 9, "/"), (30, 20, "/")]);
        assert_eq!(all(&some, "/a"), (10..=15).chain(21..=30).collect::<Vec<_>>());
        let by: Vec<_> = [10, 14, 15, 30, 31].map(|id| some.undone_by(id, b"/a")).into();
        assert_eq!(by, [Some(15), Some(15), Some(15), Some(30), None]);
        // 30 goes back to before 15, which is then no restore any more.
        let some = undone(&[(11, 3, "/"), (15, 9, "/"), (30, 12, "/")]);
        assert_eq!(all(&some, "/a"), (4..=11).chain(13..=30).collect::<Vec<_>>());
    }

    #[test]
    fn a_restore_of_a_path_takes_back_rows_there() {
        // 10 takes /d back to 5; 20 takes /d/a back to 7, before that; 30 and 31 are one restore.
        let some = undone(&[(10, 5, "/d"), (20, 7, "/d/a"), (30, 25, "/y"), (31, 25, "/x")]);
        assert_eq!(all(&some, "/d/b"), (6..=10).collect::<Vec<_>>());
        assert_eq!(all(&some, "/d/a/in"), (8..=20).collect::<Vec<_>>());
        assert!(all(&some, "/d.a").is_empty());
        assert_eq!(all(&some, "/x"), (26..=31).collect::<Vec<_>>());
        let (x, y, d) = (&b"/x"[..], &b"/y"[..], &b"/d"[..]);
        assert_eq!(some.remains(26, x, Some(y)), RowRemains::Nothing);
        assert_eq!(some.remains(26, x, Some(d)), RowRemains::OnlyAtPath2);
        assert_eq!(some.remains(26, d, Some(x)), RowRemains::OnlyAtPath);
        assert_eq!(some.remains(25, d, Some(x)), RowRemains::All);
        // A restore of the whole tree to before that of a path takes that one back.
        let some = undone(&[(10, 5, "/d"), (30, 8, "/")]);
        assert_eq!(all(&some, "/d/b"), (9..=30).collect::<Vec<_>>());
        assert_eq!(some.undone_by(10, d), Some(30));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut branches = PathBranches::default();
        for id in 1..=1000 {
            branches.add(b"/", PathRestore { id: 3 * id, last_op: 3 * id - 2 });
        }
        for id in 3001..=3200 {
            branches.add(format!("/{id}").as_bytes(), PathRestore { id, last_op: id - 1 });
        }
        let some = UndoneRows { branches, ..UndoneRows::default() };
        for id in 3001..=3200 {
            let path = format!("/{id}");
            assert_eq!(some.remains(id, path.as_bytes(), None), RowRemains::Nothing);
            assert_eq!(some.remains(1, path.as_bytes(), None), RowRemains::All);
            let kept = some.kept.borrow();
            let count = kept.by_key.values().map(Vec::len).sum::<usize>();
            assert!(count == kept.count && count <= super::MAX_KEPT_RANGES);
        }
    }
}
