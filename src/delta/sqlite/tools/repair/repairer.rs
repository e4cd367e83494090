//! Shared by all repairs: the report, new inodes, free names, and `/lost+found`.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};

use crate::base::BasePath;
use crate::delta::sqlite::file::host::Host;
use crate::delta::sqlite::table::inode_numbers::{self, InodeNumbers};
use crate::delta::sqlite::table::value::{self, Bytes};
use crate::delta::sqlite::table::{opaque, redirect, whiteout};
use crate::delta::sqlite::tools::check::RULES;
use crate::delta::{Ino, MergedPath, Result};
use crate::vfs::Name;

/// Name of the directory where inodes without an entry get one.
const LOST: &str = "lost+found";

/// Maximum depth of a tree; a longer chain of parents counts as endless.
const MOST_STEPS: usize = 4096;

/// Inode numbers reserved at a time.
const RESERVE: u64 = 1 << 16;

/// The names in a base directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BaseListing {
    /// All names of the directory.
    Names(Vec<Name>),
    /// The base has no such directory.
    Nothing,
    /// The directory or the base cannot be read.
    Unknown,
}

/// Lists a directory of the base.
pub type AskBase<'a> = dyn Fn(&BasePath) -> BaseListing + 'a;

/// The repairs for one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repairs {
    /// The rule's number in docs/SCHEMA.md.
    pub rule: &'static str,
    /// Number of repairs.
    pub count: u64,
    /// Descriptions of the first repairs; one may cover many alike.
    pub first: Vec<String>,
}

/// A repair in progress.
pub(super) struct Repairer<'a> {
    pub conn: &'a Connection,
    pub host: &'a Host,
    pub base: &'a AskBase<'a>,
    /// Chunk size, in bytes.
    pub chunk: u64,
    numbers: InodeNumbers,
    lost: Option<Ino>,
    most: usize,
    mended: BTreeMap<&'static str, (u64, Vec<String>)>,
}

impl<'a> Repairer<'a> {
    /// A repair that reports the first `most` repairs of each rule.
    pub(super) fn new(
        conn: &'a Connection,
        host: &'a Host,
        base: &'a AskBase<'a>,
        chunk: u64,
        most: usize,
    ) -> Result<Self> {
        let numbers = InodeNumbers::load(conn)?;
        Ok(Self { conn, host, base, chunk, numbers, lost: None, most, mended: BTreeMap::new() })
    }

    /// Records one repair.
    pub(super) fn mended(&mut self, rule: &'static str, what: impl Into<String>) {
        self.mended_all(rule, 1, what.into());
    }

    /// Records `times` repairs of the same kind.
    pub(super) fn mended_all(&mut self, rule: &'static str, times: u64, what: String) {
        if times == 0 {
            return;
        }
        let (count, first) = self.mended.entry(rule).or_default();
        *count += times;
        if first.len() < self.most {
            first.push(if times == 1 { what } else { format!("{what} ({times} times)") });
        }
    }

    /// Executes `sql` and records the number of changed rows as repairs.
    pub(super) fn change(&mut self, rule: &'static str, sql: &str, what: &str) -> Result<()> {
        let rows = self.conn.execute(sql, [])? as u64;
        self.mended_all(rule, rows, what.to_owned());
        Ok(())
    }

