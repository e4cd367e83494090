//! Exports of a file that cannot be served at the moment: their sessions or bases cannot be opened.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::accounts::ExportAccount;
use super::error::{Error, Result};
use super::exports::ServedExports;
use super::running::DroppedSessions;
use crate::config::{Config, ExportConfig};
use crate::export::{Admission, Export, Unavailable};

/// The first wait before they are tried again; it doubles each time.
pub const FIRST_RETRY: Duration = Duration::from_secs(1);

/// The longest wait before they are tried again.
pub const MAX_RETRY: Duration = Duration::from_secs(60);

/// An export that is put together, and its account.
pub(super) type ReadyExport = (Arc<Export>, ExportAccount);

/// An export that cannot be served.
pub(super) struct FailedExport {
    /// Its name.
    pub name: String,
    /// The error, until it is reported.
    pub error: Option<Error>,
    /// How its clients are answered.
    pub shown: Unavailable,
}

impl FailedExport {
    /// Of an export whose path is known.
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
    /// Whether it is about one session or base, which may be there later; not about what an
    /// exports file asks for.
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
    /// The exports that cannot be served, and why, of those that were not told yet.
    pub fn take_failures(&mut self) -> Vec<(String, Error)> {
        let taken = self.failed.iter_mut().map(|f| (f.name.clone(), f.error.take()));
        taken.filter_map(|(name, error)| Some((name, error?))).collect()
    }

    /// How many exports cannot be served.
    pub fn unavailable(&self) -> usize {
        self.failed.len()
    }

    /// Tries once more to open what could not be opened. Where something can, all of `config` is
    /// loaded again; returns the names that are served since, and what is to be closed.
    ///
    /// Blocks: not for a thread of the runtime.
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
            let tried = tried.and_then(|()| self.put_together(export, &wanted, &opened));
            is_any |= tried.is_ok();
        }
        // They are opened again by `load`, in the right order.
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
