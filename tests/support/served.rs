//! A store and a base, served: the worker, the overlay, and a client of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use acetate::base::Base;
use acetate::delta::Store;
use acetate::overlay::{AutomaticCheckpoints, CopyLimits, Group, Overlay, OverlayParts};
use acetate::vfs::Time;
use acetate::worker::{WorkError, Worker, WorkerOptions};
use tokio::runtime::Runtime;

use super::client::Client;

/// The keys of cookies: another one at each opening would break listings that go on.
const COOKIE_KEY: u64 = 7;

/// How it is served.
pub struct Serving {
    /// The time, in seconds.
    pub clock: Arc<AtomicI64>,
    pub runtime: Arc<Runtime>,
    pub strict: bool,
    pub read_only: bool,
    /// How large files are copied up.
    pub copy_up: CopyLimits,
    /// Limits that it shares with others.
    pub group: Option<Arc<Group>>,
    /// Which checkpoints it makes.
    pub checkpoints: AutomaticCheckpoints,
}

/// What is there between opening and closing.
pub struct Served {
    worker: Arc<Worker>,
    runtime: Arc<Runtime>,
    /// The superuser's view.
    pub root: Client,
}

/// A runtime for one thread's tests.
pub fn runtime() -> Arc<Runtime> {
    Arc::new(tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap())
}

impl Served {
    /// Starts the threads.
    pub fn start(store: Arc<dyn Store>, base: Arc<dyn Base>, how: Serving) -> Self {
        let options = WorkerOptions { strict: how.strict, readers: 2, callers: 2 };
        let worker = Arc::new(Worker::start(store.clone(), options).unwrap());
        let clock = how.clock;
        let mut overlay = Overlay::new(OverlayParts {
            store,
            worker: worker.clone(),
            base,
            clock: Arc::new(move || Time { secs: clock.load(Ordering::SeqCst), nanos: 0 }),
            fsid: 42,
            cookie_key: COOKIE_KEY,
            read_only: how.read_only,
            copy_up: how.copy_up,
            checkpoints: how.checkpoints,
        });
        if let Some(group) = &how.group {
            how.runtime.block_on(overlay.join(group)).unwrap();
        }
        let root = Client::new(Arc::new(overlay), how.runtime.clone());
        Self { worker, runtime: how.runtime, root }
    }

    /// Ends them, and says whether the session is closed cleanly.
    pub fn stop(self) -> Result<(), WorkError> {
        self.runtime.block_on(self.worker.shut_down())
    }
}
