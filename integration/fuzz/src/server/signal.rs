//! What Rust does before `main`, and libFuzzer's `main` does not.

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Makes a write to a connection that the other end has closed an error, as it is in each program
/// of Rust's, and not the end of the process: SIGPIPE gets a handler, which stays.
pub fn outlive_closed_connections() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let _never_polled = signal(SignalKind::pipe()).unwrap();
}
