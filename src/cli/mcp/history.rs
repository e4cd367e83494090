//! The tools about changes: differences, the log, checkpoints and the way back.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow;

use rmcp::model::JsonObject;
use rmcp::schemars::JsonSchema;
use serde::Deserialize;

use super::changing::ChangingCall;
use super::limits::MAX_PATCH_BYTES;
use super::results::{BoundedList, McpOutput};
use super::session::{McpSession, path};
use crate::cli::applied_since::AppliedSince;
use crate::cli::error::CliError;
use crate::cli::restore::RestoreWhat;
use crate::cli::source::PastSource;
use crate::cli::{checkpoint, diff as diff_command, log as log_command};
use crate::cli::{restore as restore_command, text};
use crate::delta::sqlite::{AuditFilter, InvalidRow, Order};
use crate::delta::{AuditRow, MergedPath};
use crate::inspect::InspectError;
use crate::inspect::between::{Moments, patch_between};
use crate::inspect::checkpoint::list_checkpoints;
use crate::inspect::diff::{DiffOptions, Difference, DifferenceKind};
use crate::inspect::fold::{each_path, sorted_past_denied};
use crate::inspect::log::{AuditLog, LogOptions, now};
use crate::inspect::opened::{OpenSession, check_known, open_session};
use crate::inspect::patch::{Style, patch_as};
use crate::inspect::restore::RestorePlan;
use crate::inspect::selection::Selection;
use crate::inspect::stop::StopFlag;

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(super) struct DiffArgs {
    /// Compare with the tree at this checkpoint: an id, a name, `@-1` for the newest, or a time. By
    /// default with the base.
    from: Option<String>,
    /// With `from`: compare the tree at this later checkpoint. By default the tree as it is.
    to: Option<String>,
    /// Only changes at and below these paths.
    #[serde(default)]
    paths: Vec<String>,
    /// Return a patch in git's format instead of a list.
    #[serde(default)]
    patch: bool,
    /// How many changes: at most 1000. By default 200.
    limit: Option<usize>,
}

pub(super) fn diff(
    session: &McpSession,
    args: &DiffArgs,
    stop: &StopFlag,
) -> Result<McpOutput, CliError> {
    let source = PastSource::of(&session.source);
    let (new, until) = source.open_moment(args.to.as_deref())?;
    let Some(from) = &args.from else {
        if args.to.is_some() {
            return Err(CliError::new("\"to\" without \"from\""));
        }
        let options = DiffOptions { stop: stop.clone(), ..options(&new, None, &args.paths)? };
        let style = Style::default();
        return match args.patch {
            true => patch(stop, &mut |out| Ok(patch_as(&new, &options, &style, out)?.is_ok())),
            false => list(args, &new, &options, sorted_past_denied(&new, &options)?),
        };
    };
    let (old, from) = source.open_moment(Some(from))?;
    let Some(from) = from else { return Err(CliError::new("\"from\" names no checkpoint")) };
    if until.as_ref().is_some_and(|until| until.id < from.id) {
        return Err(CliError::new("\"from\" is later than \"to\"").with_hint("swap them"));
    }
    let options = options(&new, Some(&old), &args.paths)?;
    let options = DiffOptions { stop: stop.clone(), ..options };
    let moments = Moments { old: &old, new: &new, from: &from, until: until.as_ref() };
    if args.patch {
        return patch(stop, &mut |out| {
            Ok(patch_between(&moments, &options, &Style::default(), out)?.is_ok())
        });
    }
    let found = moments.differences(&options)?;
    list(args, &new, &options, (found.all, found.denied))
}

fn options(
    new: &OpenSession,
    old: Option<&OpenSession>,
    paths: &[String],
) -> Result<DiffOptions, CliError> {
    let paths = paths.iter().map(|text| path(text)).collect::<Result<Vec<_>, _>>()?;
    let known = check_known(new, &paths);
    // A path may have been there at the checkpoint alone.
    match (known, old) {
        (Err(_), Some(old)) => check_known(old, &paths)?,
        (known, _) => known?,
    }
    Ok(DiffOptions { selection: Selection::of(paths), ..DiffOptions::default() })
}

