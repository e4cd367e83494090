//! Checkpoints: a session shows each tree that it had when one was made.

use std::collections::{BTreeMap, BTreeSet};

use acetate::base::BasePath;
use acetate::delta::sqlite::{OpenMode, Session};
use acetate::delta::{
    AuditProcedure, AuditRow, AuditSet, Checkpoint, CheckpointId, CheckpointKind, CopyUp, Ino,
    InodeRow, KEPT_CHECKPOINTS, MadeCheckpoint, MergedPath, NewCheckpoint, Original, ReadTxn,
    Store, WriteTxn, Writer,
};
use acetate::vfs::{FileId, FileKind};

use super::{Place, change, content, look, make, name, time};
use crate::support::check::assert_consistent;
use crate::support::random::Random;

const CHUNK: u64 = 16 << 10;

pub(super) fn new(label: Option<&str>) -> NewCheckpoint {
    NewCheckpoint {
        name: label.map(str::to_owned),
        kind: CheckpointKind::Manual,
        labels: BTreeMap::from([("key".to_owned(), "value".to_owned())]),
        time: time(7),
        reuses: false,
        needed: None,
    }
}

pub(super) fn made(made: MadeCheckpoint) -> Checkpoint {
    match made {
        MadeCheckpoint::Made(made) => made,
        other => panic!("{other:?}"),
    }
}

pub(super) fn checkpoint(writer: &mut dyn Writer) -> Checkpoint {
    change(writer, |txn| made(txn.create_checkpoint(&new(None)).unwrap()))
}

/// The session at a checkpoint.
pub(super) fn at(place: &Place, checkpoint: &Checkpoint) -> Session {
    let mut session = Session::open(&place.path, OpenMode::Inspect, &super::host("boot")).unwrap();
    session.show_at(checkpoint);
    session
}

fn path(text: &str) -> MergedPath {
    MergedPath::from_bytes(text.as_bytes()).unwrap()
}

fn base(text: &str) -> BasePath {
    BasePath::from_bytes(text.as_bytes()).unwrap()
}

/// All that rows say, for inode numbers up to `last`.
fn dump(txn: &dyn ReadTxn, numbers: &BTreeSet<Ino>) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for &ino in numbers {
        let Some(mut row) = txn.inode(ino).unwrap() else { continue };
        // Neither is a change of the tree.
        (row.atime, row.subdirs) = (time(0), None);
        let mut entries = Vec::new();
        txn.dentries(ino, &mut |name, to, mode, id| entries.push((name, to, mode, id))).unwrap();
        entries.sort();
        let mut content = vec![0xAA; row.size as usize];
        if row.kind == FileKind::Regular {
            txn.read_data(&row, 0, &mut content).unwrap();
        }
        let digest = content.iter().fold(17_u64, |sum, byte| {
            sum.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(*byte) + 1)
        });
        let chunks = txn.stored_chunks(ino, &(0..u64::MAX >> 1)).unwrap();
        let (names, target) = (txn.names_of(ino).unwrap(), txn.symlink(ino).unwrap());
        let (redirect, opaque) = (txn.redirect(ino).unwrap(), txn.opaque_since(ino).unwrap());
        let shown = format!("{row:?} {entries:?} {digest} {chunks:?} {names:?} {target:?}");
        all.insert(format!("inode {}", ino.0), format!("{shown} {redirect:?} {opaque:?}"));
    }
    let parents: BTreeSet<_> = txn.whiteout_parents().unwrap().into_iter().collect();
    for parent in parents {
        for name in txn.whiteouts_in(&parent).unwrap() {
            let path = parent.join(&name);
            let since = txn.whited_out_at(&path).unwrap();
            all.insert(format!("whiteout {}", path.display()), format!("{since:?}"));
        }
    }
    for id in txn.hidden_files().unwrap() {
        all.insert(format!("link {}", id.0), format!("{:?}", txn.hidden_links(id).unwrap()));
    }
    for n in 0..6 {
        let path = base(&format!("o{n}"));
        if let Some(original) = txn.original(&path).unwrap() {
            let content = txn.original_content(&path).unwrap();
            all.insert(format!("original {n}"), format!("{original:?} {content:?}"));
        }
    }
    all
}

/// A session of random rows, and what is known of it.
struct Rows {
    random: Random,
    dirs: Vec<Ino>,
    files: Vec<Ino>,
    numbers: BTreeSet<Ino>,
    clock: i64,
}

