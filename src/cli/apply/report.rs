//! Prints the result of an apply, as text or JSON.

use std::path::Path;

use serde_json::{Map, Value};

use super::Args;
use super::printing::by_path;
use crate::cli::error::{CliError, CliErrorKind};
use crate::cli::output::{self, Out};
use crate::cli::shell_words::quoted;
use crate::cli::{Ending, session_names, text};
use crate::delta::sqlite::Session;
use crate::inspect::apply::{Loss, NotSet, Report};
use crate::inspect::opened::OpenSession;
use crate::inspect::restore::{applies_since, undo_targets};

/// The most warnings of files that an undo could not link to their further names.
const MAX_LOST_LINK_LINES: usize = 100;

/// Prints the report, and returns the ending.
pub(super) fn tell(args: &Args, opened: &OpenSession, report: &Report) -> Result<Ending, CliError> {
    match report.broken_off {
        Some((0, 0)) => return Err(CliError::new("interrupted: nothing was written")),
        Some((done, all)) => {
            let what = format!("interrupted: stopped after {done} of {all} steps");
            let hint = "run the same command again: it continues from there";
            return Err(CliError::new(what).with_hint(hint));
        }
        None => {}
    }
    warn(report.not_set);
    for loss in &report.losses {
        let path = text::name(loss.path.as_bytes());
        output::line(format_args!("warning: {path} {}", lost(loss)));
    }
    if !args.json {
        warn_of_lost_links(report);
    }
    let shown = show(args, opened, report);
    // An apply of times alone leaves what an earlier one kept, and has no undo.
    if report.kept.is_some() && report.applied.iter().any(|change| change.paths > 0) {
        note_undo(args, opened, report)?;
    } else if report.is_undo && !report.is_redo && args.keep.no_keep {
        output::line(format_args!(
            "the session does not get the changes back, and nothing of them is kept (--no-keep)"
        ));
    }
    // A closed stdout is no error: the apply is complete.
    if let Some(error) = shown.err().filter(|error| error.kind() != CliErrorKind::Closed) {
        return Err(error.after(done(report)));
    }
    let missing = [&report.skipped, &report.left_out, &report.kept_attributes];
    Ok(match missing.iter().all(|changes| changes.is_empty()) {
        true => Ending::Done,
        false => Ending::Findings,
    })
}

/// Prints the skipped changes and the total.
fn show(args: &Args, opened: &OpenSession, report: &Report) -> Result<(), CliError> {
    let mut out = Out::new();
    for skipped in by_path(&report.skipped, |skipped| &skipped.path) {
        let path = skipped.path.as_bytes();
        if args.json {
            out.json(with_reason("skipped", path, &skipped.why))?;
        } else {
            out.line(format_args!("skipped {}: {}", text::name(path), skipped.why))?;
        }
    }
    for kept in by_path(&report.kept_attributes, |kept| &kept.path) {
        let path = kept.path.as_bytes();
        if args.json {
            out.json(with_reason("attribute_kept", path, &kept.why))?;
        } else {
            out.line(format_args!("{} {}, but {}", done(report), text::name(path), kept.why))?;
        }
    }
    let lost_links = by_path(&report.lost_links, |file| &file.path);
    for file in lost_links.into_iter().filter(|_| args.json) {
        out.json(with_reason("link_lost", file.path.as_bytes(), &file.why))?;
    }
    let dir = super::target(args, opened);
    let skipped = report.skipped.len() + report.left_out.len();
    // Times of directories follow their entries, and are no change by themselves.
    let count: u64 = report.done().map(|change| change.paths).sum();
    if args.json {
        let mut object = text::json("applied");
        text::put_path(&mut object, "to", dir.as_os_str().as_encoded_bytes());
        put_counts(&mut object, count, skipped, "skipped");
        object.insert("undo".to_owned(), report.is_undo.into());
        out.json(object)?;
        return out.end();
    }
    let done = match (report.is_undo, skipped, count) {
        (false, 1.., 1..) => format!("{count} applied"),
        (false, 0, _) if report.done().next().is_some() => done(report).to_owned(),
        (false, ..) => "nothing was written".to_owned(),
        (true, ..) => done(report).to_owned(),
    };
    let kept = match report.kept_attributes.len() {
        0 => String::new(),
        1 => "; an attribute of 1 path stays as it is".to_owned(),
        kept => format!("; attributes of {kept} paths stay as they are"),
    };
    let skipped = match (skipped, report.is_undo) {
        (0, _) => String::new(),
        (_, true) => format!("; {skipped} skipped, which stay as they are"),
        (_, false) => format!(", {skipped} skipped: the session keeps those"),
    };
    out.line(format_args!("{}: {done}{kept}{skipped}", dir.display()))?;
    out.end()
}

