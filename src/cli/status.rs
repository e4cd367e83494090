//! `acetate status`: shows the status of a session.

use std::path::Path;

use serde_json::{Map, Value};

use super::apply::undo_command;
use super::change::connect;
use super::checkpoint;
use super::error::CliError;
use super::hiding;
use super::log::limit;
use super::lost_dirs;
use super::output::Out;
use super::quota::exports::{brief_json, with_session};
use super::source::LookSource;
use super::{Ending, quota, text};
use crate::control::{Answer, ControlPeer, ExportUsage, Request, ServerStatus, UsageReport};
use crate::delta::CheckpointSpace;
use crate::delta::sqlite::{LogKeep, Session, SessionStats};
use crate::inspect::apply::{KeptForUndo, UnfinishedApply, kept, unfinished};
use crate::inspect::counts::ChangeCounts;
use crate::inspect::opened::OpenSession;
use crate::inspect::status::{SessionStatus, TouchedCounts, status};
use crate::overlay::CopyLimits;

/// Show a session's base, size, content and changes.
///
/// Contents are not compared: `modified` counts what was copied up, changed or not
/// (`acetate diff` compares). Exits with 1 if a base object changed after the session changed,
/// replaced or removed it.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: LookSource,

    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let opened = args.source.open()?;
    let found = status(&opened)?;
    // If the server cannot be asked, the session is shown without it.
    let mut asked = connect(opened.session().path()).ok().flatten();
    let server = match asked.as_mut().map(|server| server.ask(&Request::Status)) {
        Some(Ok(Answer::Status(server))) => Some(server),
        _ => None,
    };
    let session = opened.session();
    let session = session.replica_of().map_or(session.path(), Path::new);
    let exports = asked.map(|mut server| with_session(&mut server, session));
    let exports = exports.unwrap_or_default();
    let mut out = Out::new();
    if args.json {
        let mut json = json(&opened, &found, server.as_ref());
        json.insert("exports".to_owned(), exports.iter().map(brief_json).collect());
        out.json(json)?;
    } else {
        print(&opened, &found, server.as_ref(), &exports, &mut out)?;
    }
    out.end()?;
    lost_dirs::warn(&opened)?;
    Ok(if found.touched.drifted > 0 { Ending::Findings } else { Ending::Done })
}

fn print(
    opened: &OpenSession,
    status: &SessionStatus,
    server: Option<&ServerStatus>,
    exports: &[ExportUsage],
    out: &mut Out,
) -> Result<(), CliError> {
    let (session, figures) = (opened.session(), &status.figures);
    let mut field = |name: &str, value: String| out.line(format_args!("{name:<13}{value}"));
    let hides = match session.hidden() {
        hidden if hidden.is_empty() => String::new(),
        hidden => format!("; hides {}", hiding::words(hidden)),
    };
    match session.replica_of() {
        Some(url) => {
            field("session", format!("{url}{hides}"))?;
            field("replica", session.path().display().to_string())?;
        }
        None => field("session", format!("{}{hides}", session.path().display()))?,
    }
    field("base", base(opened))?;
    field(
        "served",
        match (served_by(status), figures.is_closed) {
            (None, _) if session.replica_of().is_some() => "not on this machine".to_owned(),
            (Some(Some(pid)), _) => format!("by process {pid}"),
            (Some(None), _) => "yes".to_owned(),
            (None, true) => "no".to_owned(),
            (None, false) => format!("no; {} was killed", killed(opened)),
        },
    )?;
    for (name, value) in server.map(about).unwrap_or_default() {
        field(name, value)?;
    }
    let log = match figures.wal_bytes {
        0 => String::new(),
        bytes => format!(" and a WAL of {}", text::bytes(bytes)),
    };
    let free = match figures.free_bytes {
        0 => String::new(),
        bytes => format!(", {} of it free (acetate compact)", text::bytes(bytes)),
    };
    field("size", format!("{}{free}{log}", text::bytes(figures.file_bytes)))?;
    for (name, value) in holdings(figures) {
        field(name, value)?;
    }
    field("original", originals(figures))?;
    let TouchedCounts { added, deleted, modified, renamed, .. } = status.touched;
    let counts = ChangeCounts { added, deleted, modified, renamed, retyped: 0 };
    let each = match counts.sum() {
        0 => String::new(),
        _ => format!(": {}", text::changes(counts)),
    };
    field("changes", format!("{} (contents are not compared){each}", counts.sum()))?;
    let calls = text::count(figures.tool_calls, "tool call");
    field("agent", format!("{}, {calls}", text::count(figures.values, "value")))?;
    let dropped = match figures.dropped_changes {
        0 => String::new(),
        rows => format!("; {} dropped", text::count(rows, "older row")),
    };
    let audit_bytes = text::bytes(figures.change_bytes);
    let rows = text::count(figures.changes, "row");
    let keep = log_keep(opened);
    let bound = if keep.is_bound() { format!("; {}", limit::words(keep)) } else { String::new() };
    field("audit", format!("{rows}, {audit_bytes}{dropped}{bound}"))?;
    if let Some(space) = checkpoint_space(opened) {
        field("checkpoints", checkpoint::space_words(space))?;
    }
    if let Some(kept) = kept(session) {
        field("last apply", kept_line(session, &kept))?;
    }
    let exports = exports.iter().map(|export| ("export", quota::brief(export)));
    concerns(status).into_iter().chain(exports).try_for_each(|(name, value)| field(name, value))
}

