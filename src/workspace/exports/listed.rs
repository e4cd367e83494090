//! The exports that are served, for commands: a list waits for no reload and no opening.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::ServedExports;
use super::on_demand::{ExportSource, SourceKind};
use super::shared_parts::SharedParts;
use crate::control::SessionUse;

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
    /// When it is removed, if a template made it.
    pub expiry: Option<ListedExpiry>,
}

/// When an instance of a template is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedExpiry {
    /// The template's `expire`.
    pub expire: Option<Duration>,
    /// Whether it stays however long nothing uses it.
    pub is_kept: bool,
    /// Time until it may be removed if nothing uses it; `None` while it is used or kept, and
    /// without `expire`.
    pub left: Option<Duration>,
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

/// The exports of a server.
#[derive(Clone)]
pub struct ExportsView(Arc<SharedParts>);

impl ExportsView {
    /// All exports, by path. Reads the registry, so it may block.
    pub fn list(&self) -> Vec<ListedExport> {
        let mut all = self.0.failed.read().clone();
        let kept = self.0.with_registry(|registry| registry.kept());
        let kept = kept.transpose().unwrap_or_else(|error| {
            tracing::warn!(%error, "the registry does not say what is kept");
            None
        });
        let kept = kept.unwrap_or_default();
        all.extend(self.0.sources().iter().filter_map(|source| listed(source, &kept)));
        all.sort_by(|a, b| a.path.cmp(&b.path));
        // One that was opened in between is in both.
        all.dedup_by(|a, b| a.path == b.path);
        all
    }

    /// How a session is used, by its real path.
    pub fn use_of(&self, session: &Path) -> SessionUse {
        if self.0.is_in_use(session) {
            return SessionUse::InUse;
        }
        if self.0.sessions.has(session) { SessionUse::Open } else { SessionUse::Closed }
    }
}

fn listed(source: &ExportSource, kept: &HashSet<String>) -> Option<ListedExport> {
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
    let expiry = source.template().map(|template| {
        let is_kept = kept.contains(&source.own_path());
        let is_unused = !is_kept && state != ListedState::Open;
        let left = template.expire.filter(|_| is_unused).map(|it| source.until_expired(it));
        ListedExpiry { expire: template.expire, is_kept, left }
    });
    let (name, path) = (config.name.clone(), config.path.as_ref()?.to_string());
    Some(ListedExport { name, path, file: Arc::clone(&config.file), template, state, expiry })
}

impl ServedExports {
    /// Its exports, for commands.
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
            expiry: None,
        });
        *self.parts.failed.write() = listed.collect();
    }
}
