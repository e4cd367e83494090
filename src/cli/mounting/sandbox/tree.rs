//! The mounts of a sandbox.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, fstat, openat, statx};
use rustix::mount::{MountFlags, mount, mount_bind, mount_bind_recursive, mount_remount};

use super::{TMP, dev};
use crate::cli::confinement::Confinement;
use crate::cli::error::CliError;
use crate::cli::mounting::table::{self, MountTableEntry};

/// Opens without access to the object.
const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// What is done at a directory.
enum TreeStep {
    /// What is there stays there, and can be written to.
    Keep(OwnedFd),
    /// An empty directory is there instead.
    Empty,
    /// An empty directory that all can write to.
    Temporary,
}

/// Gives the namespace a `/tmp` of its own, empties the directories that are not to be read and
/// that `shows` leaves reachable, and makes those separate mounts that may be written to. The
/// session, which is mounted at `shows`, is there afterwards, too.
pub(in crate::cli::mounting) fn prepare(
    wanted: &Confinement,
    shows: &Path,
) -> Result<(), CliError> {
    let failed = |path: &Path, error: io::Error| cannot(path, &error);
    let shown = open(shows).map_err(|error| failed(shows, error))?;
    let mut steps = vec![(PathBuf::from(TMP), TreeStep::Temporary)];
    for dir in wanted.allow_write.iter().filter(|dir| !dir.starts_with(shows)) {
        let open = open(dir).map_err(|error| failed(dir, error))?;
        steps.push((dir.clone(), TreeStep::Keep(open)));
    }
    let denied = wanted.deny_read.iter().filter(|dir| !dir.starts_with(shows));
    steps.extend(denied.map(|dir| (dir.clone(), TreeStep::Empty)));
    // What is above comes first, or it would hide what is below.
    steps.sort_by_key(|(dir, _)| dir.components().count());
    for (dir, step) in &steps {
        make(dir).and_then(|()| step.take(dir)).map_err(|error| failed(dir, error))?;
    }
    make(shows).and_then(|()| show(&shown, shows)).map_err(|error| failed(shows, error))
}

/// Mounts the open directory at `dir`, unless it is there.
fn show(shown: &OwnedFd, dir: &Path) -> io::Result<()> {
    let (shown_stat, now) = (fstat(shown)?, fstat(open(dir)?)?);
    if (shown_stat.st_dev, shown_stat.st_ino) == (now.st_dev, now.st_ino) {
        return Ok(());
    }
    Ok(mount_bind(format!("/proc/self/fd/{}", shown.as_raw_fd()), dir)?)
}

/// Empties the directories of the session at `shows` that are not to be read; returns them.
pub(in crate::cli::mounting) fn empty_within(
    wanted: &Confinement,
    shows: &Path,
) -> Result<Vec<PathBuf>, CliError> {
    let denied = wanted.deny_read.iter().filter(|dir| dir.starts_with(shows) && dir.is_dir());
    let denied: Vec<PathBuf> = denied.cloned().collect();
    for dir in &denied {
        TreeStep::Empty.take(dir).map_err(|error| cannot(dir, &error))?;
    }
    Ok(denied)
}

/// Gives the namespace a `/dev` of its own, hides the sockets of servers, and makes all read-only
/// but the session's `mounts` and what may be written to. `session` are the session's own files.
pub(in crate::cli::mounting) fn close(
    wanted: &Confinement,
    mounts: &[PathBuf],
    session: &[PathBuf],
) -> Result<(), CliError> {
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
        // Something else is mounted over it, so that no path leads there.
        if is_reachable(entry) {
            return Err(cannot(&entry.dir, &errno.into()));
        }
    }
    Ok(())
}

fn cannot(path: &Path, error: &io::Error) -> CliError {
    CliError::caused(format_args!("no sandbox: {}", path.display()), error)
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

/// Makes a directory, and those above it, where an empty one has hidden them.
fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(dir)
}

/// The flags of a mount that are kept.
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

/// Whether the path of a mount leads to it.
fn is_reachable(entry: &MountTableEntry) -> bool {
    let found = open(&entry.dir)
        .and_then(|dir| Ok(statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?));
    // Where the kernel does not tell, it may.
    found.is_ok_and(|found| {
        found.stx_mask & StatxFlags::MNT_ID.bits() == 0 || found.stx_mnt_id == entry.id
    })
}

/// Puts an empty file in the place of every listening socket: a server outside
/// could do what the command may not. Not in the session, and not its own one.
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

/// The path in a line of `/proc/net/unix`, of a socket that is listened at (flag 0x10000).
fn listening(line: &str) -> Option<PathBuf> {
    let mut fields = line.split_whitespace();
    let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
    let at = line.find(" /")? + 1;
    (flags & 0x1_0000 != 0).then(|| PathBuf::from(&line[at..]))
}

/// Shows the files of a session, which cannot be seen at their own paths, in the directory `dir`,
/// `read_only` or as they are; returns them there.
pub(in crate::cli::mounting) fn show_files(
    files: &[(PathBuf, OwnedFd)],
    dir: &Path,
    read_only: bool,
) -> Result<Vec<PathBuf>, CliError> {
    let failed = |error: io::Error| {
        CliError::caused(format_args!("cannot show the session in {}", dir.display()), &error)
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

/// Opens those of a session's files that are there: of the session at `path`, and beside it.
pub(in crate::cli::mounting) fn open_files(path: &Path) -> io::Result<Vec<(PathBuf, OwnedFd)>> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(Vec::new());
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let found = entry.file_name();
        let is_its = found.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        let is_its = is_its.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"-"));
        // Never a directory: something in the base would show through it.
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
