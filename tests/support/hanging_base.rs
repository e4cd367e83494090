//! A base that does not answer for as long as it is told not to.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use acetate::base::{
    Base, BaseAttr, BaseError, BasePath, Entries, HostDir, HostDirOptions, Listing,
};
use acetate::vfs::FileId;

/// A directory whose calls wait while it hangs.
pub struct HangingBase {
    inner: HostDir,
    state: Mutex<State>,
    answers: Condvar,
}

#[derive(Default)]
struct State {
    hangs: bool,
    waiting: usize,
}

impl HangingBase {
    pub fn new(dir: &Path) -> Arc<Self> {
        let inner = HostDir::open(dir, HostDirOptions::default()).unwrap();
        Arc::new(Self { inner, state: Mutex::default(), answers: Condvar::new() })
    }

    /// Answers nothing from now on, or everything again.
    pub fn hang(&self, hangs: bool) {
        self.state.lock().unwrap().hangs = hangs;
        self.answers.notify_all();
    }

    /// How many calls wait.
    pub fn waiting(&self) -> usize {
        self.state.lock().unwrap().waiting
    }

    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        state = self.answers.wait_while(state, |state| state.hangs).unwrap();
        state.waiting -= 1;
    }
}

impl Base for HangingBase {
    fn look_anew(&self) {
        self.inner.look_anew();
    }

    fn stat(&self, path: &BasePath) -> Result<BaseAttr, BaseError> {
        self.wait();
        self.inner.stat(path)
    }

    fn list(&self, path: &BasePath) -> Result<Arc<Listing>, BaseError> {
        self.wait();
        self.inner.list(path)
    }

    fn entries<'a>(&'a self, path: &BasePath) -> Result<Box<dyn Entries + 'a>, BaseError> {
        self.wait();
        self.inner.entries(path)
    }

    fn read_link(&self, path: &BasePath) -> Result<Vec<u8>, BaseError> {
        self.wait();
        self.inner.read_link(path)
    }

    fn read(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(usize, BaseAttr), BaseError> {
        self.wait();
        self.inner.read(path, id, offset, buffer)
    }

    fn next_data(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
    ) -> Result<Option<(u64, u64)>, BaseError> {
        self.wait();
        self.inner.next_data(path, id, offset)
    }

    fn find_linked(
        &self,
        id: FileId,
        wanted: &mut dyn FnMut(&BasePath) -> bool,
    ) -> Result<Option<BasePath>, BaseError> {
        self.wait();
        self.inner.find_linked(id, wanted)
    }
}
