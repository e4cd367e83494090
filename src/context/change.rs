//! Changing a node so that it is the old one or the new one, whenever the process or the machine
//! ends.
//!
//! A change is first *staged*: what is to be placed lies beside its place under names of its own
//! (`.content.md.new`), and last of all the event that will tell of it (`.event.json.new`).
//! With the staged event the change is decided: from there on it can only be finished. Then each
//! file is renamed into place, in the specification's order and each synced before the next;
//! the rename of `.meta.json` with ACTIVE commits the node. Last, the staged event is renamed
//! into the outbox, so that it is registered once and never twice.
//!
//! Where a visible node is changed, the first that is placed is its `.meta.json` with PENDING: so
//! nobody who keeps to the specification reads a mix of two versions.
//!
//! Whoever finds a staged event while nobody else changes nodes ([`settle`]) finishes what was
//! broken off; staged files without one were not decided, and go.

use std::collections::BTreeSet;

use super::error::{ContextError, Result};
use super::event::{Event, EventType};
use super::files::{Files, Reads};
use super::limits::EVENT_BYTES;
use super::meta::NodeMeta;
use super::node::{ABSTRACT, CONTENT, META, OUTBOX, OVERVIEW, RELATIONS};
use super::uri::Uri;

/// The staged event, with which a change is decided.
const EVENT: &str = ".event.json.new";

/// What can be staged, in the order in which it is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StagedPart {
    /// `.meta.json` with PENDING.
    Pending,
    /// Step ①.
    Content,
    /// Step ②.
    Relations,
    /// Step ③.
    Abstract,
    /// Step ③.
    Overview,
    /// Step ④, the commit point.
    Meta,
}

impl StagedPart {
    const ALL: [Self; 6] =
        [Self::Pending, Self::Content, Self::Relations, Self::Abstract, Self::Overview, Self::Meta];

    /// Its name while it is staged.
    fn staged(self) -> &'static str {
        match self {
            Self::Pending => ".pending.json.new",
            Self::Content => ".content.md.new",
            Self::Relations => ".relations.json.new",
            Self::Abstract => ".abstract.md.new",
            Self::Overview => ".overview.md.new",
            Self::Meta => ".meta.json.new",
        }
    }

    /// Its name in its place.
    fn placed(self) -> &'static str {
        match self {
            Self::Pending | Self::Meta => META,
            Self::Content => CONTENT,
            Self::Relations => RELATIONS,
            Self::Abstract => ABSTRACT,
            Self::Overview => OVERVIEW,
        }
    }
}

/// The files of a node in the order in which they are removed.
const REMOVED: [&str; 5] = [CONTENT, RELATIONS, ABSTRACT, OVERVIEW, META];

/// A change of a node.
pub(super) struct NodeChange {
    /// What is placed, in the order of [`StagedPart::ALL`].
    pub parts: Vec<(StagedPart, Vec<u8>)>,
    /// What tells of it.
    pub event: Event,
}

/// What became of a change that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    /// There was none.
    Nothing,
    /// It was decided, and is done now.
    Finished(EventType),
    /// It was not decided, and is gone; or its place was taken meanwhile.
    GivenUp,
}

/// Makes a change of the node `uri`, in which none is broken off.
pub(super) fn carry_out(files: &mut impl Files, uri: &Uri, change: &NodeChange) -> Result<Settled> {
    let dir = uri.path();
    check_places(files, uri)?;
    files.make_dir(&dir)?;
    for (part, bytes) in &change.parts {
        files.write(&format!("{dir}/{}", part.staged()), bytes)?;
    }
    files.write(&format!("{dir}/{EVENT}"), &change.event.to_bytes())?;
    files.sync()?;
    finish(files, uri, &change.event)
}

/// Refuses a change that could be decided and never finished: a file cannot replace a directory,
/// nor be one.
fn check_places(files: &mut impl Files, uri: &Uri) -> Result<()> {
    let is_file = |name: &str| {
        name == EVENT || StagedPart::ALL.iter().any(|p| [p.staged(), p.placed()].contains(&name))
    };
    for entry in files.list(&uri.path())?.unwrap_or_default() {
        let what = match entry.is_dir {
            true if is_file(&entry.name) => "a directory is where a file of it belongs",
            false if entry.name == OUTBOX => "a file is where its outbox belongs",
            _ => continue,
        };
        return Err(ContextError::InTheWay { uri: uri.clone(), what });
    }
    Ok(())
}

/// Replaces `.meta.json` alone, and tells nobody.
pub(super) fn mark(files: &mut impl Files, uri: &Uri, meta: &NodeMeta) -> Result<()> {
    let dir = uri.path();
    files.write(&format!("{dir}/{}", StagedPart::Meta.staged()), &meta.to_bytes())?;
    place(files, &dir, &[StagedPart::Meta])
}

