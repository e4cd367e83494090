//! `[[export.mount]]`: the mounts of an export.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;

use super::checkpoints;
use super::error::{ConfigError, Result};
use super::keep_checkpoints;
use super::limits::{MAX_KEEP_ORIGINALS_BYTES, MAX_MOUNTS};
use super::model::{KeepLogConfig, MountConfig, StoreConfig};
use super::options;
use super::path::TreePath;
use super::quota;
use super::written::{self, ExportToml, SourceText};
use crate::delta::postgres::{SessionUrl, UrlError};

/// Checks the mounts of `export`; with `is_read_only`, all are read-only.
pub(super) fn check(
    source: &SourceText<'_>,
    export: &Spanned<ExportToml>,
    is_read_only: bool,
) -> Result<Vec<MountConfig>> {
    let written = &export.get_ref().mount;
    source.at_most("mounts in an export", written, MAX_MOUNTS)?;
    let mounts = written
        .iter()
        .map(|mount| check_one(source, mount, is_read_only))
        .collect::<Result<Vec<_>>>()?;
    if !mounts.iter().any(|mount| mount.at.is_root()) {
        let hint = "add [[export.mount]] with at = \"/\" and session = \"FILE.db\"";
        let what = "this export has no mount at '/'";
        return Err(source.wrong(&export.span(), what).with_hint(hint));
    }
    // By their real paths, they are compared once all files are read.
    check_distinct(source.file, &mounts, Path::to_owned)?;
    Ok(mounts)
}

fn check_one(
    source: &SourceText<'_>,
    mount: &Spanned<written::MountToml>,
    is_read_only: bool,
) -> Result<MountConfig> {
    let (span, mount) = (mount.span(), mount.get_ref());
    let at = tree_path(source, &mount.at)?;
    let base = mount.base.as_ref().map(|base| source.host_path(base)).transpose()?;
    let is_ephemeral = mount.ephemeral.as_ref().is_some_and(|flag| *flag.get_ref());
    let chunk_size = mount.chunk_size.as_ref();
    if let Some(size) = chunk_size.filter(|size| !is_chunk_size(*size.get_ref())) {
        let hint = "the default is 65536";
        let what = "chunk_size must be a power of two, 512 to 1048576";
        return Err(source.wrong(&size.span(), what).with_hint(hint));
    }
    let store = match &mount.session {
        Some(session) if is_ephemeral => {
            let what = "`session` and `ephemeral` exclude each other";
            return Err(source.wrong(&session.span(), what).with_hint("leave one of them out"));
        }
        Some(session) => store(source, session, chunk_size.map(|size| *size.get_ref()))?,
        None if is_ephemeral => StoreConfig::Memory,
        None => {
            let hint = "add session = \"FILE.db\", or ephemeral = true for changes in memory; \
                a read-only mount needs one of them too";
            return Err(source.wrong(&span, "this mount has no place for changes").with_hint(hint));
        }
    };
    if let (StoreConfig::Memory, Some(size)) = (&store, chunk_size) {
        return Err(source.wrong(&size.span(), "chunk_size is for the file of a session"));
    }
    let keep_originals = quota::check_bytes(source, mount.keep_originals.as_ref())?;
    if let Some(written) = &mount.keep_originals
        && keep_originals > Some(MAX_KEEP_ORIGINALS_BYTES)
    {
        let what = "originals are kept of files of at most 16MiB";
        return Err(source.wrong(&written.span(), what));
    }
    let keep_log = keep_log(source, mount.keep_log.as_ref())?;
    if let (StoreConfig::Memory, Some(written)) = (&store, &mount.keep_log) {
        return Err(source.wrong(&written.span(), "keep_log is for the audit log of a session"));
    }
    let checkpoints = checkpoints::check(source, mount.checkpoints.as_ref())?;
    let keep_checkpoints = keep_checkpoints::check(source, mount.keep_checkpoints.as_ref())?;
    let written = mount.checkpoints.as_ref().map(Spanned::span);
    let written = written.or_else(|| mount.keep_checkpoints.as_ref().map(Spanned::span));
    if let (StoreConfig::Memory, Some(span)) = (&store, written) {
        let what = "checkpoints are of a session's file; a mount in memory makes none";
        return Err(source.wrong(&span, what));
    }
    let subtree = match &mount.subtree {
        Some(subtree) => tree_path(source, subtree)?,
        None => TreePath::root(),
    };
    let is_read_only = options::check_mount(source, &mount.options)? || is_read_only;
    // Set later, for all exports that share the session.
    let hide = Arc::default();
    Ok(MountConfig {
        at,
        store,
        base,
        hide,
        keep_originals,
        keep_log,
        checkpoints,
        keep_checkpoints,
        subtree,
        is_read_only,
        is_shared: mount.shared.as_ref().is_some_and(|shared| *shared.get_ref()),
        position: source.position(&span),
    })
}

