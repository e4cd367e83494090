//! Chooses from a session's changes: `--hunk`, `-p` and `-i`.

mod asked;
mod edited;
mod offer;
mod question;
mod shown;

use std::collections::BTreeMap;

use super::asking;
use super::error::CliError;
use super::output;
use super::text;
use crate::delta::MergedPath;
use crate::inspect::diff::{DiffOptions, Difference, DifferenceKind};
use crate::inspect::fold::{each_path, sorted_past_denied};
use crate::inspect::hunks::{ChosenHunks, DiffPieces, HunkId, Pick, pieces, whole_id};
use crate::inspect::opened::OpenSession;
pub(super) use offer::Offer;

/// How changes are chosen.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Picking {
    /// Choose hunk by hunk, as in `git add -p`.
    ///
    /// `?` at the question explains the answers.
    #[arg(short, long)]
    patch: bool,

    /// Choose from a list of the changes, in $VISUAL, $EDITOR or vi.
    #[arg(short, long, conflicts_with = "patch")]
    interactive: bool,

    /// Choose this hunk or change by its id.
    ///
    /// `acetate diff --json --hunks` lists them; the first digits of an id will do; several with
    /// several options.
    #[arg(long, value_name = "ID", conflicts_with_all = ["patch", "interactive"])]
    #[arg(hide_short_help = true)]
    hunk: Vec<String>,
}

/// What happens to the chosen changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// They are applied.
    Apply,
    /// They are discarded.
    Discard,
}

impl Verb {
    /// The verb at the start of a question.
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Discard => "Discard",
        }
    }

    fn lower(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Discard => "discard",
        }
    }
}

impl Picking {
    /// Whether any of the options is given.
    pub(super) fn is_given(&self) -> bool {
        self.patch || self.interactive || !self.hunk.is_empty()
    }

    /// Refuses to ask without a terminal.
    pub(super) fn check(&self, has_json: bool) -> Result<(), CliError> {
        if !(self.patch || self.interactive) || (asking::can_ask() && !has_json) {
            return Ok(());
        }
        let option = if self.patch { "--patch" } else { "--interactive" };
        let what = format!("{option} needs a terminal");
        let what = if has_json { format!("{option} cannot be used with --json") } else { what };
        let hint = "--hunk ID chooses without one; `acetate diff --json --hunks` lists the ids";
        Err(CliError::new(what).with_hint(hint))
    }

    /// Lets the user choose from an offer.
    pub(super) fn pick(&self, offer: &Offer<'_>) -> Result<ChosenHunks, CliError> {
        for path in offer.in_base.iter().filter(|_| self.hunk.is_empty()) {
            let path = text::name(path.as_bytes());
            output::line(format_args!("= {path}: the base has this change already"));
        }
        let mut chosen = if self.patch {
            asked::pick(offer)?
        } else if self.interactive {
            edited::pick(offer)?
        } else {
            by_ids(offer, &self.hunk)?
        };
        offer.add_quiet(&mut chosen);
        Ok(chosen)
    }
}

/// The pieces that have each of some ids: their paths, and the hunk if it is not the whole change.
type FoundPieces<'g> = BTreeMap<&'g str, Vec<(MergedPath, Option<HunkId>)>>;

/// Finds the pieces with these ids.
fn find<'g>(
    opened: &OpenSession,
    differences: &[Difference],
    given: impl Iterator<Item = &'g str>,
) -> Result<FoundPieces<'g>, CliError> {
    let mut found: FoundPieces<'g> = given.map(|id| (id, Vec::new())).collect();
    opened.with_tree(|view| {
        for difference in differences {
            let path = &difference.change.path;
            let ids: Vec<_> = match pieces(opened, view, difference)? {
                DiffPieces::Whole(id) => vec![(id, None)],
                DiffPieces::File(file) => file.ids().map(|id| (id, Some(id))).collect(),
            };
            for (id, hunk) in ids {
                let id = id.to_string();
                for (given, found) in &mut found {
                    if !given.is_empty() && id.starts_with(&given.to_ascii_lowercase()) {
                        found.push((path.clone(), hunk));
                    }
                }
            }
        }
        Ok(())
    })?;
    Ok(found)
}