/// The JSON object of a path, with what was not done there and why.
fn with_reason(name: &str, path: &[u8], why: &str) -> Map<String, Value> {
    let mut object = text::json(name);
    text::put_path(&mut object, "path", path);
    object.insert("why".to_owned(), why.into());
    object
}

/// The result, as a participle.
fn done(report: &Report) -> &'static str {
    match (report.is_undo, report.is_redo) {
        (_, true) => "applied again",
        (true, false) => "undone",
        (false, false) => "applied",
    }
}

/// The command that undoes the last apply of a session, to a copy of its base or to the base.
pub(in crate::cli) fn undo_command(session: &Path, copy: Option<&Path>) -> String {
    let to = copy.map(|copy| format!(" --to {}", quoted(&copy.display().to_string())));
    let session = quoted(&session_names::shown(session));
    format!("acetate apply --undo {session}{}", to.unwrap_or_default())
}

/// Prints the command that undoes the apply, or repeats it.
fn note_undo(args: &Args, opened: &OpenSession, report: &Report) -> Result<(), CliError> {
    let command = undo_command(&args.source.session, args.to.as_deref());
    match report.is_undo && !report.is_redo {
        false => {
            output::line(format_args!("`{command}` undoes it, until the next apply"));
        }
        true => {
            output::line(format_args!(
                "the session does not get the changes back: `{command}` applies them again"
            ));
            if args.to.is_none() && is_last_step(opened.session())? {
                let session = quoted(&args.source.session.display().to_string());
                output::line(format_args!("`acetate undo {session}` gives them back to it"));
            }
        }
    }
    Ok(())
}

/// Whether the last step of a session is one apply: what was made for an undo is from before it.
fn is_last_step(session: &Session) -> Result<bool, CliError> {
    let targets = undo_targets(session)?;
    let applies = targets.first().map(|newest| applies_since(session, newest)).transpose()?;
    Ok(applies.flatten() == Some(1))
}

/// Prints a warning for each attribute that could not be set on some objects.
fn warn(not_set: NotSet) {
    let whats =
        [(not_set.owners, "owner"), (not_set.modes, "mode"), (not_set.times, "modification time")];
    for (count, what) in whats.into_iter().filter(|(count, _)| *count > 0) {
        output::line(format_args!(
            "warning: could not set the {what} of {}: only the owner or root may set it",
            text::count(count, "object"),
        ));
    }
}

/// Prints a warning for each of the first files that are no hard links any more.
fn warn_of_lost_links(report: &Report) {
    for file in by_path(&report.lost_links, |file| &file.path).into_iter().take(MAX_LOST_LINK_LINES)
    {
        let (path, why) = (text::name(file.path.as_bytes()), &file.why);
        output::line(format_args!("warning: {path}: is no longer a hard link: {why}"));
    }
    let more = report.lost_links.len().saturating_sub(MAX_LOST_LINK_LINES);
    if more > 0 {
        let files = text::count(more, "more file");
        output::line(format_args!("warning: and {files}; --json names all of them"));
    }
}

/// The text for lost extended attributes.
pub(super) fn lost(loss: &Loss) -> String {
    format!("loses {}: {}", loss.names.join(", "), loss.why)
}

pub(super) fn put_counts(object: &mut Map<String, Value>, changes: u64, others: usize, what: &str) {
    object.insert("changes".to_owned(), changes.into());
    object.insert(what.to_owned(), others.into());
}
