//! `acetate exports keep`: has an instance of a template stay, however long nothing uses it.

use std::path::PathBuf;

use crate::cli::Ending;
use crate::cli::error::CliError;
use crate::cli::output::{self, Out};
use crate::cli::text;
use crate::config::{self, Config, Missing};
use crate::delta::sqlite::keep_instance;
use crate::workspace::exports::registry_file;

/// Keep an instance of a template that would expire.
///
/// It stays however long nothing uses it, also after a restart. The server may run.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The exports file (docs/EXPORTS.md).
    #[arg(value_name = "EXPORTS.toml")]
    file: PathBuf,

    /// The path that clients mount, with its token or without, such as /chat/u1/c1.
    #[arg(value_name = "PATH")]
    path: String,

    /// Let it expire again.
    #[arg(long)]
    off: bool,

    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let config = config::read(&args.file, Missing::Leave)?;
    let own = own_path(&config, &args.path)?;
    let registry = registry_file(&args.file);
    let shown = text::name(own.as_bytes());
    let never_made = || {
        CliError::new(format!("no client has mounted {shown} yet"))
            .with_hint("mount it first: the first mount makes the instance")
    };
    if registry.symlink_metadata().is_err() {
        return Err(never_made());
    }
    let failed = |error| CliError::caused("the registry of what templates made", &error);
    let was = keep_instance(&registry, &own, !args.off).map_err(failed)?;
    let was = was.ok_or_else(never_made)?;
    match args.json {
        true => {
            let mut object = text::json("exports_keep");
            object.insert("path".to_owned(), own.into());
            object.insert("is_kept".to_owned(), (!args.off).into());
            object.insert("was_kept".to_owned(), was.into());
            let mut out = Out::new();
            out.json(object)?;
            out.end()?;
        }
        false if args.off => output::line(format_args!("{shown} may expire")),
        false => output::line(format_args!("{shown} is kept")),
    }
    Ok(Ending::Done)
}

/// The path of an instance without its token.
fn own_path(config: &Config, path: &str) -> Result<String, CliError> {
    let with_token = || {
        let instance = config.templates.iter().find_map(|it| it.instance(path.as_bytes()))?;
        Some(format!("/{}", instance.name))
    };
    let without = || config.templates.iter().any(|it| it.matches(path)).then(|| path.to_owned());
    with_token().or_else(without).ok_or_else(|| {
        CliError::new(format!("no template matches {}", text::name(path.as_bytes())))
            .with_hint("`acetate config check` shows the templates of the file")
    })
}
