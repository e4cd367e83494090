//! Searches the contents of the merged tree's files for a regular expression, within bounds.

use std::time::{Duration, Instant};

use regex::bytes::{Regex, RegexBuilder};

use super::error::{InspectError, Result};
use super::find::FindPattern;
use super::stop::StopFlag;
use super::walk::{WalkControl, walk_past_denied};
use crate::delta::MergedPath;
use crate::overlay::{TreeObject, TreeView};
use crate::vfs::FileKind;

/// The longest regular expression, in bytes.
pub const MAX_PATTERN_BYTES: usize = 4 << 10;

/// The most memory of a compiled regular expression, in bytes.
const MAX_COMPILED_BYTES: usize = 4 << 20;

/// The part of a line that is looked at, in bytes.
pub const MAX_LINE_BYTES: usize = 64 << 10;

/// The part of a line that a match has, in bytes.
pub const MAX_SHOWN_BYTES: usize = 500;

/// What a match has of its line before the first matching byte, if not all of the line is shown.
const BEFORE_BYTES: usize = 100;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// What is searched for.
#[derive(Debug)]
pub struct TextSearch {
    /// The expression, which each line is compared with.
    pub pattern: Regex,
    /// Only files with such a name.
    pub name: Option<FindPattern>,
    /// When the search ends.
    pub limits: SearchLimits,
}

/// When a search ends before it has looked at all files.
#[derive(Debug, Clone)]
pub struct SearchLimits {
    /// After this many matching lines.
    pub matches: usize,
    /// After this much content, in bytes.
    pub bytes: u64,
    /// After this time, looked at between pieces of content and between objects.
    pub time: Duration,
    /// With an error, looked at as the time is.
    pub stop: StopFlag,
}

/// A line that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchMatch {
    /// The file.
    pub path: MergedPath,
    /// The number of the line, from 1 on.
    pub line: u64,
    /// The line, or at most [`MAX_SHOWN_BYTES`] of it around the first match; U+FFFD stands for
    /// what is not UTF-8.
    pub text: String,
    /// Whether there is more of the line.
    pub is_cut: bool,
}

/// The limit that ended a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchEnd {
    /// That of matching lines.
    Matches,
    /// That of content.
    Bytes,
    /// That of time.
    Time,
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct SearchReport {
    /// The matching lines, sorted by path and line.
    pub matches: Vec<SearchMatch>,
    /// How many files were looked at.
    pub files: u64,
    /// How much content was looked at, in bytes.
    pub bytes: u64,
    /// How many of the files have a NUL byte: they were looked at up to there.
    pub binary: u64,
    /// What the base denies access to.
    pub denied: Vec<MergedPath>,
    /// The limit that ended the search; `None` if it looked at everything.
    pub ended: Option<SearchEnd>,
}

/// Compiles a regular expression.
///
/// # Errors
/// It is not valid, or too large.
pub fn compile(pattern: &str, ignores_case: bool) -> Result<Regex> {
    let invalid = |what: String| InspectError::Invalid { what };
    if pattern.len() > MAX_PATTERN_BYTES {
        let most = MAX_PATTERN_BYTES;
        return Err(invalid(format!("a regular expression has at most {most} bytes")));
    }
    let mut builder = RegexBuilder::new(pattern);
    builder.case_insensitive(ignores_case).size_limit(MAX_COMPILED_BYTES);
    builder.dfa_size_limit(MAX_COMPILED_BYTES);
    builder.build().map_err(|error| invalid(format!("not a regular expression: {error}")))
}

/// Searches the regular files at and below `from`.
///
/// # Errors
/// The session or the base cannot be read, for another reason than denied access.
pub fn search(view: &TreeView<'_>, from: &TreeObject, wanted: &TextSearch) -> Result<SearchReport> {
    let until = Instant::now() + wanted.limits.time;
    let mut report = SearchReport::default();
    let mut buffer = vec![0; PIECE_BYTES];
    let mut denied = Vec::new();
    walk_past_denied(view, from, &|_| true, &mut denied, &mut |_, object, _| {
        wanted.limits.stop.check()?;
        if Instant::now() >= until {
            report.ended = Some(SearchEnd::Time);
            return Ok(WalkControl::Stop);
        }
        let is_wanted = object.attr().kind == FileKind::Regular
            && wanted.name.as_ref().is_none_or(|name| name.is_name_of(object.path()));
        if is_wanted {
            let mut file = FileSearch { view, object, wanted, until, report: &mut report };
            match file.run(&mut buffer) {
                Err(InspectError::Path { source: crate::vfs::FsError::Access, path }) => {
                    report.denied.push(path);
                }
                done => done?,
            }
        }
        Ok(if report.ended.is_some() { WalkControl::Stop } else { WalkControl::Deeper })
    })?;
    report.denied.append(&mut denied);
    Ok(report)
}

/// The search of one file.
struct FileSearch<'a> {
    view: &'a TreeView<'a>,
    object: &'a TreeObject,
    wanted: &'a TextSearch,
    until: Instant,
    report: &'a mut SearchReport,
}

impl FileSearch<'_> {
    fn run(&mut self, buffer: &mut [u8]) -> Result<()> {
        let path = self.object.path();
        self.report.files += 1;
        // The line that is not complete yet, up to its bound.
        let (mut line, mut number, mut offset) = (Vec::new(), 1, 0);
        loop {
            self.wanted.limits.stop.check()?;
            if self.report.bytes >= self.wanted.limits.bytes {
                self.report.ended = Some(SearchEnd::Bytes);
            } else if Instant::now() >= self.until {
                self.report.ended = Some(SearchEnd::Time);
            }
            if self.report.ended.is_some() {
                return Ok(());
            }
            let got = self.view.read(self.object, offset, buffer);
            let got = got.map_err(|source| InspectError::at(path, source))?;
            offset += got as u64;
            self.report.bytes += got as u64;
            let piece = buffer.get(..got).unwrap_or_default();
            let text = piece.split(|byte| *byte == 0).next().unwrap_or_default();
            let mut parts = text.split(|byte| *byte == b'\n').peekable();
            while let Some(part) = parts.next() {
                let room = MAX_LINE_BYTES.saturating_sub(line.len());
                line.extend_from_slice(part.get(..room.min(part.len())).unwrap_or_default());
                let is_whole = parts.peek().is_some();
                if is_whole && !self.look(&line, number) {
                    return Ok(());
                }
                if is_whole {
                    line.clear();
                    number += 1;
                }
            }
            let is_binary = text.len() < got;
            self.report.binary += u64::from(is_binary);
            if is_binary || got < buffer.len() {
                if !line.is_empty() {
                    self.look(&line, number);
                }
                return Ok(());
            }
        }
    }

    /// Compares a line; returns whether the search continues.
    fn look(&mut self, line: &[u8], number: u64) -> bool {
        let Some(found) = self.wanted.pattern.find(line) else { return true };
        if self.report.matches.len() >= self.wanted.limits.matches {
            self.report.ended = Some(SearchEnd::Matches);
            return false;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let is_cut = line.len() > MAX_SHOWN_BYTES;
        let first = if is_cut { found.start().saturating_sub(BEFORE_BYTES) } else { 0 };
        let shown = line.get(first..line.len().min(first + MAX_SHOWN_BYTES)).unwrap_or_default();
        self.report.matches.push(SearchMatch {
            path: self.object.path().clone(),
            line: number,
            text: String::from_utf8_lossy(shown).into_owned(),
            is_cut,
        });
        true
    }
}
