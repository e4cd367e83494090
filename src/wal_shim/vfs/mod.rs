//! The C interface of the VFS: the system's VFS, with different reads and writes of a session's
//! files.
//!
//! SQLite allocates `szOsFile` bytes for a file, and the system's VFS uses the first of them. A
//! file's methods are those that its first field points to. So the system's VFS opens the file. If
//! it is a WAL ([`wal`]) or a database ([`database`]), some of the system's methods are then
//! replaced by our own. Each of those calls the replaced method on the same file.
//!
//! The only `unsafe` code of the crate: SQLite's VFS interface consists of C functions and
//! pointers.
#![allow(unsafe_code)]

mod attached;
mod database;
mod wal;

use std::ffi::{CStr, OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use rusqlite::Connection;
use rusqlite::ffi::{
    self, SQLITE_OK, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs,
};

use super::read_ahead::Get;
use super::rewrite::rewrite;
use super::tells_each_write;
use super::wal_write_buffer::{CALL_BYTES, WriteAt};

/// The name under which the VFS is registered.
const NAME: &CStr = c"acetate";

/// The system's VFS.
struct System {
    vfs: *mut sqlite3_vfs,
    /// Offset in a file's bytes of our pointer to a [`HookedFile`](attached::HookedFile).
    ours_at: usize,
}

// SAFETY: SQLite's own VFSs may be called from any thread, and are never freed.
unsafe impl Send for System {}
// SAFETY: as above.
unsafe impl Sync for System {}

static SYSTEM: OnceLock<Option<System>> = OnceLock::new();

/// The name of the VFS; `None` without the feature `fast-io`, or if SQLite refuses to register it.
pub fn name() -> Option<&'static CStr> {
    if !cfg!(feature = "fast-io") {
        return None;
    }
    SYSTEM.get_or_init(install).as_ref().map(|_| NAME)
}

fn install() -> Option<System> {
    // SAFETY: null asks for the default VFS, which lives as long as the process.
    let vfs = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
    // SAFETY: it is null or points to a VFS.
    let system = unsafe { vfs.as_ref() }?;
    let ours_at = usize::try_from(system.szOsFile).ok()?.next_multiple_of(align_of::<*mut ()>());
    let bytes = ours_at + size_of::<*mut ()>();
    system.xOpen?;
    let ours = Box::leak(Box::new(sqlite3_vfs {
        szOsFile: c_int::try_from(bytes).ok()?,
        pNext: std::ptr::null_mut(),
        zName: NAME.as_ptr(),
        xOpen: Some(open),
        ..*system
    }));
    // SAFETY: it is never freed, and its methods meet SQLite's requirements.
    let code = unsafe { ffi::sqlite3_vfs_register(ours, 0) };
    (code == SQLITE_OK).then_some(System { vfs, ours_at })
}

/// Fsyncs the database file that `conn` has open. SQLite does that only at the end of a checkpoint
/// that has copied the whole WAL.
///
/// # Errors
/// The fsync failed: data that was not synced before may be lost.
pub fn sync_database(conn: &Connection) -> rusqlite::Result<()> {
    let Some(file) = open_file(conn, ffi::SQLITE_FCNTL_FILE_POINTER) else {
        return Err(failure(ffi::SQLITE_IOERR_FSYNC));
    };
    // SAFETY: the file is open, and this is its method.
    let code = unsafe {
        let sync = (*(*file).pMethods).xSync;
        sync.map_or(ffi::SQLITE_IOERR_FSYNC, |sync| sync(file, ffi::SQLITE_SYNC_NORMAL))
    };
    if code == SQLITE_OK { Ok(()) } else { Err(failure(code)) }
}

/// Whether [`has_restarted`](super::has_restarted) detects when `conn` restarts its WAL. It
/// does not without the feature `fast-io`, or on a filesystem where this VFS leaves the WAL to
/// SQLite.
pub fn sees_wal(conn: &Connection) -> bool {
    let file = open_file(conn, ffi::SQLITE_FCNTL_JOURNAL_POINTER);
    // SAFETY: the file is open.
    file.is_some_and(|file| unsafe { wal::is_ours(file) })
}

/// Rewrites the WAL that `conn` has open, unchanged. `conn` must be in a write transaction that has
/// not written anything, so that no other connection writes to the WAL.
///
/// # Errors
/// The WAL could not be read or written.
pub fn rewrite_wal(conn: &Connection) -> rusqlite::Result<()> {
    let Some(file) = open_file(conn, ffi::SQLITE_FCNTL_JOURNAL_POINTER) else { return Ok(()) };
    // SAFETY: the file is open.
    let mut real = unsafe { wal::real(file) };
    rewrite(&mut real).map_err(failure)
}

