//! `acetate exports rm`.

use std::path::PathBuf;

use crate::cli::error::CliError;
use crate::cli::export_set::not_served;
use crate::cli::export_set::removal::{ExportRemoval, RemovalApplied, remove};
use crate::cli::output::{self, Out};
use crate::cli::{Ending, text};
use crate::control::ExportsConnection;
use crate::workspace::exports::base_probes::BaseProbes;

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

    /// Print a JSON object: name, is_applied (whether a server took it), deleted (paths of
    /// sessions).
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let mut server = ExportsConnection::open(&args.file)?;
    let removal = ExportRemoval { name: &args.name, deletes: args.delete };
    let removed = remove(&args.file, removal, &BaseProbes::default(), &mut server);
    let removed = removed.map_err(|failed| failed.error)?;
    let name = text::name(args.name.as_bytes());
    let mut out = Out::new();
    match (args.json, &removed.applied) {
        (true, _) => out.json(removed.json(&args.name))?,
        (false, RemovalApplied::Yes) => out.line(format_args!("{name} is no longer served"))?,
        (false, _) => out.line(format_args!("{name} is removed"))?,
    }
    for session in removed.sessions.iter().filter(|_| !args.json) {
        let session = text::name(session.as_os_str().as_encoded_bytes());
        out.line(format_args!("deleted {session}"))?;
    }
    out.end()?;
    match removed.applied {
        RemovalApplied::Yes => {}
        RemovalApplied::NoServer => {
            let next = not_served(&args.file, &format!("no longer serves {name}"));
            output::line(format_args!("warning: {next}"));
        }
        RemovalApplied::NotYet(why) => {
            output::line(format_args!("warning: the server serves what it did before: {why}"));
        }
    }
    Ok(Ending::Done)
}
