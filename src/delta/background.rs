//! Threads for work on a session's files beside its writer.

use std::fmt;
use std::thread;

/// A piece of work that runs once, on any thread.
pub type BackgroundWork = Box<dyn FnOnce() + Send>;

/// Threads that run work beside the writers of the sessions that share them.
///
/// The work may be dropped without running, when the threads end.
pub trait BackgroundThreads: Send + Sync {
    /// Runs `work` once, now or when a thread is free. Returns `false`, and drops `work`, if no
    /// thread can run it.
    fn run(&self, work: BackgroundWork) -> bool;

    /// Like [`BackgroundThreads::run`], but returns `false` instead of waiting for a thread.
    fn run_now(&self, work: BackgroundWork) -> bool;
}

/// A new thread for each piece of work: for sessions without a server.
pub struct NewThreads;

impl fmt::Debug for NewThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewThreads")
    }
}

impl BackgroundThreads for NewThreads {
    fn run(&self, work: BackgroundWork) -> bool {
        let started = thread::Builder::new().name("acetate-wal".to_owned()).spawn(work);
        started.inspect_err(|error| tracing::warn!(%error, "cannot start a thread")).is_ok()
    }

    fn run_now(&self, work: BackgroundWork) -> bool {
        self.run(work)
    }
}
