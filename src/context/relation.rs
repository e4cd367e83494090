//! `.relations.json`: edges from a node to others.

use serde_json::{Map, Value, json};

use super::error::{ContextError, Result};
use super::limits::EDGES;
use super::meta::pretty;
use super::schema::DocumentKind;
use super::uri::Uri;

/// An edge of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Relation {
    /// Target: a node of the same account.
    pub to: Uri,
    /// Type: a letter, followed by up to 63 letters, digits, `_` and `-`.
    pub relation_type: String,
    /// Strength, from 0 to 1.
    pub weight: f64,
    /// Reason, up to 1,000 characters.
    pub reason: String,
}

impl Relation {
    fn edge(&self, from: &Uri) -> Value {
        json!({
            "from_uri": from.as_str(),
            "to_uri": self.to.as_str(),
            "relation_type": self.relation_type,
            "weight": self.weight,
            "reason": self.reason,
        })
    }
}

/// A valid `.relations.json`. Unknown fields are kept.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Relations(Vec<Value>);

impl Relations {
    /// Parses a document; the error says what is wrong.
    pub(super) fn parse(text: &[u8]) -> std::result::Result<Self, String> {
        match DocumentKind::Relations.parse(text)? {
            Value::Array(edges) => Ok(Self(edges)),
            _ => Err("not an array".to_owned()),
        }
    }

    /// The text of the file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        pretty(&Value::Array(self.0.clone()))
    }

    /// The edges.
    pub fn edges(&self) -> &[Value] {
        &self.0
    }

    /// Adds an edge; replaces one of the same type to the same node. Returns the edge as it is
    /// stored.
    pub(super) fn add(&mut self, from: &Uri, relation: &Relation) -> Result<Value> {
        let edge = relation.edge(from);
        let is_same = |other: &Value| {
            ["to_uri", "relation_type"].iter().all(|key| other.get(key) == edge.get(key))
        };
        self.0.retain(|other| !is_same(other));
        self.0.push(edge.clone());
        if self.0.len() > EDGES {
            let what = format!("{from}: has {EDGES} edges, and more are too many");
            return Err(ContextError::invalid(what));
        }
        DocumentKind::Relations.check(&Value::Array(vec![edge.clone()])).map_err(|what| {
            let what = what.strip_prefix("/0").unwrap_or(&what).to_owned();
            ContextError::invalid(format!("the relation: {what}"))
        })?;
        Ok(edge)
    }

    /// Sets the source of all edges.
    pub(super) fn set_from(&mut self, from: &Uri) {
        for edge in self.0.iter_mut().filter_map(Value::as_object_mut) {
            let _before: Option<Value> =
                Map::insert(edge, "from_uri".to_owned(), from.as_str().into());
        }
    }
}
