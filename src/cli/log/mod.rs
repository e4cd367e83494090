//! `acetate log`: who changed what in a session, and when.

mod groups;
pub(super) mod limit;
mod line;
mod prune;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;

use groups::LogGroups;

use super::apply::undo_command;
use super::error::CliError;
use super::output::Out;
use super::selecting::{LeaveOut, tell_unmatched};
use super::{Ending, checkpoint, output, text, time_args};
use crate::delta::sqlite::{AuditFilter, ChangeSource, InvalidRow, Order, UndoneRows};
use crate::delta::{AuditProcedure, AuditRow, MergedPath};
use crate::inspect::InspectError;
use crate::inspect::apply::last_apply;
use crate::inspect::audit_counts::ToolWindows;
use crate::inspect::log::{AuditLog, LogOptions, PathState, RowFilter, now};
use crate::inspect::opened::{OpenSession, is_known, open_session};
use crate::inspect::selection::Selection;
use crate::inspect::tool_owned::ToolOwnedFiles;

pub(super) use line::{json, line};

/// How often `--follow` looks for more.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How many changes `--follow` begins with.
const FOLLOW_LAST: u64 = 10;

/// How many rows that cannot be read are named, at most, where all come at once.
const NAMED_ROWS: u64 = 10;

/// Show who changed what in a session, and when.
///
/// One line for each change in the session's audit log, oldest first: time, user and group (as the
/// client claimed them), client, operation, path. Paths are as they were then; consecutive WRITEs
/// may be one line. A change that a restore took back ends with `(taken back)`.
///
/// With one PATH: changes at and below it, also under the names that it had before it, or a
/// directory above it, was renamed. The path may be gone.
///
/// With --summary or --by: a line for each path, or tool, client or export, with its first and
/// last change and the number of each operation.
///
/// Exits with 1 if there is nothing to show (on a terminal, a line says so), or if rows could not
/// be read: those are named.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<LogCommand>,

    #[command(flatten)]
    show: Show,
}

#[derive(Debug, clap::Subcommand)]
enum LogCommand {
    Prune(prune::Args),
    Limit(limit::Args),
}

/// What is shown, and how.
#[derive(Debug, clap::Args)]
struct Show {
    /// The session file; it may be served at the same time.
    // `prune` has its own.
    #[arg(value_name = "SESSION.db", required = true)]
    session: Option<PathBuf>,

    /// The base directory, if it is not the one recorded in the session.
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    base: Option<PathBuf>,

    /// Only changes of this file or directory of the tree.
    ///
    /// With several, or pathspecs (`*.rs`, `:!dist`): changes whose paths matched at the time.
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,

    #[command(flatten)]
    leave_out: LeaveOut,

    /// Only from this moment on: a date and time, today, 2h30m, 2 days ago.
    ///
    /// 2026-11-21T12:00:00Z, a local 2026-11-21 or 2026-11-21 12:00, today or yesterday with or
    /// without a time of day, or an age.
    #[arg(long, value_name = "WHEN", value_parser = time_args::parse)]
    since: Option<Timestamp>,

    /// Only before this moment.
    #[arg(long, value_name = "WHEN", value_parser = time_args::parse, conflicts_with = "follow")]
    #[arg(hide_short_help = true)]
    until: Option<Timestamp>,

    /// Only after this checkpoint: an id, a name, `@-1` for the newest, or a moment.
    #[arg(long, value_name = "CHECKPOINT", hide_short_help = true)]
    since_checkpoint: Option<String>,

    /// Only before this checkpoint.
    #[arg(long, value_name = "CHECKPOINT", conflicts_with = "follow", hide_short_help = true)]
    until_checkpoint: Option<String>,

    /// Only these operations: write, rename...; several with commas.
    #[arg(long, value_name = "OP", value_parser = parse_op, value_delimiter = ',')]
    op: Vec<AuditProcedure>,

    /// Only by this user.
    #[arg(long, value_name = "UID", hide_short_help = true)]
    uid: Option<u32>,

