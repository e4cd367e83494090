//! The base of a session without a base directory: empty.

use std::sync::Arc;

use super::{Base, BaseAttr, BaseError, BasePath, Entries, Listing};
use crate::vfs::FileId;

/// A base without any object, not even a root.
#[derive(Debug, Default, Clone, Copy)]
pub struct Empty;

impl Base for Empty {
    fn invalidate(&self) {}

    fn has_unfinished_apply(&self) -> Result<bool, BaseError> {
        Ok(false)
    }

    fn stat(&self, _path: &BasePath) -> Result<BaseAttr, BaseError> {
        Err(BaseError::NotFound)
    }

    fn list(&self, _path: &BasePath) -> Result<Arc<Listing>, BaseError> {
        Err(BaseError::NotFound)
    }

    fn entries<'a>(&'a self, _path: &BasePath) -> Result<Box<dyn Entries + 'a>, BaseError> {
        Err(BaseError::NotFound)
    }

    fn read_link(&self, _path: &BasePath) -> Result<Vec<u8>, BaseError> {
        Err(BaseError::NotFound)
    }

    fn read(
        &self,
        _path: &BasePath,
        _id: FileId,
        _offset: u64,
        _buffer: &mut [u8],
    ) -> Result<(usize, BaseAttr), BaseError> {
        Err(BaseError::NotFound)
    }

    fn next_data(
        &self,
        _path: &BasePath,
        _id: FileId,
        _offset: u64,
    ) -> Result<Option<(u64, u64)>, BaseError> {
        Err(BaseError::NotFound)
    }

    fn find_linked(
        &self,
        _id: FileId,
        _wanted: &mut dyn FnMut(&BasePath) -> bool,
    ) -> Result<Option<BasePath>, BaseError> {
        Ok(None)
    }
}
