//! `acetate init`: creates a session without serving it.

use std::path::PathBuf;

use super::error::CliError;
use super::hiding::{self, Hide};
use super::{Ending, output, text};
use crate::workspace::layers;

/// Create a session; an existing file is never overwritten.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file to create.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// The directory that shows through; it is never written. Without it: an empty one.
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,

    /// Bytes per stored chunk of a file: a power of two [default: 65536].
    #[arg(long, value_name = "BYTES")]
    chunk_size: Option<u64>,

    #[command(flatten)]
    hide: Hide,

    /// Print a JSON object: session, base.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let hidden = args.hide.patterns()?;
    let session = layers::create(&args.session, args.base.as_deref(), args.chunk_size, &hidden)?;
    if args.json {
        let mut object = text::json("init");
        object.insert("session".to_owned(), session.path().display().to_string().into());
        let base = session.base_path().map(|base| base.display().to_string());
        object.insert("base".to_owned(), base.into());
        layers::close(&session)?;
        output::json(object);
        return Ok(Ending::Done);
    }
    let base = match session.base_path() {
        Some(base) => format!("over {}", base.display()),
        None => "without a base".to_owned(),
    };
    layers::close(&session)?;
    let hidden = hiding::suffix(&hidden);
    output::line(format_args!("created {} {base}{hidden}", session.path().display()));
    Ok(Ending::Done)
}
