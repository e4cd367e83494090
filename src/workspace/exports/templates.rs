//! The instances of templates: exports that a mount makes.
//!
//! An instance that was ever opened is in the registry, so that its handles are known after a
//! restart. A path that no client could open leaves nothing.

use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

use super::identities::{Identities, random_keys};
use super::on_demand::{ExportSource, SourceKind};
use super::shared_parts::SharedParts;
use super::{session_of, sessions_of_one};
use crate::config::{ExportConfig, StoreConfig, TemplateConfig};
use crate::delta::sqlite::{InstanceRegistry, RegisteredInstance, SessionKeys};
use crate::export::{ExportEntry, FindExport};
use crate::workspace::error::{Error, Result};
use crate::workspace::layers;

/// Suffix of the registry's name, after that of the exports file.
const REGISTRY_SUFFIX: &str = ".instances";

/// Mode of directories that are made for sessions.
const DIR_MODE: u32 = 0o700;

/// An instance that was made before.
pub(super) struct KnownInstance {
    /// The template that made it.
    pub(super) template: Arc<TemplateConfig>,
    /// What it exports.
    pub(super) config: ExportConfig,
    /// The keys of its mounts' sessions.
    pub(super) keys: Vec<SessionKeys>,
    /// When it was last used, on the registry's clock, in milliseconds.
    pub(super) used_ms: u64,
}

/// The registry of the exports file `file`.
pub fn registry_file(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(REGISTRY_SUFFIX);
    name.into()
}

/// Makes the exports that clients mount and that are not in the table.
pub(super) struct Templates {
    parts: Weak<SharedParts>,
    templates: Vec<Arc<TemplateConfig>>,
    /// Exports that are being opened for the first time.
    new: Mutex<HashMap<Bytes, Weak<ExportEntry>>>,
}

impl Templates {
    pub(super) fn new(parts: &Arc<SharedParts>, templates: Vec<Arc<TemplateConfig>>) -> Self {
        Self { parts: Arc::downgrade(parts), templates, new: Mutex::default() }
    }

    fn make(&self, path: &[u8]) -> Option<Arc<ExportEntry>> {
        let parts = self.parts.upgrade()?;
        let made = self.templates.iter().find_map(|it| Some((it, it.instance(path)?)));
        let (template, config) = made?;
        let entry = instance(&parts, template, config).map(|(_, entry)| entry);
        entry.inspect_err(|error| tracing::error!(%error, "an export cannot be made")).ok()
    }
}

impl FindExport for Templates {
    fn find(&self, path: &[u8]) -> Option<Arc<ExportEntry>> {
        let mut new = self.new.lock();
        // One that was made is in the table, or was removed.
        let is_new = |entry: &Arc<ExportEntry>| entry.identity().is_none();
        let is_in_table = || Some(self.parts.upgrade()?.exports.find(path).is_some());
        let known = new.get(path).and_then(Weak::upgrade);
        if let Some(entry) = known.filter(|it| is_new(it) || is_in_table() == Some(true)) {
            return Some(entry);
        }
        let entry = self.make(path)?;
        // Bounded by the calls in progress.
        new.retain(|_, entry| entry.strong_count() > 0);
        new.insert(entry.path().clone(), Arc::downgrade(&entry));
        Some(entry)
    }
}

/// The source of an instance, and the export, closed.
pub(super) fn instance(
    parts: &Arc<SharedParts>,
    template: &Arc<TemplateConfig>,
    config: ExportConfig,
) -> Result<(Arc<ExportSource>, Arc<ExportEntry>)> {
    let config = Arc::new(config);
    ExportSource::new(parts, config, None, None, SourceKind::Instance(Arc::clone(template)))
}

/// The instances in the registry that a template still matches, with the keys of their sessions.
pub(super) fn known(
    parts: &SharedParts,
    registry: &InstanceRegistry,
    templates: &[Arc<TemplateConfig>],
) -> Result<Vec<KnownInstance>> {
    let rows = registry.all().map_err(Error::Registry)?;
    let mut known = Vec::with_capacity(rows.len());
    for RegisteredInstance { path, mounts: mut keys, used_ms } in rows {
        let found = templates.iter().find_map(|template| {
            let mounted = template.mounted_path(&path)?;
            Some((Arc::clone(template), template.instance(mounted.as_bytes())?))
        });
        let Some((template, config)) = found.filter(|it| it.1.mounts.len() == keys.len()) else {
            continue;
        };
        let mut in_order = keys.clone();
        for (index, keys) in order_by_place(&config).into_iter().zip(&keys) {
            in_order[index] = *keys;
        }
        for (mount, keys) in config.mounts.iter().zip(&mut in_order) {
            if mount.store == StoreConfig::Memory {
                // Of this run, if it is there.
                let file = session_of(parts, &config, mount)?;
                let found = layers::identity(&file).ok().flatten();
                *keys = found.map_or_else(random_keys, Ok)?;
            }
        }
        keys = in_order;
        known.push(KnownInstance { template, config, keys, used_ms });
    }
    Ok(known)
}

