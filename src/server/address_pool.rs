//! A shared bound that is divided among client addresses.
//!
//! While only one address makes requests, it may hold the whole bound. While several do, an address
//! may hold at most as much as is left free, so one more address always gets some (dynamic
//! thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). Each address
//! has one place in the queue, however many connections it has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore};

use super::limits::CONTENTION;

/// The resource that a pool divides.
#[derive(Debug, Clone, Copy)]
pub(super) enum PoolKind {
    Requests,
    RequestBytes,
    UnvalidatedBytes,
    ReplyBytes,
    UnprovenBytes,
}

/// The number of [`PoolKind`]s.
const KINDS: usize = 5;

/// What one client address holds of every pool.
#[derive(Debug, Default)]
pub(super) struct AddressUse {
    pools: [PoolUse; KINDS],
    /// Connections of the address that hold shared reply bytes.
    pub(super) reply_holders: AtomicUsize,
}

#[derive(Debug, Default)]
struct PoolUse {
    held: AtomicUsize,
    /// Notified when the address releases some.
    returned: Notify,
    /// Held by the one waiter of the address that is in the queue.
    turn: Mutex<()>,
}

/// One shared bound.
#[derive(Debug)]
pub(super) struct AddressPool {
    kind: PoolKind,
    permits: Arc<Semaphore>,
    max: usize,
    since: Instant,
    /// Identifies the address that requested last; 0 before the first request.
    last: AtomicUsize,
    /// When contention between addresses ends, in milliseconds after `since`.
    contended_until: AtomicU64,
    /// How often something had to wait.
    waits: AtomicU64,
}

/// A part of a pool; released when dropped.
#[derive(Debug)]
pub(super) struct PoolPermit {
    kind: PoolKind,
    /// `None` only while the permit is dropped.
    permit: Option<OwnedSemaphorePermit>,
    address: Arc<AddressUse>,
}

impl AddressPool {
    /// A pool of `max` permits.
    pub(super) fn new(kind: PoolKind, max: usize) -> Self {
        Self {
            kind,
            permits: Arc::new(Semaphore::new(max)),
            max,
            since: Instant::now(),
            last: AtomicUsize::new(0),
            contended_until: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        }
    }

    /// What is taken, and the whole pool.
    pub(super) fn used(&self) -> (usize, usize) {
        (self.max.saturating_sub(self.permits.available_permits()), self.max)
    }

    /// How often something had to wait.
    pub(super) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Whether no permit is taken.
    pub(super) fn is_whole(&self) -> bool {
        self.permits.available_permits() == self.max
    }

    /// Waits until all permits are released; none can be taken afterwards.
    pub(super) async fn drain(&self) {
        if let Ok(permits) = self.permits.acquire_many(permit_count(self.max)).await {
            permits.forget();
        }
    }

    /// Fails all waiters, present and future.
    pub(super) fn close(&self) {
        self.permits.close();
    }

    /// Takes `amount` if it is free and `address` may hold it now.
    pub(super) fn try_take(&self, address: &Arc<AddressUse>, amount: usize) -> Option<PoolPermit> {
        self.note(address);
        if !self.may_have(address, amount) {
            return None;
        }
        let permit = try_take(&self.permits, amount)?;
        Some(self.portion(address, permit, amount))
    }

    /// Waits for `amount`, and counts in `waiting` until then. `None` once the pool is closed.
    pub(super) async fn take(
        &self,
        address: &Arc<AddressUse>,
        amount: usize,
        waiting: &AtomicUsize,
    ) -> Option<PoolPermit> {
        if let Some(portion) = self.try_take(address, amount) {
            return Some(portion);
        }
        let _counted = WaitCounter::new(waiting);
        self.waits.fetch_add(1, Ordering::Relaxed);
        let own = address.of(self.kind);
        let _lock = own.turn.lock().await;
        loop {
            // Created before the check, so that a release in between is not missed.
            let returned = own.returned.notified();
            if self.permits.is_closed() || self.may_have(address, amount) {
                break;
            }
            returned.await;
        }
        let permit = self.permits.clone().acquire_many_owned(permit_count(amount)).await.ok()?;
        Some(self.portion(address, permit, amount))
    }

    fn portion(
        &self,
        address: &Arc<AddressUse>,
        permit: OwnedSemaphorePermit,
        amount: usize,
    ) -> PoolPermit {
        address.of(self.kind).held.fetch_add(amount, Ordering::Relaxed);
        PoolPermit { kind: self.kind, permit: Some(permit), address: Arc::clone(address) }
    }

    /// Records a request of an address; a change of the address starts contention.
    fn note(&self, address: &Arc<AddressUse>) {
        let address = Arc::as_ptr(address).addr();
        if self.last.load(Ordering::Relaxed) == address {
            return;
        }
        // Another request of the same address may have come in between.
        let before = self.last.swap(address, Ordering::Relaxed);
        if before != 0 && before != address {
            let until = self.since.elapsed() + CONTENTION;
            self.contended_until.store(millis(until), Ordering::Relaxed);
        }
    }

