//! Makes the exports of a file that is loaded, and opens those that are to be open.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use super::identities::{Identities, identity_of};
use super::on_demand::{ExportSource, NeededSession, SourceKind};
use super::unavailable::{FailedExport, HangingPlace, hanging_place};
use super::{OPEN_AT_START, ServedExports};
use crate::config::{ExportConfig, TemplateConfig};
use crate::delta::sqlite::SessionKeys;
use crate::export::{ExportEntry, OpenPurpose};
use crate::workspace::error::{Error, Result};

/// What is logged of an export that a load does not open again.
const CLOSED: &str = "an export that was open is closed";

/// An export that is to be served.
pub(super) struct WantedExport {
    pub(super) config: Arc<ExportConfig>,
    /// The sessions of its mounts, if the exports file has it.
    pub(super) sessions: Option<Vec<NeededSession>>,
    /// What is known of an instance.
    pub(super) instance: Option<WantedInstance>,
}

impl WantedExport {
    /// Whether its path is one of these.
    fn is_of(&self, paths: &BTreeSet<Vec<u8>>) -> bool {
        self.config.path.as_ref().is_some_and(|path| paths.contains(path.as_str().as_bytes()))
    }
}

/// What is known of an instance that is to be served.
pub(super) struct WantedInstance {
    pub(super) template: Arc<TemplateConfig>,
    /// The keys of its sessions.
    pub(super) keys: Vec<SessionKeys>,
    /// When it was last used, on the registry's clock, in milliseconds.
    pub(super) used_ms: u64,
}

/// An export of a file that is being loaded.
pub(super) struct LoadedExport {
    pub(super) source: Arc<ExportSource>,
    pub(super) entry: Arc<ExportEntry>,
    /// It was served before, and is not replaced.
    pub(super) stays: bool,
}

/// What a load depends on, beside the file.
pub(super) struct LoadPlan<'a> {
    /// The paths of the exports that were open.
    pub(super) open: BTreeSet<Vec<u8>>,
    /// Bases that hang.
    pub(super) hanging: &'a BTreeSet<PathBuf>,
    /// The exports that are served, by their paths.
    pub(super) before: HashMap<String, Arc<ExportSource>>,
    /// The name of an export that was added: it is opened, or the load fails.
    pub(super) added: Option<&'a str>,
}

impl LoadPlan<'_> {
    /// Whether an export is served as the file has it.
    fn is_served(&self, config: &ExportConfig) -> bool {
        let before = config.path.as_ref().and_then(|path| self.before.get(path.as_str()));
        before.is_some_and(|source| source.config.is_same(config))
    }

    fn is_added(&self, wanted: &WantedExport) -> bool {
        wanted.instance.is_none() && self.added == Some(&*wanted.config.name)
    }

    /// The export that is served at a path.
    fn known(&self, path: &str) -> Option<LoadedExport> {
        let source = Arc::clone(self.before.get(path)?);
        Some(LoadedExport { entry: source.entry()?, source, stays: true })
    }
}

impl ServedExports {
    /// Makes the exports that are wanted, and opens those that are to be open; returns those that
    /// cannot be served.
    pub(super) fn open_all(
        &self,
        wanted: Vec<WantedExport>,
        plan: &LoadPlan<'_>,
        loaded: &mut Vec<LoadedExport>,
    ) -> Result<Vec<FailedExport>> {
        let mut identities = Identities::new(&self.parts.databases);
        if self.is_lenient {
            // Instances come last.
            let rest = wanted.iter().skip(OPEN_AT_START);
            let closed = rest.filter(|it| !it.is_of(&plan.open));
            identities.read_ahead(closed.filter_map(|it| it.sessions.as_ref()).flatten());
        }
        let (mut failed, mut changed) = (Vec::new(), 0);
        let is_any_wanted = !wanted.is_empty();
        for wanted in wanted {
            let path = wanted.config.path.as_ref().ok_or(Error::NoExport)?.as_str();
            let hanging = hanging_place(&wanted.config, plan.hanging);
            let is_added = plan.is_added(&wanted);
            if let Some(HangingPlace { what, path: place }) = &hanging {
                if is_added {
                    let (export, base) = (wanted.config.name.clone(), place.clone());
                    return Err(Error::BaseHangs { export, base });
                }
                let place = place.display();
                tracing::warn!(
                    export = path,
                    "its {what} {place} hangs: the export stays as it is"
                );
                if let Some(known) = plan.known(path) {
                    loaded.push(known);
                    continue;
                }
            }
            let is_open = wanted.is_of(&plan.open);
            let is_written = wanted.instance.is_none();
            let is_changed = is_written && !plan.is_served(&wanted.config);
            changed += usize::from(is_changed);
            let is_early = is_changed && changed <= OPEN_AT_START;
            let opens = is_open || is_added || is_written && (is_early || !self.is_lenient);
            let may_wait = is_added || !self.is_lenient || !self.waits_for_database(&wanted);
            let opens = opens && hanging.is_none() && may_wait;
            let opened = self.load_or_leave_closed(&wanted, &mut identities, opens, is_added);
            match opened {
                Ok(export) => loaded.push(export),
                Err(error) if !is_added && self.is_lenient && error.is_of_one_export() => {
                    failed.push(FailedExport::new(&wanted.config, error)?);
                }
                Err(error) => return Err(error),
            }
        }
        if loaded.is_empty()
            && is_any_wanted
            && let Some(error) = failed.pop().and_then(|failed| failed.error)
        {
            return Err(error);
        }
        self.parts.awaited.begin(identities.into_lost_dirs());
        Ok(failed)
    }

