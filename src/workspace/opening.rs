//! Opens or creates the session, and checks its base.

use std::path::{Path, PathBuf};

use super::error::{Error, Result};
use super::layers::{LayerOptions, close, create, real_base};
use super::moved_base::{check_moved, move_copies};
use crate::delta::sqlite::{BatchMark, OpenError, OpenMode, Session};
use crate::inspect::apply::is_unfinished_in;
use crate::inspect::opened::host;
use crate::pattern::PatternSet;

/// An open session.
pub(super) struct OpenedSession {
    pub session: Session,
    /// The base, as an absolute path.
    pub base: Option<PathBuf>,
    /// Whether the session was created now.
    pub is_new: bool,
    /// Of a replica: the last batch that it has.
    pub mark: Option<BatchMark>,
}

/// Opens the session, or creates it if allowed.
pub(super) fn open_session(wanted: &LayerOptions<'_>) -> Result<OpenedSession> {
    if let Some(held) = &wanted.database {
        let (session, mark) = held.take()?;
        let opened = settle(session, wanted)?;
        return Ok(OpenedSession { is_new: held.is_new, mark: Some(mark), ..opened });
    }
    let is_new = wanted.session.symlink_metadata().is_err();
    if is_new {
        if wanted.existing {
            return Err(OpenError::Missing { path: wanted.session.to_owned() }.into());
        }
        let none = PatternSet::default();
        let hidden = if wanted.remember_hidden { &wanted.hide } else { &none };
        let session = create(wanted.session, wanted.base, wanted.chunk_size, hidden)?;
        let base = session.base_path().map(Path::to_owned);
        if !wanted.read_only {
            return Ok(OpenedSession { session, base, is_new, mark: None });
        }
        // Read-only use of a missing session: creates an empty one, which is reopened below.
        close(&session)?;
    }
    let mode = if wanted.read_only { OpenMode::ReadOnly } else { OpenMode::Serve };
    let session = Session::open(wanted.session, mode, &host()?)?;
    Ok(OpenedSession { is_new, ..settle(session, wanted)? })
}

/// Checks an open session against what is wanted, and records what is new.
fn settle(mut session: Session, wanted: &LayerOptions<'_>) -> Result<OpenedSession> {
    let given = wanted.base.map(real_base).transpose()?;
    check_chunk_size(&session, wanted.chunk_size)?;
    let recorded = session.base_path().map(Path::to_owned);
    let base = match given {
        None => recorded.as_deref().map(recorded_base).transpose()?,
        Some(given) => {
            // The mark of a replica's base was compared, and each server may have its own path.
            let is_same = wanted.database.is_some() && recorded.is_some() && !wanted.moved;
            if recorded.as_deref() != Some(&given) && !is_same {
                change_base(&mut session, recorded.as_deref(), &given, wanted)?;
            }
            Some(given)
        }
    };
    let hides_more = wanted.remember_hidden && !session.hidden().has_all(&wanted.hide);
    if hides_more && !wanted.read_only {
        let hidden = union(session.hidden(), &wanted.hide)?;
        remember_hidden(&mut session, hidden)?;
    }
    Ok(OpenedSession { session, base, is_new: false, mark: None })
}

/// The union of both sets of patterns.
pub(super) fn union(remembered: &PatternSet, asked: &PatternSet) -> Result<PatternSet> {
    remembered.union(asked).map_err(Error::Hidden)
}

/// Replaces the session's `hide` patterns. Must be called before the session is served.
///
/// # Errors
/// There are too many patterns, or the session cannot be written.
pub fn remember_hidden(session: &mut Session, hidden: PatternSet) -> Result<()> {
    let path = session.path().to_owned();
    session.record_hidden(hidden).map_err(|source| Error::store(&path, source))
}

/// Refuses another base than its own for a session with changes.
///
/// # Errors
/// It is another one, or the session or the directory cannot be read.
pub fn check_base(session: &Session, given: &Path) -> Result<()> {
    let given = real_base(given)?;
    let Some(recorded) = session.base_path().filter(|recorded| *recorded != given) else {
        return Ok(());
    };
    let path = session.path();
    if !session.has_changes().map_err(|source| Error::store(path, source))? {
        return Ok(());
    }
    let (session, recorded) = (path.to_owned(), recorded.to_owned());
    Err(Error::OtherBase { session, recorded, given })
}

/// Records `base` as the base of a session, as [`LayerOptions::moved`]; not if it is that already.
///
/// # Errors
/// The session cannot be opened for changes, or `base` is another tree.
pub fn record_moved_base(session: &Path, base: &Path) -> Result<()> {
    let recorded = crate::inspect::opened::open_session(session)?.base_path().map(Path::to_owned);
    if recorded == Some(real_base(base)?) {
        return Ok(());
    }
    let wanted =
        LayerOptions { existing: true, moved: true, ..LayerOptions::new(session, Some(base)) };
    close(&open_session(&wanted)?.session)
}

fn check_chunk_size(session: &Session, wanted: Option<u64>) -> Result<()> {
    let stored = session.chunk_bytes();
    match wanted {
        Some(wanted) if wanted != stored => {
            Err(Error::ChunkSize { session: session.path().to_owned(), stored, wanted })
        }
        _ => Ok(()),
    }
}

/// [`real_base`] of the path that the session records.
fn recorded_base(path: &Path) -> Result<PathBuf> {
    real_base(path).map_err(|error| match error {
        Error::Base { path, source, .. } => Error::Base { path, is_recorded: true, source },
        error => error,
    })
}

/// Moves a session to another base. A session with changes is moved only if the caller says that
/// the new base is the same tree, and the copied-up objects confirm that.
fn change_base(
    session: &mut Session,
    recorded: Option<&Path>,
    given: &Path,
    wanted: &LayerOptions<'_>,
) -> Result<()> {
    let path = session.path().to_owned();
    let store = |source| Error::store(&path, source);
    // What the apply placed there has other sizes and numbers. Its journal has the session's own
    // numbers, so they stay until the apply is finished.
    let is_applied_to = wanted.moved && is_unfinished_in(session.id(), given);
    if !wanted.moved {
        check_base(session, given)?;
    } else if !is_applied_to && recorded.is_some() && session.has_changes().map_err(store)? {
        check_moved(session, given)?;
    }
    if wanted.read_only {
        return Ok(());
    }
    if let Some(recorded) = recorded {
        let what = "the session was made over another base; it is over the given one from now on";
        let (path, recorded, new) = (path.display(), recorded.display(), given.display());
        match wanted.moved {
            // The caller asked for the move.
            true => tracing::info!(session = %path, %recorded, given = %new, "{what}"),
            false => tracing::warn!(session = %path, %recorded, given = %new, "{what}"),
        }
        if !is_applied_to {
            move_copies(session, given)?;
        }
    }
    session.record_base(given).map_err(store)
}