/// Chooses the pieces with these ids.
fn by_ids(offer: &Offer<'_>, given: &[String]) -> Result<ChosenHunks, CliError> {
    let given = given.iter().map(String::as_str);
    let mut chosen = ChosenHunks::new();
    for (id, found) in find(offer.opened, &offer.differences, given)? {
        match &found[..] {
            [(path, None)] => drop(chosen.insert(path.clone(), Pick::Whole)),
            [(path, Some(hunk))] => add_hunk(&mut chosen, path, *hunk),
            [] => return Err(unknown(offer, id)?),
            [(path, _), ..] => {
                let (all, path) = (found.len(), text::name(path.as_bytes()));
                let what = format!("{id}: the id of {all} hunks, the first in {path}");
                return Err(CliError::new(what).with_hint("give more of its digits"));
            }
        }
    }
    Ok(chosen)
}

/// The error for an id that no offered piece has. It may be that of a piece outside of the offer's
/// selection, or of an object in a removed directory, which `diff` of the object's own path gives.
fn unknown(offer: &Offer<'_>, id: &str) -> Result<CliError, CliError> {
    let (opened, options) = (offer.opened, DiffOptions::default());
    let (all, _denied) = sorted_past_denied(opened, &options)?;
    let (mut dirs, mut outside) = (all.clone(), all.clone());
    opened.with_tree(|view| {
        outside.retain(|d| !offer.selection.has_change(view, &d.change));
        Ok(())
    })?;
    if let Some((path, _)) = find(opened, &outside, std::iter::once(id))?[id].first() {
        let path = text::name(path.as_bytes());
        return Ok(if offer.selection.leaves_out() {
            CliError::new(format!("{id}: {path} is outside of the paths given, or excluded"))
        } else {
            CliError::new(format!("{id}: {path} is outside of the paths given"))
                .with_hint(format_args!("give {path} too, or no path"))
        });
    }
    if offer.verb == Verb::Apply
        && !offer.is_to_copy
        && let Some((path, _)) = find(opened, &all, std::iter::once(id))?[id].first()
    {
        let name = text::name(path.as_bytes());
        if offer.in_base.contains(path) {
            let what = format!("{id}: the base has this change of {name} already");
            return Ok(CliError::new(what).with_hint("`acetate apply` drops it from the session"));
        }
        let what = format!("{id}: {name} is left out");
        return Ok(CliError::new(what).with_hint("`acetate apply --dry-run` says why"));
    }
    dirs.retain(|d| matches!(d.kind, DifferenceKind::Deleted | DifferenceKind::Retyped));
    let digits = id.to_ascii_lowercase();
    let is_it = |d: &Difference| !id.is_empty() && whole_id(d).to_string().starts_with(&digits);
    let inside = each_path(opened, &options, dirs.clone())?.into_iter().find(is_it);
    let dir = inside.as_ref().and_then(|inside| {
        dirs.iter().find(|dir| inside.path.is_within(&dir.path) && inside.path != dir.path)
    });
    let Some((inside, dir)) = inside.as_ref().zip(dir) else {
        let hint = "`acetate diff --json --hunks` lists the ids as they are now";
        return Ok(CliError::new(format!("{id}: no such hunk")).with_hint(hint));
    };
    let [path, top] = [inside, dir].map(|d| text::name(d.path.as_bytes()));
    let what = format!("{id}: {path} was removed with {top}, and goes or comes back only with it");
    Ok(CliError::new(what).with_hint(format_args!("--hunk {} chooses {top}", whole_id(dir))))
}

/// Adds a hunk of a file, unless the whole file is chosen.
fn add_hunk(chosen: &mut ChosenHunks, path: &MergedPath, hunk: HunkId) {
    let pick = chosen.entry(path.clone()).or_insert_with(|| Pick::Hunks([].into()));
    if let Pick::Hunks(ids) = pick {
        ids.insert(hunk);
    }
}
