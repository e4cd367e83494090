//! A session's life: random operations, each also done on the reference, with a mark on the
//! disk's record before it is asked for and when it is answered.

use std::sync::Arc;

use acetate::vfs::{
    CreateHow, FileId, FileKind, FsError, Locator, NewNode, Stability, Vfs, WriteVerifier,
};
use bytes::Bytes;
use tokio::runtime::Runtime;

use crate::disk::{Mark, Medium};
use crate::ground::{Ground, LARGE, LARGE_BYTES, SESSION};
use crate::random::Random;
use crate::reference::{Reference, join};
use crate::support::client::{Client, mode, size};
use crate::support::served::{Served, runtime};
use crate::support::tree::{Object, Tree, assert_same, read_tree};

/// Names that operations choose from.
const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"\xff\x01"];

/// Operations at once, at most.
const MOST_AT_ONCE: usize = 6;

/// Writes that fill the log once, and bytes of each.
const LOG_WRITES: usize = 40;
const LOG_WRITE_BYTES: usize = 1 << 20;

/// A session that is served and changed.
pub struct Life<'a> {
    ground: &'a Ground,
    pub medium: Medium,
    served: Option<Served>,
    runtime: Arc<Runtime>,
    random: Random,
    strict: bool,
    boot: u64,
    /// What the reference was after each operation; the last one is now.
    pub states: Vec<Reference>,
    /// The verifier of all answers.
    pub verifier: WriteVerifier,
    /// Numbers that clients were given, by the state in which they first were.
    pub seen: Vec<(usize, FileId)>,
    /// What was done, for whoever reads of a failure.
    pub story: Vec<String>,
}

/// How a life begins.
pub struct Birth {
    pub medium: Medium,
    pub reference: Reference,
    pub strict: bool,
    pub boot: u64,
    pub seed: u64,
}

/// A change among several at once.
struct Planned {
    shown: String,
    does: Does,
    expected: Result<(), FsError>,
}

enum Does {
    Write(Locator, u64, Bytes, Stability),
    Truncate(Locator, u64),
    Chmod(Locator, u32),
}

/// Whether `tree` is what the reference says.
pub fn is_state(state: &Reference, tree: &Tree) -> bool {
    let named = state.names.iter().filter(|(path, _)| !path.is_empty());
    tree.len() + 1 == state.names.len()
        && named
            .zip(tree)
            .all(|((path, id), (found, object))| path == found && state.nodes[id].object == *object)
}

impl<'a> Life<'a> {
    /// Begins with what is on the medium, which must hold the tree of `reference`.
    pub fn new(ground: &'a Ground, birth: Birth) -> Self {
        let Birth { medium, reference, strict, boot, seed } = birth;
        let runtime = runtime();
        let opened = ground.serve(&medium.path(SESSION), boot, strict, &runtime);
        let (epoch, served) = opened.unwrap();
        Self {
            ground,
            medium,
            served: Some(served),
            runtime,
            random: Random::new(seed),
            strict,
            boot,
            states: vec![reference],
            verifier: WriteVerifier(epoch.to_be_bytes()),
            seen: Vec::new(),
            story: Vec::new(),
        }
    }

    pub fn client(&self) -> Client {
        self.served.as_ref().unwrap().root.clone()
    }

    fn now(&self) -> &Reference {
        self.states.last().unwrap()
    }

    fn mark(&self, mark: Mark) {
        self.medium.disk.mark(mark);
    }

    // What is worked on.

    fn existing(&mut self) -> Vec<u8> {
        let at = self.random.below(self.now().names.len());
        self.now().names.keys().nth(at).unwrap().clone()
    }

    fn place(&mut self) -> Vec<u8> {
        let dirs = self.now().dirs();
        let dir = self.random.pick(&dirs).clone();
        join(&dir, NAMES[self.random.below(NAMES.len())])
    }

    fn existing_or_place(&mut self) -> Vec<u8> {
        if self.random.below(6) > 0 { self.existing() } else { self.place() }
    }

    /// The object's handle: as it was first seen, if it was, so that no lookup helps.
    fn handle(&mut self, path: &[u8]) -> Locator {
        let known = self.states.last_mut().unwrap().node(path).handle.clone();
        known.unwrap_or_else(|| self.client().at(path))
    }

