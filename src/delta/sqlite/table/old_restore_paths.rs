//! Chooses, of the rows that differ at a checkpoint, those of some paths.
//!
//! The paths are closed: an object at one of them has no name elsewhere, neither then nor now, if
//! anything of it differs ([`RestorePaths`]). So whole objects are chosen, by number: those to
//! which entries at and below a path lead, at either moment.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::{Checkpoint, Ino, MergedPath, RestorePaths, Result};
use crate::vfs::Name;

use super::later_objects::LaterObjects;
use super::old_rows::{DENTRIES, HIDDEN_LINKS, ORIGINALS, TREE_TABLES, WHITEOUTS};
use super::path_branches::at_and_above;
use super::value::{self, Bytes};

/// Restricts a restore to some paths: deletes from the temporary tables `first_…`, `then_…` and
/// `pieced` the rows of objects, entries, whiteouts and originals that are not at these paths.
/// Returns the later objects that are.
///
/// An entry of a directory that has another number after the restore gets that number.
pub fn select_rows_of_paths(
    conn: &Connection,
    to: &Checkpoint,
    paths: &RestorePaths,
) -> Result<LaterObjects> {
    conn.execute_batch(
        "CREATE TEMP TABLE chosen_object (ino INTEGER PRIMARY KEY, is_alone INTEGER NOT NULL);
         CREATE TEMP TABLE chosen_entry (parent_ino INTEGER NOT NULL, name NOT NULL,
           PRIMARY KEY (parent_ino, name)) WITHOUT ROWID;",
    )?;
    let mut choice = PathChoice { conn, to, paths, entries: Vec::new() };
    for dir in &paths.dirs {
        choice.choose_dir(dir)?;
    }
    for path in &paths.paths {
        choice.choose_path(path)?;
    }
    choice.choose_entries()?;
    delete_rows_of_other_objects(conn)?;
    select_new_hidden_links(conn)?;
    delete_other_whiteouts(conn, paths)?;
    delete_other_originals(conn, paths)?;
    Ok(LaterObjects::chosen(to))
}

/// Drops the temporary tables.
pub fn drop_temporary(conn: &Connection) -> Result<()> {
    let drop = "DROP TABLE IF EXISTS temp.chosen_object; DROP TABLE IF EXISTS temp.chosen_entry";
    Ok(conn.execute_batch(drop)?)
}

/// One of the two moments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryMoment {
    AtCheckpoint,
    Now,
}

/// The entry of a path, in the directory above.
struct ChosenEntry {
    name: Name,
    /// The directory's number at the checkpoint.
    past_dir: Option<i64>,
    /// The directory's number after the restore. It differs if the directory's row was dropped and
    /// made again since the checkpoint.
    restored_dir: Option<i64>,
}

struct PathChoice<'a> {
    conn: &'a Connection,
    to: &'a Checkpoint,
    paths: &'a RestorePaths,
    entries: Vec<ChosenEntry>,
}

