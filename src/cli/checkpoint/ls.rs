//! `acetate checkpoint ls`: lists checkpoints.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::space_words;
use crate::cli::applied_since::AppliedSince;
use crate::cli::error::CliError;
use crate::cli::output::{self, Out};
use crate::cli::{Ending, text};
use crate::delta::sqlite::ListedCheckpoint;
use crate::delta::{CheckpointSpace, Incomplete};
use crate::inspect::checkpoint::{checkpoint_space, list_checkpoints};
use crate::inspect::opened::open_session;

/// List the checkpoints of a session, the oldest first.
///
/// For each: its id, when it was made, its kind, how many paths changed since the one before it,
/// the space of what is kept for it alone, its name and labels, whether changes were applied to the
/// base since, and whether it is incomplete: then `acetate restore` needs --force, and says what
/// may be wrong. Exits with 1 if there are none.
/// `acetate status` shows what all of them take, and how much that may be.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// The session file; it may be served at the same time.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// Print a JSON object for each: id, name, kind, time, labels, last_op, changed_paths,
    /// saved_rows, saved_bytes, applied_since (to the base; null if that is not known), incomplete
    /// (null, or other-program, no-room).
    #[arg(long)]
    json: bool,
}

/// Lists them.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let session = open_session(&args.session)?;
    let all = list_checkpoints(&session)?;
    let mut out = Out::new();
    for listed in &all {
        let applied = AppliedSince::of(&session, None, listed.applies);
        match args.json {
            true => out.json(json(listed, applied))?,
            false => out.line(format_args!("{}", line(listed, applied)))?,
        }
    }
    out.end()?;
    if all.is_empty() && !args.json {
        output::line(format_args!("the session has no checkpoints"));
    }
    if let Some(space) = checkpoint_space(&session)?.filter(CheckpointSpace::is_stuck) {
        output::line(format_args!("{}", space_words(space)));
    }
    Ok(if all.is_empty() { Ending::Findings } else { Ending::Done })
}

fn line(listed: &ListedCheckpoint, applied: AppliedSince) -> String {
    let ListedCheckpoint { checkpoint, changed_paths, saved_bytes, .. } = listed;
    let name = checkpoint.name.as_deref().map(|name| format!("  {}", text::name(name.as_bytes())));
    let labels = checkpoint.labels.iter();
    let labels: Vec<_> = labels.map(|(key, value)| format!("  {key}={value}")).collect();
    format!(
        "{:>6}  {}  {:<6}  {:>12}  {:>9}{}{}{}{}",
        checkpoint.id.0,
        text::time_millis(checkpoint.time),
        checkpoint.kind.as_str(),
        format!("{} changed", text::count(*changed_paths, "path")),
        text::bytes(*saved_bytes),
        name.unwrap_or_default(),
        text::printable(&labels.concat()),
        if applied == AppliedSince::Yes { "  (before an apply)" } else { "" },
        if checkpoint.incomplete.is_some() { "  incomplete" } else { "" },
    )
}

/// A checkpoint for `--json`.
pub(in crate::cli) fn json(listed: &ListedCheckpoint, applied: AppliedSince) -> Map<String, Value> {
    let ListedCheckpoint { checkpoint, changed_paths, saved_rows, saved_bytes, .. } = listed;
    let mut json = text::json("checkpoint");
    json.insert("id".to_owned(), checkpoint.id.0.into());
    json.insert("name".to_owned(), checkpoint.name.clone().into());
    json.insert("kind".to_owned(), checkpoint.kind.as_str().into());
    json.insert("time".to_owned(), text::time(checkpoint.time).into());
    let labels = checkpoint.labels.iter().map(|(key, value)| (key.clone(), value.clone().into()));
    json.insert("labels".to_owned(), Value::Object(labels.collect()));
    json.insert("last_op".to_owned(), checkpoint.last_op.into());
    json.insert("changed_paths".to_owned(), (*changed_paths).into());
    json.insert("saved_rows".to_owned(), (*saved_rows).into());
    json.insert("saved_bytes".to_owned(), (*saved_bytes).into());
    json.insert("applied_since".to_owned(), applied.json().into());
    json.insert("incomplete".to_owned(), checkpoint.incomplete.map(Incomplete::as_str).into());
    json
}
