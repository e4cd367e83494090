//! `acetate hide`: shows and changes what a session hides of its base.

use std::ops::ControlFlow;
use std::path::PathBuf;

use super::error::CliError;
use super::hiding::{Hide, texts};
use super::output::{self, Out};
use super::shell_words::quoted;
use super::{Ending, in_database, text};
use crate::delta::MergedPath;
use crate::delta::sqlite::{OpenMode, Session};
use crate::inspect::diff::{DiffOptions, diff_past_denied};
use crate::inspect::opened::{OpenSession, host, open_session};
use crate::pattern::{Pattern, PatternSet};
use crate::workspace::{Error as WorkspaceError, layers};

/// The most changed paths that are listed.
const MAX_NAMED: usize = 10;

/// Show what a session hides of its base, hide more, or show it again.
///
/// Prints the patterns, one per line. To change them, the session must not be served. Files that
/// the session has its own copy of stay visible.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    #[command(flatten)]
    more: Hide,

    /// Remove this pattern from the list; repeatable.
    #[arg(long, value_name = "PATTERN")]
    remove: Vec<String>,

    /// Print a JSON object: session, hide (the patterns).
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let more = args.more.patterns()?;
    let hidden = if more.is_empty() && args.remove.is_empty() {
        PatternSet::clone(open_session(&args.session)?.hidden())
    } else {
        change(args, &more)?
    };
    let mut out = Out::new();
    if args.json {
        let mut object = text::json("hide");
        text::put_path(&mut object, "session", args.session.as_os_str().as_encoded_bytes());
        object.insert("hide".to_owned(), texts(&hidden).collect());
        out.json(object)?;
    } else {
        texts(&hidden)
            .try_for_each(|pattern| out.line(format_args!("{}", text::line(pattern.as_bytes()))))?;
    }
    out.end()?;
    if hidden.is_empty() {
        output::line(format_args!("{}: hides nothing", args.session.display()));
    }
    Ok(Ending::Done)
}

/// Patterns before a change and after it.
struct HideChange {
    before: PatternSet,
    hidden: PatternSet,
}

fn change(args: &Args, more: &PatternSet) -> Result<PatternSet, CliError> {
    let (changed, file) = match in_database::url_of(&args.session)? {
        Some(url) => in_database::change_at_rest(&url, |session| replace(args, session, more))?,
        None => {
            let mut session = Session::open(&args.session, OpenMode::Serve, &host()?)?;
            let changed = replace(args, &mut session, more)?;
            layers::close(&session)?;
            (changed, args.session.clone())
        }
    };
    let HideChange { before, hidden } = changed?;
    // A missing base does not matter: the patterns are stored already.
    if let Ok(opened) = OpenSession::open(&file, None) {
        tell_changed(args, &opened, &before)?;
    }
    Ok(hidden)
}

/// Replaces the patterns of a session that is not served.
fn replace(
    args: &Args,
    session: &mut Session,
    more: &PatternSet,
) -> Result<Result<HideChange, CliError>, WorkspaceError> {
    let before = PatternSet::clone(session.hidden());
    let hidden = match hidden(args, &before, more) {
        Ok(hidden) => hidden,
        Err(error) => return Ok(Err(error)),
    };
    layers::remember_hidden(session, hidden.clone())?;
    Ok(Ok(HideChange { before, hidden }))
}

/// The patterns of a session that has `before`, without those to remove and with `more`.
fn hidden(args: &Args, before: &PatternSet, more: &PatternSet) -> Result<PatternSet, CliError> {
    let mut patterns = before.patterns().to_vec();
    for removed in &args.remove {
        if !patterns.iter().any(|pattern| pattern.as_str() == removed) {
            let what = format!("{}: does not hide {removed}", args.session.display());
            let session = quoted(&args.session.to_string_lossy());
            let hint = format!("`acetate hide {session}` prints the list");
            return Err(CliError::new(what).with_hint(hint));
        }
        patterns.retain(|pattern: &Pattern| pattern.as_str() != removed);
    }
    let wrong = |error| CliError::new(format_args!("--hide: {error}"));
    PatternSet::new(patterns).and_then(|set| set.union(more)).map_err(wrong)
}

/// Lists the session's changes at paths that the patterns newly hide.
fn tell_changed(args: &Args, opened: &OpenSession, before: &PatternSet) -> Result<(), CliError> {
    let now = opened.session().hidden();
    let mut found = 0_usize;
    let mut tell = |path: &MergedPath| {
        let relative = &path.as_bytes()[1..];
        if now.covers(relative) && !before.covers(relative) {
            found += 1;
            if found <= MAX_NAMED {
                let path = text::name(path.as_bytes());
                output::line(format_args!(
                    "{path}: changed in the session, which keeps the change and shows it; apply \
                     leaves it out"
                ));
            }
        }
    };
    let denied = diff_past_denied(opened, &DiffOptions::default(), &mut |_, difference| {
        tell(&difference.path);
        Ok(ControlFlow::Continue(()))
    })?;
    denied.iter().for_each(tell);
    if let more @ 1.. = found.saturating_sub(MAX_NAMED) {
        output::line(format_args!("and {more} more that the session changed"));
    }
    if found > 0 {
        let session = quoted(&args.session.to_string_lossy());
        output::line(format_args!(
            "hint: `acetate discard {session} PATH` gives such a change up, and nothing shows there"
        ));
    }
    Ok(())
}
