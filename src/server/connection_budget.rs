//! Bounds the requests and replies in flight on one connection: a reserve of its own, which no
//! other connection can use, and its part of the shared budget.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore};

use super::address_pool::{AddressUse, PoolPermit, permit_count, try_take};
use super::limits::{
    MAX_CONNECTION_REQUEST_BYTES, OWN_REPLY_BYTES, OWN_REQUEST_BYTES, SMALL_REPLY_BYTES,
    SMALL_REQUEST_BYTES,
};
use super::server_budget::{ServerBudget, SharedReplyPermit};

/// The requests and replies in flight on one connection.
#[derive(Debug)]
pub(super) struct ConnectionBudget {
    /// What the connection's address holds of the shared budget.
    address: Arc<AddressUse>,
    requests: Arc<Semaphore>,
    max_requests: usize,
    /// Bytes of requests beyond the reserve; they also count against the shared budget.
    request_bytes: Arc<Semaphore>,
    own_request_bytes: Arc<Semaphore>,
    /// Serializes replies that take bytes, in order of arrival.
    turn: Mutex<()>,
    held: Arc<ReplyBytesInUse>,
}

/// A permit for a request or for bytes of one; released when dropped.
#[derive(Debug, Default)]
pub(super) struct RequestPermit {
    _own: Option<OwnedSemaphorePermit>,
    _first: Option<OwnedSemaphorePermit>,
    common: Option<PoolPermit>,
}

/// A permit for bytes of a reply; released when dropped.
#[derive(Debug, Default)]
pub(super) struct ReplyPermit(Option<HeldReplyBytes>);

/// Bytes of the replies that a connection encodes or sends.
#[derive(Debug, Default)]
struct ReplyBytesInUse {
    own: AtomicUsize,
    common: AtomicUsize,
    /// Notified when either count decreases.
    returned: Notify,
}

#[derive(Debug)]
struct HeldReplyBytes {
    bytes: usize,
    /// `None` for bytes of the connection's reserve.
    common: Option<SharedReplyPermit>,
    held: Arc<ReplyBytesInUse>,
}

impl ConnectionBudget {
    /// A budget of `requests` requests for a connection from `address`.
    pub(super) fn new(requests: usize, address: Arc<AddressUse>) -> Self {
        Self {
            address,
            requests: Arc::new(Semaphore::new(requests)),
            max_requests: requests,
            request_bytes: Arc::new(Semaphore::new(MAX_CONNECTION_REQUEST_BYTES)),
            own_request_bytes: Arc::new(Semaphore::new(OWN_REQUEST_BYTES)),
            turn: Mutex::default(),
            held: Arc::default(),
        }
    }

