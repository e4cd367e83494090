//! Exports that cannot be served now, because a session or a base cannot be opened.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::loading::WantedExport;
use super::{ServedExports, given_bases};
use crate::config::{Config, ExportConfig};
use crate::export::{Admission, Unavailable};
use crate::workspace::error::{Error, Result};

/// Delay before the first retry; doubles with each retry.
pub const FIRST_RETRY: Duration = Duration::from_secs(1);

/// Longest delay between retries.
pub const MAX_RETRY: Duration = Duration::from_secs(60);

/// Why an export cannot be served.
#[derive(Debug)]
pub struct ExportFailure {
    /// Its name.
    pub name: String,
    /// The error.
    pub error: Error,
}

/// An export that cannot be served.
pub(super) struct FailedExport {
    /// Name of the export.
    pub name: String,
    /// The error, until it is reported.
    pub error: Option<Error>,
    /// Access rules, for replies to its clients.
    pub shown: Unavailable,
    /// The file that has it.
    pub file: Arc<Path>,
}

impl FailedExport {
    /// Wraps the error of an export.
    pub fn new(export: &ExportConfig, error: Error) -> Result<Self> {
        let path = export.path.as_ref().ok_or(Error::NoExport)?;
        let shown = Unavailable {
            path: path.to_string().into(),
            is_secret: export.is_secret,
            admission: Admission::new(export),
        };
        Ok(Self {
            name: export.name.clone(),
            error: Some(error),
            shown,
            file: Arc::clone(&export.file),
        })
    }
}

impl Error {
    /// Whether the error concerns a session or base that may become available, not a fault of the
    /// exports file.
    pub(super) fn is_of_one_export(&self) -> bool {
        matches!(
            self,
            Self::Open(_)
                | Self::Base { .. }
                | Self::OtherBase { .. }
                | Self::NotMoved { .. }
                | Self::ChunkSize { .. }
                | Self::Store { .. }
                | Self::Inspect(_)
                | Self::Work(_)
                | Self::Quota { .. }
                | Self::Export { .. }
                | Self::Replaced { .. }
                | Self::TooManyOpen { .. }
                | Self::SessionLost { .. }
                | Self::Database { .. }
                | Self::Hydration { .. }
                | Self::NewerReplica { .. }
                | Self::CopiedBase { .. }
                | Self::LocalDir { .. }
                | Self::NoLocalDir
        )
    }
}

impl ServedExports {
    /// The exports that cannot be served, with errors that were not reported yet.
    pub fn take_failures(&mut self) -> Vec<ExportFailure> {
        let failure = |failed: &mut FailedExport| {
            Some(ExportFailure { name: failed.name.clone(), error: failed.error.take()? })
        };
        self.failed.iter_mut().filter_map(failure).collect()
    }

    /// Number of exports that cannot be served.
    pub fn unavailable(&self) -> usize {
        self.failed.len()
    }

    /// Looks up nothing in these directories from now on: they do not answer.
    pub fn avoid(&mut self, hanging: &BTreeSet<PathBuf>) {
        self.hanging.clone_from(hanging);
    }

    /// Takes out the exports whose sessions are in a directory that does not answer, if they are
    /// not served yet; the others stay as they are, and their sessions are not looked at.
    pub(super) fn take_unserved(
        &self,
        wanted: &mut Vec<WantedExport>,
        added: Option<&str>,
    ) -> Result<Vec<FailedExport>> {
        let sources = self.parts.sources();
        let served = sources.iter().filter(|source| source.entry().is_some());
        let served: HashSet<_> = served.filter_map(|source| source.path()).collect();
        let mut unserved = Vec::new();
        for mut export in std::mem::take(wanted) {
            let config = Arc::clone(&export.config);
            // Instances are opened only if they were open: `open_all` leaves them as they are.
            let hanging = hanging_session(&config, &self.hanging);
            let Some(place) = hanging.filter(|_| export.instance.is_none()) else {
                wanted.push(export);
                continue;
            };
            if config.path.as_ref().is_some_and(|path| served.contains(path.as_str())) {
                export.sessions = None;
                wanted.push(export);
                continue;
            }
            let error = Error::BaseHangs { export: config.name.clone(), base: place.path };
            if self.is_strict() || added == Some(&*config.name) {
                return Err(error);
            }
            unserved.push(FailedExport::new(&config, error)?);
        }
        Ok(unserved)
    }

    /// Tries to open the failed exports again, but for those over the bases in `hanging`, and
    /// serves those that can be opened; returns their names.
    ///
    /// Blocks; must not run on a runtime thread.
    ///
    /// # Errors
    /// As [`ServedExports::load`].
    pub fn retry(&mut self, config: &Config, hanging: &BTreeSet<PathBuf>) -> Result<Vec<String>> {
        let sessions = self.sessions_of(config)?;
        let mut names = Vec::new();
        for (export, sessions) in config.exports.iter().zip(&sessions) {
            if self.failed.iter().any(|failed| failed.name == export.name)
                && hanging_place(export, hanging).is_none()
                && self.serve_again(export, sessions).is_ok()
            {
                self.failed.retain(|failed| failed.name != export.name);
                names.push(export.name.clone());
            }
        }
        self.list_failed();
        Ok(names)
    }
}

/// What an export waits for that hangs.
pub(super) struct HangingPlace {
    /// What it is, in words.
    pub what: &'static str,
    /// Where it is.
    pub path: PathBuf,
}

/// The base of an export, or the directory of a session or one above it, that is in `hanging`.
pub(super) fn hanging_place(
    export: &ExportConfig,
    hanging: &BTreeSet<PathBuf>,
) -> Option<HangingPlace> {
    let base = given_bases(export).find(|base| hanging.contains(base));
    let base = base.map(|path| HangingPlace { what: "base", path });
    base.or_else(|| hanging_session(export, hanging))
}

/// The same, of sessions only.
pub(super) fn hanging_session(
    export: &ExportConfig,
    hanging: &BTreeSet<PathBuf>,
) -> Option<HangingPlace> {
    let mut sessions = export.mounts.iter().filter_map(|mount| mount.session());
    sessions.find_map(|session| {
        let path = session.ancestors().find(|dir| hanging.contains(*dir))?.to_owned();
        let what = if path == *session { "session" } else { "directory of sessions" };
        Some(HangingPlace { what, path })
    })
}