impl PathChoice<'_> {
    /// Chooses a directory that comes back, and nothing in it.
    fn choose_dir(&mut self, path: &MergedPath) -> Result<()> {
        self.choose_entry(path)?;
        if let Some(ino) = self.find(path, EntryMoment::AtCheckpoint)? {
            let choose = "INSERT OR IGNORE INTO temp.chosen_object VALUES (?1, 1)";
            self.conn.prepare_cached(choose)?.execute([ino])?;
        }
        Ok(())
    }

    /// Chooses what is at a path, and below it, at both moments.
    fn choose_path(&mut self, path: &MergedPath) -> Result<()> {
        self.choose_entry(path)?;
        let choose = "INSERT INTO temp.chosen_object VALUES (?1, 0)
                      ON CONFLICT (ino) DO UPDATE SET is_alone = 0";
        let mut choose = self.conn.prepare_cached(choose)?;
        for moment in [EntryMoment::AtCheckpoint, EntryMoment::Now] {
            let (mut unvisited, mut seen) = (Vec::new(), BTreeSet::new());
            unvisited.extend(self.find(path, moment)?);
            while let Some(ino) = unvisited.pop() {
                if seen.insert(ino) {
                    choose.execute([ino])?;
                    self.add_entries(ino, moment, &mut unvisited)?;
                }
            }
        }
        Ok(())
    }

    fn choose_entry(&mut self, path: &MergedPath) -> Result<()> {
        let Some(name) = path.name() else { return Ok(()) };
        let above = path.parent();
        let past_dir = self.find(&above, EntryMoment::AtCheckpoint)?;
        let restored_dir = match self.paths.dirs.contains(&above) {
            true => past_dir,
            false => self.find(&above, EntryMoment::Now)?,
        };
        self.entries.push(ChosenEntry { name, past_dir, restored_dir });
        Ok(())
    }

    /// Fills `chosen_entry`, and moves the entries of the checkpoint into the directories that they
    /// are in after the restore.
    fn choose_entries(&self) -> Result<()> {
        let choose = "INSERT OR IGNORE INTO temp.chosen_entry VALUES (?1, ?2)";
        let mut choose = self.conn.prepare(choose)?;
        // Entries of a directory that was made later are not saved.
        let mut replace = self.conn.prepare(
            "INSERT OR IGNORE INTO temp.first_fs_dentry (parent_ino, name)
             SELECT parent_ino, name FROM main.fs_dentry
             WHERE parent_ino = ?1 AND name IN (?2, CAST(?2 AS BLOB))",
        )?;
        let mut move_to = self.conn.prepare(
            "UPDATE temp.then_fs_dentry SET parent_ino = ?2
             WHERE parent_ino = ?1 AND name IN (?3, CAST(?3 AS BLOB))",
        )?;
        for ChosenEntry { name, past_dir, restored_dir } in &self.entries {
            for dir in past_dir.iter().chain(restored_dir) {
                for key in value::keys(name.as_bytes()) {
                    choose.execute(params![dir, key])?;
                }
            }
            if let Some(restored_dir) = restored_dir.filter(|dir| *past_dir != Some(*dir)) {
                let name = Bytes(name.as_bytes());
                replace.execute(params![restored_dir, name])?;
                move_to.execute(params![past_dir, restored_dir, name])?;
            }
        }
        Ok(())
    }

    /// The object at a path, by the entries alone.
    fn find(&self, path: &MergedPath, moment: EntryMoment) -> Result<Option<i64>> {
        let mut found = Some(Ino::ROOT.0.cast_signed());
        for name in path.names() {
            let Some(dir) = found else { break };
            found = self.entry(dir, &name, moment)?;
        }
        Ok(found)
    }

    fn entry(&self, dir: i64, name: &Name, moment: EntryMoment) -> Result<Option<i64>> {
        let now = "SELECT d.ino FROM main.fs_dentry d
                   WHERE d.parent_ino = ?1 AND d.name IN (?2, CAST(?2 AS BLOB))";
        let key = params![dir, Bytes(name.as_bytes())];
        let mut statement = match moment {
            EntryMoment::Now => self.conn.prepare_cached(now)?,
            EntryMoment::AtCheckpoint => self.conn.prepare_cached(&self.past_entries(
                &format!("{now} AND {}", NOT_CHANGED),
                "ino FROM temp.then_fs_dentry
                 WHERE parent_ino = ?1 AND name IN (?2, CAST(?2 AS BLOB))",
            ))?,
        };
        Ok(statement.query_row(key, |row| row.get(0)).optional()?)
    }

    /// Adds to `into` the objects to which the entries of a directory lead.
    fn add_entries(&self, dir: i64, moment: EntryMoment, into: &mut Vec<i64>) -> Result<()> {
        let now = "SELECT d.ino FROM main.fs_dentry d WHERE d.parent_ino = ?1";
        let mut statement = match moment {
            EntryMoment::Now => self.conn.prepare_cached(now)?,
            EntryMoment::AtCheckpoint => self.conn.prepare_cached(&self.past_entries(
                &format!("{now} AND {}", NOT_CHANGED),
                "ino FROM temp.then_fs_dentry WHERE parent_ino = ?1",
            ))?,
        };
        let mut rows = statement.query([dir])?;
        while let Some(row) = rows.next()? {
            into.push(row.get(0)?);
        }
        Ok(())
    }

    /// A query of the entries at the checkpoint: those that have not changed since, without those
    /// of later objects, and those that have, as they were.
    fn past_entries(&self, unchanged: &str, changed: &str) -> String {
        let next_ino = self.to.next_ino.0.cast_signed();
        format!(
            "{unchanged} AND d.ino < {next_ino} AND d.parent_ino < {next_ino}
             UNION ALL SELECT {changed}"
        )
    }
}

