//! `[[export.guard]]`: which files are validated, and how.

use std::time::Duration;

use jiff::SignedDuration;
use toml::{Spanned, Value};

use super::error::{ConfigError, Result};
use super::limits::{DEFAULT_GUARD_TIME, MAX_GUARD_TIME, MAX_GUARDS, MAX_PROGRAM_WORDS};
use super::model::{GuardConfig, GuardRule};
use super::written::{self, SourceText};
use crate::pattern::Pattern;

/// The rules that a guard can have, for hints.
const RULES: &str = "jsonl = true, jsonl_schema = \"FILE\", json = true, json_schema = \"FILE\", \
    or program = [\"PROGRAM\", \"ARGUMENT\"]";

/// Checks an export's guards.
pub(super) fn check(
    source: &SourceText<'_>,
    guards: &[Spanned<written::Guard>],
) -> Result<Vec<GuardConfig>> {
    source.at_most("guards in an export", guards, MAX_GUARDS)?;
    guards.iter().map(|guard| check_one(source, guard)).collect()
}

fn check_one(source: &SourceText<'_>, guard: &Spanned<written::Guard>) -> Result<GuardConfig> {
    let (span, guard) = (guard.span(), guard.get_ref());
    let path = Pattern::new(guard.path.get_ref())
        .map_err(|error| source.wrong(&guard.path.span(), error))?;
    let rules = [
        flag(source, guard.jsonl.as_ref())?.then_some(GuardRule::JsonLines(None)),
        schema(source, guard.jsonl_schema.as_ref())?.map(|file| GuardRule::JsonLines(Some(file))),
        flag(source, guard.json.as_ref())?.then_some(GuardRule::Json(None)),
        schema(source, guard.json_schema.as_ref())?.map(|file| GuardRule::Json(Some(file))),
        program(source, guard)?,
    ];
    let mut rules = rules.into_iter().flatten();
    let rule = rules
        .next()
        .ok_or_else(|| source.wrong(&span, "this guard lets everything pass").with_hint(RULES))?;
    if rules.next().is_some() {
        let hint = format!("one of {RULES}; a file may have several guards");
        return Err(source.wrong(&span, "a guard has one rule").with_hint(hint));
    }
    if let (Some(timeout), false) = (&guard.timeout, matches!(rule, GuardRule::Program { .. })) {
        return Err(source.wrong(&timeout.span(), "only a program has a time limit"));
    }
    Ok(GuardConfig { path, rule, position: source.position(&span) })
}

/// A flag that may only be `true`.
fn flag(source: &SourceText<'_>, written: Option<&Spanned<bool>>) -> Result<bool> {
    match written {
        Some(flag) if !*flag.get_ref() => {
            Err(source.wrong(&flag.span(), "false is the default").with_hint("leave it out"))
        }
        flag => Ok(flag.is_some()),
    }
}

fn schema(
    source: &SourceText<'_>,
    written: Option<&Spanned<String>>,
) -> Result<Option<std::path::PathBuf>> {
    written.map(|file| source.host_path(file)).transpose()
}

fn program(source: &SourceText<'_>, guard: &written::Guard) -> Result<Option<GuardRule>> {
    let Some(program) = &guard.program else { return Ok(None) };
    let words = program.get_ref();
    let wrong = |what: &str| source.wrong(&program.span(), what);
    if words.first().is_none_or(String::is_empty) {
        return Err(wrong("there is no program to run"));
    }
    if words.len() > MAX_PROGRAM_WORDS {
        return Err(wrong("the command is too long").with_hint(format_args!(
            "a program and its arguments have at most {MAX_PROGRAM_WORDS} words"
        )));
    }
    if words.iter().any(|word| word.contains('\0')) {
        return Err(wrong("a word of a command cannot contain NUL"));
    }
    let timeout = match &guard.timeout {
        Some(written) => timeout(source, written)?,
        None => DEFAULT_GUARD_TIME,
    };
    let mut argv = words.clone();
    // A bare name is searched in `PATH`; a path is relative to the exports file's folder.
    if let Some(first) = argv.first_mut().filter(|first| first.contains('/')) {
        let path = source.host_path(&Spanned::new(program.span(), first.clone()))?;
        *first = path.into_os_string().into_string().map_err(|_| wrong("not a UTF-8 path"))?;
    }
    Ok(Some(GuardRule::Program { argv, timeout }))
}

/// A number of seconds, or a duration with a unit.
fn timeout(source: &SourceText<'_>, written: &Spanned<Value>) -> Result<Duration> {
    let wrong = |what: String| -> ConfigError { source.wrong(&written.span(), what) };
    let time = match written.get_ref() {
        Value::Integer(secs) => u64::try_from(*secs).ok().map(Duration::from_secs),
        Value::String(text) => {
            text.parse::<SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok())
        }
        _ => None,
    };
    let time = time.ok_or_else(|| {
        wrong("not a time".to_owned()).with_hint("a number of seconds, or \"500ms\", \"5s\"")
    })?;
    if time.is_zero() || time > MAX_GUARD_TIME {
        let most = MAX_GUARD_TIME.as_secs();
        return Err(wrong(format!("a program has more than 0 and up to {most} seconds")));
    }
    Ok(time)
}
