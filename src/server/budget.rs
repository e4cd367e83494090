//! Room for requests and replies on all connections together: counted, so that no client can take
//! the server's memory. What each connection has of its own besides is in `share`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits::{
    Limits, MAX_CONNECTION_REPLY_BYTES, MAX_NEWCOMER_REPLY_BYTES, MAX_REPLY_BYTES,
    MAX_REQUEST_BYTES, MAX_STRANGER_REQUEST_BYTES,
};

/// Counts what is in flight on all connections together.
#[derive(Debug)]
pub(super) struct Budget {
    requests: Arc<Semaphore>,
    max_requests: usize,
    /// Room for the first request of each connection, whatever others have in flight.
    first_requests: Arc<Semaphore>,
    max_first_requests: usize,
    request_bytes: Arc<Semaphore>,
    /// Room for the large requests of connections that had no sound call answered.
    stranger_bytes: Arc<Semaphore>,
    reply_bytes: Arc<Semaphore>,
    /// How much of it connections may have that have not shown that they take their replies.
    newcomer_bytes: Arc<Semaphore>,
    /// Connections that have some of it.
    reply_holders: Arc<AtomicUsize>,
    /// How many wait for bytes of a request.
    waiting_for_bytes: AtomicUsize,
    /// How many wait for other room.
    waiting: AtomicUsize,
    /// How often there was less room for a reply than was asked for.
    shortages: AtomicUsize,
}

/// How often replies had to be short until a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shortages(usize);

impl Budget {
    /// Makes all the room that `limits` and their constants give.
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            requests: Arc::new(Semaphore::new(limits.requests)),
            max_requests: limits.requests,
            first_requests: Arc::new(Semaphore::new(limits.connections)),
            max_first_requests: limits.connections,
            request_bytes: Arc::new(Semaphore::new(MAX_REQUEST_BYTES)),
            stranger_bytes: Arc::new(Semaphore::new(MAX_STRANGER_REQUEST_BYTES)),
            reply_bytes: Arc::new(Semaphore::new(MAX_REPLY_BYTES)),
            newcomer_bytes: Arc::new(Semaphore::new(MAX_NEWCOMER_REPLY_BYTES)),
            reply_holders: Arc::default(),
            waiting_for_bytes: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            shortages: AtomicUsize::new(0),
        }
    }

    /// How often replies had to be short until now.
    pub(super) fn shortages(&self) -> Shortages {
        Shortages(self.shortages.load(Ordering::Relaxed))
    }

    /// Whether somebody waits for bytes of a request: they must not be held for nothing.
    pub(super) fn lacks_request_bytes(&self) -> bool {
        self.waiting_for_bytes.load(Ordering::Relaxed) > 0
    }

    /// Whether somebody waits for what a request and its reply hold until that is sent, or, if the
    /// reply has some of the common room, had to be short since it began.
    pub(super) fn is_crowded(&self, since: Shortages, is_common: bool) -> bool {
        self.lacks_request_bytes()
            || self.waiting.load(Ordering::Relaxed) > 0
            || (is_common && self.shortages().0 != since.0)
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

    /// Lets nobody wait for room any more: what is given up would else be woken one by one, each
    /// by the end of the one before.
    pub(super) fn close(&self) {
        let of_requests = [&self.requests, &self.first_requests, &self.request_bytes];
        let others = [&self.stranger_bytes, &self.reply_bytes, &self.newcomer_bytes];
        of_requests.into_iter().chain(others).for_each(|room| room.close());
    }

    /// Room for a connection's first request, unless connections that are closed still have
    /// theirs in flight.
    pub(super) fn try_first_request(&self) -> Option<OwnedSemaphorePermit> {
        self.first_requests.clone().try_acquire_owned().ok()
    }

    /// Waits for room for a request that is not its connection's first.
    pub(super) async fn take_request(&self) -> Option<OwnedSemaphorePermit> {
        take(&self.requests, 1, &self.waiting).await
    }

    /// Room for `bytes` bytes of a request, if there is some now; `is_known` says whether the
    /// connection had a sound call answered.
    pub(super) fn try_request_bytes(
        &self,
        bytes: usize,
        is_known: bool,
    ) -> Option<OwnedSemaphorePermit> {
        try_take(self.request_bytes_of(is_known), bytes)
    }

    /// Waits for room for `bytes` bytes of a request.
    pub(super) async fn take_request_bytes(
        &self,
        bytes: usize,
        is_known: bool,
    ) -> Option<OwnedSemaphorePermit> {
        take(self.request_bytes_of(is_known), bytes, &self.waiting_for_bytes).await
    }

    fn request_bytes_of(&self, is_known: bool) -> &Arc<Semaphore> {
        if is_known { &self.request_bytes } else { &self.stranger_bytes }
    }

    /// What a connection that has some of the room for replies may have of it, in bytes: as much
    /// as each other one, so that a few busy ones leave none of them with short replies.
    pub(super) fn fair_reply_bytes(&self) -> usize {
        let holders = self.reply_holders.load(Ordering::Relaxed).max(1);
        (MAX_REPLY_BYTES / holders).min(MAX_CONNECTION_REPLY_BYTES)
    }

    /// Room for `bytes` bytes of a reply, if there is some now; `is_newcomer` says whether the
    /// connection has yet to show that it takes its replies.
    pub(super) fn try_reply_bytes(&self, bytes: usize, is_newcomer: bool) -> Option<Common> {
        let newcomers = is_newcomer.then(|| try_take(&self.newcomer_bytes, bytes));
        let common = try_take(&self.reply_bytes, bytes);
        if common.is_none() || matches!(newcomers, Some(None)) {
            self.shortages.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.common([newcomers.flatten(), common]))
    }

    /// Waits for room for `bytes` bytes of a reply.
    pub(super) async fn take_reply_bytes(&self, bytes: usize, is_newcomer: bool) -> Common {
        let waiting = &self.waiting;
        let newcomers = match is_newcomer {
            true => {
                let most = bytes.min(MAX_NEWCOMER_REPLY_BYTES);
                take(&self.newcomer_bytes, most, waiting).await
            }
            false => None,
        };
        let common = take(&self.reply_bytes, bytes.min(MAX_REPLY_BYTES), waiting).await;
        self.common([newcomers, common])
    }

    fn common(&self, permits: [Option<OwnedSemaphorePermit>; 2]) -> Common {
        Common { permits, holders: Arc::clone(&self.reply_holders) }
    }
}

