//! Detects bases and directories of sessions that hang before exports are opened there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::{KnownPaths, RealPaths, SoughtPaths};
use crate::workspace::layers;

/// Time that the first directory which hangs is waited for.
const FIRST_WAIT: Duration = Duration::from_secs(2);

/// Time that each further one is waited for: most directories that hang are on one filesystem.
const NEXT_WAIT: Duration = Duration::from_millis(250);

/// Threads that may be stuck in directories; with more, directories that were not asked count as
/// hanging.
const MAX_STUCK_PROBES: usize = 16;

/// Asks bases and directories of sessions whether they answer. Each that hangs keeps a thread until
/// it answers, and is not asked a second time before.
#[derive(Debug, Clone, Default)]
pub struct BaseProbes {
    asked: Arc<Mutex<AskedDirs>>,
}

/// The directories that are asked now.
#[derive(Debug, Default)]
struct AskedDirs {
    /// The number of the next thread.
    next: u64,
    /// Whether a directory hangs, by the thread that asks it: another one may be asking it too.
    dirs: BTreeMap<(PathBuf, u64), bool>,
}

impl AskedDirs {
    /// Whether a thread is stuck there.
    fn is_stuck(&self, dir: &Path) -> bool {
        let of_dir = self.dirs.range((dir.to_owned(), 0)..=(dir.to_owned(), u64::MAX));
        of_dir.into_iter().any(|(_, is_stuck)| *is_stuck)
    }

    fn stuck(&self) -> usize {
        self.dirs.values().filter(|is_stuck| **is_stuck).count()
    }
}

/// Waits for the filesystems on the way to a directory, from the root on, before a name is looked
/// up in it. A process can be killed during that wait; not while it waits for a name that another
/// process is looking up.
fn touch(dir: &Path) {
    let mut way: Vec<&Path> = dir.ancestors().filter(|it| !it.as_os_str().is_empty()).collect();
    way.reverse();
    for part in way {
        if std::fs::metadata(part).is_err() {
            return;
        }
    }
    // Its attributes may be cached.
    drop(std::fs::File::open(dir));
}

/// What a probe asks of a directory.
type Ask<T> = dyn Fn(&Path) -> T + Send + Sync;

impl BaseProbes {
    /// The bases that do not answer; one that cannot be opened counts as answering. Blocks at most
    /// 6 s in those that hang (2 s, then 250 ms for each of 15), and as long as the others take.
    pub fn hanging(&self, bases: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
        let probe = |base: &Path| {
            touch(base);
            drop(layers::probe(base));
        };
        self.ask(bases.iter().cloned().collect(), Arc::new(probe)).1
    }

    /// The real paths of these session files and directories, and the directories that do not
    /// answer, those of files among them. Blocks as [`Self::hanging`] does.
    pub fn real_paths(&self, sought: &SoughtPaths) -> KnownPaths {
        let mut by_dir = BTreeMap::<PathBuf, Vec<PathBuf>>::new();
        for file in &sought.files {
            let dir = file.parent().unwrap_or(file);
            by_dir.entry(dir.to_owned()).or_default().push(file.clone());
        }
        for dir in &sought.dirs {
            by_dir.entry(dir.clone()).or_default().push(dir.clone());
        }
        let dirs = by_dir.keys().cloned().collect();
        let find = move |dir: &Path| {
            touch(dir);
            let mut real = RealPaths::default();
            let files = by_dir.get(dir).into_iter().flatten();
            files.map(|file| (file.clone(), real.of(file))).collect::<Vec<_>>()
        };
        let (found, hanging) = self.ask(dirs, Arc::new(find));
        KnownPaths::new(found.into_iter().flatten().collect(), hanging)
    }

    /// The answers of directories, and those that do not answer.
    fn ask<T: Send + 'static>(
        &self,
        mut left: Vec<PathBuf>,
        ask: Arc<Ask<T>>,
    ) -> (Vec<T>, BTreeSet<PathBuf>) {
        let (mut answers, mut hanging) = (Vec::new(), BTreeSet::new());
        {
            let asked = self.asked.lock();
            hanging.extend(left.extract_if(.., |dir| asked.is_stuck(dir)));
        }
        while !left.is_empty() {
            if self.asked.lock().stuck() >= MAX_STUCK_PROBES {
                hanging.extend(left);
                break;
            }
            let wait = if hanging.is_empty() { FIRST_WAIT } else { NEXT_WAIT };
            let before = answers.len();
            self.ask_until_one_hangs(left.clone(), wait, Arc::clone(&ask), &mut answers);
            let answered = answers.len() - before;
            hanging.extend(left.get(answered).cloned());
            left.drain(..left.len().min(answered + 1));
        }
        (answers, hanging)
    }

    /// The answers of `dirs`, in their order, until one takes longer than `wait`.
    fn ask_until_one_hangs<T: Send + 'static>(
        &self,
        dirs: Vec<PathBuf>,
        wait: Duration,
        ask: Arc<Ask<T>>,
        into: &mut Vec<T>,
    ) {
        let (answers, answered) = channel();
        let (asked, left) = (Arc::clone(&self.asked), dirs.clone());
        let number = {
            let mut asked = asked.lock();
            asked.next += 1;
            asked.next
        };
        // A thread of its own: while it hangs, no runtime waits for it as it ends.
        let asking = std::thread::Builder::new().name("probe-bases".to_owned());
        let spawned = asking.spawn(move || {
            for dir in dirs {
                let key = (dir, number);
                asked.lock().dirs.insert(key.clone(), false);
                let answer = ask(&key.0);
                asked.lock().dirs.remove(&key);
                if answers.send(answer).is_err() {
                    return;
                }
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread to ask bases whether they answer");
            return;
        }
        for dir in left {
            match answered.recv_timeout(wait) {
                Ok(answer) => into.push(answer),
                Err(_) => {
                    let mut asked = self.asked.lock();
                    // It may have answered since.
                    if let Some(is_stuck) = asked.dirs.get_mut(&(dir, number)) {
                        *is_stuck = true;
                    }
                    return;
                }
            }
        }
    }
}
