//! `acetate migrate`: migrates a session to version 0.4 of the specification.

use std::io::IsTerminal;
use std::path::PathBuf;

use super::error::CliError;
use super::output::{self, Out};
use super::{Ending, check, text};
use crate::delta::sqlite::{MigrateOptions, Migrated, OpenError, SPEC_VERSION};
use crate::inspect::InspectError;
use crate::inspect::maintenance::migrate;

/// The most findings of an invariant that are listed.
const MOST: usize = 10;

/// Bring a session of an older specification, or of another program, to version 0.4.
///
/// Takes sessions of the specification's versions 0.0 to 0.3 and what AgentFS made of any: link
/// counts are recounted, and no byte of content is lost. The session must not be in use. It is
/// copied first, then changed at once: if the command is killed, the session is the old one or the
/// new one. What still breaks the rules (odd names, negative sizes) is listed; exits with 1 if
/// anything does.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// Only say what would be done, and what would not fit.
    #[arg(long)]
    dry_run: bool,

    /// Where the copy goes [default: SESSION.db.before-migrate]; never over another file.
    #[arg(long, value_name = "FILE")]
    backup: Option<PathBuf>,

    /// Print a JSON object for each step and each finding (or `rest`), and one for all.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let options =
        MigrateOptions { backup: args.backup.as_deref(), dry_run: args.dry_run, most: MOST };
    let mut progress = output::ProgressLine::new("copying", std::io::stderr().is_terminal());
    let migrated = migrate(&args.session, &options, &mut |done, all| progress.tell(done, all));
    progress.end();
    let migrated = migrated.map_err(failure)?;
    let mut out = Out::new();
    for step in &migrated.steps {
        if args.json {
            let mut object = text::json("step");
            object.insert("table".to_owned(), step.table.into());
            object.insert("what".to_owned(), step.what.as_str().into());
            out.json(object)?;
        } else {
            out.line(format_args!("{}: {}", step.table, step.what))?;
        }
    }
    check::print(&mut out, &migrated.left, args.json)?;
    if args.json {
        out.json(summary(args, &migrated))?;
    } else {
        out.line(format_args!("{}: {}", args.session.display(), words(args, &migrated)))?;
    }
    out.end()?;
    if migrated.left.is_empty() {
        return Ok(Ending::Done);
    }
    if !args.json {
        output::line(format_args!(
            "hint: `acetate check SESSION.db --repair` mends what is left, after another copy"
        ));
    }
    Ok(Ending::Findings)
}

fn failure(error: InspectError) -> CliError {
    let hint = match &error {
        InspectError::Open(OpenError::InUse { .. }) => "stop that server first, then migrate",
        InspectError::Open(OpenError::Exists { .. }) => {
            "the session is copied before; give the copy another place with --backup FILE"
        }
        _ => return error.into(),
    };
    CliError::from(error).with_hint(hint)
}

fn words(args: &Args, migrated: &Migrated) -> String {
    let from = migrated.from;
    if migrated.steps.is_empty() {
        return format!("of version {SPEC_VERSION}, as acetate makes it; nothing to do");
    }
    if args.dry_run {
        return format!("would become one of version {SPEC_VERSION}, from {from}");
    }
    let copy = migrated.backup.as_ref().map(|copy| copy.path.display().to_string());
    let copy = copy.unwrap_or_default();
    format!("now of version {SPEC_VERSION}, from {from}; as it was: {copy}")
}

fn summary(args: &Args, migrated: &Migrated) -> serde_json::Map<String, serde_json::Value> {
    let mut object = text::json("migrate");
    text::put_path(&mut object, "session", args.session.as_os_str().as_encoded_bytes());
    object.insert("from".to_owned(), migrated.from.into());
    object.insert("to".to_owned(), SPEC_VERSION.into());
    object.insert("is_done".to_owned(), migrated.backup.is_some().into());
    if let Some(copy) = &migrated.backup {
        text::put_path(&mut object, "backup", copy.path.as_os_str().as_encoded_bytes());
    }
    let findings: u64 = migrated.left.iter().map(|broken| broken.count).sum();
    object.insert("findings".to_owned(), findings.into());
    object
}
