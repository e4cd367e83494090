//! Repair: what was broken off is finished or taken back.
//!
//! What this program broke off has a staged event (see `change`). What others broke off, who
//! write the files of a node one after the other through a mount, is told by the
//! specification's branches: content without metadata, and PENDING with or without all files.

use std::fmt;

use super::change::{Change, Part, Settled, carry_out, decided, is_changing, mark, settle};
use super::error::Result;
use super::event::{Event, EventType, Stamp};
use super::files::Files;
use super::limits::CONTENT_BYTES;
use super::list::walk;
use super::meta::{Meta, Status};
use super::node::{CONTENT, Known, META, Stored, known};
use super::outbox::{disorder, mend};
use super::put::LEVEL;
use super::relation::Relations;
use super::summary::{Layers, make_abstract, make_overview};
use super::uri::Uri;
use super::{Nodes, Stamps, is_unfit};

/// What is wrong with a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// A change was broken off after it was decided.
    Unfinished(EventType),
    /// A change was broken off before it was decided.
    Undecided,
    /// A change was broken off after it was decided, and cannot be finished.
    Stuck(String),
    /// There is content and no `.meta.json`.
    NoMeta,
    /// It is PENDING, and all of it is there.
    Whole,
    /// It is PENDING, and not all of it is there.
    Partial(String),
    /// What is there is not valid: it stays as it is, for somebody to look at.
    Invalid(String),
    /// An event is not where its status says, or was broken off.
    Outbox,
}

impl Fault {
    /// Whether somebody has to look at the node: it was marked BROKEN, or is as good as that.
    pub fn needs_hands(&self) -> bool {
        matches!(self, Self::Stuck(_) | Self::Partial(_) | Self::Invalid(_))
    }

    /// What becomes of the node by that, as the end of a sentence.
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

    /// In one word, for programs.
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

impl fmt::Display for Fault {
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

/// Something that repair found, and has mended unless that needs hands.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The node.
    pub uri: Uri,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What repair found in all.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Repaired {
    /// What was wrong, node by node.
    pub findings: Vec<Finding>,
    /// Nodes that are visible now.
    pub active: u64,
    /// Nodes that were marked BROKEN before, and were passed over.
    pub broken: u64,
}

impl<F: Files> Nodes<F> {
    /// Goes through all nodes that the caller may see, and mends what was broken off; a
    /// `dry_run` only says what that would be.
    ///
    /// # Errors
    /// The files fail; what was mended until then stays.
    pub fn repair(&mut self, dry_run: bool) -> Result<Repaired> {
        let mut repaired = Repaired::default();
        let scope = self.scope();
        let Self { files, stamps, .. } = self;
        walk(files, &scope, &mut |files, uri| {
            let was_broken = known(files, uri)?.meta().map(|meta| meta.status());
            repaired.broken += u64::from(was_broken == Some(Status::Broken));
            let faults = node(files, stamps, uri, dry_run)?;
            let finding = |fault| Finding { uri: uri.clone(), fault };
            repaired.findings.extend(faults.into_iter().map(finding));
            let is_active = known(files, uri)?.status() == Some(Status::Active);
            repaired.active += u64::from(is_active);
            Ok(())
        })?;
        Ok(repaired)
    }

    /// The same for one node.
    pub(super) fn repair_node(&mut self, uri: &Uri) -> Result<()> {
        node(&mut self.files, &mut self.stamps, uri, false).map(drop)
    }
}

/// Mends a node, or only says what is wrong.
fn node(
    files: &mut impl Files,
    stamps: &mut Stamps,
    uri: &Uri,
    dry_run: bool,
) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    if is_changing(files, uri)? {
        let event = decided(files, uri)?;
        match (dry_run, event) {
            (true, Some(event)) => return Ok(vec![Fault::Unfinished(event.event_type())]),
            (true, None) => faults.push(Fault::Undecided),
            (false, _) => match settle(files, uri) {
                Ok(Settled::Finished(event)) => faults.push(Fault::Unfinished(event)),
                Ok(Settled::GivenUp) => faults.push(Fault::Undecided),
                Ok(Settled::Nothing) => {}
                // The other nodes need not wait for this one.
                Err(error) => return Ok(vec![Fault::Stuck(error.to_string())]),
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
            faults.push(Fault::Outbox);
            if !dry_run {
                mend(files, uri, &disorder)?;
            }
        }
        Err(error) if is_unfit(&error) => faults.push(Fault::Invalid(error.to_string())),
        Err(error) => return Err(error),
    }
    Ok(faults)
}

/// What makes a node whole, or marks it.
enum Cure {
    /// It becomes visible, with what is missing made.
    Activate(Box<(Meta, Stored)>),
    /// It is marked BROKEN.
    Mark(Meta),
}

/// The branches of the specification.
fn diagnose(files: &mut impl Files, uri: &Uri) -> Result<Option<(Fault, Option<Cure>)>> {
    match known(files, uri)? {
        Known::Nothing => match Stored::read(files, uri) {
            Ok(stored) if stored.content.is_none() => Ok(None),
            Ok(stored) => {
                let cure = Cure::Activate(Box::new((Meta::new(uri, "", LEVEL, &[]), stored)));
                Ok(Some((Fault::NoMeta, Some(cure))))
            }
            Err(error) if is_unfit(&error) => {
                let content = files.read(&format!("{}/{CONTENT}", uri.path()), CONTENT_BYTES);
                let is_nothing = matches!(content, Ok(None));
                let invalid = || (Fault::Invalid(error.to_string()), None);
                Ok((!is_nothing).then(invalid))
            }
            Err(error) => Err(error),
        },
        Known::Invalid(what) => Ok(Some((Fault::Invalid(format!("{META}: {what}")), None))),
        Known::Meta(meta) if meta.status() == Status::Pending => {
            let missing = match Stored::read(files, uri) {
                Ok(stored) => match stored.missing() {
                    None => {
                        let cure = Cure::Activate(Box::new((meta, stored)));
                        return Ok(Some((Fault::Whole, Some(cure))));
                    }
                    Some(file) => format!("{file} is missing"),
                },
                Err(error) if is_unfit(&error) => error.to_string(),
                Err(error) => return Err(error),
            };
            Ok(Some((Fault::Partial(missing), Some(Cure::Mark(meta)))))
        }
        Known::Meta(_) => Ok(None),
    }
}

impl Cure {
    fn apply(self, files: &mut impl Files, uri: &Uri, stamp: &Stamp) -> Result<()> {
        let (meta, stored) = match self {
            Self::Mark(meta) => return mark(files, uri, &meta.with_status(Status::Broken)),
            Self::Activate(whole) => *whole,
        };
        let meta = meta.activated(&stamp.time());
        let content = stored.content.unwrap_or_default();
        let mut parts = Vec::new();
        if stored.relations.is_none() {
            parts.push((Part::Relations, Relations::default().to_bytes()));
        }
        let abstract_text = stored.abstract_text.unwrap_or_else(|| {
            let made = make_abstract(&content);
            parts.push((Part::Abstract, made.clone().into_bytes()));
            made
        });
        let overview = stored.overview.unwrap_or_else(|| {
            let made = make_overview(&content);
            parts.push((Part::Overview, made.clone().into_bytes()));
            made
        });
        parts.push((Part::Meta, meta.to_bytes()));
        let layers =
            Layers { abstract_text: &abstract_text, overview: &overview, content: &content };
        let event = Event::upsert(stamp, uri, &meta, &layers);
        carry_out(files, uri, &Change { parts, event }).map(drop)
    }
}
