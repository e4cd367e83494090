//! Room for requests and replies on all connections together: counted, so that no client can take
//! the server's memory, and divided among client addresses (`pool`). What each connection has of
//! its own besides is in `share`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits::{
    Limits, MAX_CONNECTION_REPLY_BYTES, MAX_NEWCOMER_REPLY_BYTES, MAX_REPLY_BYTES,
    MAX_REQUEST_BYTES, MAX_STRANGER_REQUEST_BYTES,
};
use super::pool::{AddressUse, Kind, Pool, Portion, weight};

/// Counts what is in flight on all connections together.
#[derive(Debug)]
pub(super) struct Budget {
    requests: Pool,
    /// Room for the first request of each connection, whatever others have in flight.
    first_requests: Arc<Semaphore>,
    max_first_requests: usize,
    request_bytes: Pool,
    /// Room for the large requests of connections that had no sound call answered.
    stranger_bytes: Pool,
    reply_bytes: Pool,
    /// How much of it connections may have that have not shown that they take their replies.
    newcomer_bytes: Pool,
    /// Addresses that have some of it.
    reply_addresses: Arc<AtomicUsize>,
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
            requests: Pool::new(Kind::Requests, limits.requests),
            first_requests: Arc::new(Semaphore::new(limits.connections)),
            max_first_requests: limits.connections,
            request_bytes: Pool::new(Kind::RequestBytes, MAX_REQUEST_BYTES),
            stranger_bytes: Pool::new(Kind::StrangerBytes, MAX_STRANGER_REQUEST_BYTES),
            reply_bytes: Pool::new(Kind::ReplyBytes, MAX_REPLY_BYTES),
            newcomer_bytes: Pool::new(Kind::NewcomerBytes, MAX_NEWCOMER_REPLY_BYTES),
            reply_addresses: Arc::default(),
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
        self.requests.is_whole()
            && self.first_requests.available_permits() == self.max_first_requests
    }

    /// Returns once no request is in flight, and lets none begin afterwards.
    pub(super) async fn drain(&self) {
        self.requests.drain().await;
        let first = self.first_requests.acquire_many(weight(self.max_first_requests));
        if let Ok(permits) = first.await {
            permits.forget();
        }
    }

    /// Lets nobody wait for room any more: what is given up would else be woken one by one, each
    /// by the end of the one before.
    pub(super) fn close(&self) {
        self.first_requests.close();
        let of_requests = [&self.requests, &self.request_bytes, &self.stranger_bytes];
        let of_replies = [&self.reply_bytes, &self.newcomer_bytes];
        of_requests.into_iter().chain(of_replies).for_each(Pool::close);
    }

    /// Room for a connection's first request, unless connections that are closed still have
    /// theirs in flight.
    pub(super) fn try_first_request(&self) -> Option<OwnedSemaphorePermit> {
        self.first_requests.clone().try_acquire_owned().ok()
    }

    /// Waits for room for a request that is not its connection's first.
    pub(super) async fn take_request(&self, address: &Arc<AddressUse>) -> Option<Portion> {
        self.requests.take(address, 1, &self.waiting).await
    }

    /// Room for `bytes` bytes of a request, if there is some now; `is_known` says whether the
    /// connection had a sound call answered.
    pub(super) fn try_request_bytes(
        &self,
        address: &Arc<AddressUse>,
        bytes: usize,
        is_known: bool,
    ) -> Option<Portion> {
        self.request_bytes_of(is_known).try_take(address, bytes)
    }

    /// Waits for room for `bytes` bytes of a request.
    pub(super) async fn take_request_bytes(
        &self,
        address: &Arc<AddressUse>,
        bytes: usize,
        is_known: bool,
    ) -> Option<Portion> {
        self.request_bytes_of(is_known).take(address, bytes, &self.waiting_for_bytes).await
    }

    fn request_bytes_of(&self, is_known: bool) -> &Pool {
        if is_known { &self.request_bytes } else { &self.stranger_bytes }
    }

    /// What a connection that has some of the room for replies may have of it, in bytes: its
    /// address has as much as each other one that has some, and the connection as much as each
    /// other one of its address.
    pub(super) fn fair_reply_bytes(&self, address: &AddressUse) -> usize {
        let addresses = self.reply_addresses.load(Ordering::Relaxed).max(1);
        let holders = address.reply_holders.load(Ordering::Relaxed).max(1);
        (MAX_REPLY_BYTES / addresses / holders).min(MAX_CONNECTION_REPLY_BYTES)
    }

    /// Room for `bytes` bytes of a reply, if there is some now; `is_newcomer` says whether the
    /// connection has yet to show that it takes its replies.
    pub(super) fn try_reply_bytes(
        &self,
        address: &Arc<AddressUse>,
        bytes: usize,
        is_newcomer: bool,
    ) -> Option<Common> {
        let newcomers = is_newcomer.then(|| self.newcomer_bytes.try_take(address, bytes));
        let common = self.reply_bytes.try_take(address, bytes);
        if common.is_none() || matches!(newcomers, Some(None)) {
            self.shortages.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.common(address, [newcomers.flatten(), common]))
    }

    /// Waits for room for `bytes` bytes of a reply.
    pub(super) async fn take_reply_bytes(
        &self,
        address: &Arc<AddressUse>,
        bytes: usize,
        is_newcomer: bool,
    ) -> Common {
        let waiting = &self.waiting;
        let newcomers = match is_newcomer {
            true => {
                let most = bytes.min(MAX_NEWCOMER_REPLY_BYTES);
                self.newcomer_bytes.take(address, most, waiting).await
            }
            false => None,
        };
        let common = self.reply_bytes.take(address, bytes.min(MAX_REPLY_BYTES), waiting).await;
        self.common(address, [newcomers, common])
    }

    fn common(&self, address: &Arc<AddressUse>, portions: [Option<Portion>; 2]) -> Common {
        let (address, addresses) = (Arc::clone(address), Arc::clone(&self.reply_addresses));
        Common { portions, address, addresses }
    }
}

/// Room for a reply that all connections share; given back when dropped.
#[derive(Debug)]
pub(super) struct Common {
    portions: [Option<Portion>; 2],
    address: Arc<AddressUse>,
    /// Addresses that have some.
    addresses: Arc<AtomicUsize>,
}

impl Common {
    /// Counts the connection as one that has some of it.
    pub(super) fn begin(&self) {
        if self.address.reply_holders.fetch_add(1, Ordering::Relaxed) == 0 {
            self.addresses.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts it no more.
    pub(super) fn end(&self) {
        if self.address.reply_holders.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.addresses.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Gives back what is taken above `bytes` bytes.
    pub(super) fn shrink(&mut self, bytes: usize) {
        self.portions.iter_mut().flatten().for_each(|portion| portion.shrink(bytes));
    }
}
