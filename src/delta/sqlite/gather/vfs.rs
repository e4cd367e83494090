//! The layer under SQLite: the system's own, but for the log's file.
//!
//! SQLite allocates `szOsFile` bytes for a file, of which the system's layer uses the first; a
//! file's methods are whatever its first field points to. So the system opens the file as ever,
//! and where it is a log we put methods of our own in place of six of the system's; each calls
//! the one whose place it has with the same file.
//!
//! The only `unsafe` code of the crate: SQLite takes such a layer as C functions and pointers.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use rusqlite::Connection;
use rusqlite::ffi::{
    self, SQLITE_IOCAP_POWERSAFE_OVERWRITE, SQLITE_OK, sqlite3_file, sqlite3_int64,
    sqlite3_io_methods, sqlite3_vfs,
};

use super::ahead::Ahead;
use super::frames::{Frames, Put};
use super::{current_commit, note_start};

/// What connections open their files with.
const NAME: &CStr = c"acetate-gather";

/// The system's layer.
struct System {
    vfs: *mut sqlite3_vfs,
    /// Where in a file's bytes ours begin: a pointer to a [`Log`] in the file of a log.
    ours_at: usize,
}

// SAFETY: SQLite's own layers are made for calls from any thread, and are never freed.
unsafe impl Send for System {}
// SAFETY: as above.
unsafe impl Sync for System {}

static SYSTEM: OnceLock<Option<System>> = OnceLock::new();

/// The layer's name, once it can be used; `None` where SQLite does not take it.
pub(in crate::delta::sqlite) fn name() -> Option<&'static CStr> {
    SYSTEM.get_or_init(install).as_ref().map(|_| NAME)
}

fn install() -> Option<System> {
    // SAFETY: null asks for the default layer. What is found lives as long as the process.
    let vfs = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
    // SAFETY: it is null or a layer.
    let system = unsafe { vfs.as_ref() }?;
    let ours_at = usize::try_from(system.szOsFile).ok()?.next_multiple_of(align_of::<*mut Log>());
    let bytes = ours_at + size_of::<*mut Log>();
    system.xOpen?;
    let ours = Box::leak(Box::new(sqlite3_vfs {
        szOsFile: c_int::try_from(bytes).ok()?,
        pNext: std::ptr::null_mut(),
        zName: NAME.as_ptr(),
        xOpen: Some(open),
        ..*system
    }));
    // SAFETY: it is never freed, and its methods do what SQLite expects of them.
    let code = unsafe { ffi::sqlite3_vfs_register(ours, 0) };
    (code == SQLITE_OK).then_some(System { vfs, ours_at })
}

/// Syncs the file of the database that `conn` has open: SQLite does so only at the end of a
/// checkpoint that has copied all of the log.
///
/// # Errors
/// The sync failed: what was not synced before may be lost.
pub(in crate::delta::sqlite) fn sync_database(conn: &Connection) -> rusqlite::Result<()> {
    let mut file: *mut sqlite3_file = std::ptr::null_mut();
    // SAFETY: the connection is open; null asks for its main database, whose file SQLite writes
    // into the place that it is given.
    let code = unsafe {
        let place = (&raw mut file).cast();
        let asked = ffi::SQLITE_FCNTL_FILE_POINTER;
        ffi::sqlite3_file_control(conn.handle(), std::ptr::null(), asked, place)
    };
    // SAFETY: null or a file of this connection, which no other thread uses; without methods it
    // is not open.
    let methods = unsafe { file.as_ref().and_then(|file| file.pMethods.as_ref()) };
    let Some(sync) = methods.and_then(|methods| methods.xSync).filter(|_| code == SQLITE_OK) else {
        return Err(failure(ffi::SQLITE_IOERR_FSYNC));
    };
    // SAFETY: the file is open, and this is its method.
    match unsafe { sync(file, ffi::SQLITE_SYNC_NORMAL) } {
        SQLITE_OK => Ok(()),
        code => Err(failure(code)),
    }
}

fn failure(code: c_int) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
}

/// What a log's file has besides the system's bytes.
struct Log {
    /// The system's methods.
    system: *const sqlite3_io_methods,
    /// The same with ours in their place: what SQLite calls.
    methods: sqlite3_io_methods,
    frames: Frames,
    ahead: Ahead,
}

/// A log's file as the system's layer has it.
struct Real {
    file: *mut sqlite3_file,
    methods: *const sqlite3_io_methods,
}

impl Put for Real {
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
        // SAFETY: the file is open, these are its methods, and there is a place for the answer.
        let code = unsafe { (*self.methods).xFileSize?(self.file, &raw mut length) };
        u64::try_from(length).ok().filter(|_| code == SQLITE_OK)
    }

    fn cut(&mut self, length: u64) {
        // SAFETY: the file is open, and these are its methods.
        unsafe {
            if let Some(truncate) = (*self.methods).xTruncate {
                // What stays is zeros, which nobody reads.
                let _ = truncate(self.file, length.cast_signed());
            }
        }
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
    // SAFETY: as the system's layer would have been called; `file` has room for its bytes and,
    // behind them, for ours.
    unsafe {
        let Some(open) = (*system.vfs).xOpen else { return ffi::SQLITE_CANTOPEN };
        let code = open(system.vfs, path, file, flags, out_flags);
        if code == SQLITE_OK && flags & ffi::SQLITE_OPEN_WAL != 0 {
            attach(file, system.ours_at);
        }
        code
    }
}

/// Puts our methods in the place of the system's.
///
/// # Safety
/// `file` was opened by the system's layer, and has room for a pointer at `ours_at`.
unsafe fn attach(file: *mut sqlite3_file, ours_at: usize) {
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
        let (frames, ahead) = (Frames::default(), Ahead::default());
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
    let ours_at = SYSTEM.get().and_then(Option::as_ref).map_or(0, |system| system.ours_at);
    // SAFETY: `attach` put the pointer there. A file is one connection's, which is used by one
    // thread at a time, and no method of ours calls another one: nobody else has the reference.
    unsafe {
        let log = &mut **file.cast::<u8>().add(ours_at).cast::<*mut Log>();
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
