//! One command at a time mounts or unmounts a session: else one ends the server that another
//! one is about to mount.
//!
//! A file for each session, beside the notes, held by flock; the process that has it writes its
//! number there for whoever waits. Nobody holds two, so that no two wait for each other.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::{note, server};
use crate::cli::error::CliError;
use crate::cli::output;

/// Ends the names of the files.
const SUFFIX: &str = ".turn";

/// Between two tries.
const TRY_INTERVAL: Duration = Duration::from_millis(20);

/// Between two words on what is waited for.
const TELL_INTERVAL: Duration = Duration::from_secs(1);

/// The turn at a session; dropping it lets the next one have it.
#[derive(Debug)]
pub(in crate::cli) struct MountLock {
    path: PathBuf,
    /// Locked, and closed where another program is executed.
    _file: File,
}

impl MountLock {
    /// Waits for the turn at `session`, and says meanwhile who has it.
    ///
    /// # Errors
    /// The file cannot be made or locked.
    pub(in crate::cli) fn take(session: &Path) -> Result<Self, CliError> {
        let failed = |error: io::Error| {
            let what = format!("cannot keep others from mounting {}", session.display());
            CliError::caused(what, &error)
        };
        let path = note::file(session, SUFFIX).map_err(failed)?;
        let mut told = Instant::now();
        loop {
            let mut file = open(&path).map_err(failed)?;
            match file.try_lock() {
                // Who had it before may have removed it between our opening and our locking.
                Ok(()) if is_at(&file, &path) => {
                    write_pid(&mut file).map_err(failed)?;
                    return Ok(Self { path, _file: file });
                }
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            if told.elapsed() >= TELL_INTERVAL {
                told = Instant::now();
                output::line(format_args!(
                    "waiting for {}, which mounts or unmounts {}{}",
                    holder(file),
                    session.display(),
                    server::left(session)
                ));
            }
            thread::sleep(TRY_INTERVAL);
        }
    }
}

impl Drop for MountLock {
    fn drop(&mut self) {
        // Still locked here.
        let _gone = std::fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: Metadata| (found.dev(), found.ino());
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => identity(open) == identity(named),
        _ => false,
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())
}

fn holder(file: File) -> String {
    let mut text = String::new();
    let read = file.take(16).read_to_string(&mut text);
    match text.trim().parse::<u32>() {
        Ok(pid) if read.is_ok() => format!("process {pid}"),
        _ => "another process".to_owned(),
    }
}
