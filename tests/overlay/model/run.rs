//! Runs a case on both sides.

use acetate::delta::{CheckpointId, RestoreOutcome, RestoreRequest};
use acetate::inspect::opened::OpenSession;
use acetate::inspect::seal::{SealPlan, plan, seal};
use acetate::overlay::CopyLimits;
use acetate::vfs::{Attr, CreateHow, FileKind, FsError, Locator, Stability, Time};

use super::forks::Fork;
use super::reference::{Reference, join};
use super::{Op, Pick, Place};
use crate::support::client::{mode, size};
use crate::support::counted::{AMPLE, assert_counted};
use crate::support::fixture::FEW_NAMES;
use crate::support::tree::{Object, Tree, assert_same, read_tree};
use crate::support::world::{Setup, World};
use crate::support::{applied, exported, given_up, patched, predicted, spec_reader};

/// Files that are copied up in the background, by path and size.
const LARGE: &[(&str, usize)] = &[("a/b/large", 2000), ("b/large", 1025), ("large", 2800)];

/// Small enough for these.
const COPY_UP: CopyLimits = CopyLimits::of(700, CHUNK_BYTES);

/// The names in it that are one object.
const LINKED: &[&[&str]] = &[&["a/a", "a/e", "b/e"], &["c", "d/a"]];

/// Names that operations choose from.
const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"\xff\x01"];

/// Small, so that small files have many chunks.
const CHUNK_BYTES: u64 = 512;

/// Both sides.
pub struct Case {
    pub world: World,
    /// The tree before anything has changed.
    base: Tree,
    pub reference: Reference,
    /// The checkpoints, with the reference at their moments.
    pub checkpoints: Vec<(CheckpointId, Reference)>,
    pub fork: Option<Fork>,
    /// The number of forks so far.
    pub forks: u32,
}

/// Runs the operations; panics where the sides differ.
pub fn run(ops: &[Op]) {
    let mut case = ran(ops);
    if ops.len().is_multiple_of(2) {
        case.seal(ops.len().is_multiple_of(4));
    }
    let world = &case.world;
    patched::assert_applies(&world.session(), &world.base(), &read_tree(world));
    // These run programs, which takes longer than all of the above.
    if ops.len().is_multiple_of(4) {
        exported::assert_exports(&world.session(), &world.base());
    }
    applied::assert_makes_merged(&world.session(), &world.base());
    // Either comes to an end with nothing left to tell.
    if ops.len().is_multiple_of(3) {
        applied::assert_is_let_go(&mut case.world);
    } else {
        case.give_up(ops.len());
    }
}

/// Runs operations with checkpoints and forks; at the end, a fork is merged, and each checkpoint is
/// restored.
pub fn run_restores(ops: &[Op]) {
    let mut case = ran(ops);
    case.merge(ops.len() as u16);
    case.fork = None;
    for index in (0..case.checkpoints.len()).rev() {
        case.restore(index);
        assert_counted(&case.world);
    }
    let world = &case.world;
    patched::assert_applies(&world.session(), &world.base(), &read_tree(world));
    applied::assert_makes_merged(&world.session(), &world.base());
    case.reopen();
}

/// Both sides after the operations.
fn ran(ops: &[Op]) -> Case {
    let large = LARGE.iter().map(|(path, bytes)| {
        let content: String = (0..*bytes).map(|i| char::from(b'a' + (i / 100) as u8)).collect();
        format!("{path} \"{content}\"\n")
    });
    let base = Some(FEW_NAMES.to_owned() + &large.collect::<String>());
    let setup = Setup { base, chunk_bytes: CHUNK_BYTES, copy_up: COPY_UP, ..Setup::default() };
    let world = World::with(setup);
    let base = read_tree(&world);
    let reference = Reference::new(base.clone(), LINKED);
    let mut case = Case { world, base, reference, checkpoints: Vec::new(), fork: None, forks: 0 };
    case.compare();
    case.world.wait(case.world.overlay.set_limits(|_| AMPLE)).unwrap();
    for op in ops {
        case.step(op);
        assert_counted(&case.world);
    }
    case.compare();
    assert_eq!(case.world.finish_copies(), 0);
    case.reopen();
    case.compare();
    case
}

