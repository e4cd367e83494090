//! Outboxes: events wait there until an index acknowledges them. Events that fail too often go to
//! the dead letters.
//!
//! An event is moved by one rename, after another rename has updated its status. If this is
//! interrupted, [`mend`] finds the right place by the status, and the event is never in two places.

use super::Nodes;
use super::error::{ContextError, Result};
use super::event::Event;
use super::files::{Files, Reads};
use super::limits::{EVENT_BYTES, MAX_RETRY};
use super::list::{at_most, walk};
use super::node::{CONTENT, DEAD, META, OUTBOX};
use super::uri::{Uri, UriPrefix};

/// Status of an event that failed too often.
const FAILED: &str = "FAILED";

/// Status of an event that waits for its index.
const WAITING: &str = "PENDING";

/// An event in an outbox.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingEvent {
    /// The node that has the event; after a move, the event names the old URI.
    pub node: Uri,
    /// Id of the event: the name of its file.
    pub id: String,
    /// Whether it is in the dead letters.
    pub is_dead: bool,
    /// Creation time; empty if the event is invalid.
    created_at: String,
}

impl WaitingEvent {
    fn dir(&self) -> String {
        let dead = if self.is_dead { format!("/{DEAD}") } else { String::new() };
        format!("{}/{OUTBOX}{dead}", self.node.path())
    }

    fn path(&self) -> String {
        format!("{}/{}.json", self.dir(), self.id)
    }
}

/// The result of a failed delivery.
#[derive(Debug, Clone, PartialEq)]
pub struct EventFailure {
    /// The updated event.
    pub event: Event,
    /// Whether the event went to the dead letters.
    pub is_dead: bool,
}

impl<R: Reads> Nodes<R> {
    /// The events below a prefix that wait, or those in the dead letters, oldest first. Without a
    /// prefix, all that the caller may see.
    ///
    /// # Errors
    /// The prefix is not in the caller's account, there are too many events, or they cannot be
    /// read.
    pub fn events(&mut self, prefix: Option<&UriPrefix>, dead: bool) -> Result<Vec<WaitingEvent>> {
        let prefix = prefix.cloned().unwrap_or_else(|| self.scope());
        self.check_prefix(&prefix)?;
        let mut waiting = Vec::new();
        walk(&mut self.files, &prefix, &mut |files, uri| {
            for mut event in in_outbox(files, uri, dead)? {
                if let Ok(Some(read)) = read(files, &event) {
                    event.created_at = read.created_at().to_owned();
                }
                waiting.push(event);
            }
            at_most(waiting.len(), &prefix)
        })?;
        waiting.sort_unstable_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
        Ok(waiting)
    }

    /// Reads an event; `None` if it was acknowledged since it was listed.
    ///
    /// # Errors
    /// The event is invalid or cannot be read.
    pub fn event(&mut self, waiting: &WaitingEvent) -> Result<Option<Event>> {
        self.check(&waiting.node)?;
        read(&mut self.files, waiting)
    }

    /// Finds events by id, among all that the caller may see.
    fn find(&mut self, ids: &[String]) -> Result<Vec<Option<WaitingEvent>>> {
        let is_id = |id: &String| id.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        if let Some(id) = ids.iter().find(|id| id.is_empty() || !is_id(id)) {
            let what = format!("{}: not the id of an event", id.escape_debug());
            return Err(ContextError::invalid(what));
        }
        let mut found = vec![None; ids.len()];
        let scope = self.scope();
        walk(&mut self.files, &scope, &mut |files, uri| {
            for dead in [false, true] {
                for waiting in in_outbox(files, uri, dead)? {
                    if let Some(at) = ids.iter().position(|id| *id == waiting.id) {
                        found[at].get_or_insert(waiting);
                    }
                }
            }
            Ok(())
        })?;
        Ok(found)
    }
}

impl<F: Files> Nodes<F> {
    /// Removes acknowledged events from the outbox or the dead letters. Removes the directory of a
    /// removed node with its last event. Returns for each id whether the event existed.
    ///
    /// # Errors
    /// The files fail; events before the failure are removed.
    pub fn acknowledge(&mut self, ids: &[String]) -> Result<Vec<bool>> {
        let found = self.find(ids)?;
        for waiting in found.iter().flatten() {
            self.files.remove(&waiting.path())?;
            self.files.sync()?;
            clear(&mut self.files, &waiting.node)?;
        }
        Ok(found.iter().map(Option::is_some).collect())
    }

    /// Counts a failed delivery of each event; the [`MAX_RETRY`]th failure moves it to the dead
    /// letters. `None` if the event is not waiting.
    ///
    /// # Errors
    /// An event is invalid, or the files fail; events before the failure are counted.
    pub fn fail(&mut self, ids: &[String]) -> Result<Vec<Option<EventFailure>>> {
        let found = self.find(ids)?;
        found.into_iter().map(|found| self.fail_one(found)).collect()
    }

    fn fail_one(&mut self, found: Option<WaitingEvent>) -> Result<Option<EventFailure>> {
        let Some(waiting) = found.filter(|waiting| !waiting.is_dead) else { return Ok(None) };
        let Some(mut event) = read(&mut self.files, &waiting)? else { return Ok(None) };
        let retry_count = event.retry_count().saturating_add(1);
        let is_dead = retry_count >= MAX_RETRY;
        event.set(if is_dead { FAILED } else { WAITING }, retry_count);
        write(&mut self.files, &waiting, &event)?;
        if is_dead {
            move_event(&mut self.files, &waiting)?;
        }
        Ok(Some(EventFailure { event, is_dead }))
    }

