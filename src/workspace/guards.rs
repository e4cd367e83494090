//! The guards of an export, from what the exports file says: schemas are read and compiled.

use std::ffi::OsString;

use super::error::{Error, Result};
use crate::config::{ExportConfig, GuardConfig, GuardRule};
use crate::validation::{
    Guards, MAX_CHECK_TIME, NoValidatorCommand, SchemaError, Validator, ValidatorProgram,
};
use crate::vfs::{Pattern, PatternError};

/// Why a guard cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// Its schema cannot.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The paths of all of them come to too much.
    #[error("the paths of the guards: {0}")]
    Pattern(#[from] PatternError),
    /// No program is named.
    #[error("there is no program to run")]
    NoProgram,
    /// Nothing checks content against a schema.
    #[error(transparent)]
    NoValidator(#[from] NoValidatorCommand),
}

/// Prepares the guards of an export.
///
/// # Errors
/// A schema cannot be read, or is none.
pub fn guards(export: &ExportConfig) -> Result<Guards> {
    let failed = |source| Error::Guard { export: export.name.clone(), source };
    let rules: std::result::Result<Vec<_>, _> = export.guards.iter().map(prepared).collect();
    Guards::new(rules.map_err(failed)?).map_err(|error| failed(error.into()))
}

/// Why a guard cannot be used, if it cannot.
pub fn fault(guard: &GuardConfig) -> Option<GuardError> {
    prepared(guard).err()
}

/// What may make a guard refuse content that is valid, if anything does.
pub fn warning(guard: &GuardConfig) -> Option<String> {
    let (GuardRule::Json(file) | GuardRule::JsonLines(file)) = &guard.rule else { return None };
    let (file, (_, validator)) = (file.as_ref()?, prepared(guard).ok()?);
    let place = validator.recursion()?;
    let (file, secs) = (file.display(), MAX_CHECK_TIME.as_secs());
    Some(format!(
        "the JSON Schema {file} recurses {place}: deeply nested content may take more than \
         {secs} s to check, and is refused then; use `if` and `then`, or three branches or more, \
         each of `type` object with another text as the `const` of one `required` property"
    ))
}

fn prepared(guard: &GuardConfig) -> std::result::Result<(Pattern, Validator), GuardError> {
    let validator = match &guard.rule {
        GuardRule::Json(None) => Validator::json(),
        GuardRule::Json(Some(file)) => Validator::json_schema(file)?,
        GuardRule::JsonLines(None) => Validator::jsonl(),
        GuardRule::JsonLines(Some(file)) => Validator::jsonl_schema(file)?,
        GuardRule::Program { argv, timeout } => {
            let argv = argv.iter().map(OsString::from).collect();
            Validator::program(ValidatorProgram::new(argv, *timeout).ok_or(GuardError::NoProgram)?)
        }
    };
    Ok((guard.path.clone(), validator))
}
