//! The schedule of background work, which runs in pieces between operations.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
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

    /// Waits before the first piece: for a wake-up, but no longer than `pause`.
    pub async fn begin_after(&self, pause: Duration) {
        let _in_time = tokio::time::timeout(pause, self.0.notified()).await;
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

/// Waits until changes are followed by no other for some time. No timer runs without a change.
#[derive(Debug)]
pub struct QuietGap {
    gap: Duration,
    /// The last change that [`QuietGap::wait`] has not answered.
    last: Mutex<Option<Instant>>,
    noted: Notify,
}

impl QuietGap {
    /// A gap of this length.
    pub fn new(gap: Duration) -> Self {
        Self { gap, last: Mutex::new(None), noted: Notify::new() }
    }

    /// A change was made: the gap begins.
    pub fn note(&self) {
        if self.last.lock().replace(Instant::now()).is_none() {
            self.noted.notify_one();
        }
    }

    /// Returns once there was a change since it returned last, and none for the gap.
    pub async fn wait(&self) {
        loop {
            let last = *self.last.lock();
            let Some(last) = last else {
                self.noted.notified().await;
                continue;
            };
            tokio::time::sleep(self.gap.saturating_sub(last.elapsed())).await;
            let mut now = self.last.lock();
            if *now == Some(last) && last.elapsed() >= self.gap {
                *now = None;
                return;
            }
        }
    }
}
