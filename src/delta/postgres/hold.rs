//! Takes the lease of a session, keeps it, and gives it back.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_postgres::Client;

use super::connect::{DatabaseConnectError, connect};
use super::figures;
use super::lease::{HeldLease, LeaseRow, LeaseTime, LeaseWatch};
use super::renewal::LeaseRenewals;
use super::session::{SessionError, SessionRow, describe, find, release, take};
use super::ship::HeldSession;
use super::url::SessionUrl;

/// How often a server that waits looks at the lease.
const POLL: Duration = Duration::from_millis(250);

/// The longest pause before a database that does not answer is tried again.
const MAX_RETRY: Duration = Duration::from_secs(2);

/// The least time for an attempt of a holder to connect to one host.
pub(super) const MIN_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

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
    /// How long to wait for the end of the term of a server that is silent; `None` for as long as
    /// it takes.
    pub patience: Option<Duration>,
    /// What renews the leases of this server.
    pub renewals: Arc<LeaseRenewals>,
}

/// A session whose lease this server has; it is renewed until it is released.
pub struct Hold {
    /// The session.
    pub session: HeldSession,
    /// Its row, as of the take.
    pub row: SessionRow,
    renewals: Arc<LeaseRenewals>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.session.lease.give_back();
        self.renewals.removed();
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
        Self::take_watching(url, options, runtime, &mut LeaseWatch::default()).await
    }

    /// As [`Self::take`]; `watch` has what earlier attempts have seen.
    ///
    /// # Errors
    /// See [`HoldError`].
    pub async fn take_watching(
        url: &SessionUrl,
        options: &HoldOptions,
        runtime: &Handle,
        watch: &mut LeaseWatch,
    ) -> Result<Self, HoldError> {
        let (mut pause, mut is_told, mut is_away) = (POLL, false, false);
        loop {
            let taken = Self::take_when_free(url, options, runtime, (watch, &mut is_told));
            match taken.await {
                Err(error @ (HoldError::Connect(_) | HoldError::Session(_)))
                    if options.is_standby && is_passing(&error) =>
                {
                    if !std::mem::replace(&mut is_away, true) {
                        tracing::warn!(%error, "the database does not answer; trying again");
                    }
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
        let given_up = options.patience.map(|patience| LeaseTime::now().after(patience));
        loop {
            let now = LeaseTime::now();
            let row = find(&client, url).await?;
            if watch.may_take(&row.lease, now) {
                let who = (options.holder.as_str(), options.address.as_str());
                if let Some(lease) = take(&client, &url.schema, &row, who).await? {
                    return Ok(Self::begin((url, options), (row, lease), (client, runtime)));
                }
                continue;
            }
            let seen = first.get_or_insert_with(|| row.lease.clone());
            let is_alive = (seen.epoch, seen.beat) != (row.lease.epoch, row.lease.beat);
            let holder = row.lease.holder.clone().unwrap_or_default();
            let is_late = given_up.is_some_and(|end| end <= now);
            if (is_alive || is_late) && !options.is_standby {
                return Err(HoldError::Held { holder, address: row.lease.address });
            }
            if !std::mem::replace(is_told, true) && options.is_standby {
                tracing::info!(holder, "waiting until the session's server is gone");
            }
            tokio::time::sleep(POLL.min(watch.wait(row.lease.term, LeaseTime::now()))).await;
        }
    }

    fn begin(
        (url, options): (&SessionUrl, &HoldOptions),
        (row, lease): (SessionRow, HeldLease),
        (client, runtime): (Client, &Handle),
    ) -> Self {
        let (mut connection, schema) = (url.connection.clone(), url.schema.clone());
        if connection.get_connect_timeout().is_none() {
            connection.connect_timeout(MIN_CONNECT_TIMEOUT.max(lease.term() / 4));
        }
        lease.kept(row.mark.seq);
        let lease = Arc::new(lease);
        figures::show(&lease);
        let session = HeldSession { connection, schema, id: row.id, lease };
        let renewals = Arc::clone(&options.renewals);
        let place = (&url.connection, &url.schema);
        renewals.add(place, (session.id, &session.lease), (client, runtime));
        Self { session, row, renewals }
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
        // Who waits for its loss need wait no more.
        self.session.lease.give_back();
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
