//! `acetate ctx outbox`: lists and acknowledges the events of context nodes, for an external index.

use serde_json::{Map, Value};

use super::place::NodeSession;
use super::print::plain;
use crate::cli::error::CliError;
use crate::cli::output::Out;
use crate::cli::{Ending, output, text};
use crate::context::{ContextError, Event, UriPrefix, WaitingEvent};

/// Take events from the outboxes of nodes.
///
/// An event waits until it is acknowledged. One that failed 3 times goes to the dead letters,
/// until it is acknowledged or tried again.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: OutboxCommand,
}

#[derive(Debug, clap::Subcommand)]
enum OutboxCommand {
    Ls(OutboxLsArgs),
    Ack(AckArgs),
    Fail(FailArgs),
    Retry(RetryArgs),
}

/// List events, the oldest first; exits with 1 if one is not valid.
///
/// A line says when it was made, how often it failed, its id, its type, and the node.
#[derive(Debug, clap::Args)]
struct OutboxLsArgs {
    #[command(flatten)]
    place: NodeSession,

    /// Only those of nodes below this prefix.
    #[arg(value_name = "URI-PREFIX")]
    prefix: Option<UriPrefix>,

    /// List the dead letters instead.
    #[arg(long)]
    dead: bool,

    /// Print a JSON object for each: node (in whose outbox it is), dead, event.
    #[arg(long)]
    json: bool,
}

/// Remove events that were processed; exits with 1 if one is not there.
#[derive(Debug, clap::Args)]
struct AckArgs {
    #[command(flatten)]
    events: Events,

    /// Print a JSON object for each that was removed: event_id.
    #[arg(long)]
    json: bool,
}

/// Count failures to process events; exits with 1 if one is not waiting.
#[derive(Debug, clap::Args)]
struct FailArgs {
    #[command(flatten)]
    events: Events,

    /// Print a JSON object for each: dead, event.
    #[arg(long)]
    json: bool,
}

/// Bring events back from the dead letters; exits with 1 if one is not there.
#[derive(Debug, clap::Args)]
struct RetryArgs {
    #[command(flatten)]
    events: Events,

    /// Print a JSON object for each: dead, event.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Events {
    #[command(flatten)]
    place: NodeSession,

    /// Ids of events, as `ls` shows them.
    #[arg(value_name = "EVENT", required = true)]
    ids: Vec<String>,
}

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    match &args.command {
        OutboxCommand::Ls(args) => list(args),
        OutboxCommand::Ack(args) => acknowledge(args),
        OutboxCommand::Fail(args) => fail(args),
        OutboxCommand::Retry(args) => retry(args),
    }
}

fn list(args: &OutboxLsArgs) -> Result<Ending, CliError> {
    let look = args.place.look()?;
    let mut ending = Ending::Done;
    let mut out = Out::new();
    for waiting in look.at(|nodes| nodes.events(args.prefix.as_ref(), args.dead))? {
        // One transaction per event: a slow reader of stdout does not keep a snapshot open.
        let event = match look.at(|nodes| nodes.event(&waiting)) {
            Ok(Some(event)) => Ok(event),
            Ok(None) => continue,
            Err(error @ ContextError::Document { .. }) => Err(error.to_string()),
            Err(error) => return Err(error.into()),
        };
        if event.is_err() {
            ending = Ending::Findings;
        }
        if args.json {
            out.json(object(&waiting, &event))?;
            continue;
        }
        match event {
            Ok(event) => {
                let kind = event.event_type().as_str();
                let (time, failed) = (event.created_at(), event.retry_count());
                let uri = plain(event.uri());
                out.line(format_args!("{time:<20} {failed} {} {kind:<15} {uri}", event.id()))?;
            }
            Err(what) => output::line(format_args!("{}", plain(&what))),
        }
    }
    out.end()?;
    Ok(ending)
}

fn acknowledge(args: &AckArgs) -> Result<Ending, CliError> {
    let Events { place, ids } = &args.events;
    let found = place.change(|nodes| Ok(nodes.acknowledge(ids)?))?;
    let mut out = Out::new();
    let removed = ids.iter().zip(&found).filter(|(_, found)| **found);
    for (id, _) in removed.filter(|_| args.json) {
        let mut object = text::json("ctx_acknowledged");
        object.insert("event_id".to_owned(), id.as_str().into());
        out.json(object)?;
    }
    out.end()?;
    Ok(missing(ids, &found, "no such event"))
}

fn fail(args: &FailArgs) -> Result<Ending, CliError> {
    let Events { place, ids } = &args.events;
    let failed = place.change(|nodes| Ok(nodes.fail(ids)?))?;
    let mut out = Out::new();
    for failed in failed.iter().flatten() {
        if args.json {
            out.json(changed(&failed.event, failed.is_dead))?;
        } else if failed.is_dead {
            let times = text::count(failed.event.retry_count(), "time");
            let id = failed.event.id();
            output::line(format_args!("{id}: failed {times}; it is a dead letter now"));
        }
    }
    out.end()?;
    let found: Vec<bool> = failed.iter().map(Option::is_some).collect();
    Ok(missing(ids, &found, "no such event waits"))
}

fn retry(args: &RetryArgs) -> Result<Ending, CliError> {
    let Events { place, ids } = &args.events;
    let events = place.change(|nodes| Ok(nodes.retry(ids)?))?;
    let mut out = Out::new();
    for event in events.iter().flatten().filter(|_| args.json) {
        out.json(changed(event, false))?;
    }
    out.end()?;
    let found: Vec<bool> = events.iter().map(Option::is_some).collect();
    Ok(missing(ids, &found, "no such event among the dead letters"))
}

/// Reports the ids that were not found.
fn missing(ids: &[String], found: &[bool], what: &str) -> Ending {
    let mut ending = Ending::Done;
    for (id, _) in ids.iter().zip(found).filter(|(_, found)| !**found) {
        output::line(format_args!("{id}: {what}"));
        ending = Ending::Findings;
    }
    ending
}

fn object(waiting: &WaitingEvent, event: &Result<Event, String>) -> Map<String, Value> {
    let mut object = match event {
        Ok(event) => changed(event, waiting.is_dead),
        Err(what) => {
            let mut object = text::json("ctx_event");
            object.insert("dead".to_owned(), waiting.is_dead.into());
            object.insert("event".to_owned(), Value::Null);
            object.insert("invalid".to_owned(), what.as_str().into());
            object
        }
    };
    object.insert("node".to_owned(), waiting.node.as_str().into());
    object
}

fn changed(event: &Event, is_dead: bool) -> Map<String, Value> {
    let mut object = text::json("ctx_event");
    object.insert("dead".to_owned(), is_dead.into());
    object.insert("event".to_owned(), Value::Object(event.fields().clone()));
    object
}
