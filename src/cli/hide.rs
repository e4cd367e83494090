//! `acetate hide`: what a session never shows of its base.

use std::path::PathBuf;

use super::error::CliError;
use super::hiding::{Hide, texts};
use super::output::{self, Out};
use super::{Ending, text};
use crate::delta::sqlite::{OpenMode, Session};
use crate::inspect::opened::{host, open_session};
use crate::vfs::{Pattern, PatternSet};
use crate::workspace::layers;

/// Show what a session hides of its base, hide more, or show it again.
///
/// Prints the patterns, one a line. To change them, the session must not be served. What the
/// session itself has already stays to be seen.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    #[command(flatten)]
    more: Hide,

    /// Forget this pattern of the list; repeatable.
    #[arg(long, value_name = "PATTERN")]
    remove: Vec<String>,

    /// Print a JSON object: session, hide (the patterns).
    #[arg(long)]
    json: bool,
}

/// Changes what there is to change, and prints the patterns.
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

fn change(args: &Args, more: &PatternSet) -> Result<PatternSet, CliError> {
    let mut session = Session::open(&args.session, OpenMode::Serve, &host()?)?;
    let wrong = |error| CliError::new(format_args!("--hide: {error}"));
    let mut patterns = session.hidden().patterns().to_vec();
    for removed in &args.remove {
        if !patterns.iter().any(|pattern| pattern.as_str() == removed) {
            let what = format!("{}: does not hide {removed}", args.session.display());
            let hint = format!("`acetate hide {}` prints the list", args.session.display());
            return Err(CliError::new(what).with_hint(hint));
        }
        patterns.retain(|pattern: &Pattern| pattern.as_str() != removed);
    }
    let hidden = PatternSet::new(patterns).and_then(|set| set.union(more)).map_err(wrong)?;
    layers::remember_hidden(&mut session, hidden.clone())?;
    layers::close(&session)?;
    Ok(hidden)
}
