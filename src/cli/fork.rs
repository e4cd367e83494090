//! `acetate fork`: new sessions that begin with the tree of another.

use std::collections::BTreeMap;
use std::fs;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::change::with_session_changer;
use super::error::CliError;
use super::mount_events::sync_mounts;
use super::output::{self, Out, ProgressLine};
use super::source::{SessionSource, warn_if_unfinished};
use super::{Ending, applied_since, checkpoint, in_database, session_names, text};
use crate::control::{Answer, CheckpointText, Request};
use crate::delta::sqlite::SessionCopy;
use crate::delta::{Checkpoint, CheckpointId, CheckpointKind};
use crate::inspect::maintenance::fork;
use crate::inspect::opened::open_session;
use crate::workspace::transfer;

/// The most file names in the label of a checkpoint.
const MAX_LABELLED: usize = 16;

/// Make sessions that begin with this session's tree, to try something there.
///
/// A fork has the tree, the base, keys, values and limits of the session, and an id of its own:
/// both can be served and changed at once. It takes the space of what the session holds. The
/// session gets a checkpoint of kind `fork`, which stays until you remove it; with it, `acetate
/// merge` brings the changes of the fork back. The session may be served at the same time. Either
/// can be in a database: a fork there is named by a URL, too.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// The new session files, or URLs; what exists is never overwritten.
    #[arg(value_name = "NEW.db", required = true)]
    new: Vec<PathBuf>,

    /// Begin with the tree of this checkpoint: an id, a name, `@-1` for the newest, or a moment.
    #[arg(long, value_name = "CHECKPOINT")]
    at: Option<String>,

    /// Fork at a checkpoint although changes were applied to the base since, or the log has lost
    /// rows since.
    #[arg(long, requires = "at")]
    force: bool,

    /// Print a JSON object for each fork: session, fork, bytes, session_id (of the fork),
    /// checkpoint.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let session = &args.source.session;
    check_new(&args.new)?;
    warn_if_unfinished(session, args.source.base.as_deref());
    let point = make_fork_point(args)?;
    let from = ForkSource::of(session)?;
    let mut out = Out::new();
    for new in &args.new {
        let forked = from.fork(new, &point)?;
        print_fork(&mut out, args, new, (&forked, point.id))?;
    }
    out.end()?;
    Ok(Ending::Done)
}

/// A session that forks are copied from.
struct ForkSource {
    /// The session file; of a session in a database, a copy of all its rows.
    file: PathBuf,
    /// Files that are removed at the end.
    place: TempDir,
}

impl ForkSource {
    fn of(session: &Path) -> Result<Self, CliError> {
        let failed = |error| CliError::caused("a temporary directory", &error);
        let place = tempfile::tempdir().map_err(failed)?;
        let Some(url) = session_names::url_of(session) else {
            return Ok(Self { file: session.to_owned(), place });
        };
        let url = in_database::parse(&url)?;
        // A fork records the file's name.
        let dir = place.path().join("from");
        fs::create_dir(&dir).map_err(failed)?;
        let file = dir.join(url.file_name());
        let runtime = in_database::start()?;
        transfer::copy_to_fork(&url, &file, runtime.handle())?;
        Ok(Self { file, place })
    }

    /// Makes a fork in a file, or in a database.
    fn fork(&self, new: &Path, point: &Checkpoint) -> Result<SessionCopy, CliError> {
        let url = in_database::url_of(new)?;
        let file = match &url {
            Some(_) => self.place.path().join("fork.db"),
            None => new.to_owned(),
        };
        let mut progress = ProgressLine::new("forking", stderr().is_terminal());
        let forked = fork(&self.file, &file, point, &mut |done, all| progress.tell(done, all));
        progress.end();
        let forked = forked?;
        if let Some(url) = url {
            let runtime = in_database::start()?;
            transfer::push(&file, &url, runtime.handle())?;
            let failed = |error| CliError::caused("a temporary file", &error);
            fs::remove_file(&file).map_err(failed)?;
        }
        Ok(forked)
    }
}

