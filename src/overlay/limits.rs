//! Limits of the overlay.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::delta::{MAX_PATH_BYTES, MergedPath};
use crate::vfs::FsError;

use super::error::Result;

/// Highest limit on file size, in bytes: SQLite's integers are signed.
pub(super) const MAX_FILE_BYTES: u64 = i64::MAX as u64;

/// Hard links per file, as PATHCONF reports.
pub(super) const MAX_LINKS: u32 = 65_000;

/// Length of a symbolic link's target, in bytes (PATH_MAX).
pub(super) const MAX_TARGET_BYTES: usize = 4096;

/// Depth of directories. Also ends the walk of directory cycles that another program wrote.
pub(super) const MAX_DEPTH: usize = 4096;

/// Whiteouts that the RENAME of a directory may move: each is rewritten in one transaction.
pub(super) const MAX_MOVED_WHITEOUTS: u32 = 16_384;

/// Total length of the paths of these whiteouts, in bytes.
pub(super) const MAX_MOVED_WHITEOUT_BYTES: u64 = 2 << 20;

/// Largest file that a change copies up itself, in bytes; larger content follows in the background.
/// Copying this much takes about 10 ms.
pub(super) const COPY_INLINE_BYTES: u64 = 1 << 20;

/// Buffer size of a copy-up, and size of a background piece, in bytes; at least a chunk.
pub(super) const COPY_PIECE_BYTES: u64 = 256 << 10;

/// Bytes that the background copies between two syncs: bounds what a COMMIT waits for.
pub(super) const COPY_SYNC_BYTES: u64 = 8 << 20;

/// Largest base file whose content is kept as an original, in bytes.
pub(super) const ORIGINAL_BYTES: u64 = 1 << 20;

/// Content that a change itself saves for a checkpoint before it takes the content away, in bytes;
/// more is saved before the change, in pieces.
pub(super) const SAVED_AT_ONCE_BYTES: u64 = 1 << 20;

/// Size of such a piece, in bytes; at least a chunk. Saving it takes about 1 ms.
pub(super) const SAVED_PIECE_BYTES: usize = 256 << 10;

/// How often a change is put off to save content first: again for the next large file of the same
/// change, or if a new checkpoint was made during the saving.
pub(super) const MAX_PUT_OFF: u32 = 16;

/// Total content of originals in a session, in bytes.
pub(super) const ORIGINALS_BYTES: u64 = 256 << 20;

/// Removed base objects whose originals wait for the background. Beyond that, no original is kept.
pub(super) const MAX_REMOVED: usize = 65_536;

/// Total length of the paths of these objects, in bytes.
pub(super) const MAX_REMOVED_PATH_BYTES: usize = 8 << 20;

/// Originals of removed objects that the background stores in one transaction.
pub(super) const REMOVED_BATCH: usize = 256;

/// Content that the background reads for one such transaction, in bytes; the last file may exceed
/// it.
pub(super) const REMOVED_BATCH_BYTES: u64 = 4 << 20;

/// Pause without removals before the background stores originals, unless many are waiting.
pub(super) const REMOVED_QUIET: Duration = Duration::from_millis(100);

/// Time that closing a session waits for the originals of removed objects.
pub(super) const REMOVED_END_WAIT: Duration = Duration::from_secs(5);

/// Size of a tool's read buffer for file data, in bytes.
pub(super) const DATA_PIECE_BYTES: u64 = 256 << 10;

/// Bytes of new content and of replaced base files after which a bulk change ends its transaction.
pub(super) const BULK_BYTES: u64 = 4 << 20;

/// Interval of progress reports while a session that is being closed copies pending content.
pub(super) const COPY_PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Files whose lost content is logged only once.
pub(super) const MAX_LOST_NOTED: usize = 4096;

/// Limits of copy-up.
#[derive(Debug, Clone, Copy)]
pub struct CopyLimits {
    /// Largest file that is copied within the change itself, in bytes.
    pub inline_bytes: u64,
    /// Size of a piece, in bytes; at least a chunk.
    pub piece_bytes: u64,
    /// Largest base file whose original is kept, in bytes.
    pub original_bytes: u64,
    /// Total content of originals, in bytes.
    pub originals_bytes: u64,
}

impl CopyLimits {
    /// Upper bound of [`CopyLimits::original_bytes`], in bytes: the writer reads the file while
    /// other changes wait.
    pub const MAX_ORIGINAL_BYTES: u64 = 16 << 20;

    /// The defaults, with originals of base files up to `bytes`, if given.
    pub fn keeping_originals(bytes: Option<u64>) -> Self {
        let original_bytes = bytes.unwrap_or(ORIGINAL_BYTES).min(Self::MAX_ORIGINAL_BYTES);
        Self { original_bytes, ..Self::default() }
    }

