//! The differences between two moments as a patch, and how much changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use super::{Moments, TreeDifferences, is_dir, is_same};
use crate::delta::MergedPath;
use crate::inspect::diff::{DiffOptions, DifferenceKind, at};
use crate::inspect::error::Result;
use crate::inspect::patch::{
    EachPair, Failure, MAX_FILE_BYTES, PatchOmissions, PatchStats, Style, blob, count, has_blob,
    write_file,
};
use crate::inspect::tool_owned::ToolOwnedFiles;
use crate::inspect::walk::{WalkControl, walk_past_denied};
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
        let found = moments.differences_of(old, new, options)?;
        let (sides, mut left_out) = collect(moments, (old, new), &found, style)?;
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
        let found = moments.differences_of(old, new, options)?;
        let (sides, mut left_out) = collect(moments, (old, new), &found, style)?;
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
    style: &Style,
) -> Result<(BTreeMap<MergedPath, Sides>, PatchOmissions)> {
    let mut sides: BTreeMap<MergedPath, Sides> = BTreeMap::new();
    let mut left_out = PatchOmissions {
        differences: found.all.len() as u64,
        denied: found.denied.clone(),
        ..PatchOmissions::default()
    };
    let mut dirs = BTreeSet::new();
    for difference in &found.all {
        let path = &difference.path;
        let before = match difference.kind {
            DifferenceKind::Added => None,
            _ => found.earlier.get(path).cloned(),
        };
        let after = difference.change.after.clone();
        if let (Some(before), Some(after)) = (&before, &after) {
            let (old, new) = (before.attr(), after.attr());
            let has_mode = old.kind == new.kind && has_blob(new.kind);
            let is_said = has_mode && (old.mode ^ new.mode) & !0o111 == 0;
            if difference.differs.owner || difference.differs.mode && !is_said {
                left_out.attributes.push(path.clone());
            }
        }
        for object in before.iter().chain(&after).filter(|object| !has_blob(object.attr().kind)) {
            match is_dir(object) {
                true if before.is_none() || after.is_none() => drop(dirs.insert(path.clone())),
                true => {}
                false => left_out.special += 1,
            }
        }
        let files = [before, after].map(|side| side.filter(|side| has_blob(side.attr().kind)));
        let [before, after] = files;
        if before.is_some() || after.is_some() {
            let there = sides.entry(path.clone()).or_default();
            there.0 = there.0.take().or(before);
            there.1 = there.1.take().or(after);
        }
    }
    carried((old, new), found, &mut sides, &mut left_out)?;
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

/// Adds the files that moved along with their directories.
fn carried(
    (old, new): (&TreeView<'_>, &TreeView<'_>),
    found: &TreeDifferences,
    sides: &mut BTreeMap<MergedPath, Sides>,
    left_out: &mut PatchOmissions,
) -> Result<()> {
    for (_, to) in found.moves.iter() {
        let Some(dir) = new.find(to).map_err(|source| at(to, source))? else { continue };
        let mut denied = Vec::new();
        walk_past_denied(new, &dir, &|_| true, &mut denied, &mut |_, object, _| {
            let (path, from) = (object.path(), found.moves.old_path(object.path()));
            if !has_blob(object.attr().kind) || sides.contains_key(path) {
                return Ok(WalkControl::Deeper);
            }
            let before = old.find(&from).map_err(|source| at(&from, source))?;
            if let Some(before) = before.filter(|before| is_same(before, object)) {
                sides.insert(path.clone(), (Some(before), Some(object.clone())));
            }
            Ok(WalkControl::Deeper)
        })?;
        left_out.denied.append(&mut denied);
    }
    Ok(())
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
