//! Sessions of exports that are in databases: what identifies them, and their opening.
//!
//! A database that does not answer delays a load by [`LOOK_WAIT`], and an opening by as long as it
//! takes to connect. Until it answers, the exports are awaited: unknown handles may be theirs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::config::MountConfig;
use crate::delta::postgres::{
    HoldError, LeaseRenewals, LeaseWatch, SessionInDatabase, SessionUrl, connect, identities,
};
use crate::delta::sqlite::SessionKeys;
use crate::workspace::database::{self, DatabaseOptions, HeldReplica};
use crate::workspace::error::{Error, Result};
use crate::workspace::layers::fsid;
use crate::workspace::replicas::local_place;

/// Time that a load waits for all databases together to say what identifies sessions.
const LOOK_WAIT: Duration = Duration::from_secs(2);

/// Time that one opening waits for the end of the term of a server that is silent; the next one
/// continues.
const TERM_WAIT: Duration = Duration::from_secs(10);

/// How sessions in databases are opened.
#[derive(Debug, Clone, Default)]
pub struct DatabaseSettings {
    /// The directory for replicas; `None` for the user's cache directory.
    pub local: Option<PathBuf>,
    /// Where the exports are served, for people.
    pub address: String,
}

/// What is known of a session in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KnownSession {
    /// What identifies it in handles.
    Keys(SessionKeys),
    /// There is none of this name.
    Missing,
    /// The database has not answered.
    Unknown,
}

/// The sessions in databases that exports name.
pub(in crate::workspace) struct DatabaseSessions {
    runtime: Handle,
    settings: RwLock<DatabaseSettings>,
    /// By their keys in the configuration.
    known: Mutex<HashMap<PathBuf, KnownSession>>,
    /// What was seen of leases that other servers have.
    watches: Mutex<HashMap<PathBuf, Arc<Mutex<LeaseWatch>>>>,
    /// Why databases did not answer, as it was logged.
    logged: Mutex<HashMap<String, String>>,
    renewals: Arc<LeaseRenewals>,
}

/// The sessions of one schema that are looked for.
struct SoughtSessions {
    /// One of them.
    url: Arc<SessionUrl>,
    /// Their names, and their keys in the configuration.
    keys: BTreeMap<String, PathBuf>,
}