    /// Whether no request is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.available_permits() == self.max_requests
    }

    /// Waits until no request is in flight; new requests wait until then.
    pub(super) async fn settled(&self) {
        drop(self.requests.acquire_many(permit_count(self.max_requests)).await);
    }

    /// Waits for a permit for one request, here and in `overall`.
    ///
    /// A request takes all that it needs of one kind at once, and from its connection's budget
    /// before the overall one, so connections cannot deadlock.
    pub(super) async fn take_request(&self, overall: &ServerBudget) -> RequestPermit {
        let kept = if self.is_idle() { overall.try_first_request() } else { None };
        let _own = take(&self.requests, 1).await;
        if kept.is_some() {
            return RequestPermit { _own, _first: kept, common: None };
        }
        tokio::select! {
            biased;
            common = overall.take_request(&self.address) => {
                RequestPermit { _own, _first: None, common }
            }
            kept = self.take_first_request(overall) => {
                RequestPermit { _own, _first: Some(kept), common: None }
            }
        }
    }

    /// Waits until this request, which already has a permit here, is the only one.
    async fn take_first_request(&self, overall: &ServerBudget) -> OwnedSemaphorePermit {
        drop(self.requests.acquire_many(permit_count(self.max_requests - 1)).await);
        match overall.try_first_request() {
            Some(kept) => kept,
            None => pending().await,
        }
    }

    /// Waits for a permit for `bytes` bytes of a request, here and in `overall`; `has_valid_call`
    /// says whether a valid call of the connection was answered.
    ///
    /// A small request needs none: the limits on connections and requests bound the memory of all
    /// small ones. A request that fits into the connection's reserve waits for no other connection.
    pub(super) async fn take_request_bytes(
        &self,
        overall: &ServerBudget,
        bytes: usize,
        has_valid_call: bool,
    ) -> RequestPermit {
        if bytes <= SMALL_REQUEST_BYTES {
            return RequestPermit::default();
        }
        if bytes > OWN_REQUEST_BYTES {
            let _own = take(&self.request_bytes, bytes).await;
            let common = overall.take_request_bytes(&self.address, bytes, has_valid_call).await;
            return RequestPermit { _own, common, ..RequestPermit::default() };
        }
        if let Some(own) = try_take(&self.own_request_bytes, bytes) {
            return RequestPermit { _own: Some(own), ..RequestPermit::default() };
        }
        if let Some(own) = try_take(&self.request_bytes, bytes)
            && let Some(common) = overall.try_request_bytes(&self.address, bytes, has_valid_call)
        {
            return RequestPermit {
                _own: Some(own),
                common: Some(common),
                ..RequestPermit::default()
            };
        }
        RequestPermit {
            _own: take(&self.own_request_bytes, bytes).await,
            ..RequestPermit::default()
        }
    }

    /// Takes `bytes` bytes for a reply or, under pressure, `least`; `is_unproven` says whether the
    /// connection has yet to prove that it reads its replies.
    ///
    /// A small reply needs none, as with requests. Others wait only for replies of their own
    /// connection, unless `least` exceeds [`OWN_REPLY_BYTES`].
    pub(super) async fn take_reply(
        &self,
        overall: &ServerBudget,
        bytes: usize,
        least: usize,
        is_unproven: bool,
    ) -> ReplyPermit {
        if bytes <= SMALL_REPLY_BYTES {
            return ReplyPermit::default();
        }
        let _lock = self.turn.lock().await;
        loop {
            // Created before trying, so that a release in between is not missed.
            let returned = self.held.returned.notified();
            if let Some(room) = self.try_own(bytes) {
                return room;
            }
            let common = self.held.common.load(Ordering::Acquire);
            if common == 0 || common + bytes <= overall.fair_reply_bytes(&self.address) {
                let address = &self.address;
                if let Some(taken) = overall.try_reply_bytes(address, bytes, is_unproven) {
                    return self.common(bytes, taken);
                }
                if least > OWN_REPLY_BYTES {
                    let taken = overall.take_reply_bytes(address, bytes, is_unproven).await;
                    return self.common(bytes, taken);
                }
            }
            // A connection that already uses the shared pool waits for shared space: it allows
            // larger replies than the connection's own reserve.
            if common == 0
                && let Some(room) = self.try_own(least)
            {
                return room;
            }
            returned.await;
        }
    }

    /// Takes bytes of the connection's reserve if they are free. The caller holds `turn`.
    fn try_own(&self, bytes: usize) -> Option<ReplyPermit> {
        if self.held.own.load(Ordering::Acquire) + bytes > OWN_REPLY_BYTES {
            return None;
        }
        self.held.own.fetch_add(bytes, Ordering::AcqRel);
        Some(ReplyPermit(Some(HeldReplyBytes {
            bytes,
            common: None,
            held: Arc::clone(&self.held),
        })))
    }

    fn common(&self, bytes: usize, common: SharedReplyPermit) -> ReplyPermit {
        if self.held.common.fetch_add(bytes, Ordering::AcqRel) == 0 {
            common.begin();
        }
        let held = Arc::clone(&self.held);
        ReplyPermit(Some(HeldReplyBytes { bytes, common: Some(common), held }))
    }
}

impl RequestPermit {
    /// Whether the permit counts against the shared budget.
    pub(super) fn is_common(&self) -> bool {
        self.common.is_some()
    }
}

