//! A bounded queue from async callers to blocking threads.
//!
//! Semaphores hold callers back without blocking their thread; the list behind them is an
//! ordinary mutex and condition variable. It knows nothing of what it carries.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// The queue takes nothing any more.
#[derive(Debug)]
pub(super) struct Closed;

/// What items occupy of a queue's bounds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cost {
    /// Items.
    pub ops: usize,
    /// Bytes that they hold.
    pub bytes: u32,
}

/// What came of waiting for items.
#[derive(Debug)]
pub(super) enum Taken {
    /// Items, whose cost goes back with [`Queue::release`] when they are done.
    Items(Cost),
    /// Nothing until the deadline, or until [`Queue::nudge`].
    TimedOut,
    /// Nothing, and nothing will come.
    Closed,
}

/// A first-in-first-out queue bounded in items and bytes.
pub(super) struct Queue<T> {
    list: Mutex<List<T>>,
    max_lead: Duration,
    arrived: Condvar,
    ops: Semaphore,
    bytes: Semaphore,
    max_bytes: u32,
}

struct List<T> {
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
    taken_over: bool,
    /// Since when a caller has been about to do so ([`Led`]).
    led: Option<Instant>,
    /// Something waits that may not be led: it came by [`Queue::push`].
    wants_thread: bool,
    closed: bool,
}

/// A caller's time in the threads' place.
pub(super) struct TakenOver<'a, T>(&'a Queue<T>);

impl<T> TakenOver<'_, T> {
    /// Moves what waits and `fits` to the end of `batch`, up to the first that does not; what it
    /// costs goes back with [`Queue::release`]. Nothing, while what came before is in somebody
    /// else's hand: a thread that was awake, or woken for what it alone does, takes items too.
    pub fn take(&self, batch: &mut Vec<T>, max: Cost, fits: impl Fn(&T) -> bool) -> Option<Cost> {
        let mut list = self.0.lock();
        if list.in_hand > 0 {
            return None;
        }
        let first = list.items.front().filter(|(_, item)| fits(item));
        first.is_some().then(|| list.take(batch, max, |_, next| fits(next)))
    }

    /// Whether something came meanwhile.
    pub fn is_waited_for(&self) -> bool {
        !self.0.lock().items.is_empty()
    }
}

impl<T> Drop for TakenOver<'_, T> {
    fn drop(&mut self) {
        self.0.leave_the_rest(|list| list.taken_over = false);
    }
}

/// A caller's promise to do the threads' work in a moment. What comes by [`Queue::push_led`] until
/// then wakes none of them, unless it comes after the queue's `max_lead`.
pub(super) struct Led<'a, T>(&'a Queue<T>);

impl<'a, T> Led<'a, T> {
    /// Keeps it, unless somebody else does the work.
    pub fn take_over(self) -> Option<TakenOver<'a, T>> {
        let is_free = {
            let mut list = self.0.lock();
            let is_free = list.is_left_alone();
            list.taken_over |= is_free;
            is_free
        };
        is_free.then(|| TakenOver(self.0))
    }
}

impl<T> Drop for Led<'_, T> {
    fn drop(&mut self) {
        self.0.leave_the_rest(|list| list.led = None);
    }
}

impl<T> List<T> {
    /// Whether there is a thread to be woken for an item; counts it as woken.
    fn wakes_one(&mut self) -> bool {
        let wakes = self.sleepers > self.woken;
        self.woken += usize::from(wakes);
        wakes
    }

    /// Whether a caller may do the threads' work: nobody does.
    fn is_left_alone(&self) -> bool {
        self.in_hand == 0 && !self.closed && !self.taken_over
    }

    /// Whether a caller is about to do so, and has not been for longer than `max`.
    fn will_be_led(&self, max: Duration) -> bool {
        self.led.is_some_and(|since| since.elapsed() <= max)
    }