/// Where a session is: in a file, or in a database.
fn store(
    source: &SourceText<'_>,
    session: &Spanned<String>,
    chunk_size: Option<u64>,
) -> Result<StoreConfig> {
    let text = session.get_ref();
    if !SessionUrl::is_meant(text) {
        return Ok(StoreConfig::Session { file: source.host_path(session)?, chunk_size });
    }
    let parsed: std::result::Result<SessionUrl, UrlError> = text.parse();
    let url = parsed.map_err(|error| {
        let hint = match &error {
            UrlError::Password => {
                "leave the password out: it is taken from PGPASSWORD, or from ~/.pgpass"
            }
            _ => "a session is named as postgres://USER@HOST/DATABASE/NAME?schema=S",
        };
        let what = format!("the session is in no database: {error}");
        source.wrong(&session.span(), what).with_hint(hint)
    })?;
    Ok(StoreConfig::Database { url: Arc::new(url), chunk_size })
}

fn keep_log(
    source: &SourceText<'_>,
    written: Option<&Spanned<written::KeepLog>>,
) -> Result<Option<KeepLogConfig>> {
    let Some(written) = written else { return Ok(None) };
    let written::KeepLog { changes, days } = *written.get_ref();
    if changes.is_none() && days.is_none() {
        let what = "keep_log says how many changes, or those of how many days, are kept";
        let hint = "keep_log = { changes = 100000 }, or keep_log = { days = 30 }";
        return Err(source.wrong(&written.span(), what).with_hint(hint));
    }
    Ok(Some(KeepLogConfig { changes, days }))
}

/// Whether the session format allows this chunk size.
fn is_chunk_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && (512..=1 << 20).contains(&bytes)
}

/// Parses a path in an export or a session.
pub(super) fn tree_path(source: &SourceText<'_>, written: &Spanned<String>) -> Result<TreePath> {
    TreePath::new(written.get_ref()).map_err(|error| source.wrong(&written.span(), error))
}

/// Rejects two mounts at one mount point, or of one directory of a session.
/// `real` is the path of a session by which it is known.
pub(super) fn check_distinct(
    file: &Path,
    mounts: &[MountConfig],
    mut real: impl FnMut(&Path) -> PathBuf,
) -> Result<()> {
    if mounts.len() < 2 {
        return Ok(());
    }
    let (mut places, mut shown) = (BTreeMap::new(), BTreeMap::new());
    let wrong = |mount: &MountConfig, what: String| -> ConfigError {
        ConfigError::of_file(file, what).at(mount.position)
    };
    for mount in mounts {
        if let Some(other) = places.insert(&mount.at, mount.position) {
            let what = format!("the export has a mount at {} in line {}", mount.at, other.line);
            return Err(wrong(mount, what));
        }
        let Some(session) = mount.session_key(&mut real) else { continue };
        let key = (session, &mount.subtree);
        if let Some(other) = shown.insert(key, mount.position) {
            let what = format!("the export shows this directory in line {} already", other.line);
            let hint = "two mounts of a session in one export need different subtrees";
            return Err(wrong(mount, what).with_hint(hint));
        }
    }
    Ok(())
}
