//! What the writer has at hand is what the file says, whatever happens in between.

use acetate::delta::sqlite::Session;
use acetate::delta::{Ino, MergedPath, ReadTxn, Store, WriteTxn, Writer};
use acetate::vfs::{FileKind, Name};
use proptest::prelude::*;

use super::{Place, change, look, make, name, time};

/// Names in each directory: TEXT, TEXT that another program stored as BLOB as well, and BLOB.
const NAMES: [&[u8]; 4] = [b"a", b"b", b"twin", b"\xff"];

/// A name in one of three directories.
type At = (usize, usize);

#[derive(Debug, Clone)]
enum Step {
    Make(At),
    Link(At, At),
    Unlink(At),
    Rename(At, At),
    Hide(At),
    Show(At),
    MoveHidden,
}

#[derive(Debug, Clone)]
enum End {
    Keep,
    RollBack,
    Abort,
    Reopen,
}

fn place() -> impl Strategy<Value = At> {
    (0..3_usize, 0..NAMES.len())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => place().prop_map(Step::Make),
        2 => (place(), place()).prop_map(|(old, new)| Step::Link(old, new)),
        3 => place().prop_map(Step::Unlink),
        3 => (place(), place()).prop_map(|(old, new)| Step::Rename(old, new)),
        2 => place().prop_map(Step::Hide),
        2 => place().prop_map(Step::Show),
        1 => Just(Step::MoveHidden),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        6 => Just(End::Keep),
        2 => Just(End::RollBack),
        1 => Just(End::Abort),
        1 => Just(End::Reopen),
    ]
}

/// Three directories, of which two have names that another program stored.
fn prepare(place: &Place) -> [Ino; 3] {
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let dirs = change(&mut *writer, |txn| {
        let dirs = ["d1", "d2"].map(|at| make(txn, Ino::ROOT, at, FileKind::Directory).ino);
        for dir in dirs {
            make(txn, dir, "twin", FileKind::Regular);
        }
        [Ino::ROOT, dirs[0], dirs[1]]
    });
    writer.close().unwrap();
    drop((writer, session));
    // Both types in d1, a BLOB alone in d2.
    let sql = format!(
        "INSERT INTO fs_dentry (name, parent_ino, ino)
         SELECT CAST(name AS BLOB), parent_ino, ino FROM fs_dentry WHERE parent_ino = {};
         UPDATE fs_dentry SET name = CAST(name AS BLOB) WHERE parent_ino = {}",
        dirs[1].0, dirs[2].0
    );
    place.sql().execute_batch(&sql).unwrap();
    dirs
}

fn named(at: At) -> Name {
    Name::new(NAMES[at.1]).unwrap()
}

fn path(at: At) -> MergedPath {
    let dir = match at.0 {
        0 => MergedPath::root(),
        1 => MergedPath::root().join(&name("d1")),
        _ => MergedPath::root().join(&name("d2")),
    };
    dir.join(&named(at))
}

/// Makes a step, as the overlay would: the count of names follows them.
fn make_step(txn: &mut dyn WriteTxn, dirs: [Ino; 3], step: &Step) {
    let find = |txn: &dyn ReadTxn, at: At| txn.dentry(dirs[at.0], &named(at)).unwrap();
    match step {
        Step::Make(at) if find(&*txn, *at).is_none() => {
            let row = super::inode(txn.allocate_ino().unwrap(), FileKind::Regular);
            txn.put_inode(&row).unwrap();
            txn.insert_dentry(dirs[at.0], &named(*at), row.ino).unwrap();
        }
        Step::Link(old, new) => {
            let (Some(ino), None) = (find(&*txn, *old), find(&*txn, *new)) else { return };
            let mut row = txn.inode(ino).unwrap().unwrap();
            if row.kind == FileKind::Regular {
                row.nlink += 1;
                txn.put_inode(&row).unwrap();
                txn.insert_dentry(dirs[new.0], &named(*new), ino).unwrap();
            }
        }
        Step::Unlink(at) => {
            let Some(ino) = find(&*txn, *at) else { return };
            let mut row = txn.inode(ino).unwrap().unwrap();
            txn.delete_dentry(dirs[at.0], &named(*at)).unwrap();
            row.nlink -= 1;
            match row.nlink {
                0 => txn.delete_inode(ino).unwrap(),
                _ => txn.put_inode(&row).unwrap(),
            }
        }
        Step::Rename(old, new) => {
            let (Some(ino), None) = (find(&*txn, *old), find(&*txn, *new)) else { return };
            let (from, to) = (named(*old), named(*new));
            txn.move_dentry((dirs[old.0], &from), (dirs[new.0], &to), ino).unwrap();
        }
        Step::Hide(at) => txn.add_whiteout(&path(*at), time(7)).unwrap(),
        Step::Show(at) => {
            let was_hidden = txn.is_whited_out(&path(*at)).unwrap();
            assert_eq!(txn.remove_whiteout(&path(*at)).unwrap().is_some(), was_hidden);
        }
        Step::MoveHidden => {
            let [from, to] = ["d1", "d2"].map(|at| MergedPath::root().join(&name(at)));
            txn.move_whiteouts_below(&from, &to).unwrap();
        }
        Step::Make(_) => {}
    }
}

