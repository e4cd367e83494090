//! Checks content as an export does: schemas in processes of the program under test.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use acetate::pattern::Pattern;
use acetate::validation::{
    ExportResources, GuardLimits, GuardResources, Guards, NotAccepted, Validator, ValidatorCommand,
    Violation,
};
use bytes::Bytes;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// What starts validator processes.
pub fn command() -> ValidatorCommand {
    ValidatorCommand::new(env!("CARGO_BIN_EXE_acetate"))
}

/// A schema in a file of its own.
pub fn schema(text: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.schema.json");
    fs::write(&file, text).unwrap();
    (dir, file)
}

/// A validator of documents that fit a schema.
pub fn json_schema(text: &str) -> Validator {
    let (_dir, file) = schema(text);
    Validator::json_schema(&file).unwrap()
}

/// Guards with a schema.
pub fn guards_with_schema() -> Guards {
    Guards::new([(Pattern::new("/a.json").unwrap(), json_schema("{}"))]).unwrap()
}

/// The part of an export with a schema.
pub fn export(all: &Arc<GuardResources>) -> Arc<ExportResources> {
    all.export(&guards_with_schema()).unwrap()
}

/// Checks a content.
///
/// # Errors
/// Why it is refused; panics if it is not its turn.
pub async fn check(
    export: &ExportResources,
    validator: &Validator,
    content: &[u8],
) -> Result<(), Violation> {
    let checked = export.check(validator, b"/a", &Bytes::copy_from_slice(content)).await;
    checked.map_err(|fault| match fault {
        NotAccepted::Refused(violation) => violation,
        NotAccepted::Busy => panic!("it was not its turn"),
    })
}

/// Checks a content in processes that all tests share.
pub fn check_shared(validator: &Validator, content: &[u8]) -> Result<(), Violation> {
    static SHARED: LazyLock<(Runtime, Arc<ExportResources>)> = LazyLock::new(|| {
        let all = GuardResources::new(GuardLimits::default(), Some(command()));
        (Runtime::new().unwrap(), export(&all))
    });
    let (runtime, export) = &*SHARED;
    runtime.block_on(check(export, validator, content))
}
