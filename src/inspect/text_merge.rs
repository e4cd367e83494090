//! Three-way merge of texts like `git merge-file` (Myers' diff, xdiff/xmerge.c). `git merge` uses
//! another diff and may find other conflicts.
//!
//! Both sides are compared with the original. A run of lines that one side changed is taken from
//! that side if the other side changed neither these lines nor an adjacent line. Otherwise the
//! sides conflict, unless both made the same change. Lines of a conflict that both sides have are
//! written outside the markers.

use std::ops::Range;

use gix_imara_diff::{Algorithm, Diff, InternedInput};

/// The marker before the lines of the base.
const BEFORE_BASE: &[u8] = b"<<<<<<< base";

/// The marker between both sides.
const BETWEEN: &[u8] = b"=======";

/// The marker after the lines of the session.
const AFTER_SESSION: &[u8] = b">>>>>>> session";

/// Conflicts with at most this many lines between them are joined.
const JOINED_LINES: usize = 3;

/// The result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextMerge {
    /// No conflicts.
    Clean(Vec<u8>),
    /// The text with markers around both sides of each conflict.
    Conflicts(Vec<u8>),
}

/// Merges the changes that the base and the session made to the original.
pub fn merge(original: &[u8], base: &[u8], session: &[u8]) -> TextMerge {
    let texts = Texts { original: lines(original), base: lines(base), session: lines(session) };
    let regions = texts.split(texts.regions());
    texts.write(&texts.joined(regions))
}

/// The three texts as lines with their newlines.
struct Texts<'a> {
    original: Vec<&'a [u8]>,
    base: Vec<&'a [u8]>,
    session: Vec<&'a [u8]>,
}

/// A run of the original's lines, and the side's lines that replaced it.
struct LineChange {
    old: Range<usize>,
    new: Range<usize>,
}

/// The side that a region of the merged text comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RegionSource {
    Base,
    Session,
    /// Both sides changed the region.
    Conflict,
}

/// A run of changed lines, as a range in each of the three texts.
#[derive(Debug, Clone)]
struct Region {
    side: RegionSource,
    original: Range<usize>,
    base: Range<usize>,
    session: Range<usize>,
}

/// The changes of a side that are not processed yet.
struct SideChanges<'c> {
    left: &'c [LineChange],
    /// The offset of the side's lines from the original's, after the processed changes.
    shift: isize,
}

impl<'c> SideChanges<'c> {
    fn first(&self) -> Option<&'c LineChange> {
        self.left.first()
    }

    /// Advances past the first change.
    fn pass(&mut self) {
        if let [first, rest @ ..] = self.left {
            self.shift = first.new.end.cast_signed() - first.old.end.cast_signed();
            self.left = rest;
        }
    }

    /// The side's range for lines of the original that none of its changes touch.
    fn unchanged(&self, old: &Range<usize>) -> Range<usize> {
        old.start.saturating_add_signed(self.shift)..old.end.saturating_add_signed(self.shift)
    }
}

impl LineChange {
    /// The side's range for all of `old`, which contains the change. If `old` also contains an
    /// earlier change of the side, only the end is used: the region starts with the earlier change.
    fn side_range(&self, old: &Range<usize>) -> Range<usize> {
        let start = self.new.start.saturating_sub(self.old.start - old.start);
        start..self.new.end + (old.end - self.old.end)
    }
}

