//! Three-way merges of files that both the session and the base changed.
//!
//! Both sides are compared with the original: the base file when the session first changed it. The
//! base is the directory that is written to, which may be a copy. If only one side made a change,
//! the merge has that change; text that both changed is merged by lines. A file that cannot be
//! merged is a conflict, and stays as it is unless an option decides.

use std::borrow::Cow;
use std::sync::Arc;

use super::drift::DriftReason;
use super::hunk_changes::side_attrs;
use super::plan::{attrs, attrs_of};
use super::planner::Planner;
use super::target_dir::{ApplyTarget, base_error};
use super::unchanged::{InBase, is_made_alike};
use crate::base::{BaseAttr, BaseError};
use crate::delta::Original;
use crate::inspect::content::{MAX_TEXT_BYTES, content, is_made_in_base, read_base};
use crate::inspect::diff::{self, Difference};
use crate::inspect::error::Result;
use crate::inspect::hunks::ChosenPart;
use crate::inspect::patch::{has_nul, has_too_many_lines};
use crate::inspect::text_merge::{self, TextMerge};
use crate::overlay::{BaseObject, BlobDigest, Change, MergedParts, TreeObject, TreeView};
use crate::vfs::{FileId, FileKind, FsError, Time};
use crate::writeback::Attrs;

/// The result of merging a file.
#[derive(Debug, Clone)]
pub(super) struct Merge {
    /// The source of its content.
    pub content: StepContent,
    /// Its attributes.
    pub attrs: Attrs,
}

/// The source of a file's content.
#[derive(Debug, Clone)]
pub(super) enum StepContent {
    /// The base: the session's side has the content of the original or of the base.
    Base,
    /// The session: the base has the original content, or nothing is merged.
    Session,
    /// The session, but only the chosen part of its change.
    Given(Arc<[u8]>),
    /// Both: the text is merged when the file is made, with markers if lines conflict.
    Both {
        /// The original.
        original: Box<Original>,
        /// The base's file.
        base: Box<BaseObject>,
        /// The session's side, if only a part of its change is chosen.
        ours: Option<Arc<[u8]>>,
        /// Lines conflict, and get markers.
        has_conflicts: bool,
    },
}

impl StepContent {
    /// Whether it is text that neither the session nor the base had.
    pub(super) fn is_new_text(&self) -> bool {
        matches!(self, Self::Given(_) | Self::Both { .. })
    }
}

/// The result of an attempt to merge.
pub(super) enum MergeOutcome {
    /// The file can be merged.
    Merge(Merge),
    /// The file cannot be merged, for this reason.
    Conflict(DriftReason),
}

impl Planner<'_> {
    /// Tries to merge a change with the object that is there instead of the original.
    pub(super) fn merge(
        &self,
        difference: &Difference,
        there: Option<&BaseObject>,
    ) -> Result<MergeOutcome> {
        let change = &difference.change;
        let conflict = |why| Ok(MergeOutcome::Conflict(why));
        let (Some(base), Some(after)) = (there, &change.after) else {
            return conflict(DriftReason::Changed);
        };
        let are_files = [base.attr.kind, after.attr().kind] == [FileKind::Regular; 2];
        let original = change.original.as_ref().filter(|original| original.digest.is_some());
        let Some(original) = original else {
            return conflict(match are_files && after.origin().is_some() {
                true => DriftReason::NoOriginal,
                false => DriftReason::Changed,
            });
        };
        if !are_files || original.kind != FileKind::Regular {
            return conflict(DriftReason::Changed);
        }
        let part = self.part_of(change);
        let ours = side_attrs(after, part);
        if self.attributes_conflict(original, &base.attr, &ours) {
            return conflict(DriftReason::Attributes);
        }
        let attrs = merged_attrs(original, &base.attr, ours);
        let of_base = Attrs { mtime: base.attr.mtime, ..attrs.clone() };
        let as_base = Ok(MergeOutcome::Merge(Merge { content: StepContent::Base, attrs: of_base }));
        // The difference of a further name has no old object, so the original is compared here.
        let has_text = match part {
            Some(part) => part.has_lines,
            None if change.is_link => diff::differs_from_original(self.view, original, after)?,
            None => difference.differs.content,
        };
        if !has_text {
            return as_base;
        }
        let theirs = match read_base(self.target.reader(), base) {
            Ok(Some(theirs)) => theirs,
            Ok(None) => return conflict(DriftReason::NotText),
            Err(BaseError::Denied | BaseError::NotFound | BaseError::Changed) => {
                return conflict(DriftReason::Changed);
            }
            Err(source) => return Err(base_error(&self.target.shown(&base.path), source)),
        };
        if Some(BlobDigest::of(&theirs)) == original.digest {
            let content =
                part.map_or(StepContent::Session, |p| StepContent::Given(p.content.clone()));
            return Ok(MergeOutcome::Merge(Merge { content, attrs }));
        }
        if self.is_content(after, part, &theirs)? {
            return as_base;
        }
        if self.is_gits_own(&change.path)? {
            return conflict(DriftReason::Git);
        }
        let ours = part.map(|part| part.content.clone());
        let merged = merge_text(self.view, original, (after, ours.as_deref()), &theirs)?;
        let has_conflicts = match merged {
            None => return conflict(DriftReason::NotText),
            Some(TextMerge::Clean(text)) if text == theirs => return as_base,
            Some(TextMerge::Conflicts(_)) if !self.marks_conflicts => {
                return conflict(DriftReason::Conflict);
            }
            Some(merged) => matches!(merged, TextMerge::Conflicts(_)),
        };
        let content = StepContent::Both {
            original: Box::new(original.clone()),
            base: Box::new(base.clone()),
            ours,
            has_conflicts,
        };
        Ok(MergeOutcome::Merge(Merge { content, attrs }))
    }
}

