//! acetate: a copy-on-write directory for agents, served over NFSv3.
//!
//! A read-only host directory (the base) and a SQLite file (the delta: the session) are merged
//! into one tree, which any NFSv3 client mounts. docs/ARCHITECTURE.md tells more.
//!
//! Programs begin with [`workspace`], which has examples; tools that look at sessions are in
//! [`inspect`].
//!
//! # Layers
//!
//! Each module uses only what is below it; `tests/tidy` checks that.
//!
//! ```text
//!         cli                    parse, print, exit code
//!          │
//!       workspace                all of it put together: begin here
//!          │  \
//!        server \                sockets, limits, RPC, reply cache
//!          │   inspect           offline tools: return data, never print
//!          │   control           changes by path, here or in the server
//!          │   context           context nodes, over any tree of files
//!          │   export            several trees of mounts, for whom; over config and guard
//!         nfs                    decode → one Vfs call → encode
//!        /   \
//!     wire   vfs ◄── overlay     bytes ↔ types │ the contract │ the merge rules
//!                     │   \
//!                  worker  base  the async/blocking seam │ the read-only lower layer
//!                     │      \
//!                   delta  target  the writable upper layer │ a host directory for `apply`
//! ```
//!
//! [`json`] stands apart, for all that read JSON.
//!
//! # Life of a WRITE
//!
//! [`server`] reads one bounded record and looks into the reply cache. [`nfs`] decodes it (the
//! data stays a slice of the record) and checks the handle. [`overlay`] ships the change to the
//! writer thread of [`worker`], which runs it in a transaction with as many others as wait, its
//! batch: attributes before, copy-up if need be, chunks, inode, audit row, attributes after.
//! One commit, caches forget, and only then the answers go back up to the socket.

pub mod base;
pub mod cli;
pub mod config;
pub mod context;
pub mod control;
pub mod delta;
pub mod export;
pub mod inspect;
pub mod json;
pub mod nfs;
pub mod overlay;
pub mod server;
pub mod validation;
pub mod vfs;
mod wal_shim;
pub mod wire;
pub mod worker;
pub mod workspace;
pub mod writeback;