    /// These limits, with the default limits of originals.
    pub const fn of(inline_bytes: u64, piece_bytes: u64) -> Self {
        Self {
            inline_bytes,
            piece_bytes,
            original_bytes: ORIGINAL_BYTES,
            originals_bytes: ORIGINALS_BYTES,
        }
    }
}

impl Default for CopyLimits {
    /// Inline up to 1 MiB, pieces of 256 KiB; originals up to 1 MiB each, 256 MiB in total.
    fn default() -> Self {
        Self::of(COPY_INLINE_BYTES, COPY_PIECE_BYTES)
    }
}

/// Directories that one search by path digest lists. Reached only if hundreds of names share a
/// digest byte on every level, or below
/// [`PathDigest::MAX_BYTES`](crate::vfs::PathDigest::MAX_BYTES) levels.
pub(super) const MAX_VISITED_DIRS: usize = 100_000;

/// Objects below a directory that are checked before a RENAME of it to guarded paths.
pub(super) const MAX_GUARD_WALK: usize = 10_000;

/// Objects whose new atime waits for a change. Beyond that, atimes are dropped.
pub(super) const MAX_PENDING_ATIMES: usize = 4096;

/// Entries of the dentry cache.
pub(super) const MAX_CHILDREN: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// Cached places of directories, by inode and by base path each.
pub(super) const MAX_PLACES: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// Total length of their paths, in bytes, for each of the two caches.
pub(super) const MAX_PLACE_BYTES: usize = 4 << 20;

/// Cached paths of base objects: their handles need no search.
pub(super) const MAX_LOCATIONS: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();

/// Total length of these paths, in bytes.
pub(super) const MAX_LOCATION_BYTES: usize = 8 << 20;

/// Path digests of base directories that READDIRPLUS listed.
pub(super) const MAX_LISTED: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Directories cached for one digest: the last ones that were listed.
pub(super) const MAX_ALIKE: usize = 16;

/// Total length of these directories' paths, in bytes.
pub(super) const MAX_LISTED_BYTES: usize = 2 << 20;

/// Free READ buffers that are kept.
pub(super) const KEPT_BUFFERS: usize = 8;

/// Smallest buffer that is kept, in bytes: the allocator handles smaller ones well.
pub(super) const MIN_KEPT_BYTES: usize = 128 << 10;

/// Largest buffer that is kept, in bytes: the largest READ.
pub(super) const MAX_KEPT_BYTES: usize = 1 << 20;

/// Directories with a cached listing.
pub(super) const MAX_SNAPSHOTS: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Total size of a session's cached listings, in bytes, without large ones.
pub(super) const MAX_SNAPSHOT_BYTES: usize = 12 << 20;

/// Largest listing that is cached, in bytes: about two million entries. Of listings above
/// [`MAX_SNAPSHOT_BYTES`], the sessions that share a [`LargeListings`] cache one.
///
/// [`LargeListings`]: super::LargeListings
pub(super) const MAX_LARGE_SNAPSHOT_BYTES: usize = 192 << 20;

/// Largest listing, in entries, that is built concurrently with others. Larger ones are built one
/// at a time.
pub(super) const SMALL_LISTING_ENTRIES: usize = 8192;

/// `st_size` of a base directory from which its listing counts as large before it is built.
pub(super) const LARGE_DIR_BYTES: u64 = 512 << 10;

/// Time that a large listing waits for its permit; then the reply is JUKEBOX.
pub(super) const LARGE_LISTING_WAIT: Duration = Duration::from_secs(2);

/// Negative cache: handles whose base object does not exist.
pub(super) const MAX_ABSENT: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Total length of the paths of the directories that these searches listed, in bytes.
pub(super) const MAX_ABSENT_BYTES: usize = 1 << 20;

/// Directories that one such search may have listed. Longer searches are not cached.
pub(super) const MAX_ABSENT_DIRS: usize = 16;

/// Time for which later pages of a listing may show the state of the first page. Entries removed
/// since are left out.
pub(super) const MAX_SNAPSHOT_AGE: Duration = Duration::from_secs(60);

/// [`FsError::NameTooLong`] if the path of a new object exceeds the limit.
pub(super) fn check_path(path: &MergedPath) -> Result<()> {
    let fits = path.as_bytes().len() <= MAX_PATH_BYTES;
    if fits { Ok(()) } else { Err(FsError::NameTooLong.into()) }
}

/// [`FsError::NameTooLong`] if a rename exceeds the limit, unless the old path was as long: bases
/// and sessions of earlier versions have such paths.
pub(super) fn check_moved_path(old: &MergedPath, new: &MergedPath) -> Result<()> {
    if new.as_bytes().len() <= old.as_bytes().len() { Ok(()) } else { check_path(new) }
}

/// Largest READ that runs on the thread that decoded it, in bytes. A commit in between may make it
/// run twice.
pub(super) const LIGHT_READ_BYTES: u32 = 64 << 10;
