//! Builds the guards of an export from the exports file: reads and checks schemas.

use std::ffi::OsString;

use super::error::{Error, Result};
use crate::config::{ExportConfig, GuardConfig, GuardRule};
use crate::pattern::{Pattern, PatternError};
use crate::validation::{
    Guards, MAX_CHECK_TIME, NoValidatorCommand, SchemaError, Validator, ValidatorProgram,
};

/// Why a guard cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// Its schema cannot be used.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The path patterns exceed the limits of the glob compiler.
    #[error("the paths of the guards: {0}")]
    Pattern(#[from] PatternError),
    /// The program's name is missing.
    #[error("there is no program to run")]
    NoProgram,
    /// No command starts validator processes.
    #[error(transparent)]
    NoValidator(#[from] NoValidatorCommand),
}

/// Builds the guards of an export.
///
/// # Errors
/// A schema cannot be read, or is invalid.
pub fn guards(export: &ExportConfig) -> Result<Guards> {
    let failed = |source| Error::Guard { export: export.name.clone(), source };
    let rules: std::result::Result<Vec<_>, _> = export.guards.iter().map(prepared).collect();
    Guards::new(rules.map_err(failed)?).map_err(|error| failed(error.into()))
}

/// The error of a guard, if it cannot be used.
pub fn fault(guard: &GuardConfig) -> Option<GuardError> {
    prepared(guard).err()
}

/// A warning, if the guard may reject valid content.
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
