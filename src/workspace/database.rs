//! Sessions in a database, for a server: makes one, takes its lease, and brings its replica up to
//! date.

use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::error::{Error, Result};
use super::layers::{close, create, real_base};
use super::leased_program::LeasedProgram;
use super::standby::SessionFollower;
use crate::delta::postgres::{
    DatabasePlace, Hold, HoldError, HoldOptions, LeaseRenewals, LeaseTime, LeaseWatch,
    ListedSession, PostgresStore, SessionError, SessionRow, SessionUrl, Shipper, catch_up,
    check_rights, connect, find, hydrate, list, prepare_schema, upload,
};
use crate::delta::sqlite::{BatchMark, Host, OpenError, Session};
use crate::inspect::opened::host;
use crate::pattern::PatternSet;
use crate::server::RpcProgram;

/// How long a server that is silent keeps a session, if a new session is not given another time.
pub const DEFAULT_TERM: Duration = Duration::from_secs(3);

/// Replicas of one session that one directory may have: another process may still have the first.
const MAX_REPLICAS: usize = 8;

/// How long a server whose replica has a given path waits for commands that read it.
const READERS_TIMEOUT: Duration = Duration::from_secs(10);

/// The time between two attempts.
const READERS_POLL: Duration = Duration::from_millis(50);

/// A session in a database that is to be served.
#[derive(Debug)]
pub struct DatabaseOptions<'a> {
    /// Its name.
    pub url: &'a SessionUrl,
    /// The directory for replicas; `None` for the user's cache directory.
    pub local: Option<&'a Path>,
    /// The replica's file in that directory, if it has to be this one.
    pub replica: Option<&'a Path>,
    /// The base directory.
    pub base: Option<&'a Path>,
    /// Chunk size of a new session, in bytes.
    pub chunk_size: Option<u64>,
    /// Base paths that a new session hides.
    pub hidden: &'a PatternSet,
    /// Fail if there is no such session.
    pub existing: bool,
    /// The term of a new session's lease.
    pub term: Option<Duration>,
    /// Where the session will be served, for people.
    pub address: String,
    /// Wait while another server has the session.
    pub is_standby: bool,
    /// Accept the base as the session's base at another place.
    pub is_moved: bool,
    /// How long to wait for the term of a server that is silent.
    pub patience: Option<Duration>,
    /// What renews the leases of this server; `None` for a connection of its own.
    pub renewals: Option<Arc<LeaseRenewals>>,
    /// What earlier attempts have seen of the lease.
    pub watch: Option<&'a Mutex<LeaseWatch>>,
}

impl<'a> DatabaseOptions<'a> {
    /// The default options.
    pub fn new(url: &'a SessionUrl) -> Self {
        static NOTHING: LazyLock<PatternSet> = LazyLock::new(PatternSet::default);
        Self {
            url,
            local: None,
            replica: None,
            base: None,
            chunk_size: None,
            hidden: &NOTHING,
            existing: false,
            term: None,
            address: String::new(),
            is_standby: false,
            is_moved: false,
            patience: None,
            renewals: None,
            watch: None,
        }
    }
}

/// A session in a database that this process may serve, with its replica.
pub struct HeldReplica {
    /// The lease.
    pub hold: Hold,
    /// Whether the session was made now.
    pub is_new: bool,
    /// The replica's file.
    pub path: PathBuf,
    base_mark: Option<String>,
    /// The replica, until it is served, and the last batch that it has.
    replica: Mutex<Option<(Session, BatchMark)>>,
    runtime: Handle,
}

impl fmt::Debug for HeldReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldReplica").field("path", &self.path).finish_non_exhaustive()
    }
}

impl HeldReplica {
    /// Completes when another server has the session, or may have it: with the reason. Nothing may
    /// be answered any more.
    pub async fn until_lost(&self) -> String {
        self.hold.session.lease.until_lost().await
    }

    /// The same programs, whose calls wait while another server may have the session.
    pub fn guard(&self, programs: Vec<Arc<dyn RpcProgram>>) -> Vec<Arc<dyn RpcProgram>> {
        let guarded = |program| -> Arc<dyn RpcProgram> {
            Arc::new(LeasedProgram { program, lease: Arc::clone(&self.hold.session.lease) })
        };
        programs.into_iter().map(guarded).collect()
    }

