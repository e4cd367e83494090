//! Bounds how many sessions are open, and how long they stay open without calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::config::limits::{DEFAULT_EPHEMERAL_EXPIRE, DEFAULT_IDLE_CLOSE, DEFAULT_MAX_OPEN};

use super::on_demand::{ExportSource, NeededSession, OPEN_WAIT};
use super::shared_parts::SharedParts;
use crate::workspace::error::{Error, Result};

/// Interval of the checks for idle exports.
pub(super) const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Open exports whose sessions keep their caches and connections, however idle they are: the ones
/// that were used last.
pub const MAX_AWAKE: usize = 64;

/// Time without calls after which the sessions of any other export rest.
const REST_AFTER: Duration = Duration::from_secs(2);

/// Interval of the attempts to close a session when too many are open, all of them in use.
const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How many sessions may be open, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenBounds {
    /// Sessions that may be open at once.
    pub sessions: usize,
    /// Time without calls after which an export is closed.
    pub idle: Duration,
    /// Time without calls after which the sessions in memory of an export are removed.
    pub ephemeral: Duration,
}

impl Default for OpenBounds {
    fn default() -> Self {
        let (sessions, idle) = (DEFAULT_MAX_OPEN, DEFAULT_IDLE_CLOSE);
        Self { sessions, idle, ephemeral: DEFAULT_EPHEMERAL_EXPIRE }
    }
}

impl OpenBounds {
    /// The bounds that an exports file gives.
    pub fn of(config: &Config) -> Self {
        let ephemeral = config.ephemeral_expire;
        Self { sessions: config.max_open, idle: config.idle_close, ephemeral }
    }
}

impl SharedParts {
    /// Closes exports without calls for the time that the bounds give, and the least recently used
    /// ones while more than 15/16 of the sessions that may be open are. Of those that stay open,
    /// all but [`MAX_AWAKE`] rest while they are idle. Blocks.
    pub(super) fn close_idle(&self) {
        let OpenBounds { sessions, idle, .. } = *self.bounds.read();
        let now = Instant::now();
        let open = self.by_last_use(now);
        let may_rest = open.len().saturating_sub(MAX_AWAKE);
        for (index, (last_use, source)) in open.iter().enumerate() {
            let unused = now.saturating_duration_since(*last_use);
            let is_excess = self.sessions.count() > sessions - sessions / 16;
            if (unused >= idle || is_excess) && source.close_idle() {
                continue;
            }
            if index < may_rest && unused >= REST_AFTER {
                source.rest(*last_use);
            }
        }
    }

    /// Closes the least recently used exports until those of `sessions` that are closed may be open
    /// too. Blocks.
    ///
    /// # Errors
    /// The others are all in use.
    pub(super) fn make_room(&self, sessions: &[NeededSession]) -> Result<()> {
        let most = self.bounds.read().sessions;
        let is_full = || {
            let wanted = sessions.iter().filter(|it| !self.sessions.has(&it.file)).count();
            wanted > 0 && self.sessions.count() + wanted > most.max(sessions.len())
        };
        if !is_full() {
            return Ok(());
        }
        for (_, source) in self.by_last_use(Instant::now()) {
            source.close_idle();
            if !is_full() {
                return Ok(());
            }
        }
        Err(Error::TooManyOpen { sessions: most })
    }

    /// As [`Self::make_room`]; waits while the others are all in use, as long as a call waits for
    /// an opening.
    ///
    /// # Errors
    /// They still are.
    pub(super) fn wait_for_room(&self, sessions: &[NeededSession]) -> Result<()> {
        let deadline = Instant::now() + OPEN_WAIT;
        loop {
            match self.make_room(sessions) {
                Err(Error::TooManyOpen { .. }) if Instant::now() < deadline => {
                    std::thread::sleep(ROOM_POLL_INTERVAL);
                }
                made => return made,
            }
        }
    }

    /// The open exports, the least recently used first.
    fn by_last_use(&self, now: Instant) -> Vec<(Instant, Arc<ExportSource>)> {
        let open = self.sources().into_iter().filter_map(|it| Some((it.last_use(now)?, it)));
        let mut open: Vec<_> = open.collect();
        open.sort_by_key(|(last_use, _)| *last_use);
        open
    }
}
