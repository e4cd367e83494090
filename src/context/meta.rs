//! `.meta.json`: metadata and status of a node.

use std::fmt;

use serde_json::{Map, Value, json};

use super::schema::DocumentKind;
use super::uri::Uri;

/// Highest version: the largest integer that every JSON parser represents exactly. Equal to the
/// maximum in `meta.schema.json`.
const MAX_VERSION: u64 = (1 << 53) - 1;

/// Status of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeStatus {
    /// Being written; not visible.
    Pending,
    /// Complete and visible.
    Active,
    /// Cannot be completed; a person must fix it. Not visible.
    Broken,
}

impl NodeStatus {
    /// The word in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Active => "ACTIVE",
            Self::Broken => "BROKEN",
        }
    }
}

impl fmt::Display for NodeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A valid `.meta.json`. Unknown fields are kept.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeMeta(Map<String, Value>);

impl NodeMeta {
    /// Metadata of a new node.
    pub(super) fn new(uri: &Uri, now: &str, level: u64, tags: &[String]) -> Self {
        let mut meta = Self(Map::new());
        meta.set("created_at", now.into());
        meta.set("updated_at", now.into());
        meta.set("version", 1.into());
        meta.set("level", level.into());
        meta.set("tags", tags.into());
        meta.set_status(NodeStatus::Active);
        meta.set_uri(uri);
        meta
    }

    /// Parses the metadata of the node `uri`; the error says what is wrong.
    pub(super) fn parse(uri: &Uri, text: &[u8]) -> Result<Self, String> {
        let Value::Object(map) = DocumentKind::Meta.parse(text)? else {
            return Err("not an object".to_owned());
        };
        let meta = Self(map);
        match meta.text("uri") {
            own if own == uri.as_str() => Ok(meta),
            other => Err(format!("is of another node: {other}")),
        }
    }

    /// The text of the file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        pretty(&Value::Object(self.0.clone()))
    }

    /// All fields.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The status.
    pub fn status(&self) -> NodeStatus {
        let known = [NodeStatus::Pending, NodeStatus::Active, NodeStatus::Broken];
        let status = self.text("status");
        known.into_iter().find(|known| known.as_str() == status).unwrap_or(NodeStatus::Broken)
    }

    /// Number of times that the node was written.
    pub fn version(&self) -> u64 {
        self.0.get("version").and_then(Value::as_u64).unwrap_or(1)
    }

    /// Last update, in RFC 3339 format.
    pub fn updated_at(&self) -> &str {
        self.text("updated_at")
    }

    /// Sets the status.
    pub(super) fn with_status(mut self, status: NodeStatus) -> Self {
        self.set_status(status);
        self
    }

    /// The next version: updated now, and visible.
    pub(super) fn next(mut self, now: &str) -> Self {
        let version = self.version().saturating_add(1).min(MAX_VERSION);
        self.set("version", version.into());
        self.set("updated_at", now.into());
        self.with_status(NodeStatus::Active)
    }

    /// Marks this version ACTIVE and sets `created_at` if it is missing.
    pub(super) fn activated(mut self, now: &str) -> Self {
        if self.text("created_at").is_empty() {
            self.set("created_at", now.into());
        }
        self.set("updated_at", now.into());
        self.with_status(NodeStatus::Active)
    }

    pub(super) fn set_tags(&mut self, tags: &[String]) {
        self.set("tags", tags.into());
    }

    pub(super) fn set_level(&mut self, level: u64) {
        self.set("level", level.into());
    }

    /// Sets the URI and all fields that depend on it.
    pub(super) fn set_uri(&mut self, uri: &Uri) {
        self.set("uri", uri.as_str().into());
        self.set("context_type", uri.context_type().into());
        self.set("category", uri.category().into());
        self.set("owner_space", uri.owner_space().into());
    }

    fn set_status(&mut self, status: NodeStatus) {
        self.set("status", status.as_str().into());
    }

    fn set(&mut self, key: &str, value: Value) {
        self.0.insert(key.to_owned(), value);
    }

    fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// The fields that an index stores of a node.
    pub(super) fn index_metadata(&self) -> Value {
        let field = |key: &str| self.0.get(key).cloned().unwrap_or(Value::Null);
        json!({ "category": field("category"), "context_type": field("context_type") })
    }
}

/// Formats a document with indentation and a final newline.
pub(super) fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}
