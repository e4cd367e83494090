//! `acetate kv`: the key-value store of a session.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::error::CliError;
use super::output::Out;
use super::{Ending, agent_values, output, text};
use crate::delta::sqlite::{AgentAccess, KvRow};
use crate::inspect::json;
use crate::inspect::kv::KeyValues;

/// Read and write an agent's keys and values in a session.
///
/// Values are JSON. The session may be served at the same time.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: KvCommand,
}

#[derive(Debug, clap::Subcommand)]
enum KvCommand {
    Get(GetArgs),
    Set(SetArgs),
    Rm(RmArgs),
    Ls(KvLsArgs),
}

/// Print the value of a key; exits with 1 if there is none.
#[derive(Debug, clap::Args)]
struct GetArgs {
    /// The session file.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// The key.
    #[arg(value_name = "KEY")]
    key: OsString,

    /// Print a JSON string as the text that it stands for.
    #[arg(long, conflicts_with = "json")]
    raw: bool,

    /// Print a JSON object: key, value, created_at, updated_at.
    #[arg(long)]
    json: bool,
}

/// Set the value of a key.
#[derive(Debug, clap::Args)]
struct SetArgs {
    /// The session file.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// The key.
    #[arg(value_name = "KEY")]
    key: String,

    /// The value, in JSON; `-` reads it from stdin.
    #[arg(allow_negative_numbers = true)]
    value: String,

    /// The value is a text, to be kept as a JSON string.
    #[arg(long)]
    string: bool,

    /// Print a JSON object: key, value, created_at, updated_at.
    #[arg(long)]
    json: bool,
}

/// Remove a key; exits with 1 if it is not there.
#[derive(Debug, clap::Args)]
struct RmArgs {
    /// The session file.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// The key.
    #[arg(value_name = "KEY")]
    key: OsString,

    /// Print what was removed as a JSON object: key, value, created_at, updated_at.
    #[arg(long)]
    json: bool,
}

/// List keys, in order.
#[derive(Debug, clap::Args)]
struct KvLsArgs {
    /// The session file.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// Only keys that begin with this.
    prefix: Option<OsString>,

    /// Show also when each was set last and how long its value is, and mark what is not JSON.
    #[arg(short, long)]
    long: bool,

    /// Print a JSON object for each: key, value, created_at, updated_at.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    match &args.command {
        KvCommand::Get(args) => get(args),
        KvCommand::Set(args) => set(args),
        KvCommand::Rm(args) => remove(args),
        KvCommand::Ls(args) => list(args),
    }
}

fn get(args: &GetArgs) -> Result<Ending, CliError> {
    let kept = KeyValues::open(&args.session, AgentAccess::Read)?;
    let Some(row) = kept.get(args.key.as_bytes())? else { return Ok(missing(&args.key)) };
    let mut out = Out::new();
    if args.json {
        out.json(object(&row))?;
    } else {
        match json::parse(&row.value) {
            Some(Value::String(text)) if args.raw => out.bytes(text.as_bytes())?,
            parsed => {
                if parsed.is_none() {
                    let key = text::name(&row.key);
                    output::line(format_args!("{key}: the value is not JSON"));
                }
                out.bytes(&row.value)?;
            }
        }
        out.bytes(b"\n")?;
    }
    out.end()?;
    Ok(Ending::Done)
}

fn set(args: &SetArgs) -> Result<Ending, CliError> {
    let given = agent_values::read_argument(&args.value)?;
    let value = if args.string { Value::from(given.as_ref()).to_string() } else { given.into() };
    let kept = KeyValues::open(&args.session, AgentAccess::Write)?;
    kept.set(&args.key, &value, Timestamp::now().as_second()).map_err(|error| {
        let is_no_json = agent_values::is_no_json(&error);
        let error = CliError::from(error);
        let hint = "a JSON string needs double quotes; --string takes the text as it is";
        if is_no_json { error.with_hint(hint) } else { error }
    })?;
    if args.json
        && let Some(row) = kept.get(args.key.as_bytes())?
    {
        output::json(object(&row));
    }
    Ok(Ending::Done)
}

fn remove(args: &RmArgs) -> Result<Ending, CliError> {
    let kept = KeyValues::open(&args.session, AgentAccess::Write)?;
    let Some(row) = kept.remove(args.key.as_bytes())? else { return Ok(missing(&args.key)) };
    if args.json {
        output::json(object(&row));
    }
    Ok(Ending::Done)
}

fn list(args: &KvLsArgs) -> Result<Ending, CliError> {
    let kept = KeyValues::open(&args.session, AgentAccess::Read)?;
    let prefix = args.prefix.as_deref().unwrap_or_default();
    let mut out = Out::new();
    for key in kept.keys(prefix.as_bytes())? {
        if !args.json && !args.long {
            out.line(format_args!("{}", text::name(&key.key)))?;
            continue;
        }
        // One transaction per key: a slow reader of stdout does not keep a snapshot open.
        let Some(row) = kept.get(&key.key)? else { continue };
        if args.json {
            out.json(object(&row))?;
            continue;
        }
        let mark = if json::parse(&row.value).is_some() { "" } else { "  (not JSON)" };
        let (time, length) = (agent_values::time(row.updated_at), row.value.len());
        out.line(format_args!("{time:<20} {length:>9} {}{mark}", text::name(&row.key)))?;
    }
    out.end()?;
    Ok(Ending::Done)
}

fn missing(key: &OsString) -> Ending {
    output::line(format_args!("{}: no such key", text::name(key.as_bytes())));
    Ending::Findings
}

/// A key with its value, for `--json`.
pub(super) fn object(row: &KvRow) -> Map<String, Value> {
    let mut object = text::json("kv");
    text::put_path(&mut object, "key", &row.key);
    agent_values::put(&mut object, "value", Some(&row.value));
    agent_values::put_time(&mut object, "created_at", row.created_at);
    agent_values::put_time(&mut object, "updated_at", row.updated_at);
    object
}
