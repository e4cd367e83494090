//! `acetate log`: who changed what in a session, and when.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::error::CliError;
use super::output::Out;
use super::selecting::LeaveOut;
use super::source::Source;
use super::{Ending, output, text, when};
use crate::delta::sqlite::{AuditFilter, Client, OddRow, Order};
use crate::delta::{AuditRow, MergedPath, Procedure};
use crate::inspect::InspectError;
use crate::inspect::log::{Log, Now, Options, RowFilter, now};
use crate::inspect::opened::{Opened, is_known, open_session};
use crate::inspect::selection::Selection;

/// How often `--follow` looks for more.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How many changes `--follow` begins with.
const FOLLOW_LAST: u64 = 10;

/// How many rows that cannot be read are named, at most, where all come at once.
const NAMED_ROWS: u64 = 10;

/// Show who changed what in a session, and when.
///
/// One line for each change in the session's audit log, oldest first: time, user and group (as
/// the client claimed them), client, operation, path. Paths are as they were then; WRITEs that
/// follow each other may be one line.
///
/// With one PATH: what happened at it, below it, and to what is there under the names that it had
/// before, by renames of itself or of directories above it. The path may be gone.
///
/// Exits with 1 if there is nothing to show, or if rows could not be read: those are named.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,

    /// Only what is about this file or directory of the tree.
    ///
    /// Of several, and of pathspecs (`*.rs`, `:!dist`), changes that name them as they were called
    /// then.
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,

    #[command(flatten)]
    leave_out: LeaveOut,

    /// Only from this moment on: 2026-11-21T12:00:00Z, or an age: 2h30m.
    #[arg(long, value_name = "WHEN", value_parser = when::parse)]
    since: Option<Timestamp>,

    /// Only before this moment.
    #[arg(long, value_name = "WHEN", value_parser = when::parse, conflicts_with = "follow")]
    until: Option<Timestamp>,

    /// Only these operations: write, rename...; several with commas.
    #[arg(long, value_name = "OP", value_parser = parse_op, value_delimiter = ',')]
    op: Vec<Procedure>,

    /// Only by this user.
    #[arg(long, value_name = "UID")]
    uid: Option<u32>,

    /// Only from this client: an IP address, with a port or without.
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = parse_client)]
    client: Option<Client>,

    /// Only through this export, of a server with several.
    #[arg(long, value_name = "NAME")]
    export: Option<String>,

    /// Only the last N of these.
    #[arg(short = 'n', long, value_name = "N")]
    last: Option<u64>,

    /// Newest first.
    #[arg(short, long, conflicts_with = "follow")]
    reverse: bool,

    /// Go on with what happens from now on.
    ///
    /// Begins with the last 10 changes, or with those of --last or --since.
    #[arg(short, long)]
    follow: bool,

    /// Print a JSON object for each change.
    ///
    /// Fields: v, type ("change"), id, time, client, uid, gid, op, path, fileid; of RENAME and
    /// LINK also to (the new path); export, where it came through one of several; of WRITE offset
    /// and length, in bytes; of SETATTR size, where it set one. A path that is no text comes as
    /// path_hex, or to_hex, too.
    #[arg(long)]
    json: bool,
}

/// Shows the log.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let mut log = open(args)?;
    let mut shown = Shown::new(args);
    log.read(&mut |id, row| shown.take(id, row))?;
    shown.check()?;
    if args.last.is_none()
        && let Some(dropped) = log.dropped()?
    {
        output::line(format_args!(
            "{} dropped: with a limit of bytes or files, the log keeps the newest 64 MiB",
            text::count(dropped.rows, "older change"),
        ));
    }
    if !args.follow {
        return shown.end();
    }
    loop {
        shown.out.wait(LOOK_EVERY)?;
        log.read_on(&mut |id, row| shown.take(id, row))?;
        shown.check()?;
    }
}

