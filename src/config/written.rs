//! The structure of an exports file in TOML, before its values are checked.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use toml::{Spanned, Value};

use super::error::{ConfigError, Position, Result};

/// The keys of the server. After `[[export]]`, TOML takes them for keys of the export.
const SERVER_KEYS: [&str; 3] = ["ephemeral_expire", "idle_close", "max_open"];

/// How the parser begins its message about a key that a table does not have.
fn unknown(key: &str) -> String {
    format!("unknown field `{key}`")
}

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileToml {
    pub max_open: Option<Spanned<u64>>,
    pub idle_close: Option<Spanned<Value>>,
    pub ephemeral_expire: Option<Spanned<Value>>,
    #[serde(default)]
    pub export: Vec<Spanned<ExportToml>>,
    #[serde(default)]
    pub template: Vec<Spanned<ExportToml>>,
}

/// `[[export]]`, or `[[template]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportToml {
    pub path: Option<Spanned<String>>,
    pub token: Option<Spanned<Value>>,
    pub name: Option<Spanned<String>>,
    #[serde(default)]
    pub options: Vec<Spanned<String>>,
    pub clients: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    pub map_uids: Vec<Spanned<IdRangeToml>>,
    #[serde(default)]
    pub map_gids: Vec<Spanned<IdRangeToml>>,
    pub quota: Option<Spanned<QuotaToml>>,
    pub max_file_bytes: Option<Spanned<Value>>,
    #[serde(default)]
    pub hide: Vec<Spanned<String>>,
    #[serde(default)]
    pub mount: Vec<Spanned<MountToml>>,
    #[serde(default)]
    pub guard: Vec<Spanned<Guard>>,
    /// Only of a template.
    #[serde(default)]
    pub allow: BTreeMap<Spanned<String>, Spanned<String>>,
    /// Only of a template.
    pub create: Option<Spanned<bool>>,
    /// Only of a template.
    pub expire: Option<Spanned<Value>>,
}

/// A range in `map_uids` or `map_gids`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IdRangeToml {
    pub client: u32,
    pub server: u32,
    #[serde(default = "one")]
    pub count: u32,
}

/// `quota`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuotaToml {
    pub bytes: Option<Spanned<Value>>,
    pub files: Option<Spanned<u64>>,
}

/// `[[export.mount]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MountToml {
    pub at: Spanned<String>,
    pub session: Option<Spanned<String>>,
    pub ephemeral: Option<Spanned<bool>>,
    pub base: Option<Spanned<String>>,
    pub subtree: Option<Spanned<String>>,
    /// Only of a template.
    pub shared: Option<Spanned<bool>>,
    #[serde(default)]
    pub options: Vec<Spanned<String>>,
    pub chunk_size: Option<Spanned<u64>>,
    pub keep_originals: Option<Spanned<Value>>,
    pub keep_log: Option<Spanned<KeepLog>>,
    pub checkpoints: Option<Spanned<String>>,
    pub keep_checkpoints: Option<Spanned<KeepCheckpoints>>,
}

/// `keep_checkpoints`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeepCheckpoints {
    pub newest: Option<Spanned<u64>>,
    pub hourly: Option<Spanned<Value>>,
    pub daily: Option<Spanned<Value>>,
    pub bytes: Option<Spanned<Value>>,
}

/// `keep_log`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeepLog {
    pub changes: Option<u64>,
    pub days: Option<u64>,
}

/// `[[export.guard]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Guard {
    pub path: Spanned<String>,
    pub jsonl: Option<Spanned<bool>>,
    pub jsonl_schema: Option<Spanned<String>>,
    pub json: Option<Spanned<bool>>,
    pub json_schema: Option<Spanned<String>>,
    pub program: Option<Spanned<Vec<String>>>,
    pub timeout: Option<Spanned<Value>>,
}

fn one() -> u32 {
    1
}

/// The file and its text, to report positions.
pub(super) struct SourceText<'a> {
    /// The file, as the user named it.
    pub file: &'a Path,
    /// The same, for what is made of it.
    pub shared_file: Arc<Path>,
    /// Its folder, absolute: relative paths start here.
    pub folder: PathBuf,
    /// The text of the file.
    pub text: &'a str,
    /// Where its lines begin, in bytes.
    lines: Vec<usize>,
}

impl<'a> SourceText<'a> {
    /// The text of `file`, whose folder is `folder`.
    pub fn new(file: &'a Path, folder: PathBuf, text: &'a str) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect();
        Self { file, shared_file: file.into(), folder, text, lines }
    }

    /// Parses the TOML.
    pub fn parse(&self) -> Result<FileToml> {
        toml::from_str(self.text).map_err(|error| {
            let message = error.message().trim();
            let fault = ConfigError::of_file(self.file, message);
            let fault = match SERVER_KEYS.iter().find(|key| message.contains(&unknown(key))) {
                Some(key) => fault.with_hint(format_args!(
                    "`{key}` is of the server: write it before the first [[export]] or [[template]]"
                )),
                None => fault,
            };
            match error.span() {
                Some(span) => fault.at(self.position(&span)),
                None => fault,
            }
        })
    }

    /// The start of `span`.
    pub fn position(&self, span: &Range<usize>) -> Position {
        let before = self.lines.partition_point(|begin| *begin <= span.start);
        let begin = before.checked_sub(1).map_or(0, |line| self.lines[line]);
        let column = self.text.get(begin..span.start).map_or(0, |text| text.chars().count());
        Position { line: before.max(1), column: column + 1 }
    }

    /// A fault at `span`.
    pub fn wrong(&self, span: &Range<usize>, what: impl std::fmt::Display) -> ConfigError {
        ConfigError::of_file(self.file, what).at(self.position(span))
    }

    /// An absolute path on the host.
    pub fn host_path(&self, written: &Spanned<String>) -> Result<PathBuf> {
        let text = written.get_ref();
        let wrong = |what: &str| self.wrong(&written.span(), what);
        if text.is_empty() || text.contains('\0') {
            return Err(wrong("not a path"));
        }
        if text == "~" || text.starts_with("~/") {
            let hint = "write the directory itself; relative paths begin at the exports file's";
            return Err(wrong("'~' does not stand for a home directory here").with_hint(hint));
        }
        // `components` drops `.`.
        Ok(self.folder.join(text).components().collect())
    }

    /// Rejects more than `most` elements.
    pub fn at_most<T>(&self, what: &str, all: &[Spanned<T>], most: usize) -> Result<()> {
        match all.get(most) {
            Some(first) => Err(self.wrong(&first.span(), format_args!("at most {most} {what}"))),
            None => Ok(()),
        }
    }
}
