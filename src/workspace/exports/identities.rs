//! What identifies the sessions of exports that are not open.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread;

use super::on_demand::NeededSession;
use crate::config::{ExportConfig, StoreConfig};
use crate::delta::sqlite::SessionKeys;
use crate::export::{ExportIdentity, MountKeys};
use crate::workspace::error::{Error, Result};
use crate::workspace::layers;

/// Sessions for which a thread is worth its start.
const LEAST_FOR_THREAD: usize = 64;

/// Reads from session files what identifies exports; each file once.
#[derive(Default)]
pub(super) struct Identities(HashMap<PathBuf, Option<SessionKeys>>);

impl Identities {
    /// Reads the sessions of these exports, on as many threads as the machine has cores.
    ///
    /// What cannot be read is left to [`Self::keys`].
    pub(super) fn read_ahead<'a>(&mut self, sessions: impl Iterator<Item = &'a NeededSession>) {
        let files: Vec<&Path> =
            sessions.map(|it| it.file.as_path()).filter(|it| !self.0.contains_key(*it)).collect();
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
        self.0.extend(all);
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
        let mut keys = Vec::with_capacity(sessions.len());
        for (mount, NeededSession { file, .. }) in config.mounts.iter().zip(sessions) {
            let known = match self.0.get(file) {
                Some(known) => *known,
                None => {
                    let read = layers::identity(file)?;
                    self.0.insert(file.clone(), read);
                    read
                }
            };
            match known {
                Some(known) => keys.push(known),
                None if mount.store == StoreConfig::Memory => keys.push(random_keys()?),
                None => return Ok(None),
            }
        }
        Ok(Some(keys))
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
