//! S10 and D5: valid names, and the storage type of names, targets and paths.

use rusqlite::Row;
use rusqlite::types::{ToSqlOutput, ValueRef};

use crate::delta::Result;
use crate::delta::sqlite::table::value;
use crate::vfs::{Name, NameError};

use super::CheckedFile;
use super::found::{BreachSubject, RuleFindings};

pub(super) fn check(subject: &CheckedFile<'_>, found: &mut RuleFindings) -> Result<()> {
    let mut statement = subject.conn.prepare("SELECT parent_ino, name, ino FROM fs_dentry")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let name = value::bytes(row, 1)?;
        let at = |row: &Row<'_>| -> Result<BreachSubject> {
            let ino = row.get::<_, Option<i64>>(2).unwrap_or(None);
            Ok(BreachSubject::Entry(value::int(row, 0)?, name.to_vec(), ino))
        };
        if let Err(error) = Name::check(name) {
            found.add("S10", at(row)?, invalid(error, name));
        }
        if let Some(what) = storage_type_error(row.get_ref(1)?) {
            found.add("D5", at(row)?, what);
        }
    }
    let mut statement = subject.conn.prepare("SELECT ino, target FROM fs_symlink")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if let Some(what) = storage_type_error(row.get_ref(1)?) {
            found.add("D5", BreachSubject::Inode(value::int(row, 0)?), what);
        }
    }
    let mut statement = subject.conn.prepare("SELECT path, parent_path FROM fs_whiteout")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if let Some(what) =
            storage_type_error(row.get_ref(0)?).or(storage_type_error(row.get_ref(1)?))
        {
            found.add(
                "D5",
                BreachSubject::Path(value::bytes(row, 0)?.to_vec()),
                format!("whiteout: {what}"),
            );
        }
    }
    Ok(())
}

fn invalid(error: NameError, name: &[u8]) -> String {
    match error {
        NameError::TooLong => format!("a name of {} bytes", name.len()),
        NameError::Invalid if name.is_empty() => "an empty name".to_owned(),
        NameError::Invalid => "a name with a slash or NUL".to_owned(),
        NameError::Dots => "a name that means a directory".to_owned(),
    }
}

/// Describes a wrong storage type of a name, target or path; `None` if it is right.
pub(in crate::delta::sqlite) fn storage_type_error(stored: ValueRef<'_>) -> Option<&'static str> {
    let (ValueRef::Text(bytes) | ValueRef::Blob(bytes)) = stored else {
        return Some("neither TEXT nor BLOB");
    };
    let [ours, _] = value::keys(bytes);
    match (ours, stored) {
        (ToSqlOutput::Borrowed(ValueRef::Text(_)), ValueRef::Blob(_)) => {
            Some("a BLOB that could be TEXT")
        }
        (ToSqlOutput::Borrowed(ValueRef::Blob(_)), ValueRef::Text(_)) => {
            Some("TEXT that must be a BLOB")
        }
        _ => None,
    }
}
