//! Lists of exports.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::ServerLink;
use crate::cli::error::CliError;
use crate::cli::text;
use crate::config::{Config, ExportConfig};
use crate::control::{ExpiryText, ExportText, ExportsAnswer, ExportsRequest};
use crate::vfs::Time;

/// The exports of the server, by path; `None` if no server runs.
pub(in crate::cli) fn served(
    server: &mut dyn ServerLink,
) -> Result<Option<Vec<ExportText>>, CliError> {
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
pub(in crate::cli) fn written(config: &Config) -> Vec<ExportText> {
    let text = |export: &ExportConfig| ExportText {
        name: export.name.clone(),
        path: export.path.as_ref().map(ToString::to_string),
        file: export.file.to_path_buf(),
        template: None,
        state: None,
        expiry: None,
    };
    let mut all: Vec<ExportText> = config.exports.iter().map(text).collect();
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

/// An export as JSON.
pub(in crate::cli) fn json(export: &ExportText) -> Map<String, Value> {
    let ExportText { name, path, file, template, state, expiry } = export;
    let mut object = text::json("export_listed");
    object.insert("name".to_owned(), name.as_str().into());
    object.insert("path".to_owned(), path.as_deref().into());
    text::put_path(&mut object, "file", file.as_os_str().as_encoded_bytes());
    object.insert("template".to_owned(), template.as_deref().into());
    object.insert("state".to_owned(), state.as_deref().into());
    object.insert("is_kept".to_owned(), expiry.map(|it| it.is_kept).into());
    object.insert("expire".to_owned(), expiry.and_then(|it| it.expire_secs).into());
    object.insert("expires_at".to_owned(), expiry.as_ref().and_then(expires_at).into());
    object
}

/// When an instance may be removed, if nothing uses it and a server runs until then: a time in UTC,
/// in seconds.
pub(in crate::cli) fn expires_at(expiry: &ExpiryText) -> Option<String> {
    let left = Duration::from_secs(expiry.left_secs?);
    let since = SystemTime::now().checked_add(left)?.duration_since(UNIX_EPOCH).ok()?;
    let secs = i64::try_from(since.as_secs()).ok()?;
    Some(text::time_short(Time { secs, nanos: 0 }))
}