    /// Only from this client: an IP address, with a port or without.
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = parse_client, hide_short_help = true)]
    client: Option<ChangeSource>,

    /// Only changes through this export.
    #[arg(long, value_name = "EXPORT", hide_short_help = true)]
    export: Option<String>,

    /// Only the last N of these.
    #[arg(short = 'n', long, value_name = "N")]
    last: Option<u64>,

    /// Newest first.
    #[arg(short, long, conflicts_with = "follow", hide_short_help = true)]
    reverse: bool,

    /// Count the changes of each path.
    ///
    /// Shows the number of each operation, and the first and last change. A rename or link counts
    /// for both of its paths.
    #[arg(short, long, conflicts_with_all = ["follow", "reverse", "by"])]
    summary: bool,

    /// With --summary, a line for each of git's own files too, and of those of context nodes.
    ///
    /// Otherwise these are one line for each `.git`, and one for all context nodes.
    #[arg(long, requires = "summary", hide_short_help = true)]
    all: bool,

    /// Count the changes of each tool, client or export.
    ///
    /// A change belongs to the tools in whose calls it was made, to several where calls overlapped;
    /// changes outside all calls are counted together. Of calls of `acetate tool run` and `acetate
    /// mcp`, the changes are known; other calls in `tool_calls` have all changes of their seconds.
    /// Clients are addresses without their port; 127.0.0.1:0 are commands on this machine.
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["follow", "reverse"])]
    #[arg(hide_possible_values = true)]
    by: Option<By>,

    /// Keep printing new changes.
    ///
    /// Begins with the last 10 changes, or with those of --last or --since.
    #[arg(short, long)]
    follow: bool,

    /// Print a JSON object for each change.
    ///
    /// Fields: v, type ("change"), id, time, client, uid, gid, op, path, fileid; of RENAME and
    /// LINK also to (the new path); export, where it came through one of several; of WRITE offset
    /// and length, in bytes; of SETATTR size, where it set one. set has what attributes were set
    /// (mode, uid, gid, atime, mtime), or the mode of what was made; is_taken_back is true where a
    /// restore took the change back. A path that is no text comes
    /// as path_hex, or to_hex, too. With --summary or --by type is "changes", with by, name, ops,
    /// written_bytes, first, last, and paths (how many) but with --summary.
    #[arg(long)]
    json: bool,
}

/// What `--by` counts changes by.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum By {
    Tool,
    Client,
    Export,
}

/// What changes are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grouping {
    Path,
    Tool,
    Client,
    Export,
}

impl Grouping {
    fn of(args: &Show) -> Option<Self> {
        match args.by {
            Some(By::Tool) => Some(Self::Tool),
            Some(By::Client) => Some(Self::Client),
            Some(By::Export) => Some(Self::Export),
            None => args.summary.then_some(Self::Path),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Tool => "tool",
            Self::Client => "client",
            Self::Export => "export",
        }
    }

    /// What a line says of changes that belong to no group.
    fn without(self) -> &'static str {
        match self {
            Self::Tool => "(no tool call)",
            Self::Path | Self::Client | Self::Export => "(no export)",
        }
    }
}

/// Shows the log, or prunes it.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    match &args.command {
        Some(LogCommand::Prune(args)) => prune::run(args),
        Some(LogCommand::Limit(args)) => limit::run(args),
        None => show(&args.show),
    }
}

fn show(args: &Show) -> Result<Ending, CliError> {
    // clap asks for it where there is no subcommand.
    let session = args.session.as_deref().unwrap_or(Path::new(""));
    if args.last == Some(0) && !args.follow {
        return open(args, session).map(|_| Ending::Done);
    }
    let (mut log, selection) = open(args, session)?;
    let grouping = Grouping::of(args);
    let tools = match grouping {
        Some(Grouping::Tool) => Some(ToolWindows::open(session)?),
        _ => None,
    };
    let groups = grouping.map(|grouping| LogGroups::new(grouping, tools));
    let mut shown = LogShown { groups, undone: log.undone_rows()?, ..LogShown::new(args) };
    log.read(&mut |id, row| shown.take(id, row))?;
    shown.check()?;
    if args.last.is_none()
        && let Some(dropped) = log.dropped()?
    {
        output::line(format_args!(
            "{} gone: pruned, dropped as the log of a session with a quota keeps 64 MiB, or made \
             before the fork",
            text::count(dropped.rows, "older change"),
        ));
    }
    if args.last.is_none() {
        note_taken_back(session)?;
    }
    if !args.follow {
        let own = match grouping == Some(Grouping::Path) && !args.all && !args.json {
            true => Some(own_files(args, session, shown.groups.as_ref())),
            false => None,
        };
        let has_none = !shown.any && shown.odd == 0;
        let ending = shown.end(own.as_ref())?;
        tell_unmatched(&selection, "change in the log");
        if has_none && selection.unmatched().next().is_none() {
            tell_none(args);
        }
        return Ok(ending);
    }
    loop {
        shown.out.wait(LOOK_EVERY)?;
        log.read_on(&mut |id, row| shown.take(id, row))?;
        shown.check()?;
    }
}

