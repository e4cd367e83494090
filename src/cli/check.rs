//! `acetate check`: checks the invariants of a session.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::error::CliError;
use super::output::Out;
use super::repair::{self, RepairArgs};
use super::source::{SessionSource, warn_if_unfinished};
use super::{Ending, text};
use crate::delta::sqlite::{Breach, Broken, CheckOptions};
use crate::inspect::check::{Soundness, check};

/// Check a session against every rule of docs/SCHEMA.md.
///
/// Prints a line for each finding: the rule, the path, and what is wrong. Rules that other
/// implementations may break, and that acetate can live without, are notes in files that they
/// wrote to: such a session is usable. The session may be served at the same time, and is not
/// changed.
/// Exits with 1 if there are findings or such notes, which --repair mends.
///
/// With --repair it is changed, and must not be served: it is copied first, then everything that
/// can be mended is mended in one step. No content is lost: what has no place any more is in
/// /lost+found of the session. Exits with 1 if anything is left, or, with --dry-run, if there is
/// anything to mend.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// Leave out SQLite's own check, which reads the whole file.
    #[arg(long)]
    quick: bool,

    /// Findings to show of each rule; the rest is counted.
    #[arg(long, value_name = "N", default_value_t = 10)]
    max: usize,

    /// Count as findings what another program broke and acetate can live with.
    #[arg(long, conflicts_with = "lenient")]
    strict: bool,

    /// Exit with 0 where another program broke only what acetate can live with.
    #[arg(long)]
    lenient: bool,

    /// Mend what is found, after copying the session.
    #[arg(long, conflicts_with = "quick")]
    repair: bool,

    /// Only say what would be mended.
    #[arg(long, requires = "repair")]
    dry_run: bool,

    /// Where the copy goes [default: SESSION.db.before-repair]; never over another file.
    #[arg(long, value_name = "FILE", requires = "repair")]
    backup: Option<PathBuf>,

    /// Print a JSON object for each finding (or `rest`, or `mended`), and one for the session.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    warn_if_unfinished(&args.source.session, args.source.base.as_deref());
    if args.repair {
        return repair::run(&RepairArgs {
            source: &args.source,
            backup: args.backup.as_deref(),
            dry_run: args.dry_run,
            most: args.max,
            json: args.json,
        });
    }
    let options = CheckOptions { most: args.max, quick: args.quick };
    let mut sound = check(&args.source.session, args.source.base.as_deref(), &options)?;
    if args.strict {
        sound.broken.iter_mut().for_each(|broken| broken.is_note = false);
    }
    let is_done = sound.is_sound() && (args.lenient || !sound.has_foreign_damage());
    let mut out = Out::new();
    print(&mut out, &sound.broken, args.json)?;
    match args.json {
        true => out.json(summary(args, &sound, is_done))?,
        false => out.line(format_args!("{}: {}", args.source.session.display(), words(&sound)))?,
    }
    out.end()?;
    Ok(if is_done { Ending::Done } else { Ending::Findings })
}

/// Prints the broken invariants.
pub(super) fn print(out: &mut Out, broken: &[Broken], json: bool) -> Result<(), CliError> {
    for broken in broken {
        for breach in &broken.first {
            match json {
                true => out.json(finding(broken, breach))?,
                false => out.line(format_args!("{}", line(broken, breach)))?,
            }
        }
        let rest = broken.count - broken.first.len() as u64;
        match json {
            _ if rest == 0 => {}
            true => out.json(more(broken, rest))?,
            false => out.line(format_args!("{}: {rest} more", rule(broken)))?,
        }
    }
    Ok(())
}

fn rule(broken: &Broken) -> String {
    let note = if broken.is_note { "note " } else { "" };
    format!("{note}{}", broken.rule)
}

fn line(broken: &Broken, breach: &Breach) -> String {
    let mut line = rule(broken);
    if let Some(path) = &breach.path {
        line.push(' ');
        line.push_str(&text::name(path));
    }
    if let Some(ino) = breach.ino {
        line.push_str(&format!(" (inode {ino})"));
    }
    line.push_str(": ");
    line.push_str(&text::name(breach.what.as_bytes()));
    line
}

/// The result in words.
pub(super) fn words(sound: &Soundness) -> String {
    let found = match sound.findings() {
        0 if sound.has_foreign_damage() => "usable, written by another program too".to_owned(),
        0 => "sound".to_owned(),
        findings => text::count(findings, "finding"),
    };
    match sound.notes() {
        0 => found,
        notes => format!("{found}, {}", text::count(notes, "note")),
    }
}

fn about(what: &str, broken: &Broken) -> Map<String, Value> {
    let mut object = text::json(what);
    object.insert("rule".to_owned(), broken.rule.into());
    object.insert("is_note".to_owned(), broken.is_note.into());
    object
}

fn finding(broken: &Broken, breach: &Breach) -> Map<String, Value> {
    let mut object = about("finding", broken);
    if let Some(path) = &breach.path {
        text::put_path(&mut object, "path", path);
    }
    if let Some(ino) = breach.ino {
        object.insert("ino".to_owned(), ino.into());
    }
    object.insert("what".to_owned(), breach.what.as_str().into());
    object
}

fn more(broken: &Broken, rest: u64) -> Map<String, Value> {
    let mut object = about("rest", broken);
    object.insert("count".to_owned(), rest.into());
    object
}

fn summary(args: &Args, sound: &Soundness, is_done: bool) -> Map<String, Value> {
    let mut object = text::json("check");
    text::put_path(&mut object, "session", args.source.session.as_os_str().as_encoded_bytes());
    object.insert("is_sound".to_owned(), is_done.into());
    object.insert("is_foreign".to_owned(), sound.is_foreign.into());
    object.insert("findings".to_owned(), sound.findings().into());
    object.insert("notes".to_owned(), sound.notes().into());
    object
}
