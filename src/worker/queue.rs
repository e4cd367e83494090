//! A bounded queue from async callers to the pool's threads.
//!
//! Semaphores provide back-pressure without blocking the callers' threads. The queue counts the
//! slices that take its items; whether to schedule one is in the results of its methods. It does
//! not interpret its items.

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};
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

/// Whether the caller must schedule a slice, which the queue already counts.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NeedsSlice(pub bool);

/// What follows a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SliceEnd {
    /// Another one: there is more to do.
    Again,
    /// None.
    Done,
    /// None, and [`JobQueue::is_quiet`] waits for that.
    Quiet,
}

/// A first-in-first-out queue bounded in items and bytes.
pub(super) struct JobQueue<T> {
    list: Mutex<JobList<T>>,
    ops: Semaphore,
    bytes: Semaphore,
    max_bytes: u32,
}

struct JobList<T> {
    items: VecDeque<(u32, T)>,
    /// Items that were taken and not released.
    in_hand: usize,
    /// Slices that are scheduled or run.
    slices: usize,
    /// How many there may be.
    max_slices: usize,
    /// How many of them are stuck.
    stuck: usize,
    /// A slice is wanted even if no item comes.
    is_woken: bool,
    /// A caller does the threads' work; until it ends, new items need no slice.
    guard: bool,
    closed: bool,
    /// [`JobQueue::is_quiet`] was asked, and it was not.
    awaits_quiet: bool,
}

impl<T> JobList<T> {
    /// Counts a slice for work that came, if there may be one more.
    fn slice(&mut self) -> NeedsSlice {
        let needs = self.slices < self.max_slices;
        self.slices += usize::from(needs);
        NeedsSlice(needs)
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

    /// Whether no slice but stuck ones is left, and none will come. Clears the request for that.
    fn take_quiet(&mut self) -> bool {
        let is_quiet = self.closed && self.slices == self.stuck;
        is_quiet && std::mem::take(&mut self.awaits_quiet)
    }
}

impl<T> JobQueue<T> {
    /// An empty queue with these bounds, for so many slices at once. Items count until they are
    /// released.
    pub fn new(max: BatchSize, max_slices: usize) -> Self {
        Self {
            list: Mutex::new(JobList {
                items: VecDeque::new(),
                in_hand: 0,
                slices: 0,
                max_slices,
                stuck: 0,
                is_woken: false,
                guard: false,
                closed: false,
                awaits_quiet: false,
            }),
            ops: Semaphore::new(max.ops.clamp(1, Semaphore::MAX_PERMITS)),
            bytes: Semaphore::new(max.bytes as usize),
            max_bytes: max.bytes,
        }
    }

