//! `acetate config check`: checks an exports file and shows what clients mount.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::files::is_there;
use super::host_check::{ConfigFinding, look};
use super::{show, template_check};
use crate::cli::error::CliError;
use crate::cli::output::Out;
use crate::cli::{Ending, text};
use crate::config::{self, Config, ExportConfig, Missing, TemplateConfig};

/// Check an exports file with its exports.d, and show what clients mount.
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

    /// Show only what a client gets that mounts this path, with its token or without.
    #[arg(long, value_name = "PATH")]
    path: Option<String>,

    /// Print a JSON object for each export and each finding, and one for the file.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let mut config = config::read(&args.file, Missing::Leave)?;
    let (mut missing, mut creates) = (Vec::new(), true);
    if let Some(path) = &args.path {
        let export = export_at(&config, path);
        let export = export.ok_or_else(|| super::no_such_path(&config, path))?;
        creates = creates_sessions(&export, &config.templates);
        missing = missing_sessions(&export, creates);
        (config.exports, config.templates) = (vec![export], Vec::new());
    }
    let mut findings = look(&config, creates);
    findings.extend(template_check::look(&config));
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
    for template in &config.templates {
        match args.json {
            true => out.json(show::template_json(template))?,
            false => {
                for line in show::template_lines(template) {
                    out.line(format_args!("{line}"))?;
                }
            }
        }
    }
    if !args.json {
        for line in &missing {
            out.line(format_args!("  {line}"))?;
        }
        for line in show::server_lines(&config) {
            out.line(format_args!("{line}"))?;
        }
    }
    for finding in &findings {
        match args.json {
            true => out.json(json(finding))?,
            false => {
                let what = text::line(finding.what.as_bytes());
                let file = text::name(finding.file.as_os_str().as_encoded_bytes());
                out.line(format_args!("{file}:{}: {what}", finding.position))?;
            }
        }
    }
    match args.json {
        true => out.json(summary(args, &config, findings.len()))?,
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

/// What a client gets that mounts a path.
fn export_at(config: &Config, path: &str) -> Option<ExportConfig> {
    let is_it =
        |export: &&ExportConfig| export.path.as_ref().is_some_and(|known| known.as_str() == path);
    let written = config.exports.iter().find(is_it).cloned();
    let templates = &config.templates;
    let with_token = || templates.iter().find_map(|it| it.instance(path.as_bytes()));
    let without = || {
        let mounted = templates.iter().find_map(|it| it.mounted_path(path))?;
        templates.iter().find_map(|it| it.instance(mounted.as_bytes()))
    };
    written.or_else(with_token).or_else(without)
}

/// Whether a mount of an instance of a template makes its sessions.
fn creates_sessions(export: &ExportConfig, templates: &[TemplateConfig]) -> bool {
    let template = export.template.as_ref();
    let template = template.and_then(|name| templates.iter().find(|it| it.to_string() == *name));
    template.is_none_or(|template| template.creates)
}

/// What a mount of an instance does about its sessions that do not exist.
fn missing_sessions(export: &ExportConfig, creates: bool) -> Vec<String> {
    if export.template.is_none() {
        return Vec::new();
    }
    let does = if creates { "a mount makes it" } else { "a mount fails (create = false)" };
    let sessions = export.mounts.iter().filter_map(|mount| mount.session());
    let missing = sessions.filter(|session| !is_there(session));
    let line = |session: &PathBuf| {
        let session = text::name(session.as_os_str().as_encoded_bytes());
        format!("session {session} does not exist: {does}")
    };
    missing.map(line).collect()
}

fn json(finding: &ConfigFinding) -> Map<String, Value> {
    let mut object = text::json("config_finding");
    object.insert("line".to_owned(), finding.position.line.into());
    object.insert("column".to_owned(), finding.position.column.into());
    object.insert("what".to_owned(), finding.what.as_str().into());
    text::put_path(&mut object, "file", finding.file.as_os_str().as_encoded_bytes());
    object
}

fn summary(args: &Args, config: &Config, findings: usize) -> Map<String, Value> {
    let mut object = text::json("config");
    text::put_path(&mut object, "file", args.file.as_os_str().as_encoded_bytes());
    object.insert("is_sound".to_owned(), (findings == 0).into());
    object.insert("exports".to_owned(), config.exports.len().into());
    object.insert("templates".to_owned(), config.templates.len().into());
    object.insert("idle_close".to_owned(), config.idle_close.as_secs().into());
    object.insert("max_open".to_owned(), config.max_open.into());
    let ephemeral_expire = config.ephemeral_expire.as_secs();
    object.insert("ephemeral_expire".to_owned(), ephemeral_expire.into());
    object.insert("findings".to_owned(), findings.into());
    object
}
