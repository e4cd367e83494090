//! Formats context nodes, changes and events, as lines and as JSON.

use serde_json::{Map, Value};

use crate::cli::error::CliError;
use crate::cli::output::Out;
use crate::cli::{Ending, hints, output, text};
use crate::context::{ContextError, ContextNode, ListedNode, PutOutcome};

/// Escapes a text of the session for one line of a terminal.
pub(super) fn plain(text: &str) -> String {
    text::line(text.as_bytes())
}

/// Reports that a node is not visible.
pub(super) fn missing(error: &ContextError) -> Ending {
    output::line(format_args!("{error}"));
    if let Some(hint) = hints::of_context(error) {
        output::line(format_args!("hint: {hint}"));
    }
    Ending::Findings
}

/// A node with all its layers, as JSON.
pub(super) fn node(node: &ContextNode) -> Map<String, Value> {
    let mut object = text::json("ctx_node");
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("uri", node.uri.as_str().into());
    put("status", node.meta.status().as_str().into());
    put("meta", Value::Object(node.meta.fields().clone()));
    put("abstract", node.abstract_text.as_str().into());
    put("overview", node.overview.as_str().into());
    put("content", node.content.as_str().into());
    put("relations", node.relations.edges().into());
    object
}

/// A listed node, as JSON.
pub(super) fn listed(node: &ListedNode) -> Map<String, Value> {
    let mut object = text::json("ctx_node");
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("uri", node.uri.as_str().into());
    put("status", node.status.as_str().into());
    let meta = node.meta.as_ref().map(|meta| Value::Object(meta.fields().clone()));
    put("meta", meta.unwrap_or_default());
    put("abstract", node.abstract_text.as_deref().map(Value::from).unwrap_or_default());
    object
}

/// Prints a change of a node if `is_json` is set.
pub(super) fn changed(changed: &PutOutcome, is_json: bool) -> Result<Ending, CliError> {
    if is_json {
        let mut out = Out::new();
        let mut object = text::json("ctx_change");
        let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
        put("uri", changed.uri.as_str().into());
        put("version", changed.version.map(Value::from).unwrap_or_default());
        put("event_id", changed.event.id().into());
        put("event_type", changed.event.event_type().as_str().into());
        out.json(object)?;
        out.end()?;
    }
    Ok(Ending::Done)
}