    /// Moves events from the dead letters back to the outbox, with a retry count of 0. `None` if
    /// the event is not in the dead letters.
    ///
    /// # Errors
    /// An event is invalid, or the files fail; events before the failure are moved.
    pub fn retry(&mut self, ids: &[String]) -> Result<Vec<Option<Event>>> {
        let found = self.find(ids)?;
        found.into_iter().map(|found| self.retry_one(found)).collect()
    }

    fn retry_one(&mut self, found: Option<WaitingEvent>) -> Result<Option<Event>> {
        let Some(waiting) = found.filter(|waiting| waiting.is_dead) else { return Ok(None) };
        let Some(mut event) = read(&mut self.files, &waiting)? else { return Ok(None) };
        event.set(WAITING, 0);
        write(&mut self.files, &waiting, &event)?;
        move_event(&mut self.files, &waiting)?;
        Ok(Some(event))
    }
}

/// Interrupted operations in an outbox.
#[derive(Debug, Default)]
pub(super) struct OutboxFaults {
    /// Temporary files of interrupted updates.
    leftovers: Vec<String>,
    /// Events that are not where their status requires.
    misplaced: Vec<WaitingEvent>,
    /// Only empty directories of a removed node are left.
    is_empty: bool,
}

impl OutboxFaults {
    pub(super) fn is_none(&self) -> bool {
        self.leftovers.is_empty() && self.misplaced.is_empty() && !self.is_empty
    }
}

/// Finds interrupted operations in a node's outbox.
pub(super) fn disorder(files: &mut impl Reads, uri: &Uri) -> Result<OutboxFaults> {
    let mut disorder = OutboxFaults::default();
    let outbox = format!("{}/{OUTBOX}", uri.path());
    for (dir, dead) in [(outbox.clone(), false), (format!("{outbox}/{DEAD}"), true)] {
        for entry in files.list(&dir)?.unwrap_or_default() {
            if !entry.is_dir && entry.name.starts_with('.') && entry.name.ends_with(".json.new") {
                disorder.leftovers.push(format!("{dir}/{}", entry.name));
            }
        }
        for waiting in in_outbox(files, uri, dead)? {
            // An invalid event stays where it is; a listing shows it.
            let event = read(files, &waiting).unwrap_or_default();
            if event.is_some_and(|event| (event.status() == FAILED) != dead) {
                disorder.misplaced.push(waiting);
            }
        }
    }
    let has_leftovers = !disorder.leftovers.is_empty();
    disorder.is_empty = !has_leftovers && files.list(&outbox)?.is_some() && is_over(files, uri)?;
    Ok(disorder)
}

/// Completes interrupted operations in an outbox.
pub(super) fn repair_outbox(
    files: &mut impl Files,
    uri: &Uri,
    disorder: &OutboxFaults,
) -> Result<()> {
    for leftover in &disorder.leftovers {
        files.remove(leftover)?;
    }
    for waiting in &disorder.misplaced {
        move_event(files, waiting)?;
    }
    files.sync()?;
    clear(files, uri)
}

/// Removes the directories of a removed node without events.
pub(super) fn clear(files: &mut impl Files, uri: &Uri) -> Result<()> {
    if !is_over(files, uri)? {
        return Ok(());
    }
    let dir = uri.path();
    let outbox = format!("{dir}/{OUTBOX}");
    for dir in [format!("{outbox}/{DEAD}"), outbox, dir] {
        if files.list(&dir)?.is_some_and(|entries| entries.is_empty()) {
            files.remove_dir(&dir)?;
        }
    }
    Ok(files.sync()?)
}

/// Whether there is neither a node nor an event.
fn is_over(files: &mut impl Reads, uri: &Uri) -> Result<bool> {
    let dir = uri.path();
    let there = files.list(&dir)?.unwrap_or_default();
    let is_node = there.iter().any(|entry| [META, CONTENT].contains(&&*entry.name));
    let outbox = files.list(&format!("{dir}/{OUTBOX}"))?.unwrap_or_default();
    let dead = files.list(&format!("{dir}/{OUTBOX}/{DEAD}"))?.unwrap_or_default();
    Ok(!is_node && dead.is_empty() && outbox.iter().all(|entry| entry.name == DEAD))
}

/// The events in an outbox or in its dead letters.
fn in_outbox(files: &mut impl Reads, uri: &Uri, is_dead: bool) -> Result<Vec<WaitingEvent>> {
    let mut waiting =
        WaitingEvent { node: uri.clone(), id: String::new(), is_dead, created_at: String::new() };
    let entries = files.list(&waiting.dir())?.unwrap_or_default();
    let names = entries.into_iter().filter(|entry| !entry.is_dir).map(|entry| entry.name);
    let ids = names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned()));
    let ids = ids.filter(|id| !id.starts_with('.'));
    Ok(ids
        .map(|id| {
            waiting.id = id;
            waiting.clone()
        })
        .collect())
}

fn read(files: &mut impl Reads, waiting: &WaitingEvent) -> Result<Option<Event>> {
    let path = waiting.path();
    let Some(text) = files.read(&path, EVENT_BYTES)? else { return Ok(None) };
    Event::parse(&text).map(Some).map_err(|what| ContextError::Document { path, what })
}

/// Updates an event in place.
fn write(files: &mut impl Files, waiting: &WaitingEvent, event: &Event) -> Result<()> {
    let beside = format!("{}/.{}.json.new", waiting.dir(), waiting.id);
    files.write(&beside, &event.to_bytes())?;
    files.rename(&beside, &waiting.path())?;
    Ok(files.sync()?)
}

/// Moves an event to the dead letters, or back.
fn move_event(files: &mut impl Files, waiting: &WaitingEvent) -> Result<()> {
    let to = WaitingEvent { is_dead: !waiting.is_dead, ..waiting.clone() };
    files.make_dir(&to.dir())?;
    files.rename(&waiting.path(), &to.path())?;
    Ok(files.sync()?)
}
