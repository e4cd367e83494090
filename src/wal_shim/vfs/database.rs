//! The database's file: it grows in pieces while the log is copied into it, and is
//! read in pieces.

use std::ffi::{c_int, c_void};

use rusqlite::ffi::{self, SQLITE_OK, sqlite3_file, sqlite3_int64, sqlite3_io_methods};

use super::super::db_extender::DbExtender;
use super::super::read_ahead::{MAX_CONTENT_PIECE_BYTES, ReadAhead};
use super::attached::HookedFile;

/// What we have of a database's file.
struct Database {
    growth: DbExtender,
    ahead: ReadAhead,
}

/// Puts our methods in the place of the system's.
///
/// # Safety
/// As of [`HookedFile::attach`].
pub(super) unsafe fn attach(file: *mut sqlite3_file, tells_each_write: bool) {
    let (growth, ahead) =
        (DbExtender::new(tells_each_write), ReadAhead::new(MAX_CONTENT_PIECE_BYTES));
    // SAFETY: the file is open, and `close` detaches what we have of it.
    unsafe {
        HookedFile::attach(file, Database { growth, ahead }, |system| sqlite3_io_methods {
            xClose: Some(close),
            xRead: Some(read),
            xWrite: Some(write),
            xLock: Some(lock),
            xShmLock: Some(lock_shared_memory),
            xFileControl: Some(control),
            ..system
        });
    }
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    to: *mut c_void,
    count: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite calls the methods of files that are open; `to` has room for `count` bytes,
    // and lies in nothing of ours.
    unsafe {
        let (database, mut real) = HookedFile::<Database>::parts(file);
        if let (Ok(at), Ok(bytes)) = (u64::try_from(offset), usize::try_from(count))
            && let Some(held) = database.ahead.read(at, bytes, &mut real)
        {
            to.cast::<u8>().copy_from_nonoverlapping(held.as_ptr(), bytes.min(held.len()));
            return SQLITE_OK;
        }
        let Some(read) = (*real.methods).xRead else { return ffi::SQLITE_IOERR_READ };
        read(file, to, count, offset)
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    count: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite calls the methods of files that are open; `from` has `count` bytes.
    unsafe {
        let (database, mut real) = HookedFile::<Database>::parts(file);
        database.ahead.forget();
        if let (Ok(at), Ok(bytes)) = (u64::try_from(offset), usize::try_from(count)) {
            let page = std::slice::from_raw_parts(from.cast::<u8>(), bytes);
            if database.growth.write(page, at, &mut real) {
                return SQLITE_OK;
            }
        }
        let Some(write) = (*real.methods).xWrite else { return ffi::SQLITE_IOERR_WRITE };
        write(file, from, count, offset)
    }
}

/// A transaction may begin, in a database without a log.
unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite calls the methods of files that are open, with what they take.
    unsafe {
        let (database, real) = HookedFile::<Database>::parts(file);
        database.ahead.forget();
        let Some(lock) = (*real.methods).xLock else { return ffi::SQLITE_IOERR_LOCK };
        lock(file, level)
    }
}

/// A transaction may begin or end, in a database with a log.
unsafe extern "C" fn lock_shared_memory(
    file: *mut sqlite3_file,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        let (database, real) = HookedFile::<Database>::parts(file);
        database.ahead.forget();
        let Some(lock) = (*real.methods).xShmLock else { return ffi::SQLITE_IOERR_SHMLOCK };
        lock(file, first, count, flags)
    }
}

/// Hears of a checkpoint's beginning, of how long the file is going to be, and of its end.
unsafe extern "C" fn control(
    file: *mut sqlite3_file,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: SQLite calls the methods of files that are open; with a hint of the size comes a
    // pointer to it.
    unsafe {
        let (database, mut real) = HookedFile::<Database>::parts(file);
        match operation {
            ffi::SQLITE_FCNTL_CKPT_START => database.growth.begin(),
            ffi::SQLITE_FCNTL_SIZE_HINT => {
                if let Some(size) = argument.cast::<sqlite3_int64>().as_ref() {
                    database.growth.hint(size.cast_unsigned(), &mut real);
                }
            }
            ffi::SQLITE_FCNTL_CKPT_DONE => database.growth.finish(),
            _ => {}
        }
        match (*real.methods).xFileControl {
            Some(control) => control(file, operation, argument),
            None => ffi::SQLITE_NOTFOUND,
        }
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes an open file once, and does not use it after that.
    unsafe {
        let real = HookedFile::<Database>::detach(file);
        match (*real.methods).xClose {
            Some(close) => close(file),
            None => ffi::SQLITE_IOERR_CLOSE,
        }
    }
}
