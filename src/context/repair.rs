//! Repair: completes or rolls back interrupted changes.
//!
//! Changes of this program have a staged event (see `change`). Other programs write a node's files
//! one by one through a mount; their interrupted changes are recognized by the rules of the
//! specification: content without metadata, and PENDING with all files or with some missing.

use std::fmt;

use super::change::{
    NodeChange, Recovery, StagedPart, carry_out, commit_record, is_changing, mark, settle,
};
use super::error::Result;
use super::event::{Event, EventStamp, EventType};
use super::files::Files;
use super::limits::CONTENT_BYTES;
use super::list::walk;
use super::meta::{NodeMeta, NodeStatus};
use super::node::{CONTENT, META, MetaState, Stored, read_meta};
use super::outbox::{disorder, repair_outbox};
use super::put::LEVEL;
use super::relation::Relations;
use super::summary::{SummaryTexts, make_abstract, make_overview};
use super::uri::Uri;
use super::{Nodes, Stamps, is_unfit};

/// A fault of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeFault {
    /// A change was interrupted after its commit record.
    Unfinished(EventType),
    /// A change was interrupted before its commit record.
    Undecided,
    /// A change was interrupted after its commit record, and cannot be completed.
    Stuck(String),
    /// Content without `.meta.json`.
    NoMeta,
    /// PENDING with all files.
    Whole,
    /// PENDING with missing or invalid files.
    Partial(String),
    /// Invalid files: left for a person to fix.
    Invalid(String),
    /// An event is not where its status requires, or its update was interrupted.
    Outbox,
}

impl NodeFault {
    /// Whether a person must fix the node, which is BROKEN or equivalent.
    pub fn needs_hands(&self) -> bool {
        matches!(self, Self::Stuck(_) | Self::Partial(_) | Self::Invalid(_))
    }

    /// What repair does, to complete a sentence.
    pub fn cure(&self) -> &'static str {
        match self {
            Self::Unfinished(_) => "finished",
            Self::Undecided => "taken back",
            Self::NoMeta => "metadata made from it",
            Self::Whole => "made ACTIVE",
            Self::Partial(_) => "marked BROKEN",
            Self::Stuck(_) | Self::Invalid(_) => "left as it is",
            Self::Outbox => "put in order",
        }
    }

    /// A keyword, for programs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Unfinished(_) => "unfinished",
            Self::Undecided => "undecided",
            Self::Stuck(_) => "stuck",
            Self::NoMeta => "no_meta",
            Self::Whole => "pending_whole",
            Self::Partial(_) => "pending_partial",
            Self::Invalid(_) => "invalid",
            Self::Outbox => "outbox",
        }
    }
}

impl fmt::Display for NodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfinished(event) => {
                write!(f, "a change was not finished ({})", event.as_str())
            }
            Self::Undecided => f.write_str("a change was hardly begun"),
            Self::Stuck(why) => write!(f, "a change cannot be finished: {why}"),
            Self::NoMeta => f.write_str("content without metadata"),
            Self::Whole => f.write_str("PENDING, and all of it is there"),
            Self::Partial(what) => write!(f, "PENDING, and not whole: {what}"),
            Self::Invalid(what) => f.write_str(what),
            Self::Outbox => f.write_str("an event was on its way"),
        }
    }
}

/// A fault that repair found, and has fixed unless [`NodeFault::needs_hands`].
#[derive(Debug, Clone, PartialEq)]
pub struct RepairFinding {
    /// URI of the node.
    pub uri: Uri,
    /// The fault.
    pub fault: NodeFault,
}

/// Result of a repair.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodesReport {
    /// Faults, node by node.
    pub findings: Vec<RepairFinding>,
    /// Nodes that are visible afterwards.
    pub active: u64,
    /// Nodes that were BROKEN before and were skipped.
    pub broken: u64,
}

impl<F: Files> Nodes<F> {
    /// Repairs all nodes that the caller may see. With `dry_run`, only reports the faults.
    ///
    /// # Errors
    /// The files fail; earlier repairs stay.
    pub fn repair(&mut self, dry_run: bool) -> Result<NodesReport> {
        let mut repaired = NodesReport::default();
        let scope = self.scope();
        let Self { files, stamps, .. } = self;
        walk(files, &scope, &mut |files, uri| {
            let was_broken = read_meta(files, uri)?.meta().map(|meta| meta.status());
            repaired.broken += u64::from(was_broken == Some(NodeStatus::Broken));
            let faults = node(files, stamps, uri, dry_run)?;
            let finding = |fault| RepairFinding { uri: uri.clone(), fault };
            repaired.findings.extend(faults.into_iter().map(finding));
            let is_active = read_meta(files, uri)?.status() == Some(NodeStatus::Active);
            repaired.active += u64::from(is_active);
            Ok(())
        })?;
        Ok(repaired)
    }

    /// Repairs one node.
    pub(super) fn repair_node(&mut self, uri: &Uri) -> Result<()> {
        node(&mut self.files, &mut self.stamps, uri, false).map(drop)
    }
}

