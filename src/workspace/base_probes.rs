//! Detects bases that hang before exports are opened over them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::layers;

/// Time that the first base which hangs is waited for.
const FIRST_WAIT: Duration = Duration::from_secs(2);

/// The same for each further one: most are on one filesystem.
const NEXT_WAIT: Duration = Duration::from_millis(250);

/// Threads that may be stuck in bases; with more, bases that were not asked count as hanging.
const MAX_STUCK_PROBES: usize = 16;

/// Asks bases whether they answer. Each that hangs keeps a thread until it answers, and is not
/// asked a second time before.
#[derive(Clone)]
pub struct BaseProbes {
    runtime: Handle,
    /// The bases that are asked now.
    asked: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl BaseProbes {
    /// Runs its threads on `runtime`.
    pub(super) fn new(runtime: Handle) -> Self {
        Self { runtime, asked: Arc::default() }
    }

    /// Those of `bases` that do not answer; one that cannot be opened does. Blocks at most 6 s, and
    /// as long as the others take.
    pub fn hanging(&self, bases: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
        let mut hanging: BTreeSet<_> = bases.intersection(&self.asked.lock()).cloned().collect();
        let mut left: Vec<_> = bases.difference(&hanging).cloned().collect();
        while !left.is_empty() {
            if self.asked.lock().len() >= MAX_STUCK_PROBES {
                hanging.extend(left);
                break;
            }
            let wait = if hanging.is_empty() { FIRST_WAIT } else { NEXT_WAIT };
            let answered = self.answered(left.clone(), wait);
            hanging.extend(left.get(answered).cloned());
            left.drain(..left.len().min(answered + 1));
        }
        hanging
    }

    /// How many of `bases` answer, in their order, until one takes longer than `wait`.
    fn answered(&self, bases: Vec<PathBuf>, wait: Duration) -> usize {
        let (answers, answered) = channel();
        let (asked, count) = (Arc::clone(&self.asked), bases.len());
        self.runtime.spawn_blocking(move || {
            for base in bases {
                asked.lock().insert(base.clone());
                let _missing = layers::probe(&base);
                asked.lock().remove(&base);
                if answers.send(()).is_err() {
                    return;
                }
            }
        });
        let answer = || match answered.recv_timeout(wait) {
            Ok(()) => Some(()),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        };
        std::iter::from_fn(answer).take(count).count()
    }
}
