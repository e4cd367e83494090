//! The HTTP listener, over sources of figures and health that the tests make.

mod bounds;
mod requests;

use std::net::SocketAddr;
use std::sync::Arc;

use acetate::admin::{
    AdminDoor, AdminSite, Collecting, FigureSource, HealthSource, Samples, metrics,
};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

/// A listener that runs.
struct Door {
    address: SocketAddr,
    state: Arc<State>,
    runtime: Runtime,
}

/// What the listener shows.
struct State {
    fault: Mutex<Option<String>>,
    unready: Mutex<Option<String>>,
    /// Each look at the figures takes a permit.
    gate: Semaphore,
    /// Told of each look that begins.
    begun: Semaphore,
}

struct Source(Arc<State>);

impl FigureSource for Source {
    fn collect<'a>(&'a self, samples: &'a mut Samples) -> Collecting<'a> {
        Box::pin(async {
            self.0.begun.add_permits(1);
            self.0.gate.acquire().await.unwrap().forget();
            samples.add(&metrics::SESSIONS, &[], 3);
        })
    }
}

impl HealthSource for Source {
    fn fault(&self) -> Option<String> {
        self.0.fault.lock().clone()
    }

    fn unready(&self) -> Option<String> {
        self.0.unready.lock().clone()
    }
}

impl Door {
    /// Listens; figures are given `looks` times.
    fn open(looks: usize) -> Self {
        let runtime = Runtime::new().unwrap();
        let state = Arc::new(State {
            fault: Mutex::default(),
            unready: Mutex::default(),
            gate: Semaphore::new(looks),
            begun: Semaphore::new(0),
        });
        let (figures, health) = (Source(Arc::clone(&state)), Source(Arc::clone(&state)));
        let site =
            AdminSite { figures: Box::new(figures), health: Box::new(health), exports: None };
        let bound = runtime.block_on(AdminDoor::bind(SocketAddr::from(([127, 0, 0, 1], 0))));
        let door = bound.unwrap();
        let address = door.address();
        runtime.spawn(door.serve(Arc::new(site)));
        Self { address, state, runtime }
    }

    /// Waits until a look at the figures begins.
    fn await_look(&self) {
        self.runtime.block_on(self.state.begun.acquire()).unwrap().forget();
    }
}
