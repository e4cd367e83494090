//! The session that the tools are about.

use std::ffi::OsStr;

use parking_lot::Mutex;
use rmcp::model::JsonObject;

use super::results::McpOutput;
use super::tools::{McpTool, all};
use crate::cli::error::CliError;
use crate::cli::source::{PastSource, SessionSource};
use crate::delta::MergedPath;
use crate::inspect::opened::{OpenSession, merged_path};
use crate::inspect::selection::unquoted;
use crate::inspect::stop::StopFlag;

/// Words of hints for a shell.
const NAMES_SHELL: [&str; 2] = ["acetate ", "--"];

/// How hints begin that say what the user of the server can do.
const TO_USER: &str = "its user ";

/// A session, opened by each call: a server may begin or end to serve it at any time.
pub(super) struct McpSession {
    /// The session and its base.
    pub(super) source: SessionSource,
    allows_changes: bool,
    tools: Vec<McpTool>,
    /// The names of the tools to use.
    chosen: Vec<&'static str>,
    /// Held by a call that changes something: its checkpoint is of the tree before it.
    pub(super) change: Mutex<()>,
}

impl McpSession {
    pub(super) fn new(
        source: SessionSource,
        allows_changes: bool,
        chosen: Vec<&'static str>,
    ) -> Self {
        Self { source, allows_changes, tools: all(), chosen, change: Mutex::new(()) }
    }

    /// The tools that clients may use.
    pub(super) fn tools(&self) -> impl Iterator<Item = &McpTool> {
        self.tools.iter().filter(|tool| self.has(tool.name))
    }

    /// Whether clients may use a tool.
    pub(super) fn has(&self, name: &str) -> bool {
        self.chosen.contains(&name)
    }

    /// The tool with this name, which clients may not be allowed to use.
    pub(super) fn tool(&self, name: &str) -> Option<&McpTool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Runs a tool; refuses one that is not allowed.
    pub(super) fn call(
        &self,
        tool: &McpTool,
        arguments: JsonObject,
        stop: &StopFlag,
    ) -> Result<McpOutput, CliError> {
        if tool.changes && !self.allows_changes {
            let what = format!("{}: this server only reads: nothing was changed", tool.name);
            return Err(CliError::new(what)
                .with_hint("its user allows changes by `acetate mcp SESSION.db --allow-changes`"));
        }
        if !self.has(tool.name) {
            let what = format!("{}: not one of the tools of this server", tool.name);
            return Err(CliError::new(what).with_hint(format_args!(
                "its user chose {} with `acetate mcp --tools`",
                self.chosen.join(", ")
            )));
        }
        tool.run(self, arguments, stop)
    }

    /// What a client is told about the server: of the tools, those that it may use.
    pub(super) fn instructions(&self) -> String {
        let mut all = String::from(
            "The tools are about the tree of one acetate session: a base directory that is never \
             written, with the session's changes over it. Paths begin at the root of the tree.",
        );
        if self.tools().any(|tool| tool.changes) {
            all += " Before each change, the tree gets a checkpoint.";
        } else {
            all += " Nothing can be changed.";
        }
        for (tool, what) in [
            ("checkpoint_list", "shows the checkpoints"),
            ("diff", "compares with the base or a checkpoint"),
            ("restore", "goes back to a checkpoint"),
        ] {
            if self.has(tool) {
                all += &format!(" {tool} {what}.");
            }
        }
        all
    }

    /// A failure in words, with a hint for agents: where that for a shell names a command, the tool
    /// that does the same.
    pub(super) fn told(&self, error: &CliError) -> String {
        let hint = match error.hint() {
            Some(hint) if hint.contains("acetate checkpoint ls") => {
                self.has("checkpoint_list").then(|| "checkpoint_list lists them".to_owned())
            }
            Some(hint) if hint.contains("acetate checkpoint rm") => {
                Some("give another name".to_owned())
            }
            Some(hint)
                if !hint.starts_with(TO_USER)
                    && NAMES_SHELL.iter().any(|words| hint.contains(words)) =>
            {
                Some(format!("for {TO_USER}alone: {hint}"))
            }
            hint => hint.map(str::to_owned),
        };
        match hint {
            Some(hint) => format!("{error}\nhint: {hint}"),
            None => error.to_string(),
        }
    }

    /// Opens the session and its base, with the tree as it was at a checkpoint if one is named.
    pub(super) fn open(&self, at: Option<&str>) -> Result<OpenSession, CliError> {
        match at {
            None => self.source.open(),
            Some(at) => Ok(PastSource::of(&self.source).open_moment(Some(at))?.0),
        }
    }
}

/// Parses a path of the tree. A relative one begins at the root; one in double quotes has the
/// escapes of git.
pub(super) fn path(text: &str) -> Result<MergedPath, CliError> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = unquoted(text.as_bytes());
    Ok(merged_path(OsStr::from_bytes(bytes.as_deref().unwrap_or(text.as_bytes())))?)
}
