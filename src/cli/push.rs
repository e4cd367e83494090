//! `acetate push` and `acetate pull`: move a session to a database, and back.

use std::path::PathBuf;

use super::error::CliError;
use super::{Ending, in_database, output, text};
use crate::workspace::transfer;

/// Move a session from a file to a database.
///
/// It keeps its id and the key of its file handles: clients that have it mounted continue, if the
/// same exports are served from the database. The file stays as it is, and is not served any more.
/// The session must not be served while it moves.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// Where it moves: postgres://USER@HOST/DATABASE/NAME, which must not exist.
    #[arg(value_name = "URL")]
    url: String,

    /// Print a JSON object: session, url.
    #[arg(long)]
    json: bool,
}

/// Move a session from a database to a file.
///
/// It keeps its id and the key of its file handles. Its rows stay in the database until its name is
/// used again, and are not served any more. No server may have the session.
#[derive(Debug, clap::Args)]
pub(super) struct PullArgs {
    /// The session: postgres://USER@HOST/DATABASE/NAME.
    #[arg(value_name = "URL")]
    url: String,

    /// The session file to create.
    #[arg(value_name = "NEW.db")]
    new: PathBuf,

    /// Print a JSON object: session, url.
    #[arg(long)]
    json: bool,
}

/// Runs `push`.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let url = in_database::parse(&args.url)?;
    let runtime = in_database::start()?;
    transfer::push(&args.session, &url, runtime.handle())?;
    let file = args.session.as_os_str().as_encoded_bytes();
    if args.json {
        print_json("push", file, &args.url);
    } else {
        output::line(format_args!("{}: moved to {url}", text::name(file)));
    }
    Ok(Ending::Done)
}

/// Runs `pull`.
pub(super) fn pull(args: &PullArgs) -> Result<Ending, CliError> {
    let url = in_database::parse(&args.url)?;
    let runtime = in_database::start()?;
    transfer::pull(&url, &args.new, runtime.handle())?;
    let file = args.new.as_os_str().as_encoded_bytes();
    if args.json {
        print_json("pull", file, &args.url);
    } else {
        output::line(format_args!("{url}: moved to {}", text::name(file)));
    }
    Ok(Ending::Done)
}

fn print_json(kind: &str, file: &[u8], url: &str) {
    let mut object = text::json(kind);
    text::put_path(&mut object, "session", file);
    object.insert("url".to_owned(), url.into());
    output::json(object);
}
