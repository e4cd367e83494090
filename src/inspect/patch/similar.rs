//! Detects renames by similarity of content, as git does (gitdiffcore(7), "diffcore-rename").

use std::collections::{BTreeSet, HashMap};

use super::blob::{Blob, has_nul};
use super::limits::{MAX_RENAME_CANDIDATES, MAX_SIMILAR_BYTES};
use crate::delta::MergedPath;
use crate::inspect::error::{InspectError, Result};

/// The longest piece, in bytes; a newline ends a piece as well.
const MAX_PIECE_BYTES: u32 = 64;

/// The number of hashes of pieces: git's, whose collisions are part of its score.
const HASHES: u32 = 107_927;

/// The score of equal contents.
const MAX_SCORE: u64 = 60_000;

type NamedBlob<'p, 'a> = (&'p MergedPath, Blob<'a>);

/// Bytes of a content by the hash of the piece that they are in.
type PieceSizes = HashMap<u32, u64>;

/// The result of a search for renames.
pub(super) struct Similar {
    /// New paths with their old ones.
    pub pairs: Vec<(MergedPath, MergedPath)>,
    /// The larger number of candidates of both sides, if it was over the limit.
    pub not_compared: Option<usize>,
}

/// Pairs deleted files with new ones of equal content, then of at least `percent` similarity.
pub(super) fn most_similar(
    gone: Vec<NamedBlob<'_, '_>>,
    come: Vec<NamedBlob<'_, '_>>,
    percent: u8,
) -> Result<Similar> {
    let (mut found, mut taken) = (Vec::new(), BTreeSet::new());
    let mut by_digest: HashMap<String, Vec<&MergedPath>> = HashMap::new();
    let sizes: BTreeSet<u64> = come.iter().map(|(_, blob)| blob.size()).collect();
    for (path, blob) in gone.iter().filter(|(_, blob)| sizes.contains(&blob.size())) {
        // Empty files are all equal.
        if blob.size() > 0 {
            by_digest.entry(blob.digest()?).or_default().push(path);
        }
    }
    let gone_sizes: BTreeSet<u64> = gone.iter().map(|(_, blob)| blob.size()).collect();
    let mut left = Vec::new();
    for (to, blob) in come {
        let same = match gone_sizes.contains(&blob.size()) {
            true => by_digest.get_mut(&blob.digest()?).filter(|paths| !paths.is_empty()),
            false => None,
        };
        match same {
            Some(paths) => {
                let at = paths.iter().position(|from| from.name() == to.name()).unwrap_or(0);
                let from = paths.remove(at);
                taken.insert(from.clone());
                found.push((to.clone(), from.clone()));
            }
            None => left.push((to, blob)),
        }
    }
    let is_small = |blob: &Blob<'_>| (1..=MAX_SIMILAR_BYTES).contains(&blob.size());
    let mut gone = gone;
    gone.retain(|(path, blob)| !taken.contains(*path) && is_small(blob));
    left.retain(|(_, blob)| is_small(blob));
    let most = gone.len().max(left.len());
    let is_wanted = percent < 100 && !left.is_empty() && !gone.is_empty();
    let not_compared = (is_wanted && most > MAX_RENAME_CANDIDATES).then_some(most);
    if is_wanted && not_compared.is_none() {
        found.extend(by_content(&gone, &left, u64::from(percent))?);
    }
    Ok(Similar { pairs: found, not_compared })
}