    /// The numbers in the first column of a query's rows.
    pub(super) fn numbers(&self, sql: &str) -> Result<Vec<i64>> {
        let mut statement = self.conn.prepare(sql)?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// All repairs, in the order of the rules.
    pub(super) fn end(mut self) -> Result<Vec<Repairs>> {
        inode_numbers::put_mark(self.conn, self.numbers.last())?;
        let all = RULES.iter().filter_map(|&rule| {
            let (count, first) = self.mended.remove(rule)?;
            Some(Repairs { rule, count, first })
        });
        Ok(all.collect())
    }

    /// Creates an inode with the owner of the root.
    pub(super) fn make(&mut self, mode: u32, size: u64) -> Result<i64> {
        if self.numbers.due().is_some() {
            let mark = self.numbers.last() + RESERVE;
            inode_numbers::put_mark(self.conn, mark)?;
            self.numbers.marked(mark);
        }
        let ino = self.numbers.allocate()?.0.cast_signed();
        self.make_as(ino, mode, size)?;
        Ok(ino)
    }

    /// Creates an inode with a given number and the owner of the root.
    pub(super) fn make_as(&self, ino: i64, mode: u32, size: u64) -> Result<()> {
        let owner = "SELECT uid, gid FROM fs_inode WHERE ino = 1";
        let owner = self.conn.query_row(owner, [], |row| Ok((row.get(0)?, row.get(1)?)));
        let (uid, gid): (i64, i64) = owner.optional()?.unwrap_or((0, 0));
        let now = self.host.now;
        let mut insert = self.conn.prepare_cached(
            "INSERT INTO fs_inode (ino, mode, nlink, uid, gid, size, atime, mtime, ctime, rdev,
               atime_nsec, mtime_nsec, ctime_nsec)
             VALUES (?1, ?2, 1, ?3, ?4, ?5, ?6, ?6, ?6, 0, ?7, ?7, ?7)",
        )?;
        insert.execute(params![ino, mode, uid, gid, size.cast_signed(), now.secs, now.nanos])?;
        Ok(())
    }

    /// Adds an entry for an inode in `/lost+found`; returns the path.
    pub(super) fn attach(&mut self, ino: i64, name: &[u8]) -> Result<String> {
        let lost = self.lost()?;
        let name = self.free_name(lost, name)?;
        self.enter(lost, &name, ino)?;
        Ok(format!("{}/{}", self.words(lost), String::from_utf8_lossy(name.as_bytes())))
    }

    fn enter(&self, dir: Ino, name: &Name, ino: i64) -> Result<()> {
        let mut insert = self
            .conn
            .prepare_cached("INSERT INTO fs_dentry (name, parent_ino, ino) VALUES (?1, ?2, ?3)")?;
        insert.execute(params![Bytes(name.as_bytes()), dir.0.cast_signed(), ino])?;
        Ok(())
    }

    /// The directory `/lost+found`, created if it does not exist. Never one copied up from the
    /// base, whose names could collide.
    fn lost(&mut self) -> Result<Ino> {
        if let Some(lost) = self.lost {
            return Ok(lost);
        }
        let mut found = None;
        let query = "SELECT d.ino FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino
            WHERE d.parent_ino = 1 AND d.name = ?1 AND i.mode & 61440 = 16384
              AND d.ino NOT IN (SELECT delta_ino FROM acetate_origin)";
        if let Some(ino) = self.conn.query_row(query, [LOST], |row| row.get(0)).optional()? {
            found = Some(Ino(value_of(ino)));
        }
        let lost = match found {
            Some(ino) => ino,
            None => {
                let name = self.free_name(Ino::ROOT, LOST.as_bytes())?;
                let ino = self.make(0o040_700, 0)?;
                self.enter(Ino::ROOT, &name, ino)?;
                Ino(value_of(ino))
            }
        };
        self.lost = Some(lost);
        Ok(lost)
    }

    /// A name derived from `wanted` that neither layer uses in the directory, and that no whiteout
    /// hides.
    pub(super) fn free_name(&self, dir: Ino, wanted: &[u8]) -> Result<Name> {
        let of_base = match self.base_dir(dir)?.map(|base| (self.base)(&base)) {
            Some(BaseListing::Names(names)) => names,
            _ => Vec::new(),
        };
        let path = self.path(dir)?;
        let mut number = 0u64;
        loop {
            let suffix = if number == 0 { String::new() } else { format!("~{number}") };
            let name = valid_name(wanted, suffix.as_bytes());
            number += 1;
            let Ok(name) = Name::new(&name) else { continue };
            let is_hidden = match &path {
                Some(path) => whiteout::exists(self.conn, &path.join(&name))?,
                None => false,
            };
            if !is_hidden && !of_base.contains(&name) && !self.has_entry(dir, &name)? {
                return Ok(name);
            }
        }
    }

