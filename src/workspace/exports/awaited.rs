//! Exports of the file whose sessions may be on a filesystem that is not mounted.
//!
//! While such a filesystem is away, its mount point is an empty directory, or is missing. The keys
//! of a closed export are in its sessions, so its handles are not known then, and an unknown handle
//! may be its. A session that is missing in a directory with other files was never made: it has
//! given out no handle.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::identities::Identities;
use super::loading::LoadedExport;
use super::on_demand::ExportSource;
use super::shared_parts::SharedParts;
use super::unavailable::{FIRST_RETRY, MAX_RETRY, hanging_session};
use crate::config::SoughtPaths;
use crate::export::ExportEntry;
use crate::workspace::error::Result;

/// Time after which a directory that does not exist counts as one that never will: a wrong path in
/// the exports file must not keep clients with handles of others waiting for ever.
const MAX_MISSING: Duration = Duration::from_secs(10 * 60);

/// Longest delay between looks for sessions in databases: another server may have made one and
/// given out handles, and its clients come here when it dies.
const MAX_DATABASE_RETRY: Duration = Duration::from_secs(5);

/// The directory of a session that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AwaitedDir {
    /// It does not exist, or cannot be read.
    Missing,
    /// It has no entries. Device and inode number tell it from what is mounted over it.
    Empty { dev: u64, ino: u64 },
    /// It has entries.
    Filled { dev: u64, ino: u64 },
}

impl AwaitedDir {
    fn of(dir: &Path) -> Self {
        let Ok((found, mut entries)) = dir.metadata().and_then(|it| Ok((it, dir.read_dir()?)))
        else {
            return Self::Missing;
        };
        let (dev, ino) = (found.dev(), found.ino());
        match entries.next() {
            None => Self::Empty { dev, ino },
            Some(_) => Self::Filled { dev, ino },
        }
    }

    /// Whether a filesystem may have to be mounted there.
    pub(super) fn may_fill(self) -> bool {
        !matches!(self, Self::Filled { .. })
    }

    /// The same of a directory that was `before` when the exports were loaded. Sessions that this
    /// server has created in a mount point say nothing.
    fn may_still_fill(self, before: Self) -> bool {
        match (self, before) {
            (Self::Filled { dev, ino }, Self::Empty { dev: dev_before, ino: ino_before }) => {
                (dev, ino) == (dev_before, ino_before)
            }
            (now, _) => now.may_fill(),
        }
    }
}

/// The directories of sessions that do not exist.
#[derive(Debug)]
pub(super) struct AwaitedDirs {
    dirs: HashMap<PathBuf, AwaitedDir>,
    /// When the exports were loaded.
    since: Instant,
}

impl Default for AwaitedDirs {
    fn default() -> Self {
        Self { dirs: HashMap::new(), since: Instant::now() }
    }
}

impl AwaitedDirs {
    /// Whether `file`, which does not exist, may appear, by its directory then and now.
    pub(super) fn may_still_fill(&self, file: &Path, now: AwaitedDir) -> bool {
        if now == AwaitedDir::Missing && self.since.elapsed() >= MAX_MISSING {
            return false;
        }
        let before = file.parent().and_then(|dir| self.dirs.get(dir));
        before.map_or(now.may_fill(), |before| now.may_still_fill(*before))
    }

    /// The directory of a session, as it was when it was first noted.
    pub(super) fn note_of(&mut self, file: &Path) -> AwaitedDir {
        let dir = file.parent().unwrap_or(Path::new("/"));
        match self.dirs.get(dir) {
            Some(known) => *known,
            None => *self.dirs.entry(dir.to_owned()).or_insert_with(|| AwaitedDir::of(dir)),
        }
    }
}

/// When to look again for the sessions of awaited exports, and where.
#[derive(Default)]
pub(super) struct AwaitedSessions(Mutex<NextLook>);

struct NextLook {
    /// The directories when the exports were loaded.
    dirs: Arc<AwaitedDirs>,
    at: Instant,
    /// The time from the last look to the next one.
    wait: Duration,
}

impl Default for NextLook {
    fn default() -> Self {
        Self { dirs: Arc::default(), at: Instant::now() + FIRST_RETRY, wait: FIRST_RETRY }
    }
}

impl AwaitedSessions {
    /// Exports were loaded, with sessions missing in these directories.
    pub(super) fn begin(&self, dirs: AwaitedDirs) {
        *self.0.lock() = NextLook { dirs: Arc::new(dirs), ..NextLook::default() };
    }

