//! The schedule of background work, which runs in pieces between operations.

use std::time::Duration;

use tokio::sync::Notify;

/// Delay of the work after a wake-up: the waking caller may be about to wait for a sync.
const DELAY: Duration = Duration::from_millis(20);

/// Delay after a failed piece.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Delay after a piece that was not due yet.
const LATER_INTERVAL: Duration = Duration::from_millis(100);

/// The outcome of a piece of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackgroundPiece {
    /// Done; there may be more.
    More,
    /// There is no work.
    Idle,
    /// There is work that is not due yet.
    NotDue,
    /// The piece failed; a retry may succeed.
    Failed,
    /// No further piece can succeed.
    Finished,
}

/// The schedule of one kind of background work: it runs at the start and after each wake-up.
///
/// A piece that is an operation of the [`Worker`](super::Worker) is queued like any other. So the
/// work completes however busy the writer is, and an operation waits for at most one piece.
#[derive(Debug, Default)]
pub struct Background(Notify);

impl Background {
    /// Signals that there may be work.
    pub fn wake(&self) {
        self.0.notify_one();
    }

    /// Waits after `piece` until the next one is due; `false` if there is none.
    pub async fn next_after(&self, piece: BackgroundPiece) -> bool {
        match piece {
            BackgroundPiece::More => {}
            BackgroundPiece::Idle => {
                self.0.notified().await;
                tokio::time::sleep(DELAY).await;
            }
            BackgroundPiece::NotDue => tokio::time::sleep(LATER_INTERVAL).await,
            BackgroundPiece::Failed => tokio::time::sleep(RETRY_INTERVAL).await,
            BackgroundPiece::Finished => return false,
        }
        true
    }
}