    fn has_entry(&self, dir: Ino, name: &Name) -> Result<bool> {
        let query = "SELECT 1 FROM fs_dentry WHERE parent_ino = ?1 AND name = ?2";
        let mut statement = self.conn.prepare_cached(query)?;
        for key in value::keys(name.as_bytes()) {
            if statement.exists(params![dir.0.cast_signed(), key])? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The chain of inodes and names from the root to a directory; `None` if the directory is
    /// detached.
    fn way(&self, dir: Ino) -> Result<Option<Vec<(Ino, Name)>>> {
        let query = "SELECT parent_ino, name FROM fs_dentry WHERE ino = ?1 ORDER BY id LIMIT 1";
        let mut statement = self.conn.prepare_cached(query)?;
        let (mut way, mut at) = (Vec::new(), dir);
        while at != Ino::ROOT {
            let up = statement.query_row([at.0.cast_signed()], |row| {
                Ok((value::unsigned(row, 0)?, value::bytes(row, 1)?.to_vec()))
            });
            let Some((parent, name)) = up.optional()? else { return Ok(None) };
            match Name::new(&name) {
                Ok(name) if way.len() < MOST_STEPS => way.push((at, name)),
                _ => return Ok(None),
            }
            at = Ino(parent);
        }
        way.reverse();
        Ok(Some(way))
    }

    /// The merged path of a delta directory; `None` if it is detached.
    pub(super) fn path(&self, dir: Ino) -> Result<Option<MergedPath>> {
        let way = self.way(dir)?;
        Ok(way.map(|way| way.iter().fold(MergedPath::root(), |path, (_, name)| path.join(name))))
    }

    /// The base directory that shows through a delta directory, if one does.
    pub(super) fn base_dir(&self, dir: Ino) -> Result<Option<BasePath>> {
        let Some(way) = self.way(dir)? else { return Ok(None) };
        let mut base = Some(BasePath::root());
        for (ino, name) in way {
            base = match redirect::get(self.conn, ino)? {
                Some(other) => Some(other),
                None if opaque::since(self.conn, ino)?.is_some() => None,
                None => base.map(|base| base.join(&name)),
            };
        }
        Ok(base)
    }

    fn words(&self, dir: Ino) -> String {
        let path = self.path(dir).ok().flatten();
        path.map_or_else(|| format!("inode {}", dir.0), |path| path.display().to_string())
    }
}

/// Converts a stored inode number.
fn value_of(ino: i64) -> u64 {
    ino.cast_unsigned()
}

/// `wanted` with `suffix`, made a valid name.
fn valid_name(wanted: &[u8], suffix: &[u8]) -> Vec<u8> {
    let mut name: Vec<u8> = match wanted {
        b"" => b"unnamed".to_vec(),
        b"." => b"dot".to_vec(),
        b".." => b"dot-dot".to_vec(),
        wanted => wanted.iter().map(|b| if matches!(b, b'/' | 0) { b'_' } else { *b }).collect(),
    };
    let room = Name::MAX_BYTES - suffix.len();
    if name.len() > room {
        // Do not cut within a character if the name is UTF-8.
        let is_text = std::str::from_utf8(&name).is_ok();
        let end = std::str::from_utf8(&name[..room]).map_or_else(|e| e.valid_up_to(), str::len);
        name.truncate(if is_text { end } else { room });
    }
    name.extend_from_slice(suffix);
    name
}

#[cfg(test)]
mod tests {
    use super::valid_name;

    #[test]
    fn names_become_valid_and_stay_text() {
        for (wanted, valid) in
            [("", "unnamed~2"), ("..", "dot-dot~2"), ("a/b\0c", "a_b_c~2"), ("plain", "plain~2")]
        {
            assert_eq!(valid_name(wanted.as_bytes(), b"~2"), valid.as_bytes());
        }
        let long = valid_name("ä".repeat(200).as_bytes(), b"~2");
        assert_eq!((long.len(), std::str::from_utf8(&long).is_ok()), (254, true));
    }
}
