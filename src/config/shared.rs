//! Sessions with several mounts: the mounts must agree on the session's settings.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::checkpoints::CheckpointsConfig;
use super::error::{ConfigError, FilePosition, Result};
use super::keep_checkpoints::KeepCheckpointsConfig;
use super::model::{ExportConfig, KeepLogConfig, MountConfig, StoreConfig};
use crate::pattern::PatternSet;

/// Settings of one session, each with the position that set it first.
#[derive(Default)]
struct SharedSettings {
    base: Option<(PathBuf, FilePosition)>,
    chunk_size: Option<(u64, FilePosition)>,
    keep_originals: Option<(u64, FilePosition)>,
    keep_log: Option<(KeepLogConfig, FilePosition)>,
    checkpoints: Option<(CheckpointsConfig, FilePosition)>,
    keep_checkpoints: Option<(KeepCheckpointsConfig, FilePosition)>,
}

/// The real path of a file. If the file does not exist, the symbolic links in those of its folders
/// that exist are resolved: it has the same path once it is made.
pub fn real_path(path: &Path) -> PathBuf {
    for folder in path.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
        if let Ok(real) = fs::canonicalize(folder) {
            // Equal for the path itself, whose rest is empty.
            let rest = path.strip_prefix(folder).unwrap_or(Path::new(""));
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    path.to_owned()
}

/// Applies the settings of each session to all its mounts; an error if two mounts contradict each
/// other.
pub(super) fn unify_shared_settings(exports: &mut [ExportConfig]) -> Result<()> {
    let mut sessions: BTreeMap<PathBuf, SharedSettings> = BTreeMap::new();
    let of_export = |export: &'_ ExportConfig| Arc::clone(&export.file);
    let mounts = exports.iter().flat_map(|it| it.mounts.iter().map(move |m| (of_export(it), m)));
    for (file, mount) in mounts {
        let StoreConfig::Session { file: session, chunk_size } = &mount.store else { continue };
        let said = sessions.entry(real_path(session)).or_default();
        let at = || FilePosition { file: Arc::clone(&file), position: mount.position };
        if let Some(base) = &mount.base {
            let (other, line) = said.base.get_or_insert_with(|| (base.clone(), at()));
            // A base that hangs would be waited for.
            if other != base && real_path(other) != real_path(base) {
                return Err(contradiction(&file, mount, "base", line));
            }
        }
        if let Some(size) = chunk_size {
            let (other, line) = said.chunk_size.get_or_insert_with(|| (*size, at()));
            if *other != *size {
                return Err(contradiction(&file, mount, "chunk_size", line));
            }
        }
        if let Some(size) = mount.keep_originals {
            let (other, line) = said.keep_originals.get_or_insert_with(|| (size, at()));
            if *other != size {
                return Err(contradiction(&file, mount, "keep_originals", line));
            }
        }
        if let Some(keep) = mount.keep_log {
            let (other, line) = said.keep_log.get_or_insert_with(|| (keep, at()));
            if *other != keep {
                return Err(contradiction(&file, mount, "keep_log", line));
            }
        }
        if let Some(mode) = mount.checkpoints {
            let (other, line) = said.checkpoints.get_or_insert_with(|| (mode, at()));
            if *other != mode {
                return Err(contradiction(&file, mount, "checkpoints", line));
            }
        }
        if let Some(keep) = mount.keep_checkpoints {
            let (other, line) = said.keep_checkpoints.get_or_insert_with(|| (keep, at()));
            if *other != keep {
                return Err(contradiction(&file, mount, "keep_checkpoints", line));
            }
        }
    }
    for mount in exports.iter_mut().flat_map(|export| &mut export.mounts) {
        let StoreConfig::Session { file: session, chunk_size } = &mut mount.store else { continue };
        let Some(said) = sessions.get(&real_path(session)) else { continue };
        mount.base = said.base.as_ref().map(|(base, _)| base.clone());
        *chunk_size = said.chunk_size.as_ref().map(|(size, _)| *size);
        mount.keep_originals = said.keep_originals.as_ref().map(|(size, _)| *size);
        mount.keep_log = said.keep_log.as_ref().map(|(keep, _)| *keep);
        mount.checkpoints = said.checkpoints.as_ref().map(|(mode, _)| *mode);
        mount.keep_checkpoints = said.keep_checkpoints.as_ref().map(|(keep, _)| *keep);
    }
    hide_together(exports)
}

/// Gives each mount the union of the `hide` patterns of all exports of its session, because the
/// session has a single merged tree.
fn hide_together(exports: &mut [ExportConfig]) -> Result<()> {
    let mut sessions: BTreeMap<PathBuf, Arc<PatternSet>> = BTreeMap::new();
    for export in &*exports {
        for session in export.mounts.iter().filter_map(MountConfig::session) {
            let all = sessions.entry(real_path(session)).or_default();
            if !all.has_all(&export.hide) {
                let union = all.union(&export.hide).map_err(|error| {
                    let what = format_args!("`hide`: {error}");
                    ConfigError::of_file(&export.file, what).at(export.position)
                })?;
                *all = Arc::new(union);
            }
        }
    }
    for export in exports {
        for mount in &mut export.mounts {
            let shared = mount.session().and_then(|session| sessions.get(&real_path(session)));
            mount.hide = Arc::clone(shared.unwrap_or(&export.hide));
        }
    }
    Ok(())
}

fn contradiction(file: &Path, mount: &MountConfig, key: &str, other: &FilePosition) -> ConfigError {
    let other = other.line_words(file);
    let session = mount.session().map(|session| session.display().to_string()).unwrap_or_default();
    let what = format!("the session {session} has a different `{key}` in {other}");
    let hint = format!("all mounts of a session share its base: give them the same `{key}`");
    ConfigError::of_file(file, what).at(mount.position).with_hint(hint)
}