impl Case {
    /// Gives up something, then all: what is left must be the base.
    fn give_up(&mut self, which: usize) {
        let paths: Vec<_> = self.reference.names.keys().cloned().collect();
        for step in 1..=3 {
            given_up::assert_given_up(&self.world, &paths[which * step * 7 % paths.len()]);
            assert_counted(&self.world);
        }
        self.world.reopen();
        given_up::assert_given_up(&self.world, b"/");
        assert_same(&read_tree(&self.world), &self.base, "nothing is left of the session");
        assert_eq!(self.world.sql_value::<i64>("SELECT count(*) FROM fs_inode"), 1);
    }

    fn existing(&self, index: u16) -> Vec<u8> {
        let paths: Vec<_> = self.reference.names.keys().collect();
        paths[usize::from(index) % paths.len()].clone()
    }

    fn place(&self, place: Place) -> Vec<u8> {
        let dirs = self.reference.dirs();
        let dir = &dirs[usize::from(place.dir) % dirs.len()];
        join(dir, NAMES[usize::from(place.name) % NAMES.len()])
    }

    fn pick(&self, pick: Pick) -> Vec<u8> {
        match pick {
            Pick::Existing(index) => self.existing(index),
            Pick::Place(place) => self.place(place),
        }
    }

    /// The object's handle: as it was first seen, if it was, so that no lookup helps.
    fn handle(&mut self, path: &[u8]) -> Locator {
        match self.reference.node(path).handle.clone() {
            Some(handle) => handle,
            None => self.world.at(path),
        }
    }

    pub fn step(&mut self, op: &Op) {
        match op {
            Op::Create(place) => self.make(*place, FileKind::Regular, 0o640),
            Op::Mkdir(place) => self.make(*place, FileKind::Directory, 0o750),
            Op::Symlink(place) => self.make(*place, FileKind::Symlink, 0o777),
            Op::Write { .. } | Op::Truncate { .. } | Op::Chmod { .. } => self.alter(op),
            Op::Remove(pick) => {
                let path = self.pick(*pick);
                if !path.is_empty() {
                    let (ours, theirs) = (self.world.remove(&path), self.reference.remove(&path));
                    assert_eq!(ours, theirs, "REMOVE {}", path.escape_ascii());
                }
            }
            Op::Rmdir(pick) => {
                let path = self.pick(*pick);
                if !path.is_empty() {
                    let (ours, theirs) = (self.world.rmdir(&path), self.reference.rmdir(&path));
                    assert_eq!(ours, theirs, "RMDIR {}", path.escape_ascii());
                }
            }
            Op::Rename(from, to) => self.rename(&self.pick(*from), &self.place(*to)),
            Op::Replace(from, to) => self.rename(&self.pick(*from), &self.existing(*to)),
            Op::Link(object, to) => {
                let (object, to) = (self.existing(*object), self.place(*to));
                let ours = self.world.link(&object, &to);
                let (object_shown, to_shown) = (object.escape_ascii(), to.escape_ascii());
                let theirs = self.reference.link(&object, &to);
                assert_eq!(ours, theirs, "LINK {object_shown} {to_shown}");
            }
            Op::Lookup(place) => {
                let path = self.place(*place);
                let ours = self.world.find(&path).map(|found| found.attr.kind);
                let theirs = self.reference.kind(&path).ok_or(FsError::NotFound);
                assert_eq!(ours, theirs, "LOOKUP {}", path.escape_ascii());
            }
            Op::Read(index) => {
                let path = self.existing(*index);
                let handle = self.handle(&path);
                let object = &self.reference.node(&path).object;
                let expected = match object.kind {
                    FileKind::Regular => Ok(object.content.clone()),
                    _ => Err(FsError::Invalid),
                };
                let shown = path.escape_ascii();
                assert_eq!(self.world.read_all(&handle), expected, "READ {shown}");
            }
            Op::Copy(pieces) => drop(self.world.copy_pieces(usize::from(*pieces))),
            Op::Reopen => self.reopen(),
            Op::Seal(for_agentfs) => self.seal(*for_agentfs),
            Op::Checkpoint => self.checkpoint(),
            Op::Restore(index) => self.restore(usize::from(*index)),
            Op::RemoveCheckpoint(index) if !self.checkpoints.is_empty() => {
                let at = usize::from(*index) % self.checkpoints.len();
                let (id, _) = self.checkpoints.remove(at);
                assert!(self.world.wait(self.world.overlay.remove_checkpoint(id)).unwrap());
            }
            Op::RemoveCheckpoint(_) => {}
            Op::Undo => self.undo(),
            Op::Fork(at) => self.fork(*at),
            Op::InFork(op) => self.step_in_fork(op),
            Op::Merge(sides) => self.merge(*sides),
            Op::Compare => self.compare(),
        }
    }

