//! What the overlay takes at most: every bound with its unit.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::delta::{MAX_PATH_BYTES, MergedPath};
use crate::vfs::FsError;

use super::error::Result;

/// The largest file that a limit allows, in bytes: SQLite's integers are signed.
pub(super) const MAX_FILE_BYTES: u64 = i64::MAX as u64;

/// Names that one file may have, as PATHCONF says.
pub(super) const MAX_LINKS: u32 = 65_000;

/// The longest target of a symbolic link, in bytes (PATH_MAX).
pub(super) const MAX_TARGET_BYTES: usize = 4096;

/// Levels of directories: rows of another program that form a cycle end here too.
pub(super) const MAX_DEPTH: usize = 4096;

/// The most whiteouts that a RENAME of a directory moves: each is rewritten in one transaction.
pub(super) const MAX_MOVED_WHITEOUTS: u32 = 16_384;

/// Length of their paths together, in bytes.
pub(super) const MAX_MOVED_WHITEOUT_BYTES: u64 = 2 << 20;

/// Files up to this size, in bytes, are copied up at once, by the change itself; of larger ones
/// the content follows in the background. A change that copies as much takes about 10 ms.
pub(super) const COPY_INLINE_BYTES: u64 = 1 << 20;

/// How much of a file copy-up has in memory, and the background copies in one operation, in
/// bytes; at least a chunk.
pub(super) const COPY_PIECE_BYTES: u64 = 256 << 10;

/// What the background copies between two syncs, in bytes: no COMMIT waits for more.
pub(super) const COPY_SYNC_BYTES: u64 = 8 << 20;

/// The largest base file whose content is kept from its first change on, in bytes.
pub(super) const ORIGINAL_BYTES: u64 = 1 << 20;

/// How much content of originals a session keeps, in bytes.
pub(super) const ORIGINALS_BYTES: u64 = 256 << 20;

/// Removed base objects whose originals wait for the background; of further ones none is kept.
pub(super) const MAX_REMOVED: usize = 65_536;

/// Length of their paths together, in bytes.
pub(super) const MAX_REMOVED_PATH_BYTES: usize = 8 << 20;

/// Originals of removed objects that the background stores in one transaction.
pub(super) const REMOVED_BATCH: usize = 256;

/// How much content it reads for these, in bytes, and a file more.
pub(super) const REMOVED_BATCH_BYTES: u64 = 4 << 20;

/// How long no more is removed before the background keeps the originals of what was, unless much
/// waits.
pub(super) const REMOVED_QUIET: Duration = Duration::from_millis(100);

/// How long the end of a session waits for the originals of removed objects.
pub(super) const REMOVED_END_WAIT: Duration = Duration::from_secs(5);

/// How much of a file's data a tool has in memory at a time, in bytes.
pub(super) const DATA_PIECE_BYTES: u64 = 256 << 10;

/// Bytes of contents, and of base files that they replace, after which several changes by path end
/// their transaction.
pub(super) const BULK_BYTES: u64 = 4 << 20;

/// How often it is said how much is left to copy at the end.
pub(super) const COPY_PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Files of which the log says once that the rest of their content is lost.
pub(super) const MAX_LOST_NOTED: usize = 4096;

/// How files are copied up.
#[derive(Debug, Clone, Copy)]
pub struct CopyLimits {
    /// Up to this size, in bytes, at once.
    pub inline_bytes: u64,
    /// In pieces of this many bytes; at least a chunk.
    pub piece_bytes: u64,
    /// The largest base file of which the original is kept, in bytes.
    pub original_bytes: u64,
    /// How much content of originals is kept, in bytes.
    pub originals_bytes: u64,
}

impl CopyLimits {
    /// The most that [`CopyLimits::original_bytes`] may be, in bytes: other changes wait while a
    /// file is read.
    pub const MAX_ORIGINAL_BYTES: u64 = 16 << 20;

    /// As by default, with originals of base files up to `bytes`, if that is given.
    pub fn keeping_originals(bytes: Option<u64>) -> Self {
        let original_bytes = bytes.unwrap_or(ORIGINAL_BYTES).min(Self::MAX_ORIGINAL_BYTES);
        Self { original_bytes, ..Self::default() }
    }

    /// At once up to `inline_bytes`, in pieces of `piece_bytes`; originals as by default.
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
    /// At once up to 1 MiB, in pieces of 256 KiB; originals up to 1 MiB each, 256 MiB in all.
    fn default() -> Self {
        Self::of(COPY_INLINE_BYTES, COPY_PIECE_BYTES)
    }
}

