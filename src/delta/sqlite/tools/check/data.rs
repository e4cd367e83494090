//! D1 to D4, D6 and D7: chunks, holes, link targets and device numbers of inodes.

use crate::delta::Result;

use super::CheckedFile;
use super::found::{BreachSubject, RuleFindings};

/// Queries that need the chunk size.
const CHUNKS: &[(&str, &str)] = &[
    (
        "D1",
        "SELECT d.ino, NULL, NULL, 'chunk ' || d.chunk_index || iif(typeof(d.data) = 'blob',
           ' has ' || length(d.data) || ' bytes, and not '
             || min(:chunk, i.size - d.chunk_index * :chunk), ' is no BLOB')
         FROM fs_data d JOIN fs_inode i ON i.ino = d.ino
         WHERE i.mode & 61440 = 32768 AND d.chunk_index >= 0 AND d.chunk_index * :chunk < i.size
           AND (length(d.data) <> min(:chunk, i.size - d.chunk_index * :chunk)
             OR typeof(d.data) <> 'blob')",
    ),
    (
        "D2",
        "SELECT d.ino, NULL, NULL, 'chunk ' || d.chunk_index || CASE
           WHEN i.ino IS NULL THEN ' belongs to no inode'
           WHEN i.mode & 61440 <> 32768 THEN ' belongs to what is no file'
           WHEN d.chunk_index >= 0 THEN ' begins at or behind the end'
           ELSE ' is no number of a chunk' END
         FROM fs_data d LEFT JOIN fs_inode i ON i.ino = d.ino
         WHERE i.ino IS NULL OR i.mode & 61440 <> 32768 OR d.chunk_index < 0
           OR d.chunk_index * :chunk >= i.size OR typeof(d.chunk_index) <> 'integer'",
    ),
];

/// Queries that need the chunk size and our tables.
const HOLES: &[(&str, &str)] = &[(
    "D3",
    "WITH stored AS MATERIALIZED
       (SELECT d.ino, count(*) AS chunks FROM fs_data d JOIN fs_inode i ON i.ino = d.ino
        WHERE d.chunk_index >= 0 AND d.chunk_index * :chunk < i.size GROUP BY d.ino)
     SELECT i.ino, NULL, NULL, 'holes is ' || ifnull(a.holes, 0) || ', and not '
       || (i.size / :chunk + (i.size % :chunk > 0) - ifnull(s.chunks, 0))
     FROM fs_inode i LEFT JOIN stored s ON s.ino = i.ino
       LEFT JOIN acetate_inode a ON a.ino = i.ino
       LEFT JOIN acetate_copy_up u ON u.delta_ino = i.ino
     WHERE i.mode & 61440 = 32768 AND u.delta_ino IS NULL AND i.size >= 0 AND ifnull(a.holes, 0)
       IS NOT i.size / :chunk + (i.size % :chunk > 0) - ifnull(s.chunks, 0)",
)];

const REST: &[(&str, &str)] = &[
    (
        "D4",
        "SELECT a.ino, NULL, NULL, CASE
           WHEN i.ino IS NULL THEN 'a row of acetate_inode for no inode'
           WHEN a.subdirs IS NULL AND a.holes IS 0 AND a.create_verifier IS NULL
             THEN 'its row of acetate_inode says nothing'
           ELSE 'its row of acetate_inode says what cannot be' END
         FROM acetate_inode a LEFT JOIN fs_inode i ON i.ino = a.ino
         WHERE i.ino IS NULL
           OR (a.subdirs IS NULL AND a.holes IS 0 AND a.create_verifier IS NULL)
           OR a.subdirs < 0 OR a.holes IS NULL OR a.holes < 0
           OR (a.subdirs IS NOT NULL AND i.mode & 61440 <> 16384)
           OR (a.holes > 0 AND i.mode & 61440 <> 32768)
           OR (a.create_verifier IS NOT NULL
             AND (typeof(a.create_verifier) <> 'blob' OR length(a.create_verifier) <> 8))",
    ),
    (
        "D6",
        "SELECT i.ino, NULL, NULL, 'a symbolic link without a target'
         FROM fs_inode i LEFT JOIN fs_symlink s ON s.ino = i.ino
         WHERE i.mode & 61440 = 40960 AND s.ino IS NULL
         UNION ALL
         SELECT s.ino, NULL, NULL, iif(i.ino IS NULL, 'a target of no inode',
           'a target of what is no symbolic link')
         FROM fs_symlink s LEFT JOIN fs_inode i ON i.ino = s.ino
         WHERE i.mode & 61440 IS NOT 40960",
    ),
    (
        "D7",
        "SELECT ino, NULL, NULL, 'rdev is ' || rdev FROM fs_inode
         WHERE typeof(rdev) <> 'integer' OR (rdev <> 0 AND mode & 61440 NOT IN (8192, 24576))",
    ),
];

pub(super) fn check(subject: &CheckedFile<'_>, found: &mut RuleFindings) -> Result<()> {
    if subject.chunk_bytes.is_some() {
        CHUNKS.iter().try_for_each(|(rule, query)| found.ask(subject, rule, query))?;
    } else {
        found.add("D1", BreachSubject::Session, "fs_config.chunk_size is not a number of bytes");
    }
    if subject.chunk_bytes.is_some() && subject.is_served {
        HOLES.iter().try_for_each(|(rule, query)| found.ask(subject, rule, query))?;
    }
    REST.iter().try_for_each(|(rule, query)| found.ask(subject, rule, query))
}
