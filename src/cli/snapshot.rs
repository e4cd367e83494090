//! `acetate snapshot`: copies a session.

use std::io::IsTerminal;
use std::path::PathBuf;

use serde_json::Value;

use super::error::CliError;
use super::output::{self, Out};
use super::source::warn_if_unfinished;
use super::{Ending, in_database, text};
use crate::inspect::maintenance::snapshot;
use crate::workspace::transfer;

/// Copy a session as it is at this moment; it may be served at the same time.
///
/// The copy holds all that was answered before, is synced, and has the permissions of the
/// session. It is a session of its own, with an id of its own: it can be served beside the
/// other one, and clients cannot take one for the other.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file, or its URL in a database; it may be served at the same time.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// The copy, a file or a URL; what exists is never overwritten.
    #[arg(value_name = "NEW.db")]
    new: PathBuf,

    /// Print a JSON object: session, copy, bytes, session_id (of the copy; bytes and session_id
    /// are null if one side is in a database).
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    if let Some(copied) = between_databases(args)? {
        return Ok(copied);
    }
    warn_if_unfinished(&args.session, None);
    let mut progress = output::ProgressLine::new("copying", std::io::stderr().is_terminal());
    let copied = snapshot(&args.session, &args.new, &mut |done, all| progress.tell(done, all));
    progress.end();
    let copied = copied?;
    let mut out = Out::new();
    if args.json {
        let mut object = text::json("snapshot");
        text::put_path(&mut object, "session", args.session.as_os_str().as_encoded_bytes());
        text::put_path(&mut object, "copy", args.new.as_os_str().as_encoded_bytes());
        object.insert("bytes".to_owned(), copied.bytes.into());
        object.insert("session_id".to_owned(), copied.id.into());
        out.json(object)?;
    } else {
        let (session, new) = (args.session.display(), args.new.display());
        out.line(format_args!("{session}: copied to {new}, {}", text::bytes(copied.bytes)))?;
    }
    out.end()?;
    Ok(Ending::Done)
}

/// Copies out of a database, or into one; `None` if both sides are files.
fn between_databases(args: &Args) -> Result<Option<Ending>, CliError> {
    let (from, to) = (in_database::url_of(&args.session)?, in_database::url_of(&args.new)?);
    if from.is_none() && to.is_none() {
        return Ok(None);
    }
    let runtime = in_database::start()?;
    let failed = |error| CliError::caused("a temporary directory", &error);
    let place = tempfile::tempdir().map_err(failed)?;
    let between = place.path().join("copy.db");
    match (from, to) {
        (Some(from), None) => transfer::copy(&from, &args.new, runtime.handle())?,
        (Some(from), Some(to)) => {
            transfer::copy(&from, &between, runtime.handle())?;
            transfer::push(&between, &to, runtime.handle())?;
        }
        (None, Some(to)) => {
            snapshot(&args.session, &between, &mut |_, _| ())?;
            transfer::push(&between, &to, runtime.handle())?;
        }
        (None, None) => {}
    }
    let (session, new) = (args.session.as_os_str(), args.new.as_os_str());
    let (session, new) = (session.as_encoded_bytes(), new.as_encoded_bytes());
    if args.json {
        let mut object = text::json("snapshot");
        text::put_path(&mut object, "session", session);
        text::put_path(&mut object, "copy", new);
        object.insert("bytes".to_owned(), Value::Null);
        object.insert("session_id".to_owned(), Value::Null);
        output::json(object);
    } else {
        output::line(format_args!("{}: copied to {}", text::name(session), text::name(new)));
    }
    Ok(Some(Ending::Done))
}
