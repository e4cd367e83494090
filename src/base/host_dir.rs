//! A directory of this machine, opened once and never left.

use std::path::Path;
use std::sync::Arc;

use super::{Base, BaseAttr, BaseError, BasePath, Listing};
use crate::vfs::FileId;

/// How a [`HostDir`] is opened.
#[derive(Debug, Clone, Default)]
pub struct HostDirOptions {
    /// Paths that do not exist for the export: the session file and its companions.
    pub hidden: Vec<BasePath>,
}

/// A read-only view of a host directory.
pub struct HostDir {}

impl HostDir {
    /// Opens the directory `root`.
    pub fn open(_root: &Path, _options: HostDirOptions) -> Result<Self, BaseError> {
        todo!()
    }
}

impl Base for HostDir {
    fn stat(&self, _path: &BasePath) -> Result<BaseAttr, BaseError> {
        todo!()
    }
    fn list(&self, _path: &BasePath) -> Result<Arc<Listing>, BaseError> {
        todo!()
    }
    fn read_link(&self, _path: &BasePath) -> Result<Vec<u8>, BaseError> {
        todo!()
    }
    fn read(
        &self,
        _path: &BasePath,
        _id: FileId,
        _offset: u64,
        _buffer: &mut [u8],
    ) -> Result<(usize, BaseAttr), BaseError> {
        todo!()
    }
    fn next_data(
        &self,
        _path: &BasePath,
        _id: FileId,
        _offset: u64,
    ) -> Result<Option<(u64, u64)>, BaseError> {
        todo!()
    }
    fn find_linked(&self, _id: FileId) -> Result<Vec<BasePath>, BaseError> {
        todo!()
    }
}
