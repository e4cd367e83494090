//! Leaves the mount namespace of a `run`.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Namespace;
use crate::cli::error::CliError;
use crate::cli::mounting::call::{Unmounting, unmount_path};
use crate::cli::mounting::detach::{ServerFate, release};
use crate::cli::mounting::mount_users;
use crate::cli::mounting::namespace_processes;
use crate::cli::mounting::note::Note;
use crate::cli::output;

/// The time for joined threads to end.
const GRACE: Duration = Duration::from_secs(2);

/// The timeout of a check whether the server is there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

impl Namespace {
    /// Ends processes that the command left behind, unmounts, and returns to the original
    /// namespace. If `run` was killed, also stops the server.
    pub(in crate::cli) fn leave(self) -> Result<(), CliError> {
        mount_users::end_all(&namespace_processes::descendants);
        let failed = |error: &io::Error| {
            CliError::caused(format!("cannot unmount {}", self.note.dir.display()), error)
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
            return Ok(());
        };
        // Another run may have started the server again.
        let now = Note::of_run(&self.note.dir, run.pid);
        if let ServerFate::GoesOn { pid, why } =
            release(now.as_ref().unwrap_or(&self.note), None, false)?
        {
            output::line(format_args!("its server (process {pid}) goes on: {why}"));
        }
        Ok(())
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
