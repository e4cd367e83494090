//! Reads and sets the quota of a session.

use std::path::Path;

use super::error::{InspectError, Result};
use super::opened::{host, open_session};
use crate::delta::sqlite::{OpenMode, Session};
use crate::delta::{Limits, Store, StoreError, Usage};

/// The usage of a session, and its own limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaReport {
    /// The usage.
    pub usage: Usage,
    /// The limits.
    pub limits: Limits,
}

/// Counts the usage of the session file `path`, also while a server has it open.
///
/// # Errors
/// `path` is not a session, or cannot be read.
pub fn quota(path: &Path) -> Result<QuotaReport> {
    let session = open_session(path)?;
    let (usage, limits) = session.quota().map_err(|source| failed(path, source))?;
    Ok(QuotaReport { usage, limits })
}

/// Changes the limits of a session that no server has open.
///
/// # Errors
/// `path` is not a session, a server has it, or it cannot be written.
pub fn set(path: &Path, change: impl FnOnce(Limits) -> Limits) -> Result<QuotaReport> {
    let session = Session::open(path, OpenMode::Serve, &host()?)?;
    let limits = change(session.limits());
    put(&session, limits).map_err(|source| failed(path, source))?;
    drop(session);
    quota(path)
}

fn put(session: &Session, limits: Limits) -> std::result::Result<(), StoreError> {
    let mut writer = session.writer()?;
    writer.begin(true)?;
    writer.txn().put_limits(limits)?;
    writer.commit()?;
    writer.close()
}

fn failed(path: &Path, source: StoreError) -> InspectError {
    InspectError::Store { session: path.to_owned(), source }
}