/// Repairs a node, or only reports its faults.
fn node(
    files: &mut impl Files,
    stamps: &mut Stamps,
    uri: &Uri,
    dry_run: bool,
) -> Result<Vec<NodeFault>> {
    let mut faults = Vec::new();
    if is_changing(files, uri)? {
        let event = commit_record(files, uri)?;
        match (dry_run, event) {
            (true, Some(event)) => return Ok(vec![NodeFault::Unfinished(event.event_type())]),
            (true, None) => faults.push(NodeFault::Undecided),
            (false, _) => match settle(files, uri) {
                Ok(Recovery::Finished(event)) => faults.push(NodeFault::Unfinished(event)),
                Ok(Recovery::RolledBack) => faults.push(NodeFault::Undecided),
                Ok(Recovery::Nothing) => {}
                // A failure of one node must not stop the repair of others.
                Err(error) => return Ok(vec![NodeFault::Stuck(error.to_string())]),
            },
        }
    }
    if let Some((fault, cure)) = diagnose(files, uri)? {
        faults.push(fault);
        match cure {
            Some(cure) if !dry_run => cure.apply(files, uri, &stamps()?)?,
            _ => {}
        }
    }
    match disorder(files, uri) {
        Ok(disorder) if disorder.is_none() => {}
        Ok(disorder) => {
            faults.push(NodeFault::Outbox);
            if !dry_run {
                repair_outbox(files, uri, &disorder)?;
            }
        }
        Err(error) if is_unfit(&error) => faults.push(NodeFault::Invalid(error.to_string())),
        Err(error) => return Err(error),
    }
    Ok(faults)
}

/// A repair of a node.
enum Cure {
    /// Make the node visible; derive missing files.
    Activate(Box<(NodeMeta, Stored)>),
    /// Set the status BROKEN.
    Mark(NodeMeta),
}

/// Diagnoses a node by the rules of the specification.
fn diagnose(files: &mut impl Files, uri: &Uri) -> Result<Option<(NodeFault, Option<Cure>)>> {
    match read_meta(files, uri)? {
        MetaState::Nothing => match Stored::read(files, uri) {
            Ok(stored) if stored.content.is_none() => Ok(None),
            Ok(stored) => {
                let cure = Cure::Activate(Box::new((NodeMeta::new(uri, "", LEVEL, &[]), stored)));
                Ok(Some((NodeFault::NoMeta, Some(cure))))
            }
            Err(error) if is_unfit(&error) => {
                let content = files.read(&format!("{}/{CONTENT}", uri.path()), CONTENT_BYTES);
                let is_nothing = matches!(content, Ok(None));
                let invalid = || (NodeFault::Invalid(error.to_string()), None);
                Ok((!is_nothing).then(invalid))
            }
            Err(error) => Err(error),
        },
        MetaState::Invalid(what) => Ok(Some((NodeFault::Invalid(format!("{META}: {what}")), None))),
        MetaState::Meta(meta) if meta.status() == NodeStatus::Pending => {
            let missing = match Stored::read(files, uri) {
                Ok(stored) => match stored.missing() {
                    None => {
                        let cure = Cure::Activate(Box::new((meta, stored)));
                        return Ok(Some((NodeFault::Whole, Some(cure))));
                    }
                    Some(file) => format!("{file} is missing"),
                },
                Err(error) if is_unfit(&error) => error.to_string(),
                Err(error) => return Err(error),
            };
            Ok(Some((NodeFault::Partial(missing), Some(Cure::Mark(meta)))))
        }
        MetaState::Meta(_) => Ok(None),
    }
}

impl Cure {
    fn apply(self, files: &mut impl Files, uri: &Uri, stamp: &EventStamp) -> Result<()> {
        let (meta, stored) = match self {
            Self::Mark(meta) => return mark(files, uri, &meta.with_status(NodeStatus::Broken)),
            Self::Activate(whole) => *whole,
        };
        let meta = meta.activated(&stamp.time());
        let content = stored.content.unwrap_or_default();
        let mut parts = Vec::new();
        if stored.relations.is_none() {
            parts.push((StagedPart::Relations, Relations::default().to_bytes()));
        }
        let abstract_text = stored.abstract_text.unwrap_or_else(|| {
            let made = make_abstract(&content);
            parts.push((StagedPart::Abstract, made.clone().into_bytes()));
            made
        });
        let overview = stored.overview.unwrap_or_else(|| {
            let made = make_overview(&content);
            parts.push((StagedPart::Overview, made.clone().into_bytes()));
            made
        });
        parts.push((StagedPart::Meta, meta.to_bytes()));
        let layers =
            SummaryTexts { abstract_text: &abstract_text, overview: &overview, content: &content };
        let event = Event::upsert(stamp, uri, &meta, &layers);
        carry_out(files, uri, &NodeChange { parts, event }).map(drop)
    }
}