    /// Whether no other server can have the session now.
    pub fn is_valid(&self) -> bool {
        self.hold.session.lease.is_valid(LeaseTime::now())
    }

    /// Tells other servers and people where the session is served.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn announce(&self, address: &str) -> std::result::Result<(), HoldError> {
        self.hold.describe(address, self.base_mark.as_deref(), &self.runtime).await
    }

    /// As [`Self::announce`], if the database does not know the session's base.
    ///
    /// # Errors
    /// The database does not answer.
    pub(super) async fn announce_base(&self, address: &str) -> std::result::Result<(), HoldError> {
        match self.base_mark == self.hold.row.base_mark {
            true => Ok(()),
            false => self.announce(address).await,
        }
    }

    /// Gives the lease back. The session must be closed.
    pub async fn release(&self) {
        self.hold.release(&self.runtime).await;
    }

    /// The replica, open to be served and noting its changes.
    ///
    /// # Errors
    /// It was taken before.
    pub(super) fn take(&self) -> Result<(Session, BatchMark)> {
        let taken = self.replica.lock().take();
        let (mut session, mark) = taken.ok_or_else(|| OpenError::InUse {
            path: self.path.clone(),
            holder: Some(std::process::id()),
        })?;
        session.note_rows().map_err(|source| Error::store(&self.path, source))?;
        Ok((session, mark))
    }

    /// The store of a replica from [`HeldReplica::take`].
    pub(super) fn store(&self, (replica, mark): (Session, BatchMark)) -> PostgresStore {
        let shipper = Shipper::new(self.hold.session.clone(), self.runtime.clone(), mark);
        PostgresStore::new(replica, self.hold.session.lease.clone(), shipper)
    }
}

/// Takes the lease of a session, which is made if there is none, and brings its replica up to date.
/// `None` if `stopped` completes first. Blocks; must not run on a runtime thread.
///
/// # Errors
/// The database refuses, another server has the session, its base is another one, or the replica
/// cannot be written.
pub fn hold(
    options: &DatabaseOptions<'_>,
    runtime: &Handle,
    stopped: impl Future<Output = ()>,
) -> Result<Option<HeldReplica>> {
    let dir = replica_dir(options.local)?;
    let is_new = make_if_missing(options, false, &dir, runtime)?;
    let asked = HoldOptions {
        holder: holder(),
        address: options.address.clone(),
        is_standby: options.is_standby,
        patience: options.patience,
        renewals: options.renewals.clone().unwrap_or_default(),
    };
    let mut stopped = std::pin::pin!(stopped);
    let follower =
        options.is_standby.then(|| SessionFollower::start(options.url, &dir, runtime)).flatten();
    let mut watch = options.watch.map(|watch| watch.lock().clone()).unwrap_or_default();
    let hold = runtime.block_on(async {
        tokio::select! {
            hold = Hold::take_watching(options.url, &asked, runtime, &mut watch) => Some(hold),
            () = &mut stopped => None,
        }
    });
    if let Some(follower) = follower {
        follower.end();
    }
    if let Some(known) = options.watch {
        *known.lock() = watch;
    }
    let Some(hold) = hold else { return Ok(None) };
    let hold = hold.map_err(|error| of_hold(options.url, error))?;
    let of_session = (options.url, &hold.row);
    let current = runtime.block_on(async {
        let current = async {
            match options.replica {
                Some(path) => bring_this_up_to_date(of_session, path, runtime).await,
                None => bring_up_to_date(of_session, &dir, runtime).await,
            }
        };
        tokio::select! {
            current = current => current.map(Some),
            () = &mut stopped => Ok(None),
        }
    });
    let current = current.and_then(|current| {
        let Some((path, session, mark)) = current else { return Ok(None) };
        let base = options.base.or(session.base_path());
        let base_mark = checked_base(options, base, hold.row.base_mark.as_deref())?;
        Ok(Some((path, Mutex::new(Some((session, mark))), base_mark)))
    });
    match current {
        Ok(Some((path, replica, base_mark))) => {
            let runtime = runtime.clone();
            Ok(Some(HeldReplica { hold, is_new, path, base_mark, replica, runtime }))
        }
        current => {
            runtime.block_on(hold.release(runtime));
            current.map(|_| None)
        }
    }
}

