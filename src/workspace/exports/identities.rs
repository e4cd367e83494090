//! What identifies the sessions of exports that are not open.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread;

use super::awaited::{AwaitedDir, AwaitedDirs};
use super::databases::{DatabaseSessions, KnownSession};
use super::on_demand::NeededSession;
use crate::config::{ExportConfig, StoreConfig};
use crate::delta::sqlite::SessionKeys;
use crate::export::{ExportIdentity, MountKeys};
use crate::workspace::error::{Error, Result};
use crate::workspace::layers;

/// Sessions for which a thread is worth its start.
const LEAST_FOR_THREAD: usize = 64;

/// Reads from session files what identifies exports; each file once.
pub(super) struct Identities<'a> {
    databases: &'a DatabaseSessions,
    keys: HashMap<PathBuf, Option<SessionKeys>>,
    /// The directories of sessions that do not exist, as they were first seen.
    dirs: AwaitedDirs,
}

impl<'a> Identities<'a> {
    /// Nothing is read yet.
    pub(super) fn new(databases: &'a DatabaseSessions) -> Self {
        Self { databases, keys: HashMap::new(), dirs: AwaitedDirs::default() }
    }

    /// Reads the sessions of these exports, on as many threads as the machine has cores.
    ///
    /// What cannot be read is left to [`Self::keys`].
    pub(super) fn read_ahead<'b>(&mut self, sessions: impl Iterator<Item = &'b NeededSession>) {
        let in_files = sessions.filter(|it| it.database.is_none());
        let files: Vec<&Path> = in_files
            .map(|it| it.file.as_path())
            .filter(|it| !self.keys.contains_key(*it))
            .collect();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let read = |part: &[&Path]| -> Vec<(PathBuf, Option<SessionKeys>)> {
            let one = |file: &&Path| Some(((*file).to_owned(), layers::identity(file).ok()?));
            part.iter().filter_map(one).collect()
        };
        let parts = files.chunks(files.len().div_ceil(cores).max(LEAST_FOR_THREAD));
        let all = thread::scope(|scope| {
            let threads: Vec<_> = parts.map(|part| scope.spawn(move || read(part))).collect();
            // One that panicked has read nothing.
            threads.into_iter().filter_map(|it| it.join().ok()).flatten().collect::<Vec<_>>()
        });
        self.keys.extend(all);
        // Before sessions are created in them.
        for file in files.iter().filter(|file| self.keys.get(**file) == Some(&None)) {
            self.dirs.note_of(file);
        }
    }

    /// The identity of an export; `None` if one of its sessions does not exist.
    ///
    /// # Errors
    /// A session cannot be read.
    pub(super) fn of(
        &mut self,
        config: &ExportConfig,
        sessions: &[NeededSession],
    ) -> Result<Option<ExportIdentity>> {
        self.keys(config, sessions)?.map(|keys| identity_of(config, &keys)).transpose()
    }

    /// Whether sessions of an export that do not exist may be on a filesystem that is not mounted.
    pub(super) fn may_appear(&mut self, config: &ExportConfig, sessions: &[NeededSession]) -> bool {
        self.any_missing(config, sessions, |_, dir| dir.may_fill())
    }

    /// The same, if their directories were `before` when the exports were loaded.
    pub(super) fn may_still_appear(
        &mut self,
        config: &ExportConfig,
        sessions: &[NeededSession],
        before: &AwaitedDirs,
    ) -> bool {
        self.any_missing(config, sessions, |file, dir| before.may_still_fill(file, dir))
    }

    /// Whether this is true of any session that does not exist, and its directory.
    fn any_missing(
        &mut self,
        config: &ExportConfig,
        sessions: &[NeededSession],
        is_it: impl Fn(&Path, AwaitedDir) -> bool,
    ) -> bool {
        let Self { databases, keys, dirs } = self;
        let mut any = false;
        for (mount, NeededSession { file, database, .. }) in config.mounts.iter().zip(sessions) {
            if database.is_some() {
                // Another server may make it at any moment, and end.
                any |= !matches!(databases.known(file), KnownSession::Keys(_));
                continue;
            }
            let is_missing = keys.get(file) == Some(&None);
            if is_missing && mount.store != StoreConfig::Memory {
                // Each is noted.
                any |= is_it(file, dirs.note_of(file));
            }
        }
        any
    }

    /// The directories that were missing or empty.
    pub(super) fn into_lost_dirs(self) -> AwaitedDirs {
        self.dirs
    }

    /// The keys of an export's sessions; `None` if one of them does not exist. Those in memory have
    /// keys of their own if they do not exist: their handles are of an earlier run.
    ///
    /// # Errors
    /// A session cannot be read.
    pub(super) fn keys(
        &mut self,
        config: &ExportConfig,
        sessions: &[NeededSession],
    ) -> Result<Option<Vec<SessionKeys>>> {
        let (mut keys, mut is_whole) = (Vec::with_capacity(sessions.len()), true);
        for (mount, NeededSession { file, database, .. }) in config.mounts.iter().zip(sessions) {
            let known = match database.as_ref().map(|_| self.databases.known(file)) {
                Some(KnownSession::Keys(keys)) => Some(keys),
                Some(KnownSession::Missing | KnownSession::Unknown) => None,
                None => self.in_file(file)?,
            };
            match known {
                Some(known) => keys.push(known),
                None if mount.store == StoreConfig::Memory => keys.push(random_keys()?),
                // The others are read too: `any_missing` has to know.
                None => is_whole = false,
            }
        }
        Ok(is_whole.then_some(keys))
    }

    /// The keys of a session in a file; `None` if it does not exist.
    fn in_file(&mut self, file: &Path) -> Result<Option<SessionKeys>> {
        if let Some(known) = self.keys.get(file) {
            return Ok(*known);
        }
        let read = layers::identity(file)?;
        self.keys.insert(file.to_owned(), read);
        Ok(read)
    }
}

/// The keys of a session that does not exist.
pub(super) fn random_keys() -> Result<SessionKeys> {
    let failed = |error| Error::Random(std::io::Error::other(error));
    let mut key = [0; 16];
    getrandom::fill(&mut key).map_err(failed)?;
    Ok((key, getrandom::u64().map_err(failed)?))
}

/// The identity of an export whose mounts are of sessions with these keys.
pub(super) fn identity_of(config: &ExportConfig, keys: &[SessionKeys]) -> Result<ExportIdentity> {
    let mounts = config.mounts.iter().zip(keys).map(|(mount, &(handle_key, session_fsid))| {
        let (at, subtree) = (mount.at.as_str(), mount.subtree.as_str());
        MountKeys { at, subtree, handle_key, session_fsid }
    });
    let path = config.path.as_ref().ok_or(Error::NoExport)?;
    Ok(ExportIdentity::new(path.as_str().as_bytes(), &mounts.collect::<Vec<_>>()))
}
