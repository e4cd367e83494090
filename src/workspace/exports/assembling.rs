//! Assembles an export from its open sessions, as the exports file says.

use std::path::Path;
use std::sync::Arc;

use super::open_sessions::SessionLease;
use super::shared_parts::SharedParts;
use crate::config::{ExportConfig, MountConfig, QuotaConfig, StoreConfig, real_path};
use crate::delta::Limits;
use crate::export::{Export, ExportParts, Guarding, MountParts, Squash};
use crate::overlay::{Group, Overlay};
use crate::validation::Periods;
use crate::workspace::accounts::{ExportAccount, UsageSource};
use crate::workspace::error::{Error, Result};
use crate::workspace::guards::guards;
use crate::workspace::layers::{LayerOptions, SessionLayers};
use crate::workspace::memory::{MAX_MEMORY_BYTES, memory_bytes};
use crate::workspace::{checkpoints, log_bound, this_user};

/// An assembled export and its account.
pub(super) type ReadyExport = (Arc<Export>, ExportAccount);

/// How an export opens a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionAccess {
    /// No mount may change it.
    pub(super) read_only: bool,
    /// It is not created.
    pub(super) existing: bool,
}

/// How a mount's session is opened. With `existing`, it is not created.
pub(super) fn layer_options<'a>(
    parts: &SharedParts,
    export: &ExportConfig,
    mount: &'a MountConfig,
    file: &'a Path,
    SessionAccess { read_only, existing }: SessionAccess,
) -> LayerOptions<'a> {
    LayerOptions {
        chunk_size: mount.store.chunk_size(),
        read_only,
        existing,
        strict: parts.strict,
        hide: Arc::clone(&mount.hide),
        keep_originals: mount.keep_originals,
        keep_log: mount.keep_log.map(log_bound::of_config),
        checkpoints: checkpoints::of_mount(mount),
        keep_checkpoints: mount.keep_checkpoints.map(checkpoints::keep_of),
        // The exports file names the base explicitly; whether it is the same tree is checked. That
        // of a session in a database was compared before.
        moved: mount.url().is_none(),
        memory_bytes: (mount.store == StoreConfig::Memory).then(|| memory_bytes(limits(export))),
        listings: Arc::clone(&parts.listings),
        ..LayerOptions::new(file, mount.base.as_deref())
    }
}

/// Assembles an export; `leases` are those of its mounts, in their order. `boot` is a random number
/// that changes when the drafts of the export may have been lost. Blocks.
pub(super) fn assemble(
    parts: &SharedParts,
    export: &Arc<ExportConfig>,
    leases: &[SessionLease],
    boot: u64,
) -> Result<ReadyExport> {
    let quota = limits(export);
    let group = quota.is_some().then(|| Arc::new(Group::new(quota)));
    let mut account = ExportAccount::new(export, group.clone());
    let mut mounts = Vec::new();
    for (mount, lease) in export.mounts.iter().zip(leases) {
        let (part, counted) = mount_parts(parts, mount, &lease.layers, quota, group.as_ref())?;
        account.add(mount, counted);
        mounts.push(part);
    }
    let guards = guards(export)?;
    let resources = parts.resources.export(&guards).map_err(|error| {
        let (export, source) = (export.name.clone(), error.into());
        Error::Guard { export, source }
    })?;
    let guarding = Guarding { guards, resources, boot, periods: Periods::default() };
    let path = export.path.as_ref().ok_or(Error::NoExport)?;
    let name = match &export.token {
        Some(token) => format!("{}#{}", export.name, token.mark()),
        None => export.name.clone(),
    };
    let made = parts.runtime.block_on(Export::new(ExportParts {
        path: path.to_string().into(),
        name: name.into(),
        squash: Squash::new(export),
        mounts,
        guarding,
        owner: this_user(),
    }));
    let failed = |source| Error::Export { export: export.name.clone(), source };
    Ok((Arc::new(made.map_err(failed)?), account))
}

/// The parts of a mount, and the source of its session's usage.
fn mount_parts(
    parts: &SharedParts,
    mount: &MountConfig,
    layers: &SessionLayers,
    quota: Limits,
    group: Option<&Arc<Group>>,
) -> Result<(MountParts, UsageSource)> {
    let mut overlay = Overlay::clone(&layers.overlay);
    let file = layers.session.clone();
    if let Some(bound) = &layers.memory {
        bound.set(memory_bytes(quota));
    }
    let in_memory = mount.store == StoreConfig::Memory && quota.bytes.is_none();
    let memory = (in_memory && !mount.is_read_only).then(|| {
        let bytes = Some(MAX_MEMORY_BYTES);
        Arc::new(Group::new(Limits { bytes, ..Limits::default() }))
    });
    let is_counted = !mount.is_read_only && !mount.is_shared;
    for group in group.filter(|_| is_counted).into_iter().chain(&memory) {
        let joined = parts.runtime.block_on(overlay.join(group));
        joined.map_err(|source| Error::Quota { session: file.clone(), source })?;
    }
    let parts = MountParts {
        at: mount.at.to_string(),
        overlay,
        subtree: mount.subtree.to_string(),
        read_only: mount.is_read_only,
        file_bytes: quota.file_bytes,
        handle_key: layers.handle_key,
    };
    Ok((parts, UsageSource::Open { overlay: Arc::downgrade(&layers.overlay), file, memory }))
}

/// Checks that a mount's settings match those that its session was opened with.
pub(super) fn check_same_settings(
    layers: &SessionLayers,
    export: &ExportConfig,
    mount: &MountConfig,
    read_only: bool,
) -> Result<()> {
    if layers.read_only && !read_only {
        return Err(differs(&layers.session, export, mount, "options"));
    }
    let base = mount.base.as_deref().map(real_path);
    let is_memory = mount.store == StoreConfig::Memory;
    let hides = layers.asked_hidden == mount.hide;
    let key = match (&base, &layers.base) {
        (base, layers) if base != layers && (base.is_some() || is_memory) => "base",
        (_, Some(_)) if !hides => "hide",
        _ if layers.keep_originals != mount.keep_originals => "keep_originals",
        _ if layers.keep_log != mount.keep_log.map(log_bound::of_config) => "keep_log",
        _ if layers.checkpoints != checkpoints::of_mount(mount) => "checkpoints",
        _ if layers.keep_checkpoints != mount.keep_checkpoints.map(checkpoints::keep_of) => {
            "keep_checkpoints"
        }
        _ => return Ok(()),
    };
    Err(differs(&layers.session, export, mount, key))
}

fn differs(session: &Path, export: &ExportConfig, mount: &MountConfig, key: &'static str) -> Error {
    let (session, at) = (session.to_owned(), mount.at.to_string());
    Error::Differs { session, export: export.name.clone(), at, key }
}

pub(in crate::workspace) fn limits(export: &ExportConfig) -> Limits {
    let QuotaConfig { bytes, files } = export.quota;
    Limits { bytes, files, file_bytes: export.max_file_bytes }
}
