//! Detects bases and directories of sessions that hang before exports are opened there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use parking_lot::Mutex;

use super::probe_threads::{Asking, NotAsked, ProbeThreads};
use crate::config::{KnownPaths, SoughtPaths};
use crate::workspace::layers;

/// Time that the first path which hangs is waited for.
const FIRST_WAIT: Duration = Duration::from_secs(2);

/// Time that each further one is waited for: most that hang are on one filesystem.
const NEXT_WAIT: Duration = Duration::from_millis(250);

/// Asks bases and directories of sessions whether they answer. What hangs keeps a thread until it
/// answers, and is not asked a second time before. Once several paths of a filesystem hang, the
/// rest of it counts as hanging without being asked.
#[derive(Debug, Clone, Default)]
pub struct BaseProbes {
    threads: Arc<Mutex<ProbeThreads>>,
    /// What was logged last as not asked.
    logged: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// A path, and what it is.
#[derive(Debug, Clone)]
enum Question {
    Dir(PathBuf),
    /// A file of a directory that was asked before: it is not asked if the directory hangs.
    File(PathBuf),
}

impl Question {
    fn path(&self) -> &Path {
        let (Self::Dir(path) | Self::File(path)) = self;
        path
    }

    /// Whether the directory of a file hangs.
    fn is_in(&self, hanging: &BTreeSet<PathBuf>) -> bool {
        match self {
            Self::Dir(_) => false,
            Self::File(file) => file.parent().is_some_and(|dir| hanging.contains(dir)),
        }
    }
}

/// Asks a path.
type Ask<T> = dyn Fn(&Path, &mut Asking) -> Result<T, NotAsked> + Send + Sync;

/// What was asked.
struct Asked<T> {
    answers: Vec<T>,
    /// What has not answered.
    hanging: BTreeSet<PathBuf>,
    /// Those of `hanging` that were not asked.
    not_asked: BTreeSet<PathBuf>,
}

impl BaseProbes {
    /// The bases that do not answer; one that cannot be opened counts as answering. Blocks at most
    /// 18 s in those that hang (2 s, then 250 ms for each of 63), and as long as the others take.
    pub fn hanging(&self, bases: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
        let probe = |base: &Path, asking: &mut Asking| {
            asking.touch_dir(base)?;
            drop(layers::probe(base));
            Ok(())
        };
        self.ask(bases.iter().cloned().map(Question::Dir).collect(), Arc::new(probe)).1
    }

    /// The real paths of these session files and directories, and the directories that do not
    /// answer, those of files among them; of a directory that answers, the files that do not.
    /// Blocks as [`Self::hanging`] does.
    pub fn real_paths(&self, sought: &SoughtPaths) -> KnownPaths {
        let mut by_dir = BTreeMap::<&Path, Vec<&Path>>::new();
        for file in &sought.files {
            by_dir.entry(file.parent().unwrap_or(file)).or_default().push(file);
        }
        for dir in &sought.dirs {
            by_dir.entry(dir).or_default();
        }
        let questions = by_dir.into_iter().flat_map(|(dir, files)| {
            let files = files.into_iter().map(|file| Question::File(file.to_owned()));
            std::iter::once(Question::Dir(dir.to_owned())).chain(files)
        });
        let questions: Vec<_> = questions.collect();
        let dirs = questions.iter().filter(|it| matches!(it, Question::Dir(_)));
        let dirs: BTreeSet<PathBuf> = dirs.map(|it| it.path().to_owned()).collect();
        let find = move |path: &Path, asking: &mut Asking| {
            match dirs.contains(path) {
                true => asking.touch_dir(path)?,
                false => asking.touch_file(path)?,
            }
            Ok((path.to_owned(), asking.real.of(path)))
        };
        let (found, hanging) = self.ask(questions, Arc::new(find));
        KnownPaths::new(found.into_iter().collect(), hanging)
    }

    /// The answers of paths, and those that do not answer.
    fn ask<T: Send + 'static>(
        &self,
        mut left: Vec<Question>,
        ask: Arc<Ask<T>>,
    ) -> (Vec<T>, BTreeSet<PathBuf>) {
        let mut asked =
            Asked { answers: Vec::new(), hanging: BTreeSet::new(), not_asked: BTreeSet::new() };
        let stuck = self.threads.lock().stuck_paths();
        let stuck = left.extract_if(.., |it| stuck.contains(it.path()));
        asked.hanging.extend(stuck.map(|it| it.path().to_owned()));
        loop {
            left.retain(|it| !it.is_in(&asked.hanging));
            if left.is_empty() {
                break;
            }
            let is_any_asked = self.threads.lock().has_room()
                && self.ask_until_one_hangs(&mut left, &ask, &mut asked);
            if !is_any_asked {
                asked.not_asked.extend(left.drain(..).map(|it| it.path().to_owned()));
            }
        }
        let Asked { answers, mut hanging, not_asked } = asked;
        self.tell_of(&not_asked);
        hanging.extend(not_asked);
        (answers, hanging)
    }

