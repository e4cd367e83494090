//! Reads what identifies a session at rest, several times faster than by opening it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rusqlite::OptionalExtension;
use rusqlite::types::Value;

use crate::delta::Result;
use crate::delta::sqlite::file::connect::{self, Role, companion_path};
use crate::delta::sqlite::file::disk::byte_len;
use crate::delta::sqlite::table::meta;
use crate::delta::sqlite::table::schema::SPEC_VERSION;

/// What identifies a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionIdentity {
    /// Its id, 32 hexadecimal digits.
    pub id: String,
    /// The key of its handles' MAC.
    pub handle_key: [u8; 16],
}

/// The identity of the session in a file, if the file alone has it: there is no WAL, the file does
/// not change while it is read, and it has the versions that this program writes. `None` in every
/// other case, then the session is to be opened, which finds what is wrong. Changes nothing and
/// takes no lock.
pub fn identity_at_rest(path: &Path) -> Option<SessionIdentity> {
    let before = RestingFile::of(path)?;
    let read = read(path, before.bytes).ok().flatten()?;
    (RestingFile::of(path)? == before).then_some(read)
}

/// A file without a WAL, and what changes with its content.
#[derive(PartialEq, Eq)]
struct RestingFile {
    place: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl RestingFile {
    fn of(path: &Path) -> Option<Self> {
        if byte_len(&companion_path(path, "-wal")) > 0 || companion_path(path, "-info").exists() {
            return None;
        }
        let found = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some(Self {
            place: (found.dev(), found.ino()),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

fn read(path: &Path, bytes: u64) -> Result<Option<SessionIdentity>> {
    let conn = connect::open(path, Role::Immutable)?;
    let mut statement = conn.prepare(
        "SELECT (SELECT value FROM acetate_meta WHERE key = ?1),
                (SELECT value FROM acetate_meta WHERE key = ?2),
                (SELECT value FROM acetate_meta WHERE key = ?3),
                (SELECT value FROM fs_config WHERE key = 'schema_version')",
    )?;
    let keys = [meta::FORMAT, meta::SESSION_ID, meta::HANDLE_KEY];
    let found = statement.query_row(keys, |row| {
        Ok([row.get::<_, Value>(0)?, row.get(1)?, row.get(2)?, row.get(3)?])
    });
    let Some([Value::Integer(format), Value::Text(id), Value::Blob(key), Value::Text(spec)]) =
        found.optional()?
    else {
        return Ok(None);
    };
    let is_known = (meta::FIRST_FORMAT..=meta::FORMAT_VERSION).contains(&format)
        && spec == SPEC_VERSION
        && bytes.is_multiple_of(connect::page_bytes(&conn)?);
    let handle_key = key.try_into().ok().filter(|_| is_known);
    Ok(handle_key.map(|handle_key| SessionIdentity { id, handle_key }))
}
