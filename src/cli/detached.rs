//! A server that nobody watches: what it logs goes to a file beside the session.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::setsid;
use rustix::stdio::dup2_stderr;

use super::output;
use crate::delta::sqlite::LOG_SUFFIXES;

/// A log longer than this is put aside as `.log.old`, and what was there goes.
const MAX_BYTES: u64 = 1 << 20;

/// Between two looks at the log's size.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The log of a server in the background.
pub(super) struct LogFile {
    path: PathBuf,
    old: PathBuf,
}

/// Leaves the terminal: what is typed there is not for us.
pub(super) fn leave_terminal() {
    // Who leads a group already is none of the terminal's.
    let _leads = setsid();
}

/// The log of the session at `path`, and the one before it.
fn logs(path: &Path) -> [PathBuf; 2] {
    LOG_SUFFIXES.map(|suffix| {
        let mut name = OsString::from(path);
        name.push(suffix);
        name.into()
    })
}

impl LogFile {
    /// Sends stderr to the log of the session at `path`, which whoever waits for our start sees
    /// as its end. Where the log cannot be written, there is none.
    ///
    /// `None` if nobody waits any more: nobody would stop us either.
    pub(super) fn take_stderr(path: &Path) -> Option<Self> {
        // Nothing is asked for but what comes unasked: that nobody reads any more.
        let stderr = std::io::stderr();
        let mut stderr = [PollFd::new(&stderr, PollFlags::empty())];
        let polled = poll(&mut stderr, Some(&Timespec::default()));
        if polled.is_ok() && stderr[0].revents().contains(PollFlags::ERR) {
            return None;
        }
        let [path, old] = logs(path);
        let log = Self { path, old };
        log.put_long_one_aside();
        if let Err(error) = log.open().and_then(|file| Ok(dup2_stderr(file)?)) {
            output::line(format_args!("no log: {}: {error}", log.path.display()));
            let nowhere = OpenOptions::new().write(true).open("/dev/null");
            let _closed = nowhere.map(dup2_stderr);
        }
        Some(log)
    }

    /// Keeps the log short, for ever.
    pub(super) async fn keep_short(&self) {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            if self.put_long_one_aside()
                && let Err(error) = self.open().and_then(|file| Ok(dup2_stderr(file)?))
            {
                // To the old one, which is still there.
                tracing::warn!(%error, "cannot begin a new log");
            }
        }
    }

    /// Removes a log with nothing in it.
    pub(super) fn end(&self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|log| log.is_file() && log.len() == 0) {
            let _removed = fs::remove_file(&self.path);
        }
    }

    fn put_long_one_aside(&self) -> bool {
        let is_long = fs::symlink_metadata(&self.path).is_ok_and(|log| log.size() > MAX_BYTES);
        is_long && fs::rename(&self.path, &self.old).is_ok()
    }

    /// As SQLite opens its files: a link put here must not name what is written to.
    fn open(&self) -> std::io::Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(&self.path)
    }
}
