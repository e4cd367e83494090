//! Reads and checks the exports file of `acetate serve --config`, a TOML file, and the files of the
//! directory `exports.d` beside it, into plain data.
//!
//! [`read`] reports the first fault with its position and a hint. It opens no session and no base,
//! and serves nothing. docs/EXPORTS.md is the reference of the file format.

mod added;
mod added_dir;
mod added_files;
mod checkpoints;
mod clients;
mod error;
mod exports;
mod guards;
mod ids;
mod instances;
mod keep_checkpoints;
pub mod limits;
mod model;
mod mounts;
mod new_export;
mod open_bounds;
mod options;
mod parameters;
mod path;
mod quota;
mod shared;
mod template;
mod tokens;
mod written;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

pub use added::{AddedChange, added_dir, added_file, check_added_name, read_added_text};
pub use added_files::AddedFiles;
pub use checkpoints::CheckpointsConfig;
pub use clients::ClientNetworks;
pub use error::{ConfigError, Position, Result};
pub use ids::{IdMap, IdRange};
pub use keep_checkpoints::KeepCheckpointsConfig;
pub use model::{
    Config, ExportConfig, GuardConfig, GuardRule, KeepLogConfig, MountConfig, QuotaConfig,
    StoreConfig,
};
pub use new_export::NewExport;
pub use options::{ExportOptions, SquashMode};
pub use parameters::AllowedNames;
pub use path::{PathError, TreePath};
pub use quota::parse_bytes;
pub use shared::{RealPaths, real_path};
pub use template::TemplateConfig;
pub use tokens::{Token, tokens_file};

use added::AddedExports;
use limits::{MAX_EXPORTS, MAX_FILE_BYTES};
use written::SourceText;

use crate::system_error::words;

/// Exports of `exports.d` that are reported because they do not go together with others.
const MAX_FAULTS: usize = 64;

/// How [`read`] treats exports whose token does not exist yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// They have no path; nothing is written.
    Leave,
    /// Creates and stores their tokens, for serving.
    Make,
}

/// Reads and checks the exports file `file`, and `exports.d` beside it.
///
/// # Errors
/// A file cannot be read, or has a fault: the first one is reported.
pub fn read(file: &Path, missing: Missing) -> Result<Config> {
    read_with(file, missing, None)
}

/// What [`read`] would return after a change of `exports.d`. Writes nothing.
///
/// # Errors
/// As [`read`].
pub fn read_changed(file: &Path, change: &AddedChange<'_>) -> Result<Config> {
    read_with(file, Missing::Leave, Some(change))
}

fn read_with(file: &Path, missing: Missing, change: Option<&AddedChange<'_>>) -> Result<Config> {
    let too_long = format!("an exports file has at most {} MiB", MAX_FILE_BYTES >> 20);
    let text = read_text(file, MAX_FILE_BYTES, &too_long)?;
    let source = SourceText::new(file, folder_of(file)?, &text);
    let parsed = source.parse()?;
    let max_open = open_bounds::check_max_open(&source, parsed.max_open.as_ref())?;
    let idle_close = open_bounds::check_idle_close(&source, parsed.idle_close.as_ref())?;
    let ephemeral = parsed.ephemeral_expire.as_ref();
    let ephemeral_expire = open_bounds::check_ephemeral_expire(&source, ephemeral)?;
    let mut all = exports::check(&source, &parsed)?;
    let mut templates = template::check(&source, &parsed)?;
    let added = added::read(&source, change)?;
    if all.is_empty() && templates.is_empty() && added.is_none() {
        let hint = "add [[export]] with a path, and [[export.mount]] with at = \"/\"";
        return Err(ConfigError::of_file(file, "there are no exports").with_hint(hint));
    }
    if let Some(AddedExports { exports, faults }) = added {
        all.extend(exports);
        let new = change.and_then(|change| change.new_file(file));
        check_all(file, new.as_deref(), &mut all, faults)?;
        added::check_bases(&absolute(file)?, &all, &templates)?;
    } else {
        exports::check_together(&mut all)?;
    }
    let secret = all.iter().filter(|export| export.is_secret);
    let mut names: Vec<&str> = secret.map(|export| export.name.as_str()).collect();
    names.extend(template::names_with_token(&templates));
    exports::check_token_names(file, &names)?;
    if !names.is_empty() {
        let tokens = match missing {
            Missing::Leave => tokens::read(file)?,
            Missing::Make => tokens::make(file, &names)?,
        };
        exports::put_tokens(&mut all, &tokens);
        template::put_keys(&mut templates, &tokens);
        exports::unique(&all, "path", |export| Some(export.path.as_ref()?.to_string()))?;
    }
    Ok(Config { exports: all, templates, max_open, idle_close, ephemeral_expire })
}

/// Checks the exports of the exports file `file` and of its `exports.d` together, whose other files
/// have these faults. All files of `exports.d` at fault are reported at once, but for `new`, which
/// is not written yet.
fn check_all(
    file: &Path,
    new: Option<&Path>,
    all: &mut Vec<ExportConfig>,
    mut faults: Vec<ConfigError>,
) -> Result<()> {
    if all.len() > MAX_EXPORTS {
        let what = format!("at most {MAX_EXPORTS} exports, with those of exports.d");
        return Err(ConfigError::of_file(file, what));
    }
    let is_written = |fault: &ConfigError| {
        Some(fault.file()) != new && added::added_name(fault.file()).is_some()
    };
    while faults.len() < MAX_FAULTS
        && let Err(clash) = exports::check_names(all)
    {
        if !is_written(&clash) {
            return Err(clash);
        }
        all.retain(|export| *export.file != *clash.file());
        faults.push(clash);
    }
    match shared::unify_shared_settings(all) {
        Err(clash) if is_written(&clash) => faults.push(clash),
        Err(clash) if faults.is_empty() => return Err(clash),
        _ => {}
    }
    ConfigError::of_added(file, faults).map_or(Ok(()), Err)
}

fn absolute(file: &Path) -> Result<PathBuf> {
    std::path::absolute(file).map_err(|error| ConfigError::of_file(file, words(&error)))
}

/// The directory of an exports file, absolute.
fn folder_of(file: &Path) -> Result<PathBuf> {
    Ok(absolute(file)?.parent().map(Path::to_owned).unwrap_or_else(|| PathBuf::from("/")))
}

/// The text of a file, of at most so many bytes; otherwise the error `too_long`.
fn read_text(file: &Path, max_bytes: u64, too_long: &str) -> Result<String> {
    let failed = |error: std::io::Error| ConfigError::of_file(file, words(&error));
    let opened = File::open(file).map_err(failed)?;
    let mut bytes = Vec::new();
    opened.take(max_bytes + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > max_bytes {
        return Err(ConfigError::of_file(file, too_long));
    }
    String::from_utf8(bytes).map_err(|_| ConfigError::of_file(file, "not UTF-8 text"))
}