impl Rows {
    fn row(&self, txn: &dyn WriteTxn, ino: Ino) -> Option<InodeRow> {
        txn.inode(ino).unwrap()
    }

    fn pick(&mut self, of: &[Ino]) -> Option<Ino> {
        (!of.is_empty()).then(|| of[self.random.below(of.len())])
    }

    /// One random change.
    fn step(&mut self, txn: &mut dyn WriteTxn) {
        self.clock += 1;
        let (dirs, files) = (self.dirs.clone(), self.files.clone());
        let dir = self.pick(&dirs).unwrap();
        let label = format!("n{}", self.random.below(8));
        let whiteout = path(&format!("/w{}/x{}", self.random.below(2), self.random.below(4)));
        match self.random.below(16) {
            0 | 1 if txn.dentry(dir, &name(&label)).unwrap().is_none() => {
                let kinds = [FileKind::Regular, FileKind::Directory, FileKind::Symlink];
                let kind = kinds[self.random.below(3)];
                let row = make(txn, dir, &label, kind);
                self.numbers.insert(row.ino);
                match kind {
                    FileKind::Directory => self.dirs.push(row.ino),
                    FileKind::Regular => self.files.push(row.ino),
                    _ => txn.put_symlink(row.ino, label.as_bytes()).unwrap(),
                }
            }
            2..=6 => {
                let Some(mut row) = self.pick(&files).and_then(|ino| self.row(txn, ino)) else {
                    return;
                };
                let offset = self.random.below(3 * CHUNK as usize) as u64;
                let data = vec![self.random.below(256) as u8; 1 + self.random.below(9000)];
                txn.write_data(&mut row, offset, &data).unwrap();
                row.mtime = time(self.clock);
                txn.put_inode(&row).unwrap();
            }
            7 => {
                let Some(mut row) = self.pick(&files).and_then(|ino| self.row(txn, ino)) else {
                    return;
                };
                txn.truncate(&mut row, self.random.below(3 * CHUNK as usize) as u64).unwrap();
                txn.put_inode(&row).unwrap();
            }
            8 => {
                let Some(ino) = self.pick(&files) else { return };
                for (parent, name) in txn.names_of(ino).unwrap() {
                    txn.delete_dentry(parent, &name).unwrap();
                }
                txn.delete_inode(ino).unwrap();
                self.files.retain(|file| *file != ino);
            }
            9 => {
                let Some(ino) = self.pick(&files) else { return };
                let Some((parent, old)) = txn.name_of(ino).unwrap() else { return };
                if txn.dentry(dir, &name(&label)).unwrap().is_none() {
                    txn.move_dentry((parent, &old), (dir, &name(&label)), ino).unwrap();
                }
            }
            10 => txn.add_whiteout(&whiteout, time(self.clock)).unwrap(),
            11 => drop(txn.remove_whiteout(&whiteout).unwrap()),
            12 if self.random.below(2) == 0 => {
                txn.move_whiteouts_below(&path("/w0"), &path("/w1")).unwrap();
            }
            12 => txn.remove_whiteouts_below(&path("/w1")).unwrap(),
            13 if dir != Ino::ROOT => match self.random.below(3) {
                0 => txn.put_redirect(dir, &base(&format!("r{}", dir.0))).unwrap(),
                1 => txn.remove_redirect(dir).unwrap(),
                _ => txn.put_opaque(dir, time(self.clock)).unwrap(),
            },
            14 => {
                let id = FileId(10 + self.random.below(3) as u64);
                match self.random.below(2) {
                    0 => txn.hide_link(id, time(self.clock)).unwrap(),
                    _ => txn.count_hidden(id, self.random.below(3) as u32).unwrap(),
                }
            }
            _ => self.other(txn),
        }
    }

