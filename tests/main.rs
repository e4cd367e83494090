//! Hermetic tests: no root, no kernel mount, loopback only. One folder per layer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod admin;
mod base;
mod cli;
mod config;
mod context;
mod delta;
mod e2e;
mod inspect;
mod nfs;
mod overlay;
mod server;
mod support;
mod tidy;
mod validation;
mod wire;
mod worker;