/// The file of the main database of `conn` that `which` selects, if it is open.
fn open_file(conn: &Connection, which: c_int) -> Option<*mut sqlite3_file> {
    let mut file: *mut sqlite3_file = std::ptr::null_mut();
    // SAFETY: the connection is open. Null selects its main database; SQLite writes a file pointer
    // to `place`.
    let code = unsafe {
        let place = (&raw mut file).cast();
        ffi::sqlite3_file_control(conn.handle(), std::ptr::null(), which, place)
    };
    // SAFETY: null or a file of this connection, which no other thread uses; without methods it is
    // not open.
    let is_open = unsafe { file.as_ref().is_some_and(|file| !file.pMethods.is_null()) };
    (code == SQLITE_OK && is_open).then_some(file)
}

fn failure(code: c_int) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
}

/// A file with the methods of the system's VFS.
struct Real {
    file: *mut sqlite3_file,
    methods: *const sqlite3_io_methods,
}

impl WriteAt for Real {
    fn put(&mut self, bytes: &[u8], offset: u64) -> Result<(), c_int> {
        let (Ok(count), Ok(offset)) = (c_int::try_from(bytes.len()), i64::try_from(offset)) else {
            return Err(ffi::SQLITE_IOERR_WRITE);
        };
        // SAFETY: the file is open, these are its methods, and `bytes` has `count` bytes.
        let code = unsafe {
            let Some(write) = (*self.methods).xWrite else { return Err(ffi::SQLITE_IOERR_WRITE) };
            write(self.file, bytes.as_ptr().cast(), count, offset)
        };
        if code == SQLITE_OK { Ok(()) } else { Err(code) }
    }

    fn length(&mut self) -> Option<u64> {
        let mut length: sqlite3_int64 = 0;
        // SAFETY: the file is open, these are its methods, and `length` is valid for writes.
        let code = unsafe { (*self.methods).xFileSize?(self.file, &raw mut length) };
        u64::try_from(length).ok().filter(|_| code == SQLITE_OK)
    }

    fn cut(&mut self, length: u64) {
        // SAFETY: the file is open, and these are its methods.
        unsafe {
            if let Some(truncate) = (*self.methods).xTruncate {
                // On failure, the file keeps zeros, or pages that are not read.
                let _ = truncate(self.file, length.cast_signed());
            }
        }
    }
}

impl Get for Real {
    fn get(&mut self, to: &mut [u8], offset: u64) -> Result<(), c_int> {
        let mut at = i64::try_from(offset).map_err(|_| ffi::SQLITE_IOERR_READ)?;
        for piece in to.chunks_mut(CALL_BYTES) {
            let count = c_int::try_from(piece.len()).map_err(|_| ffi::SQLITE_IOERR_READ)?;
            // SAFETY: the file is open, these are its methods, and `piece` has room for `count`
            // bytes.
            let code = unsafe {
                let Some(read) = (*self.methods).xRead else { return Err(ffi::SQLITE_IOERR_READ) };
                read(self.file, piece.as_mut_ptr().cast(), count, at)
            };
            if code != SQLITE_OK {
                return Err(code);
            }
            at += i64::from(count);
        }
        Ok(())
    }

    fn length(&mut self) -> Option<u64> {
        WriteAt::length(self)
    }
}

unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    path: ffi::sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let Some(Some(system)) = SYSTEM.get() else { return ffi::SQLITE_CANTOPEN };
    // SAFETY: called as the system's VFS would be; `file` has space for the system's bytes and our
    // pointer.
    unsafe {
        let Some(open) = (*system.vfs).xOpen else { return ffi::SQLITE_CANTOPEN };
        let code = open(system.vfs, path, file, flags, out_flags);
        if code != SQLITE_OK {
            return code;
        }
        if flags & ffi::SQLITE_OPEN_WAL != 0 {
            wal::attach(file);
        }
        if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 {
            database::attach(file, reports_each_write(path));
        }
        SQLITE_OK
    }
}

/// Whether the filesystem of `path` reports each failed write separately.
///
/// # Safety
/// `path` is null, or a path that SQLite passes to `xOpen`.
unsafe fn reports_each_write(path: ffi::sqlite3_filename) -> bool {
    // SAFETY: a path ends with a NUL.
    let path = unsafe { path.as_ref().map(|path| CStr::from_ptr(path)) };
    path.is_some_and(|path| tells_each_write(Path::new(OsStr::from_bytes(path.to_bytes()))))
}
