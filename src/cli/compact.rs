//! `acetate compact`: gives the space of deleted content back to the disk.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use super::change::connect;
use super::error::CliError;
use super::{Ending, output, text};
use crate::control::{Answer, ControlError, Request};
use crate::delta::Compacted;
use crate::delta::sqlite::OpenError;
use crate::inspect::maintenance::compact;
use crate::inspect::opened::open_session;

/// Give the space of deleted content back to the disk.
///
/// What the session holds stays the same: content, numbers, handles, the audit log. A session that
/// is served is compacted by its server: changes wait while it runs, reads continue. Takes free
/// space of up to twice what is in use, for as long as it runs; may be killed at any time.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// Print a JSON object: session, before_bytes, after_bytes, is_delayed.
    #[arg(long)]
    json: bool,
}

fn compact_here(session: &Path) -> Result<Compacted, CliError> {
    let mut progress = output::ProgressLine::new("compacting", std::io::stderr().is_terminal());
    let compacted = compact(session, &mut |done, all| progress.tell(done, all));
    progress.end();
    compacted.map_err(|error| {
        let in_use = matches!(error, OpenError::InUse { .. });
        let error = CliError::from(error);
        let hint = "stop that server first; its mounts continue when it serves again";
        if in_use { error.with_hint(hint) } else { error }
    })
}

/// Adds how much space a server needs to compact, if it has too little.
fn explained(args: &Args, error: ControlError) -> CliError {
    let is_full = matches!(&error, ControlError::Refused(refusal) if refusal.is_full);
    let error = CliError::from(error);
    let figures = open_session(&args.session).ok().and_then(|session| session.stats().ok());
    match figures.filter(|_| is_full) {
        Some(figures) => {
            let used = figures.file_bytes.saturating_sub(figures.free_bytes);
            let needed = text::bytes(used.saturating_mul(2));
            error.with_hint(format_args!("compacting needs about {needed} of free space beside it"))
        }
        None => error,
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let compacted = match connect(&args.session)? {
        Some(mut server) => match server.ask(&Request::Compact).map_err(|e| explained(args, e))? {
            Answer::Compacted { before_bytes, after_bytes, is_delayed } => {
                Compacted { before_bytes, after_bytes, is_delayed }
            }
            _ => return Err(CliError::new("unexpected reply from the session's server")),
        },
        None => compact_here(&args.session)?,
    };
    let session = args.session.display();
    if args.json {
        let mut object = text::json("compact");
        object.insert("session".to_owned(), session.to_string().into());
        object.insert("before_bytes".to_owned(), compacted.before_bytes.into());
        object.insert("after_bytes".to_owned(), compacted.after_bytes.into());
        object.insert("is_delayed".to_owned(), compacted.is_delayed.into());
        output::json(object);
        return Ok(Ending::Done);
    }
    let (before, after) = (text::bytes(compacted.before_bytes), text::bytes(compacted.after_bytes));
    output::data(format_args!("{session}: {before} before, {after} after"));
    if compacted.is_delayed {
        output::line(format_args!(
            "another program reads the session; its space comes back when that has ended and the \
             session is opened again"
        ));
    }
    Ok(Ending::Done)
}
