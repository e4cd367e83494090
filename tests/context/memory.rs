//! A tree of files in memory that keeps a log of what is done to it, and ends at any step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use acetate::context::{EventStamp, FileError, Files, NodeDirEntry, Reads};

type Result<T> = std::result::Result<T, FileError>;
type Stamps = Box<dyn FnMut() -> acetate::context::Result<EventStamp>>;

/// How much of a file is there whose writing is broken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tear {
    Nothing,
    Empty,
    Half,
}

#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Files with their content, and directories without.
    tree: BTreeMap<String, Option<Vec<u8>>>,
    /// What was done.
    pub log: Vec<String>,
    /// Steps until the end, and what a write leaves then.
    end: Option<(usize, Tear)>,
    clock: Arc<AtomicU64>,
}

impl Memory {
    /// Ends after so many steps.
    pub fn end_after(&mut self, steps: usize, tear: Tear) {
        self.end = Some((steps, tear));
    }

    /// What the next process finds.
    pub fn reborn(&self) -> Self {
        Self { log: Vec::new(), end: None, ..self.clone() }
    }

    /// A copy with a clock of its own.
    pub fn copy(&self) -> Self {
        let clock = Arc::new(AtomicU64::new(self.clock.load(Ordering::SeqCst)));
        Self { clock, ..self.reborn() }
    }

    /// Moments a second apart.
    pub fn stamps(&self) -> Stamps {
        let clock = Arc::clone(&self.clock);
        Box::new(move || {
            let secs = clock.fetch_add(1, Ordering::SeqCst);
            let now = jiff::Timestamp::from_second(1_742_205_600 + i64::try_from(secs).unwrap());
            Ok(EventStamp { now: now.unwrap(), random: secs.to_be_bytes() })
        })
    }

    /// All files, without the directories.
    pub fn files(&self) -> BTreeMap<&str, &[u8]> {
        let files = self.tree.iter();
        files.filter_map(|(path, file)| Some((path.as_str(), file.as_deref()?))).collect()
    }

    /// The paths of all files.
    pub fn paths(&self) -> Vec<&str> {
        self.files().into_keys().collect()
    }

    pub fn text(&self, path: &str) -> &str {
        std::str::from_utf8(self.files()[path]).unwrap()
    }

    /// Writes a file as somebody else would, with the directories above it.
    pub fn put(&mut self, path: &str, content: &str) {
        let (above, _) = path.rsplit_once('/').unwrap();
        self.add_dirs(above);
        self.tree.insert(path.to_owned(), Some(content.as_bytes().to_vec()));
    }

    pub fn take(&mut self, path: &str) {
        self.tree.remove(path).unwrap();
    }

    pub fn has_dir(&self, path: &str) -> bool {
        self.tree.get(path) == Some(&None)
    }

    fn add_dirs(&mut self, path: &str) {
        for (at, _) in path.match_indices('/').skip(1).chain([(path.len(), "")]) {
            let dir = self.tree.entry(path[..at].to_owned()).or_insert(None);
            assert_eq!(*dir, None, "{path}");
        }
    }

    fn children(&self, path: &str) -> Vec<NodeDirEntry> {
        let below = format!("{path}/");
        let inside = self.tree.range(below.clone()..);
        let inside = inside.take_while(|(path, _)| path.starts_with(&below));
        inside
            .filter(|(path, _)| !path[below.len()..].contains('/'))
            .map(|(path, file)| NodeDirEntry {
                name: path[below.len()..].to_owned(),
                is_dir: file.is_none(),
            })
            .collect()
    }

    /// One step more; whether it is done.
    fn step(&mut self, what: String) -> Result<()> {
        if let Some((left, _)) = &mut self.end {
            *left = left.checked_sub(1).ok_or_else(|| failed("the end", false))?;
        }
        self.log.push(what);
        Ok(())
    }
}

fn failed(what: &str, is_unfit: bool) -> FileError {
    FileError { what: what.to_owned(), hint: None, is_unfit }
}

impl Reads for Memory {
    fn read(&mut self, path: &str, most: u64) -> Result<Option<Vec<u8>>> {
        match self.tree.get(path) {
            None => Ok(None),
            Some(Some(content)) if content.len() as u64 <= most => Ok(Some(content.clone())),
            Some(_) => Err(failed(&format!("{path}: is not a file, or too long"), true)),
        }
    }

    fn list(&mut self, path: &str) -> Result<Option<Vec<NodeDirEntry>>> {
        match self.tree.get(path) {
            None => Ok(None),
            Some(None) => Ok(Some(self.children(path))),
            Some(_) => Err(failed(&format!("{path}: is not a directory"), true)),
        }
    }
}

impl Files for Memory {
    fn make_dir(&mut self, path: &str) -> Result<()> {
        self.step(format!("make {path}"))?;
        self.add_dirs(path);
        Ok(())
    }

    fn write(&mut self, path: &str, content: &[u8]) -> Result<()> {
        let (above, _) = path.rsplit_once('/').unwrap();
        assert!(self.has_dir(above), "{path}");
        if let Some((left @ 0, tear)) = self.end {
            let torn = match tear {
                Tear::Nothing => None,
                Tear::Empty => Some(Vec::new()),
                Tear::Half => Some(content[..content.len() / 2].to_vec()),
            };
            if let Some(torn) = torn {
                self.tree.insert(path.to_owned(), Some(torn));
            }
            self.end = Some((left, Tear::Nothing));
        }
        self.step(format!("write {path}"))?;
        self.tree.insert(path.to_owned(), Some(content.to_vec()));
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        self.step(format!("rename {from} {to}"))?;
        let moved = self.tree.get(from).cloned().ok_or_else(|| failed(from, false))?;
        let (above, _) = to.rsplit_once('/').unwrap();
        assert!(self.has_dir(above), "{to}");
        match self.tree.get(to) {
            Some(None) if moved.is_none() && self.children(to).is_empty() => {}
            Some(Some(_)) if moved.is_some() => {}
            None => {}
            _ => return Err(failed(&format!("{to}: is in the way"), false)),
        }
        let below = format!("{from}/");
        let inside: Vec<_> =
            self.tree.keys().filter(|path| path.starts_with(&below)).cloned().collect();
        for path in inside {
            let file = self.tree.remove(&path).unwrap();
            self.tree.insert(format!("{to}/{}", &path[below.len()..]), file);
        }
        self.tree.remove(from);
        self.tree.insert(to.to_owned(), moved);
        Ok(())
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        self.step(format!("remove {path}"))?;
        match self.tree.get(path) {
            Some(Some(_)) => self.tree.remove(path),
            _ => return Err(failed(path, false)),
        };
        Ok(())
    }

    fn remove_dir(&mut self, path: &str) -> Result<()> {
        self.step(format!("remove {path}"))?;
        if !self.has_dir(path) || !self.children(path).is_empty() {
            return Err(failed(path, false));
        }
        self.tree.remove(path);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.step("sync".to_owned())
    }
}
