//! `acetate snapshot`: copies a session.

use std::io::IsTerminal;
use std::path::PathBuf;

use super::error::CliError;
use super::output::{self, Out};
use super::source::warn_if_unfinished;
use super::{Ending, text};
use crate::inspect::maintenance::snapshot;

/// Copy a session as it is at this moment; it may be served at the same time.
///
/// The copy holds all that was answered before, is synced, and has the permissions of the
/// session. It is a session of its own, with an id of its own: it can be served beside the
/// other one, and clients cannot take one for the other.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file; it may be served at the same time.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// The copy; an existing file is never overwritten.
    #[arg(value_name = "NEW.db")]
    new: PathBuf,

    /// Print a JSON object: session, copy, bytes, session_id (of the copy).
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
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
