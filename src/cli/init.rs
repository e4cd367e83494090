//! `acetate init`: creates a session without serving it.

use std::path::PathBuf;

use super::error::CliError;
use super::hiding::{self, Hide};
use super::{Ending, output, text};
use crate::delta::postgres::SessionUrl;
use crate::pattern::PatternSet;
use crate::workspace::database::{self, DatabaseOptions};
use crate::workspace::layers;

/// Create a session; an existing file is never overwritten.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file to create, or postgres://USER@HOST/DATABASE/NAME.
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
    if let Some(url) = args.session.to_str().filter(|text| SessionUrl::is_meant(text)) {
        return in_database(args, &crate::cli::in_database::parse(url)?, &hidden);
    }
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

/// Makes a session in a database.
fn in_database(args: &Args, url: &SessionUrl, hidden: &PatternSet) -> Result<Ending, CliError> {
    let options = DatabaseOptions {
        base: args.base.as_deref(),
        chunk_size: args.chunk_size,
        hidden,
        ..DatabaseOptions::new(url)
    };
    let runtime = crate::cli::in_database::start()?;
    database::make(&options, runtime.handle())?;
    if args.json {
        let mut object = text::json("init");
        object.insert("session".to_owned(), url.to_string().into());
        let base = args.base.as_ref().and_then(|base| base.canonicalize().ok());
        object.insert("base".to_owned(), base.map(|base| base.display().to_string()).into());
        output::json(object);
        return Ok(Ending::Done);
    }
    let base = match &args.base {
        Some(base) => format!("over {}", base.display()),
        None => "without a base".to_owned(),
    };
    output::line(format_args!("created {url} {base}{}", hiding::suffix(hidden)));
    Ok(Ending::Done)
}
