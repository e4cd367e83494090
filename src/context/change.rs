//! Atomic changes of a node: a crash at any time leaves the old node or the new one.
//!
//! A change is first *staged*: the new files are written to the node's directory under temporary
//! names (`.content.md.new`), and last the event that reports the change (`.event.json.new`). The
//! staged event is the commit record: from then on the change can only be completed. Then each file
//! is renamed into place in the specification's order, with a sync after each. The rename of
//! `.meta.json` with ACTIVE makes the node visible. Finally the staged event is renamed into the
//! outbox, so that it is reported exactly once.
//!
//! A change of a visible node first places a `.meta.json` with PENDING. Readers that follow the
//! specification therefore never see a mix of two versions.
//!
//! [`settle`] recovers after a crash; its caller must be the only one that changes nodes. It
//! completes a change with a staged event, and removes staged files without one.

use std::collections::BTreeSet;

use super::error::{ContextError, Result};
use super::event::{Event, EventType};
use super::files::{Files, Reads};
use super::limits::EVENT_BYTES;
use super::meta::NodeMeta;
use super::node::{ABSTRACT, CONTENT, META, OUTBOX, OVERVIEW, RELATIONS};
use super::uri::Uri;

/// The staged event: the commit record of a change.
const EVENT: &str = ".event.json.new";

/// Files that can be staged, in the order in which they are placed.
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

    /// Its name while staged.
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

    /// Its final name.
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

/// The files of a node, in the order of their removal.
const REMOVED: [&str; 5] = [CONTENT, RELATIONS, ABSTRACT, OVERVIEW, META];

/// A change of a node.
pub(super) struct NodeChange {
    /// The files to place, in the order of [`StagedPart::ALL`].
    pub parts: Vec<(StagedPart, Vec<u8>)>,
    /// The event that reports the change.
    pub event: Event,
}

/// Result of completing or rolling back a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recovery {
    /// Nothing was staged.
    Nothing,
    /// The change had its commit record and is complete now.
    Finished(EventType),
    /// The change was rolled back: it had no commit record, or the target of its move was taken.
    RolledBack,
}

/// Makes a change of the node `uri`. Call [`settle`] before.
pub(super) fn carry_out(
    files: &mut impl Files,
    uri: &Uri,
    change: &NodeChange,
) -> Result<Recovery> {
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

/// Refuses a change that could be committed but not completed, because a directory is in place of a
/// file or vice versa.
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

/// Replaces only `.meta.json`, without an event.
pub(super) fn mark(files: &mut impl Files, uri: &Uri, meta: &NodeMeta) -> Result<()> {
    let dir = uri.path();
    files.write(&format!("{dir}/{}", StagedPart::Meta.staged()), &meta.to_bytes())?;
    place(files, &dir, &[StagedPart::Meta])
}

/// Whether anything is staged: a change is in progress or was interrupted.
pub(super) fn is_changing(files: &mut impl Reads, uri: &Uri) -> Result<bool> {
    Ok(!staged(files, &uri.path())?.is_empty())
}

/// The commit record of an interrupted change, if there is a valid one.
pub(super) fn commit_record(files: &mut impl Reads, uri: &Uri) -> Result<Option<Event>> {
    let Some(text) = files.read(&format!("{}/{EVENT}", uri.path()), EVENT_BYTES)? else {
        return Ok(None);
    };
    // A partial write is not valid JSON; a record of another node was copied here.
    let event = Event::parse(&text).ok();
    Ok(event.filter(|event| {
        let is_here = event.uri() == uri.as_str();
        match event.event_type() {
            EventType::MoveContext => event.new_uri().is_some_and(|to| is_here || to == *uri),
            _ => is_here,
        }
    }))
}

/// Completes or rolls back an interrupted change.
pub(super) fn settle(files: &mut impl Files, uri: &Uri) -> Result<Recovery> {
    if staged(files, &uri.path())?.is_empty() {
        return Ok(Recovery::Nothing);
    }
    match commit_record(files, uri)? {
        Some(event) => finish(files, uri, &event),
        None => give_up(files, &uri.path()),
    }
}

/// Performs the remaining steps of a committed change. Every step is idempotent.
fn finish(files: &mut impl Files, uri: &Uri, event: &Event) -> Result<Recovery> {
    let mut dir = uri.path();
    place(files, &dir, &[StagedPart::Pending])?;
    match (event.event_type(), event.new_uri()) {
        (EventType::MoveContext, Some(to)) => {
            let target = to.path();
            if target != dir {
                // The target was free when the move was committed.
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
    Ok(Recovery::Finished(event.event_type()))
}

/// Steps ① to ④.
fn steps(files: &mut impl Files, dir: &str) -> Result<()> {
    place(files, dir, &[StagedPart::Content])?;
    place(files, dir, &[StagedPart::Relations])?;
    place(files, dir, &[StagedPart::Abstract, StagedPart::Overview])?;
    place(files, dir, &[StagedPart::Meta])
}

/// Renames the staged ones of `parts` into place, and syncs.
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

/// Removes all staged files, the commit record first.
fn give_up(files: &mut impl Files, dir: &str) -> Result<Recovery> {
    let there = staged(files, dir)?;
    let parts = StagedPart::ALL.into_iter().map(StagedPart::staged);
    for name in [EVENT].into_iter().chain(parts).filter(|name| there.contains(*name)) {
        files.remove(&format!("{dir}/{name}"))?;
    }
    files.sync()?;
    // Removes the directory of a node that never existed.
    if files.list(dir)?.is_some_and(|entries| entries.is_empty()) {
        files.remove_dir(dir)?;
        files.sync()?;
    }
    Ok(Recovery::RolledBack)
}

/// Names of the staged files in a directory.
fn staged(files: &mut impl Reads, dir: &str) -> Result<BTreeSet<String>> {
    let mut there = names(files, dir)?;
    there.retain(|name| name == EVENT || StagedPart::ALL.iter().any(|part| part.staged() == name));
    Ok(there)
}

fn names(files: &mut impl Reads, dir: &str) -> Result<BTreeSet<String>> {
    let entries = files.list(dir)?.unwrap_or_default();
    Ok(entries.into_iter().filter(|entry| !entry.is_dir).map(|entry| entry.name).collect())
}