    fn other(&mut self, txn: &mut dyn WriteTxn) {
        let n = self.random.below(6);
        match self.random.below(4) {
            0 => {
                let original = Original {
                    path: base(&format!("o{n}")),
                    fileid: FileId(n as u64),
                    kind: FileKind::Regular,
                    mode: 0o644,
                    uid: 0,
                    gid: 0,
                    size: 3,
                    mtime: time(self.clock),
                    ctime: time(self.clock),
                    digest: None,
                    has_content: true,
                };
                txn.put_original(&original, Some(b"abc")).unwrap();
            }
            1 => drop(txn.remove_originals(&base(&format!("o{n}"))).unwrap()),
            2 => {
                let to = base(&format!("o{}", self.random.below(6)));
                txn.rename_originals(&base(&format!("o{n}")), &to).unwrap();
            }
            _ => {
                let files = self.files.clone();
                let Some(ino) = self.pick(&files) else { return };
                let pending = (n < 3).then_some(CopyUp { next: 0, end: 1 + n as u64 });
                txn.put_copy_up(ino, pending).unwrap();
            }
        }
    }
}

/// Compares each checkpoint's tree with what it was.
#[track_caller]
fn compare(
    place: &Place,
    numbers: &BTreeSet<Ino>,
    known: &BTreeMap<CheckpointId, (Checkpoint, BTreeMap<String, String>)>,
    seed: u64,
) {
    for (id, (checkpoint, then)) in known {
        let shown = look(&at(place, checkpoint), |txn| dump(txn, numbers));
        for key in shown.keys().chain(then.keys()) {
            assert_eq!(shown.get(key), then.get(key), "seed {seed}, checkpoint {id}: {key}");
        }
    }
}

#[test]
fn each_checkpoint_shows_the_rows_of_its_moment() {
    for seed in 0..24 {
        let place = Place::new();
        let mut session = place.create_with(CHUNK);
        let mut rows = Rows {
            random: Random::new(seed),
            dirs: vec![Ino::ROOT],
            files: Vec::new(),
            numbers: BTreeSet::from([Ino::ROOT]),
            clock: 100,
        };
        let mut writer = session.writer().unwrap();
        let mut known = BTreeMap::new();
        for round in 0..14 {
            writer.begin(false).unwrap();
            for _ in 0..rows.random.below(25) {
                writer.savepoint().unwrap();
                let before = (rows.dirs.clone(), rows.files.clone());
                rows.step(writer.txn());
                match rows.random.below(5) {
                    0 => {
                        writer.roll_back().unwrap();
                        (rows.dirs, rows.files) = before;
                    }
                    _ => writer.release().unwrap(),
                }
            }
            writer.commit().unwrap();
            match rows.random.below(8) {
                0 => {
                    writer.close().unwrap();
                    drop((writer, session));
                    session = place.open();
                    writer = session.writer().unwrap();
                }
                1 if !known.is_empty() => {
                    let ids: Vec<_> = known.keys().copied().collect();
                    let id = ids[rows.random.below(ids.len())];
                    assert!(change(&mut *writer, |txn| txn.remove_checkpoint(id).unwrap()));
                    known.remove(&id);
                }
                _ if round < 12 => {
                    let made = checkpoint(&mut *writer);
                    let then = look(&session, |txn| dump(txn, &rows.numbers));
                    known.insert(made.id, (made, then));
                }
                _ => {}
            }
            // What a removed one leaves is handed over row by row, between changes.
            for _ in 0..rows.random.below(4) {
                let most = 1 + rows.random.below(5) as u32;
                change(&mut *writer, |txn| txn.free_removed(most).unwrap());
                compare(&place, &rows.numbers, &known, seed);
            }
            compare(&place, &rows.numbers, &known, seed);
        }
        let listed = session.checkpoints().unwrap();
        assert!(listed.iter().map(|one| one.id).eq(known.keys().copied()), "seed {seed}");
        for id in known.keys() {
            assert!(change(&mut *writer, |txn| txn.remove_checkpoint(*id).unwrap()));
            assert!(!change(&mut *writer, |txn| txn.remove_checkpoint(*id).unwrap()));
        }
        assert_eq!(session.checkpoints().unwrap(), [], "seed {seed}");
        while change(&mut *writer, |txn| txn.free_removed(7).unwrap()) {}
        assert_eq!(place.number("SELECT count(*) FROM acetate_checkpoint"), 0, "seed {seed}");
        assert_eq!(place.number("SELECT count(*) FROM acetate_old_fs_inode"), 0, "seed {seed}");
        assert_eq!(place.number("SELECT count(*) FROM acetate_old_fs_data"), 0, "seed {seed}");
        assert_eq!(place.number("SELECT count(*) FROM acetate_old_piece"), 0, "seed {seed}");
    }
}

