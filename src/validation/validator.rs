//! What the content of a guarded file has to be.

use std::path::Path;

use super::json;
use super::lines::Form;
use super::program::ValidatorProgram;
use super::schema::{JsonSchema, SchemaError};
use super::violation::Violation;

/// What the content of a guarded file has to be.
#[derive(Debug)]
pub struct Validator(ValidatorKind);

#[derive(Debug)]
pub(super) enum ValidatorKind {
    /// The content, or each line of it, is JSON, which fits the schema if there is one.
    Json(Form, Option<JsonSchema>),
    /// A program accepts it.
    Program(ValidatorProgram),
}

impl Validator {
    /// JSON Lines.
    pub fn jsonl() -> Self {
        Self(ValidatorKind::Json(Form::Lines, None))
    }

    /// JSON Lines of which each fits the schema in a file.
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

    /// A JSON document that fits the schema in a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no JSON Schema.
    pub fn json_schema(file: &Path) -> Result<Self, SchemaError> {
        Ok(Self(ValidatorKind::Json(Form::Document, Some(JsonSchema::load(file)?))))
    }

    /// Whatever a program accepts.
    pub fn program(program: ValidatorProgram) -> Self {
        Self(ValidatorKind::Program(program))
    }

    /// Where the schema recurses through `anyOf` or `oneOf`, so that a small content may take long
    /// to check.
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

    /// Whether lines can be checked one by one.
    pub(super) fn is_by_line(&self) -> bool {
        matches!(self.0, ValidatorKind::Json(Form::Lines, _))
    }

    /// Checks that a content is JSON, where it has to be: the part that needs no other process.
    ///
    /// # Errors
    /// The first fault.
    pub fn check_syntax(&self, content: &[u8]) -> Result<(), Violation> {
        match &self.0 {
            ValidatorKind::Json(form, _) => form.check_all(content, json::check),
            ValidatorKind::Program(_) => Ok(()),
        }
    }
}
