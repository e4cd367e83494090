//! The RESTORE rows of the audit log, and the rows by which two moments differ.
//!
//! The log is not rolled back: a restore begins a branch of the history of its path
//! ([`path_branches`](super::path_branches)). A RESTORE row without the number of the last row
//! before the checkpoint begins none: the directory of its path is there again, without what was in
//! it.

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

use rusqlite::{Connection, params};

use crate::delta::Result;

use super::path_branches::{BranchDifference, PathBranches, PathRestore};
use super::{checkpoint, schema, value};

/// The RESTORE rows that begin branches.
#[derive(Debug, Default)]
pub struct RestoreRows {
    /// Each with its path, by id.
    rows: Vec<(PathRestore, Vec<u8>)>,
}

/// The rows by which the trees of two moments differ.
#[derive(Debug)]
pub struct DifferingRows {
    branches: PathBranches,
    /// What the histories of some paths differ by.
    parts: Vec<BranchDifference>,
    /// The index in `parts` for each key of `branches`.
    part_of: HashMap<Vec<u8>, usize>,
}

/// Rows of one of two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DifferingSide {
    /// Their changes are in the first tree alone.
    OnlyFirst,
    /// Their changes are in the second tree alone.
    OnlySecond,
}

/// A change by which two moments differ.
#[derive(Debug)]
pub struct BranchChange<'r> {
    /// Its procedure in the log.
    pub procedure: &'r str,
    /// Its path.
    pub path: &'r [u8],
    /// Whether a restore since brought it back: what takes that back takes this back with it.
    pub is_brought_back: bool,
}

impl RestoreRows {
    /// Reads the RESTORE rows. A session that never had a checkpoint has none.
    pub fn load(conn: &Connection) -> Result<Self> {
        let mut restores = Self::default();
        if !checkpoint::is_used(conn)? || !schema::has_table(conn, "acetate_op")? {
            return Ok(restores);
        }
        let mut all = conn.prepare_cached(
            "SELECT id, offset, path FROM acetate_op
             WHERE procedure = 'RESTORE' AND offset IS NOT NULL ORDER BY id",
        )?;
        let mut rows = all.query([])?;
        while let Some(row) = rows.next()? {
            let restore = PathRestore { id: row.get(0)?, last_op: value::int(row, 1)? };
            restores.add(restore, value::bytes(row, 2)?);
        }
        Ok(restores)
    }

    fn add(&mut self, restore: PathRestore, path: &[u8]) {
        // Of a row that another program wrote, only one that leads back makes sense.
        if restore.last_op < restore.id {
            self.rows.push((restore, path.to_vec()));
        }
    }

    /// All of them, by path.
    pub fn into_branches(self) -> PathBranches {
        branches_of(&self.rows)
    }

    /// The rows by which the tree after the row `first` differs from that after the row `second`.
    pub fn differing(&self, first: i64, second: i64) -> DifferingRows {
        let branches = branches_of(self.on_the_way(first, second));
        let (mut part_of, mut numbers) = (HashMap::new(), HashMap::new());
        for key in branches.keys() {
            let next = numbers.len();
            let differing = branches.history(key).differing(first, second);
            part_of.insert(key.to_vec(), *numbers.entry(differing).or_insert(next));
        }
        let mut parts: Vec<(BranchDifference, usize)> = numbers.into_iter().collect();
        parts.sort_by_key(|(_, number)| *number);
        let parts = parts.into_iter().map(|(differing, _)| differing).collect();
        DifferingRows { branches, parts, part_of }
    }

    /// The rows that some path may pass on the way between two moments.
    fn on_the_way(&self, first: i64, second: i64) -> &[(PathRestore, Vec<u8>)] {
        let end = self.rows.partition_point(|(restore, _)| restore.id <= first.max(second));
        let (mut begin, mut lowest) = (end, first.min(second));
        while let Some((restore, _)) = begin.checked_sub(1).map(|before| &self.rows[before])
            && restore.id > lowest
        {
            lowest = lowest.min(restore.last_op);
            begin -= 1;
        }
        &self.rows[begin..end]
    }
}

