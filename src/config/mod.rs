//! Reads and checks the exports file of `acetate serve --config`, a TOML file, and the files of the
//! directory `exports.d` beside it, into plain data.
//!
//! [`read`] reports the first fault with its position and a hint. It opens no session and no base,
//! and serves nothing. docs/EXPORTS.md is the reference of the file format.

mod added;
mod added_dir;
mod added_files;
mod added_lock;
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
mod named_sessions;
mod new_export;
mod open_bounds;
mod options;
mod parameters;
mod path;
mod quota;
mod real_paths;
mod shared;
mod template;
mod tokens;
mod written;

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

pub use added::{AddedChange, added_dir, added_file, check_added_name, read_added_text};
pub use added_files::{AddedFiles, lock_file};
pub use checkpoints::CheckpointsConfig;
pub use clients::ClientNetworks;
pub use error::{ConfigError, Position, Result};
pub use ids::{IdMap, IdRange};
pub use keep_checkpoints::KeepCheckpointsConfig;
pub use model::{
    Config, ExportConfig, GuardConfig, GuardRule, KeepLogConfig, MountConfig, QuotaConfig,
    StoreConfig,
};
pub use named_sessions::{NamedSessions, named_sessions};
pub use new_export::NewExport;
pub use options::{ExportOptions, SquashMode};
pub use parameters::AllowedNames;
pub use path::{PathError, TreePath};
pub use quota::parse_bytes;
pub use real_paths::{KnownPaths, RealPaths, SoughtPaths, real_path};
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
    match read_parts(file, None, |_| None)? {
        (_, Some(broken)) => Err(broken),
        (config, None) => with_tokens(file, missing, config),
    }
}

/// As [`read`], after a change of `exports.d` if there is one; for a program that must not wait for
/// the filesystems of sessions: they are not touched. `find` is given the paths whose real paths
/// decide which exports have a session in common; those that it does not know count as different.
///
/// # Errors
/// As [`read`].
pub fn read_known(
    file: &Path,
    missing: Missing,
    change: Option<&AddedChange<'_>>,
    find: impl FnOnce(&SoughtPaths) -> KnownPaths,
) -> Result<Config> {
    match read_parts(file, change, |paths| Some(find(paths)))? {
        (_, Some(broken)) => Err(broken),
        (config, None) => with_tokens(file, missing, config),
    }
}

/// As [`read`], without the exports of `exports.d` whose files are at fault; returns the faults.
///
/// # Errors
/// The exports file itself has a fault, or a file cannot be read.
pub fn read_sound(file: &Path, missing: Missing) -> Result<(Config, Option<ConfigError>)> {
    let (config, broken) = read_parts(file, None, |_| None)?;
    Ok((with_tokens(file, missing, config)?, broken))
}

/// Everything but the tokens, and the fault of files of `exports.d`.
fn read_parts(
    file: &Path,
    change: Option<&AddedChange<'_>>,
    find: impl FnOnce(&SoughtPaths) -> Option<KnownPaths>,
) -> Result<(Config, Option<ConfigError>)> {
    let too_long = format!("an exports file has at most {} MiB", MAX_FILE_BYTES >> 20);
    let text = read_text(file, MAX_FILE_BYTES, &too_long)?;
    let source = SourceText::new(file, folder_of(file)?, &text);
    let parsed = source.parse()?;
    let max_open = open_bounds::check_max_open(&source, parsed.max_open.as_ref())?;
    let idle_close = open_bounds::check_idle_close(&source, parsed.idle_close.as_ref())?;
    let ephemeral = parsed.ephemeral_expire.as_ref();
    let ephemeral_expire = open_bounds::check_ephemeral_expire(&source, ephemeral)?;
    let mut all = exports::check(&source, &parsed)?;
    let templates = template::check(&source, &parsed)?;
    let added = added::read(&source, change)?;
    if all.is_empty() && templates.is_empty() && added.is_none() {
        let hint = "add [[export]] with a path, and [[export.mount]] with at = \"/\"";
        return Err(ConfigError::of_file(file, "there are no exports").with_hint(hint));
    }
    let faults = added.map(|AddedExports { exports, faults }| {
        all.extend(exports);
        faults
    });
    let known = find(&paths_to_find(&all, &templates));
    let mut real = known.as_ref().map_or_else(RealPaths::default, KnownPaths::only);
    let mut broken = None;
    if let Some(faults) = faults {
        let new = change.and_then(|change| change.new_file(file));
        broken = check_all(file, new.as_deref(), &mut all, faults, &mut real)?;
        added::check_bases(&absolute(file)?, &all, &templates)?;
    } else {
        exports::check_together(&mut all, &mut real)?;
    }
    Ok((Config { exports: all, templates, max_open, idle_close, ephemeral_expire }, broken))
}

/// Gives exports and templates their tokens.
fn with_tokens(file: &Path, missing: Missing, mut config: Config) -> Result<Config> {
    let Config { exports: all, templates, .. } = &mut config;
    let secret = all.iter().filter(|export| export.is_secret);
    let mut names: Vec<&str> = secret.map(|export| export.name.as_str()).collect();
    names.extend(template::names_with_token(templates));
    exports::check_token_names(file, &names)?;
    if !names.is_empty() {
        let tokens = match missing {
            Missing::Leave => tokens::read(file)?,
            Missing::Make => tokens::make(file, &names)?,
        };
        exports::put_tokens(all, &tokens);
        template::put_keys(templates, &tokens);
        exports::unique(all, "path", |export| Some(export.path.as_ref()?.to_string()))?;
    }
    Ok(config)
}

/// The paths whose real paths decide which exports have a session in common: sessions, directories
/// of templates, and bases that sessions of one file name have.
fn paths_to_find(exports: &[ExportConfig], templates: &[TemplateConfig]) -> SoughtPaths {
    let mounts = || exports.iter().flat_map(|export| &export.mounts);
    let mut bases: HashMap<&OsStr, BTreeSet<&Path>> = HashMap::new();
    for mount in mounts() {
        let name = mount.session().and_then(|session| session.file_name());
        if let (Some(name), Some(base)) = (name, &mount.base) {
            bases.entry(name).or_default().insert(base);
        }
    }
    let sessions = mounts().filter_map(|mount| mount.session()).cloned();
    let dirs = templates.iter().flat_map(|template| template.session_dirs());
    let bases = bases.into_values().filter(|bases| bases.len() > 1).flatten();
    SoughtPaths { files: sessions.collect(), dirs: dirs.chain(bases.map(Path::to_owned)).collect() }
}

/// Checks the exports of the exports file `file` and of its `exports.d` together, whose other files
/// have these faults. Returns all faults of files of `exports.d`, but for `new`, which is not
/// written yet; `all` is then without the exports whose names or paths clash.
fn check_all(
    file: &Path,
    new: Option<&Path>,
    all: &mut Vec<ExportConfig>,
    mut faults: Vec<ConfigError>,
    real: &mut RealPaths<'_>,
) -> Result<Option<ConfigError>> {
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
    match shared::unify_shared_settings(all, real) {
        Err(clash) if is_written(&clash) => faults.push(clash),
        Err(clash) if faults.is_empty() => return Err(clash),
        _ => {}
    }
    Ok(ConfigError::of_added(file, faults))
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