fn open(args: &Args) -> Result<Log, CliError> {
    let all_since = args.since.is_some() || !args.follow;
    let mut options = Options {
        filter: AuditFilter {
            since: args.since.map(when::time),
            until: args.until.map(when::time),
            procedures: args.op.clone(),
            uid: args.uid,
            client: args.client,
            export: args.export.clone(),
        },
        path: None,
        rows: None,
        last: args.last.or((!all_since).then_some(FOLLOW_LAST)),
        order: if args.reverse { Order::NewestFirst } else { Order::OldestFirst },
    };
    if args.paths.is_empty() && !args.leave_out.is_given() {
        return Ok(Log::open(&open_session(&args.source.session)?, options)?);
    }
    let opened = match Opened::open(&args.source.session, args.source.base.as_deref()) {
        Ok(opened) => Some(Rc::new(opened)),
        // The log says almost as much without it.
        Err(InspectError::Base { is_recorded: true, .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let alone = opened.is_none().then(|| open_session(&args.source.session)).transpose()?;
    let Some(session) = opened.as_deref().map(Opened::session).or(alone.as_ref()) else {
        return Err(CliError::new("no session"));
    };
    let state =
        |path: &MergedPath| opened.as_ref().map_or(Now::Unknown, |opened| now(opened, path));
    let log = Log::open(session, Options::default())?;
    let is_known = |path: &MergedPath| {
        let there = opened.as_ref().map(|opened| opened.look(|view| is_known(opened, view, path)));
        Ok(there.transpose()?.unwrap_or(false) || log.knows(path, state(path))?)
    };
    let base = opened.as_deref().and_then(Opened::base_path).or_else(|| session.base_path());
    let asked = args.leave_out.asked(&args.paths, session.path(), base);
    let selection = Selection::parse(&asked, &is_known)?;
    let only = match selection.is_of_paths() {
        true => Some(selection.paths().collect::<Vec<_>>()).filter(|paths| paths.len() == 1),
        false => None,
    };
    match only.and_then(|paths| paths.first().copied()) {
        Some(path) => options.path = Some((path.clone(), state(path))),
        None => options.rows = Some(by_name(selection, opened.clone())),
    }
    Ok(Log::open(session, options)?)
}

/// The rows that name something chosen, as it was called then.
fn by_name(selection: Selection, opened: Option<Rc<Opened>>) -> RowFilter {
    RowFilter(Rc::new(move |row| {
        let mut names = [Some(&row.path), row.path2.as_ref()].into_iter().flatten();
        names.any(|path| selection.has_name(opened.as_deref(), path))
    }))
}

fn parse_op(text: &str) -> Result<Procedure, String> {
    Procedure::from_name(&text.to_ascii_uppercase()).ok_or_else(|| {
        let names = Procedure::ALL.map(Procedure::as_str).join(", ");
        format!("expected one of {names}")
    })
}

fn parse_client(text: &str) -> Result<Client, String> {
    let machine = || text.parse::<IpAddr>().map(Client::Machine);
    let socket = text.parse::<SocketAddr>().map(Client::Socket);
    socket.or_else(|_| machine()).map_err(|_| {
        "expected an IP address, with a port or without: 127.0.0.1, 127.0.0.1:700, [::1]:700"
            .to_owned()
    })
}

/// What was printed.
struct Shown {
    out: Out,
    is_json: bool,
    /// How many rows that cannot be read are named.
    named: u64,
    any: bool,
    odd: u64,
    closed: Option<CliError>,
}

impl Shown {
    fn new(args: &Args) -> Self {
        // Of what comes one by one, each is worth a line.
        let named = if args.follow { u64::MAX } else { NAMED_ROWS };
        let (out, is_json) = (Out::new(), args.json);
        Self { out, is_json, named, any: false, odd: 0, closed: None }
    }

    fn take(&mut self, id: i64, row: Result<AuditRow, OddRow>) -> ControlFlow<()> {
        let row = match row {
            Ok(row) => row,
            Err(OddRow { column }) => {
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
        let printed = match self.is_json {
            true => self.out.json(json(id, &row)),
            false => self.out.line(format_args!("{}", line(&row))),
        };
        self.closed = printed.err();
        if self.closed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Fails where printing did.
    fn check(&mut self) -> Result<(), CliError> {
        self.closed.take().map_or(Ok(()), Err)
    }

    fn end(self) -> Result<Ending, CliError> {
        self.out.end()?;
        if self.odd > self.named {
            let more = text::count(self.odd - self.named, "more row");
            output::line(format_args!("skipped {more} that cannot be read"));
        }
        Ok(if self.any && self.odd == 0 { Ending::Done } else { Ending::Findings })
    }
}

/// A change in a line.
pub(super) fn line(row: &AuditRow) -> String {
    let mut line = format!(
        "{}  {:<9}  {:<15}  {:<7}  {}",
        text::time_millis(row.time),
        format!("{}:{}", row.uid, row.gid),
        row.client.to_string(),
        row.procedure.as_str(),
        text::name(row.path.as_bytes()),
    );
    if let Some(to) = &row.path2 {
        line.push_str(&format!(" -> {}", text::name(to.as_bytes())));
    }
    match (row.procedure, row.offset, row.length) {
        (Procedure::Write, Some(offset), Some(length)) => {
            line.push_str(&format!("  offset {offset}, {}", text::count(length, "byte")));
        }
        (Procedure::Publish, _, Some(length)) => {
            line.push_str(&format!("  {}", text::count(length, "byte")));
        }
        (Procedure::Setattr, Some(size), _) => line.push_str(&format!("  size {size}")),
        _ => {}
    }
    if let Some(note) = &row.note {
        line.push_str(&format!("  {}", text::name(note.as_bytes())));
    }
    if let Some(export) = &row.export {
        line.push_str(&format!("  through {}", text::name(export.as_bytes())));
    }
    line
}

/// A change as an object of `--json`.
pub(super) fn json(id: i64, row: &AuditRow) -> Map<String, Value> {
    let mut json = text::json("change");
    json.insert("id".to_owned(), id.into());
    json.insert("time".to_owned(), text::time(row.time).into());
    json.insert("client".to_owned(), row.client.to_string().into());
    json.insert("uid".to_owned(), row.uid.into());
    json.insert("gid".to_owned(), row.gid.into());
    json.insert("op".to_owned(), row.procedure.as_str().into());
    text::put_path(&mut json, "path", row.path.as_bytes());
    if let Some(to) = &row.path2 {
        text::put_path(&mut json, "to", to.as_bytes());
    }
    json.insert("fileid".to_owned(), row.fileid.0.into());
    if let Some(note) = &row.note {
        json.insert("note".to_owned(), note.as_str().into());
    }
    if let Some(export) = &row.export {
        json.insert("export".to_owned(), export.as_ref().into());
    }
    let is_size = row.procedure == Procedure::Setattr;
    let numbers = [(if is_size { "size" } else { "offset" }, row.offset), ("length", row.length)];
    for (key, number) in numbers {
        if let Some(number) = number {
            json.insert(key.to_owned(), number.into());
        }
    }
    json
}
