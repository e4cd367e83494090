//! The database's file: it grows in pieces while the log is copied into it, and is read in pieces.

use std::ffi::{c_int, c_void};

use rusqlite::ffi::{self, SQLITE_OK, sqlite3_file, sqlite3_int64, sqlite3_io_methods};

use super::super::growth::Growth;
use super::super::read_ahead::ReadAhead;
use super::{Real, ours};

/// What a database's file has besides the system's bytes.
struct Database {
    /// The system's methods.
    system: *const sqlite3_io_methods,
    /// The same with ours in their place: what SQLite calls.
    methods: sqlite3_io_methods,
    growth: Growth,
    ahead: ReadAhead,
}

/// Puts our methods in the place of the system's.
///
/// # Safety
/// `file` was opened by the system's layer, and has room for a pointer at `ours_at`.
pub(super) unsafe fn attach(file: *mut sqlite3_file, ours_at: usize, tells_each_write: bool) {
    // SAFETY: an open file has methods; the pointer's place is aligned and in the file's bytes.
    unsafe {
        let system = (*file).pMethods;
        let methods = sqlite3_io_methods {
            xClose: Some(close),
            xRead: Some(read),
            xWrite: Some(write),
            xLock: Some(lock),
            xShmLock: Some(lock_shared_memory),
            xFileControl: Some(control),
            ..*system
        };
        let (growth, ahead) = (Growth::new(tells_each_write), ReadAhead::default());
        let database = Database { system, methods, growth, ahead };
        let database = Box::into_raw(Box::new(database));
        file.cast::<u8>().add(ours_at).cast::<*mut Database>().write(database);
        (*file).pMethods = &raw const (*database).methods;
    }
}

/// What a database's file has besides the system's bytes, and the file as the system's layer has
/// it.
///
/// # Safety
/// [`attach`] was called with `file`, and [`close`] was not.
unsafe fn parts<'a>(file: *mut sqlite3_file) -> (&'a mut Database, Real) {
    // SAFETY: `attach` put the pointer there. A file is one connection's, which is used by one
    // thread at a time, and no method of ours calls another one: nobody else has the reference.
    unsafe {
        let database = &mut *ours::<Database>(file);
        let methods = database.system;
        (database, Real { file, methods })
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
        let (database, mut real) = parts(file);
        if let (Ok(at), Ok(bytes)) = (u64::try_from(offset), usize::try_from(count))
            && let Some(held) = database.ahead.read(at, bytes, &mut real)
        {
            to.cast::<u8>().copy_from_nonoverlapping(held.as_ptr(), bytes.min(held.len()));
            return SQLITE_OK;
        }
        let Some(read) = (*database.system).xRead else { return ffi::SQLITE_IOERR_READ };
        read(file, to, count, offset)
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    count: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite calls the methods of files that are open, with what they take.
    unsafe {
        let (database, mut real) = parts(file);
        database.ahead.forget();
        if let (Ok(at), Ok(bytes)) = (u64::try_from(offset), usize::try_from(count)) {
            database.growth.before_write(at, bytes, &mut real);
        }
        let Some(write) = (*database.system).xWrite else { return ffi::SQLITE_IOERR_WRITE };
        write(file, from, count, offset)
    }
}

/// A transaction may begin, in a database without a log.
unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite calls the methods of files that are open, with what they take.
    unsafe {
        let (database, _) = parts(file);
        database.ahead.forget();
        let Some(lock) = (*database.system).xLock else { return ffi::SQLITE_IOERR_LOCK };
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
        let (database, _) = parts(file);
        database.ahead.forget();
        let Some(lock) = (*database.system).xShmLock else { return ffi::SQLITE_IOERR_SHMLOCK };
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
        let (database, mut real) = parts(file);
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
        match (*database.system).xFileControl {
            Some(control) => control(file, operation, argument),
            None => ffi::SQLITE_NOTFOUND,
        }
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes an open file once, and does not use it after that; the pointer came
    // from a box.
    unsafe {
        let (database, _) = parts(file);
        let system = database.system;
        drop(Box::from_raw(std::ptr::from_mut(database)));
        (*file).pMethods = system;
        match (*system).xClose {
            Some(close) => close(file),
            None => ffi::SQLITE_IOERR_CLOSE,
        }
    }
}
