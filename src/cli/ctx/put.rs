//! `acetate ctx put`: writes a context node.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::place::NodeSession;
use super::print;
use crate::cli::Ending;
use crate::cli::error::CliError;
use crate::context::limits::{CONTENT_BYTES, OVERVIEW_BYTES};
use crate::context::{NodePut, Uri};

/// Write a node: a new one, or the next version of the one that is there.
///
/// The content is UTF-8 text of up to 16 MiB, from FILE or else from stdin. What is not given is
/// made from it: the abstract is the first line that says something, cut at 100 characters, and
/// the overview its headings, or the first 10 lines where it has none. Edges stay, and tags and
/// level where none are given.
///
/// Readers see the old version or the new one. The event UPSERT_CONTEXT waits in the outbox.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: NodeSession,

    /// The node.
    uri: Uri,

    /// The file with the content; `-` is stdin, too.
    file: Option<PathBuf>,

    /// The abstract (L0), of up to 100 characters.
    #[arg(long = "abstract", value_name = "TEXT")]
    abstract_text: Option<String>,

    /// The overview (L1).
    #[arg(long, value_name = "TEXT")]
    overview: Option<String>,

    /// Take the overview from this file.
    #[arg(long, value_name = "FILE", conflicts_with = "overview")]
    overview_from: Option<PathBuf>,

    /// A tag, in the place of those that it has; may be given several times.
    #[arg(long = "tag", value_name = "TAG", conflicts_with = "no_tags")]
    tags: Vec<String>,

    /// Remove the node's tags.
    #[arg(long)]
    no_tags: bool,

    /// The level in its metadata, 0 to 9.
    ///
    /// Without it, the level stays; a new node gets 3.
    #[arg(long, value_name = "N")]
    level: Option<u64>,

    /// Print a JSON object: uri, version, event_id, event_type.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    // Reads all input first: the session must not be locked while a user types.
    let content = match args.file.as_deref().filter(|file| *file != Path::new("-")) {
        Some(file) => read_file(file, CONTENT_BYTES)?,
        None => read(io::stdin(), CONTENT_BYTES)
            .map_err(|error| CliError::caused("cannot read stdin", &error))?,
    };
    let overview = match &args.overview_from {
        Some(file) => {
            let text = String::from_utf8(read_file(file, OVERVIEW_BYTES)?);
            let no_text = |_| CliError::new(format_args!("{}: not UTF-8 text", file.display()));
            Some(text.map_err(no_text)?)
        }
        None => args.overview.clone(),
    };
    let put = NodePut {
        content,
        abstract_text: args.abstract_text.clone(),
        overview,
        tags: (args.no_tags || !args.tags.is_empty()).then(|| args.tags.clone()),
        level: args.level,
    };
    let changed = args.place.change(|nodes| Ok(nodes.put(&args.uri, &put)?))?;
    print::changed(&changed, args.json)
}

fn read_file(path: &Path, most: u64) -> Result<Vec<u8>, CliError> {
    let read = File::open(path).and_then(|file| read(file, most));
    read.map_err(|error| CliError::caused(path.display(), &error))
}

/// Reads at most `most` bytes and one more, which shows that the content is too long.
fn read(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    from.take(most + 1).read_to_end(&mut content)?;
    Ok(content)
}
