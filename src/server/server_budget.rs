//! Bounds the requests and replies in flight on all connections together, so that no client can
//! exhaust the server's memory. Each bound is divided among client addresses (`address_pool`). The
//! reserve of each connection is in `connection_budget`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::address_pool::{AddressPool, AddressUse, PoolKind, PoolPermit, permit_count};
use super::limits::{
    Limits, MAX_CONNECTION_REPLY_BYTES, MAX_REPLY_BYTES, MAX_REQUEST_BYTES,
    MAX_UNPROVEN_REPLY_BYTES, MAX_UNVALIDATED_REQUEST_BYTES,
};
use super::monitor::PoolFigures;

/// The requests and replies in flight on all connections together.
#[derive(Debug)]
pub(super) struct ServerBudget {
    requests: AddressPool,
    /// One permit for each connection's first request, however many others are in flight.
    first_requests: Arc<Semaphore>,
    max_first_requests: usize,
    request_bytes: AddressPool,
    /// Bytes of large requests of connections without a valid call so far.
    unvalidated_bytes: AddressPool,
    reply_bytes: AddressPool,
    /// The part of `reply_bytes` for connections that have yet to prove that they read their
    /// replies.
    unproven_bytes: AddressPool,
    /// The number of addresses that hold some of `reply_bytes`.
    reply_addresses: Arc<AtomicUsize>,
    /// The number of requests that wait for request bytes.
    waiting_for_bytes: AtomicUsize,
    /// The number of requests and replies that wait for anything else.
    waiting: AtomicUsize,
    /// How often a reply got fewer bytes than it requested.
    reply_pressure: AtomicUsize,
}

/// The value of the counter of shortened replies at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplyPressure(usize);