impl Planner<'_> {
    /// Whether the base's content, `theirs`, is the session's, or the chosen part of it.
    fn is_content(
        &self,
        after: &TreeObject,
        part: Option<&ChosenPart>,
        theirs: &[u8],
    ) -> Result<bool> {
        match part {
            Some(part) => Ok(*part.content == *theirs),
            None if after.attr().size != theirs.len() as u64 => Ok(false),
            None => Ok(content(self.view, after)? == theirs),
        }
    }

    /// How the base has all that the session changed of a file, and perhaps more: to apply it would
    /// write nothing.
    pub(super) fn in_base(&mut self, difference: &Difference) -> Result<Option<InBase>> {
        let change = &difference.change;
        let differs = difference.differs;
        if is_made_alike(difference) {
            return Ok(Some(InBase::Alike));
        }
        if self.part_of(change).is_some() || !(differs.content || differs.mode || differs.owner) {
            return Ok(None);
        }
        if is_made_in_base(self.opened, self.view, change, differs)? {
            return Ok(Some(InBase::Alike));
        }
        let Some(base) = change.before.as_ref().filter(|_| change.is_drifted) else {
            return Ok(None);
        };
        let merged = self.merge(difference, Some(base))?;
        let writes_nothing =
            matches!(&merged, MergeOutcome::Merge(merge) if merge.writes_nothing(base));
        self.last_merge = Some((change.path.clone(), merged));
        Ok(writes_nothing.then_some(InBase::WithOthers))
    }

    /// Whether a change sets the mode, owner or group of an object that did not drift, and the base
    /// has set another value.
    pub(super) fn has_other_owner(&self, change: &Change) -> bool {
        let (Some(base), Some(after)) = (&change.before, &change.after) else { return false };
        let (ours, theirs) = (side_attrs(after, self.part_of(change)), &base.attr);
        match &change.original {
            Some(original) => {
                [original.kind, theirs.kind] == [ours.kind; 2]
                    && self.attributes_conflict(original, theirs, &ours)
            }
            // Both sides made the directory.
            None if after.origin().is_none() && change.replaced.is_none() => {
                [FileKind::Directory; 2] == [ours.kind, theirs.kind]
                    && (ours.mode != theirs.mode
                        || !self.target.is_copy()
                            && (ours.uid, ours.gid) != (theirs.uid, theirs.gid))
            }
            None => false,
        }
    }

    /// Whether both sides changed the mode, the owner or the group, to different values.
    fn attributes_conflict(&self, original: &Original, base: &BaseAttr, ours: &Attrs) -> bool {
        let differ = |a, b, c| a != b && b != c && c != a;
        // A copy belongs to the user who made it.
        let owners_differ =
            || differ(original.uid, base.uid, ours.uid) || differ(original.gid, base.gid, ours.gid);
        differ(original.mode, base.mode, ours.mode) || !self.target.is_copy() && owners_differ()
    }

    /// The attributes of an object that did not drift: the session's where the session changed
    /// them, else the target's present ones, such as after a `chown` or `touch` on the host.
    pub(super) fn attrs_of_both(&self, change: &Change, after: &TreeObject) -> Result<Attrs> {
        let ours = side_attrs(after, self.part_of(change));
        let number = self.plan.changes.len().saturating_sub(1);
        let is_overwritten = self.drifted_changes.last().is_some_and(|(last, _)| *last == number)
            || self.is_forced && self.target.is_copy()
            || self.sides.session.iter().any(|named| change.path.is_within(named));
        let (Some(original), Some(base)) = (&change.original, &change.before) else {
            return Ok(ours);
        };
        let there = self.attr_there(base)?.filter(|there| there.kind == ours.kind);
        let Some(there) = there.filter(|_| !is_overwritten && original.kind == ours.kind) else {
            return Ok(ours);
        };
        let mtime = if ours.mtime == original.mtime { there.mtime } else { ours.mtime };
        Ok(Attrs { mtime, ..merged_attrs(original, &there, ours) })
    }

    /// The attributes that the target has at the path of a base object. A copy may have others than
    /// the base, which may have got its own after the copy was made.
    pub(super) fn attr_there(&self, base: &BaseObject) -> Result<Option<BaseAttr>> {
        match self.target.is_copy() {
            true => self.target.stat(&base.path),
            false => Ok(Some(base.attr.clone())),
        }
    }
}

