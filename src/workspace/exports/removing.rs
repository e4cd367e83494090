//! Removes an instance of a template with its sessions, and finishes what a killed server began.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::expiry::in_ms;
use super::on_demand::{ExportSource, NeededSession};
use super::shared_parts::SharedParts;
use crate::config::real_path;
use crate::delta::sqlite::{
    OpenError, PendingDeletion, RegisteredInstance, RemovalStart, RemovedSessions, UnusedSession,
    delete_renamed, rename_away, rename_back,
};
use crate::export::ExportEntry;
use crate::workspace::error::{Error, Result};

/// Sessions whose files are deleted each second.
const DELETIONS_PER_STEP: usize = 8;

impl ExportSource {
    /// Removes a closed instance that nothing has used for `expire`; returns whether it did. It
    /// stays if a client that has used it is connected, if a session of its own is used by another
    /// export or a command, or was changed, or if it is kept. Blocks the calling
    /// thread; calls of other exports do not wait for it.
    ///
    /// # Errors
    /// The registry or a directory cannot be written; the instance stays.
    pub(super) fn remove_unused(&self, expire: Duration) -> Result<bool> {
        // Another thread opens or closes it, or loads the file.
        let Some(state) = self.state.try_lock() else { return Ok(false) };
        let Some(_loading) = self.parts.loading.try_read() else { return Ok(false) };
        let is_of_table = self.template().is_some_and(|it| self.parts.has_template(it));
        let is_known = |entry: &ExportEntry| entry.identity().is_some();
        let entry = self.entry().filter(|entry| is_of_table && is_known(entry));
        let Some(entry) = entry.filter(|_| !self.is_retired()) else { return Ok(false) };
        if entry.current().is_some() || !state.leases.is_empty() || self.opening.lock().is_some() {
            return Ok(false);
        }
        let now_ms = self.parts.registry_ms();
        if entry.take_used() {
            // An opening failed.
            self.uses.set_used(now_ms);
            return Ok(false);
        }
        let sessions = self.own_sessions()?;
        if self.parts.has_connected_client(&entry) || self.is_needed_elsewhere(&sessions) {
            self.uses.postpone(expire);
            return Ok(false);
        }
        let Some(taken) = self.take_unused(&sessions, expire, now_ms)? else { return Ok(false) };
        let Some(pending) = self.begin_removal(&sessions, expire, now_ms)? else {
            return Ok(false);
        };
        self.is_removed.store(true, Ordering::SeqCst);
        self.is_retired.store(true, Ordering::SeqCst);
        self.parts.exports.remove(&entry);
        self.parts.remove(self);
        self.memory_files().for_each(|file| self.parts.forget(&file));
        drop(taken);
        let idle = Duration::from_millis(now_ms.saturating_sub(self.uses.used_ms()));
        let (path, idle_secs) = (self.own_path(), idle.as_secs());
        tracing::info!(?path, idle_secs, "the instance has expired and is removed");
        self.parts.expiry.removed.fetch_add(1, Ordering::Relaxed);
        self.parts.expiry.deletions.lock().extend(pending);
        Ok(true)
    }

    /// The files of the sessions that no other instance has.
    fn own_sessions(&self) -> Result<Vec<PathBuf>> {
        let mounts = self.config.mounts.iter().zip(self.needed()?);
        let own = mounts.filter(|(mount, _)| mount.session().is_some() && !mount.is_shared);
        let mut own: Vec<_> = own.map(|(_, needed)| needed.file.clone()).collect();
        own.sort();
        own.dedup();
        Ok(own)
    }

    /// Whether another export has one of its sessions, open or not, or one of them is gone: then
    /// its filesystem may not be mounted.
    fn is_needed_elsewhere(&self, sessions: &[PathBuf]) -> bool {
        let is_gone = |file: &PathBuf| file.symlink_metadata().is_err();
        let is_used = |file: &PathBuf| self.parts.sessions.has(file) || self.parts.is_of_file(file);
        if sessions.iter().any(|file| is_gone(file) || is_used(file)) {
            return true;
        }
        let others = self.parts.sources();
        let others = others.iter().filter(|other| !std::ptr::eq(&***other, self));
        let mut files = others.flat_map(|other| &other.config.mounts).filter_map(|it| it.session());
        // Resolving all would take long.
        let may_be =
            |file: &PathBuf| sessions.iter().any(|own| own.file_name() == file.file_name());
        files.any(|file| may_be(file) && sessions.contains(&real_path(file)))
    }

