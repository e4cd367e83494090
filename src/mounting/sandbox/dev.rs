//! The `/dev` of a sandbox: devices without storage, and a devpts instance of its own.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount, mount_bind};

use super::tree::open;

/// The devices that a command may use.
const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];

/// The usual symbolic links of `/dev`.
const LINKS: [(&str, &str); 6] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("/proc/kcore", "core"),
    ("pts/ptmx", "ptmx"),
];

/// Mounts the new `/dev`.
pub(super) fn mount_devices() -> io::Result<()> {
    let dev = Path::new("/dev");
    let mut devices = Vec::new();
    for name in DEVICES {
        devices.push((name, open(&dev.join(name))?));
    }
    if let Some(terminal) = terminal() {
        devices.push(("console", terminal));
    }
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("acetate", dev, "tmpfs", flags, c"size=64k,mode=0755")?;
    for (name, device) in &devices {
        File::create(dev.join(name))?;
        mount_bind(format!("/proc/self/fd/{}", device.as_raw_fd()), dev.join(name))?;
    }
    for (target, name) in LINKS {
        symlink(target, dev.join(name))?;
    }
    for name in ["pts", "shm"] {
        fs::create_dir(dev.join(name))?;
    }
    mount("acetate", dev.join("pts"), "devpts", flags, c"newinstance,ptmxmode=0666,mode=620")?;
    let shared = flags | MountFlags::NODEV;
    Ok(mount("acetate", dev.join("shm"), "tmpfs", shared, c"mode=1777")?)
}

/// The terminal of this process, if any.
fn terminal() -> Option<OwnedFd> {
    let paths = (0..=2).map(|number| fs::read_link(format!("/proc/self/fd/{number}")));
    let mut terminals = paths.flatten().filter(|path: &PathBuf| path.starts_with("/dev/pts"));
    open(&terminals.next()?).ok()
}