/// Records the instances whose sessions exist, in an empty registry.
///
/// # Errors
/// A directory of sessions or a session cannot be read.
pub(super) fn rebuild(
    parts: &SharedParts,
    registry: &InstanceRegistry,
    templates: &[Arc<TemplateConfig>],
) -> Result<()> {
    let mut found = Vec::new();
    for template in templates {
        let paths = template.existing_paths();
        for own in paths.map_err(|(path, source)| Error::Place { path, source })? {
            let mounted = template.mounted_path(&own);
            let config = mounted.and_then(|path| template.instance(path.as_bytes()));
            let Some(config) = config else { continue };
            let sessions = sessions_of_one(parts, &config)?;
            found.push((own, config, sessions));
        }
    }
    let mut identities = Identities::new(&parts.databases);
    identities.read_ahead(found.iter().flat_map(|(_, _, sessions)| sessions));
    let mut instances = Vec::with_capacity(found.len());
    for (own, config, sessions) in found {
        match identities.keys(&config, &sessions) {
            Ok(Some(keys)) => {
                let order = order_by_place(&config);
                instances.push((own, order.iter().map(|index| keys[*index]).collect()));
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(export = %config.name, %error, "an export is left out");
            }
        }
    }
    registry.record_all(&instances).map_err(Error::Registry)
}

/// The mounts of an instance in the order of the registry: by their places, so that a template
/// whose mounts are written in another order has the same instances.
pub(super) fn order_by_place(config: &ExportConfig) -> Vec<usize> {
    let mut order: Vec<usize> = (0..config.mounts.len()).collect();
    order.sort_by_key(|index| config.mounts[*index].at.as_str().to_owned());
    order
}

/// Checks that nothing below the fixed directories of a template is a symbolic link, and makes the
/// missing directories of sessions if `creates`.
///
/// # Errors
/// There is a symbolic link, or a directory cannot be made.
pub(super) fn check_places(
    template: &TemplateConfig,
    config: &ExportConfig,
    creates: bool,
) -> Result<()> {
    for (written, mount) in template.export.mounts.iter().zip(&config.mounts) {
        if let (Some(written), Some(base)) = (&written.base, &mount.base) {
            walk(written, base, false)?;
            // Before anything is made.
            if let Err(source) = base.metadata() {
                return Err(Error::Place { path: base.clone(), source });
            }
        }
    }
    for (written, mount) in template.export.mounts.iter().zip(&config.mounts) {
        if let (Some(written), Some(file)) = (written.session(), mount.session()) {
            walk(written, file, creates)?;
        }
    }
    Ok(())
}

/// Walks the components of `path` from the first one that differs from the template's.
fn walk(written: &Path, path: &Path, creates: bool) -> Result<()> {
    let (mut at, mut is_fixed) = (PathBuf::new(), true);
    let mut parts = path.components().zip(written.components()).peekable();
    while let Some((part, written)) = parts.next() {
        at.push(part);
        is_fixed &= part == written && matches!(part, Component::RootDir | Component::Normal(_));
        let is_last = parts.peek().is_none();
        if is_fixed && (!creates || is_last) {
            continue;
        }
        let failed = |source: std::io::Error| Error::Place { path: at.clone(), source };
        match at.symlink_metadata() {
            Ok(found) if found.is_symlink() && !is_fixed => {
                return Err(failed(ErrorKind::NotADirectory.into()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound && creates && !is_last => {
                make_dir(&at).map_err(failed)?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

/// Makes a directory, durably: what clients have committed in its sessions must not go with it.
fn make_dir(dir: &Path) -> std::io::Result<()> {
    match DirBuilder::new().mode(DIR_MODE).create(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made.and_then(|()| File::open(dir.parent().unwrap_or(Path::new("/")))?.sync_all()),
    }
}
