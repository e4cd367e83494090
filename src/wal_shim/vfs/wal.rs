//! Methods of the WAL file: frames are written in pieces.

use std::ffi::{c_int, c_void};

use rusqlite::ffi::{
    self, SQLITE_IOCAP_POWERSAFE_OVERWRITE, SQLITE_OK, sqlite3_file, sqlite3_int64,
    sqlite3_io_methods,
};

use super::super::wal_prefetch;
use super::super::wal_write_buffer::WalWriteBuffer;
use super::super::{current_commit, note_start};
use super::Real;
use super::attached::HookedFile;

/// Replaces methods of the system's VFS.
///
/// # Safety
/// As of [`HookedFile::attach`].
pub(super) unsafe fn attach(file: *mut sqlite3_file) {
    // SAFETY: the file is open, and `close` detaches our state.
    unsafe {
        let Some(characteristics) = (*(*file).pMethods).xDeviceCharacteristics else { return };
        // Without this property, SQLite pads commits to the end of a sector, in pieces of any size.
        // SQLite queries the database's file, which returns the same: only the URI parameter `psow`
        // could change that, and a writer's path is no URI.
        if characteristics(file) & SQLITE_IOCAP_POWERSAFE_OVERWRITE == 0 {
            return;
        }
        HookedFile::attach(file, WalWriteBuffer::default(), |system| sqlite3_io_methods {
            xClose: Some(close),
            xRead: Some(read),
            xWrite: Some(write),
            xTruncate: Some(truncate),
            xSync: Some(sync),
            xFileSize: Some(file_size),
            ..system
        });
    }
}

/// The file with the system's methods, whether its methods are replaced or not.
///
/// # Safety
/// The file is open, and a WAL.
pub(super) unsafe fn real(file: *mut sqlite3_file) -> Real {
    // SAFETY: an open file has methods; if they are ours, `attach` was called with it.
    unsafe {
        let methods = (*file).pMethods;
        if is_ours(file) {
            HookedFile::<WalWriteBuffer>::parts(file).1
        } else {
            Real { file, methods }
        }
    }
}

/// Whether [`attach`] has replaced the file's methods.
///
/// # Safety
/// The file is open.
pub(super) unsafe fn is_ours(file: *mut sqlite3_file) -> bool {
    // SAFETY: an open file has methods.
    let method = unsafe { (*(*file).pMethods).xWrite };
    method.is_some_and(|method| {
        std::ptr::fn_addr_eq(method, write as unsafe extern "C" fn(_, _, _, _) -> _)
    })
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    count: c_int,
    offset: sqlite3_int64,
) -> c_int {
    let (Ok(count), Ok(offset)) = (usize::try_from(count), u64::try_from(offset)) else {
        return ffi::SQLITE_IOERR_WRITE;
    };
    if offset == 0 {
        note_start();
    }
    // SAFETY: SQLite calls the methods of files that are open; `from` has `count` bytes.
    unsafe {
        let (frames, mut real) = HookedFile::<WalWriteBuffer>::parts(file);
        let bytes = std::slice::from_raw_parts(from.cast::<u8>(), count);
        let done = frames.write(bytes, offset, current_commit(), &mut real);
        done.err().unwrap_or(SQLITE_OK)
    }
}

/// Flushes held frames first. During a checkpoint, reads are prefetched.
unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    to: *mut c_void,
    count: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite calls the methods of files that are open; `to` has space for `count` bytes,
    // and does not overlap our state.
    unsafe {
        let (frames, mut real) = HookedFile::<WalWriteBuffer>::parts(file);
        if let Err(code) = frames.flush(current_commit(), &mut real) {
            return code;
        }
        let take =
            |page: &[u8]| to.cast::<u8>().copy_from_nonoverlapping(page.as_ptr(), page.len());
        if let (Ok(at), Ok(bytes)) = (u64::try_from(offset), usize::try_from(count))
            && wal_prefetch::read(at, bytes, &mut real, take)
        {
            return SQLITE_OK;
        }
        let Some(read) = (*real.methods).xRead else { return ffi::SQLITE_IOERR_READ };
        read(file, to, count, offset)
    }
}

/// Defines a method that flushes held frames and then calls the system's method.
macro_rules! after_flush {
    ($name:ident, $method:ident($($arg:ident: $type:ty),*), $error:ident) => {
        unsafe extern "C" fn $name(file: *mut sqlite3_file $(, $arg: $type)*) -> c_int {
            // SAFETY: SQLite calls the methods of files that are open, with valid arguments.
            unsafe {
                let (frames, mut real) = HookedFile::<WalWriteBuffer>::parts(file);
                if let Err(code) = frames.flush(current_commit(), &mut real) {
                    return code;
                }
                let Some(method) = (*real.methods).$method else { return ffi::$error };
                method(file $(, $arg)*)
            }
        }
    };
}

after_flush!(truncate, xTruncate(size: sqlite3_int64), SQLITE_IOERR_TRUNCATE);
after_flush!(sync, xSync(flags: c_int), SQLITE_IOERR_FSYNC);
after_flush!(file_size, xFileSize(size: *mut sqlite3_int64), SQLITE_IOERR_FSTAT);

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes an open file once, and does not use it after that.
    unsafe {
        let (frames, mut real) = HookedFile::<WalWriteBuffer>::parts(file);
        let flushed = frames.flush(current_commit(), &mut real);
        let real = HookedFile::<WalWriteBuffer>::detach(file);
        let Some(close) = (*real.methods).xClose else { return ffi::SQLITE_IOERR_CLOSE };
        let closed = close(file);
        flushed.err().unwrap_or(closed)
    }
}
