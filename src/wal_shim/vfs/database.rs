//! Methods of the database file: extended in pieces during a checkpoint, and read with read-ahead.

use std::ffi::{c_int, c_void};

use rusqlite::ffi::{self, SQLITE_OK, sqlite3_file, sqlite3_int64, sqlite3_io_methods};

use super::super::db_extender::DbExtender;
use super::super::read_ahead::{MAX_CONTENT_PIECE_BYTES, ReadAhead};
use super::attached::HookedFile;

/// Our state of a database file.
struct Database {
    growth: DbExtender,
    ahead: ReadAhead,
}

/// Replaces methods of the system's VFS.
///
/// # Safety
/// As of [`HookedFile::attach`].
pub(super) unsafe fn attach(file: *mut sqlite3_file, tells_each_write: bool) {
    let (growth, ahead) =
        (DbExtender::new(tells_each_write), ReadAhead::new(MAX_CONTENT_PIECE_BYTES));
    // SAFETY: the file is open, and `close` detaches our state.
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
    // SAFETY: SQLite calls the methods of files that are open; `to` has space for `count` bytes,
    // and does not overlap our state.
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

/// A transaction may begin, in a database without a WAL.
unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite calls the methods of files that are open, with valid arguments.
    unsafe {
        let (database, real) = HookedFile::<Database>::parts(file);
        database.ahead.forget();
        let Some(lock) = (*real.methods).xLock else { return ffi::SQLITE_IOERR_LOCK };
        lock(file, level)
    }
}

/// A transaction may begin or end, in a database with a WAL.
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

/// Receives the beginning of a checkpoint, the file's future length, and the end.
unsafe extern "C" fn control(
    file: *mut sqlite3_file,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: SQLite calls the methods of files that are open; the argument of a size hint is a
    // pointer to the size.
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
