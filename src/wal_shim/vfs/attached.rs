//! [`HookedFile`]: our state of an open file, and the replaced methods.

use rusqlite::ffi::{sqlite3_file, sqlite3_io_methods};

use super::{Real, SYSTEM};

/// A file in which some of the system's methods are replaced.
pub(super) struct HookedFile<T> {
    /// The system's methods.
    system: *const sqlite3_io_methods,
    /// The system's methods with ours in place of some; SQLite calls these.
    methods: sqlite3_io_methods,
    state: T,
}

impl<T> HookedFile<T> {
    /// Replaces the methods of `file` by those that `choose` returns.
    ///
    /// # Safety
    /// `file` was opened by the system's VFS, and has space for our pointer after its bytes. The
    /// last method called on it calls [`HookedFile::detach`].
    pub(super) unsafe fn attach(
        file: *mut sqlite3_file,
        state: T,
        choose: impl FnOnce(sqlite3_io_methods) -> sqlite3_io_methods,
    ) {
        // SAFETY: an open file has methods; the pointer's place is aligned and in the file's bytes.
        unsafe {
            let system = (*file).pMethods;
            let attached =
                Box::into_raw(Box::new(Self { system, methods: choose(*system), state }));
            place(file).write(attached);
            (*file).pMethods = &raw const (*attached).methods;
        }
    }

    /// Our state of the file, and the file with the system's methods.
    ///
    /// # Safety
    /// [`HookedFile::attach`] was called with `file` for the same type, and [`HookedFile::detach`]
    /// was not.
    pub(super) unsafe fn parts<'a>(file: *mut sqlite3_file) -> (&'a mut T, Real) {
        // SAFETY: `attach` stored the pointer. A file belongs to one connection, which one thread
        // uses at a time, and no method of ours calls another: no other reference exists.
        unsafe {
            let attached = place::<T>(file).read();
            (&mut (*attached).state, Real { file, methods: (*attached).system })
        }
    }

    /// Restores the system's methods, with which the file is then closed.
    ///
    /// # Safety
    /// As of [`HookedFile::parts`].
    pub(super) unsafe fn detach(file: *mut sqlite3_file) -> Real {
        // SAFETY: as in `parts`; the pointer came from a box.
        unsafe {
            let attached = Box::from_raw(place::<T>(file).read());
            (*file).pMethods = attached.system;
            Real { file, methods: attached.system }
        }
    }
}

/// Address of our pointer in the file's bytes.
///
/// # Safety
/// `file` was opened by our VFS.
unsafe fn place<T>(file: *mut sqlite3_file) -> *mut *mut HookedFile<T> {
    let ours_at = SYSTEM.get().and_then(Option::as_ref).map_or(0, |system| system.ours_at);
    // SAFETY: a file of our VFS has `ours_at` bytes, and a pointer after them.
    unsafe { file.cast::<u8>().add(ours_at).cast() }
}
