//! `acetate checkpoint`: moments whose tree a session can still show.

pub(super) mod before_step;
mod create;
mod incomplete;
mod ls;
mod prune;
mod rm;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::change::{SessionChanger, with_session_changer};
use super::error::CliError;
use super::mount_events::sync_mounts;
use super::output::{self, Out};
use super::source::SessionSource;
use super::{Ending, text, time_args};
use crate::control::{Answer, CheckpointText, Request};
use crate::delta::sqlite::Session;
use crate::delta::{Checkpoint, CheckpointId, CheckpointKeep, CheckpointKind, CheckpointSpace};
use crate::inspect::InspectError;
use crate::inspect::checkpoint::{find_checkpoint, nearest};
use crate::vfs::Time;
pub(super) use create::create;
pub(super) use incomplete::{check_complete, warn_if_incomplete};
pub(super) use ls::json;

/// Make, list and remove checkpoints of a session.
///
/// A checkpoint is a moment whose tree can be looked at later: `acetate ls`, `tree`, `cat`, `stat`,
/// `find`, `du`, `diff` and `export` take `--at CHECKPOINT`, `diff --from` shows what changed
/// since, and `acetate restore` goes back to it. The session may be served at the same time. What
/// the base shows through is the base as it is now.
///
/// `acetate run` and `acetate tool run` make one before the command, `acetate restore`, `undo`,
/// `discard`, `apply` and `merge` before they change the session, if anything changed since the
/// newest; with `--checkpoints idle`, a server makes one after changes. Of these the newest 100 are
/// kept, one for each hour of the last day, and one for each day before, unless
/// `--keep-checkpoints` of `serve`, `mount` or `run` said otherwise.
///
/// A checkpoint is called by its id, its name, its place (`@-1` is the newest, `@-2` the one before
/// it), or a moment, for the newest that was made by then.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: CheckpointCommand,
}

#[derive(Debug, clap::Subcommand)]
enum CheckpointCommand {
    Create(create::Args),
    Ls(ls::Args),
    Rm(rm::Args),
    Prune(prune::Args),
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    match &args.command {
        CheckpointCommand::Create(args) => create::run(args),
        CheckpointCommand::Ls(args) => ls::run(args),
        CheckpointCommand::Rm(args) => rm::run(args),
        CheckpointCommand::Prune(args) => prune::run(args),
    }
}

/// The moment that a text names.
pub(super) fn moment(text: &str) -> Option<Time> {
    time_args::parse(text).ok().map(time_args::time)
}

/// The checkpoint that a user means.
pub(super) fn find(session: &Session, text: &str) -> Result<Checkpoint, CliError> {
    let found = find_checkpoint(session, text, &moment);
    found.map_err(|error| {
        let meant = match &error {
            InspectError::NoCheckpoint { text, others } => nearest(text, others),
            _ => None,
        };
        let meant = meant.map(|name| format!("did you mean {}? ", text::name(name.as_bytes())));
        let (meant, session) = (meant.unwrap_or_default(), session.path().display());
        CliError::from(error)
            .with_hint(format_args!("{meant}`acetate checkpoint ls {session}` lists them"))
    })
}

/// Removes a checkpoint; returns whether it was there.
fn remove(changer: &mut SessionChanger, id: CheckpointId) -> Result<bool, CliError> {
    match changer.ask(Request::RemoveCheckpoint(id.0))? {
        Answer::Objects(removed) => Ok(removed > 0),
        _ => Err(CliError::new("unexpected reply from the session's server")),
    }
}

/// Makes a checkpoint before a command runs, unless nothing changed since the newest one; returns
/// that of this moment. Without one, the command runs all the same.
pub(super) fn before_command(session: &Path, label: (&str, &str)) -> Option<CheckpointId> {
    let labels = BTreeMap::from([(label.0.to_owned(), label.1.to_owned())]);
    let kind = CheckpointKind::Tool.as_str().to_owned();
    let new = CheckpointText { name: None, kind, labels, reuses: true };
    let source = SessionSource::of(session);
    sync_mounts(session);
    let made = with_session_changer(&source, |changer| changer.ask(Request::CreateCheckpoint(new)));
    match made {
        Ok(Answer::CheckpointsOff) => output::line(format_args!(
            "no checkpoint before the command: the session's server makes none (--checkpoints off)"
        )),
        Ok(Answer::Checkpoint(Some(id)) | Answer::CheckpointReused(id)) => {
            return Some(CheckpointId(id));
        }
        Ok(_) => {}
        Err(error) => output::line(format_args!(
            "warning: no checkpoint was made before the command: {error}"
        )),
    }
    None
}

/// What a session's checkpoints take, in words.
pub(super) fn space_words(space: CheckpointSpace) -> String {
    let count = text::count(space.checkpoints, "checkpoint");
    let (saved, most) = (text::bytes(space.saved_bytes), text::bytes(space.max_bytes));
    let stuck = match space.is_stuck() {
        true => "; removing an automatic one frees nothing (acetate checkpoint rm)",
        false => "",
    };
    let incomplete = match space.incomplete {
        0 => String::new(),
        count => format!("; {count} incomplete"),
    };
    format!("{count}, {saved} saved for them, of at most {most}{stuck}{incomplete}")
}

/// The same as JSON.
pub(super) fn space_json(space: CheckpointSpace) -> Value {
    serde_json::json!({
        "count": space.checkpoints,
        "saved_bytes": space.saved_bytes,
        "max_bytes": space.max_bytes,
        "is_stuck": space.is_stuck(),
        "incomplete": space.incomplete,
    })
}

/// Which automatic checkpoints a session keeps, in words.
pub(super) fn keep_words(keep: CheckpointKeep) -> String {
    let CheckpointKeep { newest, hourly_secs, daily_secs, max_bytes } = keep;
    let mut words = format!("keeps the newest {newest}");
    if hourly_secs > 0 {
        words.push_str(&format!(", then one an hour for {}", text::span(hourly_secs)));
    }
    match daily_secs {
        None => words.push_str(", then one a day"),
        Some(secs) if secs > hourly_secs => {
            words.push_str(&format!(", then one a day for {}", text::span(secs)));
        }
        Some(_) => {}
    }
    if let Some(bytes) = max_bytes {
        words.push_str(&format!("; at most {}", text::bytes(bytes)));
    }
    words
}

/// The same as JSON.
pub(super) fn keep_json(keep: CheckpointKeep) -> Value {
    let CheckpointKeep { newest, hourly_secs, daily_secs, max_bytes } = keep;
    serde_json::json!({
        "newest": newest,
        "hourly_secs": hourly_secs,
        "daily_secs": daily_secs,
        "max_bytes": max_bytes,
    })
}

/// How messages call a checkpoint.
pub(super) fn called(checkpoint: &Checkpoint) -> String {
    match &checkpoint.name {
        Some(name) => format!("{} ({})", checkpoint.id, text::name(name.as_bytes())),
        None => checkpoint.id.to_string(),
    }
}

/// Prints that a checkpoint was removed, or would be.
fn print_removed(
    out: &mut Out,
    (verb, is_json): (&str, bool),
    checkpoint: &Checkpoint,
) -> Result<(), CliError> {
    if !is_json {
        return out.line(format_args!("{verb} {}", called(checkpoint)));
    }
    let mut json = text::json("checkpoint_removed");
    json.insert("id".to_owned(), checkpoint.id.0.into());
    json.insert("name".to_owned(), checkpoint.name.clone().into());
    out.json(json)
}
