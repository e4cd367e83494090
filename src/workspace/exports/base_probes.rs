//! Detects bases that hang before exports are opened over them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use parking_lot::Mutex;

use crate::workspace::layers;

/// Time that the first base which hangs is waited for.
const FIRST_WAIT: Duration = Duration::from_secs(2);

/// Time that each further one is waited for: most bases that hang are on one filesystem.
const NEXT_WAIT: Duration = Duration::from_millis(250);

/// Threads that may be stuck in bases; with more, bases that were not asked count as hanging.
const MAX_STUCK_PROBES: usize = 16;

/// Asks bases whether they answer. Each that hangs keeps a thread until it answers, and is not
/// asked a second time before.
#[derive(Clone, Default)]
pub struct BaseProbes {
    /// The bases that are asked now.
    asked: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl BaseProbes {
    /// The bases that do not answer; one that cannot be opened counts as answering. Blocks at most
    /// 6 s in those that hang (2 s, then 250 ms for each of 15), and as long as the others take.
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
        // A thread of its own: while it hangs, no runtime waits for it as it ends.
        let asking = std::thread::Builder::new().name("probe-bases".to_owned());
        let spawned = asking.spawn(move || {
            for base in bases {
                asked.lock().insert(base.clone());
                let _missing = layers::probe(&base);
                asked.lock().remove(&base);
                if answers.send(()).is_err() {
                    return;
                }
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread to ask bases whether they answer");
            return 0;
        }
        let answer = || match answered.recv_timeout(wait) {
            Ok(()) => Some(()),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        };
        std::iter::from_fn(answer).take(count).count()
    }
}
