//! Moves and copies sessions between files and databases.

use std::path::{Path, PathBuf};

use tokio::runtime::Handle;

use super::database::{DEFAULT_TERM, DatabaseOptions, of_hold, row_of};
use super::error::{Error, Result};
use crate::delta::postgres::{
    Hold, HoldError, HoldOptions, SessionError, SessionRow, SessionUrl, connect, download, find,
    prepare_schema, record_move, session_id, upload,
};
use crate::delta::sqlite::{OpenError, Session, absolute, name_new};
use crate::inspect::opened::host;

/// Moves the session in a file to a database: with its id and the key of its handles, which stay
/// valid. The file stays, and is not served any more. Blocks; must not run on a runtime thread.
///
/// # Errors
/// The file is served, or the database refuses, or has a session of this name: nothing is moved
/// then. If the database did not say whether it has the session, the file stays marked, and the
/// next push finds out.
pub fn push(file: &Path, url: &SessionUrl, runtime: &Handle) -> Result<()> {
    let mut session = Session::open_any(file, &host()?)?;
    let path = session.path().to_owned();
    let text = url.to_string();
    if let Some(url) = session.replica_of().map(str::to_owned) {
        return Err(OpenError::Replica { path, url }.into());
    }
    if let Some(url) = session.moved_to().filter(|to| *to != text).map(str::to_owned) {
        return Err(OpenError::Moved { path, url }.into());
    }
    let store = |source| Error::store(&path, source);
    // An earlier move may have ended before it was told, or before it began.
    let was_moved = session.moved_to().is_some();
    if was_moved && is_there(&session, url, runtime)? {
        return Ok(());
    }
    // First: two sessions with one id would be worse than one that has to be moved again.
    session.record_move(Some(&text)).map_err(store)?;
    let moved = put(&session, url, runtime);
    if moved.as_ref().is_err_and(|error| !is_in_doubt(error)) && !was_moved {
        session.record_move(None).map_err(store)?;
    }
    moved
}

/// Whether the database may have the session all the same.
fn is_in_doubt(error: &Error) -> bool {
    let Error::Database { source, .. } = error else { return false };
    matches!(**source, HoldError::Session(SessionError::InDoubt(_)))
}

/// Whether the database has this session under this name.
///
/// # Errors
/// The session was moved out of the database since, or the database refuses.
fn is_there(session: &Session, url: &SessionUrl, runtime: &Handle) -> Result<bool> {
    let found = runtime.block_on(async {
        let client = connect(&url.connection, runtime).await?;
        match find(&client, url).await {
            Ok(row) => Ok(session_id(&client, &url.schema, row.id).await?),
            Err(SessionError::Missing(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    });
    let found = found.map_err(|error: HoldError| of_hold(url, error))?;
    Ok(found.as_deref() == Some(session.id()))
}

/// Copies the session in a file, which is of no other session, to a database. Blocks; must not run
/// on a runtime thread.
///
/// # Errors
/// As [`push`].
pub fn put(session: &Session, url: &SessionUrl, runtime: &Handle) -> Result<()> {
    let failed = |error: HoldError| of_hold(url, error);
    let client = runtime.block_on(connect(&url.connection, runtime));
    let mut client = client.map_err(|error| failed(error.into()))?;
    let prepared = runtime.block_on(prepare_schema(&client, &url.schema));
    prepared.map_err(|error| failed(error.into()))?;
    let uploaded = upload((&mut client, runtime), url, session, DEFAULT_TERM);
    uploaded.map(drop).map_err(|error| failed(error.into()))
}

/// Moves a session from a database into the new file `file`: with its id and the key of its
/// handles, which stay valid. Its rows stay in the database until its name is used again, and are
/// not served any more. Blocks; must not run on a runtime thread.
///
/// # Errors
/// A server has the session, or the file exists or cannot be written: nothing is moved then. If the
/// database does not confirm the move, the file stays, and the session may be in both places.
pub fn pull(url: &SessionUrl, file: &Path, runtime: &Handle) -> Result<()> {
    let place = new_file(file)?;
    let options = HoldOptions {
        holder: super::database::holder(),
        address: DatabaseOptions::new(url).address,
        is_standby: false,
        patience: None,
        renewals: std::sync::Arc::default(),
    };
    let hold = runtime.block_on(Hold::take(url, &options, runtime));
    let hold = hold.map_err(|error| of_hold(url, error))?;
    let to = format!("{}:{}", super::database::host_name(), place.display());
    let moved = fetch(url, &hold.row, (&place, false), runtime).and_then(|()| {
        let recorded = runtime.block_on(async {
            let client = connect(&hold.session.connection, runtime).await?;
            Ok(record_move(&client, &hold.session, &to).await?)
        });
        recorded.map_err(|error| {
            // Whether it is recorded is not known. The file may be all that will be served, so it
            // stays.
            tracing::error!(
                file = %place.display(),
                "the session may be in both places: remove the file if `acetate sessions URL` \
                 still lists it"
            );
            of_hold(url, error)
        })
    });
    runtime.block_on(hold.release(runtime));
    moved
}

/// Copies a session from a database into the new file `file`, with an id and a key of its own. It
/// may be served at the same time. Blocks; must not run on a runtime thread.
///
/// # Errors
/// The file exists or cannot be written, or the database refuses.
pub fn copy(url: &SessionUrl, file: &Path, runtime: &Handle) -> Result<()> {
    let place = new_file(file)?;
    let row = row_of(url, runtime)?;
    fetch(url, &row, (&place, true), runtime)
}

/// Copies a session from a database into the new file `file`, with its own id and key: to be
/// forked, and to be removed then. Blocks; must not run on a runtime thread.
///
/// # Errors
/// As [`copy`].
pub fn copy_to_fork(url: &SessionUrl, file: &Path, runtime: &Handle) -> Result<()> {
    let place = new_file(file)?;
    let row = row_of(url, runtime)?;
    fetch(url, &row, (&place, false), runtime)
}

/// The absolute path of a file that does not exist.
fn new_file(file: &Path) -> Result<PathBuf> {
    let path = absolute(file)?;
    match path.symlink_metadata() {
        Ok(_) => Err(OpenError::Exists { path }.into()),
        Err(_) => Ok(path),
    }
}

/// Fetches a whole session into a file, which gets its name at the end.
fn fetch(
    url: &SessionUrl,
    row: &SessionRow,
    (path, is_copy): (&Path, bool),
    runtime: &Handle,
) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let made = tempfile::tempdir_in(dir)
        .map_err(|error| OpenError::Io { path: dir.to_owned(), source: error })?;
    let new = made.path().join("session.db");
    let host = host()?;
    let fetched = runtime.block_on(async {
        let mut client = connect(&url.connection, runtime).await?;
        Ok(download(&mut client, (url, row.id), is_copy, (&new, &host)).await?)
    });
    fetched.map_err(|source| of_hold(url, source))?;
    Ok(name_new(&new, path)?)
}
