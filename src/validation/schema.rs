//! A JSON Schema from a file of the operator. This process checks only that the schema is valid;
//! validator processes check content against it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

use super::json;
use super::limits::{MAX_FAULT_CHARS, MAX_PLACE_CHARS, MAX_SCHEMA_BYTES, MAX_SHOWN_VALUE_BYTES};
use super::recursion::find_recursion;
use super::violation::{Violation, cut};

use crate::system_error::words;

/// Why a schema cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the JSON Schema {}: {what}", path.display())]
pub struct SchemaError {
    /// The schema's file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

/// The text of a valid JSON Schema.
#[derive(Debug)]
pub(super) struct JsonSchema {
    /// Unique in this process.
    id: u64,
    text: Arc<[u8]>,
    recursion: Option<String>,
}

/// A compiled schema.
pub(super) struct CompiledSchema(jsonschema::Validator);

impl JsonSchema {
    /// Reads and checks a schema. Never reads other files: a `$ref` resolves within the schema or
    /// to a built-in meta-schema.
    pub(super) fn load(path: &Path) -> Result<Self, SchemaError> {
        let failed = |what: String| SchemaError { path: path.to_owned(), what };
        let cannot_read =
            |error: std::io::Error| failed(format!("cannot be read: {}", words(&error)));
        let mut text = Vec::new();
        // Opening a FIFO would block.
        if !std::fs::metadata(path).map_err(cannot_read)?.is_file() {
            return Err(failed("is no file".to_owned()));
        }
        let file = File::open(path).map_err(cannot_read)?;
        file.take(MAX_SCHEMA_BYTES + 1).read_to_end(&mut text).map_err(cannot_read)?;
        if text.len() as u64 > MAX_SCHEMA_BYTES {
            return Err(failed(format!("is over {MAX_SCHEMA_BYTES} bytes")));
        }
        let value = json::value(&text).map_err(|violation| failed(violation.to_string()))?;
        CompiledSchema::new(&value).map_err(|violation| failed(format!("is none{violation}")))?;
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = LAST.fetch_add(1, Ordering::Relaxed);
        Ok(Self { id, text: text.into(), recursion: find_recursion(&value) })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    pub(super) fn recursion(&self) -> Option<&str> {
        self.recursion.as_deref()
    }
}

impl CompiledSchema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// The location and cause, formatted to follow the words "is none".
    pub(super) fn new(schema: &Value) -> Result<Self, Violation> {
        let compiled = jsonschema::options().offline().build(schema);
        compiled.map(Self).map_err(|error| {
            let at = at(error.instance_path().as_str());
            Violation::new(format_args!("{at}: {}", Violation::new(&error)))
        })
    }

    /// Whether a value matches. Builds no error details, which can take exponentially longer.
    pub(super) fn is_valid(&self, value: &Value) -> bool {
        self.0.is_valid(value)
    }

    /// The first fault of a value: keyword, location, message and value. Each part has its own
    /// length limit.
    pub(super) fn fault(&self, value: &Value) -> Option<Violation> {
        let error = self.0.validate(value).err()?;
        let error = most_specific(&error);
        let keyword = error.kind().keyword();
        let at = shortened(at(error.instance_path().as_str()));
        let what = cut(error.masked(), MAX_FAULT_CHARS, |_| 1);
        let shown = cut(error.instance(), MAX_SHOWN_VALUE_BYTES, char::len_utf8);
        Some(Violation::new(format_args!("{keyword}{at}: {what}: {shown}")))
    }
}

type SchemaFault<'a> = jsonschema::ValidationError<'a>;

/// The most specific fault. If a value matches no branch of a choice, descends into the branch that
/// is meant for such a value, if exactly one is.
fn most_specific<'e, 'v>(mut error: &'e SchemaFault<'v>) -> &'e SchemaFault<'v> {
    while let ValidationErrorKind::AnyOf { context }
    | ValidationErrorKind::OneOfNotValid { context } = error.kind()
    {
        let place = error.instance_path().as_str();
        let mut branches = context.iter().filter(|faults| is_meant(faults, place));
        let (Some(faults), None) = (branches.next(), branches.next()) else { break };
        let Some(first) = faults.first() else { break };
        error = first;
    }
    error
}

/// Whether a branch with these faults is meant for the value at `place`: its type matches, and so
/// do its `const` and `enum` properties.
fn is_meant(faults: &[SchemaFault<'_>], place: &str) -> bool {
    faults.iter().all(|fault| {
        let at = fault.instance_path().as_str();
        let below = at.strip_prefix(place).unwrap_or(at).matches('/').count();
        match fault.kind() {
            ValidationErrorKind::Type { .. } | ValidationErrorKind::FalseSchema => below > 0,
            ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. } => below > 1,
            _ => true,
        }
    })
}

/// A location of bounded length; its middle is cut out.
fn shortened(place: String) -> String {
    let length = place.chars().count();
    if length <= MAX_PLACE_CHARS {
        return place;
    }
    let half = MAX_PLACE_CHARS / 2;
    let first: String = place.chars().take(half).collect();
    let last: String = place.chars().skip(length - half).collect();
    format!("{first}…{last}")
}

/// The location in a document; empty for the root.
fn at(pointer: &str) -> String {
    if pointer.is_empty() { String::new() } else { format!(" at {pointer}") }
}
