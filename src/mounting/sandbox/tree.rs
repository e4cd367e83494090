//! The mounts of a sandbox.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, fstat, openat, statx};
use rustix::mount::{MountFlags, mount, mount_bind, mount_bind_recursive, mount_remount};

use super::{Confinement, TMP, dev};
use crate::mounting::error::MountError;
use crate::mounting::table::{self, MountTableEntry};

/// Flags to open a path without access to the object.
const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// What happens to a directory in the sandbox.
enum TreeStep {
    /// The directory stays and is writable.
    Keep(OwnedFd),
    /// An empty directory covers it.
    Empty,
    /// An empty directory that all users can write to covers it.
    Temporary,
}

/// Mounts a private `/tmp`, covers denied directories outside of `shows`, and makes each writable
/// directory a separate mount. The session at `shows` stays visible.
pub(in crate::mounting) fn prepare(wanted: &Confinement, shows: &Path) -> Result<(), MountError> {
    let failed = |path: &Path, error: io::Error| cannot(path, &error);
    let shown = open(shows).map_err(|error| failed(shows, error))?;
    let mut steps = vec![(PathBuf::from(TMP), TreeStep::Temporary)];
    for dir in wanted.allow_write.iter().filter(|dir| !dir.starts_with(shows)) {
        let open = open(dir).map_err(|error| failed(dir, error))?;
        steps.push((dir.clone(), TreeStep::Keep(open)));
    }
    let denied = wanted.deny_read.iter().filter(|dir| !dir.starts_with(shows));
    steps.extend(denied.map(|dir| (dir.clone(), TreeStep::Empty)));
    // Parents first: a later mount on a parent would cover its children.
    steps.sort_by_key(|(dir, _)| dir.components().count());
    for (dir, step) in &steps {
        make(dir).and_then(|()| step.take(dir)).map_err(|error| failed(dir, error))?;
    }
    make(shows).and_then(|()| show(&shown, shows)).map_err(|error| failed(shows, error))
}

/// Mounts the open directory at `dir`, unless it is there already.
fn show(shown: &OwnedFd, dir: &Path) -> io::Result<()> {
    let (shown_stat, now) = (fstat(shown)?, fstat(open(dir)?)?);
    if (shown_stat.st_dev, shown_stat.st_ino) == (now.st_dev, now.st_ino) {
        return Ok(());
    }
    Ok(mount_bind(format!("/proc/self/fd/{}", shown.as_raw_fd()), dir)?)
}

/// Covers the denied directories within the session at `shows`; returns them.
pub(in crate::mounting) fn empty_within(
    wanted: &Confinement,
    shows: &Path,
) -> Result<Vec<PathBuf>, MountError> {
    let denied = wanted.deny_read.iter().filter(|dir| dir.starts_with(shows) && dir.is_dir());
    let denied: Vec<PathBuf> = denied.cloned().collect();
    for dir in &denied {
        TreeStep::Empty.take(dir).map_err(|error| cannot(dir, &error))?;
    }
    Ok(denied)
}

/// Mounts a private `/dev`, hides the sockets of servers, and makes all mounts read-only except
/// `mounts` (the session) and writable directories. `session` has the session's own files.
pub(in crate::mounting) fn close(
    wanted: &Confinement,
    mounts: &[PathBuf],
    session: &[PathBuf],
) -> Result<(), MountError> {
    dev::mount_devices().map_err(|error| cannot(Path::new("/dev"), &error))?;
    hide_sockets(mounts, session);
    let writable = |entry: &MountTableEntry| {
        let dir = &entry.dir;
        let own = [Path::new("/dev"), Path::new("/proc")];
        mounts.contains(dir)
            || dir == Path::new(TMP)
            || own.iter().any(|own| dir.starts_with(own))
            || wanted.allow_write.iter().any(|allowed| dir.starts_with(allowed))
    };
    let entries = table::entries().map_err(|error| cannot(Path::new("/"), &error))?;
    for entry in entries.iter().filter(|entry| !writable(entry)) {
        let flags = MountFlags::BIND | MountFlags::RDONLY | flags(&entry.options);
        let Err(errno) = mount_remount(&entry.dir, flags, "") else { continue };
        // A mount that cannot be reached by its path may stay writable.
        if is_reachable(entry) {
            return Err(cannot(&entry.dir, &errno.into()));
        }
    }
    Ok(())
}

fn cannot(path: &Path, error: &io::Error) -> MountError {
    MountError::caused(format_args!("no sandbox: {}", path.display()), error)
}

impl TreeStep {
    fn take(&self, dir: &Path) -> io::Result<()> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        match self {
            Self::Keep(open) => {
                mount_bind_recursive(format!("/proc/self/fd/{}", open.as_raw_fd()), dir)?
            }
            Self::Empty => mount("acetate", dir, "tmpfs", flags, c"size=64k,mode=0755")?,
            Self::Temporary => mount("acetate", dir, "tmpfs", flags, c"mode=1777")?,
        }
        Ok(())
    }
}

pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, LOOK, Mode::empty())?)
}

/// Creates a directory and its parents where a covering mount has hidden them.
fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(dir)
}

/// The flags of a mount that a remount must repeat.
fn flags(options: &str) -> MountFlags {
    let mut flags = MountFlags::empty();
    for option in options.split(',') {
        flags |= match option {
            "nosuid" => MountFlags::NOSUID,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            "noatime" => MountFlags::NOATIME,
            "nodiratime" => MountFlags::NODIRATIME,
            "relatime" => MountFlags::RELATIME,
            _ => MountFlags::empty(),
        };
    }
    flags
}

/// Whether the path of a mount leads to it, and not to one above it.
fn is_reachable(entry: &MountTableEntry) -> bool {
    let found = open(&entry.dir)
        .and_then(|dir| Ok(statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?));
    // Without STATX_MNT_ID, assume that it does.
    found.is_ok_and(|found| {
        found.stx_mask & StatxFlags::MNT_ID.bits() == 0 || found.stx_mnt_id == entry.id
    })
}

/// Covers every listening socket: a server outside of the sandbox could act for the command. Exempt
/// are sockets within `mounts`, and those of the session itself.
fn hide_sockets(mounts: &[PathBuf], session: &[PathBuf]) {
    let known = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let sockets = known.lines().filter_map(listening);
    for socket in sockets.filter(|socket| !session.contains(socket)) {
        let is_within = mounts.iter().any(|mount| socket.starts_with(mount));
        let is_socket = || {
            use std::os::unix::fs::FileTypeExt;
            fs::symlink_metadata(&socket).is_ok_and(|found| found.file_type().is_socket())
        };
        if !is_within && is_socket() {
            let _hidden = mount_bind("/dev/null", &socket);
        }
    }
}

/// The path in a line of `/proc/net/unix`, if the socket is listening (flag 0x10000).
fn listening(line: &str) -> Option<PathBuf> {
    let mut fields = line.split_whitespace();
    let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
    let at = line.find(" /")? + 1;
    (flags & 0x1_0000 != 0).then(|| PathBuf::from(&line[at..]))
}

/// Shows session files, whose own paths are covered, in the directory `dir`; returns the new paths.
pub(in crate::mounting) fn show_files(
    files: &[(PathBuf, OwnedFd)],
    dir: &Path,
    read_only: bool,
) -> Result<Vec<PathBuf>, MountError> {
    let failed = |error: io::Error| {
        MountError::caused(format_args!("cannot show the session in {}", dir.display()), &error)
    };
    make(dir).map_err(failed)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("acetate", dir, "tmpfs", flags, c"size=64k,mode=0755")
        .map_err(|errno| failed(errno.into()))?;
    let mut shown = Vec::new();
    for (path, open) in files {
        let Some(name) = path.file_name() else { continue };
        let target = dir.join(name);
        File::create(&target).map_err(failed)?;
        let source = format!("/proc/self/fd/{}", open.as_raw_fd());
        mount_bind(source, &target).map_err(|errno| failed(errno.into()))?;
        if read_only {
            let flags = MountFlags::BIND | MountFlags::RDONLY | flags;
            mount_remount(&target, flags, "").map_err(|errno| failed(errno.into()))?;
        }
        shown.push(target);
    }
    Ok(shown)
}

/// Opens the files of the session at `path` that exist: the database, and the files beside it.
pub(in crate::mounting) fn open_files(path: &Path) -> io::Result<Vec<(PathBuf, OwnedFd)>> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(Vec::new());
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let found = entry.file_name();
        let is_its = found.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        let is_its = is_its.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"-"));
        // No directories: part of the base could be visible through one.
        if is_its && entry.metadata()?.mode() & 0o170_000 != 0o040_000 {
            files.push((entry.path(), open(&entry.path())?));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_that_are_listened_at_are_found() {
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 22217 /run/a b.sock";
        assert_eq!(listening(line), Some("/run/a b.sock".into()));
        let connected = "0000000000000000: 00000003 00000000 00000000 0001 03 22217 /run/a.sock";
        let unnamed = "0000000000000000: 00000002 00000000 00010000 0001 01 22217";
        let heading = "Num       RefCount Protocol Flags    Type St Inode Path";
        for other in [connected, unnamed, heading, ""] {
            assert_eq!(listening(other), None, "{other}");
        }
    }

    #[test]
    fn a_mount_keeps_what_it_forbids() {
        let found = flags("rw,nosuid,noexec,relatime");
        assert_eq!(found, MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::RELATIME);
    }
}
