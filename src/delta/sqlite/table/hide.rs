//! `acetate_meta.hide`: patterns of base paths that this session never shows.

use rusqlite::Connection;

use crate::delta::{Result, StoreError};
use crate::pattern::{Pattern, PatternSet};

use super::{inode, meta};

/// Maximum number of patterns in one session.
pub const MAX_HIDDEN_PATTERNS: usize = 1024;

/// The session's patterns, in the order in which they were added.
///
/// # Errors
/// [`StoreError::corrupt`] if a line is not a pattern: ignoring it would expose files.
pub fn patterns(conn: &Connection) -> Result<PatternSet> {
    let Some(lines) = meta::get::<String>(conn, meta::HIDE)? else {
        return Ok(PatternSet::default());
    };
    let wrong = |error| StoreError::corrupt(format!("acetate_meta.hide: {error}"));
    let patterns = lines.lines().map(Pattern::new).collect::<std::result::Result<Vec<_>, _>>();
    patterns.and_then(PatternSet::new).map_err(wrong)
}

/// Replaces the patterns. The first one raises the file's format, so that programs without this
/// feature refuse it (invariant M1). Clears the subdirectory counts, which may change.
pub fn put(conn: &Connection, hidden: &PatternSet) -> Result<()> {
    if hidden.is_empty() {
        meta::delete(conn, meta::HIDE)?;
    } else {
        let lines: Vec<&str> = hidden.patterns().iter().map(Pattern::as_str).collect();
        if lines.len() > MAX_HIDDEN_PATTERNS {
            let most = format!("a session hides {MAX_HIDDEN_PATTERNS} patterns at most");
            return Err(StoreError::full(most));
        }
        meta::require_format(conn, meta::HIDE_FORMAT)?;
        meta::put(conn, meta::HIDE, lines.join("\n"))?;
    }
    inode::forget_subdirs(conn)
}
