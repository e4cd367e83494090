//! Derives the limit of connections from the limit of file descriptors.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::server::limits::MAX_CONNECTIONS;

/// Connections may use this fraction (one in so many) of the file descriptors.
const SHARE_OF_DESCRIPTORS: u64 = 4;

/// Raises the limit of file descriptors for the maximum of connections. A failure is not fatal.
pub(super) fn raise_descriptor_limit() {
    let wanted = (MAX_CONNECTIONS as u64).saturating_mul(SHARE_OF_DESCRIPTORS);
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