    /// Makes an export, open if it `opens` and can be.
    fn load_or_leave_closed(
        &self,
        wanted: &WantedExport,
        identities: &mut Identities<'_>,
        opens: bool,
        is_added: bool,
    ) -> Result<LoadedExport> {
        match self.load_one(wanted, identities, opens) {
            // The next call on it tries again.
            Err(error) if wanted.instance.is_some() => {
                match error {
                    // The file says so.
                    Error::TooManyOpen { .. } => tracing::debug!(%error, "{CLOSED}"),
                    _ => tracing::warn!(%error, "{CLOSED}"),
                }
                self.load_one(wanted, identities, false)
            }
            // It may be opened once the sessions of others are idle.
            Err(Error::TooManyOpen { .. }) if is_added => self.load_one(wanted, identities, false),
            loaded => loaded,
        }
    }

    fn load_one(
        &self,
        wanted: &WantedExport,
        identities: &mut Identities<'_>,
        opens: bool,
    ) -> Result<LoadedExport> {
        let WantedExport { config, sessions, instance } = wanted;
        let mut is_awaited = false;
        let (identity, kind) = match instance {
            Some(WantedInstance { template, keys, .. }) => {
                let kind = SourceKind::Instance(Arc::clone(template));
                (Some(identity_of(config, keys)?), kind)
            }
            None if opens => (None, SourceKind::Written),
            None => {
                let sessions = sessions.as_deref().unwrap_or_default();
                let identity = identities.of(config, sessions)?;
                is_awaited = identity.is_none() && identities.may_appear(config, sessions);
                (identity, SourceKind::Written)
            }
        };
        let (config, sessions) = (Arc::clone(config), sessions.clone());
        let (source, entry) = ExportSource::new(&self.parts, config, sessions, identity, kind)?;
        entry.set_awaited(is_awaited);
        source.uses.set_recorded(instance.as_ref().map_or(0, |known| known.used_ms));
        // Known before the load ends, so that room can be made for the next ones.
        self.parts.add(Arc::clone(&source));
        if opens {
            let needed = source.needed_avoiding(&self.hanging);
            let room = needed.and_then(|needed| self.parts.make_room(needed));
            let opened = room.and_then(|()| source.open_now(OpenPurpose::Load));
            opened.inspect_err(|_| self.parts.remove(&source))?;
        }
        Ok(LoadedExport { source, entry, stays: false })
    }

    /// Whether opening an export waits for a database: the first mount or call does that.
    fn waits_for_database(&self, wanted: &WantedExport) -> bool {
        let mut sessions = wanted.sessions.iter().flatten();
        sessions.any(|it| it.database.is_some() && !self.parts.sessions.is_open(&it.file))
    }

    /// Opens and serves an export that could not be served.
    pub(super) fn serve_again(
        &self,
        export: &ExportConfig,
        sessions: &[NeededSession],
    ) -> Result<()> {
        let (config, sessions) = (Arc::new(export.clone()), sessions.to_owned());
        let wanted = WantedExport { config, sessions: Some(sessions), instance: None };
        let opens = !self.waits_for_database(&wanted);
        let LoadedExport { entry, .. } =
            self.load_one(&wanted, &mut Identities::new(&self.parts.databases), opens)?;
        self.parts.exports.put(entry);
        Ok(())
    }
}
