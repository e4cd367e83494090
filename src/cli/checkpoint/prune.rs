//! `acetate checkpoint prune`: removes the oldest checkpoints without a name.

use std::io::{IsTerminal, stderr};

use jiff::Timestamp;

use super::{print_removed, remove};
use crate::cli::change::with_session_changer;
use crate::cli::error::CliError;
use crate::cli::output::{self, Out, ProgressLine};
use crate::cli::source::SessionSource;
use crate::cli::{Ending, time_args};
use crate::config::parse_bytes;
use crate::delta::sqlite::ListedCheckpoint;
use crate::delta::{Checkpoint, CheckpointKind};
use crate::inspect::checkpoint::{list_checkpoints, surplus_checkpoints};
use crate::inspect::opened::open_session;

/// Remove the oldest checkpoints of a session that have no name.
///
/// Those at which forks began stay; `acetate checkpoint rm` removes them.
/// With several options, a checkpoint is removed if one of them wants it. Without options, the
/// automatic ones go that the session does not keep (`serve --keep-checkpoints`). Exits with 1 if
/// none is removed.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// Keep the newest N without a name.
    #[arg(long, value_name = "N")]
    keep: Option<usize>,

    /// Remove those from before this moment, or older than this: 30d, 2 weeks, 2026-11-01.
    #[arg(long, value_name = "AGE", value_parser = time_args::parse)]
    older_than: Option<Timestamp>,

    /// Remove the oldest while what is kept for all checkpoints takes more than this: 500MB, 2GiB.
    /// What an older one with a name needs stays.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_bytes: Option<u64>,

    /// Only show what would be removed.
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Print a JSON object for each: id, name.
    #[arg(long)]
    json: bool,
}

/// Prunes.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let session = open_session(&args.source.session)?;
    let all = list_checkpoints(&session)?;
    let unwanted = match (args.keep, args.older_than, args.max_bytes) {
        (None, None, None) => {
            let surplus = surplus_checkpoints(&session, &all)?;
            all.iter().map(|one| &one.checkpoint).filter(|one| surplus.contains(&one.id)).collect()
        }
        _ => unwanted(args, &all),
    };
    drop(session);
    if !args.dry_run && !unwanted.is_empty() {
        let mut progress = ProgressLine::new("prune", stderr().is_terminal());
        let all = unwanted.len() as u64;
        let done = with_session_changer(&args.source, |changer| {
            // Newest first: each then hands over the least.
            for (done, checkpoint) in unwanted.iter().rev().enumerate() {
                remove(changer, checkpoint.id)?;
                progress.tell(done as u64, all);
            }
            Ok(())
        });
        progress.end();
        done?;
    }
    let verb = if args.dry_run { "would remove" } else { "removed" };
    let mut out = Out::new();
    for checkpoint in &unwanted {
        print_removed(&mut out, (verb, args.json), checkpoint)?;
    }
    out.end()?;
    if unwanted.is_empty() && !args.json {
        output::line(format_args!("nothing to remove"));
    }
    Ok(if unwanted.is_empty() { Ending::Findings } else { Ending::Done })
}

/// The checkpoints to remove, the oldest first.
fn unwanted<'c>(args: &Args, all: &'c [ListedCheckpoint]) -> Vec<&'c Checkpoint> {
    let is_prunable = |one: &&ListedCheckpoint| {
        one.checkpoint.name.is_none() && one.checkpoint.kind != CheckpointKind::Fork
    };
    let nameless: Vec<_> = all.iter().filter(is_prunable).collect();
    let older = args.older_than.map(time_args::time);
    let surplus = args.keep.map_or(0, |keep| nameless.len().saturating_sub(keep));
    let mut bytes: u64 = all.iter().map(|one| one.saved_bytes).sum();
    let mut unwanted = Vec::new();
    for (at, one) in nameless.into_iter().enumerate() {
        let is_over = args.max_bytes.is_some_and(|most| bytes > most);
        let is_old = older.is_some_and(|older| one.checkpoint.time < older);
        if at < surplus || is_old || is_over {
            // What the one before it takes over is not known before.
            bytes = bytes.saturating_sub(one.saved_bytes);
            unwanted.push(&one.checkpoint);
        }
    }
    unwanted
}

fn parse_size(text: &str) -> Result<u64, String> {
    let expected = || "expected bytes, such as 500MB, 2GiB or 4096".to_owned();
    parse_bytes(text).ok_or_else(expected)
}
