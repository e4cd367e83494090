//! Finds the processes that use a mount: by a working directory, a program or an open file in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use super::event::{MountEvent, Observer};
use crate::escape;

/// The most processes that are listed.
const MAX_NAMED: usize = 5;

/// The time for processes to end after a signal.
const GRACE: Duration = Duration::from_secs(2);

/// The interval of checks whether they have ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A process that uses a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountUser {
    pub(super) pid: u32,
    name: String,
}

/// The processes that use `dir`, as far as this user may see them; empty without `/proc`. Only
/// links in `/proc` are read, so a server that does not respond cannot block this.
pub(super) fn mount_users(dir: &Path) -> Vec<MountUser> {
    let ours = std::process::id();
    let others = processes().filter(|(pid, _)| *pid != ours);
    others.filter(|(_, path)| uses(path, dir)).map(MountUser::of).collect()
}

/// All processes, with their directories in `/proc`.
pub(super) fn processes() -> impl Iterator<Item = (u32, PathBuf)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

impl MountUser {
    /// A process with its directory in `/proc`.
    pub(super) fn of((pid, path): (u32, PathBuf)) -> Self {
        let name = fs::read(path.join("comm")).unwrap_or_default();
        Self { pid, name: escape::name(name.trim_ascii_end()) }
    }
}

fn uses(process: &Path, dir: &Path) -> bool {
    let is_inside = |link: PathBuf| fs::read_link(link).is_ok_and(|target| target.starts_with(dir));
    let fixed = ["cwd", "root", "exe"].map(|name| process.join(name));
    let open = ["fd", "map_files"].map(|name| fs::read_dir(process.join(name)));
    let open = open.into_iter().flatten().flatten().flatten().map(|entry| entry.path());
    fixed.into_iter().chain(open).any(is_inside)
}

/// A list such as `make (812), sh (811) and 3 more`.
pub(crate) fn named(holders: &[MountUser]) -> String {
    let named = holders.iter().take(MAX_NAMED);
    let named: Vec<String> =
        named.map(|holder| format!("{} ({})", holder.name, holder.pid)).collect();
    let more = match holders.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    named.join(", ") + &more
}

/// Sends a signal to all of the processes.
pub(super) fn end(holders: &[MountUser], signal: Signal) {
    for holder in holders {
        if let Some(pid) = i32::try_from(holder.pid).ok().and_then(Pid::from_raw) {
            let _gone = kill_process(pid, signal);
        }
    }
}

/// Ends the processes that `find` returns: by SIGTERM, and after [`GRACE`] by SIGKILL.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(super) fn end_all(find: &dyn Fn() -> Vec<MountUser>, tell: Observer<'_>) {
    let mut left = find();
    if left.is_empty() {
        return;
    }
    tell(MountEvent::EndsLeftovers(left.clone()));
    for signal in [Signal::TERM, Signal::KILL] {
        end(&left, signal);
        let begun = Instant::now();
        while !left.is_empty() && begun.elapsed() < GRACE {
            thread::sleep(LOOK_INTERVAL);
            while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
            left = find();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MountUser, named};

    #[test]
    fn a_few_are_named_and_the_rest_is_counted() {
        let holder = |pid| MountUser { pid, name: "sh".to_owned() };
        assert_eq!(named(&[holder(1), holder(2)]), "sh (1), sh (2)");
        let many: Vec<MountUser> = (1..=7).map(holder).collect();
        assert!(named(&many).ends_with("sh (5) and 2 more"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_in_a_directory_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        assert_eq!(super::mount_users(&dir), []);
        let mut child =
            std::process::Command::new("sleep").arg("20").current_dir(&dir).spawn().unwrap();
        let found = super::mount_users(&dir);
        super::end(&found, rustix::process::Signal::TERM);
        assert_eq!(found.iter().map(|holder| holder.pid).collect::<Vec<_>>(), [child.id()]);
        assert!(!child.wait().unwrap().success());
    }
}