/// A chunk that changed in part and then as a whole: its pieces are handed over before it.
#[test]
fn a_chunk_with_pieces_is_exact_between_two_steps() {
    let place = Place::new();
    let session = place.create_with(CHUNK);
    let mut writer = session.writer().unwrap();
    let ino = change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular).ino);
    let write = |writer: &mut dyn Writer, offset: u64, data: &[u8]| {
        change(writer, |txn| {
            let mut row = txn.inode(ino).unwrap().unwrap();
            txn.write_data(&mut row, offset, data).unwrap();
            txn.put_inode(&row).unwrap();
        });
    };
    write(&mut *writer, 0, &vec![1; CHUNK as usize]);
    let first = checkpoint(&mut *writer);
    let second = checkpoint(&mut *writer);
    write(&mut *writer, 100, &[2; 5000]);
    write(&mut *writer, 12_000, &[3; 9]);
    change(&mut *writer, |txn| {
        let mut row = txn.inode(ino).unwrap().unwrap();
        txn.truncate(&mut row, 0).unwrap();
        txn.put_inode(&row).unwrap();
    });
    checkpoint(&mut *writer);
    let shown = || look(&at(&place, &first), |txn| content(txn, ino));
    assert!(shown() == vec![1; CHUNK as usize]);
    assert!(change(&mut *writer, |txn| txn.remove_checkpoint(second.id).unwrap()));
    let mut steps = 1;
    while change(&mut *writer, |txn| txn.free_removed(1).unwrap()) {
        steps += 1;
        assert!(shown() == vec![1; CHUNK as usize], "step {steps}");
    }
    assert!(steps > 4, "pieces, the chunk and the inode: {steps}");
    assert!(shown() == vec![1; CHUNK as usize]);
    drop(writer);
    assert_consistent(&place.path);
}

fn log_row() -> AuditRow {
    AuditRow {
        time: time(5),
        client: "[::1]:1023".parse().unwrap(),
        uid: 1,
        gid: 7,
        procedure: AuditProcedure::Create,
        path: path("/f"),
        path2: None,
        fileid: FileId(7),
        offset: None,
        length: None,
        call: None,
        export: None,
        note: None,
        set: AuditSet::default(),
    }
}

#[test]
fn an_automatic_checkpoint_is_made_after_changes_alone_and_not_kept_for_ever() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let automatic = |secs: i64| NewCheckpoint {
        kind: CheckpointKind::Tool,
        labels: BTreeMap::new(),
        name: None,
        time: time(secs),
        reuses: true,
        needed: None,
    };
    let ask = |writer: &mut dyn Writer, secs: i64| {
        change(writer, |txn| txn.create_checkpoint(&automatic(secs)).unwrap())
    };
    let begin = made(ask(&mut *writer, 1));
    assert_eq!(ask(&mut *writer, 1), MadeCheckpoint::Reused(begin));
    let logged = |writer: &mut dyn Writer, procedure: AuditProcedure| {
        let row = AuditRow { procedure, ..log_row() };
        change(writer, |txn| txn.record(&row).unwrap());
    };
    logged(&mut *writer, AuditProcedure::Create);
    let first = made(ask(&mut *writer, 2));
    assert_eq!(ask(&mut *writer, 3), MadeCheckpoint::Reused(first.clone()));
    logged(&mut *writer, AuditProcedure::Refuse);
    assert_eq!(ask(&mut *writer, 3), MadeCheckpoint::Reused(first));
    // Days apart, one each is kept.
    for day in 1..5 {
        logged(&mut *writer, AuditProcedure::Write);
        made(ask(&mut *writer, day * 86_400));
    }
    let hundred = i64::try_from(KEPT_CHECKPOINTS).unwrap();
    for minute in 0..hundred + 20 {
        logged(&mut *writer, AuditProcedure::Write);
        made(ask(&mut *writer, 9 * 86_400 + minute * 60));
    }
    let times: Vec<_> = session.checkpoints().unwrap().iter().map(|one| one.time.secs).collect();
    assert_eq!(times[..5], [2, 86_400, 2 * 86_400, 3 * 86_400, 4 * 86_400]);
    let kept = times.len() - KEPT_CHECKPOINTS;
    assert_eq!(kept, 5 + 1, "of those older than a hundred, one for the hour");
    drop(writer);
    assert_consistent(&place.path);
}
