//! `acetate quota`: what a session takes, and how much it may.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::change::connect;
use super::error::CliError;
use super::output::Out;
use super::{Ending, text};
use crate::control::{Answer, Bound, Request};
use crate::delta::{Limits, Usage};
use crate::inspect::quota::{self, Quota};

/// Show what a session takes, and how much it may; or limit that.
///
/// Counted are the objects that the session holds, and the bytes of their contents: what was made
/// or copied up, and not what only the base has. What would go past a limit is refused with
/// EDQUOT; what the session holds can always be removed or cut. A session that is served gets its
/// limits through its server, at once; they stay in the session, whoever serves it later.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file; it may be served meanwhile.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// The most that contents may take: bytes, with a unit or none (500MB, 2GiB); or `none`.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    bytes: Option<Bound>,

    /// The most objects: files, directories, links and all others; or `none`.
    #[arg(long, value_name = "COUNT", value_parser = parse_files)]
    files: Option<Bound>,

    /// Print a JSON object: session, used_bytes, used_files, max_bytes, max_files.
    #[arg(long)]
    json: bool,
}

/// Limits the session, if it is to be, and shows how it stands then.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let quota = match (args.bytes, args.files) {
        (None, None) => quota::quota(&args.session)?,
        (bytes, files) => {
            let kept = |bound: Option<Bound>| bound.unwrap_or(Bound::Keep);
            set(&args.session, kept(bytes), kept(files))?
        }
    };
    let mut out = Out::new();
    if args.json {
        let mut json = text::json("quota");
        json.insert("session".to_owned(), args.session.display().to_string().into());
        put(&mut json, quota.usage, quota.limits);
        out.json(json)?;
    } else {
        let Quota { usage, limits } = quota;
        let [bytes, files] = lines(usage, limits);
        out.line(format_args!("bytes  {bytes}"))?;
        out.line(format_args!("files  {files}"))?;
    }
    out.end()?;
    Ok(Ending::Done)
}

/// Limits a session, through the server that has it or by itself.
fn set(session: &Path, bytes: Bound, files: Bound) -> Result<Quota, CliError> {
    let Some(mut server) = connect(session)? else {
        let limited = quota::set(session, |limits| Bound::apply(limits, bytes, files));
        return limited.map_err(|error| {
            let error = CliError::from(error);
            let hint = "stop that server, or ask as the user who runs it";
            if error.is_in_use() { error.with_hint(hint) } else { error }
        });
    };
    match server.ask(&Request::SetQuota { bytes, files })? {
        Answer::Quota { used_bytes, used_files, max_bytes, max_files } => Ok(Quota {
            usage: Usage { bytes: used_bytes, files: used_files },
            limits: Limits { bytes: max_bytes, files: max_files },
        }),
        _ => Err(CliError::new("the session's server gave another answer")),
    }
}

/// Bytes and files, each against its limit.
pub(super) fn lines(usage: Usage, limits: Limits) -> [String; 2] {
    let against = |used: String, limit: Option<String>| match limit {
        Some(limit) => format!("{used} of {limit}"),
        None => format!("{used}, no limit"),
    };
    [
        against(text::bytes(usage.bytes), limits.bytes.map(text::bytes)),
        against(usage.files.to_string(), limits.files.map(|files| files.to_string())),
    ]
}

/// Adds what is used and what may be.
pub(super) fn put(object: &mut Map<String, Value>, usage: Usage, limits: Limits) {
    object.insert("used_bytes".to_owned(), usage.bytes.into());
    object.insert("used_files".to_owned(), usage.files.into());
    object.insert("max_bytes".to_owned(), limits.bytes.into());
    object.insert("max_files".to_owned(), limits.files.into());
}

fn parse_bytes(text: &str) -> Result<Bound, String> {
    let expected = || "expected bytes, such as 500MB, 2GiB or 4096, or `none`".to_owned();
    bound(text, crate::config::parse_bytes).ok_or_else(expected)
}

fn parse_files(text: &str) -> Result<Bound, String> {
    bound(text, |text| text.parse().ok()).ok_or_else(|| "expected a number, or `none`".to_owned())
}

/// A limit that the session can hold.
fn bound(text: &str, parse: impl Fn(&str) -> Option<u64>) -> Option<Bound> {
    if text == "none" {
        return Some(Bound::None);
    }
    parse(text).filter(|most| i64::try_from(*most).is_ok()).map(Bound::AtMost)
}
