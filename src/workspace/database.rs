//! Sessions in a database, for a server: makes one, takes its lease, and brings its replica up to
//! date.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::error::{Error, Result};
use super::layers::{close, create, real_base};
use super::leased_program::LeasedProgram;
use super::replicas::{bring_this_up_to_date, bring_up_to_date, local_dir, replica_dir};
use super::standby::SessionFollower;
use crate::delta::postgres::{
    DatabasePlace, Hold, HoldError, HoldOptions, LeaseRenewals, LeaseTime, LeaseWatch,
    ListedSession, PostgresStore, SessionError, SessionRow, SessionUrl, Shipper, check_schema,
    connect, find, list, prepare_schema, upload,
};
use crate::delta::sqlite::{BatchMark, OpenError, Session};
use crate::pattern::PatternSet;
use crate::server::RpcProgram;

/// How long a server that is silent keeps a session, if a new session is not given another time.
pub const DEFAULT_TERM: Duration = Duration::from_secs(3);

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
            let checked = runtime.block_on(check_schema(&client, &url.schema));
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