/// The entry `d` has not changed.
const NOT_CHANGED: &str = "NOT EXISTS (SELECT 1 FROM temp.first_fs_dentry s
     WHERE s.parent_ino = d.parent_ino AND s.name = d.name)";

/// Deletes the rows of the temporary tables that are of no chosen object or entry.
fn delete_rows_of_other_objects(conn: &Connection) -> Result<()> {
    let others = "NOT IN (SELECT ino FROM temp.chosen_object)";
    conn.execute_batch(&format!("DELETE FROM temp.pieced WHERE ino {others}"))?;
    for table in &TREE_TABLES {
        let Some(number) = table.number else { continue };
        let (name, has_then) = (table.name, table.large.is_none());
        let is_other = match name {
            DENTRIES => "parent_ino NOT IN (SELECT ino FROM temp.chosen_object WHERE NOT is_alone)
                 AND (parent_ino, name) NOT IN (SELECT parent_ino, name FROM temp.chosen_entry)"
                .to_owned(),
            _ => format!("{number} {others}"),
        };
        conn.execute_batch(&format!("DELETE FROM temp.first_{name} WHERE {is_other}"))?;
        if has_then {
            conn.execute_batch(&format!("DELETE FROM temp.then_{name} WHERE {is_other}"))?;
        }
    }
    Ok(())
}

/// Leaves of the hidden links only the rows at the checkpoint of base files that have none now.
///
/// A row counts the hidden names of a base file over the whole tree, so neither the present number
/// nor that of the checkpoint may hold after a restore of some paths. The caller counts again for
/// each file that has a row: no present row goes, and a file without one gets that of the
/// checkpoint.
fn select_new_hidden_links(conn: &Connection) -> Result<()> {
    Ok(conn.execute_batch(&format!(
        "DELETE FROM temp.first_{HIDDEN_LINKS};
         DELETE FROM temp.then_{HIDDEN_LINKS}
           WHERE base_ino IN (SELECT base_ino FROM main.{HIDDEN_LINKS});"
    ))?)
}

/// Deletes the whiteouts that are neither at or below the paths nor of the directories.
fn delete_other_whiteouts(conn: &Connection, paths: &RestorePaths) -> Result<()> {
    let is_chosen = |path: &[u8]| {
        MergedPath::from_bytes(path)
            .is_some_and(|path| paths.dirs.contains(&path) || path.is_within_any(&paths.paths))
    };
    delete_others(conn, WHITEOUTS, "path", true, &is_chosen)
}

/// Deletes the originals of base objects that neither show at the paths nor are those of chosen
/// objects.
fn delete_other_originals(conn: &Connection, paths: &RestorePaths) -> Result<()> {
    let mut homes: BTreeSet<Vec<u8>> = BTreeSet::new();
    homes.extend(paths.homes.iter().map(|home| home.as_bytes().to_vec()));
    for table in ["acetate_origin", "acetate_redirect"] {
        for moment in [format!("main.{table}"), format!("temp.then_{table}")] {
            let mut statement = conn.prepare(&format!(
                "SELECT {BASE_PATH} FROM {moment}
                 WHERE delta_ino IN (SELECT ino FROM temp.chosen_object WHERE NOT is_alone)"
            ))?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                homes.insert(value::bytes(row, 0)?.to_vec());
            }
        }
    }
    let has_root = homes.contains(&b""[..]);
    let is_chosen = |path: &[u8]| has_root || at_and_above(path).any(|above| homes.contains(above));
    delete_others(conn, ORIGINALS, BASE_PATH, false, &is_chosen)
}

/// The column with a path in the base.
const BASE_PATH: &str = "base_path";

/// Deletes the rows of the temporary tables of `table` whose `column` is not chosen.
fn delete_others(
    conn: &Connection,
    table: &str,
    column: &str,
    has_then: bool,
    is_chosen: &dyn Fn(&[u8]) -> bool,
) -> Result<()> {
    let tables = [Some(format!("first_{table}")), has_then.then(|| format!("then_{table}"))];
    for table in tables.into_iter().flatten() {
        let mut others: Vec<i64> = Vec::new();
        let mut statement = conn.prepare(&format!("SELECT rowid, {column} FROM temp.{table}"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if !is_chosen(value::bytes(row, 1)?) {
                others.push(row.get(0)?);
            }
        }
        let mut delete = conn.prepare(&format!("DELETE FROM temp.{table} WHERE rowid = ?1"))?;
        for row in others {
            delete.execute([row])?;
        }
    }
    Ok(())
}
