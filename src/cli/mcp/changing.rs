//! The tools that change files, and what all changes have in common: a checkpoint before, and a row
//! of `tool_calls` after.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rmcp::model::JsonObject;
use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::limits::{MAX_RECORDED_BYTES, MAX_WRITE_BYTES};
use super::reading::ContentEncoding;
use super::results::McpOutput;
use super::session::{McpSession, path};
use crate::cli::change::{SessionChanger, with_session_changer};
use crate::cli::error::CliError;
use crate::cli::mount_events::sync_mounts;
use crate::cli::text;
use crate::control::{
    Answer, AttrChanges, CheckpointText, Reading, Refusal, RefusalAdvice, Request, WriteHow,
};
use crate::delta::sqlite::{AgentAccess, CallBegin, NewCall};
use crate::delta::{CheckpointId, CheckpointKind};
use crate::inspect::tool::ToolCalls;

/// A call that changes the session.
pub(super) struct ChangingCall<'a> {
    pub(super) session: &'a McpSession,
    /// The tool's name.
    pub(super) tool: &'static str,
    /// Its result.
    pub(super) result: JsonObject,
    /// The checkpoint before it.
    before: Option<i64>,
}

/// Runs a call, and records it as a tool call, whether it fails or not.
pub(super) fn recorded(
    session: &McpSession,
    tool: &'static str,
    given: &JsonObject,
    run: impl FnOnce(&mut ChangingCall<'_>) -> Result<(), CliError>,
) -> Result<McpOutput, CliError> {
    let _alone = session.change.lock();
    // Nothing is changed that cannot be recorded.
    let file = &session.source.session;
    let calls = ToolCalls::open(file, AgentAccess::Write)?;
    calls.require_writable()?;
    let begin = calls.begin()?;
    drop(calls);
    let started_at = Timestamp::now().as_second();
    let mut changing = ChangingCall { session, tool, result: JsonObject::new(), before: None };
    let done = run(&mut changing);
    let begin = CallBegin { checkpoint: changing.before.map(CheckpointId), ..begin };
    let done = done.map(|()| changing.result);
    // The clock may have been set back.
    let completed_at = Timestamp::now().as_second().max(started_at);
    let parameters = Value::Object(shortened(given)).to_string();
    let outcome = match &done {
        Ok(result) => Ok(Value::Object(result.clone()).to_string()),
        Err(error) => Err(error.to_string()),
    };
    let call = NewCall {
        name: tool,
        parameters: Some(&parameters),
        outcome: outcome.as_deref().map_err(String::as_str),
        started_at,
        completed_at,
        begin: Some(begin),
    };
    let recorded = ToolCalls::open(file, AgentAccess::Write).and_then(|calls| calls.record(&call));
    match (done, recorded) {
        (Ok(mut result), Ok(id)) => {
            if begin.checkpoint.is_some() {
                result.insert("tool_call".to_owned(), id.into());
            }
            Ok(McpOutput::Json(result))
        }
        (Ok(_), Err(error)) => {
            Err(CliError::from(error).after("the change was made and is not recorded"))
        }
        (Err(error), recorded) => {
            if let Err(record) = recorded {
                tracing::error!(error = %record, "a failed call is not recorded");
            }
            Err(error)
        }
    }
}

/// The arguments without the ends of long ones: content is in the session's files already.
fn shortened(given: &JsonObject) -> JsonObject {
    let short = |value: &Value| {
        let whole = match value {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        if whole.len() <= MAX_RECORDED_BYTES {
            return value.clone();
        }
        let begin = String::from_utf8_lossy(&whole.as_bytes()[..MAX_RECORDED_BYTES]);
        format!("{begin}… ({})", text::count(whole.len(), "byte")).into()
    };
    given.iter().map(|(key, value)| (key.clone(), short(value))).collect()
}

impl ChangingCall<'_> {
    /// Adds to the result.
    pub(super) fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.result.insert(key.to_owned(), value.into());
    }

    /// Makes a checkpoint, unless nothing changed since the newest, and then a change, which is on
    /// the disk at the end.
    fn change(&mut self, request: Request, content: Option<Reading<'_>>) -> Result<(), CliError> {
        let tool = self.tool;
        sync_mounts(&self.session.source.session);
        let answer = with_session_changer(&self.session.source, |changer| {
            // Between checkpoint and change, no other agent's change.
            changer.ask(Request::Alone)?;
            self.before = Some(checkpoint(changer, tool)?);
            match changer.perform(request, content)? {
                Ok(answer) => Ok(answer),
                Err(refusal) => Err(refused(&refusal)),
            }
        })?;
        match answer {
            Answer::Objects(objects) => self.put("objects", objects),
            Answer::Bytes(bytes) => self.put("bytes", bytes),
            _ => {}
        }
        self.put("checkpoint", self.before);
        Ok(())
    }

    /// Sets the checkpoint before the call.
    pub(super) fn put_before(&mut self, checkpoint: Option<i64>) {
        self.before = checkpoint;
        self.put("checkpoint", checkpoint);
    }

    /// Makes the checkpoint alone.
    pub(super) fn checkpoint(&mut self) -> Result<(), CliError> {
        let tool = self.tool;
        sync_mounts(&self.session.source.session);
        let made = with_session_changer(&self.session.source, |changer| checkpoint(changer, tool))?;
        self.put_before(Some(made));
        Ok(())
    }
}

