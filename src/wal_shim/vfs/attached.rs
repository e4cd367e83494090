//! What we have of an open file, behind the bytes that the system's layer has of it.

use rusqlite::ffi::{sqlite3_file, sqlite3_io_methods};

use super::{Real, SYSTEM};

/// A file with methods of ours in place of some of the system's.
pub(super) struct HookedFile<T> {
    /// The system's methods.
    system: *const sqlite3_io_methods,
    /// The same with ours in their place: what SQLite calls.
    methods: sqlite3_io_methods,
    state: T,
}

impl<T> HookedFile<T> {
    /// Gives `file` the methods that `choose` makes of the system's.
    ///
    /// # Safety
    /// `file` was opened by the system's layer, and has room for our pointer behind its bytes.
    /// The last method that is called is one that calls [`HookedFile::detach`].
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

    /// What we have of the file, and the file as the system's layer has it.
    ///
    /// # Safety
    /// [`HookedFile::attach`] was called with `file` for the same type, and [`HookedFile::detach`]
    /// was not.
    pub(super) unsafe fn parts<'a>(file: *mut sqlite3_file) -> (&'a mut T, Real) {
        // SAFETY: `attach` put the pointer there. A file is one connection's, which is used by one
        // thread at a time, and no method of ours calls another one: nobody else has the reference.
        unsafe {
            let attached = place::<T>(file).read();
            (&mut (*attached).state, Real { file, methods: (*attached).system })
        }
    }

    /// Gives the file the system's methods back, which it is to be closed with.
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

/// Where the pointer to it is.
///
/// # Safety
/// `file` was opened by our layer.
unsafe fn place<T>(file: *mut sqlite3_file) -> *mut *mut HookedFile<T> {
    let ours_at = SYSTEM.get().and_then(Option::as_ref).map_or(0, |system| system.ours_at);
    // SAFETY: a file of our layer has so many bytes, and a pointer's more.
    unsafe { file.cast::<u8>().add(ours_at).cast() }
}
