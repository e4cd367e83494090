//! Validators: the conditions that the content of a guarded file must meet.

use std::path::Path;

use super::json;
use super::lines::Form;
use super::program::ValidatorProgram;
use super::schema::{JsonSchema, SchemaError};
use super::violation::Violation;

/// A condition that the content of a guarded file must meet.
#[derive(Debug)]
pub struct Validator(ValidatorKind);

#[derive(Debug)]
pub(super) enum ValidatorKind {
    /// The content, or each line, is JSON, and matches the schema if there is one.
    Json(Form, Option<JsonSchema>),
    /// An external program accepts the content.
    Program(ValidatorProgram),
}

impl Validator {
    /// JSON Lines.
    pub fn jsonl() -> Self {
        Self(ValidatorKind::Json(Form::Lines, None))
    }

    /// JSON Lines that each match the schema in a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no JSON Schema.
    pub fn jsonl_schema(file: &Path) -> Result<Self, SchemaError> {
        Ok(Self(ValidatorKind::Json(Form::Lines, Some(JsonSchema::load(file)?))))
    }

    /// A JSON document.
    pub fn json() -> Self {
        Self(ValidatorKind::Json(Form::Document, None))
    }

    /// A JSON document that matches the schema in a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no JSON Schema.
    pub fn json_schema(file: &Path) -> Result<Self, SchemaError> {
        Ok(Self(ValidatorKind::Json(Form::Document, Some(JsonSchema::load(file)?))))
    }

    /// Content that an external program accepts.
    pub fn program(program: ValidatorProgram) -> Self {
        Self(ValidatorKind::Program(program))
    }

    /// Where the schema recurses through `anyOf` or `oneOf`: small content may then take long to
    /// check.
    pub fn recursion(&self) -> Option<&str> {
        self.schema().and_then(JsonSchema::recursion)
    }

    pub(super) fn kind(&self) -> &ValidatorKind {
        &self.0
    }

    /// The schema, if there is one.
    pub(super) fn schema(&self) -> Option<&JsonSchema> {
        match &self.0 {
            ValidatorKind::Json(_, schema) => schema.as_ref(),
            ValidatorKind::Program(_) => None,
        }
    }

    /// Whether lines can be checked independently.
    pub(super) fn is_by_line(&self) -> bool {
        matches!(self.0, ValidatorKind::Json(Form::Lines, _))
    }

    /// Checks JSON syntax only, in this process.
    ///
    /// # Errors
    /// The first violation.
    #[cfg(feature = "internals")]
    pub fn check_syntax(&self, content: &[u8]) -> Result<(), Violation> {
        match &self.0 {
            ValidatorKind::Json(form, _) => form.check_all(content, json::check),
            ValidatorKind::Program(_) => Ok(()),
        }
    }
}
