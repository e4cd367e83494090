//! Which pieces of a session's changes are chosen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::id::HunkId;
use super::pieces::{DiffPieces, pieces};
use crate::delta::MergedPath;
use crate::inspect::diff::Difference;
use crate::inspect::error::Result;
use crate::inspect::opened::Opened;
use crate::overlay::TreeView;

/// How much of a change is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pick {
    /// All.
    Whole,
    /// These pieces of a text.
    Hunks(BTreeSet<HunkId>),
}

/// What is chosen, by the path of the change. A directory does not bring along what is below it.
pub type ChosenHunks = BTreeMap<MergedPath, Pick>;

/// What a file gets of which only a part is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenPart {
    /// What it was before, with the chosen hunks.
    pub content: Arc<[u8]>,
    /// Whether any hunk of the lines is chosen.
    pub has_lines: bool,
    /// Mode, owner and group, where that piece is chosen; else as before.
    pub attributes: [u32; 3],
}

/// What choosing pieces of a difference comes to.
#[derive(Debug)]
pub(in crate::inspect) enum Choice {
    /// All of it.
    Whole,
    /// A part.
    Part(ChosenPart),
    /// Some of the pieces are not there any more.
    Vanished,
}

/// What comes of choosing these pieces of a difference.
pub(in crate::inspect) fn part(
    opened: &Opened,
    view: &TreeView<'_>,
    difference: &Difference,
    ids: &BTreeSet<HunkId>,
) -> Result<Choice> {
    let DiffPieces::File(file) = pieces(opened, view, difference)? else {
        return Ok(Choice::Vanished);
    };
    let all: BTreeSet<_> = file.ids().collect();
    if ids.is_empty() || !ids.is_subset(&all) {
        return Ok(Choice::Vanished);
    }
    if *ids == all {
        return Ok(Choice::Whole);
    }
    let old = difference.old.as_ref().map_or([0; 3], |old| {
        let attr = &old.attr;
        [attr.mode, attr.uid, attr.gid]
    });
    let attributes = file.attributes.filter(|a| ids.contains(&a.id)).map_or(old, |a| a.new);
    Ok(Choice::Part(ChosenPart {
        content: file.text.with(ids).into(),
        has_lines: file.text.hunks.iter().any(|hunk| ids.contains(&hunk.id)),
        attributes,
    }))
}
