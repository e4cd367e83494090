//! The JSON Schemas of a node's documents: the files in `schemas/`, which formalize the
//! specification's examples and prose.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

use crate::json;

/// Kind of a document.
#[derive(Debug, Clone, Copy)]
pub(super) enum DocumentKind {
    /// `.meta.json`.
    Meta,
    /// `.relations.json`.
    Relations,
    /// `.outbox/{event_id}.json`.
    Event,
}

type CompiledDocument = Result<Validator, String>;

static META: LazyLock<CompiledDocument> =
    LazyLock::new(|| compile(include_str!("schemas/meta.schema.json")));
static RELATIONS: LazyLock<CompiledDocument> =
    LazyLock::new(|| compile(include_str!("schemas/relations.schema.json")));
static EVENT: LazyLock<CompiledDocument> =
    LazyLock::new(|| compile(include_str!("schemas/event.schema.json")));

fn compile(text: &str) -> CompiledDocument {
    let schema: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    jsonschema::draft202012::new(&schema).map_err(|error| error.to_string())
}

impl DocumentKind {
    /// Parses and checks a document; the error says what is wrong.
    pub(super) fn parse(self, text: &[u8]) -> Result<Value, String> {
        let value = json::value(text).map_err(|error| format!("not JSON: {error}"))?;
        self.check(&value)?;
        Ok(value)
    }

    /// Checks a document; the error says what is wrong.
    pub(super) fn check(self, value: &Value) -> Result<(), String> {
        let compiled: &CompiledDocument = match self {
            Self::Meta => &META,
            Self::Relations => &RELATIONS,
            Self::Event => &EVENT,
        };
        let validator = compiled.as_ref().map_err(Clone::clone)?;
        validator.validate(value).map_err(|error| {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
            format!("{place}{error}")
        })
    }
}
