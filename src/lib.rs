//! acetate: a copy-on-write directory for agents, served over NFSv3.
//!
//! A read-only host directory (the base) and the changes in a SQLite file (the session) are merged
//! into one tree, which any NFSv3 client can mount. docs/ARCHITECTURE.md has the details, and the
//! life of a WRITE.
//!
//! Programs start with [`workspace`], which has examples. Tools that inspect sessions are in
//! [`inspect`].
//!
//! # Layers
//!
//! Each module uses only what is below it; `tests/tidy` checks that.
//!
//! ```text
//!         cli                    parse, print, exit code
//!          │  \
//!          │   admin             figures and health over HTTP
//!          │   mounting          mounts, unmounts, starts servers: never prints
//!          │
//!       workspace                all of it combined: start here
//!          │  \
//!        server \                sockets, limits, RPC, reply cache
//!          │   inspect           offline tools: return data, never print
//!          │   control           changes by path, here or in the server
//!          │   context           context nodes, over any tree of files
//!          │   export            exports: trees of mounts; uses config and validation
//!         nfs                    decode → one Vfs call → encode
//!        /   \
//!     wire   vfs ◄── overlay     bytes ↔ types │ the contract │ the merge rules
//!                     │   \
//!                  worker  base  async callers to blocking threads │ the read-only lower layer
//!                     │      \
//!                  delta  writeback  the writable upper layer │ a host directory for `apply`
//! ```
//!
//! [`json`], `escape` (text for a terminal), `system_error` (words for errors of the system),
//! [`pattern`] (globs of paths), `growing_lru` (caches), `run_queue` (woken calls), `counters` and
//! `request_id` belong to no layer.

// What is public for the tests alone is unused without it.
#![cfg_attr(not(feature = "internals"), allow(unused_imports))]

/// Public for `main` alone.
pub mod cli;
pub mod inspect;
pub mod workspace;

mod counters;
mod escape;
mod growing_lru;
mod mounting;
mod request_id;
mod run_queue;
mod system_error;
mod wal_shim;

// Public for tests and benchmarks alone: without the feature the compiler finds what the program
// does not use. No macro declares them, because rustfmt would not find them.
#[cfg(feature = "internals")]
pub mod admin;
#[cfg(not(feature = "internals"))]
mod admin;
#[cfg(feature = "internals")]
pub mod base;
#[cfg(not(feature = "internals"))]
mod base;
#[cfg(feature = "internals")]
pub mod config;
#[cfg(not(feature = "internals"))]
mod config;
#[cfg(feature = "internals")]
pub mod context;
#[cfg(not(feature = "internals"))]
mod context;
#[cfg(feature = "internals")]
pub mod control;
#[cfg(not(feature = "internals"))]
mod control;
#[cfg(feature = "internals")]
pub mod delta;
#[cfg(not(feature = "internals"))]
mod delta;
#[cfg(feature = "internals")]
pub mod export;
#[cfg(not(feature = "internals"))]
mod export;
#[cfg(feature = "internals")]
pub mod json;
#[cfg(not(feature = "internals"))]
mod json;
#[cfg(feature = "internals")]
pub mod nfs;
#[cfg(not(feature = "internals"))]
mod nfs;
#[cfg(feature = "internals")]
pub mod overlay;
#[cfg(not(feature = "internals"))]
mod overlay;
#[cfg(feature = "internals")]
pub mod pattern;
#[cfg(not(feature = "internals"))]
mod pattern;
#[cfg(feature = "internals")]
pub mod server;
#[cfg(not(feature = "internals"))]
mod server;
#[cfg(feature = "internals")]
pub mod validation;
#[cfg(not(feature = "internals"))]
mod validation;
#[cfg(feature = "internals")]
pub mod vfs;
#[cfg(not(feature = "internals"))]
mod vfs;
#[cfg(feature = "internals")]
pub mod wire;
#[cfg(not(feature = "internals"))]
mod wire;
#[cfg(feature = "internals")]
pub mod worker;
#[cfg(not(feature = "internals"))]
mod worker;
#[cfg(feature = "internals")]
pub mod writeback;
#[cfg(not(feature = "internals"))]
mod writeback;
