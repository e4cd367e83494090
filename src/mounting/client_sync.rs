//! Syncs the mounts of a session on this machine: their clients send the server what programs
//! wrote. What arrived after a restore would change the restored files.
//!
//! A process syncs each mount, because one that waits for a server may not end when it is killed,
//! and would keep this process from ending.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::event::{MountEvent, Observer};
use super::mount_users::processes;
use super::namespace_processes::namespace;
use super::served::is_local;
use super::table::{Mounted, mounted_for};
use crate::control::{Answer, ControlConnection, Request};

/// The subcommand of `acetate` that syncs one mount.
const SUBCOMMAND: &str = "mount-sync-child";

/// The time for all mounts of a session to be synced.
const MAX_SYNC_TIME: Duration = Duration::from_secs(20);

/// The time after which the caller hears what is waited for.
const SAY_AFTER: Duration = Duration::from_secs(1);

/// The interval of checks whether a process has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// A mount from a server, in any mount namespace that this user can see.
struct ClientMount {
    mounted: Mounted,
    /// A path of its root for this process.
    path: PathBuf,
}

/// A process that syncs a mount.
struct SyncChild {
    dir: PathBuf,
    process: Child,
}

/// Syncs the mounts of `session` on this machine, if a server has it. Reports mounts that could not
/// be synced in [`MAX_SYNC_TIME`].
pub(crate) fn sync_mounts(session: &Path, tell: Observer<'_>) {
    let mut running = Vec::new();
    for mount in mounts_from(&addresses(session)) {
        match start(&mount) {
            Ok(process) => running.push(SyncChild { dir: mount.mounted.dir, process }),
            Err(error) => tell(MountEvent::NotSynced { dir: mount.mounted.dir, error }),
        }
    }
    let (begun, mut is_said) = (Instant::now(), false);
    while !running.is_empty() && begun.elapsed() < MAX_SYNC_TIME {
        running.retain_mut(|child| !child.has_ended(tell));
        if !is_said && begun.elapsed() > SAY_AFTER {
            is_said = true;
            running.iter().for_each(|child| tell(MountEvent::Syncs(child.dir.clone())));
        }
        thread::sleep(LOOK_INTERVAL);
    }
    for SyncChild { dir, mut process } in running {
        let _gone = process.kill();
        thread::spawn(move || process.wait());
        tell(MountEvent::NotSynced { dir, error: io::ErrorKind::TimedOut.into() });
    }
}

/// The addresses of the server of a session.
fn addresses(session: &Path) -> Vec<SocketAddr> {
    let Ok(Some(mut server)) = ControlConnection::open(session) else { return Vec::new() };
    match server.ask(&Request::Status) {
        Ok(Answer::Status(status)) => status.addresses,
        _ => Vec::new(),
    }
}

/// The mounts from a server, each filesystem once.
fn mounts_from(addresses: &[SocketAddr]) -> Vec<ClientMount> {
    let mut found: Vec<ClientMount> = Vec::new();
    if addresses.is_empty() {
        return found;
    }
    let mut namespaces = vec![namespace("self")];
    let mut add = |process: &str, root: &Path| {
        for mounted in mounted_for(process).unwrap_or_default() {
            let is_new = found.iter().all(|other| other.mounted.device != mounted.device);
            if is_new && addresses.iter().any(|address| is_from(&mounted, *address)) {
                let path = mounted.dir.strip_prefix("/").unwrap_or(&mounted.dir);
                found.push(ClientMount { path: root.join(path), mounted });
            }
        }
    };
    add("self", Path::new("/"));
    for (pid, process) in processes() {
        let pid = pid.to_string();
        let namespace = namespace(&pid);
        if namespace.is_some() && !namespaces.contains(&namespace) {
            namespaces.push(namespace);
            add(&pid, &process.join("root"));
        }
    }
    found
}

/// Whether a mount is from the server that listens at `address`.
fn is_from(mounted: &Mounted, address: SocketAddr) -> bool {
    let Some(server) = mounted.server else { return false };
    let ip = address.ip();
    server.port() == address.port()
        && (server.ip() == ip || (ip.is_unspecified() && is_local(server.ip())))
}

fn start(mount: &ClientMount) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(SUBCOMMAND).arg("--device").arg(&mount.mounted.device).arg(&mount.path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn()
}

impl SyncChild {
    /// Whether the process has ended; reports a failure.
    fn has_ended(&mut self, tell: Observer<'_>) -> bool {
        let status = match self.process.try_wait() {
            Ok(None) => return false,
            Ok(Some(status)) => status,
            Err(_) => return true,
        };
        if !status.success() {
            // The exit code is the number of the error.
            let error = match status.code() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::ErrorKind::Interrupted.into(),
            };
            tell(MountEvent::NotSynced { dir: self.dir.clone(), error });
        }
        true
    }
}

/// Syncs the filesystem of a directory, if its device number is still `device`.
///
/// # Errors
/// The directory cannot be opened, or the server did not take what programs wrote.
pub(crate) fn sync_filesystem(dir: &Path, device: &str) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags, fstat, major, minor, open, syncfs};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let dir = match open(dir, flags, Mode::empty()) {
        // Unmounted since.
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let number = fstat(&dir)?.st_dev;
    if format!("{}:{}", major(number), minor(number)) == device {
        syncfs(&dir)?;
    }
    Ok(())
}