/// The mark of the base.
///
/// # Errors
/// It is another base than the session's.
fn checked_base(
    options: &DatabaseOptions<'_>,
    base: Option<&Path>,
    recorded: Option<&str>,
) -> Result<Option<String>> {
    let Some(base) = base else { return Ok(None) };
    let mark = base_mark(base)?;
    if options.is_moved || recorded.is_none_or(|recorded| recorded == mark) {
        return Ok(Some(mark));
    }
    Err(Error::CopiedBase { url: options.url.to_string(), base: base.to_owned() })
}

pub(super) fn of_hold(url: &SessionUrl, source: HoldError) -> Error {
    Error::Database { url: url.to_string(), source: Box::new(source) }
}

/// Makes a session. Blocks; must not run on a runtime thread.
///
/// # Errors
/// There is one of this name, or the database refuses.
pub fn make(options: &DatabaseOptions<'_>, runtime: &Handle) -> Result<()> {
    let dir = replica_dir(options.local)?;
    // The name of a session that was moved away is free.
    if make_if_missing(options, true, &dir, runtime)? {
        return Ok(());
    }
    let exists = SessionError::Exists(options.url.name.clone());
    Err(of_hold(options.url, exists.into()))
}

/// The sessions of a database's schema, by name. Blocks; must not run on a runtime thread.
///
/// # Errors
/// The database refuses.
pub fn all(place: &DatabasePlace, runtime: &Handle) -> Result<Vec<ListedSession>> {
    let found = runtime.block_on(async {
        let client = connect(&place.connection, runtime).await?;
        Ok(list(&client, &place.schema).await?)
    });
    let url = place.to_string();
    found.map_err(|source: HoldError| Error::Database { url, source: Box::new(source) })
}

/// Makes the session, unless there is one; returns whether it did. `takes_name` says whether it may
/// have the name of one that was moved away.
fn make_if_missing(
    options: &DatabaseOptions<'_>,
    takes_name: bool,
    dir: &Path,
    runtime: &Handle,
) -> Result<bool> {
    let url = options.url;
    let failed = |error: HoldError| of_hold(url, error);
    let mut client = match runtime.block_on(connect(&url.connection, runtime)) {
        Ok(client) => client,
        // A standby waits for the database too.
        Err(_) if options.is_standby => return Ok(false),
        Err(error) => return Err(failed(error.into())),
    };
    match runtime.block_on(find(&client, url)) {
        Ok(row) => {
            // Early: a standby would find out when it is needed.
            checked_base(options, options.base, row.base_mark.as_deref())?;
            let checked = runtime.block_on(check_rights(&client, &url.schema));
            return checked.map(|()| false).map_err(|error| failed(error.into()));
        }
        Err(SessionError::Missing(_)) if !options.existing => {}
        Err(SessionError::Moved(_)) if takes_name => {}
        Err(error) => return Err(failed(error.into())),
    }
    let prepared = runtime.block_on(prepare_schema(&client, &url.schema));
    prepared.map_err(|error| failed(error.into()))?;
    let made = tempfile::tempdir_in(dir).map_err(|error| local_dir(dir, error))?;
    let file = made.path().join("new.db");
    let session = create(&file, options.base, options.chunk_size, options.hidden)?;
    let term = options.term.unwrap_or(DEFAULT_TERM);
    match upload((&mut client, runtime), url, &session, term) {
        Ok(_) => {}
        // Another server was faster.
        Err(SessionError::Exists(_)) => return Ok(false),
        Err(error) => return Err(failed(error.into())),
    }
    close(&session)?;
    Ok(true)
}

/// The replica of a session as it is now, to be read: no lease is taken. The file is current and
/// stays as long as this.
#[derive(Debug)]
pub struct LookedReplica {
    /// The replica's file.
    pub path: PathBuf,
    _session: Session,
}

/// Brings a replica of a session up to date, in the directory `local` or the user's, to read it.
/// Blocks; must not run on a runtime thread.
///
/// # Errors
/// The database refuses, there is no such session, or the replica cannot be written.
pub fn look(
    url: &SessionUrl,
    row: &SessionRow,
    local: Option<&Path>,
    runtime: &Handle,
) -> Result<LookedReplica> {
    let dir = replica_dir(local)?;
    let (path, session, _) = runtime.block_on(bring_up_to_date((url, row), &dir, runtime))?;
    Ok(LookedReplica { path, _session: session })
}

