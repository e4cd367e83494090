//! Derives the limit of connections from the limit of file descriptors.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::server::limits::MAX_CONNECTIONS;

/// Connections may use this fraction (one in so many) of the file descriptors.
const SHARE_OF_DESCRIPTORS: u64 = 4;

/// File descriptors of an open session: its file, WAL, lock and socket, each of several
/// connections, and its base.
const DESCRIPTORS_PER_SESSION: u64 = 20;

/// File descriptors for all else.
const OTHER_DESCRIPTORS: u64 = 64;

/// The file descriptors that a server wants: for the default of `max_open`, and connections.
const WANTED_DESCRIPTORS: u64 = 1 << 16;

/// Raises the limit of file descriptors. A failure is not fatal.
pub(super) fn raise_descriptor_limit() {
    let wanted = WANTED_DESCRIPTORS;
    let mut limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    if limit.current.is_some_and(|current| current < allowed) {
        limit.current = Some(allowed);
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%error, "cannot raise the limit of open files");
        }
    }
}

/// The connections for which the process has file descriptors.
pub(super) fn max_connections() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let share = limit.map_or(u64::MAX, |limit| (limit / SHARE_OF_DESCRIPTORS).max(1));
    usize::try_from(share).unwrap_or(usize::MAX).min(MAX_CONNECTIONS)
}

/// The sessions that may be open at once with the file descriptors that connections leave.
pub(super) fn max_sessions() -> usize {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return usize::MAX };
    let connections = max_connections() as u64;
    let left = limit.saturating_sub(connections + OTHER_DESCRIPTORS);
    usize::try_from((left / DESCRIPTORS_PER_SESSION).max(1)).unwrap_or(usize::MAX)
}
