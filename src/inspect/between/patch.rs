//! The differences between two moments as a patch, and how much changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use super::{Moments, TreeDifferences, carried_by, is_chosen, is_dir};
use crate::delta::MergedPath;
use crate::inspect::diff::{DiffOptions, Difference};
use crate::inspect::error::Result;
use crate::inspect::patch::{
    EachPair, Failure, MAX_FILE_BYTES, PatchOmissions, PatchStats, Style, blob, count, has_blob,
    write_file,
};
use crate::inspect::tool_owned::ToolOwnedFiles;
use crate::overlay::{TreeObject, TreeView};

/// Both sides of a file or link that changed.
type Sides = (Option<TreeObject>, Option<TreeObject>);

/// Writes the patch from one moment to the other; returns what it leaves out.
///
/// # Errors
/// The session or the base cannot be read. The inner error is one of `out`.
pub fn patch_between(
    moments: &Moments<'_>,
    options: &DiffOptions,
    style: &Style,
    out: &mut dyn Write,
) -> Result<io::Result<PatchOmissions>> {
    moments.with_views(|old, new| {
        let found = moments.differences_of(old, new, options, &|_, _| true)?;
        let (sides, mut left_out) = collect(moments, (old, new), &found, (options, style))?;
        let is_too_large = |side: &Option<TreeObject>| {
            side.as_ref().is_some_and(|object| object.attr().size > MAX_FILE_BYTES)
        };
        let (large, sides): (BTreeMap<_, _>, BTreeMap<_, _>) =
            sides.into_iter().partition(|(_, (a, b))| is_too_large(a) || is_too_large(b));
        left_out.too_large = large.into_keys().collect();
        match each((old, new), &sides, &mut |old, new| write_file(old, new, style, out)) {
            Ok(()) => Ok(Ok(left_out)),
            Err(Failure::Inspect(error)) => Err(error),
            Err(Failure::Io(error)) => Ok(Err(error)),
        }
    })
}

/// Counts how much changed from one moment to the other.
///
/// # Errors
/// The session or the base cannot be read.
pub fn stats_between(
    moments: &Moments<'_>,
    options: &DiffOptions,
    style: &Style,
) -> Result<PatchStats> {
    moments.with_views(|old, new| {
        let found = moments.differences_of(old, new, options, &|_, _| true)?;
        let (sides, mut left_out) = collect(moments, (old, new), &found, (options, style))?;
        let mut files = Vec::new();
        let counted = each((old, new), &sides, &mut |old, new| {
            count(old, new, style, &mut files, &mut left_out.only_space)
        });
        match counted {
            Err(Failure::Inspect(error)) => Err(error),
            Ok(()) | Err(Failure::Io(_)) => {
                files.sort_by(|a, b| a.path().cmp(&b.path()));
                Ok(PatchStats { files, left_out, differences: found.all })
            }
        }
    })
}

