//! Keeps the replica of a session up to date while another server has the session, so that a
//! takeover has little to fetch.

use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::database::of_hold;
use super::error::{Error, Result};
use super::replicas::bring_up_to_date;
use crate::delta::postgres::{Followed, HoldError, SessionUrl, connect, find, follow};
use crate::delta::sqlite::FollowingReplica;
use crate::inspect::opened::host;

/// Time between two looks for new batches.
const POLL: Duration = Duration::from_millis(250);

/// Time until the next attempt after a failure.
const RETRY: Duration = Duration::from_secs(2);

/// A thread that follows a session.
pub(super) struct SessionFollower {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl SessionFollower {
    /// Follows the session from now on, with a replica in the directory `dir`; `None` if no thread
    /// can be started: the takeover fetches all, then.
    pub(super) fn start(url: &SessionUrl, dir: &Path, runtime: &Handle) -> Option<Self> {
        let (stop, stopped) = oneshot::channel();
        let (url, dir, runtime) = (url.clone(), dir.to_owned(), runtime.clone());
        let follow = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = keep_following(&url, &dir, &runtime) => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = thread::Builder::new().name("acetate-follow".to_owned()).spawn(follow);
        let thread = thread.inspect_err(|error| tracing::warn!(%error, "cannot follow")).ok()?;
        Some(Self { stop, thread })
    }

    /// Stops, and closes the replica. Blocks for one transaction at most.
    pub(super) fn end(self) {
        // It has ended if nothing receives this.
        let _ = self.stop.send(());
        // A panic was logged.
        let _ = self.thread.join();
    }
}

/// Follows, whatever fails.
async fn keep_following(url: &SessionUrl, dir: &Path, runtime: &Handle) {
    let mut is_failing = false;
    loop {
        match follow_one(url, dir, runtime, &mut is_failing).await {
            Ok(()) => {
                tokio::time::sleep(POLL).await;
                continue;
            }
            Err(error) if !is_failing => {
                tracing::warn!(%error, "the replica does not follow; trying again");
            }
            Err(_) => {}
        }
        is_failing = true;
        tokio::time::sleep(RETRY).await;
    }
}

/// Follows until the replica has to be made again.
async fn follow_one(
    url: &SessionUrl,
    dir: &Path,
    runtime: &Handle,
    is_failing: &mut bool,
) -> Result<()> {
    let failed = |error: HoldError| of_hold(url, error);
    let client = connect(&url.connection, runtime).await;
    let mut client = client.map_err(|error| failed(error.into()))?;
    let row = find(&client, url).await.map_err(|error| failed(error.into()))?;
    let path: PathBuf = {
        let (path, _session, _) = bring_up_to_date((url, &row), dir, runtime).await?;
        path
    };
    let Some((mut replica, mut mark)) = FollowingReplica::open(&path, &host()?)? else {
        return Ok(());
    };
    tracing::info!(batch = mark.seq, "the replica is up to date, and follows");
    loop {
        let next = follow(&mut client, (&url.schema, row.id), &mut replica, mark).await;
        let next = next.map_err(|source| Error::Hydration {
            path: path.clone(),
            source: Box::new(source.into()),
        })?;
        let Followed::UpTo(next) = next else { return Ok(()) };
        (mark, *is_failing) = (next, false);
        tokio::time::sleep(POLL).await;
    }
}
