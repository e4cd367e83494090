//! Exports that cannot be served now, because a session or a base cannot be opened.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::accounts::ExportAccount;
use super::error::{Error, Result};
use super::exports::ServedExports;
use super::running::DroppedSessions;
use crate::config::{Config, ExportConfig};
use crate::export::{Admission, Export, Unavailable};

/// Delay before the first retry; doubles with each retry.
pub const FIRST_RETRY: Duration = Duration::from_secs(1);

/// Longest delay between retries.
pub const MAX_RETRY: Duration = Duration::from_secs(60);

/// An assembled export and its account.
pub(super) type ReadyExport = (Arc<Export>, ExportAccount);

/// An export that cannot be served.
pub(super) struct FailedExport {
    /// Name of the export.
    pub name: String,
    /// The error, until it is reported.
    pub error: Option<Error>,
    /// Access rules, for replies to its clients.
    pub shown: Unavailable,
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
        Ok(Self { name: export.name.clone(), error: Some(error), shown })
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
        )
    }
}

impl ServedExports {
    /// The exports that cannot be served, with errors that were not reported yet.
    pub fn take_failures(&mut self) -> Vec<(String, Error)> {
        let taken = self.failed.iter_mut().map(|f| (f.name.clone(), f.error.take()));
        taken.filter_map(|(name, error)| Some((name, error?))).collect()
    }

    /// Number of exports that cannot be served.
    pub fn unavailable(&self) -> usize {
        self.failed.len()
    }

    /// Tries to open the failed exports again. If any succeeds, loads all of `config`; returns the
    /// names of exports that are served again, and sessions to close.
    ///
    /// Blocks; must not run on a runtime thread.
    ///
    /// # Errors
    /// As [`ServedExports::load`].
    pub fn retry(&mut self, config: &Config) -> Result<Option<(Vec<String>, DroppedSessions)>> {
        let wanted = self.keys(config)?;
        let files = self.files_to_hide(&wanted);
        let names: Vec<String> = self.failed.iter().map(|failed| failed.name.clone()).collect();
        let mut opened = HashMap::new();
        let mut is_any = false;
        for export in config.exports.iter().filter(|export| names.contains(&export.name)) {
            let tried = self.open_export(export, &wanted, &files, &mut opened);
            let tried = tried.and_then(|()| self.assemble(export, &wanted, &opened));
            is_any |= tried.is_ok();
        }
        // `load` opens them again, in the order of the file.
        self.close(DroppedSessions::of(opened));
        if !is_any {
            return Ok(None);
        }
        let gone = self.load(config)?;
        let left: Vec<&String> = self.failed.iter().map(|failed| &failed.name).collect();
        let back = names.into_iter().filter(|name| !left.contains(&name)).collect();
        Ok(Some((back, gone)))
    }
}