/// Directories that one search along a trail opens. Reached only where hundreds of names share a
/// digest byte on every level, or below [`Trail::MAX_BYTES`](crate::vfs::Trail::MAX_BYTES)
/// levels.
pub(super) const MAX_VISITED_DIRS: usize = 100_000;

/// Objects below a directory that are looked at before it is moved to where paths are guarded.
pub(super) const MAX_GUARD_WALK: usize = 10_000;

/// Objects whose new atime waits for a change; further ones are forgotten.
pub(super) const MAX_PENDING_ATIMES: usize = 4096;

/// Entries of the dentry cache.
pub(super) const MAX_CHILDREN: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// Directories whose place is remembered, by number and by base path each.
pub(super) const MAX_PLACES: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// Length of their paths together, in bytes each.
pub(super) const MAX_PLACE_BYTES: usize = 4 << 20;

/// Base objects whose path is remembered, so that their handles need no walk.
pub(super) const MAX_LOCATIONS: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();

/// Length of these paths together, in bytes.
pub(super) const MAX_LOCATION_BYTES: usize = 8 << 20;

/// Trails of base directories that were listed with attributes.
pub(super) const MAX_LISTED: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Directories that are remembered for one trail: the last ones that were listed.
pub(super) const MAX_ALIKE: usize = 16;

/// Length of these directories' paths together, in bytes.
pub(super) const MAX_LISTED_BYTES: usize = 2 << 20;

/// Buffers of READ that are kept to be used again.
pub(super) const KEPT_BUFFERS: usize = 8;

/// The smallest buffer that is kept, in bytes: of a smaller one, the allocator takes care.
pub(super) const MIN_KEPT_BYTES: usize = 128 << 10;

/// The largest, in bytes: the largest READ.
pub(super) const MAX_KEPT_BYTES: usize = 1 << 20;

/// Directories whose listing is kept between the pages of a reader.
pub(super) const MAX_SNAPSHOTS: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Kept listings of a session together, in bytes; a larger one counts by itself.
pub(super) const MAX_SNAPSHOT_BYTES: usize = 12 << 20;

/// The largest listing that is kept, in bytes: about two million entries. Of those above
/// [`MAX_SNAPSHOT_BYTES`], all sessions that share their [`LargeListings`] keep one.
///
/// [`LargeListings`]: super::LargeListings
pub(super) const MAX_LARGE_SNAPSHOT_BYTES: usize = 192 << 20;

/// Entries of a listing that is made without waiting for others; a larger one is made while no
/// other large one is.
pub(super) const SMALL_LISTING_ENTRIES: usize = 8192;

/// Bytes of a directory of the base, as `stat` says, from which on its listing is taken for a
/// large one before it is made.
pub(super) const LARGE_DIR_BYTES: u64 = 512 << 10;

/// How long a large listing waits for its turn; then the answer is JUKEBOX.
pub(super) const LARGE_LISTING_WAIT: Duration = Duration::from_secs(2);

/// Negative cache: handles whose base object does not exist.
pub(super) const MAX_ABSENT: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Length of the paths of the directories searched for them together, in bytes.
pub(super) const MAX_ABSENT_BYTES: usize = 1 << 20;

/// Directories in which one of them may have been searched for; what took more is searched for
/// each time.
pub(super) const MAX_ABSENT_DIRS: usize = 16;

/// How long the later pages of a listing may show the state of its first page. Entries that
/// vanished since are left out all the same.
pub(super) const MAX_SNAPSHOT_AGE: Duration = Duration::from_secs(60);

/// Refuses to make something at a path that is too long.
pub(super) fn check_path(path: &MergedPath) -> Result<()> {
    let fits = path.as_bytes().len() <= MAX_PATH_BYTES;
    if fits { Ok(()) } else { Err(FsError::NameTooLong.into()) }
}

/// Refuses to move something to a path that is too long, unless it was as long before: sessions
/// of earlier versions, and bases, have such paths.
pub(super) fn check_moved_path(old: &MergedPath, new: &MergedPath) -> Result<()> {
    if new.as_bytes().len() <= old.as_bytes().len() { Ok(()) } else { check_path(new) }
}

/// A READ of at most so many bytes is answered on the thread that decodes it, and may be done
/// twice, where a commit came between.
pub(super) const LIGHT_READ_BYTES: u32 = 64 << 10;
