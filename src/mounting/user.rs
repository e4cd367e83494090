//! The user who called `sudo`: everything but the mount itself runs as this user.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::geteuid;

/// The user who called `sudo`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) struct User {
    pub(crate) name: String,
    /// The home directory, if the system reports it.
    pub(crate) home: Option<PathBuf>,
    /// The login shell, if the system reports it.
    pub(crate) shell: Option<PathBuf>,
    pub(crate) uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl User {
    /// The user who called `sudo`; `None` without `sudo`.
    pub(crate) fn behind_sudo() -> Option<Self> {
        let variable = |name| std::env::var(name).ok();
        if !geteuid().is_root() || cfg!(not(target_os = "linux")) {
            return None;
        }
        let uid: u32 = variable("SUDO_UID")?.parse().ok().filter(|uid| *uid != 0)?;
        let gid = variable("SUDO_GID")?.parse().ok()?;
        let name = variable("SUDO_USER").unwrap_or_else(|| uid.to_string());
        let groups = said("id", &["-G", &name]);
        let groups = groups.and_then(|text| numbers(&text)).unwrap_or_else(|| vec![gid]);
        let entry = said("getent", &["passwd", &uid.to_string()]).unwrap_or_default();
        let (home, shell) = (path_in(&entry, HOME_FIELD), path_in(&entry, SHELL_FIELD));
        Some(Self { name, home, shell, uid, gid, groups })
    }
}

/// The output of a program, if it succeeds.
fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    output.status.success().then_some(())?;
    String::from_utf8(output.stdout).ok()
}

fn numbers(text: &str) -> Option<Vec<u32>> {
    text.split_whitespace().map(|word| word.parse().ok()).collect()
}

/// The indexes, from 0, of the fields of passwd(5) that hold paths.
const HOME_FIELD: usize = 5;
const SHELL_FIELD: usize = 6;

/// An absolute path in a field of a passwd(5) line.
fn path_in(line: &str, field: usize) -> Option<PathBuf> {
    let path = line.trim_end().split(':').nth(field)?;
    path.starts_with('/').then(|| PathBuf::from(path))
}

/// Runs `f` with the credentials of `user`, or with those of this process. A child that `f` starts
/// keeps them.
///
/// # Errors
/// An error of `f`, or the credentials cannot be set.
#[cfg(target_os = "linux")]
pub(crate) fn acting_as<T: Send>(
    user: Option<&User>,
    f: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    use rustix::process::{Gid, Uid};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let Some(user) = user else {
        return f();
    };
    // On Linux, credentials belong to a thread: this one ends together with them.
    std::thread::scope(|scope| {
        let acting = scope.spawn(|| {
            let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            set_thread_groups(&groups)?;
            set_thread_res_gid(gid, gid, gid)?;
            set_thread_res_uid(uid, uid, uid)?;
            f()
        });
        acting.join().unwrap_or_else(|_panicked| Err(io::ErrorKind::Other.into()))
    })
}

/// Runs `f`: other systems let the owner of a directory mount there, without `sudo`.
#[cfg(not(target_os = "linux"))]
pub(crate) fn acting_as<T: Send>(
    _user: Option<&User>,
    f: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    f()
}

#[cfg(test)]
mod tests {
    use super::{HOME_FIELD, SHELL_FIELD, numbers, path_in};

    #[test]
    fn what_the_system_tells_is_read() {
        assert_eq!(numbers("1000 27 999\n"), Some(vec![1000, 27, 999]));
        assert_eq!(numbers("1000 staff"), None);
        let line = "ann:x:1000:1000:Ann,,,:/home/ann:/bin/sh\n";
        assert_eq!(path_in(line, HOME_FIELD), Some("/home/ann".into()));
        assert_eq!(path_in(line, SHELL_FIELD), Some("/bin/sh".into()));
        for odd in ["", "ann:x:1000", "ann:x:1000:1000:Ann::/bin/sh"] {
            assert_eq!(path_in(odd, HOME_FIELD), None, "{odd}");
        }
    }
}