/// Whether something is staged in a node's directory: the change is under way, or was broken off.
pub(super) fn is_changing(files: &mut impl Reads, uri: &Uri) -> Result<bool> {
    Ok(!staged(files, &uri.path())?.is_empty())
}

/// The event of a change that was decided.
pub(super) fn decided(files: &mut impl Reads, uri: &Uri) -> Result<Option<Event>> {
    let Some(text) = files.read(&format!("{}/{EVENT}", uri.path()), EVENT_BYTES)? else {
        return Ok(None);
    };
    // One that was not written to its end is no JSON; one of another node was copied here.
    let event = Event::parse(&text).ok();
    Ok(event.filter(|event| {
        let is_here = event.uri() == uri.as_str();
        match event.event_type() {
            EventType::MoveContext => event.new_uri().is_some_and(|to| is_here || to == *uri),
            _ => is_here,
        }
    }))
}

/// Finishes a change that was broken off, or removes what is left of it.
pub(super) fn settle(files: &mut impl Files, uri: &Uri) -> Result<Settled> {
    if staged(files, &uri.path())?.is_empty() {
        return Ok(Settled::Nothing);
    }
    match decided(files, uri)? {
        Some(event) => finish(files, uri, &event),
        None => give_up(files, &uri.path()),
    }
}

/// Does what is left of a decided change; each step may have been done before.
fn finish(files: &mut impl Files, uri: &Uri, event: &Event) -> Result<Settled> {
    let mut dir = uri.path();
    place(files, &dir, &[StagedPart::Pending])?;
    match (event.event_type(), event.new_uri()) {
        (EventType::MoveContext, Some(to)) => {
            let target = to.path();
            if target != dir {
                // Its place was free when the move was decided.
                if files.list(&target)?.is_some_and(|entries| !entries.is_empty()) {
                    return give_up(files, &dir);
                }
                if let Some((above, _)) = target.rsplit_once('/') {
                    files.make_dir(above)?;
                }
                files.rename(&dir, &target)?;
                files.sync()?;
                dir = target;
            }
            steps(files, &dir)?;
        }
        (EventType::DeleteContext, _) => {
            let there = names(files, &dir)?;
            for file in REMOVED.into_iter().filter(|file| there.contains(*file)) {
                files.remove(&format!("{dir}/{file}"))?;
            }
            files.sync()?;
        }
        _ => steps(files, &dir)?,
    }
    files.make_dir(&format!("{dir}/{OUTBOX}"))?;
    files.rename(&format!("{dir}/{EVENT}"), &format!("{dir}/{OUTBOX}/{}.json", event.id()))?;
    files.sync()?;
    Ok(Settled::Finished(event.event_type()))
}

/// The steps ① to ④.
fn steps(files: &mut impl Files, dir: &str) -> Result<()> {
    place(files, dir, &[StagedPart::Content])?;
    place(files, dir, &[StagedPart::Relations])?;
    place(files, dir, &[StagedPart::Abstract, StagedPart::Overview])?;
    place(files, dir, &[StagedPart::Meta])
}

/// Places those of `parts` that are staged, and waits until they are on the disk.
fn place(files: &mut impl Files, dir: &str, parts: &[StagedPart]) -> Result<()> {
    let there = staged(files, dir)?;
    let parts: Vec<_> = parts.iter().filter(|part| there.contains(part.staged())).collect();
    for part in &parts {
        files.rename(&format!("{dir}/{}", part.staged()), &format!("{dir}/{}", part.placed()))?;
    }
    if !parts.is_empty() {
        files.sync()?;
    }
    Ok(())
}

/// Removes what is staged, the event first: then nothing is decided any more.
fn give_up(files: &mut impl Files, dir: &str) -> Result<Settled> {
    let there = staged(files, dir)?;
    let parts = StagedPart::ALL.into_iter().map(StagedPart::staged);
    for name in [EVENT].into_iter().chain(parts).filter(|name| there.contains(*name)) {
        files.remove(&format!("{dir}/{name}"))?;
    }
    files.sync()?;
    // A node that there never was leaves nothing.
    if files.list(dir)?.is_some_and(|entries| entries.is_empty()) {
        files.remove_dir(dir)?;
        files.sync()?;
    }
    Ok(Settled::GivenUp)
}

/// The names of what is staged in a directory.
fn staged(files: &mut impl Reads, dir: &str) -> Result<BTreeSet<String>> {
    let mut there = names(files, dir)?;
    there.retain(|name| name == EVENT || StagedPart::ALL.iter().any(|part| part.staged() == name));
    Ok(there)
}

fn names(files: &mut impl Reads, dir: &str) -> Result<BTreeSet<String>> {
    let entries = files.list(dir)?.unwrap_or_default();
    Ok(entries.into_iter().filter(|entry| !entry.is_dir).map(|entry| entry.name).collect())
}
