//! Lists of exports.

use serde_json::{Map, Value};

use super::change::ServerLink;
use crate::cli::error::CliError;
use crate::cli::text;
use crate::config::{Config, ExportConfig};
use crate::control::{ExportText, ExportsAnswer, ExportsRequest};

/// The exports of the server, by path; `None` if no server runs.
pub(super) fn served(server: &mut dyn ServerLink) -> Result<Option<Vec<ExportText>>, CliError> {
    let mut all: Vec<ExportText> = Vec::new();
    loop {
        let after = all.last().and_then(|last| last.path.clone());
        match server.ask(&ExportsRequest::List { after })? {
            None => return Ok(None),
            Some(ExportsAnswer::Listed { exports, is_more }) => {
                let is_more = is_more && !exports.is_empty();
                all.extend(exports);
                if !is_more {
                    return Ok(Some(all));
                }
            }
            Some(_) => return Err(CliError::new("the server gave another answer")),
        }
    }
}

/// The exports of the files, by path.
pub(super) fn written(config: &Config) -> Vec<ExportText> {
    let text = |export: &ExportConfig| ExportText {
        name: export.name.clone(),
        path: export.path.as_ref().map(ToString::to_string),
        file: export.file.to_path_buf(),
        template: None,
        state: None,
    };
    let mut all: Vec<ExportText> = config.exports.iter().map(text).collect();
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

/// An export as JSON.
pub(in crate::cli) fn json(export: &ExportText) -> Map<String, Value> {
    let ExportText { name, path, file, template, state } = export;
    let mut object = text::json("export_listed");
    object.insert("name".to_owned(), name.as_str().into());
    object.insert("path".to_owned(), path.as_deref().into());
    text::put_path(&mut object, "file", file.as_os_str().as_encoded_bytes());
    object.insert("template".to_owned(), template.as_deref().into());
    object.insert("state".to_owned(), state.as_deref().into());
    object
}
