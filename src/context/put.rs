//! Creates or replaces a node.

use super::Nodes;
use super::change::{NodeChange, StagedPart, carry_out, settle};
use super::error::{ContextError, Result};
use super::event::Event;
use super::files::Files;
use super::limits::{CONTENT_BYTES, TAG_CHARS, TAGS};
use super::meta::{NodeMeta, NodeStatus};
use super::node::{MetaState, read_meta, relations};
use super::summary::{
    SummaryTexts, checked_abstract, checked_overview, make_abstract, make_overview,
};
use super::uri::Uri;

/// Default level: the number of layers.
pub(super) const LEVEL: u64 = 3;

/// Highest level; equal to the maximum in `meta.schema.json`.
const MAX_LEVEL: u64 = 9;

/// The new state of a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodePut {
    /// UTF-8 text.
    pub content: Vec<u8>,
    /// L0; derived from the content if `None`.
    pub abstract_text: Option<String>,
    /// L1; derived from the content if `None`.
    pub overview: Option<String>,
    /// Tags; `None` keeps the current ones.
    pub tags: Option<Vec<String>>,
    /// Level, up to 9; `None` keeps the current one.
    pub level: Option<u64>,
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq)]
pub struct PutOutcome {
    /// URI of the node.
    pub uri: Uri,
    /// New version; `None` after a removal.
    pub version: Option<u64>,
    /// The event that reports the change.
    pub event: Event,
}

impl<F: Files> Nodes<F> {
    /// Creates or replaces a node. A new node gets version 1. An existing one keeps its edges and
    /// its creation time, and gets the next version.
    ///
    /// # Errors
    /// The input is invalid; or the files fail, and [`Nodes::repair`] then restores the old node or
    /// completes the new one.
    pub fn put(&mut self, uri: &Uri, put: &NodePut) -> Result<PutOutcome> {
        self.check(uri)?;
        let checked = CheckedPut::new(put)?;
        settle(&mut self.files, uri)?;
        let stamp = self.stamp()?;
        let before = read_meta(&mut self.files, uri)?;
        let was_visible = before.status() == Some(NodeStatus::Active);
        let before = match before {
            MetaState::Meta(meta) => Some(meta),
            MetaState::Nothing | MetaState::Invalid(_) => None,
        };
        let now = stamp.time();
        let mut meta = match &before {
            Some(meta) => meta.clone().next(&now),
            None => NodeMeta::new(uri, &now, LEVEL, &[]),
        };
        if let Some(tags) = &put.tags {
            meta.set_tags(tags);
        }
        if let Some(level) = put.level {
            meta.set_level(level);
        }
        let kept = relations(&mut self.files, uri)?.unwrap_or_default();
        let event = Event::upsert(&stamp, uri, &meta, &checked.layers());
        let pending = before.filter(|_| was_visible);
        let pending = pending.map(|meta| (StagedPart::Pending, pending_bytes(meta)));
        let parts = [
            (StagedPart::Content, put.content.clone()),
            (StagedPart::Relations, kept.to_bytes()),
            (StagedPart::Abstract, checked.abstract_text.clone().into_bytes()),
            (StagedPart::Overview, checked.overview.clone().into_bytes()),
            (StagedPart::Meta, meta.to_bytes()),
        ];
        let parts = pending.into_iter().chain(parts).collect();
        let version = Some(meta.version());
        let change = NodeChange { parts, event };
        carry_out(&mut self.files, uri, &change)?;
        Ok(PutOutcome { uri: uri.clone(), version, event: change.event })
    }
}

/// The `.meta.json` of a visible node during a change.
pub(super) fn pending_bytes(meta: NodeMeta) -> Vec<u8> {
    meta.with_status(NodeStatus::Pending).to_bytes()
}

/// Checked input, with derived layers.
struct CheckedPut<'a> {
    content: &'a str,
    abstract_text: String,
    overview: String,
}

impl<'a> CheckedPut<'a> {
    fn new(put: &'a NodePut) -> Result<Self> {
        let bytes = put.content.len() as u64;
        if bytes > CONTENT_BYTES {
            let most = CONTENT_BYTES >> 20;
            let what = format!("the content has {bytes} bytes, and {most} MiB are the most");
            return Err(ContextError::Invalid {
                what,
                hint: Some("keep it in a file of the session, and in the node where that is"),
            });
        }
        let Ok(content) = std::str::from_utf8(&put.content) else {
            return Err(ContextError::invalid("the content is not UTF-8 text"));
        };
        check_tags(put.tags.as_deref().unwrap_or_default())?;
        if put.level.is_some_and(|level| level > MAX_LEVEL) {
            return Err(ContextError::invalid(format!("the level is 0 to {MAX_LEVEL}")));
        }
        let abstract_text = match &put.abstract_text {
            Some(text) => checked_abstract(text)?,
            None => make_abstract(content),
        };
        if abstract_text.is_empty() {
            return Err(ContextError::NoAbstract);
        }
        let overview = match &put.overview {
            Some(text) => checked_overview(text)?,
            None => make_overview(content),
        };
        Ok(Self { content, abstract_text, overview })
    }

    fn layers(&self) -> SummaryTexts<'_> {
        SummaryTexts {
            abstract_text: &self.abstract_text,
            overview: &self.overview,
            content: self.content,
        }
    }
}

fn check_tags(tags: &[String]) -> Result<()> {
    if tags.len() > TAGS {
        let what = format!("{} tags, and {TAGS} are the most", tags.len());
        return Err(ContextError::invalid(what));
    }
    for (at, tag) in tags.iter().enumerate() {
        let what = match tag.chars().count() {
            0 => "is empty".to_owned(),
            1..=TAG_CHARS if tags[..at].contains(tag) => "is given twice".to_owned(),
            1..=TAG_CHARS => continue,
            chars => format!("has {chars} characters, and {TAG_CHARS} are the most"),
        };
        return Err(ContextError::invalid(format!("the tag `{}` {what}", tag.escape_debug())));
    }
    Ok(())
}
