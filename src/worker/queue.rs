//! A bounded queue from async callers to blocking threads.
//!
//! Semaphores provide back-pressure without blocking the callers' threads. The list itself is
//! protected by a mutex and a condition variable. The queue does not interpret its items.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Semaphore;

/// The queue is closed.
#[derive(Debug)]
pub(super) struct Closed;

/// The size of some items, in the units of a queue's bounds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BatchSize {
    /// The number of items.
    pub ops: usize,
    /// Bytes that the items hold.
    pub bytes: u32,
}

/// The outcome of a wait for items.
#[derive(Debug)]
pub(super) enum TakeOutcome {
    /// Items were taken. [`JobQueue::release`] must get their size once they are done.
    Items(BatchSize),
    /// No item came before the deadline or [`JobQueue::wake`].
    TimedOut,
    /// The queue is closed and empty.
    Closed,
}

/// A first-in-first-out queue bounded in items and bytes.
pub(super) struct JobQueue<T> {
    list: Mutex<JobList<T>>,
    arrived: Condvar,
    ops: Semaphore,
    bytes: Semaphore,
    max_bytes: u32,
}

struct JobList<T> {
    items: VecDeque<(u32, T)>,
    /// Items that were taken and not released.
    in_hand: usize,
    /// Threads that wait on the condition variable.
    sleepers: usize,
    /// Sleepers that were notified already: each notification costs a system call.
    woken: usize,
    /// Makes a waiting thread return though no item came.
    is_woken: bool,
    /// A caller does the threads' work; until it ends, new items wake no thread.
    guard: bool,
    closed: bool,
}

/// Held by a caller that does the threads' work.
pub(super) struct InlineWriteGuard<'a, T>(&'a JobQueue<T>);

impl<T> InlineWriteGuard<'_, T> {
    /// Whether items came since the guard was taken, including any that an awake thread took.
    pub fn is_waited_for(&self) -> bool {
        let list = self.0.lock();
        !list.items.is_empty() || list.in_hand > 0
    }
}

impl<T> Drop for InlineWriteGuard<'_, T> {
    /// Wakes a thread if items came while the guard was held.
    fn drop(&mut self) {
        let wake = {
            let mut list = self.0.lock();
            list.guard = false;
            !list.items.is_empty() && list.wakes_one()
        };
        if wake {
            self.0.arrived.notify_one();
        }
    }
}

impl<T> JobList<T> {
    /// Whether a sleeping thread must be notified for an item; counts it as woken.
    fn wakes_one(&mut self) -> bool {
        let wakes = self.sleepers > self.woken;
        self.woken += usize::from(wakes);
        wakes
    }

    /// Moves the first item and those that may join it; see [`JobQueue::take`].
    fn take(
        &mut self,
        batch: &mut Vec<T>,
        max: BatchSize,
        joins: impl Fn(&T, &T) -> bool,
    ) -> BatchSize {
        let first = batch.len();
        let mut cost = BatchSize::default();
        if let Some((bytes, item)) = self.items.pop_front() {
            batch.push(item);
            cost = BatchSize { ops: 1, bytes };
            self.in_hand += 1;
            self.take_more(batch, &mut cost, max, |batch, next| joins(&batch[first], next));
        }
        cost
    }

    /// Moves the items that fit in addition to `cost`; see [`JobQueue::take_more`].
    fn take_more(
        &mut self,
        batch: &mut Vec<T>,
        cost: &mut BatchSize,
        max: BatchSize,
        joins: impl Fn(&[T], &T) -> bool,
    ) {
        while let Some((bytes, item)) = self.items.front() {
            let total = cost.bytes.saturating_add(*bytes);
            let fits = cost.ops < max.ops && total <= max.bytes;
            if !(fits && joins(batch, item)) {
                break;
            }
            *cost = BatchSize { ops: cost.ops + 1, bytes: total };
            batch.extend(self.items.pop_front().map(|(_, item)| item));
            self.in_hand += 1;
        }
    }
}

impl<T> JobQueue<T> {
    /// An empty queue with these bounds. Items count until they are released.
    pub fn new(max: BatchSize) -> Self {
        Self {
            list: Mutex::new(JobList {
                items: VecDeque::new(),
                in_hand: 0,
                sleepers: 0,
                woken: 0,
                is_woken: false,
                guard: false,
                closed: false,
            }),
            arrived: Condvar::new(),
            ops: Semaphore::new(max.ops.clamp(1, Semaphore::MAX_PERMITS)),
            bytes: Semaphore::new(max.bytes as usize),
            max_bytes: max.bytes,
        }
    }