/// Refuses what exists, and a name that is given twice, before anything is made.
fn check_new(new: &[PathBuf]) -> Result<(), CliError> {
    for (at, path) in new.iter().enumerate() {
        let what = match in_database::url_of(path)? {
            _ if new[..at].contains(path) => "the name is given twice",
            Some(url) if in_database::is_there(&url)? => "the session exists",
            None if path.symlink_metadata().is_ok() => "the file exists",
            _ => continue,
        };
        let named = text::name(path.as_os_str().as_encoded_bytes());
        return Err(CliError::new(format!("{named}: {what}: no fork was made")));
    }
    Ok(())
}

/// Makes, or keeps, the checkpoint of the session at which the forks begin.
fn make_fork_point(args: &Args) -> Result<Checkpoint, CliError> {
    let session = &args.source.session;
    let gone = || CliError::new("the checkpoint was removed: no fork was made");
    if let Some(at) = &args.at {
        let opened = open_session(session)?;
        let point = checkpoint::find(&opened, at)?;
        if !args.force {
            applied_since::check(&opened, args.source.base.as_deref(), &point)?;
        }
        drop(opened);
        checkpoint::warn_if_incomplete(&point);
        return match ask(args, Request::KeepCheckpoint(point.id.0))? {
            Answer::Objects(1) => Ok(point),
            _ => Err(gone()),
        };
    }
    sync_mounts(session);
    finish_copies(args)?;
    let file_name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into());
    let mut names: Vec<String> = args.new.iter().filter_map(file_name).collect();
    if let Some(more @ 1..) = names.len().checked_sub(MAX_LABELLED) {
        names.truncate(MAX_LABELLED);
        names.push(format!("and {more} more"));
    }
    let labels = BTreeMap::from([("forks".to_owned(), names.join(", "))]);
    let kind = CheckpointKind::Fork.as_str().to_owned();
    let new = CheckpointText { name: None, kind, labels, reuses: false };
    let Answer::Checkpoint(Some(id)) = ask(args, Request::CreateCheckpoint(new))? else {
        return Err(CliError::new("unexpected reply from the session's server"));
    };
    let found = open_session(session)?.checkpoint(CheckpointId(id));
    found.map_err(CliError::new)?.ok_or_else(gone)
}

/// Copies what large files still have in the base alone: a fork cannot read it once the base has
/// changed.
fn finish_copies(args: &Args) -> Result<(), CliError> {
    let (mut from, mut has_copied_any) = (0, false);
    let left = with_session_changer(&args.source, |changer| {
        loop {
            let Answer::Copied { next, has_copied, files, .. } =
                changer.ask(Request::Copy { from })?
            else {
                return Err(CliError::new("unexpected reply from the session's server"));
            };
            has_copied_any |= has_copied;
            match next {
                Some(next) => from = next,
                None if files > 0 && has_copied_any => (from, has_copied_any) = (0, false),
                None => return Ok(files),
            }
        }
    })?;
    if left > 0 {
        let files = text::count(left, "file");
        output::line(format_args!(
            "warning: the base does not let {files} be copied to the end: the fork reads the rest \
             there"
        ));
    }
    Ok(())
}

fn ask(args: &Args, request: Request) -> Result<Answer, CliError> {
    with_session_changer(&args.source, |changer| changer.ask(request))
}

fn print_fork(
    out: &mut Out,
    args: &Args,
    new: &Path,
    (copy, point): (&SessionCopy, CheckpointId),
) -> Result<(), CliError> {
    let (session, named) = (session_names::shown(&args.source.session), new.display());
    if !args.json {
        let bytes = text::bytes(copy.bytes);
        return out
            .line(format_args!("{session}: forked at checkpoint {point} to {named}, {bytes}"));
    }
    let mut json = text::json("fork");
    text::put_path(&mut json, "session", args.source.session.as_os_str().as_encoded_bytes());
    text::put_path(&mut json, "fork", new.as_os_str().as_encoded_bytes());
    json.insert("bytes".to_owned(), copy.bytes.into());
    json.insert("session_id".to_owned(), copy.id.clone().into());
    json.insert("checkpoint".to_owned(), point.0.into());
    out.json(json)
}
