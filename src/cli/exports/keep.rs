//! `acetate exports keep`: has an instance of a template stay, however long nothing uses it.

use std::path::PathBuf;

use crate::cli::Ending;
use crate::cli::error::CliError;
use crate::cli::output::{self, Out};
use crate::cli::text;
use crate::config::{self, Config, Missing, TemplateConfig};
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

    /// Print a JSON object: path, is_kept, was_kept.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let (config, broken) = config::read_sound(&args.file, Missing::Leave)?;
    output::warn_of_broken(broken.as_ref());
    let KeptInstance { path: own, template } = instance(&config, &args.path)?;
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
    let mut out = Out::new();
    match args.json {
        true => {
            let mut object = text::json("export_kept");
            object.insert("path".to_owned(), own.into());
            object.insert("is_kept".to_owned(), (!args.off).into());
            object.insert("was_kept".to_owned(), was.into());
            out.json(object)?;
        }
        false if args.off => out.line(format_args!("{shown} is no longer kept"))?,
        false => out.line(format_args!("{shown} is kept"))?,
    }
    out.end()?;
    if template.expire.is_none() {
        let template = text::name(template.to_string().as_bytes());
        let what = format!("the template {template} has no `expire`");
        output::line(format_args!("warning: this has no effect now: {what}"));
    }
    Ok(Ending::Done)
}

/// An instance of a template.
struct KeptInstance<'a> {
    /// The path without its token.
    path: String,
    template: &'a TemplateConfig,
}

/// The instance of a path, with its token or without.
fn instance<'a>(config: &'a Config, path: &str) -> Result<KeptInstance<'a>, CliError> {
    let with_token = config.templates.iter().find_map(|template| {
        let path = format!("/{}", template.instance(path.as_bytes())?.name);
        Some(KeptInstance { path, template })
    });
    let without = || {
        let template = config.templates.iter().find(|it| it.matches(path))?;
        Some(KeptInstance { path: path.to_owned(), template })
    };
    with_token.or_else(without).ok_or_else(|| {
        CliError::new(format!("no template matches {}", text::name(path.as_bytes())))
            .with_hint("`acetate config check` shows the templates of the file")
    })
}
