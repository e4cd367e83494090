//! What the content of a guarded file has to be.

use std::ops::Range;
use std::path::Path;

use super::json;
use super::lines;
use super::program::Program;
use super::schema::{Schema, SchemaError};
use super::violation::Violation;

/// What the content of a guarded file has to be.
#[derive(Debug)]
pub struct Validator(Kind);

#[derive(Debug)]
enum Kind {
    /// Each line is a JSON value, and one that the schema allows.
    Lines(Option<Box<Schema>>),
    /// The content is a JSON value, and one that the schema allows.
    Document(Option<Box<Schema>>),
    /// A program accepts it.
    Program(Program),
}

impl Validator {
    /// JSON Lines.
    pub fn jsonl() -> Self {
        Self(Kind::Lines(None))
    }

    /// JSON Lines of which each fits the schema in a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no JSON Schema.
    pub fn jsonl_schema(file: &Path) -> Result<Self, SchemaError> {
        Ok(Self(Kind::Lines(Some(Box::new(Schema::load(file)?)))))
    }

    /// A JSON document.
    pub fn json() -> Self {
        Self(Kind::Document(None))
    }

    /// A JSON document that fits the schema in a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no JSON Schema.
    pub fn json_schema(file: &Path) -> Result<Self, SchemaError> {
        Ok(Self(Kind::Document(Some(Box::new(Schema::load(file)?)))))
    }

    /// Whatever a program accepts.
    pub fn program(program: Program) -> Self {
        Self(Kind::Program(program))
    }

    /// The program that decides, if one does.
    pub(super) fn as_program(&self) -> Option<&Program> {
        match &self.0 {
            Kind::Program(program) => Some(program),
            Kind::Lines(_) | Kind::Document(_) => None,
        }
    }

    /// Whether lines can be checked one by one.
    pub(super) fn is_by_line(&self) -> bool {
        matches!(self.0, Kind::Lines(_))
    }

    /// Checks a whole content, as far as no program has to be asked.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self, content: &[u8]) -> Result<(), Violation> {
        match &self.0 {
            Kind::Lines(schema) => lines::check_all(content, &|line| check(schema, line)),
            Kind::Document(_) if content.is_empty() => {
                Err(Violation::new("not JSON: the file is empty"))
            }
            Kind::Document(schema) => check(schema, content),
            Kind::Program(_) => Ok(()),
        }
    }

    /// Checks the lines that a piece made complete: see [`lines::check_arrived`].
    pub(super) fn check_arrived(
        &self,
        content: &[u8],
        run: &Range<usize>,
        written: &Range<usize>,
        starts_line: bool,
    ) -> Result<(), Violation> {
        let Kind::Lines(schema) = &self.0 else { return Ok(()) };
        lines::check_arrived(content, run, written, starts_line, &|line| check(schema, line))
    }
}

fn check(schema: &Option<Box<Schema>>, text: &[u8]) -> Result<(), Violation> {
    match schema {
        Some(schema) => schema.check(text),
        None => json::check(text),
    }
}