    fn make(&mut self, place: Place, kind: FileKind, bits: u32) {
        let path = self.place(place);
        let content = if kind == FileKind::Symlink { b"a/b".to_vec() } else { Vec::new() };
        let ours = match kind {
            FileKind::Regular => self.world.create(&path, CreateHow::Guarded(mode(bits))),
            FileKind::Directory => {
                self.world.make(&path, acetate::vfs::NewNode::Directory, mode(bits))
            }
            _ => self.world.symlink(&content, &path),
        };
        let handle = ours.as_ref().ok().map(|made| made.object.clone());
        let theirs = self.reference.create(&path, Object { kind, mode: bits, content });
        assert_eq!(ours.map(|_| ()), theirs, "make {kind:?} {}", path.escape_ascii());
        if theirs.is_ok() {
            self.reference.node(&path).handle = handle;
        }
    }

    fn alter(&mut self, op: &Op) {
        let (Op::Write { object, .. } | Op::Truncate { object, .. } | Op::Chmod { object, .. }) =
            op
        else {
            return;
        };
        let path = self.existing(*object);
        let handle = self.handle(&path);
        let (ours, theirs) = match *op {
            Op::Write { offset, len, byte, .. } => {
                let data = vec![byte; usize::from(len)];
                let ours = self.world.write_to(&handle, offset.into(), &data, Stability::Unstable);
                let theirs = self.reference.write(&path, offset.into(), &data);
                (ours.result.map(|_| ()), theirs)
            }
            Op::Truncate { size: bytes, .. } => {
                let ours = self.world.set(&handle, size(bytes.into()), None);
                (ours.result, self.reference.truncate(&path, bytes.into()))
            }
            Op::Chmod { mode: bits, .. } => {
                let ours = self.world.set(&handle, mode(bits.into()), None);
                (ours.result, self.reference.chmod(&path, bits.into()))
            }
            _ => return,
        };
        assert_eq!(ours, theirs, "{op:?} of {}", path.escape_ascii());
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) {
        if from.is_empty() || to.is_empty() {
            return;
        }
        let (ours, theirs) = (self.world.rename(from, to), self.reference.rename(from, to));
        assert_eq!(ours, theirs, "RENAME {} {}", from.escape_ascii(), to.escape_ascii());
    }

