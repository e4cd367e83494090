//! acetate: a copy-on-write directory for agents, served over NFSv3.
//!
//! A read-only host directory (the base) and a SQLite file (the delta, also called the session) are
//! merged into one tree, which any NFSv3 client can mount. docs/ARCHITECTURE.md has the details.
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
//! [`json`], `escape` (text for a terminal) and `run_queue` (woken calls) belong to no layer.
//!
//! # Life of a WRITE
//!
//! [`server`] reads one bounded record and checks the reply cache. [`nfs`] decodes it (the data
//! stays a slice of the record) and checks the handle. [`overlay`] sends the change to the writer
//! thread of [`worker`]. The writer runs it in a transaction with other waiting changes, its batch:
//! attributes before, copy-up if needed, chunks, inode, audit row, attributes after. After the
//! commit, caches are invalidated; only then the replies are sent.

// What is public for the tests alone is unused without it.
#![cfg_attr(not(feature = "internals"), allow(unused_imports))]

/// Declares modules that are public for tests and benchmarks alone. Without the feature `internals`
/// they are private, and the compiler finds what the program does not use.
macro_rules! internal_modules {
    ($($name:ident)*) => {
        $(
            #[cfg(feature = "internals")]
            #[allow(missing_docs, reason = "each module has its own")]
            pub mod $name;
            #[cfg(not(feature = "internals"))]
            pub(crate) mod $name;
        )*
    };
}

pub mod cli;
pub mod inspect;
pub mod workspace;

internal_modules! {
    base config context control delta export json nfs overlay server validation vfs wire worker
    writeback
}

mod escape;
mod mounting;
mod run_queue;
mod wal_shim;
