//! The log's file, written a commit at a time.
//!
//! SQLite writes each page of its log with two calls, one for the frame's header and one for the
//! page, and a call costs more than the bytes: 14 pages took 68 µs one by one, and take 9 in one
//! piece (docs/decisions/0029-a-commit-in-one-piece.md).
//!
//! Only what SQLite cannot yet take for written is held back. While it commits, it appends frame
//! after frame and does nothing else with the file; the last frame's header says that it is the
//! last. So frames are held up to that one, and the write of its page puts all of them into the
//! file, and fails if that fails: before anything is synced, and before SQLite tells anyone of
//! the commit. Outside of commits only a frame's header is held, for the write of its page.
//!
//! | File | What |
//! |---|---|
//! | `frames` | which writes are held back, and until when |
//! | `vfs` | the layer under SQLite |

mod frames;
mod vfs;

use std::cell::Cell;

pub(super) use vfs::name;

thread_local! {
    static COMMITTING: Cell<bool> = const { Cell::new(false) };
}

/// Runs what commits: SQLite's `COMMIT`, and nothing else.
pub(super) fn committing<T>(commit: impl FnOnce() -> T) -> T {
    let _until_done = Committing::begin();
    commit()
}

/// However a commit ends, it has ended.
struct Committing;

impl Committing {
    fn begin() -> Self {
        COMMITTING.set(true);
        Self
    }
}

impl Drop for Committing {
    fn drop(&mut self) {
        COMMITTING.set(false);
    }
}

/// Whether this thread is in a commit.
fn is_committing() -> bool {
    COMMITTING.get()
}
