//! Room for requests and replies: counted, so that no client can take the server's memory.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits::{SMALL_REPLY_BYTES, SMALL_REQUEST_BYTES};

/// Counts what is in flight, on one connection or on all together.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    requests: Arc<Semaphore>,
    request_bytes: Arc<Semaphore>,
    reply_bytes: Arc<Semaphore>,
    max_requests: usize,
    max_reply_bytes: usize,
}

/// Room that was taken; given back when dropped.
#[derive(Debug, Default)]
pub(super) struct Room {
    _permits: [Option<OwnedSemaphorePermit>; 2],
}

impl Budget {
    /// Makes room for `requests` requests with `request_bytes`, and `reply_bytes` of replies.
    pub(super) fn new(requests: usize, request_bytes: usize, reply_bytes: usize) -> Self {
        Self {
            requests: Arc::new(Semaphore::new(requests)),
            request_bytes: Arc::new(Semaphore::new(request_bytes)),
            reply_bytes: Arc::new(Semaphore::new(reply_bytes)),
            max_requests: requests,
            max_reply_bytes: reply_bytes,
        }
    }

    /// Whether no request is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.available_permits() == self.max_requests
    }

    /// Returns once no request is in flight, and lets none begin afterwards.
    pub(super) async fn drain(&self) {
        if let Ok(permits) = self.requests.acquire_many(weight(self.max_requests)).await {
            permits.forget();
        }
    }

    /// Waits for room for one request, here and in `overall`.
    ///
    /// All that a request holds of one kind it takes at once, and its own connection's room
    /// before the overall one: so nobody waits for somebody who waits for them.
    pub(super) async fn take_request(&self, overall: &Self) -> Room {
        let own = take(&self.requests, 1).await;
        let all = take(&overall.requests, 1).await;
        Room { _permits: [own, all] }
    }

    /// Waits for room for `bytes` bytes of a request, here and in `overall`.
    ///
    /// A small one does not wait, so that no clients that are slow to send their large ones stop
    /// everybody: connections and requests are counted, and bound what all small ones take.
    pub(super) async fn take_request_bytes(&self, overall: &Self, bytes: usize) -> Room {
        if bytes <= SMALL_REQUEST_BYTES {
            return Room::default();
        }
        let own = take(&self.request_bytes, bytes).await;
        let all = take(&overall.request_bytes, bytes).await;
        Room { _permits: [own, all] }
    }

    /// Waits for room for `bytes` bytes of a reply, here and in `overall`; not for a small one,
    /// as with requests.
    pub(super) async fn take_reply_bytes(&self, overall: &Self, bytes: usize) -> Room {
        if bytes <= SMALL_REPLY_BYTES {
            return Room::default();
        }
        let own = take(&self.reply_bytes, bytes.min(self.max_reply_bytes)).await;
        let all = take(&overall.reply_bytes, bytes.min(overall.max_reply_bytes)).await;
        Room { _permits: [own, all] }
    }
}

/// Waits for `amount` permits. The semaphores are never closed, so there is always an answer.
async fn take(semaphore: &Arc<Semaphore>, amount: usize) -> Option<OwnedSemaphorePermit> {
    semaphore.clone().acquire_many_owned(weight(amount)).await.ok()
}

fn weight(amount: usize) -> u32 {
    u32::try_from(amount).unwrap_or(u32::MAX)
}