    /// Asks on a thread of its own until a path hangs, or all have answered; takes what was asked
    /// from `left`. Returns whether there is a thread.
    fn ask_until_one_hangs<T: Send + 'static>(
        &self,
        left: &mut Vec<Question>,
        ask: &Arc<Ask<T>>,
        asked: &mut Asked<T>,
    ) -> bool {
        let (answers, answered) = channel();
        let thread = self.threads.lock().number();
        let (threads, ask, questions) = (Arc::clone(&self.threads), Arc::clone(ask), left.clone());
        // A thread of its own: while it hangs, no runtime waits for it as it ends.
        let named = std::thread::Builder::new().name("probe-bases".to_owned());
        let spawned = named.spawn(move || {
            let mut asking = Asking::new(Arc::clone(&threads), thread);
            for question in questions {
                threads.lock().ask(thread, question.path());
                let answer = ask(question.path(), &mut asking);
                threads.lock().end(thread);
                if answers.send(answer).is_err() {
                    return;
                }
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread to ask bases whether they answer");
            return false;
        }
        let mut count = 0;
        for question in &*left {
            let path = question.path();
            count += 1;
            let wait = if asked.hanging.is_empty() { FIRST_WAIT } else { NEXT_WAIT };
            let wait = wait.max(self.threads.lock().least_wait(path));
            let answer = loop {
                match answered.recv_timeout(wait) {
                    Ok(answer) => break Some(answer),
                    // If it has answered since, that is received.
                    Err(RecvTimeoutError::Timeout)
                        if !self.threads.lock().set_stuck(thread, path) => {}
                    Err(_) => break None,
                }
            };
            match answer {
                Some(Ok(answer)) => asked.answers.push(answer),
                Some(Err(NotAsked)) => drop(asked.not_asked.insert(path.to_owned())),
                None => {
                    asked.hanging.insert(path.to_owned());
                    break;
                }
            }
        }
        left.drain(..count);
        true
    }

    /// Logs what was not asked, if it is not what was logged last.
    fn tell_of(&self, not_asked: &BTreeSet<PathBuf>) {
        let mut logged = self.logged.lock();
        if let Some(first) = not_asked.first().filter(|_| *logged != *not_asked) {
            let (path, others) = (first.display(), not_asked.len() - 1);
            let what = "was not asked whether it answers, as its filesystem, or one on the way, \
                        has hung elsewhere: it counts as hanging";
            tracing::warn!(%path, others, "{what}");
        }
        logged.clone_from(not_asked);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc::{Receiver, Sender};

    use super::*;

    /// Asks `paths`; those below `/dev` hang until what this returns last is dropped.
    fn ask(probes: &BaseProbes, paths: &[&str]) -> (Vec<PathBuf>, BTreeSet<PathBuf>, Sender<()>) {
        let (release, is_released): (Sender<()>, Receiver<()>) = channel();
        let is_released = Mutex::new(is_released);
        let wait = move |path: &Path, asking: &mut Asking| {
            asking.enter(path)?;
            if path.starts_with("/dev") {
                let _released = is_released.lock().recv();
            }
            Ok(path.to_owned())
        };
        let questions = paths.iter().map(|it| Question::Dir(PathBuf::from(it))).collect();
        let (answers, hanging) = probes.ask(questions, Arc::new(wait));
        (answers, hanging, release)
    }

    #[test]
    fn many_answers_may_take_long_together() {
        let probes = BaseProbes::default();
        let dir = Question::Dir(PathBuf::from("/dir"));
        let files = (0..50).map(|number| Question::File(PathBuf::from(format!("/dir/{number}"))));
        let slow = |path: &Path, _: &mut Asking| {
            std::thread::sleep(Duration::from_millis(50));
            Ok(path.to_owned())
        };
        let (answers, hanging) =
            probes.ask(std::iter::once(dir).chain(files).collect(), Arc::new(slow));
        assert_eq!((answers.len(), hanging), (51, BTreeSet::new()));
    }

    #[test]
    fn what_hangs_in_one_filesystem_keeps_few_threads_and_hides_no_other() {
        let probes = BaseProbes::default();
        let many: Vec<String> = (0..100).map(|number| format!("/dev/{number}")).collect();
        let paths: Vec<&str> = many.iter().map(String::as_str).chain(["/proc/x"]).collect();
        let (answers, hanging, release) = ask(&probes, &paths);
        assert_eq!(answers, [Path::new("/proc/x")]);
        assert_eq!(hanging.len(), 100);
        let stuck = probes.threads.lock().stuck_paths().len();
        assert_eq!(stuck, 4);
        assert_eq!(probes.logged.lock().len(), 96);
        drop(release);
        while !probes.threads.lock().stuck_paths().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_file_that_hangs_hides_no_other_of_its_directory() {
        let probes = BaseProbes::default();
        let (release, is_released) = channel::<()>();
        let is_released = Mutex::new(is_released);
        let wait = move |path: &Path, _: &mut Asking| {
            if path.ends_with("stuck") {
                let _released = is_released.lock().recv();
            }
            Ok(path.to_owned())
        };
        let file = |name: &str| Question::File(Path::new("/dir").join(name));
        let questions =
            vec![Question::Dir("/dir".into()), file("a"), file("stuck"), file("z"), file("z/x")];
        let (answers, hanging) = probes.ask(questions, Arc::new(wait));
        assert_eq!(answers, ["/dir", "/dir/a", "/dir/z", "/dir/z/x"].map(PathBuf::from));
        assert_eq!(hanging, BTreeSet::from([PathBuf::from("/dir/stuck")]));
        drop(release);
    }

    #[test]
    fn what_is_no_directory_answers() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let probes = BaseProbes::default();
        assert_eq!(probes.hanging(&BTreeSet::from([fifo.clone()])), BTreeSet::new());
        let sought = SoughtPaths { dirs: [fifo.clone()].into(), files: [fifo.join("x")].into() };
        let known = probes.real_paths(&sought);
        assert_eq!(known.hanging(), &BTreeSet::new());
        assert_eq!(known.of(&fifo), crate::config::real_path(&fifo));
        assert_eq!(probes.threads.lock().stuck_paths().len(), 0);
    }
}
