//! `acetate compact`: returns free pages to the filesystem (docs/decisions/0014).

use std::path::Path;
use std::time::Duration;

use crate::delta::Compacted;
use crate::delta::sqlite::file::connect::{self, Role, companion_path};
use crate::delta::sqlite::file::disk::byte_len;
use crate::delta::sqlite::file::error::OpenError;
use crate::delta::sqlite::file::lock::SessionLock;
use crate::delta::sqlite::file::rewrite::{self, FileCopy, UsedPages};
use crate::delta::sqlite::file::{probe, session::Session};
use crate::delta::sqlite::table::replica;
use crate::delta::sqlite::wal::frames;

/// How long the final checkpoint waits for readers of other programs.
const READER_WAIT: Duration = Duration::from_secs(1);

impl Session {
    /// Returns the free pages of the session file `path` to the filesystem. The session's content
    /// does not change.
    ///
    /// `tell` receives progress: bytes copied and bytes in total.
    ///
    /// # Errors
    /// See [`OpenError`]. In particular, a server has the session, or there is no space for two
    /// copies of the pages in use. The session is unchanged.
    pub fn compact(
        path: &Path,
        tell: &mut dyn FnMut(u64, u64),
    ) -> std::result::Result<Compacted, OpenError> {
        let path = &Self::existing(path)?;
        let _lock = SessionLock::take(path, true)?;
        probe::check(path)?;
        let copy = FileCopy::beside(path);
        // Left by a killed compaction; the lock shows that none is running.
        copy.remove().map_err(|error| OpenError::io(&copy.path, error))?;
        let before_bytes = rewrite::whole_length(path);
        let store = |error| OpenError::store(path, error);
        let mut conn = connect::open(path, Role::Writer).map_err(store)?;
        connect::prepare_to_write(&conn).map_err(store)?;
        frames::rewrite_frames(&conn).map_err(store)?;
        // Another store knows rows by their ids, and these change.
        replica::put_mark(&conn, None).map_err(store)?;
        let used = UsedPages::of(&conn).map_err(store)?;
        rewrite::require_room(path, used.bytes())?;
        copy.create().map_err(|error| OpenError::io(&copy.path, error))?;
        rewrite::rewrite(&mut conn, path, &copy.path, used, tell).map_err(store)?;
        copy.remove().map_err(|error| OpenError::io(&copy.path, error))?;
        conn.busy_timeout(READER_WAIT).map_err(|error| store(error.into()))?;
        frames::checkpoint(&conn, "TRUNCATE").map_err(store)?;
        let is_delayed = byte_len(&companion_path(path, "-wal")) > 0;
        drop(conn);
        Ok(Compacted { before_bytes, after_bytes: rewrite::whole_length(path), is_delayed })
    }
}
