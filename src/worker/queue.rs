//! A bounded queue from async callers to blocking threads.
//!
//! Semaphores hold callers back without blocking their thread; the list behind them is an
//! ordinary mutex and condition variable. It knows nothing of what it carries.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Semaphore;

/// The queue takes nothing any more.
#[derive(Debug)]
pub(super) struct Closed;

/// What items occupy of a queue's bounds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BatchSize {
    /// Items.
    pub ops: usize,
    /// Bytes that they hold.
    pub bytes: u32,
}

/// What came of waiting for items.
#[derive(Debug)]
pub(super) enum TakeOutcome {
    /// Items, whose cost goes back with [`JobQueue::release`] when they are done.
    Items(BatchSize),
    /// Nothing until the deadline, or until [`JobQueue::wake`].
    TimedOut,
    /// Nothing, and nothing will come.
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
    /// Items that somebody has taken and not released.
    in_hand: usize,
    /// Threads that wait for an item.
    sleepers: usize,
    /// How many of them were already told to wake: telling costs a system call.
    woken: usize,
    /// Whoever waits looks up, though no item came.
    nudged: bool,
    /// A caller does the threads' work: what comes meanwhile wakes none of them.
    guard: bool,
    closed: bool,
}

/// A caller's time in the threads' place.
pub(super) struct InlineWriteGuard<'a, T>(&'a JobQueue<T>);

impl<T> InlineWriteGuard<'_, T> {
    /// Whether something came meanwhile, be it in the hand of a thread that was awake.
    pub fn is_waited_for(&self) -> bool {
        let list = self.0.lock();
        !list.items.is_empty() || list.in_hand > 0
    }
}

impl<T> Drop for InlineWriteGuard<'_, T> {
    /// Wakes a thread for what came meanwhile.
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
    /// Whether there is a thread to be woken for an item; counts it as woken.
    fn wakes_one(&mut self) -> bool {
        let wakes = self.sleepers > self.woken;
        self.woken += usize::from(wakes);
        wakes
    }

    /// Moves the first item and those that fit beside it; see [`JobQueue::take`].
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

    /// Moves those items that fit beside what `cost` says; see [`JobQueue::take_more`].
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
    /// An empty queue with these bounds; items that are taken count until they are released.
    pub fn new(max: BatchSize) -> Self {
        Self {
            list: Mutex::new(JobList {
                items: VecDeque::new(),
                in_hand: 0,
                sleepers: 0,
                woken: 0,
                nudged: false,
                guard: false,
                closed: false,
            }),
            arrived: Condvar::new(),
            ops: Semaphore::new(max.ops.clamp(1, Semaphore::MAX_PERMITS)),
            bytes: Semaphore::new(max.bytes as usize),
            max_bytes: max.bytes,
        }
    }

    /// Appends `item`, which holds `bytes` bytes, once there is room for it. An item larger than
    /// the queue's bound occupies all of it.
    ///
    /// If the returned future is dropped, the item is either not in the queue or stays in it.
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

    /// Moves waiting items to the end of `batch`: at least one, and not more than `max` allows
    /// nor than fit together according to `joins(first, next)`. Waits for the first one, until
    /// `deadline` if there is one.
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
            if std::mem::take(&mut list.nudged) {
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

    /// Moves to the end of `batch` what waits already and fits beside what was taken before, to
    /// whose `cost` it is added; does not wait. It is as if [`JobQueue::take`] had taken it.
    pub fn take_more(
        &self,
        batch: &mut Vec<T>,
        cost: &mut BatchSize,
        max: BatchSize,
        joins: impl Fn(&T) -> bool,
    ) {
        self.lock().take_more(batch, cost, max, |_, next| joins(next));
    }

    /// Moves all that waits to `items`. It is as if [`JobQueue::take`] had taken it.
    pub fn take_all(&self, items: &mut Vec<T>) -> BatchSize {
        let all = BatchSize { ops: usize::MAX, bytes: u32::MAX };
        let mut cost = BatchSize::default();
        self.take_more(items, &mut cost, all, |_| true);
        cost
    }

    /// Ends the wait of one thread, now or the next time that it would wait.
    pub fn wake(&self) {
        self.lock().nudged = true;
        self.arrived.notify_one();
    }

    /// Lets a caller do the threads' work, if nothing waits for it, and nothing that came before
    /// is still to be done: a thread may have taken it and not begun. Nothing that comes wakes a
    /// thread until what is returned here is dropped.
    pub fn take_over(&self) -> Option<InlineWriteGuard<'_, T>> {
        let mut list = self.lock();
        let is_left_alone = list.in_hand == 0 && !list.closed && !list.guard;
        (is_left_alone && list.items.is_empty()).then(|| {
            list.guard = true;
            InlineWriteGuard(self)
        })
    }

    /// Makes room: items of this cost are done.
    pub fn release(&self, cost: BatchSize) {
        self.lock().in_hand -= cost.ops;
        self.ops.add_permits(cost.ops);
        if cost.bytes > 0 {
            self.bytes.add_permits(cost.bytes as usize);
        }
    }

    /// Takes nothing any more; what is in the queue is still handed out.
    pub fn close(&self) {
        self.lock().closed = true;
        self.ops.close();
        self.bytes.close();
        self.arrived.notify_all();
    }

    /// Closes, and drops what is in the queue: nobody is left to take it.
    pub fn abandon(&self) {
        self.close();
        let items = std::mem::take(&mut self.lock().items);
        drop(items);
    }

    /// The list. Nothing that can panic runs under the lock but what callers hand in, which
    /// leaves the list whole.
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
        assert!(queue.take_over().is_some(), "nothing is there");
        runtime.block_on(queue.push(0, "first")).unwrap();
        assert!(queue.take_over().is_none(), "it waits");
        let mut batch = Vec::new();
        let TakeOutcome::Items(cost) = queue.take(&mut batch, room, None, |_, _| true) else {
            panic!("nothing was taken");
        };
        assert!(queue.take_over().is_none(), "it is taken, and not done");
        queue.release(cost);
        assert!(queue.take_over().is_some(), "it is done");
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
                // At the deadline it would look by itself.
                matches!(taken, TakeOutcome::Items(_)) && Instant::now() < deadline
            });
            while queue.lock().sleepers == 0 {
                thread::yield_now();
            }
            let guard = queue.take_over().unwrap();
            runtime.block_on(queue.push(0, "next")).unwrap();
            assert!(guard.is_waited_for());
            assert_eq!(queue.lock().woken, 0, "it would only wait for the caller");
            drop(guard);
            assert!(thread.join().unwrap(), "it was not woken");
        });
    }
}
