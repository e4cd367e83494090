//! Exports whose sessions are in databases: opens their sessions, and closes those that were lost
//! to another server.
//!
//! A lost session answers nothing more. Its exports are closed without waiting for their calls,
//! which end by themselves; the next call opens the export again, once its session is free.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::assembling::{SessionAccess, layer_options};
use super::databases::KnownSession;
use super::on_demand::{ExportSource, SourceState, new_draft_epoch};
use super::open_sessions::SessionLease;
use super::shared_parts::SharedParts;
use crate::config::{Config, MountConfig};
use crate::delta::postgres::SessionUrl;
use crate::workspace::accounts::ExportAccount;
use crate::workspace::database::HeldReplica;
use crate::workspace::error::Result;
use crate::workspace::layers::{self, LayerOptions};
use crate::workspace::running::RunningSession;

impl ExportSource {
    /// Takes the lease of a mount's session in a database, and opens its replica. Blocks.
    pub(super) fn open_in_database(
        &self,
        (key, url): (&Path, &SessionUrl),
        mount: &MountConfig,
        access: SessionAccess,
    ) -> Result<RunningSession> {
        // What nothing can change is not made.
        let existing = access.existing || access.read_only;
        let parts = &self.parts;
        let held = parts.databases.hold(key, url, mount, existing)?;
        let wanted = LayerOptions {
            database: Some(Arc::clone(&held)),
            ..layer_options(parts, &self.config, mount, &held.path, access)
        };
        let opened = layers::open(&wanted, &parts.pool);
        let layers = opened.inspect_err(|_| parts.databases.release(&held))?;
        parts.hide_in(&layers);
        let running = parts.begin(layers);
        parts.runtime.spawn(close_when_lost(Arc::downgrade(parts), held));
        Ok(running)
    }

    /// Closes the export if a session of it is lost; returns whether it was. Blocks.
    pub(super) fn close_lost(&self) -> bool {
        self.drop_lost(&mut self.state.lock())
    }

    /// The same, of a locked source.
    pub(super) fn drop_lost(&self, state: &mut SourceState) -> bool {
        if !state.leases.iter().any(|lease| lease.layers.overlay.is_lost()) {
            return false;
        }
        // Its drafts are lost with it.
        if let Ok(epoch) = new_draft_epoch() {
            self.draft_epoch.store(epoch, Ordering::SeqCst);
        }
        drop(self.entry().and_then(|entry| entry.take_open()));
        *self.account.write() = ExportAccount::at_rest(Arc::clone(&self.config));
        self.note_closing();
        self.release(std::mem::take(&mut state.leases));
        true
    }

    /// Remembers what identifies the sessions in databases of an export that is opened.
    pub(super) fn learn_identities(&self, taken: &[SessionLease]) -> Result<()> {
        for (needed, lease) in self.needed()?.iter().zip(taken) {
            let keys = lease.layers.keys();
            let is_new = || self.parts.databases.known(&needed.file) != KnownSession::Keys(keys);
            if needed.database.is_some() && is_new() {
                self.parts.databases.learn(&needed.file, keys);
            }
        }
        Ok(())
    }

    /// The next load asks for the identities again.
    pub(super) fn forget_identities(&self) -> Result<()> {
        let in_databases = self.needed()?.iter().filter(|needed| needed.database.is_some());
        in_databases.for_each(|needed| self.parts.databases.forget(&needed.file));
        Ok(())
    }
}

impl SharedParts {
    /// Asks the databases of a configuration what identifies the sessions that are not known.
    /// Blocks, but not for long.
    pub(super) fn look_at_databases(&self, config: &Config) {
        let urls: Vec<_> = config.exports.iter().flat_map(|it| it.urls()).cloned().collect();
        self.databases.keep_only(&urls);
        self.databases.look(urls.into_iter());
    }

    /// Closes the exports of sessions that are lost. Blocks.
    fn close_lost(&self) {
        for source in self.sources() {
            if source.close_lost() {
                tracing::info!(export = %source.config.name, "closed: its session is lost");
            }
        }
    }

    /// Gives up the sessions whose database does not answer: the server stops.
    pub(super) fn give_up_silent(&self) {
        for layers in self.sessions.all() {
            if let Some(held) = layers.database.as_ref().filter(|held| !held.is_valid()) {
                held.hold.session.lease.lose("the server stops without the database");
            }
        }
    }
}

/// Closes the exports of a session when it is lost to another server.
async fn close_when_lost(parts: std::sync::Weak<SharedParts>, held: Arc<HeldReplica>) {
    let (lease, session) = (Arc::clone(&held.hold.session.lease), held.path.clone());
    // The session's end releases it.
    drop(held);
    let reason = lease.until_lost().await;
    let Some(parts) = parts.upgrade() else { return };
    if !is_open_lost(&parts, &session) {
        return;
    }
    tracing::error!(session = %session.display(), reason, "the session is lost");
    let _ended = tokio::task::spawn_blocking(move || parts.close_lost()).await;
}

/// Whether a session is open, and not being closed.
fn is_open_lost(parts: &SharedParts, replica: &PathBuf) -> bool {
    let open = parts.sessions.all();
    open.iter().any(|layers| layers.session == *replica && layers.overlay.is_lost())
}
