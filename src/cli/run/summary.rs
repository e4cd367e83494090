//! What is shown when a command of `run` has ended: what this run changed, what the session holds
//! in all, and what can be done with that.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::cli::error::CliError;
use crate::cli::mounting::privilege::quoted;
use crate::cli::mounting::user::{User, acting_as};
use crate::cli::{diff, output, text};
use crate::delta::MergedPath;
use crate::inspect::apply::last_apply;
use crate::inspect::diff::{DiffOptions, Difference, DifferenceKind, diff as compare};
use crate::inspect::opened::{Opened, open_session};
use crate::inspect::touched::{Touched, last_change};

/// Lines of changes that are shown at the end; more are counted.
const MAX_SHOWN: usize = 40;

/// A session as a run finds it.
pub(super) struct SessionBefore {
    session: PathBuf,
    /// The id of the last change before the run, in the audit log.
    last: i64,
}

/// Changes by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct KindCounts {
    added: u64,
    deleted: u64,
    modified: u64,
    renamed: u64,
}

impl SessionBefore {
    /// Looks at `session`, which is there.
    pub(super) fn now(session: &Path) -> Result<Self, CliError> {
        let last = last_change(&open_session(session)?)?;
        Ok(Self { session: session.to_owned(), last })
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
        let opened = Opened::open(&self.session, None)?;
        let touched = Touched::since(opened.session(), self.last)?;
        let (mut this_run, mut in_all) = (KindCounts::default(), KindCounts::default());
        let (mut differences, mut objects) = (Vec::new(), Vec::new());
        compare(&opened, &DiffOptions::default(), &mut |_, difference| {
            in_all.count(&difference);
            if is_of_run(&touched, &difference) {
                this_run.count(&difference);
                if report.is_some() {
                    objects.push(Value::Object(diff::json(&difference)));
                }
                differences.push(difference);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let lines = diff::lines(&opened, false, differences)?;
        let can_undo = last_apply(opened.session()).is_some_and(|last| !last.is_taken_back);
        self.print(&lines, this_run, in_all, touched.is_complete);
        if can_undo && in_all.sum() > 0 {
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
        json.insert("this_run".to_owned(), this_run.json().into());
        json.insert("in_all".to_owned(), in_all.json().into());
        json.insert("complete".to_owned(), touched.is_complete.into());
        json.insert("changes".to_owned(), objects.into());
        let line = output::json_text(&Value::Object(json)) + "\n";
        acting_as(user, || fs::write(report, line)).map_err(|error: io::Error| {
            CliError::caused(format_args!("cannot write {}", report.display()), &error)
        })
    }

    fn print(&self, lines: &[String], this_run: KindCounts, in_all: KindCounts, is_complete: bool) {
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
            _ => output::line(format_args!("this run: {}", this_run.words())),
        }
        if !is_complete {
            output::line(format_args!(
                "more may be from this run: the audit log has dropped a part of it"
            ));
        }
        output::line(format_args!("{shown} holds in all: {}", in_all.words()));
        let session = quoted(&self.session.to_string_lossy());
        output::line(format_args!("  look      acetate diff {session}"));
        output::line(format_args!("  keep      acetate apply {session}"));
        output::line(format_args!("  go back   acetate discard {session} PATH"));
    }
}

/// Whether a difference is of an object that the run changed, or at a path where it did something.
fn is_of_run(touched: &Touched, difference: &Difference) -> bool {
    let change = &difference.change;
    if let (Some(after), false) = (&change.after, difference.kind == DifferenceKind::Deleted) {
        // What is in a directory has a line of its own.
        return touched.has_object(after.attr().fileid);
    }
    let from = change.before.as_ref().map(|before| MergedPath::of_base(&before.path));
    touched.has(&difference.path) || from.is_some_and(|from| touched.has(&from))
}

impl KindCounts {
    fn count(&mut self, difference: &Difference) {
        match difference.kind {
            DifferenceKind::Added => self.added += 1,
            DifferenceKind::Deleted => self.deleted += 1,
            DifferenceKind::Modified | DifferenceKind::Retyped => self.modified += 1,
            DifferenceKind::Renamed => self.renamed += 1,
        }
    }

    fn sum(self) -> u64 {
        self.added + self.deleted + self.modified + self.renamed
    }

    fn words(self) -> String {
        let Self { added, deleted, modified, renamed } = self;
        format!("{added} added, {deleted} deleted, {modified} modified, {renamed} renamed")
    }

    fn json(self) -> Map<String, Value> {
        let pairs = [
            ("added", self.added),
            ("deleted", self.deleted),
            ("modified", self.modified),
            ("renamed", self.renamed),
        ];
        pairs.into_iter().map(|(key, count)| (key.to_owned(), count.into())).collect()
    }
}
