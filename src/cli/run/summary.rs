//! What is shown when a command of `run` has ended: what this run changed, what the session holds
//! in all, and what can be done with that.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::cli::error::CliError;
use crate::cli::shell_words::quoted;
use crate::cli::{diff, output, session_names, text};
use crate::delta::MergedPath;
use crate::inspect::apply::last_apply;
use crate::inspect::counts::ChangeCounts;
use crate::inspect::diff::{DiffOptions, Difference, DifferenceKind, diff as compare};
use crate::inspect::fold::each_path;
use crate::inspect::logged_changes::{LoggedChanges, last_change};
use crate::inspect::opened::{OpenSession, open_session};
use crate::mounting::user::{User, acting_as};

/// Lines of changes that are shown at the end; more are counted.
const MAX_SHOWN: usize = 40;

/// A session as a run finds it.
pub(super) struct SessionBefore {
    session: PathBuf,
    /// The id of the last change before the run, in the audit log.
    last: i64,
    /// Whether there is a checkpoint of this moment.
    has_checkpoint: bool,
}

impl SessionBefore {
    /// Looks at `session`, which is there. `has_checkpoint` says whether one was made now.
    pub(super) fn now(session: &Path, has_checkpoint: bool) -> Result<Self, CliError> {
        let last = last_change(&open_session(session)?)?;
        Ok(Self { session: session.to_owned(), last, has_checkpoint })
    }

    /// Shows what has changed since, on stderr, and writes it to the file `report` with the rights
    /// of `user`.
    pub(super) fn show(
        &self,
        base: Option<&Path>,
        exit_code: Option<u8>,
        report: Option<&Path>,
        user: Option<&User>,
    ) -> Result<(), CliError> {
        let opened = OpenSession::open(&self.session, None)?;
        let touched = LoggedChanges::since(opened.session(), self.last)?;
        let (options, mut all) = (DiffOptions::default(), Vec::new());
        compare(&opened, &options, &mut |_, difference| {
            all.push(difference);
            Ok(ControlFlow::Continue(()))
        })?;
        let of_run: Vec<_> = all.iter().filter(|d| is_of_run(&touched, d)).cloned().collect();
        let gone = of_run.iter().filter(|difference| difference.kind == DifferenceKind::Deleted);
        let gone: BTreeSet<_> = gone.map(|difference| difference.path.clone()).collect();
        let lines = diff::lines(&opened, false, of_run)?;
        let all = each_path(&opened, &options, all)?;
        let in_all = ChangeCounts::of(&all);
        // What was in a directory that this run removed is gone by this run.
        let is_gone = |d: &Difference| {
            d.kind == DifferenceKind::Deleted && d.path.above().any(|dir| gone.contains(&dir))
        };
        let of_run: Vec<_> =
            all.into_iter().filter(|d| is_of_run(&touched, d) || is_gone(d)).collect();
        let this_run = ChangeCounts::of(&of_run);
        let was_applied = last_apply(opened.session()).is_some_and(|last| !last.is_undone);
        self.print(&lines, this_run, in_all, touched.is_complete);
        if was_applied && in_all.sum() > 0 {
            let session = quoted(&self.session.to_string_lossy());
            output::line(format_args!(
                "            acetate apply --undo {session}   (the last apply)"
            ));
        }
        let Some(report) = report else { return Ok(()) };
        let mut json = text::json("run");
        text::put_path(&mut json, "session", self.session.as_os_str().as_encoded_bytes());
        let base = base.map(|base| base.to_string_lossy().into_owned());
        json.insert("base".to_owned(), base.into());
        json.insert("exit_code".to_owned(), exit_code.into());
        json.insert("this_run".to_owned(), counts_json(this_run).into());
        json.insert("in_all".to_owned(), counts_json(in_all).into());
        json.insert("complete".to_owned(), touched.is_complete.into());
        let objects = of_run.iter().map(|difference| Value::Object(diff::json(difference)));
        json.insert("changes".to_owned(), objects.collect());
        session_names::in_object(&mut json);
        let line = output::json_text(&Value::Object(json)) + "\n";
        acting_as(user, || fs::write(report, line)).map_err(|error: io::Error| {
            CliError::caused(format_args!("cannot write {}", report.display()), &error)
        })
    }

    fn print(
        &self,
        lines: &[String],
        this_run: ChangeCounts,
        in_all: ChangeCounts,
        is_complete: bool,
    ) {
        let shown = self.session.display();
        for line in lines.iter().take(MAX_SHOWN) {
            output::line(format_args!("{line}"));
        }
        if let more @ 1.. = lines.len().saturating_sub(MAX_SHOWN) {
            output::line(format_args!("and {more} more"));
        }
        match (this_run.sum(), in_all.sum()) {
            (0, 0) => {
                output::line(format_args!("this run changed nothing; {shown} holds no changes"));
                return;
            }
            (0, _) => output::line(format_args!("this run changed nothing")),
            _ => output::line(format_args!("this run: {}", text::changes(this_run))),
        }
        if !is_complete {
            output::line(format_args!(
                "more may be from this run: the audit log has dropped a part of it"
            ));
        }
        output::line(format_args!("{shown} holds in all: {}", text::changes(in_all)));
        let session = quoted(&self.session.to_string_lossy());
        output::line(format_args!("  look      acetate diff {session}"));
        output::line(format_args!("  keep      acetate apply {session}"));
        if this_run.sum() > 0 && self.has_checkpoint {
            output::line(format_args!("  go back   acetate undo {session}"));
            output::line(format_args!("            acetate discard {session} PATH   (one path)"));
        } else {
            output::line(format_args!("  go back   acetate discard {session} PATH"));
        }
    }
}

/// Whether a difference is of an object that the run changed, or at a path where it did something.
fn is_of_run(logged: &LoggedChanges, difference: &Difference) -> bool {
    let change = &difference.change;
    if let (Some(after), false) = (&change.after, difference.kind == DifferenceKind::Deleted) {
        // What is in a directory has a line of its own.
        return logged.has_object(after.attr().fileid);
    }
    let from = change.before.as_ref().map(|before| MergedPath::of_base(&before.path));
    logged.has(&difference.path) || from.is_some_and(|from| logged.has(&from))
}

fn counts_json(counts: ChangeCounts) -> Map<String, Value> {
    let pairs = [
        ("added", counts.added),
        ("deleted", counts.deleted),
        ("modified", counts.modified),
        ("renamed", counts.renamed),
    ];
    pairs.into_iter().map(|(key, count)| (key.to_owned(), count.into())).collect()
}