/// What left the session without closing it.
fn killed(opened: &OpenSession) -> &'static str {
    match unfinished(opened) {
        Some(UnfinishedApply::Interrupted | UnfinishedApply::Running) => "an apply",
        Some(UnfinishedApply::InterruptedOther(_)) | None => "its last server or command",
    }
}

/// The bounds of the session's audit log.
fn log_keep(opened: &OpenSession) -> LogKeep {
    opened.session().log_keep()
}

/// What the session's checkpoints take.
fn checkpoint_space(opened: &OpenSession) -> Option<CheckpointSpace> {
    opened.session().checkpoint_space().unwrap_or_default()
}

/// The content of the session, and its effects on the base.
fn holdings(figures: &SessionStats) -> [(&'static str, String); 2] {
    let holds = format!(
        "{}, {}, {}, {} special; {} of content",
        text::count(figures.files, "file"),
        text::count(figures.directories, "directory"),
        text::count(figures.symlinks, "symlink"),
        figures.specials,
        text::bytes(figures.content_bytes),
    );
    let of_base = format!(
        "{} copied up, {} hidden, {} moved",
        figures.copied_up,
        text::count(figures.whiteouts, "name"),
        text::count(figures.redirects, "directory"),
    );
    [("holds", holds), ("of base", of_base)]
}

fn originals(figures: &SessionStats) -> String {
    let (files, bytes) = (text::count(figures.originals, "file"), figures.original_bytes);
    let bound = CopyLimits::default().originals_bytes;
    format!("{files}, {} of {}", text::bytes(bytes), text::bytes(bound))
}

/// What `apply` keeps for an undo.
fn kept_line(session: &Session, kept: &KeptForUndo) -> String {
    let of = if kept.apply.is_undone { "of the undo" } else { "of the apply" };
    format!(
        "kept in {}: {}, {}, {of} at {} to {} (`{}`)",
        kept.dir.display(),
        text::count(kept.objects, "object"),
        text::bytes(kept.bytes),
        text::time_short(kept.apply.time),
        kept.apply.target.display(),
        undo_command(session.path(), kept.apply.copy(session.base_path()))
    )
}

fn kept_json(kept: &KeptForUndo) -> Map<String, Value> {
    let mut json = Map::new();
    text::put_path(&mut json, "dir", kept.dir.as_os_str().as_encoded_bytes());
    text::put_path(&mut json, "to", kept.apply.target.as_os_str().as_encoded_bytes());
    json.insert("time".to_owned(), text::time(kept.apply.time).into());
    json.insert("objects".to_owned(), kept.objects.into());
    json.insert("bytes".to_owned(), kept.bytes.into());
    json.insert("is_taken_back".to_owned(), kept.apply.is_undone.into());
    json
}

fn base(opened: &OpenSession) -> String {
    match (opened.base_path(), opened.session().base_path()) {
        (Some(base), _) => base.display().to_string(),
        (None, Some(base)) => format!("{}, not looked at", base.display()),
        (None, None) => "none".to_owned(),
    }
}

/// Fields that are shown only if they apply.
fn concerns(status: &SessionStatus) -> Vec<(&'static str, String)> {
    let (figures, drifted) = (&status.figures, status.touched.drifted);
    let mut concerns = Vec::new();
    if let Some(usage) = figures.usage {
        concerns.push(("quota", quota::line(&UsageReport::new(usage, figures.limits))));
    }
    if figures.pending.files > 0 {
        let left = text::bytes(figures.pending.bytes);
        let files = text::count(figures.pending.files, "file");
        concerns.push(("copying", format!("{files}, {left} left")));
    }
    if drifted > 0 {
        let drifted = text::count(drifted, "object");
        concerns.push(("drift", format!("{drifted} changed in the base since")));
    }
    if let denied @ 1.. = status.touched.denied {
        let (changes, are) =
            (text::count(denied, "change"), if denied == 1 { "is" } else { "are" });
        concerns.push(("denied", format!("{changes} {are} not counted: the base denies access")));
    }
    concerns
}

/// The addresses and clients of a server.
fn about(server: &ServerStatus) -> Vec<(&'static str, String)> {
    let addresses = server.addresses.iter().map(|address| ("at", address.to_string()));
    let clients = server.peers.iter().map(|peer| {
        let calls = text::count(peer.calls, "call");
        ("client", format!("{}, since {} s, {calls}", peer.address, peer.connected))
    });
    addresses.chain(clients).collect()
}

/// The process that serves the session, if it is known, and not this one, which has a replica open
/// while it looks.
fn served_by(status: &SessionStatus) -> Option<Option<u32>> {
    status.served_by.filter(|pid| *pid != Some(std::process::id()))
}

fn json(
    opened: &OpenSession,
    status: &SessionStatus,
    server: Option<&ServerStatus>,
) -> Map<String, Value> {
    let (session, figures, touched) = (opened.session(), &status.figures, &status.touched);
    let mut json = text::json("status");
    json.insert("session".to_owned(), session.path().display().to_string().into());
    let base = opened.base_path().map(|base| base.display().to_string());
    json.insert("base".to_owned(), base.into());
    json.insert("hide".to_owned(), hiding::texts(session.hidden()).collect());
    json.insert("served".to_owned(), served_by(status).is_some().into());
    json.insert("served_by".to_owned(), served_by(status).flatten().into());
    let addresses = server.map(|server| server.addresses.iter().map(ToString::to_string));
    let addresses = addresses.map(Iterator::collect::<Vec<_>>);
    json.insert("addresses".to_owned(), addresses.into());
    json.insert("clients".to_owned(), server.map(clients).into());
    json.insert("closed".to_owned(), figures.is_closed.into());
    for (key, value) in [
        ("file_bytes", figures.file_bytes),
        ("log_bytes", figures.wal_bytes),
        ("free_bytes", figures.free_bytes),
        ("page_bytes", figures.page_bytes),
        ("chunk_bytes", session.chunk_bytes()),
        ("files", figures.files),
        ("directories", figures.directories),
        ("symlinks", figures.symlinks),
        ("specials", figures.specials),
        ("content_bytes", figures.content_bytes),
        ("copied_up", figures.copied_up),
        ("whiteouts", figures.whiteouts),
        ("redirects", figures.redirects),
        ("pending_files", figures.pending.files),
        ("pending_bytes", figures.pending.bytes),
        ("originals", figures.originals),
        ("original_bytes", figures.original_bytes),
        ("original_bytes_max", CopyLimits::default().originals_bytes),
        ("audit_rows", figures.changes),
        ("audit_bytes", figures.change_bytes),
        ("audit_rows_dropped", figures.dropped_changes),
        ("values", figures.values),
        ("tool_calls", figures.tool_calls),
        ("added", touched.added),
        ("deleted", touched.deleted),
        ("modified", touched.modified),
        ("renamed", touched.renamed),
        ("drifted", touched.drifted),
        ("denied", touched.denied),
    ] {
        json.insert(key.to_owned(), value.into());
    }
    let keep = log_keep(opened);
    json.insert("log_keep_rows".to_owned(), keep.rows.into());
    json.insert("log_keep_secs".to_owned(), keep.secs.into());
    let space = checkpoint_space(opened).map(checkpoint::space_json);
    json.insert("checkpoints".to_owned(), space.into());
    json.insert("undo".to_owned(), kept(session).as_ref().map(kept_json).into());
    if let Some(usage) = figures.usage {
        quota::put(&mut json, &UsageReport::new(usage, figures.limits));
    }
    json
}

fn clients(server: &ServerStatus) -> Vec<Value> {
    let client = |peer: &ControlPeer| {
        serde_json::json!({
            "address": peer.address.to_string(),
            "connected": peer.connected,
            "calls": peer.calls,
        })
    };
    server.peers.iter().map(client).collect()
}