    fn stability(&mut self) -> Stability {
        match self.random.below(16) {
            0 => Stability::FileSync,
            1 => Stability::DataSync,
            _ => Stability::Unstable,
        }
    }

    // What is done.

    /// Does one random thing.
    pub fn step(&mut self) {
        match self.random.below(56) {
            0..4 => self.make(FileKind::Regular),
            4..8 => self.make(FileKind::Directory),
            8 => self.make(FileKind::Symlink),
            9..17 => self.alter(),
            17..21 => {
                let path = self.existing_or_place();
                self.change("REMOVE", &path, |ours| ours.remove(&path), |r| r.remove(&path));
            }
            21..24 => {
                let path = self.existing_or_place();
                self.change("RMDIR", &path, |ours| ours.rmdir(&path), |r| r.rmdir(&path));
            }
            24..31 => {
                let from = self.existing_or_place();
                let to = if self.random.below(4) == 0 { self.existing() } else { self.place() };
                if !from.is_empty() && !to.is_empty() {
                    let what = format!("RENAME {} to", from.escape_ascii());
                    self.change(&what, &to, |c| c.rename(&from, &to), |r| r.rename(&from, &to));
                }
            }
            31..33 => {
                let (object, to) = (self.existing(), self.place());
                let what = format!("LINK {} as", object.escape_ascii());
                self.change(&what, &to, |c| c.link(&object, &to), |r| r.link(&object, &to));
            }
            33..41 => drop(self.several()),
            41..46 => self.commit(),
            46..48 => self.outsider(),
            48 => self.restart(),
            49 => self.die(),
            _ => self.copy_on(),
        }
    }

    /// Lets the background copy some of what copy-up left to it, which nobody can see.
    fn copy_on(&mut self) {
        let client = self.client();
        let pieces = self.random.below(8) + 1;
        for _ in 0..pieces {
            self.runtime.block_on(client.overlay.copy_piece()).unwrap();
        }
        self.story.push(format!("copied on, {pieces} pieces"));
    }

    /// Does one thing on both sides.
    fn change(
        &mut self,
        what: &str,
        path: &[u8],
        ours: impl FnOnce(&Client) -> Result<(), FsError>,
        theirs: impl FnOnce(&mut Reference) -> Result<(), FsError>,
    ) {
        if path.is_empty() {
            return;
        }
        let shown = format!("{what} {}", path.escape_ascii());
        let mut next = self.now().clone();
        let theirs = theirs(&mut next);
        let number = self.states.len();
        self.mark(Mark::Issued(number));
        let ours = ours(&self.client());
        assert_eq!(ours, theirs, "{shown}, after {:#?}", self.story);
        self.states.push(next);
        self.answered(number, self.strict && ours.is_ok());
        self.story.push(shown);
    }

    fn answered(&self, state: usize, stable: bool) {
        self.mark(Mark::Answered(state));
        if stable {
            self.mark(Mark::Stable(state));
        }
    }

    fn make(&mut self, kind: FileKind) {
        let path = self.place();
        self.make_at(kind, path);
    }

    fn make_at(&mut self, kind: FileKind, path: Vec<u8>) {
        let content = if kind == FileKind::Symlink { b"a/b".to_vec() } else { Vec::new() };
        let bits = if kind == FileKind::Symlink { 0o777 } else { 0o640 };
        let mut made = None;
        let create = |client: &Client| {
            let answer = match kind {
                FileKind::Regular => client.create(&path, CreateHow::Guarded(mode(bits))),
                FileKind::Directory => client.make(&path, NewNode::Directory, mode(bits)),
                _ => client.symlink(&content, &path),
            };
            made = answer.as_ref().ok().map(|made| made.object.clone());
            answer.map(|_| ())
        };
        let object = Object { kind, mode: bits, content: content.clone() };
        self.change(&format!("make {kind:?}"), &path, create, |r| r.create(&path, object));
        if let Some(made) = made {
            let id = made.fileid();
            assert!(self.seen.iter().all(|(_, seen)| *seen != id), "a number twice: {made:?}");
            self.seen.push((self.states.len() - 1, id));
            self.states.last_mut().unwrap().node(&path).handle = Some(made);
        }
    }