fn list(
    args: &DiffArgs,
    opened: &OpenSession,
    options: &DiffOptions,
    (all, denied): (Vec<Difference>, Vec<MergedPath>),
) -> Result<McpOutput, CliError> {
    let mut list = BoundedList::new(args.limit)?;
    let all = each_path(opened, options, all)?;
    let mut json = JsonObject::new();
    json.insert("changes".to_owned(), all.len().into());
    for difference in &all {
        if !list.push(difference_json(difference)) {
            break;
        }
    }
    list.put(&mut json, "paths");
    json.insert("denied".to_owned(), denied.len().into());
    Ok(McpOutput::Json(json))
}

/// A difference in few words: `stat` has the attributes.
fn difference_json(difference: &Difference) -> JsonObject {
    let mut json = JsonObject::new();
    json.insert("change".to_owned(), diff_command::change_name(difference.kind).into());
    text::put_path(&mut json, "path", difference.path.as_bytes());
    if let (Some(before), DifferenceKind::Renamed) = (&difference.old, difference.kind) {
        text::put_path(&mut json, "from", MergedPath::of_base(&before.path).as_bytes());
    }
    if matches!(difference.kind, DifferenceKind::Modified | DifferenceKind::Renamed) {
        json.insert("content".to_owned(), difference.differs.content.into());
    }
    json
}

/// A patch, up to its bound.
fn patch(
    stop: &StopFlag,
    write: &mut dyn FnMut(&mut dyn Write) -> Result<bool, CliError>,
) -> Result<McpOutput, CliError> {
    let mut out = BoundedText { bytes: Vec::new(), stop };
    let is_whole = write(&mut out)?;
    stop.check()?;
    let mut texts = vec![String::from_utf8_lossy(&out.bytes).into_owned()];
    if !is_whole {
        texts.push(format!(
            "[the first {MAX_PATCH_BYTES} bytes of the patch: choose less with \"paths\"]"
        ));
    }
    Ok(McpOutput::Text(texts))
}

/// Takes [`MAX_PATCH_BYTES`], and fails then, or once the flag is set.
struct BoundedText<'a> {
    bytes: Vec<u8>,
    stop: &'a StopFlag,
}

impl Write for BoundedText<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.stop.is_set() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let room = MAX_PATCH_BYTES.saturating_sub(self.bytes.len());
        if room == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let taken = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        self.bytes.extend_from_slice(taken);
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(super) struct LogArgs {
    /// Only changes of this file, or at and below this directory, also under earlier names.
    path: Option<String>,
    /// Only changes after this checkpoint: an id, a name, `@-1` for the newest, or a time.
    since_checkpoint: Option<String>,
    /// How many of the last changes: at most 1000. By default 200.
    limit: Option<usize>,
}