/// All that may be at hand.
fn everything(txn: &dyn ReadTxn, dirs: [Ino; 3]) -> Vec<String> {
    let mut all = Vec::new();
    for (dir, ino) in dirs.into_iter().enumerate() {
        for at in (0..NAMES.len()).map(|name| (dir, name)) {
            let found = txn.dentry(ino, &named(at)).unwrap();
            let row = found.map(|ino| txn.inode(ino).unwrap());
            let name = found.map(|ino| txn.name_of(ino).unwrap());
            let hidden = txn.is_whited_out(&path(at)).unwrap();
            all.push(format!("{at:?}: {found:?} {row:?} {name:?} {hidden}"));
        }
    }
    all
}

/// Checks what the writer sees at the beginning of a batch.
fn check(writer: &mut dyn Writer, session: &Session, dirs: [Ino; 3]) -> Result<(), TestCaseError> {
    let seen = everything(&*writer.txn(), dirs);
    prop_assert_eq!(seen, look(session, |txn| everything(txn, dirs)));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn the_writer_sees_what_a_reader_sees(
        batches in prop::collection::vec((prop::collection::vec(step(), 0..6), end()), 1..12),
    ) {
        let place = Place::new();
        let dirs = prepare(&place);
        let mut session = place.open();
        let mut writer = session.writer().unwrap();
        for (steps, end) in &batches {
            writer.begin(false).unwrap();
            writer.savepoint().unwrap();
            // By what it has at hand, and then with all of it at hand.
            check(&mut *writer, &session, dirs)?;
            check(&mut *writer, &session, dirs)?;
            for step in steps {
                make_step(writer.txn(), dirs, step);
            }
            match end {
                End::Keep | End::Reopen => writer.release().unwrap(),
                End::RollBack => writer.roll_back().unwrap(),
                End::Abort => {
                    writer.abort().unwrap();
                    continue;
                }
            }
            writer.commit().unwrap();
            if matches!(end, End::Reopen) {
                drop((writer, session));
                session = place.open();
                writer = session.writer().unwrap();
            }
        }
        writer.begin(false).unwrap();
        check(&mut *writer, &session, dirs)?;
    }
}

#[test]
fn what_is_at_hand_is_forgotten_by_a_savepoint() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let [d, e, x] = ["d", "e", "x"].map(name);
    let [from, to] = [&d, &e].map(|dir| MergedPath::root().join(dir));
    let file = change(&mut *writer, |txn| {
        txn.add_whiteout(&from.join(&x), time(7)).unwrap();
        make(txn, Ino::ROOT, "d", FileKind::Regular).ino
    });
    writer.begin(false).unwrap();
    writer.savepoint().unwrap();
    writer.txn().move_dentry((Ino::ROOT, &d), (Ino::ROOT, &e), file).unwrap();
    writer.txn().move_whiteouts_below(&from, &to).unwrap();
    let seen = |txn: &dyn ReadTxn| {
        let hidden = [&from, &to].map(|dir| txn.is_whited_out(&dir.join(&x)).unwrap());
        (txn.name_of(file).unwrap(), hidden)
    };
    assert_eq!(seen(&*writer.txn()), (Some((Ino::ROOT, e)), [false, true]));
    writer.roll_back().unwrap();
    assert_eq!(seen(&*writer.txn()), (Some((Ino::ROOT, d)), [true, false]));
}

#[test]
fn of_two_entries_that_go_both_names_are_forgotten() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let (shown, other) = change(&mut *writer, |txn| {
        let shown = make(txn, Ino::ROOT, "twin", FileKind::Regular).ino;
        (shown, make(txn, Ino::ROOT, "soon a twin", FileKind::Regular).ino)
    });
    change(&mut *writer, |txn| {
        let mut row = txn.inode(other).unwrap().unwrap();
        row.nlink = 2;
        txn.put_inode(&row).unwrap();
        txn.insert_dentry(Ino::ROOT, &name("further"), other).unwrap();
    });
    drop(writer);
    let sql = "UPDATE fs_dentry SET name = CAST('twin' AS BLOB) WHERE name = 'soon a twin'";
    place.sql().execute_batch(sql).unwrap();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| {
        assert_eq!(txn.dentry(Ino::ROOT, &name("twin")).unwrap(), Some(shown));
        assert_eq!(txn.name_of(other).unwrap(), Some((Ino::ROOT, name("twin"))));
        txn.delete_dentry(Ino::ROOT, &name("twin")).unwrap();
        assert_eq!(txn.name_of(other).unwrap(), Some((Ino::ROOT, name("further"))));
    });
}
