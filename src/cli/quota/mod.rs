//! `acetate quota`: shows and sets the quota of a session, or shows those of an exports file.

pub(super) mod exports;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::change::connect;
use super::error::{CliError, CliErrorKind};
use super::output::Out;
use super::{Ending, text};
use crate::control::{Answer, Bound, ExportUsage, Request, UsageReport};
use crate::inspect::quota::{self, QuotaReport};

/// Show how much space a session or an export takes and may take, or limit it.
///
/// Counts names in the session, whiteouts, and bytes of contents and link targets: what was made
/// or copied up, and not what only the base has. What would go past a limit is refused with
/// EDQUOT, a file that would grow past --max-file-bytes with EFBIG; what the session made can
/// always be removed or cut. A session that is served gets its limits through its server, at
/// once; they stay in the session, and bind each server of it.
///
/// With --config, shows each export of that file, whose limits are in it (`quota`), and each
/// session of it. Where the file is served, its server says what the exports take, and may.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file; it may be served at the same time.
    #[arg(value_name = "SESSION.db", required_unless_present = "config")]
    session: Option<PathBuf>,

    /// Show the exports of this file instead.
    #[arg(long, value_name = "EXPORTS.toml")]
    #[arg(conflicts_with_all = ["session", "bytes", "files", "max_file_bytes"])]
    config: Option<PathBuf>,

    /// The most that contents may take: bytes, with a unit or none (500MB, 2GiB); or `none`.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    bytes: Option<Bound>,

    /// The most names: of files, directories, links and all others, and whiteouts; or `none`.
    #[arg(long, value_name = "COUNT", value_parser = parse_files)]
    files: Option<Bound>,

    /// The most that each file may have: bytes, with a unit or none; or `none` for the usual,
    /// 16 TiB less 4 KiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_file_bytes: Option<Bound>,

    /// Print a JSON object: session, used_bytes, used_files, max_bytes, max_files, max_file_bytes,
    /// exports; with --config one for each export: name, is_served, the same five, sessions.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    match (&args.session, &args.config) {
        (_, Some(file)) => exports::show(file, args.json),
        (Some(session), None) => of_session(session, args),
        (None, None) => Err(CliError::new("neither a session nor an exports file to look at")),
    }
}

/// Sets the limits that are given, then shows the quota.
fn of_session(session: &Path, args: &Args) -> Result<Ending, CliError> {
    let bounds = [args.bytes, args.files, args.max_file_bytes].map(Option::unwrap_or_default);
    let quota = match bounds {
        [Bound::Keep, Bound::Keep, Bound::Keep] => quota::quota(session)?,
        bounds => set(session, bounds)?,
    };
    // If the server cannot report its exports, the session is shown without them.
    let server = connect(session).ok().flatten();
    let exports = server.map(|mut server| exports::with_session(&mut server, session));
    let exports = exports.unwrap_or_default();
    let mut out = Out::new();
    let taken = UsageReport::new(quota.usage, quota.limits);
    if args.json {
        let mut json = text::json("quota");
        json.insert("session".to_owned(), session.display().to_string().into());
        put(&mut json, &taken);
        json.insert("exports".to_owned(), exports.iter().map(exports::brief_json).collect());
        out.json(json)?;
    } else {
        let [bytes, files] = figures(&taken);
        out.line(format_args!("bytes  {bytes}"))?;
        out.line(format_args!("files  {files}"))?;
        if let Some(most) = taken.max_file_bytes {
            out.line(format_args!("each file at most {}", text::bytes(most)))?;
        }
        for export in &exports {
            out.line(format_args!("export {}", brief(export)))?;
        }
    }
    out.end()?;
    Ok(Ending::Done)
}

/// An export's name, usage and limits.
pub(super) fn brief(export: &ExportUsage) -> String {
    format!("{}: {}", text::name(export.name.as_bytes()), line(&export.taken))
}

/// Sets the limits, through the server that has the session or directly.
fn set(session: &Path, bounds: [Bound; 3]) -> Result<QuotaReport, CliError> {
    let Some(mut server) = connect(session)? else {
        let limited = quota::set(session, |limits| Bound::apply(limits, bounds));
        return limited.map_err(|error| {
            let error = CliError::from(error);
            let hint = "stop that server, or ask as the user who runs it";
            if error.kind() == CliErrorKind::InUse { error.with_hint(hint) } else { error }
        });
    };
    let [bytes, files, file_bytes] = bounds;
    match server.ask(&Request::SetQuota { bytes, files, file_bytes })? {
        Answer::Quota(taken) => Ok(QuotaReport { usage: taken.usage(), limits: taken.limits() }),
        _ => Err(CliError::new("unexpected reply from the session's server")),
    }
}

/// Bytes and files on one line.
pub(super) fn line(taken: &UsageReport) -> String {
    let [bytes, files] = figures(taken);
    format!("{bytes}; files: {files}")
}

/// Bytes and files, each with its limit.
fn figures(taken: &UsageReport) -> [String; 2] {
    let against = |used: String, limit: Option<String>| match limit {
        Some(limit) => format!("{used} of {limit}"),
        None => format!("{used}, no limit"),
    };
    [
        against(text::bytes(taken.used_bytes), taken.max_bytes.map(text::bytes)),
        against(
            taken.used_files.to_string(),
            taken.limits().files().map(|files| files.to_string()),
        ),
    ]
}

/// Adds usage and limits to a JSON object.
pub(super) fn put(object: &mut Map<String, Value>, taken: &UsageReport) {
    object.insert("used_bytes".to_owned(), taken.used_bytes.into());
    object.insert("used_files".to_owned(), taken.used_files.into());
    object.insert("max_bytes".to_owned(), taken.max_bytes.into());
    object.insert("max_files".to_owned(), taken.max_files.into());
    object.insert("max_file_bytes".to_owned(), taken.max_file_bytes.into());
}

fn parse_bytes(text: &str) -> Result<Bound, String> {
    let expected = || "expected bytes, such as 500MB, 2GiB or 4096, or `none`".to_owned();
    bound(text, crate::config::parse_bytes).ok_or_else(expected)
}

fn parse_files(text: &str) -> Result<Bound, String> {
    bound(text, |text| text.parse().ok()).ok_or_else(|| "expected a number, or `none`".to_owned())
}

/// Parses a limit; a session stores it as a signed 64-bit integer.
fn bound(text: &str, parse: impl Fn(&str) -> Option<u64>) -> Option<Bound> {
    if text == "none" {
        return Some(Bound::None);
    }
    parse(text).filter(|most| i64::try_from(*most).is_ok()).map(Bound::AtMost)
}