    /// Appends `item`, which holds `bytes` bytes, once it fits within the bounds. An item larger
    /// than the byte bound occupies the whole bound.
    ///
    /// If the returned future is dropped, the item either stays in the queue or never enters it.
    /// The future does not wait after the item is in the queue.
    pub async fn push(&self, bytes: usize, item: T) -> Result<NeedsSlice, Closed> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.max_bytes);
        let op_permit = self.ops.acquire().await.map_err(|_| Closed)?;
        let byte_permits = match bytes {
            0 => None,
            n => Some(self.bytes.acquire_many(n).await.map_err(|_| Closed)?),
        };
        let needs = {
            let mut list = self.lock();
            if list.closed {
                return Err(Closed);
            }
            list.items.push_back((bytes, item));
            if list.guard { NeedsSlice(false) } else { list.slice() }
        };
        op_permit.forget();
        if let Some(permits) = byte_permits {
            permits.forget();
        }
        Ok(needs)
    }

    /// Moves waiting items to the end of `batch`: the first one, and others up to `max`, each only
    /// if `joins(first, next)` permits. `None` if no item waits. Every slice begins with this.
    pub fn take(
        &self,
        batch: &mut Vec<T>,
        max: BatchSize,
        joins: impl Fn(&T, &T) -> bool,
    ) -> Option<BatchSize> {
        let mut list = self.lock();
        list.is_woken = false;
        let (bytes, item) = list.items.pop_front()?;
        let first = batch.len();
        batch.push(item);
        let mut cost = BatchSize { ops: 1, bytes };
        list.in_hand += 1;
        list.take_more(batch, &mut cost, max, |batch, next| joins(&batch[first], next));
        Some(cost)
    }

    /// Moves waiting items that fit in addition to `cost` to the end of `batch`, and adds them to
    /// `cost`. The items must be released like those of [`JobQueue::take`].
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

    /// Asks for a slice even if no item comes.
    pub fn wake(&self) -> NeedsSlice {
        let mut list = self.lock();
        list.is_woken = true;
        list.slice()
    }

    /// Lets a caller do the threads' work if no item waits and no taken item is unreleased (a
    /// thread may have taken it and not begun). New items need no slice until
    /// [`JobQueue::end_inline`], which must follow if this returns true.
    pub fn try_inline(&self) -> bool {
        let mut list = self.lock();
        let is_left_alone = list.in_hand == 0 && !list.closed && !list.guard;
        let is_free = is_left_alone && list.items.is_empty();
        list.guard |= is_free;
        is_free
    }

    /// Whether items came since [`JobQueue::try_inline`], including any that a thread took.
    pub fn is_waited_for(&self) -> bool {
        let list = self.lock();
        !list.items.is_empty() || list.in_hand > 0
    }

    /// Ends the work of a caller.
    pub fn end_inline(&self) -> NeedsSlice {
        let mut list = self.lock();
        list.guard = false;
        if list.items.is_empty() { NeedsSlice(false) } else { list.slice() }
    }

    /// Frees the queue space of finished items.
    pub fn release(&self, cost: BatchSize) {
        self.lock().in_hand -= cost.ops;
        self.ops.add_permits(cost.ops);
        if cost.bytes > 0 {
            self.bytes.add_permits(cost.bytes as usize);
        }
    }

    /// Ends a slice. `was_stuck` is the end of its mark; `was_replaced` says that another slice may
    /// run in its place, which now ends.
    pub fn end_slice(&self, was_stuck: bool, was_replaced: bool) -> SliceEnd {
        let mut list = self.lock();
        list.stuck -= usize::from(was_stuck);
        list.max_slices -= usize::from(was_replaced);
        let is_wanted = !list.items.is_empty() || std::mem::take(&mut list.is_woken);
        if is_wanted && list.slices <= list.max_slices {
            return SliceEnd::Again;
        }
        list.slices -= 1;
        if list.take_quiet() { SliceEnd::Quiet } else { SliceEnd::Done }
    }

    /// Counts a slice as stuck. With `replaces`, another one may run in its place; whether one must
    /// be scheduled at once.
    pub fn note_stuck(&self, replaces: bool) -> NeedsSlice {
        let mut list = self.lock();
        list.stuck += 1;
        list.max_slices += usize::from(replaces);
        if list.items.is_empty() { NeedsSlice(false) } else { list.slice() }
    }

    /// Whether all slices that there may be are stuck.
    pub fn is_all_stuck(&self) -> bool {
        let list = self.lock();
        list.stuck >= list.max_slices
    }

    /// Whether the queue is closed and empty.
    pub fn is_drained(&self) -> bool {
        let list = self.lock();
        list.closed && list.items.is_empty()
    }

    /// Whether the queue is closed, and no slice is left except stuck ones. If it is not, the last
    /// slice ends with [`SliceEnd::Quiet`], or [`JobQueue::became_quiet`] is true.
    pub fn is_quiet(&self) -> bool {
        let mut list = self.lock();
        list.awaits_quiet = true;
        list.take_quiet()
    }

    /// Whether the last slice that was waited for became stuck.
    pub fn became_quiet(&self) -> bool {
        self.lock().take_quiet()
    }

    /// Refuses new items; items in the queue are still handed out. Returns whether it was open.
    pub fn close(&self) -> bool {
        let was_open = !std::mem::replace(&mut self.lock().closed, true);
        self.ops.close();
        self.bytes.close();
        was_open
    }

    /// Closes the queue and drops its items.
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
    use super::{BatchSize, JobQueue, NeedsSlice, SliceEnd};

    const ROOM: BatchSize = BatchSize { ops: 4, bytes: 0 };

    fn push(queue: &JobQueue<&'static str>, item: &'static str) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(queue.push(0, item)).unwrap().0
    }

    #[test]
    fn no_caller_overtakes_what_a_thread_has_in_hand() {
        let queue = JobQueue::new(ROOM, 1);
        assert!(queue.try_inline(), "nothing is there");
        assert_eq!(queue.end_inline(), NeedsSlice(false));
        assert!(push(&queue, "first"));
        assert!(!queue.try_inline(), "it waits");
        let cost = queue.take(&mut Vec::new(), ROOM, |_, _| true).unwrap();
        assert!(!queue.try_inline(), "it is taken, and not done");
        queue.release(cost);
        assert!(queue.try_inline(), "it is done");
    }

    #[test]
    fn what_comes_while_a_caller_works_needs_a_slice_when_it_is_done() {
        let queue = JobQueue::new(ROOM, 1);
        assert!(queue.try_inline());
        assert!(!push(&queue, "next"), "it would only wait for the caller");
        assert!(queue.is_waited_for());
        assert_eq!(queue.end_inline(), NeedsSlice(true));
    }

    #[test]
    fn there_are_no_more_slices_than_items_and_than_there_may_be() {
        let queue = JobQueue::new(ROOM, 2);
        assert!(push(&queue, "a") && push(&queue, "b"));
        assert!(!push(&queue, "c"), "the two take it afterwards");
        let mut taken = Vec::new();
        let one = BatchSize { ops: 1, bytes: 0 };
        for _ in 0..2 {
            queue.release(queue.take(&mut taken, one, |_, _| true).unwrap());
        }
        assert_eq!(queue.end_slice(false, false), SliceEnd::Again);
        queue.release(queue.take(&mut taken, one, |_, _| true).unwrap());
        assert_eq!(taken, ["a", "b", "c"]);
        assert_eq!(queue.end_slice(false, false), SliceEnd::Done);
        assert_eq!(queue.end_slice(false, false), SliceEnd::Done);
        assert!(push(&queue, "d"));
    }

    #[test]
    fn a_slice_is_wanted_once_for_a_wake_up() {
        let queue = JobQueue::<&str>::new(ROOM, 1);
        assert_eq!(queue.wake(), NeedsSlice(true));
        assert_eq!(queue.wake(), NeedsSlice(false), "it has not begun");
        let begin = || assert!(queue.take(&mut Vec::new(), ROOM, |_, _| true).is_none());
        begin();
        assert_eq!(queue.wake(), NeedsSlice(false));
        assert_eq!(queue.end_slice(false, false), SliceEnd::Again, "it may have looked before");
        begin();
        assert_eq!(queue.end_slice(false, false), SliceEnd::Done);
    }

    #[test]
    fn a_closed_queue_is_quiet_once_no_slice_is_left_but_stuck_ones() {
        let queue = JobQueue::new(ROOM, 1);
        assert!(push(&queue, "a"));
        assert!(!queue.is_quiet(), "open");
        assert!(queue.close() && !queue.close());
        assert!(!queue.is_quiet(), "a slice is to come");
        let cost = queue.take(&mut Vec::new(), ROOM, |_, _| true).unwrap();
        assert!(!queue.became_quiet());
        assert_eq!(queue.note_stuck(true), NeedsSlice(false));
        assert!(queue.became_quiet(), "it is not waited for");
        queue.release(cost);
        assert_eq!(queue.end_slice(true, true), SliceEnd::Done);
        assert!(queue.is_quiet());
    }
}