    /// A change of content or attributes of something that exists.
    fn plan(&mut self, next: &mut Reference) -> Planned {
        let path = if self.random.below(4) == 0 && next.names.contains_key(LARGE.as_bytes()) {
            LARGE.as_bytes().to_vec()
        } else {
            self.existing()
        };
        let at = self.handle(&path);
        let end = if path == LARGE.as_bytes() { LARGE_BYTES } else { 9000 };
        let offset = self.random.below(end);
        let name = path.escape_ascii();
        match self.random.below(8) {
            0 => {
                let bits = self.random.below(0o1000) as u32;
                let expected = next.chmod(&path, bits);
                let shown = format!("chmod {bits:o} {name}");
                Planned { shown, does: Does::Chmod(at, bits), expected }
            }
            1 => {
                let expected = next.truncate(&path, offset);
                let shown = format!("truncate {name} to {offset}");
                Planned { shown, does: Does::Truncate(at, offset as u64), expected }
            }
            _ => {
                let most = *self.random.pick(&[10, 5000, 50_000]);
                let count = self.random.below(most) + 1;
                let data = Bytes::from(vec![self.random.next() as u8; count]);
                let expected = next.write(&path, offset, &data);
                let stability = self.stability();
                let shown = format!("WRITE {name} {offset}+{count} {stability:?}");
                Planned { shown, does: Does::Write(at, offset as u64, data, stability), expected }
            }
        }
    }

    fn alter(&mut self) {
        let mut next = self.now().clone();
        let planned = self.plan(&mut next);
        self.at_once(vec![planned], vec![next]);
    }

    /// Several at once, so that they share a batch.
    fn several(&mut self) -> usize {
        let (mut plans, mut states) = (Vec::new(), Vec::new());
        let mut next = self.now().clone();
        for _ in 0..self.random.below(MOST_AT_ONCE) + 1 {
            plans.push(self.plan(&mut next));
            states.push(next.clone());
        }
        self.at_once(plans, states)
    }

    /// Does what was planned, all at once; `states` holds the reference after each. Returns the
    /// state after the last that was answered.
    fn at_once(&mut self, plans: Vec<Planned>, states: Vec<Reference>) -> usize {
        let first = self.states.len();
        self.mark(Mark::Issued(first + states.len() - 1));
        self.states.extend(states);
        let client = self.client();
        let (strict, verifier) = (self.strict, self.verifier);
        let mut tasks = Vec::new();
        if self.random.below(3) == 0 {
            let overlay = Arc::clone(&client.overlay);
            // It fails where the disk dies meanwhile.
            drop(self.runtime.spawn(async move { overlay.copy_piece().await.is_ok() }));
        }
        for (at, plan) in plans.into_iter().enumerate() {
            self.story.push(format!("{} (with {} before)", plan.shown, at));
            let (client, disk) = (client.clone(), Arc::clone(&self.medium.disk));
            tasks.push(self.runtime.spawn(async move {
                let (result, stable) = perform(&client, plan.does, verifier).await;
                if result.is_ok() {
                    disk.mark(Mark::Answered(first + at));
                    if stable || strict {
                        disk.mark(Mark::Stable(first + at));
                    }
                }
                (result, plan.expected, plan.shown)
            }));
        }
        let mut last = first - 1;
        for (at, task) in tasks.into_iter().enumerate() {
            let (ours, theirs, shown) = self.runtime.block_on(task).unwrap();
            if ours == theirs {
                last = first + at;
            } else {
                assert!(self.medium.disk.is_dead(), "{shown}: {ours:?}, not {theirs:?}");
            }
        }
        last
    }

    /// A directory that is kept, and then another one at its place: the two trees are the same,
    /// and only the handles tell them apart.
    pub fn replace_directory(&mut self) {
        let path = b"replaced".to_vec();
        self.make_at(FileKind::Directory, path.clone());
        self.commit();
        self.change("RMDIR", &path, |ours| ours.rmdir(&path), |r| r.rmdir(&path));
        self.make_at(FileKind::Directory, path);
    }

    /// Writes over a file so often that the log is folded into the database, and starts over.
    pub fn fill_log(&mut self) {
        for number in 0..LOG_WRITES {
            self.write_over(number % 2 * LOG_WRITE_BYTES, LOG_WRITE_BYTES);
            if number % 7 == 0 {
                self.commit();
            }
        }
    }

