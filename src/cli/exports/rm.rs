//! `acetate exports rm`.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::removal::{RemovedExport, remove};
use crate::cli::error::CliError;
use crate::cli::output::{self, Out};
use crate::cli::{Ending, text};
use crate::control::ExportsConnection;

/// Remove an export of exports.d, which a running server stops serving at once.
///
/// What clients have mounted there is stale then. The sessions stay, unless --delete is given. An
/// export in the exports file itself is removed by hand.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The exports file (docs/EXPORTS.md).
    #[arg(value_name = "EXPORTS.toml")]
    file: PathBuf,

    /// The name of the export.
    #[arg(value_name = "NAME")]
    name: String,

    /// Delete its sessions too, with all changes in them.
    ///
    /// Refused if another export or a template may use one of them, or a command does.
    #[arg(long)]
    delete: bool,

    /// Print a JSON object: name, is_served, deleted (paths of sessions).
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let mut server = ExportsConnection::open(&args.file)?;
    let removed = remove(&args.file, &args.name, args.delete, &mut server);
    let removed = removed.map_err(|failed| failed.error)?;
    let mut out = Out::new();
    match args.json {
        true => out.json(json(&args.name, &removed))?,
        false => {
            for session in &removed.sessions {
                let session = text::name(session.as_os_str().as_encoded_bytes());
                out.line(format_args!("deleted {session}"))?;
            }
        }
    }
    out.end()?;
    if !args.json {
        let what = if removed.is_served { "is no longer served" } else { "is removed" };
        output::line(format_args!("{} {what}", args.name));
    }
    if !removed.is_served {
        let file = text::name(args.file.as_os_str().as_encoded_bytes());
        let what = format!("the next start no longer serves {}", args.name);
        output::line(format_args!("no server of {file} answers: {what}"));
    }
    Ok(Ending::Done)
}

/// A removal as JSON.
pub(in crate::cli) fn json(
    name: &str,
    RemovedExport { sessions, is_served }: &RemovedExport,
) -> Map<String, Value> {
    let mut object = text::json("export_removed");
    object.insert("name".to_owned(), name.into());
    object.insert("is_served".to_owned(), (*is_served).into());
    let paths = sessions.iter().map(|session| session.to_string_lossy().into_owned());
    object.insert("deleted".to_owned(), paths.collect::<Vec<_>>().into());
    object
}
