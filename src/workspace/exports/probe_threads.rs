//! The threads that ask directories and files whether they answer, and how they go there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::host_mounts::{FilesystemId, HostMounts};
use crate::config::RealPaths;

/// Threads that may be stuck in paths; with more, all other paths count as hanging.
pub(super) const MAX_STUCK_PROBES: usize = 64;

/// Threads that may be stuck in one filesystem; with more, the rest of it counts as hanging. More
/// than one, as a single file or disk request may be stuck.
const MAX_STUCK_OF_FILESYSTEM: usize = 4;

/// Stuck threads beyond which a filesystem may have one only: the others are for the rest.
const SCARCE_STUCK_PROBES: usize = 48;

/// A path that takes longer hangs; one that takes less is slow, and is waited for the next time.
const MAX_SLOW: Duration = Duration::from_secs(10);

/// Slow paths that are remembered.
const MAX_SLOW_PATHS: usize = 1024;

/// Symbolic links on the way to one path, as the kernel has it (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// A path that was not asked: the filesystem, or one on the way, has hung.
pub(super) struct NotAsked;

/// What all threads do.
#[derive(Debug, Default)]
pub(super) struct ProbeThreads {
    /// The number of the last one.
    last: u64,
    /// Those that ask now.
    asking: BTreeMap<u64, ProbeThread>,
    /// How long paths took that were slow.
    slow: BTreeMap<PathBuf, Duration>,
}

#[derive(Debug)]
struct ProbeThread {
    /// What it asks.
    path: PathBuf,
    began: Instant,
    /// The filesystem that it waits for.
    at: Option<FilesystemId>,
    /// It has taken too long.
    is_stuck: bool,
}

impl ProbeThreads {
    /// The number of a thread that begins.
    pub(super) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// A thread asks `path` from now on.
    pub(super) fn ask(&mut self, thread: u64, path: &Path) {
        let path = path.to_owned();
        let asked = ProbeThread { path, began: Instant::now(), at: None, is_stuck: false };
        self.asking.insert(thread, asked);
    }

    /// What a thread asked has answered, however late.
    pub(super) fn end(&mut self, thread: u64) {
        let Some(ProbeThread { path, began, is_stuck, .. }) = self.asking.remove(&thread) else {
            return;
        };
        let took = began.elapsed();
        if is_stuck && took <= MAX_SLOW && self.slow.len() < MAX_SLOW_PATHS {
            self.slow.insert(path, took);
        } else if !is_stuck || took > MAX_SLOW {
            self.slow.remove(&path);
        }
    }

    /// A thread has taken too long for `path`; returns whether it still asks it.
    pub(super) fn set_stuck(&mut self, thread: u64, path: &Path) -> bool {
        let asked = self.asking.get_mut(&thread).filter(|it| it.path == path);
        asked.map(|it| it.is_stuck = true).is_some()
    }

    /// The least time to wait for a path that was slow: it may take twice as long.
    pub(super) fn least_wait(&self, path: &Path) -> Duration {
        self.slow.get(path).map_or(Duration::ZERO, |took| *took * 2)
    }

    /// The paths in which a thread is stuck.
    pub(super) fn stuck_paths(&self) -> HashSet<PathBuf> {
        self.stuck().map(|it| it.path.clone()).collect()
    }

    /// Whether a further thread may be stuck.
    pub(super) fn has_room(&self) -> bool {
        self.stuck().count() < MAX_STUCK_PROBES
    }

    fn stuck(&self) -> impl Iterator<Item = &ProbeThread> {
        self.asking.values().filter(|it| it.is_stuck)
    }

    /// Notes that a thread waits for a filesystem next; not if too many are stuck there.
    fn enter(&mut self, thread: u64, at: Option<FilesystemId>) -> Result<(), NotAsked> {
        let most = match self.stuck().count() {
            SCARCE_STUCK_PROBES.. => 1,
            _ => MAX_STUCK_OF_FILESYSTEM,
        };
        // Where the system does not say which it is, each path counts as one of its own.
        if at.is_some() && self.stuck().filter(|it| it.at == at).count() >= most {
            return Err(NotAsked);
        }
        if let Some(asked) = self.asking.get_mut(&thread) {
            asked.at = at;
        }
        Ok(())
    }
}

/// What a thread knows of the way to the paths that it asks.
pub(super) struct Asking {
    threads: Arc<Mutex<ProbeThreads>>,
    thread: u64,
    mounts: HostMounts,
    /// The directories that have answered, and where they are.
    found: HashMap<PathBuf, PathBuf>,
    /// The real paths of what has answered.
    pub(super) real: RealPaths<'static>,
}

impl Asking {
    pub(super) fn new(threads: Arc<Mutex<ProbeThreads>>, thread: u64) -> Self {
        let (mounts, found) = (HostMounts::read(), HashMap::new());
        Self { threads, thread, mounts, found, real: RealPaths::default() }
    }