pub(super) fn log(session: &McpSession, args: &LogArgs) -> Result<McpOutput, CliError> {
    let mut list = BoundedList::new(args.limit)?;
    let opened = session.open(None)?;
    let since = args.since_checkpoint.as_deref();
    let since = since.map(|text| checkpoint::find(opened.session(), text)).transpose()?;
    let path = args.path.as_deref().map(path).transpose()?;
    let filter = AuditFilter { after: since.map(|found| found.last_op), ..AuditFilter::default() };
    let options = LogOptions {
        filter,
        path: path.map(|path| (path.clone(), now(&opened, &path))),
        // One more shows whether there are more.
        last: Some(list.most() as u64 + 1),
        order: Order::NewestFirst,
        ..LogOptions::default()
    };
    let mut unreadable = 0_u64;
    match AuditLog::open(opened.session(), options) {
        // Nothing has changed yet.
        Err(InspectError::NoAudit { .. }) => {}
        log => {
            let mut log = log?;
            let undone = log.undone_rows()?;
            let mut each = |id, row: Result<AuditRow, InvalidRow>| {
                let Ok(row) = row else {
                    unreadable += 1;
                    return ControlFlow::Continue(());
                };
                match list.push(log_command::json(id, &row, undone.is_taken_back(id, &row))) {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            };
            log.read(&mut each)?;
        }
    }
    let mut json = JsonObject::new();
    list.reversed().put(&mut json, "changes");
    json.insert("unreadable".to_owned(), unreadable.into());
    Ok(McpOutput::Json(json))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(super) struct CheckpointListArgs {
    /// How many of the newest: at most 1000. By default 200.
    limit: Option<usize>,
}

pub(super) fn checkpoint_list(
    session: &McpSession,
    args: &CheckpointListArgs,
) -> Result<McpOutput, CliError> {
    let mut list = BoundedList::new(args.limit)?;
    let opened = open_session(&session.source.session)?;
    for listed in list_checkpoints(&opened)?.iter().rev() {
        let applied = AppliedSince::of(&opened, session.source.base.as_deref(), listed.applies);
        if !list.push(checkpoint::json(listed, applied)) {
            break;
        }
    }
    let mut json = JsonObject::new();
    list.reversed().put(&mut json, "checkpoints");
    Ok(McpOutput::Json(json))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(super) struct CheckpointCreateArgs {
    /// Its name, which no other checkpoint has.
    name: Option<String>,
    /// Words to find it by, each with a text.
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

pub(super) fn checkpoint_create(
    changing: &mut ChangingCall<'_>,
    args: CheckpointCreateArgs,
) -> Result<(), CliError> {
    if let Some(key) = args.labels.keys().find(|key| key.contains('=')) {
        return Err(CliError::new(format_args!("{key}: the key of a label has no `=`")));
    }
    let labels: Vec<_> = args.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let id = checkpoint::create(&changing.session.source, args.name.as_deref(), &labels)?;
    changing.put("id", id);
    changing.put("name", args.name);
    Ok(())
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(super) struct RestoreArgs {
    /// The checkpoint: an id, a name, `@-1` for the newest, or a time.
    checkpoint: Option<String>,
    /// Only these paths, each with everything below; by default the whole tree.
    paths: Option<Vec<String>>,
    /// Instead of a checkpoint: take back what changed during this tool call, and nothing else.
    tool_call: Option<i64>,
}

/// The restore makes the checkpoint before itself, of kind `safety`.
pub(super) fn restore(changing: &mut ChangingCall<'_>, args: RestoreArgs) -> Result<(), CliError> {
    if args.paths.as_ref().is_some_and(Vec::is_empty) {
        return Err(CliError::new("`paths` is empty: leave it out for the whole tree"));
    }
    let paths = args.paths.iter().flatten();
    let paths = paths.map(|text| path(text)).collect::<Result<Vec<_>, _>>()?;
    let what = match (args.checkpoint.as_deref(), args.tool_call) {
        (Some(checkpoint), None) => RestoreWhat::Checkpoint(checkpoint, &paths),
        (None, Some(call)) if args.paths.is_none() => RestoreWhat::ToolCall(call),
        _ => {
            let what = "give either `checkpoint`, with `paths` or without, or `tool_call` alone";
            return Err(CliError::new(what));
        }
    };
    let source = &changing.session.source;
    let done = restore_command::without_asking(source, what)?;
    changing.put("restored", done.to.id.0);
    if let RestoreWhat::ToolCall(call) = what {
        changing.put("tool_call_taken_back", call);
    }
    changing.put_before(done.before);
    changing.put("objects", done.objects);
    if let Some(RestorePlan { differences, scope: Some(scope), .. }) = &done.plan {
        let mut list = BoundedList::new(None)?;
        for difference in differences {
            let mut json = diff_command::json(difference);
            json.insert("goes_along".to_owned(), scope.goes_along(difference).into());
            if !list.push(json) {
                break;
            }
        }
        let mut json = JsonObject::new();
        list.put(&mut json, "changes");
        json.into_iter().for_each(|(key, value)| changing.put(&key, value));
    }
    Ok(())
}
