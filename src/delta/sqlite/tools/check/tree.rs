//! S1 to S9: inodes and the entries that point to them.

use crate::delta::Result;

use super::CheckedFile;
use super::found::RuleFindings;

/// SQL: whether the mode's type bits are those of a directory.
macro_rules! is_dir {
    ($table:literal) => {
        concat!($table, ".mode & 61440 = 16384")
    };
}

/// Temporary tables for several rules: the number of entries per inode, and the entries of
/// directories. Files of other implementations have no index for this.
const PREPARE: &str = concat!(
    "CREATE TEMP TABLE counted (ino INTEGER PRIMARY KEY, entries INTEGER);
     INSERT INTO counted SELECT ino, count(*) FROM fs_dentry WHERE typeof(ino) = 'integer'
       GROUP BY ino;
     CREATE TEMP TABLE dirs (parent_ino, ino, PRIMARY KEY (parent_ino, ino)) WITHOUT ROWID;
     INSERT OR IGNORE INTO dirs SELECT d.parent_ino, d.ino
     FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino
     WHERE i.ino <> 1 AND d.parent_ino IS NOT NULL AND ",
    is_dir!("i"),
);

const QUERIES: &[(&str, &str)] = &[
    (
        "S1",
        concat!(
            "SELECT NULL, NULL, NULL, 'there is no inode 1'
             WHERE NOT EXISTS (SELECT 1 FROM fs_inode WHERE ino = 1)
             UNION ALL
             SELECT 1, NULL, NULL, 'the root is no directory'
             FROM fs_inode i WHERE ino = 1 AND NOT ",
            is_dir!("i"),
            " UNION ALL
             SELECT 1, parent_ino, name, 'an entry leads to the root' FROM fs_dentry WHERE ino = 1",
        ),
    ),
    (
        "S2",
        "SELECT NULL, d.parent_ino, d.name, 'it leads to inode ' || d.ino || ', which is not there'
         FROM fs_dentry d LEFT JOIN fs_inode i ON i.ino = d.ino WHERE i.ino IS NULL",
    ),
    (
        "S3",
        concat!(
            "SELECT d.ino, d.parent_ino, d.name, CASE WHEN p.ino IS NULL
               THEN 'its directory is not there' ELSE 'it lies in what is no directory' END
             FROM fs_dentry d LEFT JOIN fs_inode p ON p.ino = d.parent_ino
             WHERE p.ino IS NULL OR NOT ",
            is_dir!("p"),
        ),
    ),
    (
        "S4",
        // If the file has the UNIQUE constraint, it permits one TEXT and one BLOB entry at most.
        "SELECT NULL, parent_ino, name, count(*) || ' entries have this name' FROM fs_dentry
         GROUP BY parent_ino, name HAVING count(*) > 1
         UNION ALL
         SELECT NULL, b.parent_ino, b.name, 'two entries have this name, one of them as a BLOB'
         FROM fs_dentry b JOIN fs_dentry t
           ON t.parent_ino = b.parent_ino AND t.name = CAST(b.name AS TEXT)
         WHERE typeof(b.name) = 'blob'",
    ),
    (
        "S5",
        "SELECT ino, NULL, NULL, 'mode ' || printf('%07o', mode) || ' is of no type' FROM fs_inode
         WHERE mode & 61440 NOT IN (4096, 8192, 16384, 24576, 32768, 40960, 49152)
           OR mode NOT BETWEEN 0 AND 65535 OR typeof(mode) <> 'integer'",
    ),
    (
        "S6",
        "SELECT i.ino, NULL, NULL, 'no entry leads to it'
         FROM fs_inode i LEFT JOIN counted c ON c.ino = i.ino WHERE i.ino <> 1 AND c.ino IS NULL",
    ),
    (
        "S7",
        "SELECT i.ino, NULL, NULL, 'nlink is ' || i.nlink || ', and not '
           || iif(i.ino = 1, 1, ifnull(c.entries, 0))
         FROM fs_inode i LEFT JOIN counted c ON c.ino = i.ino
         WHERE i.nlink IS NOT iif(i.ino = 1, 1, ifnull(c.entries, 0))",
    ),
    (
        "S8",
        concat!(
            "SELECT i.ino, NULL, NULL, c.entries || ' entries lead to this directory'
             FROM counted c JOIN fs_inode i ON i.ino = c.ino
             WHERE c.entries > 1 AND i.ino <> 1 AND ",
            is_dir!("i"),
        ),
    ),
    (
        "S8",
        // Directories not reached from above: from the root, or from a parent that another rule
        // reports.
        "WITH RECURSIVE reached (ino) AS (
           SELECT parent_ino FROM dirs WHERE parent_ino NOT IN (SELECT ino FROM dirs)
           UNION SELECT d.ino FROM reached r JOIN dirs d ON d.parent_ino = r.ino)
         SELECT DISTINCT ino, NULL, NULL, 'this directory lies in itself, or in one that does'
         FROM dirs WHERE ino NOT IN (SELECT ino FROM reached)",
    ),
    (
        "S9",
        "SELECT ino, NULL, NULL, iif(size >= 0, 'nanoseconds out of range', 'size ' || size)
         FROM fs_inode
         WHERE NOT (size >= 0 AND atime_nsec BETWEEN 0 AND 999999999
           AND mtime_nsec BETWEEN 0 AND 999999999 AND ctime_nsec BETWEEN 0 AND 999999999)",
    ),
];

pub(super) fn check(subject: &CheckedFile<'_>, found: &mut RuleFindings) -> Result<()> {
    subject.conn.execute_batch(PREPARE)?;
    QUERIES.iter().try_for_each(|(rule, query)| found.ask(subject, rule, query))
}
