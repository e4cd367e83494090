//! `acetate log prune`: the oldest changes leave the audit log.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::{ControlFlow, RangeInclusive};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::Value;

use super::json;
use crate::cli::change::with_session_changer;
use crate::cli::error::CliError;
use crate::cli::output::{self, Out, ProgressLine};
use crate::cli::partial::Partial;
use crate::cli::source::SessionSource;
use crate::cli::{Ending, text, time_args};
use crate::control::{Answer, Request};
use crate::inspect::log::{AuditLog, LogOptions};
use crate::inspect::opened::open_session;

/// The level of compression: a few times as fast as a disk writes.
const LEVEL: i32 = 6;

/// Delete the oldest changes from a session's audit log.
///
/// The session may be served at the same time. What the session changed stays as it is, and
/// `acetate apply` still notices what changed in the base. The newest 4,096 changes of the last
/// day stay in any case, and so does the last change: a server that was killed needs them.
/// `acetate compact` gives the space back to the disk.
///
/// Exits with 1 if no change is old enough.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true)))]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// Delete changes from before this moment, or older than this: 30d, 2 weeks, 2026-11-01.
    #[arg(long, value_name = "AGE", value_parser = time_args::parse, group = "which")]
    older_than: Option<Timestamp>,

    /// Keep the newest N changes; with --older-than, keep those that either option keeps.
    #[arg(long, value_name = "N", group = "which")]
    keep: Option<u64>,

    /// First write what is deleted to a new file: the lines of `acetate log --json`, compressed
    /// with zstd. Nothing is deleted before the file is on the disk.
    #[arg(long, value_name = "FILE.jsonl.zst")]
    archive: Option<PathBuf>,

    /// Only show how many changes would be deleted.
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Print a JSON object: session, deleted, needed (changes that stay only because a server that
    /// was killed needs them), archive (where there is one), dry_run.
    #[arg(long)]
    json: bool,
}

/// Prunes the log.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let session = &args.source.session;
    let log = AuditLog::open(&open_session(session)?, LogOptions::default())?;
    let now = time_args::time(Timestamp::now());
    let since = args.older_than.map(time_args::time);
    let (last, unwanted) = (log.prunable(now, args.keep, since)?, log.unwanted(args.keep, since)?);
    let left = Undeleted {
        needed: if unwanted > last { count(&log, last + 1..=unwanted)? } else { 0 },
        is_short: args.keep.is_some() && log.unwanted(args.keep, None)? == 0,
    };
    let archived = match &args.archive {
        Some(file) if !args.dry_run && last > 0 => Some(archive(&log, last, file)?),
        _ => None,
    };
    let count = match (args.dry_run, archived) {
        (true, _) => count(&log, i64::MIN..=last)?,
        (false, Some(0)) => 0,
        (false, _) if last == 0 => 0,
        (false, _) => {
            drop(log);
            prune(args, last, archived)?
        }
    };
    show(args, count, &left)?;
    Ok(if count > 0 { Ending::Done } else { Ending::Findings })
}

/// Why not more is deleted.
struct Undeleted {
    /// How many changes stay because a server may need them.
    needed: u64,
    /// Whether the log has no more than `--keep` keeps.
    is_short: bool,
}

fn count(log: &AuditLog, ids: RangeInclusive<i64>) -> Result<u64, CliError> {
    let mut count = 0;
    log.read_ids(ids, &mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

/// Deletes the rows, a bounded number in each transaction.
fn prune(args: &Args, last: i64, all: Option<u64>) -> Result<u64, CliError> {
    let mut progress = ProgressLine::new("prune", io::stderr().is_terminal());
    let source = &args.source;
    let done = with_session_changer(source, |changer| {
        let mut deleted = 0;
        loop {
            match changer.ask(Request::PruneLog { upto: last })? {
                Answer::Objects(0) => return Ok(deleted),
                Answer::Objects(rows) => deleted += rows,
                _ => return Err(CliError::new("unexpected reply from the session's server")),
            }
            match all {
                Some(all) => progress.tell(deleted, all),
                None => progress.say(|| text::count(deleted, "change")),
            }
        }
    });
    progress.end();
    done
}

/// Writes the rows up to `last` to a new file, and has it on the disk; how many they are. The file
/// has its name once it is whole.
fn archive(log: &AuditLog, last: i64, path: &Path) -> Result<u64, CliError> {
    require_new(path)?;
    let partial = Partial::create(path)?;
    let rows = write(log, last, &partial.file)?;
    require_new(path)?;
    partial.keep_as(path)?;
    sync_name(path).map_err(|error| CliError::caused(path.display(), &error))?;
    Ok(rows)
}

fn require_new(path: &Path) -> Result<(), CliError> {
    match path.symlink_metadata() {
        Ok(_) => Err(CliError::new(format_args!("{}: File exists", path.display()))
            .with_hint("an existing archive is not overwritten; give another name")),
        Err(_) => Ok(()),
    }
}

fn write(log: &AuditLog, last: i64, file: &File) -> Result<u64, CliError> {
    let failed = |error: io::Error| CliError::caused("the archive cannot be written", &error);
    let mut encoder = zstd::Encoder::new(BufWriter::new(file), LEVEL).map_err(failed)?;
    encoder.include_checksum(true).map_err(failed)?;
    let (mut rows, mut failure, undone) = (0, None, log.undone_rows()?);
    log.read_ids(i64::MIN..=last, &mut |id, row| {
        let printed = match row {
            Ok(row) => {
                rows += 1;
                let line = Value::Object(json(id, &row, undone.is_taken_back(id, &row)))
                    .to_string()
                    + "\n";
                encoder.write_all(line.as_bytes()).map_err(failed)
            }
            Err(odd) => {
                let what = format!("row {id} of acetate_op: its {} cannot be read", odd.column);
                Err(CliError::new(what)
                    .with_hint("it cannot be archived; without --archive it is deleted"))
            }
        };
        failure = printed.err();
        if failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    let mut out = encoder.finish().map_err(failed)?;
    out.flush().map_err(failed)?;
    Ok(rows)
}

/// Has the name of a new file on the disk.
fn sync_name(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
}

fn show(args: &Args, count: u64, left: &Undeleted) -> Result<(), CliError> {
    let mut out = Out::new();
    if args.json {
        let mut object = text::json("log_prune");
        object.insert("session".to_owned(), args.source.session.display().to_string().into());
        object.insert("deleted".to_owned(), count.into());
        object.insert("needed".to_owned(), left.needed.into());
        if let (Some(file), true) = (&args.archive, count > 0 && !args.dry_run) {
            object.insert("archive".to_owned(), file.display().to_string().into());
        }
        object.insert("dry_run".to_owned(), args.dry_run.into());
        out.json(object)?;
        return out.end();
    }
    let verb = if args.dry_run { "would be deleted" } else { "deleted" };
    let why = match (count + left.needed, left.is_short, args.keep) {
        (0, true, Some(keep)) => format!(": the log has no more than {keep}"),
        (0, ..) => ": none is that old".to_owned(),
        _ => String::new(),
    };
    output::line(format_args!("{} {verb}{why}", text::count(count, "change")));
    if let needed @ 1.. = left.needed {
        let stay = if needed == 1 { "1 more stays" } else { &format!("{needed} more stay") };
        output::line(format_args!(
            "{stay}: a server that was killed needs the newest 4,096 changes of the last day, and \
             the last change"
        ));
    }
    Ok(())
}
