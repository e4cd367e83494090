//! Applying a session to its base, or to a copy of it.

mod acl;
mod attributes_meanwhile;
mod chosen;
mod consent;
mod copies;
mod dir_modes_meanwhile;
pub mod drift;
mod hard_links;
mod history;
mod kinds;
mod left_out;
mod linked_meanwhile;
mod meanwhile;
mod merge;
mod merged_meanwhile;
mod modes_killed;
mod moved_alike;
mod moved_dirs;
mod moved_dirs_random;
mod moved_originals;
mod names;
mod parts;
mod pending;
mod redo;
mod refused;
mod requests;
mod resume;
mod same_edit;
mod session_meanwhile;
mod sizes;
mod skip_random;
mod special;
mod unchanged;
mod undo;
mod undo_as_user;
mod undo_attributes;
mod undo_killed;
mod undo_meanwhile;
mod undo_random;
mod unseen;
mod xattrs;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use acetate::delta::{Ino, MergedPath, PendingCopies};
use acetate::inspect::Result;
use acetate::inspect::apply::{
    AppliedChange, ApplyEvent, ApplyOptions, Consent, DroppedCopy, Report, SessionUpdater, apply,
};
use acetate::inspect::opened::OpenSession;
use acetate::inspect::selection::Selection;
use acetate::overlay::CopyStep;

use crate::support::applied::{self, planned};
use crate::support::world::World;

/// Asserts that applied to a copy of the base, the changes make the merged tree.
#[track_caller]
pub fn check(world: &World) {
    applied::assert_makes_merged(&world.session(), &world.base());
}

pub fn path(path: &str) -> MergedPath {
    MergedPath::from_user(path.as_bytes()).unwrap()
}

/// All that is at or below these paths.
pub fn only(paths: &[&str]) -> ApplyOptions {
    let selection = Selection::of(paths.iter().map(|p| path(p)));
    ApplyOptions { selection, ..applied::all() }
}

/// The session and its base.
pub fn open(world: &World) -> OpenSession {
    OpenSession::open(&world.session(), Some(&world.base())).unwrap()
}

/// A copy of the world's base.
pub fn copy(world: &World, name: &str) -> PathBuf {
    let to = world.scratch().join(name);
    applied::copy(&world.base(), &to);
    to
}

/// Applies, with `watch` looking on.
pub fn watched(
    opened: &OpenSession,
    to: Option<&Path>,
    options: &ApplyOptions,
    watch: &mut dyn FnMut(ApplyEvent) -> ControlFlow<()>,
) -> Result<Report> {
    let plan = planned(opened, to, options)?;
    apply(opened, to, options, Consent::Shown(&plan), None, watch)
}

/// Applies to a copy, and to nothing else; what was skipped.
#[track_caller]
pub fn skipped(world: &World, to: &Path, at: ApplyEvent, change: impl FnOnce()) -> Vec<String> {
    let mut change = Some(change);
    let report = watched(&open(world), Some(to), &applied::all(), &mut |event| {
        if event == at
            && let Some(change) = change.take()
        {
            change();
        }
        ControlFlow::Continue(())
    });
    assert!(change.is_none(), "it did not come to this");
    let skipped = report.unwrap().skipped;
    assert!(!to.join(".acetate-apply").exists());
    let words = |s: acetate::inspect::apply::Skipped| format!("{}: {}", s.path.display(), s.why);
    skipped.into_iter().map(words).collect()
}

/// Notes what it was told.
#[derive(Default)]
pub struct Noting(pub Vec<AppliedChange>);

impl SessionUpdater for Noting {
    fn copy(&mut self, _: Ino) -> Result<CopyStep> {
        Ok(CopyStep { next: None, has_copied: false, left: PendingCopies::default() })
    }

    fn forget(&mut self, applied: &[AppliedChange], _: bool) -> Result<Vec<MergedPath>> {
        self.0.extend_from_slice(applied);
        Ok(Vec::new())
    }

    fn settle_moves(&mut self) -> Result<()> {
        Ok(())
    }

    fn drop_unchanged(&mut self, _: &[DroppedCopy]) {}
}

/// Applies to the world's base, and lets its server know.
#[track_caller]
pub fn apply_served(world: &World, options: &ApplyOptions) -> Report {
    let opened = open(world);
    let plan = planned(&opened, None, options).unwrap();
    let mut book = applied::Book(world);
    let watch = &mut |_: ApplyEvent| ControlFlow::Continue(());
    apply(&opened, None, options, Consent::Shown(&plan), Some(&mut book), watch).unwrap()
}
