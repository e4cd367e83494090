//! The log's file: written in pieces, with zeros ahead of it.

use std::ffi::{c_int, c_void};

use rusqlite::ffi::{
    self, SQLITE_IOCAP_POWERSAFE_OVERWRITE, SQLITE_OK, sqlite3_file, sqlite3_int64,
    sqlite3_io_methods,
};

use super::super::ahead::Ahead;
use super::super::frames::Frames;
use super::super::{current_commit, note_start};
use super::{Real, ours};

/// What a log's file has besides the system's bytes.
struct Log {
    /// The system's methods.
    system: *const sqlite3_io_methods,
    /// The same with ours in their place: what SQLite calls.
    methods: sqlite3_io_methods,
    frames: Frames,
    ahead: Ahead,
}

/// Puts our methods in the place of the system's.
///
/// # Safety
/// `file` was opened by the system's layer, and has room for a pointer at `ours_at`.
pub(super) unsafe fn attach(file: *mut sqlite3_file, ours_at: usize, tells_each_write: bool) {
    // SAFETY: an open file has methods; the pointer's place is aligned and in the file's bytes.
    unsafe {
        let system = (*file).pMethods;
        let Some(characteristics) = (*system).xDeviceCharacteristics else { return };
        // Else commits are filled up to the end of a sector, in pieces of any size. SQLite asks
        // the database's file, which says the same: only the parameter `psow` of a URI can tell
        // it otherwise, and a writer's path is none.
        if characteristics(file) & SQLITE_IOCAP_POWERSAFE_OVERWRITE == 0 {
            return;
        }
        let methods = sqlite3_io_methods {
            xClose: Some(close),
            xRead: Some(read),
            xWrite: Some(write),
            xTruncate: Some(truncate),
            xSync: Some(sync),
            xFileSize: Some(file_size),
            ..*system
        };
        let (frames, ahead) = (Frames::default(), Ahead::new(tells_each_write));
        let log = Box::into_raw(Box::new(Log { system, methods, frames, ahead }));
        file.cast::<u8>().add(ours_at).cast::<*mut Log>().write(log);
        (*file).pMethods = &raw const (*log).methods;
    }
}

/// What a log's file has besides the system's bytes, and the file as the system's layer has it.
///
/// # Safety
/// [`attach`] was called with `file`, and [`close`] was not.
unsafe fn parts<'a>(file: *mut sqlite3_file) -> (&'a mut Log, Real) {
    // SAFETY: `attach` put the pointer there. A file is one connection's, which is used by one
    // thread at a time, and no method of ours calls another one: nobody else has the reference.
    unsafe {
        let log = &mut *ours::<Log>(file);
        let methods = log.system;
        (log, Real { file, methods })
    }
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
        let (log, mut real) = parts(file);
        let bytes = std::slice::from_raw_parts(from.cast::<u8>(), count);
        log.ahead.note_write(offset, bytes.len());
        let done = log.frames.write(bytes, offset, current_commit(), &mut real);
        done.err().unwrap_or(SQLITE_OK)
    }
}

/// A method that finds the file as SQLite left it: what is held is put there first. Then `first`,
/// if there is any, hears of it.
macro_rules! after_flush {
    (
        $name:ident, $method:ident($($arg:ident: $type:ty),*), $error:ident $(, $first:expr)?
    ) => {
        unsafe extern "C" fn $name(file: *mut sqlite3_file $(, $arg: $type)*) -> c_int {
            // SAFETY: SQLite calls the methods of files that are open, with what they take.
            unsafe {
                let (log, mut real) = parts(file);
                if let Err(code) = log.frames.flush(current_commit(), &mut real) {
                    return code;
                }
                let Some(method) = (*log.system).$method else { return ffi::$error };
                $($first(&mut log.ahead, &mut real);)?
                method(file $(, $arg)*)
            }
        }
    };
}

after_flush!(
    read,
    xRead(to: *mut c_void, count: c_int, at: sqlite3_int64),
    SQLITE_IOERR_READ
);
after_flush!(
    truncate,
    xTruncate(size: sqlite3_int64),
    SQLITE_IOERR_TRUNCATE,
    |ahead: &mut Ahead, _: &mut Real| ahead.note_cut(size.cast_unsigned())
);
after_flush!(
    sync,
    xSync(flags: c_int),
    SQLITE_IOERR_FSYNC,
    |ahead: &mut Ahead, real: &mut Real| ahead.before_sync(current_commit().is_some(), real)
);
after_flush!(file_size, xFileSize(size: *mut sqlite3_int64), SQLITE_IOERR_FSTAT);

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes an open file once, and does not use it after that; the pointer came
    // from a box.
    unsafe {
        let (log, mut real) = parts(file);
        let flushed = log.frames.flush(current_commit(), &mut real);
        let system = log.system;
        drop(Box::from_raw(std::ptr::from_mut(log)));
        (*file).pMethods = system;
        let Some(close) = (*system).xClose else { return ffi::SQLITE_IOERR_CLOSE };
        let closed = close(file);
        flushed.err().unwrap_or(closed)
    }
}
