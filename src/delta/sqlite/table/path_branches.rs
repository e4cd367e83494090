//! The history of each path, as restores left it.
//!
//! After a RESTORE row, its path and all below it are what they were after the last row before the
//! checkpoint. So the moments of a path are a tree of branches: each RESTORE row at or above the
//! path begins one. Paths with the same RESTORE rows at and above them have one history.

use std::collections::HashMap;
use std::ops::RangeInclusive;

/// A RESTORE row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathRestore {
    /// The row.
    pub id: i64,
    /// The last row before the checkpoint.
    pub last_op: i64,
}

/// RESTORE rows, by path.
#[derive(Debug, Default)]
pub struct PathBranches {
    /// Those of each path, by id.
    by_path: HashMap<Vec<u8>, Vec<PathRestore>>,
}

/// The history of some paths.
pub struct BranchHistory<'b>(Vec<&'b [PathRestore]>);

/// The rows by which two moments of a history differ.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct BranchDifference {
    /// Ids of rows whose changes are in the first moment alone.
    pub only_first: Vec<RangeInclusive<i64>>,
    /// Ids of rows whose changes are in the second moment alone.
    pub only_second: Vec<RangeInclusive<i64>>,
    /// The RESTORE rows that led to the first moment alone, the newest first.
    pub restores: Vec<i64>,
}

impl PathBranches {
    /// Adds a row; rows come by id.
    pub fn add(&mut self, path: &[u8], restore: PathRestore) {
        match self.by_path.get_mut(path) {
            Some(all) => all.push(restore),
            None => {
                self.by_path.insert(path.to_vec(), vec![restore]);
            }
        }
    }

    /// The lowest path at or above `path` that has RESTORE rows, or else the root: the histories of
    /// both are the same.
    pub fn key_of<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let others = self.by_path.len() - usize::from(self.by_path.contains_key(&b"/"[..]));
        let found = at_and_above(path).find(|path| others > 0 && self.by_path.contains_key(*path));
        found.unwrap_or(b"/")
    }

    /// The paths with RESTORE rows, and the root: those that [`Self::key_of`] returns.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let others = self.by_path.keys().map(Vec::as_slice).filter(|path| *path != b"/");
        std::iter::once(&b"/"[..]).chain(others)
    }

    /// The history of a path.
    pub fn history(&self, path: &[u8]) -> BranchHistory<'_> {
        let all = at_and_above(path).filter_map(|path| self.by_path.get(path));
        BranchHistory(all.map(Vec::as_slice).collect())
    }
}

/// A path and those above it. The root is last for a path of the tree, and left out for one of the
/// base, which begins with no slash.
pub fn at_and_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let above = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
    let above = above.map(|(at, _)| if at == 0 { &path[..1] } else { &path[..at] });
    (path != b"/").then_some(path).into_iter().chain(above)
}

