//! Leaves the mount namespace of a `run`.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Namespace;
use crate::mounting::call::{Unmounting, unmount_path};
use crate::mounting::detach::{ServerFate, release};
use crate::mounting::error::MountError;
use crate::mounting::event::Observer;
use crate::mounting::mount_users;
use crate::mounting::namespace_processes;
use crate::mounting::note::Note;

/// The time for joined threads to end.
const GRACE: Duration = Duration::from_secs(2);

/// The timeout of a check whether the server is there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

impl Namespace {
    /// Ends processes that the command left behind, unmounts, and returns to the original
    /// namespace. If `run` was killed, also releases the server, and returns what happened to it.
    pub(crate) fn leave(self, tell: Observer<'_>) -> Result<Option<ServerFate>, MountError> {
        mount_users::end_all(&namespace_processes::descendants, tell);
        let failed = |error: &io::Error| {
            MountError::caused(format!("cannot unmount {}", self.note.dir.display()), error)
        };
        let connected = TcpStream::connect_timeout(&self.server, CONNECT_TIMEOUT);
        // Without a server, writes that the client still caches are lost.
        let is_gone = connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        let how = Unmounting { lazy: is_gone, force: is_gone };
        for dir in self.mounts.iter().chain(&self.on_them).rev() {
            match unmount_path(dir, how) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                    unmount_path(dir, Unmounting { lazy: true, force: false })
                }
                unmounted => unmounted,
            }
            .map_err(|error| failed(&error))?;
        }
        self.go_back().map_err(|error| failed(&error))?;
        let Some(run) =
            self.note.run.filter(|run| namespace_processes::started(run.pid) != Some(run.start))
        else {
            return Ok(None);
        };
        // Another run may have started the server again.
        let now = Note::of_run(&self.note.dir, run.pid);
        release(now.as_ref().unwrap_or(&self.note), None, false, tell).map(Some)
    }

    fn go_back(&self) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            let moved =
                move_into_link_name_space(self.outside.as_fd(), Some(LinkNameSpaceType::Mount));
            match moved {
                // In the kernel, a joined thread may not have ended yet.
                Err(_) if begun.elapsed() < GRACE => thread::sleep(Duration::from_millis(1)),
                moved => return Ok(moved?),
            }
        }
    }
}
