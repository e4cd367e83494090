//! A semaphore that is fair among exports.
//!
//! A free permit goes to the waiting export that holds the fewest, and among these to the caller
//! that has waited longest. With several exports, the last free permit goes only to an export that
//! holds none. So an export without permits waits for at most one task of each other such export.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Permits that exports share.
#[derive(Debug)]
pub(super) struct FairSemaphore {
    state: Mutex<FairState>,
}

#[derive(Debug)]
struct FairState {
    free: usize,
    /// Permits held by each export; exports without any are absent.
    held: HashMap<u64, usize>,
    /// Waiting callers, in order of arrival.
    waiting: VecDeque<FairWaiter>,
}

#[derive(Debug)]
struct FairWaiter {
    export: u64,
    /// Whether no other export needs the last permit.
    is_alone: bool,
    sender: oneshot::Sender<Permit>,
}

/// One permit, released on drop.
#[derive(Debug)]
pub(super) struct Permit {
    semaphore: Arc<FairSemaphore>,
    export: u64,
}

impl FairSemaphore {
    /// A semaphore with `permits` permits, at least one.
    pub(super) fn new(permits: usize) -> Arc<Self> {
        let (held, waiting) = (HashMap::new(), VecDeque::new());
        Arc::new(Self { state: Mutex::new(FairState { free: permits.max(1), held, waiting }) })
    }

    /// Waits for a permit; `None` after `wait`. With `is_alone`, the export may hold all permits.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        export: u64,
        is_alone: bool,
        wait: Duration,
    ) -> Option<Permit> {
        let (sender, receiver) = oneshot::channel();
        self.lock().waiting.push_back(FairWaiter { export, is_alone, sender });
        self.hand_out();
        timeout(wait, receiver).await.ok()?.ok()
    }

    /// Hands free permits to waiting callers.
    fn hand_out(self: &Arc<Self>) {
        let chosen = self.lock().choose();
        // Unlocked: a woken caller may run at once and release its permit.
        for FairWaiter { export, sender, .. } in chosen {
            let unused = sender.send(Permit { semaphore: Arc::clone(self), export });
            // The caller has been cancelled.
            drop(unused);
        }
    }

    fn lock(&self) -> MutexGuard<'_, FairState> {
        self.state.lock()
    }
}

impl FairState {
    /// Removes the callers from the queue that get free permits.
    fn choose(&mut self) -> Vec<FairWaiter> {
        self.waiting.retain(|caller| !caller.sender.is_closed());
        let mut chosen = Vec::new();
        while let Some(caller) = self.next().and_then(|at| self.waiting.remove(at)) {
            self.take(caller.export);
            chosen.push(caller);
        }
        chosen
    }

    /// Index of the caller that gets the next free permit.
    fn next(&self) -> Option<usize> {
        if self.free == 0 {
            return None;
        }
        let held = |caller: &FairWaiter| self.held.get(&caller.export).copied().unwrap_or(0);
        let may = |caller: &FairWaiter| self.free > 1 || caller.is_alone || held(caller) == 0;
        let callers = self.waiting.iter().enumerate().filter(|(_, caller)| may(caller));
        callers.map(|(at, caller)| (held(caller), at)).min().map(|(_, at)| at)
    }

    fn take(&mut self, export: u64) {
        self.free -= 1;
        *self.held.entry(export).or_default() += 1;
    }

    fn give_back(&mut self, export: u64) {
        self.free += 1;
        if let Some(held) = self.held.get_mut(&export) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&export);
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.semaphore.lock().give_back(self.export);
        self.semaphore.hand_out();
    }
}
