//! Three-way merges of text, as `git merge-file` makes them (Myers' diff, xdiff/xmerge.c);
//! `git merge` compares with another diff, and may find other conflicts.
//!
//! Both sides are compared with the original. A run of lines that one side changed is taken from
//! it, if the other side changed none of them and none next to them. Otherwise both sides have to
//! have changed them alike, or they conflict; in a conflict, lines that both sides have stand
//! outside the markers.

use std::ops::Range;

use gix_imara_diff::{Algorithm, Diff, InternedInput};

/// The marker before the lines of the base.
const BEFORE_BASE: &[u8] = b"<<<<<<< base";

/// The marker between both sides.
const BETWEEN: &[u8] = b"=======";

/// The marker after the lines of the session.
const AFTER_SESSION: &[u8] = b">>>>>>> session";

/// Conflicts with at most so many lines between them are one.
const JOINED_LINES: usize = 3;

/// What comes of merging two texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextMerge {
    /// Each line is from the only side that changed it, or both sides made the same change.
    Clean(Vec<u8>),
    /// Lines conflict: the text, with markers around both sides of each conflict.
    Conflicts(Vec<u8>),
}

/// Merges what the base and the session made of the original.
pub fn merge(original: &[u8], base: &[u8], session: &[u8]) -> TextMerge {
    let texts = Texts { original: lines(original), base: lines(base), session: lines(session) };
    let regions = texts.split(texts.regions());
    texts.write(&texts.joined(regions))
}

/// The three texts in lines, each with its end.
struct Texts<'a> {
    original: Vec<&'a [u8]>,
    base: Vec<&'a [u8]>,
    session: Vec<&'a [u8]>,
}

/// A run of lines that a side replaced, by which lines of its own.
struct LineChange {
    old: Range<usize>,
    new: Range<usize>,
}

/// Where the merged text has a region from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RegionSource {
    Base,
    Session,
    /// Both changed it.
    Conflict,
}

/// A run of lines that a side changed, in each of the three texts.
#[derive(Debug, Clone)]
struct Region {
    side: RegionSource,
    original: Range<usize>,
    base: Range<usize>,
    session: Range<usize>,
}

/// The changes of a side that are still to be looked at.
struct SideChanges<'c> {
    left: &'c [LineChange],
    /// Offset of the side's lines to the original's, after the changes that were passed.
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

    /// Where the side has lines of the original that none of its changes touch.
    fn unchanged(&self, old: &Range<usize>) -> Range<usize> {
        old.start.saturating_add_signed(self.shift)..old.end.saturating_add_signed(self.shift)
    }
}

impl LineChange {
    /// The side's lines for all of `old`, which holds the change. Where an earlier change of the
    /// side is in it too, only the end counts: the region begins with that one.
    fn widened(&self, old: &Range<usize>) -> Range<usize> {
        let start = self.new.start.saturating_sub(self.old.start - old.start);
        start..self.new.end + (old.end - self.old.end)
    }
}

impl Texts<'_> {
    /// The regions that the sides changed, in their order, without those that both changed alike:
    /// the base has these already.
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
                let (base, session) = (a.widened(&original), b.widened(&original));
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

    /// Leaves of each conflict only the lines that one of the sides does not have.
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

    /// Joins conflicts that are separated by few lines, or by lines without letters and digits.
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

    /// Writes both sides of a conflict, each ended with a line's end, and the markers.
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

/// What a side made of the original.
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

/// Adds a region, or makes it and the last one a conflict where they touch.
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

/// Whether the line before line `at` ends in CRLF; `None` where no line tells.
fn ends_in_crlf(lines: &[&[u8]], at: usize) -> Option<bool> {
    let at = at.saturating_sub(1);
    let line = lines.get(at)?;
    if line.ends_with(b"\n") {
        return Some(line.ends_with(b"\r\n"));
    }
    // The last line has no end.
    Some(lines.get(at.checked_sub(1)?)?.ends_with(b"\r\n"))
}
