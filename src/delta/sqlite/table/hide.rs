//! `acetate_meta.hide`: patterns of the base's paths that this session never shows.

use rusqlite::Connection;

use crate::delta::{Result, StoreError};
use crate::vfs::{Pattern, PatternSet};

use super::{inode, meta};

/// Patterns that one session remembers.
pub const MAX_HIDDEN_PATTERNS: usize = 1024;

/// The patterns that the session remembers, in the order in which they came.
///
/// # Errors
/// [`StoreError::Corrupt`] where a line is no pattern: to leave it out would show files.
pub fn patterns(conn: &Connection) -> Result<PatternSet> {
    let Some(lines) = meta::get::<String>(conn, meta::HIDE)? else {
        return Ok(PatternSet::default());
    };
    let wrong = |error| StoreError::Corrupt(format!("acetate_meta.hide: {error}"));
    let patterns = lines.lines().map(Pattern::new).collect::<std::result::Result<Vec<_>, _>>();
    patterns.and_then(PatternSet::new).map_err(wrong)
}

/// Replaces the patterns. The first one gives the file the format that programs without them
/// refuse (invariant M1). Other subdirectories show afterwards: those have to be counted again.
pub fn put(conn: &Connection, hidden: &PatternSet) -> Result<()> {
    if hidden.is_empty() {
        meta::delete(conn, meta::HIDE)?;
    } else {
        let lines: Vec<&str> = hidden.patterns().iter().map(Pattern::as_str).collect();
        if lines.len() > MAX_HIDDEN_PATTERNS {
            let most = format!("a session hides {MAX_HIDDEN_PATTERNS} patterns at most");
            return Err(StoreError::Full(most));
        }
        meta::require_format(conn, meta::HIDE_FORMAT)?;
        meta::put(conn, meta::HIDE, lines.join("\n"))?;
    }
    inode::forget_subdirs(conn)
}
