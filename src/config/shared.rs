//! Sessions with several mounts: the mounts must agree on the session's settings.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::checkpoints::CheckpointsConfig;
use super::error::{ConfigError, FilePosition, Result};
use super::keep_checkpoints::KeepCheckpointsConfig;
use super::model::{ExportConfig, KeepLogConfig, MountConfig, StoreConfig};
use super::mounts;
use super::real_paths::RealPaths;
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

/// Applies the settings of each session to all its mounts; an error if two mounts contradict each
/// other, or show one directory in one export.
pub(super) fn unify_shared_settings(
    exports: &mut [ExportConfig],
    real: &mut RealPaths<'_>,
) -> Result<()> {
    for export in &*exports {
        mounts::check_distinct(&export.file, &export.mounts, |session| real.of(session))?;
    }
    let files = session_keys(exports, real);
    let mut sessions: HashMap<&Path, SharedSettings> = HashMap::new();
    let of_export = |export: &'_ ExportConfig| Arc::clone(&export.file);
    let mounts = exports.iter().flat_map(|it| it.mounts.iter().map(move |m| (of_export(it), m)));
    for ((file, mount), session) in mounts.zip(&files) {
        let Some(session) = session else { continue };
        let chunk_size = mount.store.chunk_size();
        let said = sessions.entry(session).or_default();
        let at = || FilePosition { file: Arc::clone(&file), position: mount.position };
        if let Some(base) = &mount.base {
            let (other, line) = said.base.get_or_insert_with(|| (base.clone(), at()));
            if !real.may_be_same(other, base) {
                return Err(contradiction(&file, mount, "base", line));
            }
        }
        if let Some(size) = chunk_size {
            let (other, line) = said.chunk_size.get_or_insert_with(|| (size, at()));
            if *other != size {
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
    for (mount, session) in exports.iter_mut().flat_map(|export| &mut export.mounts).zip(&files) {
        let (StoreConfig::Session { chunk_size, .. } | StoreConfig::Database { chunk_size, .. }) =
            &mut mount.store
        else {
            continue;
        };
        let Some(said) = session.as_deref().and_then(|it| sessions.get(it)) else { continue };
        mount.base = said.base.as_ref().map(|(base, _)| base.clone());
        *chunk_size = said.chunk_size.as_ref().map(|(size, _)| *size);
        mount.keep_originals = said.keep_originals.as_ref().map(|(size, _)| *size);
        mount.keep_log = said.keep_log.as_ref().map(|(keep, _)| *keep);
        mount.checkpoints = said.checkpoints.as_ref().map(|(mode, _)| *mode);
        mount.keep_checkpoints = said.keep_checkpoints.as_ref().map(|(keep, _)| *keep);
    }
    hide_together(exports, &files)
}

/// The keys of the sessions of all mounts, in their order; `None` in memory.
fn session_keys(exports: &[ExportConfig], real: &mut RealPaths<'_>) -> Vec<Option<PathBuf>> {
    let mounts = exports.iter().flat_map(|export| &export.mounts);
    mounts.map(|mount| mount.session_key(|file| real.of(file))).collect()
}

/// Gives each mount the union of the `hide` patterns of all exports of its session, because the
/// session has a single merged tree. `files` are the sessions of all mounts.
fn hide_together(exports: &mut [ExportConfig], files: &[Option<PathBuf>]) -> Result<()> {
    let mut sessions: HashMap<&Path, Arc<PatternSet>> = HashMap::new();
    let mut rest = files;
    for export in &*exports {
        let (own, others) = rest.split_at(export.mounts.len());
        rest = others;
        for session in own.iter().flatten() {
            let Some(all) = sessions.get_mut(session.as_path()) else {
                sessions.insert(session, Arc::clone(&export.hide));
                continue;
            };
            if !all.has_all(&export.hide) {
                let union = all.union(&export.hide).map_err(|error| {
                    let what = format_args!("`hide`: {error}");
                    ConfigError::of_file(&export.file, what).at(export.position)
                })?;
                *all = Arc::new(union);
            }
        }
    }
    let mut files = files.iter();
    for export in exports {
        for (mount, session) in export.mounts.iter_mut().zip(&mut files) {
            let shared = session.as_deref().and_then(|session| sessions.get(session));
            mount.hide = Arc::clone(shared.unwrap_or(&export.hide));
        }
    }
    Ok(())
}

fn contradiction(file: &Path, mount: &MountConfig, key: &str, other: &FilePosition) -> ConfigError {
    let other = other.line_words(file);
    let session = mount.shown_session().unwrap_or_default();
    let what = format!("the session {session} has a different `{key}` in {other}");
    let hint = format!("all mounts of a session share its base: give them the same `{key}`");
    ConfigError::of_file(file, what).at(mount.position).with_hint(hint)
}
