//! `acetate config token`: the path that a client mounts for an instance of a template.

use std::path::PathBuf;

use crate::cli::Ending;
use crate::cli::error::CliError;
use crate::cli::output::{self, Out};
use crate::cli::text;
use crate::config::{self, Missing};

/// Print the path that a client mounts, with the token that a template derives for it.
///
/// Makes the key of the tokens if it does not exist yet, as the first start of the server does. A
/// path of a template without tokens is printed as it is.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The exports file (docs/EXPORTS.md).
    #[arg(value_name = "EXPORTS.toml")]
    file: PathBuf,

    /// The path without its token, such as /chat/u1/c1.
    #[arg(value_name = "PATH")]
    path: String,

    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let (config, broken) = config::read_sound(&args.file, Missing::Make)?;
    output::warn_of_broken(broken.as_ref());
    let is_it = |path: &&str| *path == args.path;
    let mut written =
        config.exports.iter().filter_map(|export| Some(export.path.as_ref()?.as_str()));
    let written = written.find(is_it).map(str::to_owned);
    let made = || config.templates.iter().find_map(|it| it.mounted_path(&args.path));
    let mounted = written.or_else(made);
    let mounted = mounted.ok_or_else(|| super::no_such_path(&config, &args.path))?;
    let mut out = Out::new();
    match args.json {
        true => {
            let mut object = text::json("config_token");
            object.insert("path".to_owned(), args.path.as_str().into());
            object.insert("mounted_path".to_owned(), mounted.into());
            out.json(object)?;
        }
        false => out.line(format_args!("{mounted}"))?,
    }
    out.end()?;
    Ok(Ending::Done)
}
