//! git's own files in an apply.
//!
//! HEAD, refs, index and logs of a repository describe one state. Text that is merged, or some
//! files of one side beside those of the other, are no state of a repository, so these files are
//! never merged, and left out together. Objects only add to each other.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;

use super::Skipped;
use super::advice::ApplyAdvice;
use super::plan::{ApplyPlan, KeptInBase, target_path};
use super::planner::Planner;
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::error::Result;
use crate::inspect::tool_owned::{OwnedBy, ToolOwnedFiles};
use crate::vfs::Name;

impl ApplyPlan {
    /// The changes, with one for all that are left out with a git directory.
    pub fn with_git_once(&self, all: Vec<Skipped>) -> Vec<Skipped> {
        let (mut once, mut dirs) = (Vec::new(), BTreeSet::new());
        for left in all {
            match self.left_with_git.get(&left.path) {
                Some(dir) => drop(dirs.insert(dir.clone())),
                None => once.push(left),
            }
        }
        once.extend(dirs.into_iter().map(|(dir, is_kept)| with_git_dir(dir, is_kept)));
        once
    }
}

/// A change that is left out with a git directory.
fn with_git_dir(path: MergedPath, is_kept: bool) -> Skipped {
    let why = match is_kept {
        false => {
            "all of it but its objects is left out, because the base changed it: all or nothing"
        }
        true => {
            "all of it but its objects and new branches stays as the base has it, and the session \
             gives up its own"
        }
    };
    Skipped { path, why: why.to_owned() }
}

impl Planner<'_> {
    /// Whether a path is in a git directory.
    pub(super) fn is_gits_own(&self, path: &MergedPath) -> Result<bool> {
        let own = self.tool_owned(std::iter::once(path))?;
        Ok(git_dir(&own, path).is_some())
    }

    fn tool_owned<'p>(
        &self,
        paths: impl Iterator<Item = &'p MergedPath>,
    ) -> Result<ToolOwnedFiles> {
        let outside = self.opened.base_path().map(|path| path.as_os_str().as_bytes());
        ToolOwnedFiles::find(self.view, outside, paths)
    }

    /// Leaves out what else changed in the git directories of drifted objects that are left out.
    /// If an option keeps the base's state of such a directory, it keeps that of all of it but
    /// branches, tags and their logs that only the session has: these stay in the session, because
    /// nothing else may lead to their commits.
    pub(super) fn leave_out_git_dirs(&mut self) -> Result<()> {
        let drifted = self.plan.drifted.iter().map(|drifted| &drifted.path);
        if self.plan.drifted.is_empty() {
            return Ok(());
        }
        let changed = self.plan.changes.iter().map(|change| &change.path);
        let own = self.tool_owned(changed.chain(drifted.clone()))?;
        let mut left: BTreeMap<MergedPath, bool> = BTreeMap::new();
        for path in drifted {
            let Some(dir) = git_dir(&own, path) else { continue };
            let is_kept = self.plan.kept_in_base.contains_key(path);
            if is_kept && !self.sides.base.iter().any(|named| dir.is_within(named)) {
                let what = format!("{}: is not a whole git directory", path.display());
                return Err(InspectError::Refused { what, advice: ApplyAdvice::NameGitDir });
            }
            if is_kept || self.skips_drifted {
                *left.entry(dir.clone()).or_default() |= is_kept;
            }
            self.plan.git_drifted.insert(dir);
        }
        for number in 0..self.plan.changes.len() {
            let change = &self.plan.changes[number];
            if change.paths == 0 || self.refused.contains(&number) {
                continue;
            }
            let dir_of = |path| git_dir(&own, path).filter(|dir| !is_object(dir, path));
            let dir = dir_of(&change.path).or_else(|| change.from.as_ref().and_then(dir_of));
            let Some((dir, &is_kept)) = dir.and_then(|dir| left.get_key_value(&dir)) else {
                continue;
            };
            let (path, dir) = (change.path.clone(), dir.clone());
            if is_kept && is_ref(&dir, &path) && self.is_new(number)? {
                let why =
                    format!("new, but the rest of {} stays as the base has it", dir.display());
                self.refuse(number, Skipped { path, why });
                continue;
            }
            self.plan.left_with_git.insert(path.clone(), (dir, is_kept));
            if is_kept {
                let kept = KeptInBase { path: path.clone(), extent: self.extent_of(number) };
                self.plan.kept_in_base.insert(path.clone(), kept);
            }
            self.refuse(number, with_git_dir(path, is_kept));
        }
        Ok(())
    }

    /// Whether a change adds an object where the target has none.
    fn is_new(&self, change: usize) -> Result<bool> {
        let change = &self.plan.changes[change];
        let is_added = change.object.is_some() && change.from.is_none();
        Ok(is_added && self.target.stat(&target_path(&change.path))?.is_none())
    }
}

fn git_dir(own: &ToolOwnedFiles, path: &MergedPath) -> Option<MergedPath> {
    own.owner(path).filter(|(owner, _)| *owner == OwnedBy::Git).map(|(_, dir)| dir)
}

/// Whether a path is in the object store of a git directory.
fn is_object(dir: &MergedPath, path: &MergedPath) -> bool {
    is_in(dir, &[b"objects"], path)
}

/// Whether a path is a branch or tag of a git directory, the log of one, or a directory of these.
fn is_ref(dir: &MergedPath, path: &MergedPath) -> bool {
    is_in(dir, &[b"refs"], path) || is_in(dir, &[b"logs", b"refs"], path)
}

fn is_in(dir: &MergedPath, names: &[&[u8]], path: &MergedPath) -> bool {
    let mut top = dir.clone();
    for name in names.iter().filter_map(|name| Name::new(name).ok()) {
        top = top.join(&name);
    }
    path.is_within(&top)
}
