//! `acetate write`: writes content to a file of the merged tree.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

use super::change::with_session_changer;
use super::error::CliError;
use super::output::Out;
use super::source::SessionSource;
use super::tree_paths::TreePaths;
use super::{Ending, text};
use crate::control::{Answer, AttrChanges, Reading, Request, WriteHow};

/// Write what comes on stdin to a file of a session's merged tree.
///
/// As with `cat > FILE` in a mount, the file stays the same one: its other names, and programs that
/// have it open, see the new content. But they see it at once, as a whole, when the command has
/// ended: where a quota or a full disk is in the way, the old content stays, and a new file goes. A
/// file of more than 8 MiB is written beside its place and put there at the end; one with several
/// names is written over piece by piece instead, and may be left in part. A server that is told to
/// stop takes back what else is not whole; a kill may leave a new file empty, and leaves that of a
/// large file beside it, called `.acetate-write-` and 16 digits. A regular file's holes stay holes.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// The file in the tree.
    #[arg(value_name = "PATH")]
    path: OsString,

    /// Take the content from this file instead.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// Add to the end of the file.
    #[arg(short, long, conflicts_with = "new")]
    append: bool,

    /// Refuse if there is something at this path.
    #[arg(long)]
    new: bool,

    /// Permissions, as an octal number [default: those it has; 644 for a new file].
    #[arg(short, long, value_name = "MODE", value_parser = text::parse_mode)]
    mode: Option<u32>,

    /// Print a JSON object: path, bytes.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let path = TreePaths::of_source(&args.source, &[&args.path])?.one_file(&args.path)?;
    let content = match &args.from {
        Some(file) => {
            let open = File::open(file).and_then(not_a_directory).and_then(Reading::file);
            open.map_err(|error| CliError::caused(file.display(), &error))?
        }
        None => {
            let stdin = io::stdin().as_fd().try_clone_to_owned();
            let stdin = stdin.and_then(|stdin| Reading::file(stdin.into()));
            stdin.map_err(|error| CliError::caused("stdin", &error))?
        }
    };
    let how = match (args.append, args.new) {
        (true, _) => WriteHow::Append,
        (_, true) => WriteHow::New,
        _ => WriteHow::Replace,
    };
    let meta = AttrChanges { mode: args.mode, ..AttrChanges::default() };
    let request = Request::Write { path: (&path).into(), how, meta };
    let source = &args.source;
    let answer = with_session_changer(source, |changer| changer.ask_with(request, content))?;
    if let (Answer::Bytes(bytes), true) = (answer, args.json) {
        let mut out = Out::new();
        let mut object = text::json("write");
        text::put_path(&mut object, "path", path.as_bytes());
        object.insert("bytes".to_owned(), bytes.into());
        out.json(object)?;
        out.end()?;
    }
    Ok(Ending::Done)
}

/// Refuses a directory before anything is written.
fn not_a_directory(file: File) -> io::Result<File> {
    match file.metadata()?.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => Ok(file),
    }
}