    /// Takes the locks of its sessions; `None` if a command has one, or one was changed since.
    fn take_unused(
        &self,
        sessions: &[PathBuf],
        expire: Duration,
        now_ms: u64,
    ) -> Result<Option<Vec<UnusedSession>>> {
        let mut taken = Vec::with_capacity(sessions.len());
        for session in sessions {
            match UnusedSession::take(session) {
                Ok(unused) => taken.push(unused),
                Err(OpenError::InUse { .. }) => {
                    self.uses.postpone(expire);
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
        // Commands change closed sessions without the registry.
        let Some(changed) = taken.iter().filter_map(UnusedSession::changed).max() else {
            return Ok(Some(taken));
        };
        match SystemTime::now().duration_since(changed) {
            Ok(passed) if passed >= expire => Ok(Some(taken)),
            Ok(passed) => {
                self.uses.set_used(now_ms.saturating_sub(in_ms(passed)));
                Ok(None)
            }
            Err(_) => {
                // A clock was set back: nothing is known.
                self.uses.postpone(expire);
                Ok(None)
            }
        }
    }

    /// Records the removal and renames the files away; `None` if it is kept or was used. Returns
    /// the sessions that are to be deleted.
    fn begin_removal(
        &self,
        sessions: &[PathBuf],
        expire: Duration,
        now_ms: u64,
    ) -> Result<Option<Vec<PendingDeletion>>> {
        let number =
            getrandom::u64().map_err(|error| Error::Random(std::io::Error::other(error)))?;
        let (tag, path) = (removal_tag(number), self.own_path());
        let unused_ms = now_ms.saturating_sub(in_ms(expire));
        let begun = self.parts.with_registry(|registry| {
            let removed = RemovedSessions { tag: &tag, sessions };
            registry.begin_removal(&path, unused_ms, removed).map_err(Error::Registry)
        });
        let instance = match begun.unwrap_or(Ok(RemovalStart::Unknown))? {
            RemovalStart::Begun(instance) => instance,
            RemovalStart::Kept | RemovalStart::Unknown => {
                self.uses.postpone(expire);
                return Ok(None);
            }
            RemovalStart::Used(used_ms) => {
                self.uses.set_recorded(used_ms);
                return Ok(None);
            }
        };
        let deletion = |session: &PathBuf| {
            let (tag, session) = (tag.clone(), session.clone());
            PendingDeletion { tag, session, is_renamed: false }
        };
        let pending: Vec<_> = sessions.iter().map(deletion).collect();
        match self.parts.rename_all(&pending) {
            Ok(()) => Ok(Some(pending)),
            Err(error) if self.take_back(&instance, &pending) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "the files of a removed instance stay; a start tries again");
                Ok(Some(Vec::new()))
            }
        }
    }

    /// Takes a removal back whose files could not be renamed; returns whether that succeeded.
    fn take_back(&self, instance: &RegisteredInstance, pending: &[PendingDeletion]) -> bool {
        let Some(tag) = pending.first().map(|first| &first.tag) else { return false };
        let cancel = || self.parts.with_registry(|it| it.cancel_removal(instance, tag).is_ok());
        pending.iter().try_for_each(rename_back).is_ok() && cancel() == Some(true)
    }
}

/// The name of a removal that begins now: its time, in seconds, and a random number, in hexadecimal
/// digits.
fn removal_tag(number: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:010x}{number:016x}", now.as_secs())
}

/// When a removal began, at the latest.
fn begun_at(tag: &str) -> Option<SystemTime> {
    let seconds = u64::from_str_radix(tag.get(..10).filter(|_| tag.len() == 26)?, 16).ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds + 1))
}

impl SharedParts {
    fn rename_all(&self, pending: &[PendingDeletion]) -> Result<()> {
        for session in pending {
            let failed = |source| Error::Place { path: session.session.clone(), source };
            rename_away(session).map_err(failed)?;
        }
        let renamed = self.with_registry(|registry| registry.renamed(pending));
        renamed.unwrap_or(Ok(())).map_err(Error::Registry)
    }

    /// Continues the removals of an earlier server, before anything is served.
    ///
    /// # Errors
    /// The registry cannot be read.
    pub(super) fn finish_renaming(&self) -> Result<()> {
        for pending in self.pending_deletions()? {
            if pending.is_renamed {
                self.expiry.deletions.lock().push(pending);
            } else if let Err(error) = self.finish_one(pending) {
                tracing::warn!(%error, "the files of a removed instance stay");
            }
        }
        Ok(())
    }

    /// Continues removals that these sessions, which are to be created, wait for.
    ///
    /// # Errors
    /// Files of an earlier session cannot be removed.
    pub(super) fn finish_removals_of(&self, sessions: &[NeededSession]) -> Result<()> {
        let is_needed =
            |pending: &PendingDeletion| sessions.iter().any(|it| it.file == pending.session);
        for pending in self.pending_deletions()? {
            if !pending.is_renamed && is_needed(&pending) {
                self.finish_one(pending)?;
            }
        }
        Ok(())
    }

    fn pending_deletions(&self) -> Result<Vec<PendingDeletion>> {
        let pending = self.with_registry(|registry| registry.pending_deletions());
        pending.unwrap_or_else(|| Ok(Vec::new())).map_err(Error::Registry)
    }

    fn finish_one(&self, pending: PendingDeletion) -> Result<()> {
        let has_dir = pending.session.parent().is_some_and(std::path::Path::is_dir);
        // No command may have it.
        let taken = has_dir.then(|| UnusedSession::take(&pending.session)).transpose()?;
        if let (Some(begun), Some(changed)) =
            (begun_at(&pending.tag), taken.and_then(|it| it.changed()))
            && changed > begun
        {
            let session = pending.session.as_path();
            tracing::warn!(?session, "a session was changed since its removal began: it stays");
            let recorded = self.with_registry(|registry| registry.deleted(&pending));
            return recorded.unwrap_or(Ok(())).map_err(Error::Registry);
        }
        self.rename_all(std::slice::from_ref(&pending))?;
        self.expiry.deletions.lock().push(pending);
        Ok(())
    }

    /// Deletes files of a few removed sessions. Blocks.
    pub(super) fn delete_pending(&self) {
        for _ in 0..DELETIONS_PER_STEP {
            let Some(pending) = self.expiry.deletions.lock().pop() else { return };
            let deleted = delete_renamed(&pending).map_err(|source| {
                let path = pending.session.clone();
                Error::Place { path, source }
            });
            let recorded = deleted.and_then(|()| {
                let recorded = self.with_registry(|registry| registry.deleted(&pending));
                recorded.unwrap_or(Ok(())).map_err(Error::Registry)
            });
            if let Err(error) = recorded {
                let session = pending.session.as_path();
                tracing::warn!(?session, %error, "a removed session stays until the next start");
            }
        }
    }
}
