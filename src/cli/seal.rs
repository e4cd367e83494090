//! `acetate seal`: makes a session readable for any implementation of the specification.

use std::io::IsTerminal;
use std::path::Path;

use clap::ValueEnum;
use serde_json::Value;

use super::error::CliError;
use super::hiding;
use super::output::{self, Out};
use super::source::SessionSource;
use super::{Ending, text};
use crate::delta::sqlite::OpenError;
use crate::inspect::InspectError;
use crate::inspect::opened::open_session;
use crate::inspect::seal::{Obstacles, obstacles, plan, seal};

/// The least number of zero bytes that causes a warning.
const MANY_ZERO_BYTES: u64 = 1 << 30;

/// Make a session readable for programs that follow the specification to the letter.
///
/// Copies what is still only in the base, fills holes with zeros, copies up what is below renamed
/// directories, and gives each further name of a changed file an entry. The tree stays what it is,
/// with its handles, numbers and times. The session must not be served at the same time. If the
/// command is killed, the session is valid, and the next run continues.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// Also for what this implementation needs beyond the specification; exits with 1 where
    /// something is left that it cannot read.
    #[arg(long = "for", value_name = "NAME")]
    reader: Option<SealReader>,

    /// Only say how much it would take.
    #[arg(long)]
    dry_run: bool,

    /// Print a JSON object: session, redirects, opaque, copied, names, finished, unfinished,
    /// copied_bytes, zero_bytes; odd_names and hidden with --for.
    #[arg(long)]
    json: bool,
}

/// Another implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SealReader {
    /// AgentFS and its SDKs: empties fs_origin too, and names what they cannot read.
    Agentfs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    if args.dry_run {
        return dry_run(args);
    }
    let (session, base) = (&args.source.session, args.source.base.as_deref());
    let mut progress = output::ProgressLine::new("sealing", std::io::stderr().is_terminal());
    let tell = &mut |done, all| progress.tell(done, all);
    let sealed = seal(session, base, args.reader.is_some(), tell);
    progress.end();
    let sealed = sealed.map_err(explain)?;
    let left = args.reader.map(|_| obstacles(session)).transpose()?;
    let mut out = Out::new();
    let mut object = text::json("seal");
    text::put_path(&mut object, "session", session.as_os_str().as_encoded_bytes());
    let counts = [
        ("redirects", sealed.redirects, "redirect", "folded"),
        ("opaque", sealed.opaque, "opaque directory", "masked"),
        ("copied", sealed.copied, "object", "copied up"),
        ("names", sealed.names, "name", "added"),
        ("finished", sealed.finished, "copy", "finished"),
    ];
    let mut words: Vec<String> = Vec::new();
    for (key, count, what, done) in counts {
        object.insert(key.to_owned(), count.into());
        if count > 0 {
            words.push(format!("{} {done}", text::count(count, what)));
        }
    }
    object.insert("unfinished".to_owned(), sealed.unfinished.into());
    object.insert("copied_bytes".to_owned(), sealed.copied_bytes.into());
    object.insert("zero_bytes".to_owned(), sealed.zero_bytes.into());
    if sealed.zero_bytes > 0 {
        words.push(format!("{} of zeros", text::bytes(sealed.zero_bytes)));
    }
    if let Some(left) = &left {
        object.insert("odd_names".to_owned(), left.odd_names.count.into());
        object.insert("hidden".to_owned(), left.hidden.into());
    }
    if args.json {
        out.json(object)?;
    } else {
        let words = if words.is_empty() { "nothing to do".to_owned() } else { words.join(", ") };
        out.line(format_args!("{}: sealed: {words}", session.display()))?;
    }
    out.end()?;
    warn_of_zeros(sealed.zero_bytes);
    warn_of_hidden(session)?;
    for path in &sealed.first_unfinished {
        output::line(format_args!(
            "{}: not whole: its base file changed before it was copied",
            text::name(path.as_bytes())
        ));
    }
    let has_left = left.as_ref().is_some_and(|left| left.odd_names.count + left.hidden > 0);
    if let Some(left) = &left {
        name(left);
    }
    Ok(if sealed.unfinished > 0 || has_left { Ending::Findings } else { Ending::Done })
}

/// Lists what AgentFS cannot read.
fn name(left: &Obstacles) {
    let told = |what: &str, count: u64, first: &[Vec<u8>]| {
        for path in first {
            output::line(format_args!("{}: {what}", text::name(path)));
        }
        let rest = count.saturating_sub(first.len() as u64);
        if rest > 0 {
            output::line(format_args!("{rest} more: {what}"));
        }
    };
    told("no UTF-8, which AgentFS cannot read", left.odd_names.count, &left.odd_names.first);
    told("hidden from AgentFS by a whiteout", left.hidden, &left.first_hidden);
}

fn dry_run(args: &Args) -> Result<Ending, CliError> {
    let plan = plan(&args.source.open()?)?;
    let mut out = Out::new();
    if args.json {
        let mut object = text::json("seal_plan");
        let session = args.source.session.as_os_str().as_encoded_bytes();
        text::put_path(&mut object, "session", session);
        for (key, count) in [
            ("redirects", plan.redirects),
            ("opaque", plan.opaque),
            ("objects", plan.objects),
            ("moved_bytes", plan.moved_bytes),
            ("pending_bytes", plan.pending_bytes),
            ("zero_bytes", plan.zero_bytes),
        ] {
            object.insert(key.to_owned(), Value::from(count));
        }
        out.json(object)?;
    } else {
        out.line(format_args!(
            "{}: {} below {} ({}), {}, {} of unfinished copies, {} of zeros",
            args.source.session.display(),
            text::bytes(plan.moved_bytes),
            text::count(plan.redirects, "redirect"),
            text::count(plan.objects, "object"),
            text::count(plan.opaque, "opaque directory"),
            text::bytes(plan.pending_bytes),
            text::bytes(plan.zero_bytes),
        ))?;
    }
    out.end()?;
    warn_of_zeros(plan.zero_bytes);
    Ok(Ending::Done)
}

/// Warns that other implementations, which read the base themselves, ignore hidden patterns.
fn warn_of_hidden(session: &Path) -> Result<(), CliError> {
    let opened = open_session(session)?;
    if !opened.hidden().is_empty() {
        let words = hiding::words(opened.hidden());
        output::line(format_args!("warning: other programs show what is hidden here: {words}"));
    }
    Ok(())
}

fn warn_of_zeros(bytes: u64) {
    if bytes >= MANY_ZERO_BYTES {
        output::line(format_args!("warning: {} of zeros in place of holes", text::bytes(bytes)));
    }
}

fn explain(error: InspectError) -> CliError {
    let is_served = matches!(&error, InspectError::Open(OpenError::InUse { .. }));
    let error = CliError::from(error);
    let hint = "stop that server first; its mounts continue when it serves again";
    if is_served { error.with_hint(hint) } else { error }
}
