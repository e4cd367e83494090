//! `acetate umount`: unmounts a session, and stops its server.

use std::path::{Path, PathBuf};

use super::error::CliError;
use super::mount_events::{goes_on, tell};
use super::output::Out;
use super::{Ending, in_database, output, session_names, text};
use crate::inspect::counts::count_changes;
use crate::inspect::opened::OpenSession;
use crate::inspect::selection::Selection;
use crate::mounting::detach::{
    ServerFate, Unmounting, is_served, release, release_dead, unmount_dir,
};
use crate::mounting::note::Note;
use crate::mounting::point::MountPoint;
use crate::mounting::{privilege, table};

/// Unmount a session, and stop its server if `acetate mount` started it.
///
/// The server is stopped when nothing else is mounted from it; it first finishes the copies of
/// large files that were changed. A server that was started in another way keeps running.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory that the session is mounted at.
    #[arg(value_name = "DIR", required_unless_present = "dead")]
    dir: Option<PathBuf>,

    /// Stop servers that killed `acetate run` commands left behind and that serve no process.
    #[arg(long, conflicts_with_all = ["dir", "lazy", "force", "json"])]
    dead: bool,

    /// Detach the mount at once, even while programs use it; the server keeps running for them
    /// until `umount` without --lazy.
    #[arg(long)]
    lazy: bool,

    /// Drop data that could not be written, if the server is gone for good.
    #[arg(long)]
    force: bool,

    /// Print a JSON object: dir, session, stopped (whether the server was).
    #[arg(long)]
    json: bool,
}

/// Unmounts, and says what the session holds.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    privilege::check(None)?;
    in_database::name_mounted();
    let Some(dir) = &args.dir else {
        return stop_dead();
    };
    let point =
        MountPoint::find(dir).map_err(|error| match (CliError::from(error), dir.exists()) {
            (error, true) => error,
            (error, false) => error.with_hint("`acetate sessions` shows what is mounted where"),
        })?;
    point.check_owner(None)?;
    let dir = point.path();
    let shown = dir.display();
    let how = Unmounting { lazy: args.lazy, force: args.force };
    let note = match (table::at(dir)?, Note::of(dir)) {
        (Some(mounted), Some(note)) if mounted.is_from(note.reached()) => {
            check_served(&note, how)?;
            unmount_dir(&point, how)?;
            note
        }
        (Some(mounted), _) => {
            let source = text::line(mounted.source.as_bytes());
            let what = format!("{shown}: {source} ({}) is mounted there", mounted.kind);
            let hint = "`acetate mount` did not mount that: see umount(8)";
            return Err(CliError::new(what).with_hint(hint));
        }
        // umount(8) unmounted it: the server is left.
        (None, Some(note)) => note,
        (None, None) => {
            let what = CliError::new(format_args!("{shown}: nothing is mounted there"));
            return Err(what.with_hint("`mount -t nfs` lists what is mounted"));
        }
    };
    let server = release(&note, None, args.lazy, &tell)?;
    told(args, &note, &server)
}

/// Stops the servers that killed runs have left; says so where there are none.
fn stop_dead() -> Result<Ending, CliError> {
    let stopped = release_dead(None, &tell).map_err(|error| {
        let error = CliError::from(error);
        match error.hint() {
            Some(_) => error,
            None => error.with_hint("`acetate sessions` shows which servers are left"),
        }
    })?;
    if stopped == 0 {
        output::line(format_args!("no run was killed: nothing to stop"));
    }
    Ok(Ending::Done)
}

/// A mount whose server is away cannot write what programs wrote last.
fn check_served(note: &Note, how: Unmounting) -> Result<(), CliError> {
    if how.lazy || how.force || is_served(&note.session)? {
        return Ok(());
    }
    let (dir, session) = (note.dir.display(), note.session.display());
    let what =
        format!("{dir}: the server of {session} is gone, and what was written last may wait");
    let hint = format!("start it again: acetate mount {session} {dir}; --force gives that up");
    Err(CliError::new(what).with_hint(hint))
}

fn told(args: &Args, note: &Note, server: &ServerFate) -> Result<Ending, CliError> {
    let mut out = Out::new();
    if args.json {
        let mut object = text::json("umount");
        text::put_path(&mut object, "dir", note.dir.as_os_str().as_encoded_bytes());
        text::put_path(&mut object, "session", note.session.as_os_str().as_encoded_bytes());
        object.insert("stopped".to_owned(), (*server == ServerFate::Stopped).into());
        out.json(object)?;
    } else {
        let of = match server {
            ServerFate::Stopped => "; its server has ended".to_owned(),
            ServerFate::GoesOn { pid, used } => format!("; {}", goes_on(*pid, *used)),
            ServerFate::Unknown => String::new(),
        };
        out.line(format_args!("{} is unmounted{of}", note.dir.display()))?;
        if let Some(sum) = sum(&note.session) {
            out.line(format_args!("{sum}"))?;
        }
    }
    out.end()?;
    Ok(Ending::Done)
}

/// What the session holds, if that can be told.
fn sum(session: &Path) -> Option<String> {
    let opened = OpenSession::open(session, None).ok()?;
    let counts = count_changes(&opened, Selection::default()).ok()?;
    Some(format!("{}: {}", session_names::shown(session), text::changes(counts)))
}
