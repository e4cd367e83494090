//! What a session takes, and how much it may.

use std::path::Path;

use super::error::{InspectError, Result};
use super::opened::{host, open_session};
use crate::delta::sqlite::{OpenMode, Session};
use crate::delta::{Limits, Store, StoreError, Usage};

/// What a session takes, and its own limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaReport {
    /// What it takes.
    pub usage: Usage,
    /// How much it may take.
    pub limits: Limits,
}

/// Counts what the session file `path` takes, whoever serves it meanwhile.
///
/// # Errors
/// It is no session, or cannot be read.
pub fn quota(path: &Path) -> Result<QuotaReport> {
    let session = open_session(path)?;
    let (usage, limits) = session.quota().map_err(|source| failed(path, source))?;
    Ok(QuotaReport { usage, limits })
}

/// Gives a session that nobody serves limits of its own, `change`d from those that it has.
///
/// # Errors
/// It is no session, a server has it, or it cannot be written: the limits are as they were.
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
