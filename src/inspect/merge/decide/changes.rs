//! Objects of the fork point that the fork changed or removed.

use super::{Decider, NewContent, ObjectEdit};
use crate::delta::MergedPath;
use crate::inspect::content::{TreeFile, content, contents_differ};
use crate::inspect::diff::{Difference, DifferenceKind};
use crate::inspect::error::Result;
use crate::inspect::merge::MergeSide;
use crate::inspect::merge::content::{is_equal, merge_text};
use crate::inspect::merge::side::{describe, is_gone, is_new, is_time_only, old_path};
use crate::overlay::TreeObject;
use crate::vfs::{SetAttr, SetTime};

impl Decider<'_> {
    /// Decides what becomes of an object of the fork point that the fork changed.
    pub(super) fn old_object(&mut self, theirs: &Difference) -> Result<()> {
        let Some(old) = old_path(theirs) else { return Ok(()) };
        if self.taken(&[&theirs.path, &old]) == Some(MergeSide::Ours) {
            self.kept.insert(old);
            return Ok(());
        }
        let ours = self.ours.change(&old);
        let is_deleted_here = ours.is_some_and(|ours| ours.kind == DifferenceKind::Deleted);
        match is_gone(theirs) {
            true => {
                let is_deleted = theirs.kind == DifferenceKind::Deleted;
                let removes = match ours {
                    None => true,
                    Some(_) if is_deleted_here && is_deleted => false,
                    Some(ours) if is_new(ours) && self.is_alike(ours, theirs)? => false,
                    Some(ours) => {
                        let both = (describe(ours), describe(theirs));
                        self.takes_theirs((&ours.path, Some(&old)), both)
                    }
                };
                if removes && !is_deleted_here {
                    self.made.removed.insert(old);
                }
                Ok(())
            }
            false => match ours {
                Some(ours) if is_gone(ours) => self.change_of_gone(theirs, ours),
                ours => self.change_of_both(theirs, ours, old),
            },
        }
    }

    /// Whether both sides have put equal objects in the place of one.
    fn is_alike(&self, ours: &Difference, theirs: &Difference) -> Result<bool> {
        match (&ours.change.after, &theirs.change.after) {
            (Some(a), Some(b)) => is_equal((self.ours, a), (self.theirs, b)),
            _ => Ok(false),
        }
    }

    /// The session removed or replaced an object that the fork changed.
    fn change_of_gone(&mut self, theirs: &Difference, ours: &Difference) -> Result<()> {
        if is_time_only(theirs) {
            return Ok(());
        }
        let both = (describe(ours), describe(theirs));
        if self.takes_theirs((&ours.path, Some(&theirs.path)), both) {
            self.remake(&theirs.path)?;
        }
        Ok(())
    }

    /// Both sides have an object that the fork changed.
    fn change_of_both(
        &mut self,
        theirs: &Difference,
        ours: Option<&Difference>,
        old: MergedPath,
    ) -> Result<()> {
        if theirs.kind == DifferenceKind::Renamed && self.moves(theirs, ours, &old) {
            self.add_move(old.clone(), theirs.path.clone());
        }
        let Some(after) = theirs.change.after.clone() else { return Ok(()) };
        let Some(path) = self.ours.new_path(&old) else { return Ok(()) };
        let Some(here) = self.ours.find(&path)? else { return Ok(()) };
        let ours = ours.map(|ours| ours.differs).unwrap_or_default();
        let (differs, their, our) = (theirs.differs, after.attr(), here.attr());
        let mut edit = ObjectEdit { theirs: after.clone(), content: None, set: SetAttr::default() };
        let files = (TreeFile(self.ours.new, &here), TreeFile(self.theirs.new, &after));
        let is_same = || contents_differ(files.0, files.1).map(|differ| !differ);
        if differs.content && !(ours.content && is_same()?) {
            edit.content = match ours.content {
                false => Some(NewContent::Theirs),
                true => match self.text(&old, &here, &after)? {
                    Some(changes) => changes.then_some(NewContent::Both),
                    None => {
                        let both = ("content changed".to_owned(), "content changed".to_owned());
                        self.takes_theirs((&path, Some(&old)), both).then_some(NewContent::Theirs)
                    }
                },
            };
        }
        if differs.mode && their.mode != our.mode {
            let both = (format!("mode {:o}", our.mode), format!("mode {:o}", their.mode));
            if !ours.mode || self.takes_theirs((&path, Some(&old)), both) {
                edit.set.mode = Some(their.mode);
            }
        }
        if differs.owner && (their.uid, their.gid) != (our.uid, our.gid) {
            let owner = |uid, gid| format!("owner {uid}:{gid}");
            let both = (owner(our.uid, our.gid), owner(their.uid, their.gid));
            if !ours.owner || self.takes_theirs((&path, Some(&old)), both) {
                (edit.set.uid, edit.set.gid) = (Some(their.uid), Some(their.gid));
            }
        }
        let is_theirs = edit.content == Some(NewContent::Theirs);
        let is_touched = differs.mtime && edit.content.is_none() && !ours.content && !ours.mtime;
        if is_theirs || is_touched && their.mtime != our.mtime {
            edit.set.mtime = SetTime::To(their.mtime);
        }
        if edit.content.is_some() || edit.set != SetAttr::default() {
            self.made.edits.insert(old, edit);
        }
        Ok(())
    }

    /// Whether the text that both sides' changes make is another one than the session's; `None` if
    /// they do not merge.
    fn text(
        &self,
        old: &MergedPath,
        ours: &TreeObject,
        theirs: &TreeObject,
    ) -> Result<Option<bool>> {
        let Some(before) = self.ours.find_old(old)? else { return Ok(None) };
        let before = TreeFile(self.ours.old, &before);
        let (now, fork) = (TreeFile(self.ours.new, ours), TreeFile(self.theirs.new, theirs));
        let merged = merge_text(before, now, fork);
        let Some(merged) = merged? else { return Ok(None) };
        Ok(Some(merged != content(self.ours.new, ours)?))
    }
}
