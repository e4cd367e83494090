//! `acetate exports add`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::cli::error::CliError;
use crate::cli::export_set::adding::{AddedExport, AdditionOrigin, ExportAddition, add, check};
use crate::cli::export_set::not_served;
use crate::cli::output::{self, Out};
use crate::cli::{Ending, text};
use crate::config::NewExport;
use crate::config::limits::MAX_ADDED_BYTES;
use crate::control::ExportsConnection;
use crate::delta::postgres::SessionUrl;
use crate::system_error::words;
use crate::workspace::exports::base_probes::BaseProbes;

/// Add an export, which a running server serves at once.
///
/// Writes exports.d/NAME.toml beside the exports file, so that each start has the export too. The
/// export is that of --from, or one with a mount at /. It is checked before, as by `acetate config
/// check`; after an error, nothing is changed.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The exports file (docs/EXPORTS.md).
    #[arg(value_name = "EXPORTS.toml")]
    file: PathBuf,

    /// The name of the export: letters, digits, '.', '_' and '-'.
    #[arg(value_name = "NAME")]
    name: String,

    /// Take the export from this file, which has one [[export]]; `-` for standard input.
    ///
    /// Relative paths in it begin at the directory of the exports file.
    #[arg(long, value_name = "FILE.toml")]
    #[arg(conflicts_with_all = [
        "path", "token", "session", "ephemeral", "base", "clients", "options", "bytes", "files",
    ])]
    from: Option<PathBuf>,

    /// What clients mount [default: /NAME].
    #[arg(long, value_name = "PATH", conflicts_with = "token")]
    path: Option<String>,

    /// Let the path be /NAME-TOKEN, which cannot be guessed.
    #[arg(long)]
    token: bool,

    /// Its session: a file, or postgres://USER@HOST/DATABASE/NAME.
    #[arg(long, value_name = "SESSION.db", required_unless_present_any = ["from", "ephemeral"])]
    session: Option<PathBuf>,

    /// Keep its changes in memory.
    #[arg(long, conflicts_with = "session")]
    ephemeral: bool,

    /// The base directory.
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,

    /// Who may mount: an address, a network or `*`; repeatable [default: this machine].
    #[arg(long = "client", value_name = "ADDR")]
    clients: Vec<String>,

    /// A word of exports(5), such as ro or all_squash; repeatable.
    #[arg(long = "option", value_name = "WORD")]
    options: Vec<String>,

    /// The quota of content, with a unit or none.
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    bytes: Option<String>,

    /// The quota of files.
    #[arg(long, value_name = "COUNT", hide_short_help = true)]
    files: Option<u64>,

    /// Replace the export of this name in exports.d.
    #[arg(long)]
    replace: bool,

    /// Print a JSON object: name, path, is_replaced, is_served.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let written = match &args.from {
        Some(from) => read(from)?,
        None => args.written()?,
    };
    let origin = match &args.from {
        None => AdditionOrigin::Options,
        Some(from) if is_stdin(from) => AdditionOrigin::Text,
        Some(from) => AdditionOrigin::File(from),
    };
    let replaces = args.replace;
    let addition = ExportAddition { name: &args.name, text: &written, replaces, origin };
    let checked = check(&args.file, addition, &BaseProbes::default());
    let checked = checked.map_err(|failed| failed.error)?;
    let mut server = ExportsConnection::open(&args.file)?;
    let added = add(&args.file, addition, checked, &mut server).map_err(|failed| failed.error)?;
    tell(args, &added)
}

fn tell(args: &Args, added: &AddedExport) -> Result<Ending, CliError> {
    let AddedExport { path, is_served, .. } = added;
    let mut out = Out::new();
    match args.json {
        true => out.json(added.json(&args.name))?,
        false => {
            let what = if *is_served { "is served" } else { "is for the next start" };
            let path = match path {
                Some(path) => text::name(path.as_bytes()),
                None => format!("/{}-TOKEN", args.name),
            };
            out.line(format_args!("{path} {what}"))?;
        }
    }
    out.end()?;
    for warning in &added.warnings {
        output::line(format_args!("warning: {warning}"));
    }
    if !is_served {
        let next = not_served(&args.file, &format!("takes {}", args.name));
        output::line(format_args!("warning: {next}"));
    }
    Ok(Ending::Done)
}

fn is_stdin(from: &Path) -> bool {
    from == Path::new("-")
}

impl Args {
    /// The text of the file for the options.
    fn written(&self) -> Result<String, CliError> {
        let absolute = |path: &PathBuf| {
            std::path::absolute(path).map_err(|error| {
                let path = text::name(path.as_os_str().as_encoded_bytes());
                CliError::caused(path, &error)
            })
        };
        let session = |given: &PathBuf| match given.to_str().is_some_and(SessionUrl::is_meant) {
            true => Ok(given.clone()),
            false => absolute(given),
        };
        let path = (!self.token).then(|| self.path.clone());
        let export = NewExport {
            path: path.map(|path| path.unwrap_or_else(|| format!("/{}", self.name))),
            options: self.options.clone(),
            clients: self.clients.clone(),
            session: self.session.as_ref().map(session).transpose()?,
            base: self.base.as_ref().map(absolute).transpose()?,
            bytes: self.bytes.clone(),
            files: self.files,
        };
        export.to_toml().map_err(|path| {
            let path = text::name(path.as_os_str().as_encoded_bytes());
            CliError::new(format!("{path}: not UTF-8 text, which an exports file is"))
        })
    }
}

/// The text of `--from`.
fn read(from: &Path) -> Result<String, CliError> {
    let name = text::name(from.as_os_str().as_encoded_bytes());
    let failed = |error: &std::io::Error| CliError::new(format!("{name}: {}", words(error)));
    let input: Box<dyn Read> = match is_stdin(from) {
        true => Box::new(std::io::stdin()),
        false => Box::new(File::open(from).map_err(|error| failed(&error))?),
    };
    let mut written = Vec::new();
    let limited = input.take(MAX_ADDED_BYTES + 1).read_to_end(&mut written);
    limited.map_err(|error| failed(&error))?;
    if written.len() as u64 > MAX_ADDED_BYTES {
        let kib = MAX_ADDED_BYTES >> 10;
        return Err(CliError::new(format!("{name}: an export has at most {kib} KiB of text")));
    }
    String::from_utf8(written).map_err(|_| CliError::new(format!("{name}: not UTF-8 text")))
}
