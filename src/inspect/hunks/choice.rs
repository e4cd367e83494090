//! Which pieces of a session's changes are chosen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::id::HunkId;
use super::pieces::{DiffPieces, old_attributes, pieces};
use crate::delta::MergedPath;
use crate::inspect::diff::Difference;
use crate::inspect::error::Result;
use crate::inspect::opened::OpenSession;
use crate::overlay::TreeView;

/// How much of a change is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pick {
    /// The whole change.
    Whole,
    /// These hunks of a text.
    Hunks(BTreeSet<HunkId>),
}

/// The choice for each change, by its path. Choosing a directory does not choose its entries.
pub type ChosenHunks = BTreeMap<MergedPath, Pick>;

/// The result for a file if only some of its pieces are chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenPart {
    /// The earlier content with the chosen hunks.
    pub content: Arc<[u8]>,
    /// Whether any hunk of lines is chosen.
    pub has_lines: bool,
    /// Mode, owner and group: the new ones if that piece is chosen, otherwise the earlier ones.
    pub attributes: [u32; 3],
}

/// The result of choosing pieces of a difference.
#[derive(Debug)]
pub(in crate::inspect) enum Choice {
    /// All pieces are chosen.
    Whole,
    /// Some pieces are chosen.
    Part(ChosenPart),
    /// The difference no longer has some of the pieces.
    Vanished,
}

/// Resolves chosen ids against the current pieces of a difference.
pub(in crate::inspect) fn part(
    opened: &OpenSession,
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
    let old = difference.old.as_ref().map_or([0; 3], |old| old_attributes(difference, old));
    let attributes = file.attributes.filter(|a| ids.contains(&a.id)).map_or(old, |a| a.new);
    Ok(Choice::Part(ChosenPart {
        content: file.text.with(ids).into(),
        has_lines: file.text.hunks.iter().any(|hunk| ids.contains(&hunk.id)),
        attributes,
    }))
}
