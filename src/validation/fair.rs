//! A semaphore that is fair among exports: permits for work that exports share.
//!
//! A free permit goes to the waiting export that holds the fewest, and among these to the caller
//! that has waited longest. Where there are several exports, the last free permit only goes to one
//! that holds none. So an export that holds no permit waits for the work of others only as long as
//! one piece of it takes, times the number of such exports.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// A number of permits that exports share.
#[derive(Debug)]
pub(super) struct FairSemaphore {
    state: Mutex<FairState>,
}

#[derive(Debug)]
struct FairState {
    free: usize,
    /// How many permits an export holds; exports without any are absent.
    held: HashMap<u64, usize>,
    /// Waiting callers, in order of arrival.
    waiting: VecDeque<FairWaiter>,
}

#[derive(Debug)]
struct FairWaiter {
    export: u64,
    /// Whether there is no other export that the last permit is for.
    is_alone: bool,
    sender: oneshot::Sender<Permit>,
}

/// One permit, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    semaphore: Arc<FairSemaphore>,
    export: u64,
}

impl FairSemaphore {
    /// A semaphore with this many permits, at least one.
    pub(super) fn new(permits: usize) -> Arc<Self> {
        let (held, waiting) = (HashMap::new(), VecDeque::new());
        Arc::new(Self { state: Mutex::new(FairState { free: permits.max(1), held, waiting }) })
    }

    /// Waits for a permit for an export; `None` if there is none within `wait`. An export that is
    /// alone may have all of them.
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

    /// Gives free permits to waiting callers.
    fn hand_out(self: &Arc<Self>) {
        let chosen = self.lock().choose();
        // Without the lock: a call that is woken may go on at once, and give its permit back.
        for FairWaiter { export, sender, .. } in chosen {
            let unused = sender.send(Permit { semaphore: Arc::clone(self), export });
            // The caller has gone away.
            drop(unused);
        }
    }

    fn lock(&self) -> MutexGuard<'_, FairState> {
        self.state.lock()
    }
}

impl FairState {
    /// Takes the callers out of the queue that get the free permits.
    fn choose(&mut self) -> Vec<FairWaiter> {
        self.waiting.retain(|caller| !caller.sender.is_closed());
        let mut chosen = Vec::new();
        while let Some(caller) = self.next().and_then(|at| self.waiting.remove(at)) {
            self.take(caller.export);
            chosen.push(caller);
        }
        chosen
    }

    /// The place in the queue of the caller that gets the next free permit.
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
