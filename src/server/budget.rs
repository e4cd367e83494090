//! Room for requests and replies: counted, so that no client can take the server's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits::{MAX_STRANGER_REQUEST_BYTES, SMALL_REPLY_BYTES, SMALL_REQUEST_BYTES};

/// Counts what is in flight, on one connection or on all together.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    requests: Arc<Semaphore>,
    /// Room for the first request of each connection, whatever others have in flight.
    first_requests: Arc<Semaphore>,
    request_bytes: Arc<Semaphore>,
    /// Room for the large requests of connections that had no sound call answered.
    stranger_bytes: Arc<Semaphore>,
    reply_bytes: Arc<Semaphore>,
    /// How many wait for room.
    waiting: Arc<AtomicUsize>,
    max_requests: usize,
    max_first_requests: usize,
    max_reply_bytes: usize,
}

/// Room that was taken; given back when dropped.
#[derive(Debug, Default)]
pub(super) struct Room {
    permits: [Option<OwnedSemaphorePermit>; 2],
}

impl Budget {
    /// Makes room for `requests` requests with `request_bytes`, and `reply_bytes` of replies.
    pub(super) fn new(requests: usize, request_bytes: usize, reply_bytes: usize) -> Self {
        Self {
            requests: Arc::new(Semaphore::new(requests)),
            first_requests: Arc::new(Semaphore::new(0)),
            request_bytes: Arc::new(Semaphore::new(request_bytes)),
            stranger_bytes: Arc::new(Semaphore::new(MAX_STRANGER_REQUEST_BYTES)),
            reply_bytes: Arc::new(Semaphore::new(reply_bytes)),
            waiting: Arc::default(),
            max_requests: requests,
            max_first_requests: 0,
            max_reply_bytes: reply_bytes,
        }
    }

    /// Keeps room for one request of each of so many connections besides.
    pub(super) fn with_first_requests(self, connections: usize) -> Self {
        let first_requests = Arc::new(Semaphore::new(connections));
        Self { first_requests, max_first_requests: connections, ..self }
    }

    /// Whether somebody waits for room here: then it must not be held for nothing.
    pub(super) fn is_crowded(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether no request is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.available_permits() == self.max_requests
            && self.first_requests.available_permits() == self.max_first_requests
    }

    /// Returns once no request is in flight, and lets none begin afterwards.
    pub(super) async fn drain(&self) {
        for (requests, max) in
            [(&self.requests, self.max_requests), (&self.first_requests, self.max_first_requests)]
        {
            if let Ok(permits) = requests.acquire_many(weight(max)).await {
                permits.forget();
            }
        }
    }

    /// Waits for room for one request, here and in `overall`.
    ///
    /// All that a request holds of one kind it takes at once, and its own connection's room
    /// before the overall one: so nobody waits for somebody who waits for them.
    pub(super) async fn take_request(&self, overall: &Self) -> Room {
        let kept = self.is_idle().then(|| overall.first_requests.clone().try_acquire_owned());
        let own = self.take(&self.requests, 1).await;
        let all = match kept {
            Some(Ok(kept)) => Some(kept),
            // Not the first, or connections that are closed still have theirs in flight.
            Some(Err(_)) | None => overall.take(&overall.requests, 1).await,
        };
        Room { permits: [own, all] }
    }

    /// Waits for room for `bytes` bytes of a request, here and in `overall`; `is_known` says
    /// whether the connection had a sound call answered.
    ///
    /// A small one does not wait, so that no clients that are slow to send their large ones stop
    /// everybody: connections and requests are counted, and bound what all small ones take.
    pub(super) async fn take_request_bytes(
        &self,
        overall: &Self,
        bytes: usize,
        is_known: bool,
    ) -> Room {
        if bytes <= SMALL_REQUEST_BYTES {
            return Room::default();
        }
        let own = self.take(&self.request_bytes, bytes).await;
        let theirs = if is_known { &overall.request_bytes } else { &overall.stranger_bytes };
        let all = overall.take(theirs, bytes).await;
        Room { permits: [own, all] }
    }

    /// Waits for room for `bytes` bytes of a reply, here and in `overall`; not for a small one,
    /// as with requests.
    pub(super) async fn take_reply_bytes(&self, overall: &Self, bytes: usize) -> Room {
        if bytes <= SMALL_REPLY_BYTES {
            return Room::default();
        }
        let own = self.take(&self.reply_bytes, bytes.min(self.max_reply_bytes)).await;
        let most = bytes.min(overall.max_reply_bytes);
        let all = overall.take(&overall.reply_bytes, most).await;
        Room { permits: [own, all] }
    }

    /// Waits for `amount` permits of a semaphore of this budget.
    async fn take(&self, of: &Arc<Semaphore>, amount: usize) -> Option<OwnedSemaphorePermit> {
        let amount = weight(amount);
        if let Ok(permit) = of.clone().try_acquire_many_owned(amount) {
            return Some(permit);
        }
        let _counted = Waiting::new(&self.waiting);
        // The semaphores are never closed, so there is always an answer.
        of.clone().acquire_many_owned(amount).await.ok()
    }
}

impl Room {
    /// Gives back what is taken above `bytes` bytes of a reply; all of it for a small one.
    pub(super) fn shrink(&mut self, bytes: usize) {
        let kept = if bytes <= SMALL_REPLY_BYTES { 0 } else { bytes };
        for permit in self.permits.iter_mut().flatten() {
            drop(permit.split(permit.num_permits().saturating_sub(kept)));
        }
    }
}

/// Counted as waiting for as long as this is.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn weight(amount: usize) -> u32 {
    u32::try_from(amount).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reply_that_turns_out_small_keeps_no_room() {
        let (own, overall) = (Budget::new(1, 1, 9000), Budget::new(1, 1, 9000));
        let mut large = own.take_reply_bytes(&overall, 9000).await;
        assert_eq!(overall.reply_bytes.available_permits(), 0);
        large.shrink(5000);
        assert_eq!(overall.reply_bytes.available_permits(), 4000);
        assert_eq!(own.reply_bytes.available_permits(), 4000);
        large.shrink(SMALL_REPLY_BYTES);
        assert_eq!(overall.reply_bytes.available_permits(), 9000);
        drop(large);
        assert_eq!(own.reply_bytes.available_permits(), 9000);
    }
}