    /// Moves the first item and those that fit beside it; see [`Queue::take`].
    fn take(&mut self, batch: &mut Vec<T>, max: Cost, joins: impl Fn(&T, &T) -> bool) -> Cost {
        let first = batch.len();
        let mut cost = Cost::default();
        while let Some((bytes, item)) = self.items.front() {
            let total = cost.bytes.saturating_add(*bytes);
            let fits = cost.ops < max.ops && total <= max.bytes;
            if cost.ops > 0 && !(fits && joins(&batch[first], item)) {
                break;
            }
            cost = Cost { ops: cost.ops + 1, bytes: total };
            batch.extend(self.items.pop_front().map(|(_, item)| item));
        }
        self.in_hand += cost.ops;
        cost
    }
}

impl<T> Queue<T> {
    /// An empty queue with these bounds; items that are taken count until they are released.
    /// After `max_lead` nobody counts on [`Led`] any more.
    pub fn new(max: Cost, max_lead: Duration) -> Self {
        Self {
            list: Mutex::new(List {
                items: VecDeque::new(),
                in_hand: 0,
                sleepers: 0,
                woken: 0,
                nudged: false,
                taken_over: false,
                led: None,
                wants_thread: false,
                closed: false,
            }),
            max_lead,
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
        let join = |list: &mut List<T>| {
            list.wants_thread = true;
            ((), !list.taken_over)
        };
        self.put(bytes, item, join).await
    }

    /// As [`Queue::push`], for what callers do: whoever comes first gets [`Led`], and leads what
    /// comes until it takes over or lets go.
    pub async fn push_led(&self, bytes: usize, item: T) -> Result<Option<Led<'_, T>>, Closed> {
        let join = |list: &mut List<T>| {
            if list.led.is_some() {
                return (None, !list.taken_over && !list.will_be_led(self.max_lead));
            }
            list.led = Some(Instant::now());
            (Some(Led(self)), false)
        };
        self.put(bytes, item, join).await
    }

