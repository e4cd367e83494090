//! Work that nobody waits for, done piece by piece beside the operations.

use std::time::Duration;

use tokio::sync::Notify;

/// How long after it was woken the work begins: whoever woke it may be about to wait for a sync.
const DELAY: Duration = Duration::from_millis(20);

/// How long after a piece that failed the next is tried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How long after a piece that is not due yet the next is tried.
const LATER_INTERVAL: Duration = Duration::from_millis(100);

/// What a piece of background work came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackgroundPiece {
    /// It is done, and there may be more.
    More,
    /// There is nothing to do.
    Idle,
    /// There is something to do, but not yet.
    Later,
    /// It failed; later it may not.
    Failed,
    /// It will never be possible again.
    Over,
}

/// When the next piece of background work is to be done: at first, and whenever woken.
///
/// A piece that is an operation of the [`Worker`](super::Worker) stands in the queue like any
/// other: so the work ends however busy the writer is, and no operation waits for more than one
/// piece.
#[derive(Debug, Default)]
pub struct Background(Notify);

impl Background {
    /// Says that there may be something to do.
    pub fn wake(&self) {
        self.0.notify_one();
    }

    /// Waits, after a piece, until the next one is to be done; `false` if there is none.
    pub async fn next_after(&self, piece: BackgroundPiece) -> bool {
        match piece {
            BackgroundPiece::More => {}
            BackgroundPiece::Idle => {
                self.0.notified().await;
                tokio::time::sleep(DELAY).await;
            }
            BackgroundPiece::Later => tokio::time::sleep(LATER_INTERVAL).await,
            BackgroundPiece::Failed => tokio::time::sleep(RETRY_INTERVAL).await,
            BackgroundPiece::Over => return false,
        }
        true
    }
}