fn branches_of(rows: &[(PathRestore, Vec<u8>)]) -> PathBranches {
    let mut branches = PathBranches::default();
    for (restore, path) in rows {
        branches.add(path, *restore);
    }
    branches
}

impl DifferingRows {
    /// The RESTORE rows that led to the first tree alone, the newest first.
    pub fn restores(&self) -> Vec<i64> {
        let all: BTreeSet<i64> =
            self.parts.iter().flat_map(|part| &part.restores).copied().collect();
        all.into_iter().rev().collect()
    }

    /// Calls `each` with the changes on a side.
    ///
    /// Reads at most `left` rows, skipped ones included, and subtracts them from `left`.
    pub fn each_change(
        &self,
        conn: &Connection,
        side: DifferingSide,
        left: &mut u64,
        each: &mut dyn FnMut(&BranchChange<'_>),
    ) -> Result<()> {
        let mut changes = conn.prepare_cached(
            "SELECT id, procedure, path FROM acetate_op
             WHERE id BETWEEN ?1 AND ?2 AND procedure <> 'REFUSE'
               AND (procedure <> 'RESTORE' OR offset IS NULL) LIMIT ?3",
        )?;
        for ids in joined(self.parts.iter().flat_map(|part| side.ids(part))) {
            let mut rows = changes.query(params![ids.start(), ids.end(), left.cast_signed()])?;
            while let Some(row) = rows.next()? {
                *left = left.saturating_sub(1);
                let (id, path) = (row.get::<_, i64>(0)?, value::bytes(row, 2)?);
                let part = self.part_of.get(self.branches.key_of(path));
                let Some(part) = part.and_then(|at| self.parts.get(*at)) else { continue };
                if side.ids(part).iter().any(|ids| ids.contains(&id)) {
                    let procedure = row.get_ref(1)?.as_str().unwrap_or_default();
                    let is_brought_back = side == DifferingSide::OnlyFirst
                        && part.restores.first().is_some_and(|restore| id < *restore);
                    each(&BranchChange { procedure, path, is_brought_back });
                }
            }
        }
        Ok(())
    }
}

impl DifferingSide {
    /// The ids of the rows that are on this side alone.
    fn ids(self, part: &BranchDifference) -> &[RangeInclusive<i64>] {
        match self {
            Self::OnlyFirst => &part.only_first,
            Self::OnlySecond => &part.only_second,
        }
    }
}

/// The same ids, each once, in ranges by id.
fn joined<'r>(
    ranges: impl Iterator<Item = &'r RangeInclusive<i64>>,
) -> impl Iterator<Item = RangeInclusive<i64>> {
    let mut ranges: Vec<_> = ranges.map(|range| (*range.start(), *range.end())).collect();
    ranges.sort_unstable();
    let mut joined: Vec<(i64, i64)> = Vec::new();
    for (start, end) in ranges {
        match joined.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ => joined.push((start, end)),
        }
    }
    joined.into_iter().map(|(start, end)| start..=end)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rusqlite::{Connection, params};

    use super::{BranchChange, DifferingRows, DifferingSide, PathRestore, RestoreRows, joined};

    #[test]
    fn only_restores_between_two_moments_and_before_what_they_led_to_count() {
        let mut all = RestoreRows::default();
        let restores = [(5, 2, "/a"), (10, 8, "/"), (20, 4, "/d"), (30, 25, "/x")];
        for (id, last_op, path) in restores.into_iter().chain([(40, 40, "/")]) {
            all.add(PathRestore { id, last_op }, path.as_bytes());
        }
        let ids = |first, second| -> Vec<i64> {
            all.on_the_way(first, second).iter().map(|(restore, _)| restore.id).collect()
        };
        assert_eq!(ids(29, 22), [0; 0]);
        assert_eq!(ids(30, 26), [30]);
        assert_eq!(ids(21, 12), [5, 10, 20]);
        assert_eq!(ids(12, 40), [5, 10, 20, 30]);
        assert_eq!(ids(50, 39), [0; 0], "no row leads to itself");
    }

    const PATHS: [&str; 6] = ["/", "/a", "/a/a", "/a/a/b", "/a/b", "/b"];

    /// A log, and after each row the ids of the rows whose changes are in the tree, by path.
    struct RandomLog {
        conn: Connection,
        restores: RestoreRows,
        /// The path of each row that is no RESTORE.
        changes: Vec<Option<usize>>,
        trees: Vec<[BTreeSet<i64>; 6]>,
    }

    fn random_log(random: &mut dyn FnMut(usize) -> usize) -> RandomLog {
        let conn = Connection::open_in_memory().unwrap();
        let create = "CREATE TABLE acetate_op (id INTEGER PRIMARY KEY, procedure, path, offset)";
        conn.execute_batch(create).unwrap();
        let (mut restores, mut changes) = (RestoreRows::default(), vec![None]);
        let mut trees = vec![<[BTreeSet<i64>; 6]>::default()];
        for id in 1..40_i64 {
            let (at, mut tree) = (random(PATHS.len()), trees.last().unwrap().clone());
            let last_op = (random(4) == 0).then(|| random(id as usize));
            match last_op {
                Some(last_op) => {
                    let last_op = PathRestore { id, last_op: last_op as i64 };
                    restores.add(last_op, PATHS[at].as_bytes());
                }
                None => drop(tree[at].insert(id)),
            }
            for (below, path) in PATHS.iter().enumerate() {
                let is_below =
                    at == 0 || format!("{path}/").starts_with(&format!("{}/", PATHS[at]));
                if let Some(last_op) = last_op.filter(|_| is_below) {
                    tree[below] = trees[last_op][below].clone();
                }
            }
            let procedure = if last_op.is_some() { "RESTORE" } else { "WRITE" };
            let insert = "INSERT INTO acetate_op VALUES (?1, ?2, ?3, ?4)";
            let row = params![id, procedure, PATHS[at], last_op.map(|last| last as i64)];
            conn.execute(insert, row).unwrap();
            changes.push(last_op.is_none().then_some(at));
            trees.push(tree);
        }
        RandomLog { conn, restores, changes, trees }
    }

    /// The paths of the changes on a side.
    fn paths(conn: &Connection, rows: &DifferingRows, side: DifferingSide) -> Vec<String> {
        let (mut paths, mut left) = (Vec::new(), 1000);
        let mut each = |change: &BranchChange<'_>| {
            paths.push(String::from_utf8_lossy(change.path).into_owned());
        };
        rows.each_change(conn, side, &mut left, &mut each).unwrap();
        paths.sort();
        paths
    }

    #[test]
    fn each_id_is_read_once() {
        let ids = [5..=9, 1..=3, 7..=12, 4..=4, 20..=21, 8..=9];
        assert_eq!(joined(ids.iter()).collect::<Vec<_>>(), [1..=3, 4..=4, 5..=12, 20..=21]);
    }

    #[test]
    fn the_histories_of_paths_are_those_of_their_trees() {
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        for _ in 0..200 {
            let RandomLog { conn, restores, changes, trees } = random_log(&mut random);
            for _ in 0..20 {
                let (first, second) = (random(trees.len()), random(trees.len()));
                let only = |one: usize, other: usize| {
                    let there = trees[one].iter().zip(&trees[other]).zip(PATHS);
                    let mut only: Vec<_> = there
                        .flat_map(|((one, other), path)| vec![path.to_owned(); (one - other).len()])
                        .collect();
                    only.sort();
                    only
                };
                let rows = restores.differing(first as i64, second as i64);
                assert_eq!(paths(&conn, &rows, DifferingSide::OnlyFirst), only(first, second));
                assert_eq!(paths(&conn, &rows, DifferingSide::OnlySecond), only(second, first));
            }
            let branches = restores.into_branches();
            for (id, at) in changes.iter().enumerate() {
                let Some(at) = at else { continue };
                let id = id as i64;
                let key = branches.key_of(PATHS[*at].as_bytes());
                let undone = branches.history(key).undone();
                let is_there = !undone.iter().any(|range| range.contains(&id));
                assert_eq!(is_there, trees.last().unwrap()[*at].contains(&id));
            }
        }
    }
}