impl Planner<'_> {
    /// The attributes of a directory that stays or moves: the session's where the session changed
    /// them, else those that the target has now; and which are the target's own.
    pub(super) fn attrs_of_dir(
        &self,
        change: &Change,
        after: &TreeObject,
    ) -> Result<(Attrs, MergedParts)> {
        let given = self.dir_attrs_of_both(change, after)?;
        let merged = merged_parts(&attrs(after), &given, None);
        Ok((given, merged))
    }

    fn dir_attrs_of_both(&self, change: &Change, after: &TreeObject) -> Result<Attrs> {
        let mut ours = attrs(after);
        let is_dir = |kind| kind == FileKind::Directory;
        let is_named = self.sides.session.iter().any(|named| change.path.is_within(named));
        if let (Some(origin), Some(base)) = (after.origin(), &change.before)
            && !self.target.is_copy()
            && is_dir(base.attr.kind)
        {
            let is_overwritten = (is_named || self.is_forced) && ours.mtime != origin.mtime;
            if !is_overwritten {
                ours.mtime = dir_mtime_of_both(origin.mtime, base.attr.mtime, ours.mtime);
            }
        }
        let (Some(original), Some(base)) = (&change.original, &change.before) else {
            return Ok(ours);
        };
        if is_named || !is_dir(original.kind) {
            return Ok(ours);
        }
        let there = self.attr_there(base)?.filter(|there| is_dir(there.kind));
        Ok(there.map_or(ours.clone(), |there| merged_attrs(original, &there, ours)))
    }
}

impl Merge {
    /// Whether the base's file stays as it is.
    pub(super) fn writes_nothing(&self, base: &BaseObject) -> bool {
        matches!(self.content, StepContent::Base) && self.attrs == attrs_of(&base.attr)
    }

    /// The fileid of the base file whose text is merged with the session's.
    pub(super) fn other_side(&self) -> Option<FileId> {
        match &self.content {
            StepContent::Both { base, .. } => Some(base.attr.fileid),
            _ => None,
        }
    }
}

/// What of an object, for which the session has the attributes `ours`, is the base's own in the
/// attributes `given` and the content of a merge.
pub(super) fn merged_parts(ours: &Attrs, given: &Attrs, merge: Option<&Merge>) -> MergedParts {
    let of_both =
        |merge: &Merge| matches!(merge.content, StepContent::Base | StepContent::Both { .. });
    MergedParts {
        content: merge.is_some_and(of_both),
        attributes: [ours.mode != given.mode, ours.uid != given.uid, ours.gid != given.gid],
        mtime: ours.mtime != given.mtime,
    }
}

/// The merged content of a file. Fails if the base file has changed since the plan was made.
pub(super) fn make(
    view: &TreeView<'_>,
    target: &ApplyTarget<'_>,
    (original, base): (&Original, &BaseObject),
    (after, ours): (&TreeObject, Option<&[u8]>),
) -> Result<Vec<u8>> {
    // The base has changed since the plan was made.
    let changed = || diff::at(after.path(), FsError::TryLater);
    let theirs = read_base(target.reader(), base);
    let theirs = theirs.map_err(|source| base_error(&target.shown(&base.path), source))?;
    let merged = merge_text(view, original, (after, ours), &theirs.ok_or_else(changed)?)?;
    let merged = merged.ok_or_else(changed)?;
    let (TextMerge::Clean(text) | TextMerge::Conflicts(text)) = merged;
    Ok(text)
}

/// Merges text. `None` if one of the three texts is no text, too large, or not stored. The
/// session's side is `ours`, or else all of `after`.
fn merge_text(
    view: &TreeView<'_>,
    original: &Original,
    (after, ours): (&TreeObject, Option<&[u8]>),
    theirs: &[u8],
) -> Result<Option<TextMerge>> {
    let failed = |source| diff::at(after.path(), source);
    let Some(start) = view.original_content(original).map_err(failed)? else { return Ok(None) };
    if after.attr().size > MAX_TEXT_BYTES {
        return Ok(None);
    }
    let ours = match ours {
        Some(ours) => Cow::Borrowed(ours),
        None => Cow::Owned(content(view, after)?),
    };
    let is_no_text = |text: &[u8]| has_nul(text) || has_too_many_lines(text);
    if [&start[..], &ours, theirs].into_iter().any(is_no_text) {
        return Ok(None);
    }
    Ok(Some(text_merge::merge(&start, theirs, &ours)))
}

/// The mtime of a directory: the one that changed since the copy-up. Of two, the later one, which
/// is not before the entries that either side made.
fn dir_mtime_of_both(original: Time, base: Time, ours: Time) -> Time {
    match (ours == original, base == original) {
        (true, _) => base,
        (false, true) => ours,
        (false, false) => base.max(ours),
    }
}

/// The mode, owner and group: each is the base's if the session did not change it, else the
/// session's.
fn merged_attrs(original: &Original, base: &BaseAttr, ours: Attrs) -> Attrs {
    let merged = |original, base, ours| if ours == original { base } else { ours };
    Attrs {
        mode: merged(original.mode, base.mode, ours.mode),
        uid: merged(original.uid, base.uid, ours.uid),
        gid: merged(original.gid, base.gid, ours.gid),
        ..ours
    }
}
