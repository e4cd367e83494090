//! Changes a session in a database that no server has.

use super::database::HeldReplica;
use super::error::{Error, Result};
use crate::delta::Store;
use crate::delta::sqlite::Session;

/// Runs `change` on the replica of a session whose lease this process has, and keeps what it
/// changed in the database. The lease is to be given back afterwards.
///
/// # Errors
/// Those of `change`; or the database refuses, and the replica has a change that the session lacks:
/// it is made again when it is used.
pub fn change_at_rest<T>(
    held: &HeldReplica,
    change: impl FnOnce(&mut Session) -> Result<T>,
) -> Result<T> {
    let (mut session, mark) = held.take()?;
    let changed = change(&mut session)?;
    let store = held.store((session, mark));
    // Opening the writer keeps what was changed before.
    let closed = store.writer().and_then(|mut writer| writer.close());
    closed.map_err(|source| Error::store(&held.path, source))?;
    Ok(changed)
}
