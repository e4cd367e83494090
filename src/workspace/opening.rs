//! Opens the session that is wanted, or creates it, and checks what base it is over.

use std::path::{Path, PathBuf};

use super::error::{Error, Result};
use super::layers::{LayerOptions, close, create, real_base};
use crate::base::{Base, HostDir, HostDirOptions};
use crate::delta::MergedPath;
use crate::delta::sqlite::{CopiedFileId, CopiedUp, OpenError, OpenMode, Session};
use crate::inspect::opened::host;
use crate::vfs::{FileKind, PatternSet};

/// Objects that were copied up and are compared with another base, at most.
const MAX_COMPARED: usize = 1000;

/// An open session.
pub(super) struct OpenedSession {
    pub session: Session,
    /// Its base, as an absolute path.
    pub base: Option<PathBuf>,
    /// Whether it was created.
    pub is_new: bool,
}

/// The session, and its base as an absolute path.
pub(super) fn open_session(wanted: &LayerOptions<'_>) -> Result<OpenedSession> {
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
            return Ok(OpenedSession { session, base, is_new });
        }
        // An empty session to be read: the base as it is. It is opened again below.
        close(&session)?;
    }
    let given = wanted.base.map(real_base).transpose()?;
    let mode = if wanted.read_only { OpenMode::ReadOnly } else { OpenMode::Serve };
    let mut session = Session::open(wanted.session, mode, &host()?)?;
    check_chunk_size(&session, wanted.chunk_size)?;
    let recorded = session.base_path().map(Path::to_owned);
    let base = match given {
        None => recorded.as_deref().map(recorded_base).transpose()?,
        Some(given) => {
            if recorded.as_deref() != Some(&given) {
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
    Ok(OpenedSession { session, base, is_new })
}

/// The patterns of both.
pub(super) fn union(remembered: &PatternSet, asked: &PatternSet) -> Result<PatternSet> {
    remembered.union(asked).map_err(Error::Hidden)
}

/// Replaces the patterns of paths of the base that a session never shows; before it is served.
///
/// # Errors
/// There are too many, or the session cannot be written.
pub fn remember_hidden(session: &mut Session, hidden: PatternSet) -> Result<()> {
    let path = session.path().to_owned();
    session.record_hidden(hidden).map_err(|source| Error::store(&path, source))
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

/// [`real_base`] of the path that the session names.
fn recorded_base(path: &Path) -> Result<PathBuf> {
    real_base(path).map_err(|error| match error {
        Error::Base { path, source, .. } => Error::Base { path, is_recorded: true, source },
        error => error,
    })
}

/// Puts a session over another base than the one that it names. One with changes is refused,
/// unless the new base is said to be the same tree, and what was copied up agrees with that.
fn change_base(
    session: &mut Session,
    recorded: Option<&Path>,
    given: &Path,
    wanted: &LayerOptions<'_>,
) -> Result<()> {
    let path = session.path().to_owned();
    let store = |source| Error::store(&path, source);
    if let Some(recorded) = recorded
        && session.has_changes().map_err(store)?
    {
        if !wanted.moved {
            let (session, recorded) = (path.clone(), recorded.to_owned());
            return Err(Error::OtherBase { session, recorded, given: given.to_owned() });
        }
        check_moved(&path, &session.copied_up(MAX_COMPARED).map_err(store)?, given)?;
    }
    if wanted.read_only {
        return Ok(());
    }
    if let Some(recorded) = recorded {
        let what = "the session was made over another base; it is over the given one from now on";
        let (path, recorded, new) = (path.display(), recorded.display(), given.display());
        match wanted.moved {
            // That is what was asked for.
            true => tracing::info!(session = %path, %recorded, given = %new, "{what}"),
            false => tracing::warn!(session = %path, %recorded, given = %new, "{what}"),
        }
        move_uncopied(session, given)?;
    }
    session.record_base(given).map_err(store)
}

/// Finds in another base the files of which the session has not copied all content yet: one of
/// the same size and time of the last change is the same file. What is not there is said.
fn move_uncopied(session: &mut Session, base: &Path) -> Result<()> {
    let path = session.path().to_owned();
    let uncopied = session.uncopied().map_err(|source| Error::store(&path, source))?;
    if uncopied.is_empty() {
        return Ok(());
    }
    let tree = HostDir::open(base, HostDirOptions::default());
    let tree = tree.map_err(|source| Error::base(base, source))?;
    let (mut moved, mut lost) = (Vec::new(), Vec::new());
    for file in uncopied {
        match tree.stat(&file.path) {
            Ok(attr)
                if attr.kind == FileKind::Regular
                    && (attr.size, attr.mtime) == (file.size, file.mtime) =>
            {
                let host = CopiedFileId { dev: attr.dev, ino: attr.ino, ctime: attr.ctime };
                moved.push((file.delta_ino, host));
            }
            _ => lost.push(MergedPath::of_base(&file.path)),
        }
    }
    if let Some(first) = lost.first() {
        tracing::warn!(
            session = %path.display(),
            files = lost.len(),
            first = %first.display(),
            hint = "serve it over its own base once, to finish the copies; else write these files \
                    anew, or discard them",
            "the given base has not the content that is still to be copied of these files: reading \
             it fails"
        );
    }
    session.record_moved(&moved).map_err(|source| Error::store(&path, source))
}

/// Checks that `base` is the tree that objects were copied up from: at least half of the files and
/// links have to be there, with their types and sizes. Where none were copied up, directories
/// count.
fn check_moved(session: &Path, copied: &[CopiedUp], base: &Path) -> Result<()> {
    let tree = HostDir::open(base, HostDirOptions::default());
    let tree = tree.map_err(|source| Error::base(base, source))?;
    let is_dir = |object: &&CopiedUp| object.kind == FileKind::Directory;
    let only_dirs = copied.iter().all(|object| is_dir(&object));
    let compared: Vec<_> = copied.iter().filter(|object| only_dirs || !is_dir(object)).collect();
    let differs = |object: &&&CopiedUp| {
        tree.stat(&object.path).map_or(true, |found| {
            let is_file = object.kind == FileKind::Regular;
            found.kind != object.kind || is_file && found.size != object.size
        })
    };
    let different: Vec<_> = compared.iter().filter(differs).collect();
    if different.len() * 2 <= compared.len() {
        return Ok(());
    }
    let first =
        different.first().map(|object| MergedPath::of_base(&object.path).display().to_string());
    let first = first.unwrap_or_default();
    Err(Error::NotMoved {
        session: session.to_owned(),
        given: base.to_owned(),
        differ: different.len(),
        compared: compared.len(),
        first,
    })
}
