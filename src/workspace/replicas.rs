//! Replicas on this machine: their files, and how one gets all batches of its session.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::error::{Error, Result};
use super::old_replicas::mark_used;
use crate::delta::postgres::{
    Followed, HoldError, SessionError, SessionRow, SessionUrl, catch_up, connect, hydrate,
};
use crate::delta::sqlite::{BatchMark, Host, OpenError, Session, set_aside};
use crate::inspect::opened::host;

/// Replicas of one session that one directory may have: another process may still have the first.
const MAX_REPLICAS: usize = 8;

/// How long a server whose replica has a given path waits for commands that read it.
const READERS_TIMEOUT: Duration = Duration::from_secs(10);

/// The time between two attempts.
const READERS_POLL: Duration = Duration::from_millis(50);

/// How the names of all replicas of a session begin. A database that was restored elsewhere has
/// sessions of the same numbers, so that the place of the session is in the name.
pub fn replica_name(url: &SessionUrl, row: &SessionRow) -> String {
    format!("{:016x}-{:016x}-{:016x}", row.id, row.incarnation, url.hash())
}

/// Opens the first replica of a session that no process has open, with all batches; makes it from
/// the database if there is none, or it lacks too many.
pub(super) async fn bring_up_to_date(
    of_session: (&SessionUrl, &SessionRow),
    dir: &Path,
    runtime: &Handle,
) -> Result<(PathBuf, Session, BatchMark)> {
    let mut in_use = None;
    let name = replica_name(of_session.0, of_session.1);
    for number in 0..MAX_REPLICAS {
        let suffix = if number == 0 { String::new() } else { format!("-{number}") };
        let path = dir.join(format!("{name}{suffix}.db"));
        match open_current(of_session, path, runtime).await {
            Err(Error::Open(error @ OpenError::InUse { .. })) => in_use = Some(error),
            opened => return opened,
        }
    }
    Err(in_use.unwrap_or_else(|| OpenError::Missing { path: dir.to_owned() }).into())
}

/// The same for the replica at `path`: waits while a command reads it.
pub(super) async fn bring_this_up_to_date(
    of_session: (&SessionUrl, &SessionRow),
    path: &Path,
    runtime: &Handle,
) -> Result<(PathBuf, Session, BatchMark)> {
    let begun = Instant::now();
    loop {
        match open_current(of_session, path.to_owned(), runtime).await {
            Err(Error::Open(OpenError::InUse { .. })) if begun.elapsed() < READERS_TIMEOUT => {
                tokio::time::sleep(READERS_POLL).await;
            }
            opened => return opened,
        }
    }
}

/// Opens the replica of a session at `path`, with all batches; makes it from the database if there
/// is none, or it lacks too many.
async fn open_current(
    (url, row): (&SessionUrl, &SessionRow),
    path: PathBuf,
    runtime: &Handle,
) -> Result<(PathBuf, Session, BatchMark)> {
    let host = host()?;
    let failed = |path: &Path, error| match error {
        HoldError::Session(SessionError::Replica(error)) => Error::from(error),
        error => Error::Hydration { path: path.to_owned(), source: Box::new(error) },
    };
    match Session::open_any(&path, &host) {
        Ok(session) => {
            let mark = session.replica_mark().map_err(|error| Error::store(&path, error))?;
            if let Some(mark) = mark {
                if mark == row.mark {
                    mark_used(&path);
                    return Ok((path, session, mark));
                }
                drop(session);
                match follow_up((url, row.id), &path, &host, runtime).await {
                    Ok(Ok(session)) => return Ok((path, session.0, session.1)),
                    // The database had this batch before the replica.
                    Ok(Err(_)) if mark.seq >= row.mark.seq => {
                        return Err(Error::NewerReplica { path });
                    }
                    Ok(Err(Followed::Diverged)) => {
                        let aside = set_aside(&path)?;
                        tracing::warn!(
                            replica = %aside.display(), %url,
                            "this replica has changes that its database lacks: it was restored"
                        );
                    }
                    Ok(Err(_)) => {}
                    Err(error) => return Err(failed(&path, error)),
                }
            }
        }
        // A file that was not finished, or is damaged.
        Err(error) if error.is_of_content() => {
            tracing::debug!(%error, "the replica is made again");
        }
        Err(error) => return Err(error.into()),
    }
    match fetch((url, row.id), &path, &host, runtime).await {
        Ok((session, mark)) => Ok((path, session, mark)),
        Err(error) => Err(failed(&path, error)),
    }
}

/// Fetches the batches that a replica lacks, and opens it, or tells why that is not possible.
async fn follow_up(
    (url, id): (&SessionUrl, i64),
    path: &Path,
    host: &Host,
    runtime: &Handle,
) -> std::result::Result<std::result::Result<(Session, BatchMark), Followed>, HoldError> {
    let mut client = connect(&url.connection, runtime).await?;
    let mark = match catch_up(&mut client, (&url.schema, id), (path, host)).await? {
        Followed::UpTo(mark) => mark,
        other => return Ok(Err(other)),
    };
    let session = Session::open_any(path, host).map_err(SessionError::Replica)?;
    Ok(Ok((session, mark)))
}

async fn fetch(
    (url, id): (&SessionUrl, i64),
    path: &Path,
    host: &Host,
    runtime: &Handle,
) -> std::result::Result<(Session, BatchMark), HoldError> {
    let mut client = connect(&url.connection, runtime).await?;
    Ok(hydrate(&mut client, (url, id), (path, host)).await?)
}

/// The directory for replicas in the cache directory.
const REPLICA_DIR: &str = "acetate";

/// The cache directory in a home directory.
const CACHE_IN_HOME: &str = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };

/// The directory for replicas of the user with this home directory.
pub fn place_in_home(home: &Path) -> PathBuf {
    home.join(CACHE_IN_HOME).join(REPLICA_DIR)
}

/// The path of the directory for replicas; `None` if the user has no cache directory.
pub(super) fn local_place(given: Option<&Path>) -> Option<PathBuf> {
    match given {
        Some(dir) => Some(dir.to_owned()),
        None => Some(cache_dir()?.join(REPLICA_DIR)),
    }
}

/// The directory for replicas, which only its owner may enter.
pub(super) fn replica_dir(given: Option<&Path>) -> Result<PathBuf> {
    let dir = local_place(given).ok_or(Error::NoLocalDir)?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
    made.map_err(|error| local_dir(&dir, error))?;
    let about = fs::metadata(&dir).map_err(|error| local_dir(&dir, error))?;
    if about.mode() & 0o077 != 0 || about.uid() != rustix::process::geteuid().as_raw() {
        let error = io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it must be this user's, and other users may not enter it (chmod 700)",
        );
        return Err(local_dir(&dir, error));
    }
    dir.canonicalize().map_err(|error| local_dir(&dir, error))
}

pub(super) fn local_dir(path: &Path, source: io::Error) -> Error {
    Error::LocalDir { path: path.to_owned(), source }
}

/// The user's directory for files that can be made again.
fn cache_dir() -> Option<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(CACHE_IN_HOME)))
}
