//! The tools by name, and which of them clients may use.

use std::sync::Arc;

use rmcp::handler::server::common::schema_for_type;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use rmcp::schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::changing::{self, ChangingCall};
use super::results::McpOutput;
use super::session::McpSession;
use super::{history, keys, reading};
use crate::cli::error::CliError;
use crate::inspect::stop::StopFlag;

/// The most names that an error offers instead of an unknown one.
const MAX_OFFERED: usize = 3;

/// A tool.
pub(super) struct McpTool {
    pub(super) name: &'static str,
    /// Whether it changes the session.
    pub(super) changes: bool,
    description: &'static str,
    arguments: fn() -> Arc<JsonObject>,
    run: RunTool,
}

type RunTool =
    Box<dyn Fn(&McpSession, JsonObject, &StopFlag) -> Result<McpOutput, CliError> + Send + Sync>;

impl McpTool {
    /// Runs it. `stop` ends a search or a comparison; other calls end on their own.
    pub(super) fn run(
        &self,
        session: &McpSession,
        arguments: JsonObject,
        stop: &StopFlag,
    ) -> Result<McpOutput, CliError> {
        (self.run)(session, arguments, stop)
    }

    /// Its description in the protocol.
    pub(super) fn describe(&self) -> Tool {
        let hints = ToolAnnotations::new().read_only(!self.changes).open_world(false);
        let hints = if self.changes { hints.destructive(self.is_destructive()) } else { hints };
        Tool::new(self.name, self.description, (self.arguments)()).annotate(hints)
    }

    fn is_destructive(&self) -> bool {
        !matches!(self.name, "mkdir" | "checkpoint_create")
    }
}

/// A tool that only reads.
fn reads<A: DeserializeOwned + JsonSchema + 'static>(
    name: &'static str,
    description: &'static str,
    run: fn(&McpSession, &A) -> Result<McpOutput, CliError>,
) -> McpTool {
    let run: RunTool = Box::new(move |session, given, _| run(session, &arguments(given)?));
    McpTool { name, changes: false, description, arguments: schema_for_type::<A>, run }
}

/// A tool that only reads, and may take long.
fn reads_much<A: DeserializeOwned + JsonSchema + 'static>(
    name: &'static str,
    description: &'static str,
    run: fn(&McpSession, &A, &StopFlag) -> Result<McpOutput, CliError>,
) -> McpTool {
    let run: RunTool = Box::new(move |session, given, stop| run(session, &arguments(given)?, stop));
    McpTool { name, changes: false, description, arguments: schema_for_type::<A>, run }
}

/// A tool that changes the session.
fn changes<A: DeserializeOwned + JsonSchema + 'static>(
    name: &'static str,
    description: &'static str,
    run: fn(&mut ChangingCall<'_>, A) -> Result<(), CliError>,
) -> McpTool {
    let run: RunTool = Box::new(move |session, given, _| {
        changing::recorded(session, name, &given, |changing| {
            run(changing, arguments(given.clone())?)
        })
    });
    McpTool { name, changes: true, description, arguments: schema_for_type::<A>, run }
}

fn arguments<A: DeserializeOwned>(given: JsonObject) -> Result<A, CliError> {
    serde_json::from_value(Value::Object(given)).map_err(|error| {
        CliError::new(format_args!("arguments: {error}"))
            .with_hint("the tool's inputSchema says what it takes")
    })
}

/// All tools.
pub(super) fn all() -> Vec<McpTool> {
    let mut tools = reading_tools();
    tools.extend(changing_tools());
    tools
}

fn reading_tools() -> Vec<McpTool> {
    vec![
        reads(
            "read_file",
            "Read a file, or a part of it. Of a longer file, a last line says where to continue.",
            reading::read_file,
        ),
        reads(
            "readdir",
            "List a directory, sorted by name, with type, size and time of each entry.",
            reading::readdir,
        ),
        reads(
            "stat",
            "The attributes of a file, directory or link, and whether it is the base's, copied \
             from there and changed, or of the session.",
            reading::stat,
        ),
        reads_much(
            "search",
            "Find lines that match a regular expression in the files at and below a path. It \
             stops at limits of results, content and time, and says at which.",
            reading::search_files,
        ),
        reads_much(
            "diff",
            "What the session changed against its base, or since a checkpoint: a list, or a patch.",
            history::diff,
        ),
        reads("log", "Who changed what, and when: the last changes, oldest first.", history::log),
        reads(
            "checkpoint_list",
            "The newest checkpoints, oldest first. Other tools take one as `at`, `from` or `to`.",
            history::checkpoint_list,
        ),
        reads("kv_get", "The value of a key of the session's key-value store.", keys::kv_get),
        reads("kv_list", "The keys of the session's key-value store, sorted.", keys::kv_list),
    ]
}

fn changing_tools() -> Vec<McpTool> {
    vec![
        changes(
            "write_file",
            "Create a file, replace its content as a whole, or add to its end.",
            changing::write_file,
        ),
        changes("mkdir", "Make a directory.", changing::mkdir),
        changes("remove", "Remove a file or link, or a directory.", changing::remove),
        changes(
            "rename",
            "Rename or move a file or directory. A file at the new path is replaced.",
            changing::rename,
        ),
        changes(
            "checkpoint_create",
            "Make a checkpoint of the tree, which stays until it is removed. Calls that change \
             something make one on their own before they do.",
            history::checkpoint_create,
        ),
        changes(
            "restore",
            "Make the whole tree, or some paths, that of a checkpoint: takes back what anybody \
             changed since, and brings back what was removed. What goes along with the paths is \
             listed. With `tool_call`, takes back only what changed during that call. The tree \
             before gets a checkpoint, to go back to.",
            history::restore,
        ),
        changes("kv_set", "Set a key of the session's key-value store.", keys::kv_set),
        changes("kv_delete", "Remove a key of the session's key-value store.", keys::kv_delete),
    ]
}

/// The names of the tools that clients may use: those that are `asked` for, or all that are
/// allowed.
///
/// # Errors
/// There is no tool of a name, or it changes the session and this is not allowed.
pub(super) fn choose(asked: &[String], allows: bool) -> Result<Vec<&'static str>, CliError> {
    let all = all();
    if asked.is_empty() {
        let allowed = all.iter().filter(|tool| allows || !tool.changes);
        return Ok(allowed.map(|tool| tool.name).collect());
    }
    let chosen = asked.iter().map(|name| {
        let found = all.iter().find(|tool| tool.name == name);
        let tool = found.ok_or_else(|| {
            CliError::new(format_args!("--tools: {name}: no such tool"))
                .with_hint(format_args!("did you mean {}?", nearest(name).join(", ")))
        })?;
        if tool.changes && !allows {
            let what = format!("--tools: {name} changes the session");
            return Err(CliError::new(what).with_hint("give --allow-changes too"));
        }
        Ok(tool.name)
    });
    chosen.collect()
}

/// The names of the tools that are the most similar to a name.
pub(super) fn nearest(name: &str) -> Vec<&'static str> {
    let mut names: Vec<_> = all().iter().map(|tool| tool.name).collect();
    let (name, parts) = (name.to_lowercase(), name.to_lowercase());
    let is_part = |other: &str| other.contains(&parts) || parts.contains(other);
    names.sort_by_key(|other| {
        (!is_part(other) || parts.is_empty(), strsim::damerau_levenshtein(&name, other))
    });
    names.truncate(MAX_OFFERED);
    names
}