impl DatabaseSessions {
    pub(super) fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            settings: RwLock::default(),
            known: Mutex::default(),
            watches: Mutex::default(),
            logged: Mutex::default(),
            renewals: Arc::default(),
        }
    }

    /// Opens sessions like this from now on.
    pub(super) fn set(&self, settings: DatabaseSettings) {
        *self.settings.write() = settings;
    }

    /// The directory for replicas, if it is known.
    pub(super) fn local(&self) -> Option<PathBuf> {
        local_place(self.settings.read().local.as_deref())
    }

    /// What is known of a session, by its key.
    pub(super) fn known(&self, key: &Path) -> KnownSession {
        self.known.lock().get(key).copied().unwrap_or(KnownSession::Unknown)
    }

    /// The session with this key was opened.
    pub(super) fn learn(&self, key: &Path, keys: SessionKeys) {
        self.known.lock().insert(key.to_owned(), KnownSession::Keys(keys));
    }

    /// Asks again what identifies a session: it may be another one.
    pub(super) fn forget(&self, key: &Path) {
        self.known.lock().remove(key);
    }

    /// Forgets what no export names any more.
    pub(super) fn keep_only(&self, urls: &[Arc<SessionUrl>]) {
        let keys: HashSet<PathBuf> = urls.iter().map(|url| url.key().into()).collect();
        self.known.lock().retain(|key, _| keys.contains(key));
        self.watches.lock().retain(|key, _| keys.contains(key));
        let places: Vec<_> = urls.iter().map(|url| url.place_key()).collect();
        self.logged.lock().retain(|place, _| places.contains(place));
    }

    /// Asks the databases what identifies these sessions, unless that is known. Blocks for at most
    /// [`LOOK_WAIT`].
    pub(super) fn look(&self, urls: impl Iterator<Item = Arc<SessionUrl>>) {
        let mut sought = BTreeMap::<String, SoughtSessions>::new();
        for url in urls {
            let key = PathBuf::from(url.key());
            if matches!(self.known(&key), KnownSession::Keys(_)) {
                continue;
            }
            let place = format!("{} {}", url.place_key(), url.schema);
            let of_place = sought
                .entry(place)
                .or_insert_with(|| SoughtSessions { url: Arc::clone(&url), keys: BTreeMap::new() });
            of_place.keys.insert(url.name.clone(), key);
        }
        if !sought.is_empty() {
            self.runtime.block_on(self.look_for(sought));
        }
    }

    async fn look_for(&self, sought: BTreeMap<String, SoughtSessions>) {
        let mut looking = JoinSet::new();
        let mut left: BTreeMap<_, _> =
            sought.values().map(|it| (it.url.place_key(), it.url.to_string())).collect();
        for sessions in sought.into_values() {
            let runtime = self.runtime.clone();
            looking.spawn(async move {
                let names: Vec<String> = sessions.keys.keys().cloned().collect();
                let found = look_at(&sessions.url, &names, &runtime).await;
                (sessions, found)
            });
        }
        let all = async {
            while let Some(done) = looking.join_next().await {
                let Ok((sessions, found)) = done else { continue };
                left.remove(&sessions.url.place_key());
                self.note(&sessions, found);
            }
        };
        if tokio::time::timeout(LOOK_WAIT, all).await.is_err() {
            for (place, url) in left {
                self.log(place, &url, "the database does not answer");
            }
        }
    }

    /// Notes what a database has answered.
    fn note(
        &self,
        sessions: &SoughtSessions,
        found: std::result::Result<Vec<SessionInDatabase>, HoldError>,
    ) {
        let place = sessions.url.place_key();
        let found = match found {
            Ok(found) => found,
            Err(error) => return self.log(place, &sessions.url.to_string(), &error.to_string()),
        };
        if self.logged.lock().remove(&place).is_some() {
            tracing::info!(url = %sessions.url, "the database answers");
        }
        let mut known = self.known.lock();
        for key in sessions.keys.values() {
            known.insert(key.clone(), KnownSession::Missing);
        }
        for SessionInDatabase { name, id, handle_key } in found {
            if let Some(key) = sessions.keys.get(&name) {
                known.insert(key.clone(), KnownSession::Keys((handle_key, fsid(&id))));
            }
        }
    }

    /// Logs why a database does not answer, once.
    fn log(&self, place: String, url: &str, why: &str) {
        let before = self.logged.lock().insert(place, why.to_owned());
        if before.as_deref() != Some(why) {
            tracing::warn!(
                url,
                why,
                "the sessions of exports are not known yet: clients with unknown handles wait"
            );
        }
    }

    /// Takes the lease of a mount's session, and brings its replica up to date. Blocks.
    ///
    /// # Errors
    /// The database refuses or does not answer, or another server has the session.
    pub(super) fn hold(
        &self,
        key: &Path,
        url: &SessionUrl,
        mount: &MountConfig,
        existing: bool,
    ) -> Result<Arc<HeldReplica>> {
        let watch = Arc::clone(self.watches.lock().entry(key.to_owned()).or_default());
        let DatabaseSettings { local, address } = self.settings.read().clone();
        let options = DatabaseOptions {
            local: local.as_deref(),
            base: mount.base.as_deref(),
            chunk_size: mount.store.chunk_size(),
            existing,
            address: address.clone(),
            patience: Some(TERM_WAIT),
            renewals: Some(Arc::clone(&self.renewals)),
            watch: Some(&watch),
            ..DatabaseOptions::new(url)
        };
        let held = database::hold(&options, &self.runtime, std::future::pending())?;
        let held = held.map(Arc::new).ok_or(Error::NoExport)?;
        self.watches.lock().remove(key);
        if let Err(error) = self.runtime.block_on(held.announce_base(&address)) {
            tracing::warn!(%url, %error, "the database does not know the session's base");
        }
        Ok(held)
    }

    /// Gives a lease back. Blocks.
    pub(super) fn release(&self, held: &HeldReplica) {
        self.runtime.block_on(held.release());
    }
}

/// What identifies the sessions of these names.
async fn look_at(
    url: &SessionUrl,
    names: &[String],
    runtime: &Handle,
) -> std::result::Result<Vec<SessionInDatabase>, HoldError> {
    let client = connect(&url.connection, runtime).await?;
    Ok(identities(&client, &url.schema, names).await?)
}