/// The row of a session. Blocks; must not run on a runtime thread.
///
/// # Errors
/// The database refuses, or there is no such session.
pub fn row_of(url: &SessionUrl, runtime: &Handle) -> Result<SessionRow> {
    let found = runtime.block_on(async {
        let client = connect(&url.connection, runtime).await?;
        Ok(find(&client, url).await?)
    });
    found.map_err(|error| of_hold(url, error))
}

/// How the names of all replicas of a session begin.
pub fn replica_name(row: &SessionRow) -> String {
    format!("{:016x}-{:016x}", row.id, row.incarnation)
}

/// Opens the first replica of a session that no process has open, with all batches; makes it from
/// the database if there is none, or it lacks too many.
pub(super) async fn bring_up_to_date(
    of_session: (&SessionUrl, &SessionRow),
    dir: &Path,
    runtime: &Handle,
) -> Result<(PathBuf, Session, BatchMark)> {
    let mut in_use = None;
    for number in 0..MAX_REPLICAS {
        let suffix = if number == 0 { String::new() } else { format!("-{number}") };
        let path = dir.join(format!("{}{suffix}.db", replica_name(of_session.1)));
        match open_current(of_session, path, runtime).await {
            Err(Error::Open(error @ OpenError::InUse { .. })) => in_use = Some(error),
            opened => return opened,
        }
    }
    Err(in_use.unwrap_or_else(|| OpenError::Missing { path: dir.to_owned() }).into())
}

/// The same for the replica at `path`: waits while a command reads it.
async fn bring_this_up_to_date(
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
                    return Ok((path, session, mark));
                }
                drop(session);
                match follow_up((url, row.id), &path, &host, runtime).await {
                    Ok(Some((session, mark))) => return Ok((path, session, mark)),
                    // The database had this batch before the replica.
                    Ok(None) if mark.seq >= row.mark.seq => {
                        return Err(Error::NewerReplica { path });
                    }
                    Ok(None) => {}
                    Err(error) => return Err(failed(&path, error)),
                }
            }
        }
        Err(error @ OpenError::InUse { .. }) => return Err(error.into()),
        // A file that was not finished, or is damaged.
        Err(error) => tracing::debug!(%error, "the replica is made again"),
    }
    match fetch((url, row.id), &path, &host, runtime).await {
        Ok((session, mark)) => Ok((path, session, mark)),
        Err(error) => Err(failed(&path, error)),
    }
}

/// Fetches the batches that a replica lacks, and opens it; `None` if it has to be made again.
async fn follow_up(
    (url, id): (&SessionUrl, i64),
    path: &Path,
    host: &Host,
    runtime: &Handle,
) -> std::result::Result<Option<(Session, BatchMark)>, HoldError> {
    let mut client = connect(&url.connection, runtime).await?;
    let mark = catch_up(&mut client, (&url.schema, id), (path, host)).await?;
    let Some(mark) = mark else { return Ok(None) };
    let session = Session::open_any(path, host).map_err(SessionError::Replica)?;
    Ok(Some((session, mark)))
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

/// The path of the directory for replicas; `None` if the user has no cache directory.
pub(super) fn local_place(given: Option<&Path>) -> Option<PathBuf> {
    match given {
        Some(dir) => Some(dir.to_owned()),
        None => Some(cache_dir()?.join("acetate")),
    }
}

/// The directory for replicas, which only its owner may enter.
fn replica_dir(given: Option<&Path>) -> Result<PathBuf> {
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

fn local_dir(path: &Path, source: io::Error) -> Error {
    Error::LocalDir { path: path.to_owned(), source }
}

/// The user's directory for files that can be made again.
fn cache_dir() -> Option<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let in_home = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
    absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(in_home)))
}

/// Tells a base from copies of it: the inode number of its root, and when that was made, where the
/// filesystem says so. Fileids are inode numbers, so that a copy is not the same base.
fn base_mark(base: &Path) -> Result<String> {
    let real = real_base(base)?;
    let about = fs::metadata(&real).map_err(|error| Error::base(&real, error.into()))?;
    let made = about.created().ok().and_then(|it| it.duration_since(std::time::UNIX_EPOCH).ok());
    Ok(format!("{}:{}", about.ino(), made.map_or(0, |made| made.as_nanos())))
}

/// This process, for people: `HOST, process 123`.
pub(super) fn holder() -> String {
    format!("{}, process {}", host_name(), std::process::id())
}

/// The name of this machine.
pub(super) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
