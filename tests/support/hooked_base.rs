//! A directory as a base, with a test's own word before each call.

use std::path::Path;
use std::sync::Arc;

use acetate::base::{
    Base, BaseAttr, BaseError, BasePath, Entries, HostDir, HostDirOptions, Listing,
};
use acetate::vfs::FileId;

/// A call of a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseCall {
    Stat,
    List,
    Entries,
    ReadLink,
    Read,
    NextData,
    FindLinked,
}

/// What happens before each call.
pub trait Hook: Send + Sync + 'static {
    /// Lets the call through, holds it up, or fails it.
    fn before(&self, call: BaseCall) -> Result<(), BaseError>;
}

/// The directory.
pub struct HookedBase<H> {
    inner: HostDir,
    pub hook: H,
}

impl<H: Hook> HookedBase<H> {
    pub fn over(dir: &Path, hook: H) -> Arc<Self> {
        let inner = HostDir::open(dir, HostDirOptions::default()).unwrap();
        Arc::new(Self { inner, hook })
    }
}

impl<H: Hook> Base for HookedBase<H> {
    fn invalidate(&self) {
        self.inner.invalidate();
    }

    fn rest(&self) {
        self.inner.rest();
    }

    fn must_stay_open(&self) -> bool {
        self.inner.must_stay_open()
    }

    fn has_unfinished_apply(&self) -> Result<bool, BaseError> {
        self.hook.before(BaseCall::Stat)?;
        self.inner.has_unfinished_apply()
    }

    fn stat(&self, path: &BasePath) -> Result<BaseAttr, BaseError> {
        self.hook.before(BaseCall::Stat)?;
        self.inner.stat(path)
    }

    fn list(&self, path: &BasePath) -> Result<Arc<Listing>, BaseError> {
        self.hook.before(BaseCall::List)?;
        self.inner.list(path)
    }

    fn entries<'a>(&'a self, path: &BasePath) -> Result<Box<dyn Entries + 'a>, BaseError> {
        self.hook.before(BaseCall::Entries)?;
        self.inner.entries(path)
    }

    fn read_link(&self, path: &BasePath) -> Result<Vec<u8>, BaseError> {
        self.hook.before(BaseCall::ReadLink)?;
        self.inner.read_link(path)
    }

    fn read(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(usize, BaseAttr), BaseError> {
        self.hook.before(BaseCall::Read)?;
        self.inner.read(path, id, offset, buffer)
    }

    fn next_data(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
    ) -> Result<Option<(u64, u64)>, BaseError> {
        self.hook.before(BaseCall::NextData)?;
        self.inner.next_data(path, id, offset)
    }

    fn find_linked(
        &self,
        id: FileId,
        wanted: &mut dyn FnMut(&BasePath) -> bool,
    ) -> Result<Option<BasePath>, BaseError> {
        self.hook.before(BaseCall::FindLinked)?;
        self.inner.find_linked(id, wanted)
    }
}
