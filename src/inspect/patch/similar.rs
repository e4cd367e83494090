//! Detects renames by similarity of content, as git does (gitdiffcore(7), "diffcore-rename").

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hasher};

use super::blob::Blob;
use super::limits::{MAX_RENAME_CANDIDATES, MAX_SIMILAR_BYTES};
use crate::delta::MergedPath;
use crate::inspect::error::{InspectError, Result};

/// The longest piece, in bytes; a newline ends a piece as well.
const MAX_PIECE_BYTES: usize = 64;

type NamedBlob<'p, 'a> = (&'p MergedPath, Blob<'a>);

/// Bytes of a content by the hash of the piece that they are in.
type PieceSizes = HashMap<u64, u64>;

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
    let mut holders: HashMap<u64, Vec<(usize, u64)>> = HashMap::new();
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
            let score = kept[from_at] * 100_000 / large;
            if score >= percent * 1000 {
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

/// The pieces of a content: lines, and parts of long lines.
fn pieces(blob: &Blob<'_>) -> Result<PieceSizes> {
    let mut pieces = PieceSizes::new();
    let mut piece = Vec::with_capacity(MAX_PIECE_BYTES);
    let mut end = |piece: &mut Vec<u8>| {
        let mut hasher = DefaultHasher::new();
        hasher.write(piece);
        *pieces.entry(hasher.finish()).or_default() += piece.len() as u64;
        piece.clear();
    };
    blob.pieces::<InspectError>(&mut |bytes| {
        for &byte in bytes {
            piece.push(byte);
            if byte == b'\n' || piece.len() == MAX_PIECE_BYTES {
                end(&mut piece);
            }
        }
        Ok(())
    })?;
    if !piece.is_empty() {
        end(&mut piece);
    }
    Ok(pieces)
}
