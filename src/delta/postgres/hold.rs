//! Takes the lease of a session, keeps it, and gives it back.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::connect::{DatabaseConnectError, connect};
use super::lease::{HeldLease, LeaseRow, LeaseTime, LeaseWatch};
use super::session::{SessionError, SessionRow, describe, find, release, renew, take};
use super::ship::HeldSession;
use super::url::SessionUrl;

/// How often a server that waits looks at the lease.
const POLL: Duration = Duration::from_millis(250);

/// The longest pause before a database that does not answer is tried again.
const MAX_RETRY: Duration = Duration::from_secs(2);

/// The least time for an attempt of a holder to connect to one host.
const MIN_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for the database to take back a lease at a stop.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a lease was not taken.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] DatabaseConnectError),
    /// The session.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Another server has the session, and is alive.
    #[error("the session is served by {holder}{}", at(.address))]
    Held {
        /// Who.
        holder: String,
        /// Where clients find it.
        address: Option<String>,
    },
}

fn at(address: &Option<String>) -> String {
    address.as_ref().map_or(String::new(), |address| format!(" at {address}"))
}

/// Who asks for a lease, and how.
#[derive(Debug, Clone)]
pub struct HoldOptions {
    /// Who, for people.
    pub holder: String,
    /// Where the session will be served.
    pub address: String,
    /// Whether to wait while another server is alive, or the database away.
    pub is_standby: bool,
}

/// A session whose lease this server has; a task renews it until it is released.
pub struct Hold {
    /// The session.
    pub session: HeldSession,
    /// Its row, as of the take.
    pub row: SessionRow,
    renewing: JoinHandle<()>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

impl Hold {
    /// Takes the lease. If another server has it and is alive: waits, if the options say so.
    ///
    /// # Errors
    /// See [`HoldError`].
    pub async fn take(
        url: &SessionUrl,
        options: &HoldOptions,
        runtime: &Handle,
    ) -> Result<Self, HoldError> {
        let (mut pause, mut is_told) = (POLL, false);
        let mut watch = LeaseWatch::default();
        loop {
            let taken = Self::take_when_free(url, options, runtime, (&mut watch, &mut is_told));
            match taken.await {
                Err(error @ (HoldError::Connect(_) | HoldError::Session(_)))
                    if options.is_standby && is_passing(&error) =>
                {
                    tracing::warn!(%error, "the database does not answer; trying again");
                    tokio::time::sleep(pause).await;
                    pause = MAX_RETRY.min(pause * 2);
                }
                taken => return taken,
            }
        }
    }

    async fn take_when_free(
        url: &SessionUrl,
        options: &HoldOptions,
        runtime: &Handle,
        (watch, is_told): (&mut LeaseWatch, &mut bool),
    ) -> Result<Self, HoldError> {
        let client = connect(&url.connection, runtime).await?;
        let mut first: Option<LeaseRow> = None;
        loop {
            let now = LeaseTime::now();
            let row = find(&client, url).await?;
            if watch.may_take(&row.lease, now) {
                let who = (options.holder.as_str(), options.address.as_str());
                if let Some(lease) = take(&client, &url.schema, &row, who).await? {
                    return Ok(Self::begin(url, (row, lease), (client, runtime)));
                }
                continue;
            }
            let seen = first.get_or_insert_with(|| row.lease.clone());
            let is_alive = (seen.epoch, seen.beat) != (row.lease.epoch, row.lease.beat);
            let holder = row.lease.holder.clone().unwrap_or_default();
            if is_alive && !options.is_standby {
                return Err(HoldError::Held { holder, address: row.lease.address });
            }
            if !std::mem::replace(is_told, true) && options.is_standby {
                tracing::info!(holder, "waiting until the session's server is gone");
            }
            tokio::time::sleep(POLL.min(watch.wait(row.lease.term, LeaseTime::now()))).await;
        }
    }

    fn begin(
        url: &SessionUrl,
        (row, lease): (SessionRow, HeldLease),
        (client, runtime): (Client, &Handle),
    ) -> Self {
        let (mut connection, schema) = (url.connection.clone(), url.schema.clone());
        if connection.get_connect_timeout().is_none() {
            connection.connect_timeout(MIN_CONNECT_TIMEOUT.max(lease.term() / 4));
        }
        lease.kept(row.mark.seq);
        let session = HeldSession { connection, schema, id: row.id, lease: Arc::new(lease) };
        let renewing = runtime.spawn(keep_renewed(session.clone(), client, runtime.clone()));
        Self { session, row, renewing }
    }

    /// Records where the session is served, and over which base.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn describe(
        &self,
        address: &str,
        base_mark: Option<&str>,
        runtime: &Handle,
    ) -> Result<(), HoldError> {
        let client = connect(&self.session.connection, runtime).await?;
        Ok(describe(&client, &self.session, (address, base_mark)).await?)
    }

    /// Gives the lease back, so that another server may take it at once; without the database, it
    /// ends by itself. The session must be closed.
    pub async fn release(&self, runtime: &Handle) {
        if self.session.lease.is_lost() {
            return;
        }
        let released = async {
            let client = connect(&self.session.connection, runtime).await?;
            Ok::<_, HoldError>(release(&client, &self.session).await?)
        };
        match tokio::time::timeout(RELEASE_TIMEOUT, released).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the session's lease ends by itself"),
            Err(_) => {
                tracing::warn!("no answer of the database: the session's lease ends by itself")
            }
        }
    }
}

/// Whether an error may pass with time.
fn is_passing(error: &HoldError) -> bool {
    match error {
        HoldError::Connect(DatabaseConnectError::Silent) => true,
        HoldError::Connect(DatabaseConnectError::Database(error))
        | HoldError::Session(SessionError::Database(error)) => {
            // A database that answers with an error has a reason that stays, unless it starts or
            // stops.
            error.code().is_none_or(|code| code.code().starts_with("57"))
        }
        _ => false,
    }
}

/// Renews a lease until it is lost.
async fn keep_renewed(session: HeldSession, client: Client, runtime: Handle) {
    let HeldSession { connection, schema, id, lease } = session;
    let held = [(id, lease)];
    let lease = &held[0].1;
    let period = lease.term() / 4;
    let mut known = Some(client);
    let mut is_away = false;
    while !lease.is_lost() {
        let since = lease.since_renewal(LeaseTime::now());
        if since < period {
            tokio::time::sleep(period - since).await;
            continue;
        }
        let client = known.take().filter(|client| !client.is_closed());
        // A connection takes several round trips.
        let limit = if client.is_some() { period } else { period * 2 };
        let renewing = async {
            let client = match client {
                Some(client) => client,
                None => connect(&connection, &runtime).await?,
            };
            renew(&client, &schema, &held).await?;
            Ok::<_, HoldError>(client)
        };
        match tokio::time::timeout(limit, renewing).await {
            Ok(Ok(client)) => {
                known = Some(client);
                if std::mem::take(&mut is_away) {
                    tracing::info!("the database answers again");
                }
                continue;
            }
            Ok(Err(error)) if !is_away => {
                tracing::warn!(%error, "the database does not renew the session's lease");
            }
            Err(_) if !is_away => {
                tracing::warn!("the database does not answer in time to renew the session's lease");
            }
            Ok(Err(_)) | Err(_) => {}
        }
        is_away = true;
        tokio::time::sleep(period / 4).await;
    }
}
