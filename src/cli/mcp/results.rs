//! The results of tools: text, or a JSON object with bounded lists.

use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use serde_json::Value;

use super::limits::{ENTRIES, MAX_ENTRIES, MAX_RESULT_BYTES};
use crate::cli::error::CliError;

/// The result of a tool.
pub(super) enum McpOutput {
    /// Texts for the agent.
    Text(Vec<String>),
    /// An object, for the agent as JSON text.
    Json(JsonObject),
}

/// The result as the protocol has it. A failure, in words, is a result too: agents see it, and its
/// hint.
pub(super) fn tool_result(done: Result<McpOutput, String>) -> CallToolResult {
    match done {
        Ok(McpOutput::Text(texts)) => {
            CallToolResult::success(texts.into_iter().map(ContentBlock::text).collect())
        }
        Ok(McpOutput::Json(object)) => CallToolResult::structured(Value::Object(object)),
        Err(told) => CallToolResult::error(vec![ContentBlock::text(told)]),
    }
}

/// A list in a result, up to a number of entries and their size.
pub(super) struct BoundedList {
    entries: Vec<Value>,
    most: usize,
    bytes: usize,
    has_more: bool,
}

impl BoundedList {
    /// A list of at most `most` entries, as the caller asked for.
    ///
    /// # Errors
    /// The number is not between 1 and [`MAX_ENTRIES`].
    pub(super) fn new(most: Option<usize>) -> Result<Self, CliError> {
        let most = most.unwrap_or(ENTRIES);
        if !(1..=MAX_ENTRIES).contains(&most) {
            return Err(CliError::new(format_args!(
                "{most} entries: a result has between 1 and {MAX_ENTRIES}"
            )));
        }
        Ok(Self { entries: Vec::new(), most, bytes: 0, has_more: false })
    }

    /// The most entries.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Adds an entry; returns whether it had room.
    pub(super) fn push(&mut self, entry: JsonObject) -> bool {
        let entry = Value::Object(entry);
        let bytes = entry.to_string().len();
        let has_room = self.entries.len() < self.most
            && (self.entries.is_empty() || self.bytes + bytes <= MAX_RESULT_BYTES);
        self.has_more |= !has_room;
        if has_room {
            self.bytes += bytes;
            self.entries.push(entry);
        }
        has_room
    }

    /// The list with its last entry first.
    pub(super) fn reversed(mut self) -> Self {
        self.entries.reverse();
        self
    }

    /// Adds the list to a result, and under `more` whether entries are missing.
    pub(super) fn put(self, object: &mut JsonObject, key: &str) {
        object.insert(key.to_owned(), self.entries.into());
        object.insert("more".to_owned(), self.has_more.into());
    }
}
