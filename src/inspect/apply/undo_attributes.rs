//! Attributes that an apply set in place: whether they changed since, and the steps that restore
//! them.

use super::record::Before;
use super::steps::Set;
use super::undo_plan::{CHANGED, GONE, UndoPlan, UndoPlanner};
use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::inspect::error::Result;
use crate::vfs::FileKind;
use crate::writeback::{Attrs, SeenObject};

impl UndoPlanner<'_> {
    /// Looks at the objects whose attributes the apply set, and notes mode and owner that are
    /// neither as the apply left them nor as they were before it.
    pub(super) fn compare_attributes(&mut self) -> Result<()> {
        let record = self.record;
        for before in &record.before {
            let Some(path) = self.moves.after(&before.path) else { continue };
            let mut now = self.object(&path)?;
            if let Some(top) = now.as_mut().filter(|_| path.is_root()) {
                // The staging changed its time.
                top.attrs = self.target.host_top.clone();
            }
            let drift = match (&before.left, &now) {
                (Some(left), _) if left.has_rights_of(&before.attrs) => None,
                (None, _) => None,
                (Some(_), None) => Some((GONE, true)),
                (Some(left), Some(now)) => {
                    let is_other = now.seen.kind != left.kind;
                    let has_drifted = is_other || !is_left(before, left, &now.attrs);
                    has_drifted.then_some((CHANGED, is_other))
                }
            };
            if let (Some((why, is_lost)), Some(change)) = (drift, self.change_of(before)) {
                self.note(&path, why, is_lost, change);
            }
            self.set_now.extend(now.map(|now| (&before.path, now)));
        }
        Ok(())
    }

    /// The number of the change that set attributes.
    fn change_of(&self, before: &Before) -> Option<usize> {
        // No step sets those of the top.
        let of_top = || self.record.changes.iter().position(|path| *path == MergedPath::root());
        before.change.or_else(|| before.path.is_root().then(of_top).flatten())
    }

    /// Restores each attribute that the apply set; others keep their current value.
    pub(super) fn add_sets(&self, plan: &mut UndoPlan) {
        for before in &self.record.before {
            let is_left_out =
                self.change_of(before).is_some_and(|change| self.left_out.contains(&change));
            let now = self.set_now.get(&before.path);
            let is_dir = before.attrs.kind == FileKind::Directory;
            let attrs = match now {
                Some(now) => restored(before, &now.attrs),
                // An object that comes back has its attributes, but a directory gets them after its
                // entries.
                None if is_dir && self.moves.after(&before.path).is_none() => before.attrs.clone(),
                None => continue,
            };
            if let Some(now) = now.filter(|_| before.path.is_root()) {
                let rights = if is_left_out { &now.attrs } else { &attrs };
                plan.top = Some(Attrs { mtime: attrs.mtime, ..rights.clone() });
                continue;
            }
            let is_needed = now
                .is_none_or(|now| now.attrs.kind == attrs.kind && (is_dir || now.attrs != attrs));
            if is_left_out || !is_needed {
                continue;
            }
            let seen = now.map(|now| SeenObject { ctime: None, ..now.seen.clone() });
            let from = now.map(|now| now.attrs.clone());
            let (path, change) = (before.path.clone(), before.change);
            plan.steps.sets.push(Set { path, attrs, from, seen, change });
        }
    }

    /// Whether a plan changes the mode or owner of an object in place, or a file's time.
    pub(super) fn changes_attributes(&self, path: &BasePath, to: &Attrs) -> bool {
        let is_dir = to.kind == FileKind::Directory;
        self.set_now.get(path).is_some_and(|now| {
            !to.has_rights_of(&now.attrs) || (!is_dir && to.mtime != now.attrs.mtime)
        })
    }
}

/// Whether mode and owner, each if the apply changed it, are as the apply left them, or as before.
fn is_left(before: &Before, left: &Attrs, now: &Attrs) -> bool {
    let is_left = |before: u32, left: u32, now: u32| before == left || now == left || now == before;
    is_left(before.attrs.mode, left.mode, now.mode)
        && is_left(before.attrs.uid, left.uid, now.uid)
        && is_left(before.attrs.gid, left.gid, now.gid)
}

/// The old mode and owner where the apply changed them, and the old time if it is as the apply left
/// it; the others as they are now.
fn restored(before: &Before, now: &Attrs) -> Attrs {
    let left = before.left.as_ref().unwrap_or(now);
    let number = |before: u32, left: u32, now: u32| if before == left { now } else { before };
    Attrs {
        kind: before.attrs.kind,
        mode: number(before.attrs.mode, left.mode, now.mode),
        uid: number(before.attrs.uid, left.uid, now.uid),
        gid: number(before.attrs.gid, left.gid, now.gid),
        mtime: if now.mtime == left.mtime { before.attrs.mtime } else { now.mtime },
    }
}