/// Says to a person that there is nothing to show; programs have the exit code.
fn tell_none(args: &Show) {
    if args.json || !io::stdout().is_terminal() {
        return;
    }
    let Show { since, until, op, uid, client, export, .. } = args;
    let is_filtered = since.is_some() || until.is_some() || !op.is_empty() || uid.is_some();
    let is_filtered = is_filtered || client.is_some() || export.is_some();
    match is_filtered || !args.paths.is_empty() || args.leave_out.is_given() {
        true => output::line(format_args!("no change in the log is of this kind")),
        false => output::line(format_args!("no change is in the log")),
    }
}

/// Which of the counted paths are a program's own.
fn own_files(args: &Show, session: &Path, groups: Option<&LogGroups>) -> ToolOwnedFiles {
    let paths = groups.map(LogGroups::paths).unwrap_or_default();
    let find = |opened: &OpenSession| {
        let outside = opened.base_path().map(|base| base.as_os_str().as_encoded_bytes());
        opened.with_tree(|view| ToolOwnedFiles::find(view, outside, paths.iter()))
    };
    // Without the tree, only names tell.
    let opened = OpenSession::open(session, args.base.as_deref());
    opened.and_then(|opened| find(&opened)).unwrap_or_default()
}

/// Says that the last APPLY rows are of an apply that was undone. An undo changes nothing of
/// the session, which may be read-only, and has no rows.
fn note_taken_back(session: &Path) -> Result<(), CliError> {
    // What another user keeps, or cannot be read, is not known.
    let opened = open_session(session)?;
    let last = last_apply(&opened);
    if let Some(last) = last.filter(|last| last.is_undone) {
        let (dir, time) = (last.target.display(), text::time_short(last.time));
        output::line(format_args!(
            "the last apply, to {dir}, was undone at {time}: `{}` applies it again",
            undo_command(session, last.copy(opened.base_path()))
        ));
    }
    Ok(())
}