    /// Appends `item`, which holds `bytes` bytes, once it fits within the bounds. An item larger
    /// than the byte bound occupies the whole bound.
    ///
    /// If the returned future is dropped, the item either stays in the queue or never enters it.
    pub async fn push(&self, bytes: usize, item: T) -> Result<(), Closed> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.max_bytes);
        let op_permit = self.ops.acquire().await.map_err(|_| Closed)?;
        let byte_permits = match bytes {
            0 => None,
            n => Some(self.bytes.acquire_many(n).await.map_err(|_| Closed)?),
        };
        let wake = {
            let mut list = self.lock();
            if list.closed {
                return Err(Closed);
            }
            list.items.push_back((bytes, item));
            !list.guard && list.wakes_one()
        };
        if wake {
            self.arrived.notify_one();
        }
        op_permit.forget();
        if let Some(permits) = byte_permits {
            permits.forget();
        }
        Ok(())
    }

    /// Moves waiting items to the end of `batch`: at least one, at most `max`, and each only if
    /// `joins(first, next)` permits. Waits for the first item until `deadline`, if there is one.
    pub fn take(
        &self,
        batch: &mut Vec<T>,
        max: BatchSize,
        deadline: Option<Instant>,
        joins: impl Fn(&T, &T) -> bool,
    ) -> TakeOutcome {
        let mut list = self.lock();
        loop {
            if !list.items.is_empty() {
                return TakeOutcome::Items(list.take(batch, max, &joins));
            }
            if list.closed {
                return TakeOutcome::Closed;
            }
            if std::mem::take(&mut list.is_woken) {
                return TakeOutcome::TimedOut;
            }
            let wait = match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
                Some(wait) if wait.is_zero() => return TakeOutcome::TimedOut,
                wait => wait,
            };
            list.sleepers += 1;
            match wait {
                None => self.arrived.wait(&mut list),
                Some(wait) => drop(self.arrived.wait_for(&mut list, wait)),
            }
            list.sleepers -= 1;
            list.woken = list.woken.saturating_sub(1);
        }
    }

    /// Moves waiting items that fit in addition to `cost` to the end of `batch`, and adds them to
    /// `cost`. Does not wait. The items must be released like those of [`JobQueue::take`].
    pub fn take_more(
        &self,
        batch: &mut Vec<T>,
        cost: &mut BatchSize,
        max: BatchSize,
        joins: impl Fn(&T) -> bool,
    ) {
        self.lock().take_more(batch, cost, max, |_, next| joins(next));
    }

    /// Moves all waiting items. They must be released like those of [`JobQueue::take`].
    pub fn take_all(&self, items: &mut Vec<T>) -> BatchSize {
        let all = BatchSize { ops: usize::MAX, bytes: u32::MAX };
        let mut cost = BatchSize::default();
        self.take_more(items, &mut cost, all, |_| true);
        cost
    }

    /// Ends the wait of one thread, now or at its next wait.
    pub fn wake(&self) {
        self.lock().is_woken = true;
        self.arrived.notify_one();
    }

    /// Lets a caller do the threads' work if no item waits and no taken item is unreleased (a
    /// thread may have taken it and not begun). New items wake no thread until the guard is
    /// dropped.
    pub fn try_inline(&self) -> Option<InlineWriteGuard<'_, T>> {
        let mut list = self.lock();
        let is_left_alone = list.in_hand == 0 && !list.closed && !list.guard;
        (is_left_alone && list.items.is_empty()).then(|| {
            list.guard = true;
            InlineWriteGuard(self)
        })
    }

    /// Frees the queue space of finished items.
    pub fn release(&self, cost: BatchSize) {
        self.lock().in_hand -= cost.ops;
        self.ops.add_permits(cost.ops);
        if cost.bytes > 0 {
            self.bytes.add_permits(cost.bytes as usize);
        }
    }

    /// Refuses new items; items in the queue are still handed out.
    pub fn close(&self) {
        self.lock().closed = true;
        self.ops.close();
        self.bytes.close();
        self.arrived.notify_all();
    }

    /// Closes the queue and drops its items, because no thread is left to take them.
    pub fn abandon(&self) {
        self.close();
        let items = std::mem::take(&mut self.lock().items);
        drop(items);
    }

    /// Locks the list. Only callers' closures can panic under the lock, and they leave the list
    /// consistent.
    fn lock(&self) -> MutexGuard<'_, JobList<T>> {
        self.list.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::{BatchSize, JobQueue, TakeOutcome};

    #[test]
    fn no_caller_overtakes_what_a_thread_has_in_hand() {
        let room = BatchSize { ops: 4, bytes: 0 };
        let queue = JobQueue::new(room);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(queue.try_inline().is_some(), "nothing is there");
        runtime.block_on(queue.push(0, "first")).unwrap();
        assert!(queue.try_inline().is_none(), "it waits");
        let mut batch = Vec::new();
        let TakeOutcome::Items(cost) = queue.take(&mut batch, room, None, |_, _| true) else {
            panic!("nothing was taken");
        };
        assert!(queue.try_inline().is_none(), "it is taken, and not done");
        queue.release(cost);
        assert!(queue.try_inline().is_some(), "it is done");
    }

    #[test]
    fn what_comes_while_a_caller_works_wakes_a_thread_when_it_is_done() {
        let room = BatchSize { ops: 4, bytes: 0 };
        let queue = JobQueue::new(room);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        thread::scope(|scope| {
            let deadline = Instant::now() + Duration::from_secs(30);
            let queue = &queue;
            let thread = scope.spawn(move || {
                let taken = queue.take(&mut Vec::new(), room, Some(deadline), |_, _| true);
                // At the deadline the thread would wake without a notification.
                matches!(taken, TakeOutcome::Items(_)) && Instant::now() < deadline
            });
            while queue.lock().sleepers == 0 {
                thread::yield_now();
            }
            let guard = queue.try_inline().unwrap();
            runtime.block_on(queue.push(0, "next")).unwrap();
            assert!(guard.is_waited_for());
            assert_eq!(queue.lock().woken, 0, "it would only wait for the caller");
            drop(guard);
            assert!(thread.join().unwrap(), "it was not woken");
        });
    }
}