/// Room for a reply that all connections share; given back when dropped.
#[derive(Debug)]
pub(super) struct Common {
    permits: [Option<OwnedSemaphorePermit>; 2],
    holders: Arc<AtomicUsize>,
}

impl Common {
    /// Counts the connection as one that has some of it.
    pub(super) fn begin(&self) {
        self.holders.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts it no more.
    pub(super) fn end(&self) {
        self.holders.fetch_sub(1, Ordering::Relaxed);
    }

    /// Gives back what is taken above `bytes` bytes.
    pub(super) fn shrink(&mut self, bytes: usize) {
        for permit in self.permits.iter_mut().flatten() {
            drop(permit.split(permit.num_permits().saturating_sub(bytes)));
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

/// Waits for `amount` permits, and counts as waiting meanwhile.
async fn take(
    of: &Arc<Semaphore>,
    amount: usize,
    waiting: &AtomicUsize,
) -> Option<OwnedSemaphorePermit> {
    if let Some(permit) = try_take(of, amount) {
        return Some(permit);
    }
    let _counted = Waiting::new(waiting);
    // Closed, they let everybody go on without.
    of.clone().acquire_many_owned(weight(amount)).await.ok()
}

/// Takes `amount` permits, if they are there.
pub(super) fn try_take(of: &Arc<Semaphore>, amount: usize) -> Option<OwnedSemaphorePermit> {
    of.clone().try_acquire_many_owned(weight(amount)).ok()
}

/// An amount as semaphores count it.
pub(super) fn weight(amount: usize) -> u32 {
    u32::try_from(amount).unwrap_or(u32::MAX)
}
