//! `acetate config`: checks the exports file of `acetate serve --config`.

mod check;
mod database_check;
mod files;
pub(super) mod host_check;
mod show;
mod template_check;
mod token;

use super::Ending;
use super::error::CliError;
use super::text;
use crate::config::Config;

/// Check the exports file of `acetate serve --config`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    Check(check::Args),
    Token(token::Args),
}

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    match &args.command {
        ConfigCommand::Check(args) => check::run(args),
        ConfigCommand::Token(args) => token::run(args),
    }
}

/// The error of a path that no export has.
fn no_such_path(config: &Config, path: &str) -> CliError {
    let waiting = config.templates.iter().find(|it| it.lacks_key() && it.matches(path));
    let path = text::name(path.as_bytes());
    if let Some(template) = waiting {
        let name = text::name(template.export.name.as_bytes());
        return CliError::new(format!("the template {name} matches {path}, and has no key yet"))
            .with_hint("`acetate config token` makes it, and so does the first start");
    }
    CliError::new(format!("no export has the path {path}, and no template matches it"))
        .with_hint("`acetate config check` shows the exports and templates of the file")
}
