//! Checks the right to mount before anything else is done.

use std::path::Path;

use super::error::{MountError, SystemAdvice};

/// The properties of a process on Linux that determine its right to mount.
#[derive(Debug, Clone, Copy)]
struct Rights {
    is_root: bool,
    /// CAP_SYS_ADMIN, in any user namespace.
    is_admin: bool,
    in_user_namespace: bool,
}

/// The means by which this process may mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountMethod {
    /// mount(2) or mount(8).
    Any,
    /// mount(2) only: mount(8) requires root.
    SyscallOnly,
}

/// How this process may mount at `dir`.
#[cfg(target_os = "linux")]
pub(crate) fn check(_dir: Option<&Path>) -> Result<MountMethod, MountError> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let rights = Rights {
        is_root: rustix::process::geteuid().is_root(),
        is_admin: is_admin(&status),
        in_user_namespace: !map.is_empty() && !is_whole(&map),
    };
    verdict(rights)
}

/// How this process may mount at `dir`: macOS lets the directory's owner mount.
#[cfg(not(target_os = "linux"))]
pub(crate) fn check(dir: Option<&Path>) -> Result<MountMethod, MountError> {
    use std::os::unix::fs::MetadataExt;
    let euid = rustix::process::geteuid();
    let owner = dir.and_then(|dir| dir.metadata().ok()).map(|found| found.uid());
    if euid.is_root() || owner.is_none_or(|owner| owner == euid.as_raw()) {
        return Ok(MountMethod::Any);
    }
    let what = MountError::new("only root and the directory's owner may mount there");
    Err(what.with_advice(SystemAdvice::OwnDirectoryOrRoot))
}

#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn verdict(rights: Rights) -> Result<MountMethod, MountError> {
    match rights {
        Rights { in_user_namespace: true, .. } => {
            let what = "Linux allows no NFS mount in a user namespace, not even by its root";
            Err(MountError::new(what).with_advice(SystemAdvice::LeaveUserNamespace))
        }
        Rights { is_root: true, is_admin: true, .. } => Ok(MountMethod::Any),
        Rights { is_admin: true, .. } => Ok(MountMethod::SyscallOnly),
        Rights { is_root: true, .. } => {
            let what = "root may not mount here: this container has no CAP_SYS_ADMIN";
            Err(MountError::new(what).with_advice(SystemAdvice::AddCapability))
        }
        Rights { .. } => {
            let what = MountError::new("only root may mount and unmount here");
            Err(what.with_advice(SystemAdvice::BecomeRoot))
        }
    }
}

/// Whether CAP_SYS_ADMIN (number 21) is among the effective capabilities of `/proc/self/status`.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn is_admin(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << 21 != 0)
}

/// Whether a uid_map is the identity, as outside of user namespaces.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn is_whole(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::{MountMethod, Rights, SystemAdvice, is_admin, is_whole, verdict};

    #[test]
    fn who_may_not_mount_is_told_what_to_do() {
        let rights = |is_root, is_admin, in_user_namespace| {
            let error = verdict(Rights { is_root, is_admin, in_user_namespace });
            error.map_err(|error| error.advice().cloned())
        };
        let refused = |advice: SystemAdvice| Err(Some(advice.into()));
        assert_eq!(rights(true, true, false), Ok(MountMethod::Any));
        assert_eq!(rights(false, true, false), Ok(MountMethod::SyscallOnly));
        assert_eq!(rights(false, false, false), refused(SystemAdvice::BecomeRoot));
        assert_eq!(rights(true, false, false), refused(SystemAdvice::AddCapability));
        for in_it in [rights(true, true, true), rights(false, false, true)] {
            assert_eq!(in_it, refused(SystemAdvice::LeaveUserNamespace));
        }
    }

    #[test]
    fn what_the_kernel_tells_is_read() {
        assert!(is_admin("Name:\ta\nCapEff:\t000001ffffffffff\n"));
        assert!(is_admin("CapEff:\t0000000000200000\n"));
        assert!(!is_admin("CapEff:\t00000000a80425fb\n"), "Docker's default");
        assert!(!is_admin("CapPrm:\t000001ffffffffff\n"));
        assert!(is_whole("         0          0 4294967295\n"));
        assert!(!is_whole("         0       1000          1\n"));
        assert!(!is_whole("0 0 1000\n 1000 1000 4294966295\n"));
    }
}
