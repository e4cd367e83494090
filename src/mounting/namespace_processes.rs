//! Finds the processes in the mount namespace of a `run`.

use std::net::SocketAddr;

use super::mount_users::{self, MountUser};
use super::note::RunNote;

impl RunNote {
    /// Whether `run` is still running, or a process in another mount namespace has a mount from
    /// `server`.
    pub(crate) fn is_live(&self, server: SocketAddr) -> bool {
        started(self.pid) == Some(self.start) || is_used_elsewhere(server)
    }
}

/// The start time of a running process, in clock ticks since boot.
pub(super) fn started(pid: u32) -> Option<u64> {
    let stat = stat(pid)?;
    (!stat.is_zombie).then_some(stat.start)
}

/// Fields of proc_pid_stat(5).
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
struct Stat {
    is_zombie: bool,
    parent: u32,
    start: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain any character.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let is_zombie = fields.next()? == "Z";
    let parent = fields.next()?.parse().ok()?;
    let start = fields.nth(17)?.parse().ok()?;
    Some(Stat { is_zombie, parent, start })
}

/// All running descendants of this process. As a subreaper, it becomes the parent of orphans.
#[cfg(target_os = "linux")]
pub(super) fn descendants() -> Vec<MountUser> {
    let all = mount_users::processes().filter_map(|(pid, path)| Some((stat(pid)?, pid, path)));
    let mut rest: Vec<_> = all.collect();
    let mut parents = vec![std::process::id()];
    let mut found = Vec::new();
    while let Some(parent) = parents.pop() {
        let (children, others): (Vec<_>, _) =
            rest.into_iter().partition(|(stat, ..)| stat.parent == parent);
        rest = others;
        parents.extend(children.iter().map(|(_, pid, _)| *pid));
        let running = children.into_iter().filter(|(stat, ..)| !stat.is_zombie);
        found.extend(running.map(|(_, pid, path)| MountUser::of((pid, path))));
    }
    found
}

/// The processes in the mount namespace `number`, if that has a mount from `server`; a later
/// namespace may have been given the number of one that has ended.
#[cfg(target_os = "linux")]
pub(super) fn processes(number: u64, server: SocketAddr) -> Vec<MountUser> {
    let is_in = |pid: u32| namespace(&pid.to_string()) == Some(number);
    let found: Vec<_> = mount_users::processes().filter(|(pid, _)| is_in(*pid)).collect();
    let is_its = found.iter().any(|(pid, _)| has_mount(&pid.to_string(), server));
    if is_its { found.into_iter().map(MountUser::of).collect() } else { Vec::new() }
}

/// Whether a process in another mount namespace has a mount from `server`. Sees all processes for
/// root, otherwise only those that this user may inspect.
#[cfg(target_os = "linux")]
fn is_used_elsewhere(server: SocketAddr) -> bool {
    let mut seen = vec![namespace("self")];
    mount_users::processes().any(|(pid, _)| {
        let process = pid.to_string();
        let namespace = namespace(&process);
        let is_new = namespace.is_some() && !seen.contains(&namespace);
        if is_new {
            seen.push(namespace);
        }
        is_new && has_mount(&process, server)
    })
}

#[cfg(target_os = "linux")]
fn has_mount(process: &str, server: SocketAddr) -> bool {
    let mounted = super::table::mounted_for(process).unwrap_or_default();
    mounted.iter().any(|mounted| mounted.server == Some(server))
}

/// The inode number of a process's mount namespace, if this user may see it.
#[cfg(target_os = "linux")]
pub(super) fn namespace(process: &str) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(format!("/proc/{process}/ns/mnt")).ok()?;
    Some(found.ino())
}

/// Always empty: only Linux has mount namespaces.
#[cfg(not(target_os = "linux"))]
pub(super) fn processes(_number: u64, _server: SocketAddr) -> Vec<MountUser> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
fn is_used_elsewhere(_server: SocketAddr) -> bool {
    false
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_runs_has_started() {
        let pid = std::process::id();
        let ours = started(pid).unwrap();
        assert!(ours > 0);
        let mut child = Command::new("sleep").arg("20").spawn().unwrap();
        assert!(started(child.id()).unwrap() >= ours);
        assert_eq!(stat(child.id()).unwrap().parent, pid);
        child.kill().unwrap();
        // The child is a zombie until it is reaped.
        while started(child.id()).is_some() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }

    #[test]
    fn what_a_child_started_is_found_too() {
        let mut child = Command::new("sh").args(["-c", "sleep 20 & wait"]).spawn().unwrap();
        let sleeps = |holder: &MountUser| stat(holder.pid).is_some_and(|s| s.parent == child.id());
        let mut found = descendants();
        while !found.iter().any(sleeps) {
            found = descendants();
        }
        assert!(found.iter().any(|holder| holder.pid == child.id()));
        let of_child: Vec<MountUser> = found.into_iter().filter(sleeps).collect();
        mount_users::end(&of_child, rustix::process::Signal::KILL);
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn without_the_servers_mount_a_namespace_is_another_one() {
        let number = namespace("self").unwrap();
        assert!(processes(number, "192.0.2.1:1".parse().unwrap()).is_empty());
    }
}