/// The log, and what of it is chosen.
fn open(args: &Show, session: &Path) -> Result<(AuditLog, Selection), CliError> {
    let all_since = args.since.is_some() || args.since_checkpoint.is_some() || !args.follow;
    let [after, upto] = checkpoints(args, session)?;
    let mut options = LogOptions {
        filter: AuditFilter {
            since: args.since.map(time_args::time),
            until: args.until.map(time_args::time),
            procedures: args.op.clone(),
            uid: args.uid,
            client: args.client,
            export: args.export.clone(),
            after,
            upto,
        },
        path: None,
        rows: None,
        last: args.last.or((!all_since).then_some(FOLLOW_LAST)),
        order: if args.reverse { Order::NewestFirst } else { Order::OldestFirst },
    };
    if args.paths.is_empty() && !args.leave_out.is_given() {
        return Ok((AuditLog::open(&open_session(session)?, options)?, Selection::default()));
    }
    let opened = match OpenSession::open(session, args.base.as_deref()) {
        Ok(opened) => Some(Rc::new(opened)),
        // The log says almost as much without it.
        Err(InspectError::Base { is_recorded: true, .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let alone = opened.is_none().then(|| open_session(session)).transpose()?;
    let Some(session) = opened.as_deref().map(OpenSession::session).or(alone.as_ref()) else {
        return Err(CliError::new("no session"));
    };
    let state =
        |path: &MergedPath| opened.as_ref().map_or(PathState::Unknown, |opened| now(opened, path));
    let log = AuditLog::open(session, LogOptions::default())?;
    let is_known = |path: &MergedPath| {
        let there =
            opened.as_ref().map(|opened| opened.with_tree(|view| is_known(opened, view, path)));
        Ok(there.transpose()?.unwrap_or(false) || log.knows(path, state(path))?)
    };
    let base = opened.as_deref().and_then(OpenSession::base_path).or_else(|| session.base_path());
    let asked = args.leave_out.asked(&args.paths, session.path(), base);
    let selection = Selection::parse(&asked, &is_known)?;
    let only = match selection.is_of_paths() {
        true => Some(selection.paths().collect::<Vec<_>>()).filter(|paths| paths.len() == 1),
        false => None,
    };
    match only.and_then(|paths| paths.first().copied()) {
        Some(path) => options.path = Some((path.clone(), state(path))),
        None => options.rows = Some(by_name(selection.clone(), opened.clone())),
    }
    Ok((AuditLog::open(session, options)?, selection))
}

/// The last rows of the log at the checkpoints that are named.
fn checkpoints(args: &Show, session: &Path) -> Result<[Option<i64>; 2], CliError> {
    let (since, until) = (&args.since_checkpoint, &args.until_checkpoint);
    if since.is_none() && until.is_none() {
        return Ok([None, None]);
    }
    let session = open_session(session)?;
    let last_op = |text: &Option<String>| {
        let found = text.as_ref().map(|text| checkpoint::find(&session, text)).transpose()?;
        Ok::<_, CliError>(found.map(|found| found.last_op))
    };
    let found = [last_op(since)?, last_op(until)?];
    if let [Some(since), Some(until)] = found
        && since > until
    {
        return Err(CliError::new("--since-checkpoint is later than --until-checkpoint")
            .with_hint("swap them"));
    }
    Ok(found)
}

/// The rows that name something chosen, as it was called then.
fn by_name(selection: Selection, opened: Option<Rc<OpenSession>>) -> RowFilter {
    RowFilter(Rc::new(move |row| {
        let mut names = [Some(&row.path), row.path2.as_ref()].into_iter().flatten();
        names.any(|path| selection.has_name(opened.as_deref(), path))
    }))
}

fn parse_op(text: &str) -> Result<AuditProcedure, String> {
    AuditProcedure::from_name(&text.to_ascii_uppercase()).ok_or_else(|| {
        let names = AuditProcedure::ALL.map(AuditProcedure::as_str).join(", ");
        format!("expected one of {names}")
    })
}

fn parse_client(text: &str) -> Result<ChangeSource, String> {
    let machine = || text.parse::<IpAddr>().map(ChangeSource::Machine);
    let socket = text.parse::<SocketAddr>().map(ChangeSource::Socket);
    socket.or_else(|_| machine()).map_err(|_| {
        "expected an IP address, with a port or without: 127.0.0.1, 127.0.0.1:700, [::1]:700"
            .to_owned()
    })
}

/// What was printed.
struct LogShown {
    out: Out,
    is_json: bool,
    /// What is counted, where lines are not shown.
    groups: Option<LogGroups>,
    /// Which rows a restore took back.
    undone: UndoneRows,
    /// How many rows that cannot be read are named.
    named: u64,
    any: bool,
    odd: u64,
    closed: Option<CliError>,
}

impl LogShown {
    fn new(args: &Show) -> Self {
        // New rows of --follow come one by one, so each that cannot be read gets a line.
        let named = if args.follow { u64::MAX } else { NAMED_ROWS };
        let (out, is_json) = (Out::new(), args.json);
        let undone = UndoneRows::default();
        Self { out, is_json, groups: None, undone, named, any: false, odd: 0, closed: None }
    }

    fn take(&mut self, id: i64, row: Result<AuditRow, InvalidRow>) -> ControlFlow<()> {
        let row = match row {
            Ok(row) => row,
            Err(InvalidRow { column }) => {
                self.odd += 1;
                if self.odd <= self.named {
                    output::line(format_args!(
                        "skipped row {id} of acetate_op: its {column} cannot be read"
                    ));
                }
                return ControlFlow::Continue(());
            }
        };
        self.any = true;
        if let Some(groups) = &mut self.groups {
            groups.add(id, &row);
            return ControlFlow::Continue(());
        }
        let is_taken_back = self.undone.is_taken_back(id, &row);
        let printed = match self.is_json {
            true => self.out.json(json(id, &row, is_taken_back)),
            false => self.out.line(format_args!("{}", line(&row, is_taken_back))),
        };
        self.closed = printed.err();
        if self.closed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Fails where printing did.
    fn check(&mut self) -> Result<(), CliError> {
        self.closed.take().map_or(Ok(()), Err)
    }

    /// The rest, with what is a program's own in one line where that is `own`.
    fn end(mut self, own: Option<&ToolOwnedFiles>) -> Result<Ending, CliError> {
        if let Some(groups) = self.groups.take() {
            groups.print(own, &mut self.out, self.is_json)?;
        }
        self.out.end()?;
        if self.odd > self.named {
            let more = text::count(self.odd - self.named, "more row");
            output::line(format_args!("skipped {more} that cannot be read"));
        }
        Ok(if self.any && self.odd == 0 { Ending::Done } else { Ending::Findings })
    }
}