    /// The directories as they were, if it is time to look at them again.
    /// `most` is the longest time to the next look.
    fn due(&self, most: Duration) -> Option<Arc<AwaitedDirs>> {
        let mut next = self.0.lock();
        let now = Instant::now();
        if now < next.at {
            return None;
        }
        next.wait = most.min(next.wait * 2);
        next.at = now + next.wait;
        Some(Arc::clone(&next.dirs))
    }
}

impl SharedParts {
    /// Looks for the sessions of awaited exports, and accepts the handles of those that it finds.
    /// Opens no session, but for one that its last server did not close cleanly. Blocks.
    pub(super) fn find_awaited(&self) {
        if self.exports.awaited() == 0 {
            return;
        }
        let is_in_database = self.has_awaited_databases();
        let most = if is_in_database { MAX_DATABASE_RETRY } else { MAX_RETRY };
        let Some(dirs) = self.awaited.due(most) else { return };
        self.look_at_awaited();
        let mut identities = Identities::new(&self.databases);
        let awaited = self.sources().into_iter().filter_map(|source| {
            let entry = source.entry().filter(|it| it.is_awaited())?;
            Some((source, entry))
        });
        let awaited: Vec<_> = awaited.collect();
        // One that hangs must not hide the others.
        let mut sought = SoughtPaths::default();
        let mounts = awaited.iter().flat_map(|(source, _)| &source.config.mounts);
        sought.files.extend(mounts.filter_map(|mount| mount.session()).cloned());
        let hanging = self.probes.real_paths(&sought).hanging().clone();
        for (source, entry) in awaited {
            if hanging_session(&source.config, &hanging).is_some() {
                continue;
            }
            match source.find_identity(&entry, &mut identities, &dirs) {
                Ok(true) => self.exports.identify(&entry, false),
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!(export = %source.config.name, %error, "still not found");
                }
            }
        }
        if self.exports.awaited() == 0 {
            tracing::info!("no session is missing any more: unknown handles are stale");
        }
    }
}

impl SharedParts {
    /// Whether a session in a database is awaited.
    fn has_awaited_databases(&self) -> bool {
        let is_it = |it: &Arc<ExportSource>| {
            it.config.urls().next().is_some() && it.entry().is_some_and(|it| it.is_awaited())
        };
        self.sources().iter().any(is_it)
    }

    /// Asks the databases of awaited exports again.
    fn look_at_awaited(&self) {
        let sources = self.sources();
        let awaited = sources.iter().filter(|it| it.entry().is_some_and(|it| it.is_awaited()));
        self.databases.look(awaited.flat_map(|it| it.config.urls()).cloned());
    }
}

impl ExportSource {
    /// Looks for the sessions of its awaited `entry`; returns whether it is awaited no more.
    fn find_identity(
        &self,
        entry: &ExportEntry,
        identities: &mut Identities<'_>,
        before: &AwaitedDirs,
    ) -> Result<bool> {
        let sessions = self.needed()?;
        if let Some(identity) = identities.of(&self.config, sessions)? {
            entry.find_identity(identity);
            return Ok(true);
        }
        let is_awaited = identities.may_still_appear(&self.config, sessions, before);
        entry.set_awaited(is_awaited);
        Ok(!is_awaited)
    }
}

/// Warns of exports whose sessions may be on a filesystem that is not mounted.
pub(super) fn tell_of_awaited(loaded: &[LoadedExport]) {
    // Of the others, the databases are logged.
    let in_files = loaded.iter().filter(|it| it.source.config.urls().next().is_none());
    let mut awaited = in_files.filter(|it| it.entry.is_awaited());
    if let Some(first) = awaited.next() {
        let (export, others) = (&first.source.config.name, awaited.count());
        tracing::warn!(
            %export,
            others,
            "its session does not exist, and its directory is missing or empty: a filesystem may \
             not be mounted, so clients with unknown handles wait"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_is_awaited_for_a_time_and_an_empty_one_for_ever() {
        let now = Instant::now();
        let early = now.checked_sub(MAX_MISSING / 2).unwrap();
        let late = now.checked_sub(MAX_MISSING).unwrap();
        let is_awaited = |since, dir| {
            let dirs = AwaitedDirs { dirs: HashMap::new(), since };
            dirs.may_still_fill("/none/s.db".as_ref(), dir)
        };
        let empty = AwaitedDir::Empty { dev: 1, ino: 2 };
        let found =
            [early, late].map(|at| [AwaitedDir::Missing, empty].map(|it| is_awaited(at, it)));
        assert_eq!(found, [[true, true], [false, true]]);
    }
}