impl ReplyPermit {
    /// The most bytes that the reply may have.
    pub(super) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(SMALL_REPLY_BYTES, |taken| taken.bytes)
    }

    /// Whether the permit counts against the shared budget.
    pub(super) fn is_common(&self) -> bool {
        self.0.as_ref().is_some_and(|taken| taken.common.is_some())
    }

    /// Releases the bytes above `bytes`; all of them for a small reply.
    pub(super) fn shrink(&mut self, bytes: usize) {
        if bytes <= SMALL_REPLY_BYTES {
            self.0 = None;
        }
        if let Some(taken) = &mut self.0 {
            taken.shrink(bytes);
        }
    }
}

impl HeldReplyBytes {
    fn shrink(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        if less == 0 {
            return;
        }
        self.bytes -= less;
        match &mut self.common {
            Some(common) => {
                common.shrink(bytes);
                if self.held.common.fetch_sub(less, Ordering::AcqRel) == less {
                    common.end();
                }
            }
            None => {
                self.held.own.fetch_sub(less, Ordering::AcqRel);
            }
        }
        self.held.returned.notify_waiters();
    }
}

impl Drop for HeldReplyBytes {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

/// Waits for `amount` permits of a semaphore of this connection.
async fn take(of: &Arc<Semaphore>, amount: usize) -> Option<OwnedSemaphorePermit> {
    // The semaphores are never closed.
    of.clone().acquire_many_owned(permit_count(amount)).await.ok()
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::server::limits::Limits;
    use crate::wire::record::MAX_RECORD_BYTES;

    /// The output of a future that is ready at the first poll.
    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    /// Reply bytes of a connection: from its reserve, and shared ones.
    fn held(share: &ConnectionBudget) -> [usize; 2] {
        [&share.held.own, &share.held.common].map(|bytes| bytes.load(Ordering::Acquire))
    }

    #[tokio::test]
    async fn busy_connections_share_the_room_alike() {
        let overall = ServerBudget::new(&Limits::default());
        let address = Arc::<AddressUse>::default();
        let shares: Vec<_> =
            (0..6).map(|_| ConnectionBudget::new(1, Arc::clone(&address))).collect();
        let mut first = Vec::new();
        for share in &shares {
            first.push(share.take_reply(&overall, MAX_RECORD_BYTES, OWN_REPLY_BYTES, false).await);
        }
        // A sixth of 24 for each connection: no reply is shortened.
        let mut more = Vec::new();
        for share in &shares {
            for _ in 1..4 {
                let reply = share.take_reply(&overall, MAX_RECORD_BYTES, OWN_REPLY_BYTES, false);
                more.push(now(reply).unwrap());
            }
            let reply = share.take_reply(&overall, MAX_RECORD_BYTES, OWN_REPLY_BYTES, false);
            assert!(now(reply).is_none(), "a fifth waits for one of the same connection");
        }
        assert!(more.iter().all(|room| room.bytes() == MAX_RECORD_BYTES));
        // A single connection gets as much as one may have.
        drop((first, more));
        let mut alone = Vec::new();
        for _ in 0..8 {
            let reply = shares[0].take_reply(&overall, MAX_RECORD_BYTES, OWN_REPLY_BYTES, false);
            alone.push(now(reply).unwrap());
        }
        assert_eq!(held(&shares[0]), [0, 8 * MAX_RECORD_BYTES]);
    }

    #[tokio::test]
    async fn a_reply_that_turns_out_small_keeps_no_room() {
        let (share, overall) =
            (ConnectionBudget::new(1, Arc::default()), ServerBudget::new(&Limits::default()));
        let mut small = share.take_reply(&overall, 9000, 9000, true).await;
        let mut large = share.take_reply(&overall, 1 << 20, OWN_REPLY_BYTES, true).await;
        assert_eq!(held(&share), [9000, 1 << 20]);
        small.shrink(5000);
        large.shrink(6000);
        assert_eq!(held(&share), [5000, 6000]);
        small.shrink(SMALL_REPLY_BYTES);
        large.shrink(SMALL_REPLY_BYTES);
        assert_eq!(held(&share), [0, 0]);
        drop((small, large));
        assert_eq!(held(&share), [0, 0]);
    }
}
