//! `acetate tool run`: runs a command and records it as a tool call.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use jiff::Timestamp;
use serde_json::Value;

use crate::cli::child::Runner;
use crate::cli::error::CliError;
use crate::cli::mount_events::sync_mounts;
use crate::cli::{Ending, agent_values, checkpoint, output};
use crate::delta::sqlite::{AgentAccess, CallBegin, NewCall};
use crate::inspect::json;
use crate::inspect::tool::ToolCalls;

/// Run a command, and record it as a tool call.
///
/// The exit code is the command's, or 128 plus the number of the signal that ended it. The result
/// is {"exit_code":0}; any other end is an error. Nothing is run if the session cannot be written.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// The tool's name.
    #[arg(value_name = "TOOL")]
    name: String,

    /// What to record as its parameters, in JSON [default: {"command":[CMD...]}].
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    parameters: Option<String>,

    /// Make no checkpoint before the command.
    ///
    /// One is made unless nothing changed since the newest; `acetate checkpoint ls` lists it.
    #[arg(long)]
    no_checkpoint: bool,

    /// The command with its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let parameters = match &args.parameters {
        Some(text) => json::checked("parameters", &agent_values::read_argument(text)?)?.to_owned(),
        None => command_line(&args.command),
    };
    let begin = begin(args)?;
    let started_at = Timestamp::now().as_second();
    // First: from here on, signals do not end this process before the command.
    let mut runner = Runner::new()?;
    let [program, words @ ..] = &*args.command else {
        return Err(CliError::new("no command"));
    };
    let mut command = Command::new(program);
    command.args(words);
    let ended = runner.run(command, None)?;
    // The clock may have been set back.
    let completed_at = Timestamp::now().as_second().max(started_at);
    // What the command wrote is in the log then, as far as this machine's mounts go.
    sync_mounts(&args.session);
    let success = serde_json::json!({ "exit_code": 0 }).to_string();
    let outcome = ended.outcome.as_ref().map(|()| &*success).map_err(String::as_str);
    let call = NewCall {
        name: &args.name,
        parameters: Some(&parameters),
        outcome,
        started_at,
        completed_at,
        begin: Some(begin),
    };
    let recorded =
        ToolCalls::open(&args.session, AgentAccess::Write).and_then(|calls| calls.record(&call));
    match recorded {
        Err(error) if ended.code == 0 => Err(error.into()),
        Err(error) => {
            output::error(&error.into());
            Ok(Ending::Exit(ended.code))
        }
        Ok(_) => Ok(Ending::Exit(ended.code)),
    }
}

/// Makes the checkpoint; returns where the call's rows of the log begin.
fn begin(args: &Args) -> Result<CallBegin, CliError> {
    // Closes the session again each time, because the command may need to lock it.
    let open = || ToolCalls::open(&args.session, AgentAccess::Write);
    let calls = open()?;
    calls.require_writable()?;
    let before = calls.begin()?;
    drop(calls);
    let made = match args.no_checkpoint {
        true => None,
        false => checkpoint::before_command(&args.session, ("tool", &args.name)),
    };
    if made.is_some() {
        return Ok(CallBegin { checkpoint: made, ..before });
    }
    if args.no_checkpoint {
        sync_mounts(&args.session);
    }
    Ok(open()?.begin()?)
}

fn command_line(command: &[OsString]) -> String {
    let words: Vec<Value> = command.iter().map(|word| word.to_string_lossy().into()).collect();
    serde_json::json!({ "command": words }).to_string()
}
