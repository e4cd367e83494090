//! Renews leases: one statement, over one connection, for all sessions of a server in one schema.
//!
//! A batch locks the row of its session until it is committed, and renews the lease itself. A
//! statement that waits for such a row would hold the rows of others locked. So a session with a
//! batch on its way is left out; after half of its term it is renewed apart, as the connection of
//! the batch may be dead.

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

/// Sessions of one schema that are renewed apart at once, each over a connection of its own.
const MAX_APART: usize = 8;

/// The shortest pause between two looks at the leases.
const MIN_PAUSE: Duration = Duration::from_millis(10);

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
    /// The sessions that are being renewed apart.
    apart: Vec<i64>,
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
        let held = RenewedLeases { leases: vec![lease], ..RenewedLeases::default() };
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

/// Renews leases until all are lost.
async fn keep_renewed(schema: Arc<RenewedSchema>, client: Client, runtime: Handle) {
    let (mut known, mut is_away) = (Some(client), false);
    loop {
        let held = schema.held();
        let Some(shortest) = held.iter().map(|(_, lease)| period(lease)).min() else { return };
        let (busy, quiet): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|(_, lease)| lease.is_shipping());
        let busy_due = schema.renew_slow(&busy, &runtime);
        let now = LeaseTime::now();
        let left = |lease: &HeldLease| period(lease).saturating_sub(lease.since_renewal(now));
        let quiet_due = quiet.iter().map(|(_, lease)| left(lease)).min();
        if quiet_due != Some(Duration::ZERO) {
            let due = quiet_due.into_iter().chain(busy_due).min().unwrap_or(shortest);
            let due = due.clamp(MIN_PAUSE, shortest);
            let _changed = tokio::time::timeout(due, schema.changed.notified()).await;
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
            renew(&client, &schema.schema, &quiet).await?;
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
    /// Renews those of `busy` apart whose batch takes long; returns the time until the next one is
    /// due.
    fn renew_slow(
        self: &Arc<Self>,
        busy: &[(i64, Arc<HeldLease>)],
        runtime: &Handle,
    ) -> Option<Duration> {
        let (now, mut held) = (LeaseTime::now(), self.held.lock());
        let mut due = None;
        for (id, lease) in busy {
            if held.apart.contains(id) {
                continue;
            }
            let left = (lease.term() / 2).saturating_sub(lease.since_renewal(now));
            if left.is_zero() && held.apart.len() < MAX_APART {
                held.apart.push(*id);
                let one = (*id, Arc::clone(lease));
                runtime.spawn(Arc::clone(self).renew_apart(one, runtime.clone()));
            } else {
                due = due.into_iter().chain([left]).min();
            }
        }
        due
    }

    async fn renew_apart(self: Arc<Self>, one: (i64, Arc<HeldLease>), runtime: Handle) {
        let (id, limit) = (one.0, one.1.term() / 2);
        let renewing = async {
            let client = connect(&self.patient_connection(limit), &runtime).await?;
            renew(&client, &self.schema, &[one]).await?;
            Ok::<_, HoldError>(())
        };
        match tokio::time::timeout(limit, renewing).await {
            Ok(Ok(())) => {}
            failed => {
                COUNTERS.database.failed_renewals.add(1);
                if let Ok(Err(error)) = failed {
                    tracing::debug!(%error, "the lease of a session with a slow batch stays");
                }
            }
        }
        self.held.lock().apart.retain(|it| *it != id);
    }

    /// How to connect, with a bound on the time for each host.
    fn patient_connection(&self, shortest: Duration) -> Config {
        let mut connection = self.connection.clone();
        if connection.get_connect_timeout().is_none() {
            connection.connect_timeout(MIN_CONNECT_TIMEOUT.max(shortest));
        }
        connection
    }
}
