//! O1 to O3, C1, C2, R1, W3 and L1: copies, originals, redirects and hidden names of base objects.

use crate::delta::Result;

use super::CheckedFile;
use super::found::RuleFindings;

const QUERIES: &[(&str, &str)] = &[
    (
        "O1",
        "SELECT a.delta_ino, NULL, NULL, CASE
           WHEN i.ino IS NULL THEN 'a row of acetate_origin for no inode'
           WHEN f.delta_ino IS NULL THEN 'it has a row of acetate_origin, but none of fs_origin'
           ELSE 'base_ino is ' || a.base_ino || ', and in fs_origin ' || f.base_ino END
         FROM acetate_origin a LEFT JOIN fs_inode i ON i.ino = a.delta_ino
           LEFT JOIN fs_origin f ON f.delta_ino = a.delta_ino
         WHERE i.ino IS NULL OR f.base_ino <> a.base_ino OR f.base_ino IS NULL
           AND NOT EXISTS (SELECT 1 FROM acetate_meta WHERE key = 'sealed_for')",
    ),
    (
        "O2",
        "SELECT max(delta_ino), NULL, NULL,
           'inode ' || min(delta_ino) || ' is a copy of the same base object'
         FROM acetate_origin o LEFT JOIN fs_inode i ON i.ino = o.delta_ino
         GROUP BY base_ino, iif(o.nlink > 1 AND i.mode & 61440 <> 16384, NULL, base_path)
         HAVING count(*) > 1",
    ),
    (
        "O3",
        "SELECT NULL, NULL, NULL, 'the original of ' || CAST(base_path AS TEXT) || CASE
           WHEN mode & 61440 NOT IN (16384, 32768, 40960) THEN ' is no file, link or directory'
           WHEN digest IS NULL OR length(digest) <> 20 THEN ' has content, but no digest'
           ELSE ' has ' || length(content) || ' bytes, and not ' || size END
         FROM acetate_original
         WHERE mode & 61440 NOT IN (16384, 32768, 40960) OR content IS NOT NULL
           AND (digest IS NULL OR length(digest) <> 20 OR length(content) <> size)",
    ),
    (
        "R1",
        "SELECT r.delta_ino, NULL, NULL, 'a redirect of what is no directory'
         FROM acetate_redirect r LEFT JOIN fs_inode i ON i.ino = r.delta_ino
         WHERE i.mode & 61440 IS NOT 16384
         UNION ALL
         SELECT max(delta_ino), NULL, NULL,
           'its base directory shows through inode ' || min(delta_ino) || ' too'
         FROM acetate_redirect GROUP BY CAST(base_path AS BLOB) HAVING count(*) > 1",
    ),
    (
        "W3",
        "SELECT q.delta_ino, NULL, NULL, CASE
           WHEN i.mode & 61440 IS NOT 16384 THEN 'what is no directory is opaque'
           WHEN q.delta_ino = 1 THEN 'the root is opaque'
           ELSE 'it is opaque, and has a redirect' END
         FROM acetate_opaque q LEFT JOIN fs_inode i ON i.ino = q.delta_ino
         WHERE i.mode & 61440 IS NOT 16384 OR q.delta_ino = 1
           OR q.delta_ino IN (SELECT delta_ino FROM acetate_redirect)",
    ),
    (
        "L1",
        "SELECT NULL, NULL, NULL, hidden || ' names of base file ' || base_ino || ' are hidden'
         FROM acetate_link WHERE typeof(hidden) <> 'integer' OR hidden < 1",
    ),
];

/// Queries that need the chunk size.
const PENDING: &[(&str, &str)] = &[
    (
        "C1",
        "SELECT u.delta_ino, NULL, NULL, CASE
           WHEN i.mode & 61440 IS NOT 32768 THEN 'a copy to what is no file'
           WHEN o.size IS NULL THEN 'a copy of nothing: it has no row of acetate_origin'
           ELSE 'bytes ' || u.next_byte || ' to ' || u.end_byte || ' cannot be pending' END
         FROM acetate_copy_up u LEFT JOIN fs_inode i ON i.ino = u.delta_ino
           LEFT JOIN acetate_origin o ON o.delta_ino = u.delta_ino
         WHERE i.mode & 61440 IS NOT 32768 OR o.size IS NULL OR u.next_byte < 0
           OR u.next_byte % :chunk <> 0 OR u.next_byte >= u.end_byte OR u.end_byte > i.size
           OR u.end_byte > o.size",
    ),
    (
        "C2",
        "WITH counted AS (
           SELECT i.ino, i.size / :chunk + (i.size % :chunk > 0) AS chunks,
             (u.end_byte + :chunk - 1) / :chunk - u.next_byte / :chunk AS range,
             (SELECT count(*) FROM fs_data d WHERE d.ino = i.ino AND chunk_index >= 0
                AND chunk_index * :chunk < i.size) AS stored,
             (SELECT count(*) FROM fs_data d WHERE d.ino = i.ino
                AND chunk_index >= u.next_byte / :chunk
                AND chunk_index < (u.end_byte + :chunk - 1) / :chunk) AS stored_in_range
           FROM acetate_copy_up u JOIN fs_inode i ON i.ino = u.delta_ino
           WHERE u.next_byte >= 0 AND u.next_byte < u.end_byte AND u.end_byte <= i.size)
         SELECT c.ino, NULL, NULL, 'holes is ' || ifnull(a.holes, 0) || ', and not '
           || (chunks - stored - (range - stored_in_range)) || ', beside what is pending'
         FROM counted c LEFT JOIN acetate_inode a ON a.ino = c.ino
         WHERE ifnull(a.holes, 0) IS NOT chunks - stored - (range - stored_in_range)",
    ),
];

pub(super) fn check(subject: &CheckedFile<'_>, found: &mut RuleFindings) -> Result<()> {
    if subject.chunk_bytes.is_some() {
        PENDING.iter().try_for_each(|(rule, query)| found.ask(subject, rule, query))?;
    }
    QUERIES.iter().try_for_each(|(rule, query)| found.ask(subject, rule, query))
}