impl ServerBudget {
    /// The full budget, as set by `limits` and the module's constants.
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            requests: AddressPool::new(PoolKind::Requests, limits.requests),
            first_requests: Arc::new(Semaphore::new(limits.connections)),
            max_first_requests: limits.connections,
            request_bytes: AddressPool::new(PoolKind::RequestBytes, MAX_REQUEST_BYTES),
            unvalidated_bytes: AddressPool::new(
                PoolKind::UnvalidatedBytes,
                MAX_UNVALIDATED_REQUEST_BYTES,
            ),
            reply_bytes: AddressPool::new(PoolKind::ReplyBytes, MAX_REPLY_BYTES),
            unproven_bytes: AddressPool::new(PoolKind::UnprovenBytes, MAX_UNPROVEN_REPLY_BYTES),
            reply_addresses: Arc::default(),
            waiting_for_bytes: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            reply_pressure: AtomicUsize::new(0),
        }
    }

    /// The counter of shortened replies, to pass to [`ServerBudget::is_under_pressure`].
    pub(super) fn reply_pressure(&self) -> ReplyPressure {
        ReplyPressure(self.reply_pressure.load(Ordering::Relaxed))
    }

    /// Whether a request waits for request bytes; the holders of bytes then have less time.
    pub(super) fn lacks_request_bytes(&self) -> bool {
        self.waiting_for_bytes.load(Ordering::Relaxed) > 0
    }

    /// Whether anything waits for memory that a request and its reply hold. With a shared permit,
    /// also whether a reply was shortened after `since`.
    pub(super) fn is_under_pressure(&self, since: ReplyPressure, is_common: bool) -> bool {
        self.lacks_request_bytes()
            || self.waiting.load(Ordering::Relaxed) > 0
            || (is_common && self.reply_pressure().0 != since.0)
    }

    /// Whether no request is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_whole()
            && self.first_requests.available_permits() == self.max_first_requests
    }

    /// The number of requests in flight, and its limit.
    pub(super) fn in_flight(&self) -> (usize, usize) {
        let (used, max) = self.requests.used();
        let first = self.max_first_requests.saturating_sub(self.first_requests.available_permits());
        (used + first, max + self.max_first_requests)
    }

    /// The pools of bytes.
    pub(super) fn pools(&self) -> Vec<PoolFigures> {
        let pools = [
            ("requests", &self.request_bytes),
            ("unvalidated_requests", &self.unvalidated_bytes),
            ("replies", &self.reply_bytes),
            ("unproven_replies", &self.unproven_bytes),
        ];
        let figures = pools.into_iter().map(|(name, pool)| {
            let (used, max) = pool.used();
            PoolFigures { name, used, max }
        });
        figures.collect()
    }

    /// How often a request or a reply waited, or a reply was shortened, by reason.
    pub(super) fn waits(&self) -> [(&'static str, u64); 4] {
        [
            ("requests", self.requests.waits()),
            ("request_memory", self.request_bytes.waits() + self.unvalidated_bytes.waits()),
            ("reply_memory", self.reply_bytes.waits() + self.unproven_bytes.waits()),
            ("short_reply", self.reply_pressure.load(Ordering::Relaxed) as u64),
        ]
    }

    /// Returns once no request is in flight; none can start afterwards.
    pub(super) async fn drain(&self) {
        self.requests.drain().await;
        let first = self.first_requests.acquire_many(permit_count(self.max_first_requests));
        if let Ok(permits) = first.await {
            permits.forget();
        }
    }

    /// Ends all waiting at once; otherwise each waiter would wake only when the one before ends.
    pub(super) fn close(&self) {
        self.first_requests.close();
        let of_requests = [&self.requests, &self.request_bytes, &self.unvalidated_bytes];
        let of_replies = [&self.reply_bytes, &self.unproven_bytes];
        of_requests.into_iter().chain(of_replies).for_each(AddressPool::close);
    }

    /// A permit for a connection's first request. `None` if closed connections still hold theirs.
    pub(super) fn try_first_request(&self) -> Option<OwnedSemaphorePermit> {
        self.first_requests.clone().try_acquire_owned().ok()
    }

    /// Waits for a permit for a request that is not its connection's first.
    pub(super) async fn take_request(&self, address: &Arc<AddressUse>) -> Option<PoolPermit> {
        self.requests.take(address, 1, &self.waiting).await
    }

    /// A permit for `bytes` bytes of a request, if they are free now; `has_valid_call` says whether
    /// a valid call of the connection was answered.
    pub(super) fn try_request_bytes(
        &self,
        address: &Arc<AddressUse>,
        bytes: usize,
        has_valid_call: bool,
    ) -> Option<PoolPermit> {
        self.request_bytes_of(has_valid_call).try_take(address, bytes)
    }

    /// Waits for a permit for `bytes` bytes of a request.
    pub(super) async fn take_request_bytes(
        &self,
        address: &Arc<AddressUse>,
        bytes: usize,
        has_valid_call: bool,
    ) -> Option<PoolPermit> {
        self.request_bytes_of(has_valid_call).take(address, bytes, &self.waiting_for_bytes).await
    }

    fn request_bytes_of(&self, has_valid_call: bool) -> &AddressPool {
        if has_valid_call { &self.request_bytes } else { &self.unvalidated_bytes }
    }

    /// Upper bound of the shared reply bytes of one connection. Addresses that hold some get equal
    /// parts, and so do the connections of an address.
    pub(super) fn fair_reply_bytes(&self, address: &AddressUse) -> usize {
        let addresses = self.reply_addresses.load(Ordering::Relaxed).max(1);
        let holders = address.reply_holders.load(Ordering::Relaxed).max(1);
        (MAX_REPLY_BYTES / addresses / holders).min(MAX_CONNECTION_REPLY_BYTES)
    }

    /// A permit for `bytes` bytes of a reply, if they are free now; `is_unproven` says whether the
    /// connection has yet to prove that it reads its replies.
    pub(super) fn try_reply_bytes(
        &self,
        address: &Arc<AddressUse>,
        bytes: usize,
        is_unproven: bool,
    ) -> Option<SharedReplyPermit> {
        let newcomers = is_unproven.then(|| self.unproven_bytes.try_take(address, bytes));
        let common = self.reply_bytes.try_take(address, bytes);
        if common.is_none() || matches!(newcomers, Some(None)) {
            self.reply_pressure.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.common(address, [newcomers.flatten(), common]))
    }

    /// Waits for a permit for `bytes` bytes of a reply.
    pub(super) async fn take_reply_bytes(
        &self,
        address: &Arc<AddressUse>,
        bytes: usize,
        is_unproven: bool,
    ) -> SharedReplyPermit {
        let waiting = &self.waiting;
        let newcomers = match is_unproven {
            true => {
                let most = bytes.min(MAX_UNPROVEN_REPLY_BYTES);
                self.unproven_bytes.take(address, most, waiting).await
            }
            false => None,
        };
        let common = self.reply_bytes.take(address, bytes.min(MAX_REPLY_BYTES), waiting).await;
        self.common(address, [newcomers, common])
    }

    fn common(
        &self,
        address: &Arc<AddressUse>,
        portions: [Option<PoolPermit>; 2],
    ) -> SharedReplyPermit {
        let (address, addresses) = (Arc::clone(address), Arc::clone(&self.reply_addresses));
        SharedReplyPermit { portions, address, addresses }
    }
}

/// A permit for shared bytes of a reply; released when dropped.
#[derive(Debug)]
pub(super) struct SharedReplyPermit {
    portions: [Option<PoolPermit>; 2],
    address: Arc<AddressUse>,
    /// The number of addresses that hold shared reply bytes.
    addresses: Arc<AtomicUsize>,
}

impl SharedReplyPermit {
    /// Counts the connection as a holder of shared reply bytes.
    pub(super) fn begin(&self) {
        if self.address.reply_holders.fetch_add(1, Ordering::Relaxed) == 0 {
            self.addresses.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Stops counting the connection as a holder.
    pub(super) fn end(&self) {
        if self.address.reply_holders.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.addresses.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Releases the bytes above `bytes`.
    pub(super) fn shrink(&mut self, bytes: usize) {
        self.portions.iter_mut().flatten().for_each(|portion| portion.shrink(bytes));
    }
}
