//! Searches the merged tree for objects that meet criteria.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use super::error::{InspectError, Result};
use super::walk::{WalkControl, walk_past_denied};
use crate::delta::MergedPath;
use crate::overlay::{TreeObject, TreeView};
use crate::vfs::{FileKind, Time};

/// Criteria; an object has to meet all that are set.
#[derive(Debug, Clone, Default)]
pub struct FindCriteria {
    /// The name matches.
    pub name: Option<FindPattern>,
    /// The path matches.
    pub path: Option<FindPattern>,
    /// The type is one of these; empty for any.
    pub kinds: Vec<FileKind>,
    /// The object has a row in the session.
    pub in_session: bool,
    /// A regular file larger than this, in bytes.
    pub larger_than: Option<u64>,
    /// The mtime is later than this.
    pub newer_than: Option<Time>,
}

/// A glob with the rules of a shell: `*` and `?` do not match a slash, `**` does.
#[derive(Debug, Clone)]
pub struct FindPattern(GlobMatcher);

impl FindPattern {
    /// Compiles a glob.
    ///
    /// # Errors
    /// The text is not a valid glob.
    pub fn new(text: &str) -> Result<Self> {
        let glob = GlobBuilder::new(text).literal_separator(true).build();
        let glob = glob.map_err(|error| InspectError::Invalid { what: error.to_string() })?;
        Ok(Self(glob.compile_matcher()))
    }

    /// Whether the name of an object at a path matches.
    pub(super) fn is_name_of(&self, path: &MergedPath) -> bool {
        path.name().is_some_and(|name| self.matches(name.as_bytes()))
    }

    fn matches(&self, bytes: &[u8]) -> bool {
        self.0.is_match(Path::new(OsStr::from_bytes(bytes)))
    }
}

impl FindCriteria {
    /// Whether an object meets all criteria.
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

/// Calls `each` for every match at and below `from`, until it returns `false`. Returns the
/// directories that cannot be listed because access is denied.
///
/// # Errors
/// The session or the base cannot be read, for another reason.
pub fn find_all(
    view: &TreeView<'_>,
    from: &TreeObject,
    wanted: &FindCriteria,
    each: &mut dyn FnMut(&TreeObject) -> bool,
) -> Result<Vec<MergedPath>> {
    let mut denied = Vec::new();
    walk_past_denied(view, from, &|_| true, &mut denied, &mut |_, object, _| {
        if wanted.in_session && object.row().is_none() {
            // An object with a row has a parent with a row.
            return Ok(WalkControl::Past);
        }
        let goes_on = !wanted.is_met_by(object) || each(object);
        Ok(if goes_on { WalkControl::Deeper } else { WalkControl::Stop })
    })?;
    Ok(denied)
}
