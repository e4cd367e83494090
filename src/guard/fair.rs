//! A semaphore that is fair among exports: permits for work that exports share.
//!
//! A free permit goes to the waiting export that holds the fewest, and among these to the caller
//! that has waited longest. The last free permit only goes to an export that holds none. So an
//! export that holds no permit waits for the work of others only as long as one piece of it takes,
//! times the number of such exports.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

/// A number of permits that exports share.
#[derive(Debug)]
pub(super) struct FairSemaphore {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// How many permits an export holds; exports without any are absent.
    held: HashMap<u64, usize>,
    /// Waiting callers by export, in order of arrival.
    waiting: VecDeque<(u64, oneshot::Sender<Permit>)>,
}

/// One permit, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    /// `None` once the permit was given back.
    semaphore: Option<Arc<FairSemaphore>>,
    export: u64,
}

impl FairSemaphore {
    /// A semaphore with this many permits, at least one.
    pub(super) fn new(permits: usize) -> Arc<Self> {
        let (held, waiting) = (HashMap::new(), VecDeque::new());
        Arc::new(Self { state: Mutex::new(State { free: permits.max(1), held, waiting }) })
    }

    /// Waits for a permit for an export; `None` if there is none within `wait`.
    pub(super) async fn acquire(self: &Arc<Self>, export: u64, wait: Duration) -> Option<Permit> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.lock();
            state.waiting.push_back((export, sender));
            self.hand_out(&mut state);
        }
        timeout(wait, receiver).await.ok()?.ok()
    }

    /// Gives free permits to waiting callers.
    fn hand_out(self: &Arc<Self>, state: &mut State) {
        while let Some((export, sender)) = state.next() {
            let permit = Permit { semaphore: Some(Arc::clone(self)), export };
            match sender.send(permit) {
                Ok(()) => state.take(export),
                // The caller went away. The permit must not lock what is locked here.
                Err(mut unused) => unused.semaphore = None,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the caller out of the queue that gets the next free permit.
    fn next(&mut self) -> Option<(u64, oneshot::Sender<Permit>)> {
        let held = |export: &u64| self.held.get(export).copied().unwrap_or(0);
        let most = match self.free {
            0 => return None,
            1 => 0,
            _ => usize::MAX,
        };
        let callers = self.waiting.iter().enumerate();
        let callers = callers.map(|(at, (export, _))| (held(export), at));
        let (_, at) = callers.filter(|(held, _)| *held <= most).min()?;
        self.waiting.remove(at)
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
        let Some(semaphore) = self.semaphore.take() else { return };
        let mut state = semaphore.lock();
        state.give_back(self.export);
        semaphore.hand_out(&mut state);
    }
}
