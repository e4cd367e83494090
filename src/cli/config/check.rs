//! `acetate config check`: checks an exports file and shows what clients mount.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::host_check::{ConfigFinding, look};
use super::show;
use crate::cli::error::CliError;
use crate::cli::output::Out;
use crate::cli::{Ending, text};
use crate::config::{self, Missing};

/// Check an exports file, and show what clients mount.
///
/// Prints each export with its path, secret ones too, and its parts; and a line for each problem on
/// this machine: a base that is missing, a file that is not a session, a schema that is not JSON,
/// or one that recurses so that content may take too long to check. Creates and changes nothing;
/// the exports may be served. Exits with 1 if there are findings, and with 2 if the file itself is
/// wrong.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The exports file (docs/EXPORTS.md).
    #[arg(value_name = "EXPORTS.toml")]
    file: PathBuf,

    /// Print a JSON object for each export and each finding, and one for the file.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let config = config::read(&args.file, Missing::Leave)?;
    let findings = look(&config);
    let mut out = Out::new();
    for export in &config.exports {
        match args.json {
            true => out.json(show::json(export))?,
            false => {
                for line in show::lines(export) {
                    out.line(format_args!("{line}"))?;
                }
            }
        }
    }
    for finding in &findings {
        match args.json {
            true => out.json(json(finding))?,
            false => {
                let what = text::line(finding.what.as_bytes());
                let file = text::name(args.file.as_os_str().as_encoded_bytes());
                out.line(format_args!("{file}:{}: {what}", finding.position))?;
            }
        }
    }
    match args.json {
        true => out.json(summary(args, config.exports.len(), findings.len()))?,
        false => {
            let count = match findings.len() {
                0 => "sound".to_owned(),
                count => text::count(count, "finding"),
            };
            let file = text::name(args.file.as_os_str().as_encoded_bytes());
            out.line(format_args!("{file}: {count}"))?;
        }
    }
    out.end()?;
    Ok(if findings.is_empty() { Ending::Done } else { Ending::Findings })
}

fn json(finding: &ConfigFinding) -> Map<String, Value> {
    let mut object = text::json("config_finding");
    object.insert("line".to_owned(), finding.position.line.into());
    object.insert("column".to_owned(), finding.position.column.into());
    object.insert("what".to_owned(), finding.what.as_str().into());
    object
}

fn summary(args: &Args, exports: usize, findings: usize) -> Map<String, Value> {
    let mut object = text::json("config");
    text::put_path(&mut object, "file", args.file.as_os_str().as_encoded_bytes());
    object.insert("is_sound".to_owned(), (findings == 0).into());
    object.insert("exports".to_owned(), exports.into());
    object.insert("findings".to_owned(), findings.into());
    object
}
