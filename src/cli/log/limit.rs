//! `acetate log limit`: how much of the audit log a session keeps.

use std::path::PathBuf;

use crate::cli::error::CliError;
use crate::cli::output::{self, Out};
use crate::cli::{Ending, text, time_args};
use crate::delta::sqlite::{LogKeep, OpenMode, Session};
use crate::inspect::opened::{host, open_session};
use crate::workspace::layers;

/// Show or set how much of its audit log a session keeps.
///
/// Without a limit the log grows with every change, by about 130 bytes. With one, each server of
/// the session deletes the oldest changes, at its start and once a minute, as `acetate log prune`
/// does. The newest 4,096 changes of the last day stay in any case, also with a smaller number or
/// age, and so does the last change: a server that was killed needs them. With a number and an
/// age, a change stays if either keeps it.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// The session file; a server that has it must be stopped to set a limit.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// Keep so many changes, or those that are younger: 100000, 30d, `2 weeks`; `none` keeps all.
    /// The newest 4,096 of the last day stay in any case.
    #[arg(value_name = "N|AGE", num_args = 0..=2, value_parser = parse)]
    keep: Vec<LogKeep>,

    /// Print a JSON object: session, keep_rows, keep_secs.
    #[arg(long)]
    json: bool,
}

/// Sets the limit, if there is one, and shows it.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let keep = match args.keep.is_empty() {
        true => open_session(&args.session)?.log_keep(),
        false => set(args)?,
    };
    if args.json {
        let mut object = text::json("log_limit");
        text::put_path(&mut object, "session", args.session.as_os_str().as_encoded_bytes());
        object.insert("keep_rows".to_owned(), keep.rows.into());
        object.insert("keep_secs".to_owned(), keep.secs.into());
        output::json(object);
        return Ok(Ending::Done);
    }
    let mut out = Out::new();
    out.line(format_args!("{}: {}", args.session.display(), words(keep)))?;
    out.end()?;
    Ok(Ending::Done)
}

fn failed(args: &Args, error: &crate::delta::StoreError) -> CliError {
    CliError::caused(args.session.display(), error)
}

fn set(args: &Args) -> Result<LogKeep, CliError> {
    let keep = match args.keep[..] {
        [one] => one,
        [LogKeep { rows: Some(rows), .. }, LogKeep { secs: Some(secs), .. }]
        | [LogKeep { secs: Some(secs), .. }, LogKeep { rows: Some(rows), .. }] => {
            LogKeep { rows: Some(rows), secs: Some(secs) }
        }
        _ => {
            let what = "two limits are a number of changes and an age";
            return Err(CliError::new(what));
        }
    };
    let mut session = Session::open(&args.session, OpenMode::Serve, &host()?)?;
    session.record_log_keep(keep).map_err(|error| failed(args, &error))?;
    layers::close(&session)?;
    Ok(keep)
}

/// What stays, in words.
pub(in crate::cli) fn words(keep: LogKeep) -> String {
    let rows = keep.rows.map(|rows| format!("the newest {}", text::count(rows, "change")));
    let secs = keep.secs.map(|secs| format!("changes of the last {}", text::span(secs)));
    match (rows, secs) {
        (None, None) => "keeps all changes".to_owned(),
        (Some(one), None) | (None, Some(one)) => format!("keeps {one}"),
        (Some(rows), Some(secs)) => format!("keeps {rows}, and {secs}"),
    }
}

fn parse(given: &str) -> Result<LogKeep, String> {
    if given == "none" {
        return Ok(LogKeep::default());
    }
    if let Ok(rows) = given.parse() {
        return Ok(LogKeep { rows: Some(rows), secs: None });
    }
    let secs = time_args::secs(given)
        .ok_or("expected a number of changes, an age (30d, 2 weeks), or none")?;
    Ok(LogKeep { rows: None, secs: Some(secs) })
}
