//! M1 to M7: the session's own metadata, as far as the file alone shows violations.

use crate::delta::{Result, StoreErrorKind};

use super::CheckedFile;
use super::found::{BreachSubject, RuleFindings};
use crate::delta::sqlite::table::hide;

/// A value of `acetate_meta`.
macro_rules! meta {
    ($key:literal) => {
        concat!("(SELECT value FROM acetate_meta WHERE key = '", $key, "')")
    };
}

const QUERIES: &[(&str, &str)] = &[
    (
        "M1",
        concat!(
            "SELECT NULL, NULL, NULL, 'format_version is no version' WHERE ",
            meta!("format_version"),
            " NOT IN (1, 2) OR ",
            meta!("format_version"),
            " IS NULL UNION ALL
             SELECT NULL, NULL, NULL, 'format_version is 1, and a directory is opaque' WHERE ",
            meta!("format_version"),
            " IS 1 AND EXISTS (SELECT 1 FROM acetate_opaque) UNION ALL
             SELECT NULL, NULL, NULL, 'format_version is 1, and paths are hidden' WHERE ",
            meta!("format_version"),
            " IS 1 AND ",
            meta!("hide"),
            " IS NOT NULL UNION ALL
             SELECT NULL, NULL, NULL, 'session_id is not 32 hexadecimal digits'
             FROM (SELECT ",
            meta!("session_id"),
            " AS id) WHERE typeof(id) <> 'text' OR length(id) <> 32 OR id GLOB '*[^0-9a-f]*'
             UNION ALL
             SELECT NULL, NULL, NULL, 'handle_key is not 16 bytes' FROM (SELECT ",
            meta!("handle_key"),
            " AS key) WHERE typeof(key) <> 'blob' OR length(key) <> 16",
        ),
    ),
    (
        "M2",
        // 2^52 + 2^32, and 2^53.
        concat!(
            "SELECT NULL, NULL, NULL, 'next_ino is ' || ifnull(next, 'not there') FROM (SELECT ",
            meta!("next_ino"),
            " AS next) WHERE typeof(next) <> 'integer'
               OR next NOT BETWEEN 4503603922337792 AND 9007199254740992
             UNION ALL
             SELECT ino, NULL, NULL, 'a number that is yet to be given out' FROM fs_inode
             WHERE ino >= ",
            meta!("next_ino"),
        ),
    ),
    (
        "M3",
        concat!(
            "SELECT NULL, NULL, NULL, 'boot_epoch is ' || ifnull(epoch, 'not there') FROM (SELECT ",
            meta!("boot_epoch"),
            " AS epoch) WHERE typeof(epoch) <> 'integer' OR epoch < 1
             UNION ALL
             SELECT NULL, NULL, NULL, 'clean is 0, and boot_id does not say since when' WHERE ",
            meta!("clean"),
            " IS 0 AND typeof(",
            meta!("boot_id"),
            ") <> 'text'",
        ),
    ),
    (
        "M4",
        concat!(
            "SELECT NULL, NULL, NULL, 'clean is ' || ifnull(clean, 'not there') FROM (SELECT ",
            meta!("clean"),
            " AS clean) WHERE clean IS NOT 0 AND clean IS NOT 1",
        ),
    ),
    (
        "M5",
        "SELECT NULL, NULL, NULL, key || ' is no number from 0 on' FROM acetate_meta
         WHERE key IN ('quota_bytes', 'quota_files', 'max_file_bytes')
           AND (typeof(value) <> 'integer' OR value < 0)",
    ),
    (
        "M6",
        "SELECT NULL, NULL, NULL, key || ' is no number' FROM acetate_meta
         WHERE key IN ('audit_dropped', 'audit_since')
           AND (typeof(value) <> 'integer' OR key = 'audit_dropped' AND value < 0)",
    ),
];

/// Adds the violations of these rules to `found`, if acetate ever served the file.
pub(super) fn check(subject: &CheckedFile<'_>, found: &mut RuleFindings) -> Result<()> {
    if !subject.is_served {
        return Ok(());
    }
    QUERIES.iter().try_for_each(|(rule, query)| found.ask(subject, rule, query))?;
    if let Err(error) = hide::patterns(subject.conn)
        && error.kind == StoreErrorKind::Corrupt
    {
        found.add("M7", BreachSubject::Session, error.message().to_owned());
    }
    Ok(())
}
