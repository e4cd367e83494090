//! The log file of a server in the background, beside the session.

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
use crate::system_error::words;

/// A larger log is renamed to `.log.old`, which replaces an earlier one.
const MAX_BYTES: u64 = 1 << 20;

/// The interval of checks of the log's size.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The log of a server in the background.
pub(super) struct LogFile {
    path: PathBuf,
    old: PathBuf,
}

/// Leaves the terminal's session: its signals no longer reach this process.
pub(super) fn leave_terminal() {
    // Fails for a process group leader; `mount` and `run` do not start this process as one.
    let _leads = setsid();
}

/// The paths of the log of the session at `path`, and of the older log.
fn logs(path: &Path) -> [PathBuf; 2] {
    LOG_SUFFIXES.map(|suffix| {
        let mut name = OsString::from(path);
        name.push(suffix);
        name.into()
    })
}

impl LogFile {
    /// Redirects stderr to the log of the session at `path`, or to /dev/null if that fails. The
    /// closed pipe tells the parent process that the server has started.
    ///
    /// `None` if the parent no longer reads the pipe: it would not stop this process either.
    pub(super) fn take_stderr(path: &Path) -> Option<Self> {
        // No events are requested: poll(2) always reports that the reader has closed the pipe.
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
            output::line(format_args!("no log: {}: {}", log.path.display(), words(&error)));
            let nowhere = OpenOptions::new().write(true).open("/dev/null");
            let _closed = nowhere.map(dup2_stderr);
        }
        Some(log)
    }

    /// Bounds the size of the log, until the future is dropped.
    pub(super) async fn keep_short(&self) {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            if self.put_long_one_aside()
                && let Err(error) = self.open().and_then(|file| Ok(dup2_stderr(file)?))
            {
                // Goes to the old log, which stderr still refers to.
                tracing::warn!(%error, "cannot begin a new log");
            }
        }
    }

    /// Removes an empty log.
    pub(super) fn end(&self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|log| log.is_file() && log.len() == 0) {
            let _removed = fs::remove_file(&self.path);
        }
    }

    fn put_long_one_aside(&self) -> bool {
        let is_long = fs::symlink_metadata(&self.path).is_ok_and(|log| log.size() > MAX_BYTES);
        is_long && fs::rename(&self.path, &self.old).is_ok()
    }

    /// Opens the log without following a symbolic link, as SQLite opens its files.
    fn open(&self) -> std::io::Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(&self.path)
    }
}
