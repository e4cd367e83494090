//! What the content of a guarded file has to be.

use std::path::Path;

use super::json;
use super::lines::Form;
use super::program::Program;
use super::schema::{Schema, SchemaError};
use super::violation::Violation;

/// What the content of a guarded file has to be.
#[derive(Debug)]
pub struct Validator(Kind);

#[derive(Debug)]
pub(super) enum Kind {
    /// The content, or each line of it, is JSON, which fits the schema if there is one.
    Json(Form, Option<Schema>),
    /// A program accepts it.
    Program(Program),
}

impl Validator {
    /// JSON Lines.
    pub fn jsonl() -> Self {
        Self(Kind::Json(Form::Lines, None))
    }

    /// JSON Lines of which each fits the schema in a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no JSON Schema.
    pub fn jsonl_schema(file: &Path) -> Result<Self, SchemaError> {
        Ok(Self(Kind::Json(Form::Lines, Some(Schema::load(file)?))))
    }

    /// A JSON document.
    pub fn json() -> Self {
        Self(Kind::Json(Form::Document, None))
    }

    /// A JSON document that fits the schema in a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no JSON Schema.
    pub fn json_schema(file: &Path) -> Result<Self, SchemaError> {
        Ok(Self(Kind::Json(Form::Document, Some(Schema::load(file)?))))
    }

    /// Whatever a program accepts.
    pub fn program(program: Program) -> Self {
        Self(Kind::Program(program))
    }

    /// Where the schema recurses through `anyOf` or `oneOf`, so that a small content may take long
    /// to check.
    pub fn recursion(&self) -> Option<&str> {
        self.schema().and_then(Schema::recursion)
    }

    pub(super) fn kind(&self) -> &Kind {
        &self.0
    }

    /// The schema, if there is one.
    pub(super) fn schema(&self) -> Option<&Schema> {
        match &self.0 {
            Kind::Json(_, schema) => schema.as_ref(),
            Kind::Program(_) => None,
        }
    }

    /// Whether lines can be checked one by one.
    pub(super) fn is_by_line(&self) -> bool {
        matches!(self.0, Kind::Json(Form::Lines, _))
    }

    /// Checks that a content is JSON, where it has to be: the part that needs no other process.
    ///
    /// # Errors
    /// The first fault.
    pub fn check_syntax(&self, content: &[u8]) -> Result<(), Violation> {
        match &self.0 {
            Kind::Json(form, _) => form.check_all(content, json::check),
            Kind::Program(_) => Ok(()),
        }
    }
}