impl Texts<'_> {
    /// The changed regions, in order. Regions that both sides changed equally are omitted: the base
    /// already has the result.
    fn regions(&self) -> Vec<Region> {
        let all = [&self.base, &self.session].map(|side| changes(&self.original, side));
        let [mut base, mut session] =
            [&all[0], &all[1]].map(|all| SideChanges { left: all, shift: 0 });
        let mut regions = Vec::new();
        loop {
            let (a, b) = match (base.first(), session.first()) {
                (None, None) => return regions,
                (Some(a), b) if b.is_none_or(|b| a.old.end < b.old.start) => {
                    let session = session.unchanged(&a.old);
                    let (original, new) = (a.old.clone(), a.new.clone());
                    add(
                        &mut regions,
                        Region { side: RegionSource::Base, original, base: new, session },
                    );
                    base.pass();
                    continue;
                }
                (a, Some(b)) if a.is_none_or(|a| b.old.end < a.old.start) => {
                    let base = base.unchanged(&b.old);
                    let (original, new) = (b.old.clone(), b.new.clone());
                    add(
                        &mut regions,
                        Region { side: RegionSource::Session, original, base, session: new },
                    );
                    session.pass();
                    continue;
                }
                (Some(a), Some(b)) => (a, b),
                (_, None) | (None, _) => return regions,
            };
            if a.old != b.old || self.base[a.new.clone()] != self.session[b.new.clone()] {
                let original = a.old.start.min(b.old.start)..a.old.end.max(b.old.end);
                let (base, session) = (a.side_range(&original), b.side_range(&original));
                add(&mut regions, Region { side: RegionSource::Conflict, original, base, session });
            }
            if a.old.end >= b.old.end {
                session.pass();
            }
            if b.old.end >= a.old.end {
                base.pass();
            }
        }
    }

    /// Reduces each conflict to the lines in which the sides differ.
    fn split(&self, regions: Vec<Region>) -> Vec<Region> {
        let mut all = Vec::new();
        for region in regions {
            let is_one_sided = region.base.is_empty() || region.session.is_empty();
            if region.side != RegionSource::Conflict || is_one_sided {
                all.push(region);
                continue;
            }
            let sides = (&self.base[region.base.clone()], &self.session[region.session.clone()]);
            let moved = |range: &Range<usize>, by: usize| range.start + by..range.end + by;
            all.extend(changes(sides.0, sides.1).iter().map(|change| Region {
                base: moved(&change.old, region.base.start),
                session: moved(&change.new, region.session.start),
                ..region.clone()
            }));
        }
        all
    }

    /// Joins conflicts that only few lines, or lines without letters and digits, separate.
    fn joined(&self, regions: Vec<Region>) -> Vec<Region> {
        let mut all: Vec<Region> = Vec::new();
        for region in regions {
            if let Some(last) = all.last_mut()
                && (last.side, region.side) == (RegionSource::Conflict, RegionSource::Conflict)
                && self.is_joinable(last.base.end..region.base.start)
            {
                last.base.end = region.base.end;
                last.session.end = region.session.end;
            } else {
                all.push(region);
            }
        }
        all
    }

    /// Whether lines of the base are few, or have neither letters nor digits.
    fn is_joinable(&self, lines: Range<usize>) -> bool {
        let is_word = |line: &&[u8]| line.iter().any(u8::is_ascii_alphanumeric);
        lines.len() <= JOINED_LINES || !self.base[lines].iter().any(is_word)
    }

    fn write(&self, regions: &[Region]) -> TextMerge {
        let (mut text, mut at, mut has_conflicts) = (Vec::new(), 0, false);
        for region in regions {
            match region.side {
                RegionSource::Base => {}
                RegionSource::Session => {
                    text.extend(self.base[at..region.base.start].iter().copied().flatten());
                    text.extend(self.session[region.session.clone()].iter().copied().flatten());
                    at = region.base.end;
                }
                RegionSource::Conflict => {
                    text.extend(self.base[at..region.base.start].iter().copied().flatten());
                    self.write_conflict(region, &mut text);
                    at = region.base.end;
                    has_conflicts = true;
                }
            }
        }
        text.extend(self.base[at..].iter().copied().flatten());
        if has_conflicts { TextMerge::Conflicts(text) } else { TextMerge::Clean(text) }
    }

    /// Writes both sides of a conflict between markers; each side ends with a newline.
    fn write_conflict(&self, region: &Region, text: &mut Vec<u8>) {
        let has_crlf = ends_in_crlf(&self.base, region.base.start) != Some(false)
            && ends_in_crlf(&self.session, region.session.start) != Some(false)
            && ends_in_crlf(&self.original, region.original.start) == Some(true);
        let end: &[u8] = if has_crlf { b"\r\n" } else { b"\n" };
        let side = |lines: &[&[u8]], text: &mut Vec<u8>| {
            text.extend(lines.iter().copied().flatten());
            if lines.last().is_some_and(|last| !last.ends_with(b"\n")) {
                text.extend(end);
            }
        };
        text.extend([BEFORE_BASE, end].concat());
        side(&self.base[region.base.clone()], text);
        text.extend([BETWEEN, end].concat());
        side(&self.session[region.session.clone()], text);
        text.extend([AFTER_SESSION, end].concat());
    }
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|&byte| byte == b'\n').collect()
}

/// The changes from `old` to `new`.
fn changes(old: &[&[u8]], new: &[&[u8]]) -> Vec<LineChange> {
    let mut input = InternedInput::default();
    input.update_before(old.iter().copied());
    input.update_after(new.iter().copied());
    let mut diff = Diff::compute(Algorithm::Myers, &input);
    diff.postprocess_no_heuristic(&input);
    let range = |range: Range<u32>| range.start as usize..range.end as usize;
    diff.hunks()
        .map(|hunk| LineChange { old: range(hunk.before), new: range(hunk.after) })
        .collect()
}

/// Adds a region, or joins it with the last one if they touch. Regions of different sides become a
/// conflict.
fn add(regions: &mut Vec<Region>, region: Region) {
    match regions.last_mut() {
        Some(last)
            if region.base.start <= last.base.end || region.session.start <= last.session.end =>
        {
            if last.side != region.side {
                last.side = RegionSource::Conflict;
            }
            last.original.end = region.original.end;
            last.base.end = region.base.end;
            last.session.end = region.session.end;
        }
        _ => regions.push(region),
    }
}

/// Whether the line before `at` (the first line for 0) ends in CRLF; `None` if no line has a
/// newline that decides.
fn ends_in_crlf(lines: &[&[u8]], at: usize) -> Option<bool> {
    let at = at.saturating_sub(1);
    let line = lines.get(at)?;
    if line.ends_with(b"\n") {
        return Some(line.ends_with(b"\r\n"));
    }
    // The last line may lack a newline.
    Some(lines.get(at.checked_sub(1)?)?.ends_with(b"\r\n"))
}
