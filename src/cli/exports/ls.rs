//! `acetate exports ls`.

use std::path::PathBuf;

use crate::cli::error::CliError;
use crate::cli::export_set::listing::{expires_at, json, served, written};
use crate::cli::output::{self, Out};
use crate::cli::{Ending, text};
use crate::config::{self, Missing};
use crate::control::{ExpiryText, ExportText, ExportsConnection};

/// List the exports of an exports file, of its exports.d and of its templates.
///
/// Prints the name, the path with its token, whether a running server has the export open, and
/// the file or the template that it is from. An export of a template is kept, or expires at the
/// earliest at the time that is shown: if nothing uses it, and the server runs. Without a server,
/// exports of templates are not listed.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The exports file (docs/EXPORTS.md).
    #[arg(value_name = "EXPORTS.toml")]
    file: PathBuf,

    /// Print a JSON object for each: name, path, state (open, closed or unavailable; null without
    /// a server), file, template, is_kept, expire (seconds), expires_at.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let mut server = ExportsConnection::open(&args.file)?;
    let served = served(&mut server)?;
    let is_served = served.is_some();
    let exports = match served {
        Some(exports) => exports,
        None => written(&config::read(&args.file, Missing::Leave)?),
    };
    let mut out = Out::new();
    for export in &exports {
        match args.json {
            true => out.json(json(export))?,
            false => out.line(format_args!("{}", line(export)))?,
        }
    }
    out.end()?;
    if !is_served && !args.json {
        let file = text::name(args.file.as_os_str().as_encoded_bytes());
        output::line(format_args!("no server of {file} answers: this is what the files have"));
    }
    Ok(Ending::Done)
}

fn line(export: &ExportText) -> String {
    let ExportText { name, path, file, template, state, expiry } = export;
    let path = match path {
        Some(path) => text::name(path.as_bytes()),
        None => format!("/{name}-TOKEN"),
    };
    let from = match template {
        Some(template) => format!("template {}", text::name(template.as_bytes())),
        None => text::name(file.as_os_str().as_encoded_bytes()),
    };
    let state = state.as_deref().unwrap_or("-");
    let expiry = expiry.as_ref().map(expiry_words).unwrap_or_default();
    format!("{}  {path}  {state}  {from}{expiry}", text::name(name.as_bytes()))
}

/// Whether an instance is kept, or when it may be removed, after two spaces.
fn expiry_words(expiry: &ExpiryText) -> String {
    match (expiry.is_kept, expiry.expire_secs, expires_at(expiry)) {
        (true, Some(_), _) => "  kept".to_owned(),
        (true, None, _) => "  kept, without `expire`".to_owned(),
        (false, _, Some(at)) => format!("  expires {at}"),
        (false, Some(secs), None) => format!("  expires {} after its last use", text::span(secs)),
        (false, None, None) => String::new(),
    }
}
