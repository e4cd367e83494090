//! A JSON Schema, read from a file of the operator's and compiled once.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::json;
use super::limits::MAX_SCHEMA_BYTES;
use super::violation::Violation;

/// Why a schema cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the JSON Schema {}: {what}", path.display())]
pub struct SchemaError {
    /// The schema's file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

/// A compiled JSON Schema.
#[derive(Debug)]
pub(super) struct Schema(jsonschema::Validator);

impl Schema {
    /// Reads and compiles a schema. Nothing else is read: a `$ref` leads to the schema itself, or
    /// to one of the drafts' own.
    pub(super) fn load(path: &Path) -> Result<Self, SchemaError> {
        let failed = |what: String| SchemaError { path: path.to_owned(), what };
        let cannot_read = |error: std::io::Error| failed(format!("cannot be read: {error}"));
        let mut text = Vec::new();
        // A pipe would be waited for.
        if !std::fs::metadata(path).map_err(cannot_read)?.is_file() {
            return Err(failed("is no file".to_owned()));
        }
        let file = File::open(path).map_err(cannot_read)?;
        file.take(MAX_SCHEMA_BYTES + 1).read_to_end(&mut text).map_err(cannot_read)?;
        if text.len() as u64 > MAX_SCHEMA_BYTES {
            return Err(failed(format!("is over {MAX_SCHEMA_BYTES} bytes")));
        }
        let value = json::value(&text).map_err(|violation| failed(violation.to_string()))?;
        let compiled = jsonschema::options().offline().build(&value);
        let compiled = compiled.map_err(|error| {
            let at = at(error.instance_path().as_str());
            failed(format!("is none{at}: {}", Violation::new(&error)))
        })?;
        Ok(Self(compiled))
    }

    /// Checks a value, and names the first fault.
    pub(super) fn check(&self, text: &[u8]) -> Result<(), Violation> {
        let value = json::value(text)?;
        self.0.validate(&value).map_err(|error| {
            Violation::new(format_args!("{error}{}", at(error.instance_path().as_str())))
        })
    }
}

/// Where in a document; nothing for the document itself.
fn at(pointer: &str) -> String {
    if pointer.is_empty() { String::new() } else { format!(" at {pointer}") }
}