fn by_content(
    gone: &[NamedBlob<'_, '_>],
    come: &[NamedBlob<'_, '_>],
    percent: u64,
) -> Result<Vec<(MergedPath, MergedPath)>> {
    let mut scores = Vec::new();
    // For each piece, the old files that have it, and the bytes of it in each.
    let mut holders: HashMap<u32, Vec<(usize, u64)>> = HashMap::new();
    for (from_at, (_, blob)) in gone.iter().enumerate() {
        for (hash, bytes) in pieces(blob)? {
            holders.entry(hash).or_default().push((from_at, bytes));
        }
    }
    for (at, (to, blob)) in come.iter().enumerate() {
        let mut kept = vec![0; gone.len()];
        for (hash, bytes) in pieces(blob)? {
            for (from_at, old_bytes) in holders.get(&hash).into_iter().flatten() {
                kept[*from_at] += bytes.min(*old_bytes);
            }
        }
        for (from_at, (from, from_blob)) in gone.iter().enumerate() {
            let (small, large) =
                (blob.size().min(from_blob.size()), blob.size().max(from_blob.size()));
            if small * 100 < large * percent {
                continue;
            }
            let score = kept[from_at] * MAX_SCORE / large;
            if score >= percent * MAX_SCORE / 100 {
                scores.push((score, from.name() == to.name(), at, from_at));
            }
        }
    }
    scores.sort_unstable_by(|a, b| (b.0, b.1, a.2, a.3).cmp(&(a.0, a.1, b.2, b.3)));
    let (mut used_new, mut used_old) = (BTreeSet::new(), BTreeSet::new());
    let mut found = Vec::new();
    for (_, _, at, from_at) in scores {
        if !used_new.contains(&at) && !used_old.contains(&from_at) {
            used_new.insert(at);
            used_old.insert(from_at);
            found.push((come[at].0.clone(), gone[from_at].0.clone()));
        }
    }
    Ok(found)
}

/// The similarity of two files in percent, as git counts it; `None` if they are not compared.
pub(super) fn similarity(old: &Blob<'_>, new: &Blob<'_>) -> Result<Option<u64>> {
    let large = old.size().max(new.size());
    if old.is_link() || new.is_link() || !(1..=MAX_SIMILAR_BYTES).contains(&large) {
        return Ok(None);
    }
    let before = pieces(old)?;
    let kept = pieces(new)?.into_iter().map(|(hash, bytes)| {
        let old_bytes = before.get(&hash).copied().unwrap_or_default();
        bytes.min(old_bytes)
    });
    let score = kept.sum::<u64>() * MAX_SCORE / large;
    Ok(Some(score * 100 / MAX_SCORE))
}

/// The pieces of a content: lines, and parts of long lines. In a text, the CR of a CR and LF does
/// not count. Hashes and counts are those of git's `hash_chars`.
fn pieces(blob: &Blob<'_>) -> Result<PieceSizes> {
    let mut pieces = PieceCounter::default();
    let (mut is_text, mut has_cr) = (None, false);
    blob.pieces::<InspectError>(&mut |bytes| {
        let is_text = *is_text.get_or_insert_with(|| !has_nul(bytes));
        for &byte in bytes {
            if std::mem::take(&mut has_cr) && byte != b'\n' {
                pieces.push(b'\r');
            }
            if is_text && byte == b'\r' {
                has_cr = true;
            } else {
                pieces.push(byte);
            }
        }
        Ok(())
    })?;
    if has_cr {
        pieces.push(b'\r');
    }
    pieces.end();
    Ok(pieces.sizes)
}

/// Divides a content into pieces.
#[derive(Default)]
struct PieceCounter {
    sizes: PieceSizes,
    bytes: u32,
    low: u32,
    high: u32,
}

impl PieceCounter {
    fn push(&mut self, byte: u8) {
        let low = self.low;
        self.low = ((low << 7) ^ (self.high >> 25)).wrapping_add(byte.into());
        self.high = (self.high << 7) ^ (low >> 25);
        self.bytes += 1;
        if self.bytes == MAX_PIECE_BYTES || byte == b'\n' {
            self.end();
        }
    }

    fn end(&mut self) {
        if self.bytes > 0 {
            let hash = self.low.wrapping_add(self.high.wrapping_mul(0x61)) % HASHES;
            *self.sizes.entry(hash).or_default() += u64::from(self.bytes);
        }
        (self.bytes, self.low, self.high) = (0, 0, 0);
    }
}
