//! Objects of the merged tree that are alike in something.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use super::error::{InspectError, Result};
use super::walk::{Next, walk};
use crate::overlay::{TreeObject, TreeView};
use crate::vfs::{FileKind, Time};

/// What is looked for: all of it has to be so.
#[derive(Debug, Clone, Default)]
pub struct FindCriteria {
    /// The name matches this pattern.
    pub name: Option<FindPattern>,
    /// The path does.
    pub path: Option<FindPattern>,
    /// It is of one of these types; of any, where none is named.
    pub kinds: Vec<FileKind>,
    /// It is in the session.
    pub in_session: bool,
    /// It is a regular file with more bytes than this.
    pub larger_than: Option<u64>,
    /// Its content changed later.
    pub newer_than: Option<Time>,
}

/// A glob, as a shell has it: `*` and `?` stop at a slash, `**` does not.
#[derive(Debug, Clone)]
pub struct FindPattern(GlobMatcher);

impl FindPattern {
    /// Reads a glob.
    ///
    /// # Errors
    /// It is none.
    pub fn new(text: &str) -> Result<Self> {
        let glob = GlobBuilder::new(text).literal_separator(true).build();
        let glob = glob.map_err(|error| InspectError::Invalid { what: error.to_string() })?;
        Ok(Self(glob.compile_matcher()))
    }

    fn matches(&self, bytes: &[u8]) -> bool {
        self.0.is_match(Path::new(OsStr::from_bytes(bytes)))
    }
}

impl FindCriteria {
    /// Whether an object is what is looked for.
    pub fn is_met_by(&self, object: &TreeObject) -> bool {
        let attr = object.attr();
        let is_file = attr.kind == FileKind::Regular;
        let name = object.path().name();
        let name = name.as_ref().map_or(&b"/"[..], |name| name.as_bytes());
        self.name.as_ref().is_none_or(|pattern| pattern.matches(name))
            && self.path.as_ref().is_none_or(|pattern| pattern.matches(object.path().as_bytes()))
            && (self.kinds.is_empty() || self.kinds.contains(&attr.kind))
            && (!self.in_session || object.row().is_some())
            && self.larger_than.is_none_or(|bytes| is_file && attr.size > bytes)
            && self.newer_than.is_none_or(|time| attr.mtime > time)
    }
}

/// Calls `each` for what is looked for, at and below `from`, until it says `false`.
///
/// # Errors
/// Something cannot be read.
pub fn find_all(
    view: &TreeView<'_>,
    from: &TreeObject,
    wanted: &FindCriteria,
    each: &mut dyn FnMut(&TreeObject) -> bool,
) -> Result<()> {
    walk(view, from, &mut |_, object, _| {
        if wanted.in_session && object.row().is_none() {
            // Nothing gets into the session without its directory.
            return Ok(Next::Past);
        }
        let goes_on = !wanted.is_met_by(object) || each(object);
        Ok(if goes_on { Next::Deeper } else { Next::Stop })
    })?;
    Ok(())
}
