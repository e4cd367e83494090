//! `acetate check --repair`: repairs what the check finds.

use std::io::IsTerminal;
use std::path::Path;

use serde_json::{Map, Value};

use super::error::CliError;
use super::output::{self, Out};
use super::source::SessionSource;
use super::{Ending, check, text};
use crate::delta::sqlite::{OpenError, RepairOptions, RepairReport, Repairs};
use crate::inspect::InspectError;
use crate::inspect::check::Soundness;
use crate::inspect::repair::repair;

/// The arguments of a repair.
pub(super) struct RepairArgs<'a> {
    pub source: &'a SessionSource,
    pub backup: Option<&'a Path>,
    pub dry_run: bool,
    pub most: usize,
    pub json: bool,
}

/// Repairs a session, and prints the repairs and what is left.
pub(super) fn run(wanted: &RepairArgs<'_>) -> Result<Ending, CliError> {
    let (session, base) = (&wanted.source.session, wanted.source.base.as_deref());
    let options =
        RepairOptions { backup: wanted.backup, dry_run: wanted.dry_run, most: wanted.most };
    let mut progress = output::ProgressLine::new("copying", std::io::stderr().is_terminal());
    let repaired = repair(session, base, &options, &mut |done, all| progress.tell(done, all));
    progress.end();
    let (repaired, left) = repaired.map_err(failure)?;
    let mut out = Out::new();
    let done = if wanted.dry_run { "would be mended:" } else { "mended" };
    for mended in &repaired.mended {
        if wanted.json {
            out.json(object(mended))?;
            continue;
        }
        for what in &mended.first {
            out.line(format_args!("{done} {}: {}", mended.rule, text::name(what.as_bytes())))?;
        }
        if mended.count > mended.first.len() as u64 {
            out.line(format_args!("{done} {}: {} in all", mended.rule, mended.count))?;
        }
    }
    if let Some(left) = &left {
        check::print(&mut out, &left.broken, wanted.json)?;
    }
    if wanted.json {
        out.json(summary(session, &repaired, left.as_ref()))?;
    } else {
        let words = words(wanted, &repaired, left.as_ref());
        out.line(format_args!("{}: {words}", session.display()))?;
    }
    out.end()?;
    Ok(match left {
        Some(left) if !left.is_sound() => Ending::Findings,
        None if !repaired.mended.is_empty() => Ending::Findings,
        _ => Ending::Done,
    })
}

fn failure(error: InspectError) -> CliError {
    let hint = match &error {
        InspectError::Open(OpenError::InUse { .. }) => "stop that server first, then repair",
        InspectError::Open(OpenError::Exists { .. }) => {
            "the session is copied before; give the copy another place with --backup FILE"
        }
        _ => return error.into(),
    };
    CliError::from(error).with_hint(hint)
}

fn words(wanted: &RepairArgs<'_>, repaired: &RepairReport, left: Option<&Soundness>) -> String {
    let state = left.map_or_else(String::new, check::words);
    match &repaired.backup {
        Some(copy) => format!("repaired, now {state}; as it was: {}", copy.path.display()),
        None if !repaired.mended.is_empty() => "would be repaired".to_owned(),
        None if wanted.dry_run => "nothing to repair".to_owned(),
        None if left.is_some_and(|left| !left.is_sound()) => {
            format!("{state}; none of it can be repaired")
        }
        None => format!("{state}, nothing to repair"),
    }
}

fn object(mended: &Repairs) -> Map<String, Value> {
    let mut object = text::json("mended");
    object.insert("rule".to_owned(), mended.rule.into());
    object.insert("count".to_owned(), mended.count.into());
    object.insert("what".to_owned(), mended.first.clone().into());
    object
}

fn summary(
    session: &Path,
    repaired: &RepairReport,
    left: Option<&Soundness>,
) -> Map<String, Value> {
    let mut object = text::json("repair");
    text::put_path(&mut object, "session", session.as_os_str().as_encoded_bytes());
    let mended: u64 = repaired.mended.iter().map(|mended| mended.count).sum();
    object.insert("mended".to_owned(), mended.into());
    object.insert("is_done".to_owned(), repaired.backup.is_some().into());
    if let Some(copy) = &repaired.backup {
        text::put_path(&mut object, "backup", copy.path.as_os_str().as_encoded_bytes());
    }
    if let Some(left) = left {
        object.insert("is_sound".to_owned(), left.is_sound().into());
        object.insert("findings".to_owned(), left.findings().into());
        object.insert("notes".to_owned(), left.notes().into());
    }
    object
}
