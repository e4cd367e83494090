//! Counts how much each file changed, as `git diff --stat` does.

use std::collections::BTreeSet;

use super::blob::Blob;
use super::file::{PatchSide, changed_text};
use super::pairs::Pairs;
use super::style::Style;
use super::{Failure, PatchOmissions};
use crate::delta::MergedPath;
use crate::inspect::diff::{DiffOptions, Difference};
use crate::inspect::error::Result;
use crate::inspect::opened::OpenSession;

/// How much of a file changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Volume {
    /// Lines of a text.
    Lines {
        /// Added lines.
        added: u64,
        /// Removed lines.
        removed: u64,
    },
    /// The size of a binary file in bytes, before and after.
    Binary(u64, u64),
    /// The content before the change is not known.
    Unknown,
}

/// A changed file or symbolic link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStat {
    /// The old path; `None` for a new file.
    pub from: Option<MergedPath>,
    /// The new path; `None` for a deleted file.
    pub to: Option<MergedPath>,
    /// How much changed.
    pub volume: Volume,
}

impl FileStat {
    /// The new path, or that of a deleted file.
    pub fn path(&self) -> Option<&MergedPath> {
        self.to.as_ref().or(self.from.as_ref())
    }
}

/// How much changed in all.
#[derive(Debug, Default)]
pub struct PatchStats {
    /// The changed files, sorted by their paths.
    pub files: Vec<FileStat>,
    /// What has no content to count. Files whose earlier content is not known are also in `files`.
    pub left_out: PatchOmissions,
    /// The differences behind both, in no order.
    pub differences: Vec<Difference>,
}

/// Counts how much changed.
///
/// # Errors
/// The session or the base cannot be read.
pub fn stats(opened: &OpenSession, options: &DiffOptions, style: &Style) -> Result<PatchStats> {
    let mut differences = Vec::new();
    let mut pairs = Pairs::find(opened, options, style, &mut |one| differences.push(one))?;
    let (mut files, mut only_space) = (Vec::new(), BTreeSet::new());
    opened.with_tree(|view| {
        let counted = pairs.each(opened, view, &mut |old, new| {
            count(old, new, style, &mut files, &mut only_space)
        });
        match counted {
            Err(Failure::Inspect(error)) => Err(error),
            Ok(()) | Err(Failure::Io(_)) => Ok(()),
        }
    })?;
    let unknown = |path: &MergedPath| {
        let path = Some(path.clone());
        FileStat { from: path.clone(), to: path, volume: Volume::Unknown }
    };
    files.extend(pairs.left_out.unknown.iter().map(unknown));
    files.sort_by(|a, b| a.path().cmp(&b.path()));
    let left_out = PatchOmissions { only_space, ..pairs.left_out };
    Ok(PatchStats { files, left_out, differences })
}

/// Counts how much a file changed, and adds that to `files`, or to `only_space` if only white space
/// changed, and that is ignored.
pub(in crate::inspect) fn count(
    (from, mut old): PatchSide<'_, '_>,
    (to, mut new): PatchSide<'_, '_>,
    style: &Style,
    files: &mut Vec<FileStat>,
    only_space: &mut BTreeSet<MergedPath>,
) -> super::PatchResult {
    for blob in [&mut old, &mut new].into_iter().flatten() {
        blob.load()?;
    }
    let is_same = from == to && old.as_ref().map(Blob::mode) == new.as_ref().map(Blob::mode);
    let volume = volume(old.as_ref(), new.as_ref(), style);
    let is_nothing = matches!(volume, Volume::Lines { added: 0, removed: 0 });
    if !(is_same && is_nothing && old.is_some()) {
        let from = old.is_some().then(|| from.clone());
        files.push(FileStat { from, to: new.is_some().then(|| to.clone()), volume });
    } else if style.ignores_space {
        only_space.insert(to.clone());
    }
    Ok(())
}

fn volume(old: Option<&Blob<'_>>, new: Option<&Blob<'_>>, style: &Style) -> Volume {
    let bytes = |blob: Option<&Blob<'_>>| blob.map_or(0, Blob::size);
    if let (Some(old), Some(new)) = (old, new)
        && let (Some(a), Some(b)) = (old.bytes(), new.bytes())
        && a == b
    {
        return Volume::Lines { added: 0, removed: 0 };
    }
    let is_binary = |blob: Option<&Blob<'_>>| blob.is_some_and(Blob::is_binary);
    match (old, new) {
        _ if is_binary(old) || is_binary(new) => Volume::Binary(bytes(old), bytes(new)),
        (None, Some(blob)) => Volume::Lines { added: lines(blob), removed: 0 },
        (Some(blob), None) => Volume::Lines { added: 0, removed: lines(blob) },
        _ => match changed_text(old, new, style) {
            Some(changed) => {
                let (removed, added) = changed.count();
                Volume::Lines { added, removed }
            }
            None => Volume::Binary(bytes(old), bytes(new)),
        },
    }
}

fn lines(blob: &Blob<'_>) -> u64 {
    let bytes = blob.bytes().unwrap_or_default();
    let ends = bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
    ends + u64::from(bytes.last().is_some_and(|&byte| byte != b'\n'))
}
