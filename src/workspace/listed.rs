//! A look at the exports that are served, for commands: it waits for no reload and no opening.

use std::path::Path;
use std::sync::Arc;

use super::exports::ServedExports;
use super::on_demand::{ExportSource, SourceKind};
use super::shared_parts::SharedParts;

/// An export as lists of exports show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedExport {
    /// Its name.
    pub name: String,
    /// What clients mount, with its token.
    pub path: String,
    /// The file that has it, or that has its template.
    pub file: Arc<Path>,
    /// The template that made it.
    pub template: Option<String>,
    /// Whether it is open.
    pub state: ListedState,
}

/// Whether an export is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListedState {
    /// Its sessions are open.
    Open,
    /// The next call opens it.
    Closed,
    /// It cannot be opened, and is tried again.
    Unavailable,
}

/// How a session is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServedUse {
    /// The server does not have it open.
    Closed,
    /// The server has it open.
    Open,
    /// A command uses it through the server.
    InUse,
}

/// The exports of a server.
#[derive(Clone)]
pub struct ExportsView(Arc<SharedParts>);

impl ExportsView {
    /// All exports, by path.
    pub fn list(&self) -> Vec<ListedExport> {
        let mut all = self.0.failed.read().clone();
        all.extend(self.0.sources().iter().filter_map(|source| listed(source)));
        all.sort_by(|a, b| a.path.cmp(&b.path));
        // One that was opened in between is in both.
        all.dedup_by(|a, b| a.path == b.path);
        all
    }

    /// How a session is used, by its real path.
    pub fn use_of(&self, session: &Path) -> ServedUse {
        if self.0.is_in_use(session) {
            return ServedUse::InUse;
        }
        if self.0.sessions.has(session) { ServedUse::Open } else { ServedUse::Closed }
    }
}

fn listed(source: &ExportSource) -> Option<ListedExport> {
    let config = &source.config;
    let is_open = source.entry().is_some_and(|entry| entry.current().is_some());
    let state = match is_open {
        true => ListedState::Open,
        false if source.is_failing() => ListedState::Unavailable,
        false => ListedState::Closed,
    };
    let template = match &source.kind {
        SourceKind::Written => None,
        SourceKind::Instance(template) => Some(template.to_string()),
    };
    let (name, path) = (config.name.clone(), config.path.as_ref()?.to_string());
    Some(ListedExport { name, path, file: Arc::clone(&config.file), template, state })
}

impl ServedExports {
    /// A look at its exports.
    pub fn view(&self) -> ExportsView {
        ExportsView(Arc::clone(&self.parts))
    }

    /// Lists the exports that cannot be served.
    pub(super) fn list_failed(&self) {
        let listed = self.failed.iter().map(|failed| ListedExport {
            name: failed.name.clone(),
            path: String::from_utf8_lossy(&failed.shown.path).into_owned(),
            file: Arc::clone(&failed.file),
            template: None,
            state: ListedState::Unavailable,
        });
        *self.parts.failed.write() = listed.collect();
    }
}