/// The files and links of the differences, by path, and what has no place in a patch.
fn collect(
    moments: &Moments<'_>,
    (old, new): (&TreeView<'_>, &TreeView<'_>),
    found: &TreeDifferences,
    (options, style): (&DiffOptions, &Style),
) -> Result<(BTreeMap<MergedPath, Sides>, PatchOmissions)> {
    let mut sides: BTreeMap<MergedPath, Sides> = BTreeMap::new();
    let mut left_out = PatchOmissions {
        differences: found.all.len() as u64,
        denied: found.denied.clone(),
        ..PatchOmissions::default()
    };
    let mut dirs = BTreeSet::new();
    let mut renamed = Vec::new();
    for (difference, before) in found.all.iter().zip(&found.earlier) {
        let (path, after) = (&difference.path, difference.change.after.as_ref());
        let before = before.as_ref();
        note_omissions(difference, (before, after), &mut left_out);
        let is_whole = before.is_none() || after.is_none();
        if is_whole && before.into_iter().chain(after).any(is_dir) {
            dirs.insert(path.clone());
        }
        let [before, after] = [before, after].map(|side| side.filter(|side| is_blob(side)));
        match (before, after) {
            (Some(before), Some(after)) if before.path() != after.path() => {
                renamed.push((before.clone(), after.clone()));
            }
            (None, None) => {}
            (before, after) => {
                let there = sides.entry(path.clone()).or_default();
                there.0 = there.0.take().or(before.cloned());
                there.1 = there.1.take().or(after.cloned());
            }
        }
    }
    let known = renamed.iter().map(|(_, after)| after.path().clone());
    let mut known: BTreeSet<_> = known.collect();
    for (before, after) in carried((old, new), found, options, &mut left_out)? {
        if known.insert(after.path().clone())
            && sides.get(after.path()).is_none_or(|(_, there)| there.is_none())
        {
            renamed.push((before, after));
        }
    }
    for (before, after) in renamed {
        let (from, to) = (before.path().clone(), after.path().clone());
        let there = sides.entry(to).or_default();
        there.1 = Some(after);
        match there.0 {
            None => there.0 = Some(before),
            // The object that was there is gone: git takes no rename to its path.
            Some(_) => drop(sides.entry(from).or_default().0.get_or_insert(before)),
        }
    }
    let used: BTreeSet<_> = sides.keys().map(MergedPath::parent).collect();
    let is_empty = |dir: &&MergedPath| !used.contains(dir) && dir.first_below(&used).is_none();
    left_out.empty_dirs = dirs.iter().filter(is_empty).count() as u64;
    if !style.has_git {
        let outside = moments.new.base_path().map(|path| path.as_os_str().as_bytes());
        let own = ToolOwnedFiles::find(new, outside, sides.keys())?;
        sides.retain(|path, _| match own.owner(path) {
            Some(whose) => {
                *left_out.own.entry(whose).or_default() += 1;
                false
            }
            None => true,
        });
    }
    Ok((sides, left_out))
}

/// Counts what a patch cannot hold of a difference.
fn note_omissions(
    difference: &Difference,
    (before, after): (Option<&TreeObject>, Option<&TreeObject>),
    left_out: &mut PatchOmissions,
) {
    if let (Some(before), Some(after)) = (before, after) {
        let (old, new) = (before.attr(), after.attr());
        let has_mode = old.kind == new.kind && has_blob(new.kind);
        let is_said = has_mode && (old.mode ^ new.mode) & !0o111 == 0;
        if difference.differs.owner || difference.differs.mode && !is_said {
            left_out.attributes.push(difference.path.clone());
        }
    }
    let is_special = |object: &&TreeObject| !is_dir(object) && !is_blob(object);
    left_out.special += before.into_iter().chain(after).filter(is_special).count() as u64;
}

fn is_blob(object: &TreeObject) -> bool {
    has_blob(object.attr().kind)
}

/// The chosen files that moved along with their directories.
fn carried(
    (old, new): (&TreeView<'_>, &TreeView<'_>),
    found: &TreeDifferences,
    options: &DiffOptions,
    left_out: &mut PatchOmissions,
) -> Result<Vec<(TreeObject, TreeObject)>> {
    let (mut all, mut denied) = (Vec::new(), BTreeSet::new());
    let selection = &options.selection;
    for (from, to) in found.moves.iter() {
        let may_hold = |dir: &MergedPath| selection.has(new, dir, true) || selection.may_hold(dir);
        if may_hold(from) || may_hold(to) {
            let carried = carried_by(old, new, &found.moves, to, &mut denied)?;
            let is_wanted = |before: &TreeObject, after: &TreeObject| {
                is_blob(after) && is_chosen(options, new, before, after)
            };
            all.extend(carried.into_iter().filter(|(before, after)| is_wanted(before, after)));
        }
    }
    left_out.denied.extend(denied);
    Ok(all)
}

/// Calls `each` for both sides of each file, in the order of their paths.
fn each(
    (old, new): (&TreeView<'_>, &TreeView<'_>),
    sides: &BTreeMap<MergedPath, Sides>,
    each: &mut EachPair<'_>,
) -> std::result::Result<(), Failure> {
    for (path, (before, after)) in sides {
        let from = before.as_ref().map_or(path, TreeObject::path);
        let before = before.as_ref().map(|before| blob(old, before)).transpose()?;
        let after = after.as_ref().map(|after| blob(new, after)).transpose()?;
        each((from, before), (path, after))?;
    }
    Ok(())
}