/// Makes the checkpoint before a change of a tool; returns its id.
fn checkpoint(changer: &mut SessionChanger, tool: &str) -> Result<i64, CliError> {
    let labels = BTreeMap::from([("tool".to_owned(), tool.to_owned())]);
    let kind = CheckpointKind::Tool.as_str().to_owned();
    let new = CheckpointText { name: None, kind, labels, reuses: true };
    match changer.ask(Request::CreateCheckpoint(new))? {
        Answer::Checkpoint(Some(id)) | Answer::CheckpointReused(id) => Ok(id),
        _ => Err(CliError::new("unexpected reply from the session's server")),
    }
}

/// A refusal, with the arguments of the tools in its hint.
fn refused(refusal: &Refusal) -> CliError {
    let error = CliError::from(refusal.clone());
    match refusal.advice {
        Some(RefusalAdvice::Recurse) => error.with_hint("\"recursive\": true removes a directory"),
        Some(RefusalAdvice::MakeParents) => {
            error.with_hint("\"parents\": true makes the directories above, too")
        }
        _ => error,
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(super) struct WriteFileArgs {
    /// The file, from the root of the tree. Its directory must be there.
    path: String,
    /// The content: at most 8388608 bytes.
    content: String,
    /// How the content is given.
    #[serde(default)]
    encoding: ContentEncoding,
    /// What to do with a file that is there.
    #[serde(default)]
    mode: WriteMode,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(rename_all = "lowercase")]
enum WriteMode {
    /// Replace its content.
    #[default]
    Replace,
    /// Add to its end.
    Append,
    /// Refuse.
    New,
}

pub(super) fn write_file(
    changing: &mut ChangingCall<'_>,
    args: WriteFileArgs,
) -> Result<(), CliError> {
    let content = match args.encoding {
        ContentEncoding::Utf8 => args.content.into_bytes(),
        ContentEncoding::Base64 => STANDARD.decode(args.content.as_bytes()).map_err(|error| {
            CliError::new(format_args!("content: not base64: {error}"))
                .with_hint("leave \"encoding\" out for text")
        })?,
    };
    if content.len() > MAX_WRITE_BYTES {
        let (length, most) = (content.len(), MAX_WRITE_BYTES);
        let what = format!("content: {length} bytes: one call writes at most {most}");
        return Err(CliError::new(what).with_hint("write it in parts, with \"mode\": \"append\""));
    }
    let path = path(&args.path)?;
    let how = match args.mode {
        WriteMode::Replace => WriteHow::Replace,
        WriteMode::Append => WriteHow::Append,
        WriteMode::New => WriteHow::New,
    };
    text::put_path(&mut changing.result, "path", path.as_bytes());
    let request = Request::Write { path: (&path).into(), how, meta: AttrChanges::default() };
    changing.change(request, Some(Reading::stream(&*content)))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(super) struct McpMkdirArgs {
    /// The directory.
    path: String,
    /// Make the directories above too; existing ones are no error.
    #[serde(default)]
    parents: bool,
}

pub(super) fn mkdir(changing: &mut ChangingCall<'_>, args: McpMkdirArgs) -> Result<(), CliError> {
    let path = path(&args.path)?;
    text::put_path(&mut changing.result, "path", path.as_bytes());
    let (meta, parents) = (AttrChanges::default(), args.parents);
    changing.change(Request::MakeDir { path: (&path).into(), meta, parents }, None)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(super) struct RemoveArgs {
    /// What to remove.
    path: String,
    /// Remove a directory with everything in it.
    #[serde(default)]
    recursive: bool,
}

pub(super) fn remove(changing: &mut ChangingCall<'_>, args: RemoveArgs) -> Result<(), CliError> {
    let path = path(&args.path)?;
    text::put_path(&mut changing.result, "path", path.as_bytes());
    let recursive = args.recursive;
    let request = Request::Remove { path: (&path).into(), recursive, by_turns: false };
    changing.change(request, None)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(super) struct McpRenameArgs {
    /// What to rename.
    from: String,
    /// Its new path, not the directory to move it into. That directory must be there.
    to: String,
}

pub(super) fn rename(changing: &mut ChangingCall<'_>, args: McpRenameArgs) -> Result<(), CliError> {
    let (from, to) = (path(&args.from)?, path(&args.to)?);
    text::put_path(&mut changing.result, "path", from.as_bytes());
    text::put_path(&mut changing.result, "to", to.as_bytes());
    changing.change(Request::Rename { from: (&from).into(), to: (&to).into() }, None)
}
