//! Mounts and unmounts by the system's own means.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::address;
use super::error::{MountError, SystemAdvice};
use super::point::MountPoint;
use super::privilege::MountMethod;

use crate::system_error::words;

/// The parameters of a mount.
#[derive(Debug)]
pub(super) struct MountCall<'a> {
    pub(super) address: SocketAddr,
    pub(super) point: &'a MountPoint,
    pub(super) read_only: bool,
    /// Additional options, as for `mount -o`; they follow acetate's own.
    pub(super) options: Option<&'a str>,
    pub(super) means: MountMethod,
}

impl MountCall<'_> {
    /// All options; the user's are last, so that they take precedence.
    ///
    /// A session can hold files of any owner, root included. With `nosuid` and `nodev`, the system
    /// honours no setuid program or device that an agent creates.
    fn options(&self) -> String {
        let mut options = address::options(self.address) + ",nosuid,nodev";
        if self.read_only {
            options.push_str(",ro");
        }
        if let Some(more) = self.options.filter(|more| !more.is_empty()) {
            options.push(',');
            options.push_str(more);
        }
        options
    }

    /// Mounts the export.
    pub(super) fn mount(&self) -> Result<(), MountError> {
        let source = format!("{}:/", address::host(self.address));
        if self.is_by_program() {
            own::by_program(self.point, |dir| self.run_program(&source, dir))
        } else {
            own::mount(self, &source)
        }
    }

    /// Runs the system's `mount`.
    fn run_program(&self, source: &str, dir: &Path) -> Result<(), MountError> {
        let mut command = Command::new("mount");
        command.args(["-t", "nfs", "-o", &self.options(), source]).arg(dir);
        let output =
            command.output().map_err(|error| MountError::caused("cannot run mount", &error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.split('\n').map(str::trim).filter(|line| !line.is_empty());
        let said = said.collect::<Vec<_>>().join("; ");
        Err(self.refused(if said.is_empty() { "mount failed" } else { &said }))
    }

    fn refused(&self, said: &str) -> MountError {
        refused(self.point.path(), said)
    }

    /// Whether to run the system's `mount`. On Linux that needs root and mount.nfs, which may not
    /// be installed.
    fn is_by_program(&self) -> bool {
        cfg!(not(target_os = "linux"))
            || (self.means == MountMethod::Any && has_program("mount.nfs"))
    }
}

/// Whether `name` is an executable where `mount` searches for it, or in PATH.
fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/sbin".into(), "/usr/sbin".into()]);
    places.map(|place| place.join(name)).any(|program| {
        use std::os::unix::fs::PermissionsExt;
        program
            .metadata()
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}

/// The error for a refused mount, with the system's message and advice.
fn refused(dir: &Path, said: &str) -> MountError {
    let what = MountError::new(format_args!("cannot mount at {}: {said}", dir.display()));
    let has = |parts: &[&str]| parts.iter().any(|part| said.contains(part));
    let advice = if has(&["No such device", "unknown filesystem", "not configured in kernel"]) {
        SystemAdvice::LoadNfsClient
    } else if has(&["not permitted", "access denied", "Permission denied"]) {
        SystemAdvice::MountOutsideContainer
    } else if has(&["bad option", "Invalid argument", "incorrect mount option"]) {
        SystemAdvice::CheckOptions
    } else if has(&["timed out", "refused"]) {
        SystemAdvice::CheckFirewall
    } else {
        return what;
    };
    what.with_advice(advice)
}

/// Options of an unmount.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unmounting {
    /// Detach now, and clean up once no process uses the mount.
    pub(crate) lazy: bool,
    /// Discard data that is not written yet.
    pub(crate) force: bool,
}

/// Unmounts the topmost mount at `point`; `ResourceBusy` if it is in use.
pub(super) fn unmount(point: &MountPoint, how: Unmounting) -> io::Result<()> {
    own::unmount(&point.mounted_by_descriptor(), how)
}

/// Unmounts the topmost mount at the path `dir`. Only for a namespace in which no other user can
/// replace the path.
#[cfg(target_os = "linux")]
pub(super) fn unmount_path(dir: &Path, how: Unmounting) -> io::Result<()> {
    own::unmount(dir, how)
}

#[cfg(target_os = "linux")]
mod own {
    use std::ffi::CString;

    use rustix::io::Errno;
    use rustix::mount::{
        MountFlags, UnmountFlags, mount as system_mount, unmount as system_unmount,
    };

    pub(super) use super::super::stage::mount as by_program;
    use super::*;

    /// Mounts by mount(2): the kernel itself asks the server for the root file handle.
    pub(super) fn mount(call: &MountCall<'_>, source: &str) -> Result<(), MountError> {
        let (flags, mut data) = split(&call.options());
        data.push(format!("addr={}", address::reachable(call.address.ip())));
        let invalid = |_nul| MountError::new("mount options contain a NUL byte");
        let data = CString::new(data.join(",")).map_err(invalid)?;
        let target = call.point.by_descriptor();
        system_mount(source, target, "nfs", flags, &*data).map_err(|errno| {
            let said = match errno {
                // The message of mount.nfs for this error.
                Errno::NODEV => "No such device (this kernel has no NFS)".to_owned(),
                errno => words(&errno.into()),
            };
            call.refused(&said)
        })
    }

    /// Splits options into mount flags and options of NFS.
    pub(super) fn split(options: &str) -> (MountFlags, Vec<String>) {
        let (mut flags, mut data) = (MountFlags::empty(), Vec::new());
        for option in options.split(',') {
            let (flag, on) = match option {
                "ro" => (MountFlags::RDONLY, true),
                "rw" => (MountFlags::RDONLY, false),
                "nosuid" => (MountFlags::NOSUID, true),
                "suid" => (MountFlags::NOSUID, false),
                "nodev" => (MountFlags::NODEV, true),
                "dev" => (MountFlags::NODEV, false),
                "noexec" => (MountFlags::NOEXEC, true),
                "exec" => (MountFlags::NOEXEC, false),
                "noatime" => (MountFlags::NOATIME, true),
                "sync" => (MountFlags::SYNCHRONOUS, true),
                "dirsync" => (MountFlags::DIRSYNC, true),
                "defaults" | "" => continue,
                other => {
                    data.push(other.to_owned());
                    continue;
                }
            };
            flags.set(flag, on);
        }
        (flags, data)
    }

    pub(super) fn unmount(dir: &Path, how: Unmounting) -> io::Result<()> {
        let mut flags = UnmountFlags::NOFOLLOW;
        flags.set(UnmountFlags::DETACH, how.lazy);
        flags.set(UnmountFlags::FORCE, how.force);
        Ok(system_unmount(dir, flags)?)
    }
}

#[cfg(not(target_os = "linux"))]
mod own {
    use super::*;

    pub(super) fn mount(call: &MountCall<'_>, source: &str) -> Result<(), MountError> {
        Err(call.refused(source))
    }

    pub(super) fn by_program(
        point: &MountPoint,
        mount: impl FnOnce(&Path) -> Result<(), MountError>,
    ) -> Result<(), MountError> {
        mount(point.path())
    }

    pub(super) fn unmount(dir: &Path, how: Unmounting) -> io::Result<()> {
        let mut command = Command::new("umount");
        if how.force || how.lazy {
            command.arg("-f");
        }
        let output = command.arg(dir).output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let is_busy = said.contains("busy");
        let kind = if is_busy { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other };
        Err(io::Error::new(kind, said))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_mount_has_advice_by_what_the_system_said() {
        let advice = |said: &str| refused(Path::new("/mnt"), said).advice().cloned();
        for (said, expected) in [
            ("No such device (this kernel has no NFS)", SystemAdvice::LoadNfsClient),
            ("mount.nfs: access denied by server", SystemAdvice::MountOutsideContainer),
            ("Operation not permitted (os error 1)", SystemAdvice::MountOutsideContainer),
            ("mount.nfs: an incorrect mount option was specified", SystemAdvice::CheckOptions),
            ("mount.nfs: Connection timed out", SystemAdvice::CheckFirewall),
            ("Connection refused (os error 111)", SystemAdvice::CheckFirewall),
        ] {
            assert_eq!(advice(said), Some(expected.into()), "{said}");
        }
        assert_eq!(advice("mount failed"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_last_of_several_options_counts() {
        use rustix::mount::MountFlags;
        let (flags, data) = own::split("vers=3,nosuid,nodev,ro,noac,,defaults,rw,dev");
        assert_eq!(flags, MountFlags::NOSUID);
        assert_eq!(data, ["vers=3", "noac"]);
    }
}
