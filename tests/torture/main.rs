//! Torture: power cuts and failing disks below SQLite, with everything that was promised
//! remembered. In a process of its own, because it puts a layer under SQLite (`disk/vfs`).
//!
//! | File | What |
//! |---|---|
//! | `disk` | the layer: writes down, rebuilds what a cut may leave, fails calls |
//! | `ground` | a base and a new session, and how they are served |
//! | `life` | random operations, and what a reference says of them |
//! | `cut` | what is left after a power cut, looked at |
//! | `power_cut` | what survives the machine |
//! | `faults` | what a failing disk costs |
//! | `faults/creating` | what it costs a session that is being created |
//! | `faults/opening` | what it costs a session that is being opened |
//! | `going_back` | what survives while checkpoints are made, restored, removed, and forks merged |
//! | `gathered` | how the log is written |
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod cut;
mod disk;
mod faults;
#[cfg(feature = "fast-io")]
mod gathered;
mod going_back;
mod ground;
mod life;
mod power_cut;
mod random;
#[path = "../overlay/model/reference.rs"]
#[allow(dead_code)]
mod reference;
#[path = "../support/mod.rs"]
#[allow(dead_code)]
mod support;

/// A number that the environment asks for.
fn asked(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
}