    /// Appends `item` once there is room for it, and wakes a thread if `arrive` says so beside
    /// what it answers.
    async fn put<R>(
        &self,
        bytes: usize,
        item: T,
        arrive: impl FnOnce(&mut List<T>) -> (R, bool),
    ) -> Result<R, Closed> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.max_bytes);
        let op_permit = self.ops.acquire().await.map_err(|_| Closed)?;
        let byte_permits = match bytes {
            0 => None,
            n => Some(self.bytes.acquire_many(n).await.map_err(|_| Closed)?),
        };
        let (answer, wake) = {
            let mut list = self.lock();
            if list.closed {
                return Err(Closed);
            }
            list.items.push_back((bytes, item));
            let (answer, wants_thread) = arrive(&mut list);
            (answer, wants_thread && list.wakes_one())
        };
        if wake {
            self.arrived.notify_one();
        }
        op_permit.forget();
        if let Some(permits) = byte_permits {
            permits.forget();
        }
        Ok(answer)
    }

    /// Moves waiting items to the end of `batch`: at least one, and not more than `max` allows
    /// nor than fit together according to `joins(first, next)`. Waits for the first one, until
    /// `deadline` if there is one.
    pub fn take(
        &self,
        batch: &mut Vec<T>,
        max: Cost,
        deadline: Option<Instant>,
        joins: impl Fn(&T, &T) -> bool,
    ) -> Taken {
        let mut list = self.lock();
        loop {
            if !list.items.is_empty() {
                // Whoever takes now comes again for the rest.
                list.wants_thread = false;
                return Taken::Items(list.take(batch, max, &joins));
            }
            if list.closed {
                return Taken::Closed;
            }
            if std::mem::take(&mut list.nudged) {
                return Taken::TimedOut;
            }
            let wait = match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
                Some(wait) if wait.is_zero() => return Taken::TimedOut,
                wait => wait,
            };
            list.sleepers += 1;
            list = match wait {
                None => self.arrived.wait(list).unwrap_or_else(PoisonError::into_inner),
                Some(wait) => {
                    let woken = self.arrived.wait_timeout(list, wait);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            list.sleepers -= 1;
            list.woken = list.woken.saturating_sub(1);
        }
    }

    /// Ends the wait of one thread, now or the next time that it would wait.
    pub fn nudge(&self) {
        self.lock().nudged = true;
        self.arrived.notify_one();
    }

    /// Lets a caller do the threads' work, if nothing waits for it, and nothing that came before
    /// is still to be done: a thread may have taken it and not begun. Nothing that comes wakes a
    /// thread until what is returned here is dropped.
    pub fn take_over(&self) -> Option<TakenOver<'_, T>> {
        let mut list = self.lock();
        let is_free = list.items.is_empty() && list.is_left_alone();
        is_free.then(|| {
            list.taken_over = true;
            TakenOver(self)
        })
    }

    /// Ends a caller's part by `end`, and wakes a thread for what it leaves, if nobody else will
    /// look at that.
    fn leave_the_rest(&self, end: impl FnOnce(&mut List<T>)) {
        let wake = {
            let mut list = self.lock();
            end(&mut list);
            let is_left = !list.items.is_empty() && !list.taken_over;
            let counts_on_leader = !list.wants_thread && list.will_be_led(self.max_lead);
            is_left && !counts_on_leader && list.wakes_one()
        };
        if wake {
            self.arrived.notify_one();
        }
    }

    /// Makes room: items of this cost are done.
    pub fn release(&self, cost: Cost) {
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
    fn lock(&self) -> MutexGuard<'_, List<T>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::{Cost, Queue, Taken};

    #[test]
    fn no_caller_overtakes_what_a_thread_has_in_hand() {
        let room = Cost { ops: 4, bytes: 0 };
        let queue = Queue::new(room, Duration::MAX);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(queue.take_over().is_some(), "nothing is there");
        runtime.block_on(queue.push(0, "first")).unwrap();
        assert!(queue.take_over().is_none(), "it waits");
        let mut batch = Vec::new();
        let Taken::Items(cost) = queue.take(&mut batch, room, None, |_, _| true) else {
            panic!("nothing was taken");
        };
        assert!(queue.take_over().is_none(), "it is taken, and not done");
        queue.release(cost);
        assert!(queue.take_over().is_some(), "it is done");
    }

    #[test]
    fn what_a_thread_took_from_a_leader_is_not_overtaken_either() {
        let room = Cost { ops: 4, bytes: 0 };
        let queue = Queue::new(room, Duration::MAX);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let led = runtime.block_on(queue.push_led(0, "first")).unwrap().unwrap();
        let taken_over = led.take_over().unwrap();
        let mut batch = Vec::new();
        let Taken::Items(cost) = queue.take(&mut batch, room, None, |_, _| true) else {
            panic!("nothing was taken");
        };
        runtime.block_on(queue.push(0, "second")).unwrap();
        let mut next = Vec::new();
        assert!(taken_over.take(&mut next, room, |_| true).is_none(), "the first is not done");
        queue.release(cost);
        let cost = taken_over.take(&mut next, room, |_| true).unwrap();
        assert_eq!((cost.ops, next), (1, vec!["second"]));
    }

    #[test]
    fn what_only_a_thread_does_does_not_wait_for_a_leader() {
        let room = Cost { ops: 4, bytes: 0 };
        let queue = Queue::new(room, Duration::MAX);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        thread::scope(|scope| {
            let deadline = Instant::now() + Duration::from_secs(30);
            let queue = &queue;
            let thread = scope.spawn(move || {
                let taken = queue.take(&mut Vec::new(), room, Some(deadline), |_, _| true);
                // At the deadline it would look by itself.
                matches!(taken, Taken::Items(_)) && Instant::now() < deadline
            });
            while queue.lock().sleepers == 0 {
                thread::yield_now();
            }
            let taken_over = queue.take_over().unwrap();
            runtime.block_on(queue.push(0, "for the thread")).unwrap();
            let _led = runtime.block_on(queue.push_led(0, "for a leader")).unwrap().unwrap();
            drop(taken_over);
            assert!(thread.join().unwrap(), "it was not woken");
        });
    }
}