impl BranchHistory<'_> {
    /// The last restore up to the row `id`.
    fn last_upto(&self, id: i64) -> Option<PathRestore> {
        let before = |all: &&[PathRestore]| {
            let at = all.partition_point(|restore| restore.id <= id);
            at.checked_sub(1).map(|at| all[at])
        };
        self.0.iter().filter_map(before).max()
    }

    /// The ids of the rows whose changes are not there now, the last ones first. Each range ends
    /// with the RESTORE row that took them back.
    pub fn undone(&self) -> Vec<RangeInclusive<i64>> {
        let (mut undone, mut at) = (Vec::new(), i64::MAX);
        while let Some(PathRestore { id, last_op }) = self.last_upto(at) {
            undone.push(last_op + 1..=id);
            at = last_op;
        }
        undone
    }

    /// The rows by which the moment after the row `first` differs from that after `second`.
    pub fn differing(&self, first: i64, second: i64) -> BranchDifference {
        let mut differing = BranchDifference::default();
        let mut at = [first, second];
        // The later of both moves back, until both are at one moment.
        while at[0] != at[1] {
            let later = usize::from(at[1] > at[0]);
            let (upper, lower) = (at[later], at[1 - later]);
            let restore = self.last_upto(upper).filter(|restore| restore.id > lower);
            let (ends, next) = restore.map_or((lower, lower), |one| (one.id, one.last_op));
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
    use super::{BranchDifference, PathBranches, PathRestore, at_and_above};

    fn branches(restores: &[(i64, i64, &str)]) -> PathBranches {
        let mut branches = PathBranches::default();
        for &(id, last_op, path) in restores {
            branches.add(path.as_bytes(), PathRestore { id, last_op });
        }
        branches
    }

    #[test]
    fn the_paths_above_end_with_the_root_of_the_tree() {
        let all = |path: &'static str| -> Vec<_> {
            at_and_above(path.as_bytes()).map(|path| str::from_utf8(path).unwrap()).collect()
        };
        assert_eq!(all("/a/b"), ["/a/b", "/a", "/"]);
        assert_eq!(all("/"), ["/"]);
        assert_eq!(all("a/b/c"), ["a/b/c", "a/b", "a"]);
        assert_eq!(all("a"), ["a"]);
    }

    #[test]
    fn rows_that_a_restore_took_back_are_in_no_later_tree() {
        // Row 10 goes back to 5, 15 takes that back, 30 goes back to 20.
        let all = branches(&[(10, 5, "/"), (15, 9, "/"), (30, 20, "/")]);
        let of = |first, second| all.history(b"/a").differing(first, second);
        let taken_back = BranchDifference { only_first: vec![21..=29], ..Default::default() };
        assert_eq!(of(29, 30), taken_back);
        // What came back with the second restore is in both.
        let since = BranchDifference { only_second: vec![16..=20, 6..=9], ..Default::default() };
        assert_eq!(of(5, 30), since);
        assert_eq!(of(9, 15), BranchDifference::default());
        assert_eq!(of(20, 30), BranchDifference::default());
        let back = BranchDifference {
            only_second: vec![21..=29],
            restores: vec![30],
            ..Default::default()
        };
        assert_eq!(of(30, 29), back);
        let further = BranchDifference {
            only_first: vec![31..=33],
            only_second: vec![21..=29],
            restores: vec![30],
        };
        assert_eq!(of(33, 29), further);
        let plain = BranchDifference { only_first: vec![3..=4], ..Default::default() };
        assert_eq!(of(4, 2), plain);
    }

    #[test]
    fn a_restore_of_a_path_is_of_what_is_at_and_below_it() {
        // 10 takes /d back to 5; 20 takes /d/a back to 7; 30 takes all back to before 20.
        let all = branches(&[(10, 5, "/d"), (20, 7, "/d/a"), (30, 19, "/")]);
        let undone = |path: &str| all.history(path.as_bytes()).undone();
        assert_eq!(undone("/d/b"), [20..=30, 6..=10]);
        assert_eq!(undone("/d/a/in"), [20..=30, 6..=10]);
        assert_eq!(undone("/d.a"), [20..=30]);
        let of = |path: &str| all.history(path.as_bytes()).differing(29, 19);
        assert_eq!(of("/d/a").restores, [20]);
        assert_eq!(of("/d/a").only_second, [11..=19]);
        assert_eq!(of("/d/b").only_first, [20..=29]);
    }

    #[test]
    fn paths_with_the_same_restores_have_one_key() {
        let all = branches(&[(10, 5, "/d"), (20, 7, "/d/a"), (30, 19, "/")]);
        let key = |path: &'static str| str::from_utf8(all.key_of(path.as_bytes())).unwrap();
        assert_eq!(
            [key("/d/a/in/x"), key("/d/a"), key("/d/b"), key("/d")],
            ["/d/a", "/d/a", "/d", "/d"]
        );
        assert_eq!([key("/d.a"), key("/"), key("/x/y")], ["/"; 3]);
        let mut keys: Vec<_> = all.keys().collect();
        keys.sort();
        assert_eq!(keys, [&b"/"[..], b"/d", b"/d/a"]);
        assert_eq!(branches(&[]).keys().collect::<Vec<_>>(), [b"/"]);
        assert_eq!(branches(&[(3, 1, "/")]).key_of(b"/d"), b"/");
    }
}