    fn reopen(&mut self) {
        self.world.reopen();
        // The specification has neither redirects nor opaque directories, takes what is not copied
        // yet for holes, and knows a base file's other names for no more than files of their own.
        let beyond: i64 = self.world.sql_value(
            "SELECT (SELECT count(*) FROM acetate_redirect) +
               (SELECT count(*) FROM acetate_opaque) +
               (SELECT count(*) FROM acetate_copy_up) +
               (SELECT count(*) FROM acetate_origin o JOIN fs_inode i ON i.ino = o.delta_ino
                WHERE o.nlink > 1 AND i.mode & 61440 <> 16384)",
        );
        if beyond == 0 {
            let theirs = spec_reader::read_tree(&self.world.session(), &self.world.base());
            assert_same(&theirs, &self.reference.tree(), "as the specification reads it");
        }
    }

    /// Whatever was only ours to know, a reader that knows only the specification sees now; and
    /// nothing else has changed.
    fn seal(&mut self, for_agentfs: bool) {
        self.compare();
        self.world.close();
        let (session, base) = (self.world.session(), self.world.base());
        let sealed = seal(&session, Some(&base), for_agentfs, &mut |_, _| ()).unwrap();
        assert_eq!(sealed.unfinished, 0);
        let left = plan(&OpenSession::open(&session, Some(&base)).unwrap()).unwrap();
        assert_eq!(left, SealPlan::default());
        let theirs = spec_reader::read_dense_tree(&session, &base);
        assert_same(&theirs, &self.reference.tree(), "as the specification reads it");
        self.world.open_again();
        self.compare();
    }

    pub fn checkpoint(&mut self) {
        let made = self.world.checkpoint();
        self.checkpoints.push((made.id, self.reference.clone()));
    }

    pub fn restore(&mut self, index: usize) {
        if self.checkpoints.is_empty() {
            return;
        }
        let (to, then) = self.checkpoints[index % self.checkpoints.len()].clone();
        let restore = RestoreRequest { to, seen: None, time: Time::default() };
        let done = self.world.wait(self.world.overlay.restore(&self.world.caller, restore));
        let RestoreOutcome::Restored(restored) = done.unwrap() else { panic!("not restored") };
        if self.checkpoints.iter().all(|(known, _)| *known != restored.before) {
            self.checkpoints.push((restored.before, self.reference.clone()));
        }
        self.reference.become_of(then);
        self.compare();
    }

    /// Compares the trees, and each object with what was seen of it before.
    pub fn compare(&mut self) {
        let tree = read_tree(&self.world);
        assert_same(&tree, &self.reference.tree(), "the trees");
        predicted::assert_told(&self.world.session(), &self.world.base(), &tree);
        for (path, id) in &self.reference.names {
            let shown = path.escape_ascii();
            let found = self.world.find(path).unwrap();
            let links = self.reference.links(*id);
            let node = self.reference.nodes.get_mut(id).unwrap();
            let handle = node.handle.get_or_insert_with(|| found.object.clone());
            assert_eq!(*handle, found.object, "handle of {shown}");
            assert_eq!(found.attr.nlink, links, "links of {shown}");
            compare_attr(node.attr.as_ref(), &found.attr, node.changed, &shown.to_string());
        }
        // Objects with several names are looked at by each of them before they are noted.
        for (path, id) in &self.reference.names {
            let node = self.reference.nodes.get_mut(id).unwrap();
            node.attr = Some(self.world.find(path).unwrap().attr);
            node.changed = false;
        }
        for handle in self.reference.dead.values() {
            let ours = self.world.getattr(handle);
            assert_eq!(ours, Err(FsError::Stale), "{handle:?} of a deleted object");
        }
    }
}

/// An object keeps all its attributes until it is changed, and then its ctime moves.
fn compare_attr(before: Option<&Attr>, now: &Attr, changed: bool, shown: &str) {
    let Some(before) = before else { return };
    assert_eq!(before.fileid, now.fileid, "{shown}");
    assert_eq!((before.uid, before.gid), (now.uid, now.gid), "{shown}");
    if changed {
        assert!(now.ctime > before.ctime, "ctime of {shown}: {before:?} {now:?}");
    } else {
        assert_eq!((before.mtime, before.ctime), (now.mtime, now.ctime), "times of {shown}");
    }
}