    /// Must be called before a path without symbolic links is touched.
    pub(super) fn enter(&self, path: &Path) -> Result<(), NotAsked> {
        self.threads.lock().enter(self.thread, self.mounts.of(path))
    }

    /// Waits for the filesystems on the way to a directory, and for its own.
    pub(super) fn touch_dir(&mut self, dir: &Path) -> Result<(), NotAsked> {
        let at = self.walk(dir)?;
        self.enter(&at)?;
        // Its attributes may be cached. What is no directory, such as a FIFO, is not opened by this
        // (O_DIRECTORY: opendir(3)).
        drop(std::fs::read_dir(&at));
        self.found.insert(dir.to_owned(), at);
        Ok(())
    }

    /// Waits for a file, and what it leads to if it is a symbolic link.
    pub(super) fn touch_file(&mut self, file: &Path) -> Result<(), NotAsked> {
        let (Some(dir), Some(name)) = (file.parent(), file.file_name()) else {
            return self.walk(file).map(drop);
        };
        if !self.found.contains_key(dir) {
            let at = self.walk(dir)?;
            self.found.insert(dir.to_owned(), at);
        }
        let at = self.found.get(dir).map_or_else(|| file.to_owned(), |dir| dir.join(name));
        self.enter(&at)?;
        match at.symlink_metadata() {
            Ok(found) if found.is_symlink() => self.walk(&at).map(drop),
            _ => Ok(()),
        }
    }

    /// Where a path leads, as far as it exists. Waits for each directory on the way before a name
    /// is looked up in it: a process can be killed during that wait, but not while it waits for a
    /// name that another process is looking up.
    fn walk(&self, path: &Path) -> Result<PathBuf, NotAsked> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (mut at, mut links) = (PathBuf::from("/"), 0);
        let mut left: Vec<OsString> = reversed(&path);
        self.enter(&at)?;
        while let Some(part) = left.pop() {
            match Path::new(&part).components().next() {
                Some(Component::RootDir) => at = PathBuf::from("/"),
                Some(Component::ParentDir) => {
                    at.pop();
                }
                Some(Component::Normal(name)) => {
                    let next = at.join(name);
                    self.enter(&next)?;
                    let Ok(found) = next.symlink_metadata() else { return Ok(next) };
                    if !found.is_symlink() {
                        at = next;
                        continue;
                    }
                    links += 1;
                    let Ok(target) = next.read_link() else { return Ok(next) };
                    if links > MAX_LINKS {
                        return Ok(next);
                    }
                    left.extend(reversed(&target));
                }
                _ => {}
            }
        }
        Ok(at)
    }
}

/// The components of a path, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| OsStr::to_owned(part.as_os_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a path took that a thread asked; late if it `is_late`.
    fn asked(threads: &mut ProbeThreads, path: &Path, took: u64, is_late: bool) -> Duration {
        let thread = threads.number();
        threads.ask(thread, path);
        assert!(!is_late || threads.set_stuck(thread, path));
        assert!(!threads.set_stuck(thread, "/other".as_ref()));
        assert_eq!(threads.stuck_paths().contains(path), is_late);
        let began = Instant::now().checked_sub(Duration::from_secs(took)).unwrap();
        threads.asking.get_mut(&thread).unwrap().began = began;
        threads.end(thread);
        threads.least_wait(path)
    }

    #[test]
    fn a_late_answer_has_the_path_waited_for_the_next_time() {
        let (mut threads, path) = (ProbeThreads::default(), Path::new("/slow"));
        assert!(asked(&mut threads, path, 3, true) >= Duration::from_secs(6));
        assert_eq!(asked(&mut threads, path, 0, false), Duration::ZERO);
        assert!(asked(&mut threads, path, 3, true) >= Duration::from_secs(6));
        assert_eq!(asked(&mut threads, path, 3600, true), Duration::ZERO);
        assert!(threads.asking.is_empty());
    }

    #[test]
    fn what_is_walked_is_where_links_lead() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("real/sub")).unwrap();
        symlink(top.join("real"), top.join("absolute")).unwrap();
        symlink("absolute/sub", top.join("relative")).unwrap();
        symlink("loop", top.join("loop")).unwrap();
        let asking = Asking::new(Arc::default(), 1);
        let walk = |path: &str| asking.walk(&top.join(path)).ok();
        for path in ["real/sub", "absolute/sub", "relative", "relative/../sub", "./real/./sub"] {
            assert_eq!(walk(path), Some(top.join("real/sub")), "{path}");
        }
        assert_eq!(walk("absolute/none/x"), Some(top.join("real/none")));
        assert_eq!(walk("loop/x"), Some(top.join("loop")));
    }
}