    /// Whether an address may hold `amount` more. An address that holds nothing always may, so a
    /// waiter always waits for a release of its own address.
    fn may_have(&self, address: &AddressUse, amount: usize) -> bool {
        let held = address.of(self.kind).held.load(Ordering::Relaxed);
        held == 0 || !self.is_contended() || held + amount <= self.permits.available_permits()
    }

    /// Whether different addresses made requests within [`CONTENTION`].
    fn is_contended(&self) -> bool {
        let until = self.contended_until.load(Ordering::Relaxed);
        until != 0 && millis(self.since.elapsed()) < until
    }
}

impl AddressUse {
    fn of(&self, kind: PoolKind) -> &PoolUse {
        let [requests, request_bytes, unvalidated_bytes, reply_bytes, unproven_bytes] = &self.pools;
        match kind {
            PoolKind::Requests => requests,
            PoolKind::RequestBytes => request_bytes,
            PoolKind::UnvalidatedBytes => unvalidated_bytes,
            PoolKind::ReplyBytes => reply_bytes,
            PoolKind::UnprovenBytes => unproven_bytes,
        }
    }
}

impl PoolPermit {
    /// Releases the permits above `amount`.
    pub(super) fn shrink(&mut self, amount: usize) {
        let Some(permit) = &mut self.permit else { return };
        let less = permit.num_permits().saturating_sub(amount);
        if less > 0 {
            drop(permit.split(less));
            self.address.of(self.kind).give_back(less);
        }
    }
}

impl Drop for PoolPermit {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            let amount = permit.num_permits();
            // Before the address is notified: the waiter checks how much is free.
            drop(permit);
            self.address.of(self.kind).give_back(amount);
        }
    }
}

impl PoolUse {
    fn give_back(&self, amount: usize) {
        self.held.fetch_sub(amount, Ordering::Relaxed);
        self.returned.notify_one();
    }
}

/// Counts one waiter until dropped.
struct WaitCounter<'a>(&'a AtomicUsize);

impl<'a> WaitCounter<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for WaitCounter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes `amount` permits if they are free.
pub(super) fn try_take(of: &Arc<Semaphore>, amount: usize) -> Option<OwnedSemaphorePermit> {
    of.clone().try_acquire_many_owned(permit_count(amount)).ok()
}

/// Converts an amount to a semaphore's permit count, saturating.
pub(super) fn permit_count(amount: usize) -> u32 {
    u32::try_from(amount).unwrap_or(u32::MAX)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_address_has_all_until_another_asks() {
        let pool = AddressPool::new(PoolKind::Requests, 8);
        let [greedy, modest]: [Arc<AddressUse>; 2] = Default::default();
        let mut taken: Vec<_> = (0..8).filter_map(|_| pool.try_take(&greedy, 1)).collect();
        assert_eq!(taken.len(), 8);
        assert!(pool.try_take(&modest, 1).is_none(), "there is no more");
        // Released permits do not return to the greedy address until it holds less than half.
        for left in (4..8).rev() {
            taken.pop();
            assert!(pool.try_take(&greedy, 1).is_none(), "{left} left to it");
        }
        let first = pool.try_take(&modest, 4);
        assert!(first.is_some());
        assert!(pool.try_take(&greedy, 1).is_none() && pool.try_take(&modest, 1).is_none());
    }

    #[test]
    fn the_first_requests_of_one_address_are_no_contention() {
        for _ in 0..2000 {
            let pool = AddressPool::new(PoolKind::Requests, 8);
            let address = Arc::<AddressUse>::default();
            let barrier = std::sync::Barrier::new(2);
            let ask = || {
                barrier.wait();
                pool.note(&address);
            };
            std::thread::scope(|scope| [scope.spawn(ask), scope.spawn(ask)].map(drop));
            assert!(!pool.is_contended(), "one address alone");
        }
    }

    #[tokio::test]
    async fn an_address_has_one_place_in_the_queue() {
        let pool = Arc::new(AddressPool::new(PoolKind::Requests, 1));
        let [greedy, modest]: [Arc<AddressUse>; 2] = Default::default();
        let waiting = Arc::new(AtomicUsize::new(0));
        let held = pool.try_take(&greedy, 1);
        let ask = |address: &Arc<AddressUse>, name: &'static str| {
            let (pool, address) = (Arc::clone(&pool), Arc::clone(address));
            let waiting = Arc::clone(&waiting);
            tokio::spawn(async move {
                let _taken = pool.take(&address, 1, &waiting).await;
                (name, Instant::now())
            })
        };
        let mut all = Vec::new();
        for (address, name) in [(&greedy, "g1"), (&greedy, "g2"), (&greedy, "g3"), (&modest, "m")] {
            all.push(ask(address, name));
            // Queues the tasks in this order.
            tokio::task::yield_now().await;
        }
        drop(held);
        let mut order = Vec::new();
        for one in all {
            order.push(one.await.unwrap());
        }
        order.sort_by_key(|(_, at)| *at);
        let names: Vec<_> = order.iter().map(|(name, _)| *name).collect();
        assert!(names.iter().position(|name| *name == "m").unwrap() <= 1, "{names:?}");
        assert_eq!(waiting.load(Ordering::Relaxed), 0);
    }
}