    /// Writes so many bytes at an offset of a file.
    pub fn write_over(&mut self, offset: usize, bytes: usize) {
        let path = b"c".to_vec();
        let data = Bytes::from(vec![self.random.next() as u8; bytes]);
        let mut next = self.now().clone();
        let expected = next.write(&path, offset, &data);
        let at = self.handle(&path);
        let does = Does::Write(at, offset as u64, data, Stability::Unstable);
        let shown = format!("{bytes} bytes at {offset}");
        self.at_once(vec![Planned { shown, does, expected }], vec![next]);
    }

    /// COMMIT: everything that was answered before is stable.
    fn commit(&mut self) {
        let state = self.states.len() - 1;
        let client = self.client();
        let answer = client.wait(client.overlay.commit(&client.caller, &Locator::ROOT));
        assert_eq!(answer.result, Ok(self.verifier));
        self.mark(Mark::Stable(state));
        self.story.push("COMMIT".to_owned());
    }

    /// Another program: it writes a row of its own, or folds the log into the database.
    fn outsider(&mut self) {
        let conn = rusqlite::Connection::open(self.medium.path(SESSION)).unwrap();
        let how = *self.random.pick(&["", "PASSIVE", "FULL", "RESTART", "TRUNCATE"]);
        if how.is_empty() {
            let row = "INSERT OR REPLACE INTO kv_store (key, value) VALUES ('k', ?1)";
            conn.execute(row, [self.random.next().cast_signed()]).unwrap();
        } else {
            let checkpoint = format!("PRAGMA wal_checkpoint({how})");
            conn.query_row(&checkpoint, [], |_| Ok(())).unwrap();
        }
        self.story.push(format!("another program: {how}"));
    }

    /// A clean end, and a new beginning.
    fn restart(&mut self) {
        self.served.take().unwrap().stop().unwrap();
        self.mark(Mark::Stable(self.states.len() - 1));
        self.story.push("restart".to_owned());
        self.open();
    }

    /// kill -9, between two operations or in the midst of some.
    fn die(&mut self) {
        let mut answered = self.states.len() - 1;
        if self.random.below(2) == 0 {
            let changes = self.random.below(12) as u32 + 1;
            self.medium.disk.kill_after(changes);
            answered = self.several();
        }
        let issued = self.states.len() - 1;
        self.medium.disk.kill();
        // It cannot end well.
        let _ = self.served.take().unwrap().stop();
        self.medium.disk.revive();
        self.story.push(format!("kill -9, {} not answered", issued - answered));
        self.open();
        let tree = read_tree(&self.client());
        let found = (answered..=issued).rev().find(|at| is_state(&self.states[*at], &tree));
        let Some(found) = found else {
            let what = format!("after kill -9: {:#?}", self.story);
            return assert_same(&tree, &self.now().tree(), &what);
        };
        let reference = self.states[found].clone();
        let number = self.states.len();
        self.mark(Mark::Issued(number));
        self.states.push(reference);
        self.mark(Mark::Answered(number));
    }

    /// Opens the session again in the same boot: its verifier stays.
    fn open(&mut self) {
        let path = self.medium.path(SESSION);
        let opened = self.ground.serve(&path, self.boot, self.strict, &self.runtime);
        let (epoch, served) = opened.unwrap_or_else(|error| panic!("{error}: {:#?}", self.story));
        assert_eq!(WriteVerifier(epoch.to_be_bytes()), self.verifier, "{:#?}", self.story);
        self.served = Some(served);
    }

    /// Ends without a word, as at a power cut; the medium stays.
    pub fn end(mut self) -> (Medium, Vec<Reference>) {
        self.medium.disk.kill();
        let _ = self.served.take().unwrap().stop();
        (self.medium, self.states)
    }
}

/// Whether it was done, and is stable.
async fn perform(
    client: &Client,
    does: Does,
    verifier: WriteVerifier,
) -> (Result<(), FsError>, bool) {
    let (overlay, caller) = (&client.overlay, &client.caller);
    match does {
        Does::Chmod(at, bits) => {
            (overlay.setattr(caller, &at, mode(bits), None).await.result, false)
        }
        Does::Truncate(at, bytes) => {
            (overlay.setattr(caller, &at, size(bytes), None).await.result, false)
        }
        Does::Write(at, offset, data, stability) => {
            let outcome = overlay.write(caller, &at, offset, data, stability).await;
            let stable = outcome.result.as_ref().is_ok_and(|w| w.committed != Stability::Unstable);
            let result = outcome.result.map(|written| {
                assert_eq!(written.verifier, verifier);
            });
            (result, stable)
        }
    }
}
