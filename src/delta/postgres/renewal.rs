//! Renews leases: one statement, over one connection, for all sessions of a server in one schema.
//!
//! A batch locks the row of its session until it is committed, and renews the lease itself. So a
//! session with a batch on its way is left out until half of its term has passed, and after a
//! renewal that took too long: one session whose batch is slow holds up no other.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_postgres::{Client, Config};

use super::connect::connect;
use super::hold::{HoldError, MIN_CONNECT_TIMEOUT};
use super::lease::{HeldLease, LeaseTime};
use super::session::renew;
use super::url::SchemaName;
use crate::counters::COUNTERS;

/// Renews the leases of a server.
#[derive(Debug, Default)]
pub struct LeaseRenewals {
    schemas: Mutex<Vec<Arc<RenewedSchema>>>,
}

/// The leases of one schema.
#[derive(Debug)]
struct RenewedSchema {
    connection: Config,
    schema: SchemaName,
    held: Mutex<RenewedLeases>,
    /// There is another lease, or one less.
    changed: Notify,
}

#[derive(Debug, Default)]
struct RenewedLeases {
    /// With the numbers of their sessions.
    leases: Vec<(i64, Arc<HeldLease>)>,
    /// No task renews them any more.
    is_over: bool,
}

impl LeaseRenewals {
    /// Renews a lease until it is lost; `client` is a connection for it, if one is needed.
    pub(super) fn add(
        &self,
        (connection, schema): (&Config, &SchemaName),
        (id, lease): (i64, &Arc<HeldLease>),
        (client, runtime): (Client, &Handle),
    ) {
        let lease = (id, Arc::clone(lease));
        let mut schemas = self.schemas.lock();
        schemas.retain(|it| !it.held.lock().is_over);
        let known = schemas.iter().find(|it| it.connection == *connection && it.schema == *schema);
        if let Some(known) = known {
            let mut held = known.held.lock();
            // It may have ended since.
            if !held.is_over {
                held.leases.push(lease);
                known.changed.notify_one();
                return;
            }
        }
        let held = RenewedLeases { leases: vec![lease], is_over: false };
        let new = Arc::new(RenewedSchema {
            connection: connection.clone(),
            schema: schema.clone(),
            held: Mutex::new(held),
            changed: Notify::new(),
        });
        schemas.push(Arc::clone(&new));
        runtime.spawn(keep_renewed(new, client, runtime.clone()));
    }

    /// A lease was given back: a connection that no other needs is closed.
    pub(super) fn removed(&self) {
        self.schemas.lock().iter().for_each(|schema| schema.changed.notify_one());
    }

    /// The number of connections.
    #[cfg(feature = "internals")]
    pub fn connections(&self) -> usize {
        self.schemas.lock().iter().filter(|it| !it.held.lock().is_over).count()
    }
}

impl RenewedSchema {
    /// The leases that are not lost; none if the task has to end.
    fn held(&self) -> Vec<(i64, Arc<HeldLease>)> {
        let mut held = self.held.lock();
        held.leases.retain(|(_, lease)| !lease.is_lost());
        held.is_over = held.leases.is_empty();
        held.leases.clone()
    }
}

/// The time between two renewals of a lease.
fn period(lease: &HeldLease) -> Duration {
    lease.term() / 4
}

/// Whether a lease is to be renewed now, with others that are.
fn is_renewed_now(lease: &HeldLease, now: LeaseTime, was_late: bool) -> bool {
    let since = lease.since_renewal(now);
    let is_busy = lease.is_shipping() && (was_late || since < lease.term() / 2);
    // Soon due, or due.
    since >= period(lease) / 2 && !is_busy
}

/// Renews leases until all are lost.
async fn keep_renewed(schema: Arc<RenewedSchema>, client: Client, runtime: Handle) {
    let (mut known, mut is_away, mut was_late) = (Some(client), false, false);
    loop {
        let held = schema.held();
        let now = LeaseTime::now();
        let left = |lease: &HeldLease| period(lease).saturating_sub(lease.since_renewal(now));
        let Some(due) = held.iter().map(|(_, lease)| left(lease)).min() else { return };
        if !due.is_zero() {
            let _changed = tokio::time::timeout(due, schema.changed.notified()).await;
            continue;
        }
        let shortest = held.iter().map(|(_, lease)| period(lease)).min().unwrap_or_default();
        let renewed = held.into_iter().filter(|(_, it)| is_renewed_now(it, now, was_late));
        let renewed: Vec<_> = renewed.collect();
        if renewed.is_empty() {
            // Their batches renew them.
            was_late = false;
            tokio::time::sleep(shortest / 8).await;
            continue;
        }
        let client = known.take().filter(|client| !client.is_closed());
        // A connection takes several round trips.
        let limit = if client.is_some() { shortest } else { shortest * 2 };
        let renewing = async {
            let client = match client {
                Some(client) => client,
                None => connect(&schema.patient_connection(shortest), &runtime).await?,
            };
            renew(&client, &schema.schema, &renewed).await?;
            Ok::<_, HoldError>(client)
        };
        let done = tokio::time::timeout(limit, renewing).await;
        was_late = done.is_err();
        match done {
            Ok(Ok(client)) => {
                known = Some(client);
                if std::mem::take(&mut is_away) {
                    tracing::info!("the database answers again");
                }
                continue;
            }
            Ok(Err(error)) if !is_away => {
                tracing::warn!(%error, "the database does not renew the leases of sessions");
            }
            Err(_) if !is_away => {
                tracing::warn!("the database does not answer in time to renew leases of sessions");
            }
            Ok(Err(_)) | Err(_) => {}
        }
        COUNTERS.database.failed_renewals.add(1);
        is_away = true;
        tokio::time::sleep(shortest / 4).await;
    }
}

impl RenewedSchema {
    /// How to connect, with a bound on the time for each host.
    fn patient_connection(&self, shortest: Duration) -> Config {
        let mut connection = self.connection.clone();
        if connection.get_connect_timeout().is_none() {
            connection.connect_timeout(MIN_CONNECT_TIMEOUT.max(shortest));
        }
        connection
    }
}
