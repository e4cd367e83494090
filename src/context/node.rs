//! The files of a node, and how they are read.

use serde_json::Value;

use super::Nodes;
use super::change::is_changing;
use super::error::{ContextError, Result};
use super::files::Reads;
use super::limits::{CONTENT_BYTES, META_BYTES, OVERVIEW_BYTES, RELATIONS_BYTES};
use super::meta::{NodeMeta, NodeStatus};
use super::relation::Relations;
use super::summary::is_abstract;
use super::uri::Uri;

/// The content (L2).
pub(super) const CONTENT: &str = "content.md";

/// The edges to other nodes.
pub(super) const RELATIONS: &str = ".relations.json";

/// L0.
pub(super) const ABSTRACT: &str = ".abstract.md";

/// L1.
pub(super) const OVERVIEW: &str = ".overview.md";

/// Metadata and status.
pub(super) const META: &str = ".meta.json";

/// Directory of events that are not acknowledged.
pub(super) const OUTBOX: &str = ".outbox";

/// Subdirectory of the outbox for events that failed too often.
pub(super) const DEAD: &str = "dlq";

/// The state of `.meta.json`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MetaState {
    /// The file does not exist.
    Nothing,
    /// The file is invalid, for this reason.
    Invalid(String),
    /// Valid metadata.
    Meta(NodeMeta),
}

impl MetaState {
    pub(super) fn status(&self) -> Option<NodeStatus> {
        match self {
            Self::Nothing => None,
            Self::Invalid(_) => Some(NodeStatus::Broken),
            Self::Meta(meta) => Some(meta.status()),
        }
    }

    pub(super) fn meta(self) -> Option<NodeMeta> {
        match self {
            Self::Meta(meta) => Some(meta),
            _ => None,
        }
    }
}

/// A visible node with all its layers.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextNode {
    /// URI of the node.
    pub uri: Uri,
    /// `.meta.json`.
    pub meta: NodeMeta,
    /// L0.
    pub abstract_text: String,
    /// L1.
    pub overview: String,
    /// The content.
    pub content: String,
    /// Its edges.
    pub relations: Relations,
}

impl ContextNode {
    /// A field of `.meta.json`.
    pub fn field(&self, key: &str) -> Option<&Value> {
        self.meta.fields().get(key)
    }
}

impl<R: Reads> Nodes<R> {
    /// Reads a visible node.
    ///
    /// # Errors
    /// The node is not visible, or its files cannot be read.
    pub fn get(&mut self, uri: &Uri) -> Result<ContextNode> {
        self.check(uri)?;
        let meta = visible(&mut self.files, uri)?;
        let stored = Stored::read(&mut self.files, uri)?;
        if let Some(file) = stored.missing() {
            return Err(invalid(&uri.path(), file, "is missing"));
        }
        Ok(ContextNode {
            uri: uri.clone(),
            meta,
            abstract_text: stored.abstract_text.unwrap_or_default(),
            overview: stored.overview.unwrap_or_default(),
            content: stored.content.unwrap_or_default(),
            relations: stored.relations.unwrap_or_default(),
        })
    }
}

/// The files of a node except `.meta.json`; `None` for missing ones.
pub(super) struct Stored {
    pub content: Option<String>,
    pub relations: Option<Relations>,
    pub abstract_text: Option<String>,
    pub overview: Option<String>,
}

impl Stored {
    /// The first missing file.
    pub(super) fn missing(&self) -> Option<&'static str> {
        let there = [
            (CONTENT, self.content.is_some()),
            (RELATIONS, self.relations.is_some()),
            (ABSTRACT, self.abstract_text.is_some()),
            (OVERVIEW, self.overview.is_some()),
        ];
        there.into_iter().find(|(_, is_there)| !is_there).map(|(file, _)| file)
    }

    /// Reads the files.
    ///
    /// # Errors
    /// A file is invalid.
    pub(super) fn read(files: &mut impl Reads, uri: &Uri) -> Result<Self> {
        let dir = uri.path();
        let content = text(files, &dir, CONTENT, CONTENT_BYTES)?;
        let abstract_text = text(files, &dir, ABSTRACT, OVERVIEW_BYTES)?;
        if abstract_text.as_deref().is_some_and(|text| !is_abstract(text)) {
            return Err(invalid(&dir, ABSTRACT, "is too long"));
        }
        let overview = text(files, &dir, OVERVIEW, OVERVIEW_BYTES)?;
        let relations = relations(files, uri)?;
        Ok(Self { content, relations, abstract_text, overview })
    }
}

/// Reads the `.meta.json` of a node.
pub(super) fn read_meta(files: &mut impl Reads, uri: &Uri) -> Result<MetaState> {
    match files.read(&format!("{}/{META}", uri.path()), META_BYTES) {
        Ok(None) => Ok(MetaState::Nothing),
        Ok(Some(text)) => {
            Ok(NodeMeta::parse(uri, &text).map_or_else(MetaState::Invalid, MetaState::Meta))
        }
        Err(error) if error.is_unfit => Ok(MetaState::Invalid(error.what)),
        Err(error) => Err(error.into()),
    }
}

/// The metadata of a visible node.
///
/// # Errors
/// The node is not visible.
pub(super) fn visible(files: &mut impl Reads, uri: &Uri) -> Result<NodeMeta> {
    match read_meta(files, uri)? {
        MetaState::Meta(meta) if meta.status() == NodeStatus::Active => Ok(meta),
        other => Err(ContextError::NoNode {
            uri: uri.clone(),
            status: other.status(),
            is_changing: is_changing(files, uri)?,
        }),
    }
}

/// The edges of a node; `None` if the file does not exist.
pub(super) fn relations(files: &mut impl Reads, uri: &Uri) -> Result<Option<Relations>> {
    let dir = uri.path();
    let Some(text) = files.read(&format!("{dir}/{RELATIONS}"), RELATIONS_BYTES)? else {
        return Ok(None);
    };
    let parsed = Relations::parse(&text);
    parsed.map(Some).map_err(|what| invalid(&dir, RELATIONS, &what))
}

/// Reads a text file of a node; `None` if it does not exist.
pub(super) fn text(
    files: &mut impl Reads,
    dir: &str,
    file: &str,
    most: u64,
) -> Result<Option<String>> {
    let Some(bytes) = files.read(&format!("{dir}/{file}"), most)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|_| invalid(dir, file, "is not UTF-8 text"))
}

fn invalid(dir: &str, file: &str, what: &str) -> ContextError {
    ContextError::Document { path: format!("{dir}/{file}"), what: what.to_owned() }
}
