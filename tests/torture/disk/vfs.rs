//! The layer under SQLite: a VFS that passes every call on to the system's own, and tells the
//! [`Disk`] of its directory, which writes it down or lets it fail.
//!
//! It is the process's default VFS, so that sessions are opened as ever, by path. Directories
//! that are nobody's [`Disk`] are left alone.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rusqlite::ffi::{
    self, SQLITE_OK, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_syscall_ptr,
    sqlite3_vfs,
};

use super::{Call, Disk};

/// The system's VFS, and what it does to find a directory before it syncs it.
struct Real {
    vfs: *mut sqlite3_vfs,
    open_directory: unsafe extern "C" fn(*const c_char, *mut c_int) -> c_int,
}

// SAFETY: SQLite's own VFS is made for calls from any thread, and is never freed.
unsafe impl Send for Real {}
// SAFETY: as above.
unsafe impl Sync for Real {}

static REAL: OnceLock<Real> = OnceLock::new();

/// An open file: SQLite allocates `szOsFile` bytes, ours and behind them those of the real one.
#[repr(C)]
struct File {
    base: sqlite3_file,
    disk: *const Disk,
    number: u32,
    real: *mut sqlite3_file,
}

/// Bytes of [`File`], so that what stands behind it is aligned.
const FILE_BYTES: usize = size_of::<File>().next_multiple_of(16);

/// Makes this VFS the default of the process, once.
pub fn install() {
    REAL.get_or_init(|| {
        // SAFETY: the calls and structures are used as SQLite documents them; the system's VFS
        // and ours live as long as the process.
        unsafe {
            let vfs = ffi::sqlite3_vfs_find(std::ptr::null());
            assert!(!vfs.is_null(), "SQLite has no VFS");
            // The library's own layer calls whichever was the default when it was installed.
            let above = ffi::sqlite3_vfs_find(c"acetate".as_ptr());
            assert!(above.is_null(), "a session was opened before this layer was there");
            let name = CString::new("openDirectory").unwrap();
            let found = (*vfs).xGetSystemCall.unwrap()(vfs, name.as_ptr()).unwrap();
            let open_directory = std::mem::transmute::<
                unsafe extern "C" fn(),
                unsafe extern "C" fn(*const c_char, *mut c_int) -> c_int,
            >(found);
            let ours = std::mem::transmute::<
                unsafe extern "C" fn(*const c_char, *mut c_int) -> c_int,
                unsafe extern "C" fn(),
            >(sync_directory);
            let ours: sqlite3_syscall_ptr = Some(ours);
            let set = (*vfs).xSetSystemCall.unwrap()(vfs, name.as_ptr(), ours);
            assert_eq!(set, SQLITE_OK);
            let shim = Box::leak(Box::new(sqlite3_vfs {
                szOsFile: FILE_BYTES as c_int + (*vfs).szOsFile,
                pNext: std::ptr::null_mut(),
                zName: CString::new("torture").unwrap().into_raw(),
                xOpen: Some(open),
                xDelete: Some(delete),
                xSleep: Some(sleep),
                ..*vfs
            }));
            assert_eq!(ffi::sqlite3_vfs_register(shim, 1), SQLITE_OK);
            Real { vfs, open_directory }
        }
    });
}

fn real() -> &'static Real {
    REAL.get().expect("the VFS is installed")
}

/// # Safety
/// `name` is null or a C string.
unsafe fn path<'a>(name: *const c_char) -> Option<&'a Path> {
    // SAFETY: the caller's promise.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })?;
    Some(Path::new(OsStr::from_bytes(name.to_bytes())))
}

/// Called by the system's VFS right before it syncs the directory of the file `name`.
unsafe extern "C" fn sync_directory(name: *const c_char, fd: *mut c_int) -> c_int {
    // SAFETY: SQLite passes a path.
    if let Some(disk) = unsafe { path(name) }.and_then(super::disk_of) {
        disk.synced_directory();
    }
    // SAFETY: the arguments are those that the original would have got.
    unsafe { (real().open_directory)(name, fd) }
}

/// A waiting SQLite waits for nobody: tests hold locks in the same thread.
unsafe extern "C" fn sleep(_: *mut sqlite3_vfs, microseconds: c_int) -> c_int {
    std::thread::yield_now();
    microseconds
}

unsafe extern "C" fn delete(_: *mut sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: SQLite passes a path.
    let known = unsafe { path(name) }.and_then(|path| Some((super::disk_of(path)?, path)));
    if let Some((disk, path)) = known
        && let Err(code) = disk.deleting(path)
    {
        return code;
    }
    let vfs = real().vfs;
    // SAFETY: as the system's VFS would have been called.
    unsafe { (*vfs).xDelete.unwrap()(vfs, name, sync) }
}

unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let vfs = real().vfs;
    // SAFETY: SQLite passes null or a path, and `file` has room for `szOsFile` bytes: enough for
    // the real file alone, and for it behind ours.
    unsafe {
        let known = path(name).and_then(|path| Some((super::disk_of(path)?, path)));
        let Some((disk, path)) = known else {
            return (*vfs).xOpen.unwrap()(vfs, name, file, flags, out_flags);
        };
        (*file).pMethods = std::ptr::null();
        if let Err(code) = disk.before(Call::Open) {
            return code;
        }
        let existed = path.exists();
        let behind = file.cast::<u8>().add(FILE_BYTES).cast::<sqlite3_file>();
        let code = (*vfs).xOpen.unwrap()(vfs, name, behind, flags, out_flags);
        if code != SQLITE_OK {
            return code;
        }
        let number = disk.opened(path, existed);
        let base = sqlite3_file { pMethods: &raw const METHODS };
        file.cast::<File>().write(File { base, disk: Arc::into_raw(disk), number, real: behind });
    }
    SQLITE_OK
}

/// The file's disk, its number there, and the real file.
///
/// # Safety
/// `file` was opened by [`open`] and is not closed.
unsafe fn parts<'a>(file: *mut sqlite3_file) -> (&'a Disk, u32, *mut sqlite3_file) {
    // SAFETY: the caller's promise: `open` filled it in, and the disk lives until `close`.
    unsafe {
        let file = &*file.cast::<File>();
        (&*file.disk, file.number, file.real)
    }
}

/// Calls a method of the real file.
macro_rules! real {
    ($file:expr, $method:ident $(, $arg:expr)*) => {
        ((*(*$file).pMethods).$method.unwrap())($file $(, $arg)*)
    };
}

/// A method that only asks first, or does not even that.
macro_rules! pass {
    ($name:ident, $method:ident, $call:expr $(, $arg:ident: $type:ty)*) => {
        unsafe extern "C" fn $name(file: *mut sqlite3_file $(, $arg: $type)*) -> c_int {
            // SAFETY: SQLite calls the methods of files that are open, with what they take.
            unsafe {
                let (disk, _, real) = parts(file);
                let call: Option<Call> = $call;
                match call.map_or(Ok(()), |call| disk.before(call)) {
                    Ok(()) => real!(real, $method $(, $arg)*),
                    Err(code) => code,
                }
            }
        }
    };
}

pass!(read, xRead, Some(Call::Read), to: *mut c_void, count: c_int, offset: sqlite3_int64);
pass!(file_size, xFileSize, Some(Call::Size), size: *mut sqlite3_int64);
pass!(lock, xLock, Some(Call::Lock), level: c_int);
pass!(unlock, xUnlock, None, level: c_int);
pass!(is_reserved, xCheckReservedLock, None, result: *mut c_int);
pass!(control, xFileControl, None, op: c_int, arg: *mut c_void);
pass!(sector_size, xSectorSize, None);
pass!(characteristics, xDeviceCharacteristics, None);
pass!(shm_map, xShmMap, Some(Call::ShmMap), page: c_int, bytes: c_int, extend: c_int,
    at: *mut *mut c_void);
pass!(shm_unmap, xShmUnmap, None, delete: c_int);

unsafe extern "C" fn shm_lock(
    file: *mut sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    /// `WAL_WRITE_LOCK`: the byte that a writer locks.
    const WRITE_LOCK: c_int = 0;
    // SAFETY: as in `pass!`.
    unsafe {
        let (disk, _, real) = parts(file);
        let takes = offset == WRITE_LOCK && flags & ffi::SQLITE_SHM_LOCK != 0;
        match if takes { disk.before(Call::WriteLock) } else { Ok(()) } {
            Ok(()) => real!(real, xShmLock, offset, count, flags),
            Err(code) => code,
        }
    }
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    // SAFETY: as in `pass!`.
    unsafe {
        let real = parts(file).2;
        ((*(*real).pMethods).xShmBarrier.unwrap())(real);
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    count: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: as in `pass!`; `from` has `count` bytes.
    unsafe {
        let (disk, number, real) = parts(file);
        let data = std::slice::from_raw_parts(from.cast::<u8>(), count as usize);
        disk.write(number, offset as u64, data, |data| {
            real!(real, xWrite, data.as_ptr().cast(), data.len() as c_int, offset)
        })
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    // SAFETY: as in `pass!`.
    unsafe {
        let (disk, number, real) = parts(file);
        disk.truncate(number, size as u64, || real!(real, xTruncate, size))
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: as in `pass!`.
    unsafe {
        let (disk, number, real) = parts(file);
        disk.sync(number, || real!(real, xSync, flags))
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: as in `pass!`; after this the file is not used again, so the disk's count goes.
    unsafe {
        let real = parts(file).2;
        let code = real!(real, xClose);
        drop(Arc::from_raw((*file.cast::<File>()).disk));
        (*file).pMethods = std::ptr::null();
        code
    }
}

/// Version 2: shared memory, and no mapping of the file itself.
static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(is_reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};
