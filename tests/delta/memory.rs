//! A session in memory: its files never take more than they may, and it has no audit log.

use acetate::delta::sqlite::MemoryBound;
use acetate::delta::{
    AuditProcedure, AuditRow, AuditSet, Ino, MergedPath, Result, Store, StoreErrorKind, WriteTxn,
    Writer,
};
use acetate::vfs::{FileId, FileKind};

use super::{Place, inode, make, time};
use crate::support::database::session::TestSession;

const BOUND: u64 = 96 << 20;

fn create(place: &Place) -> TestSession {
    let mut session = place.create();
    session.keep_in_memory(MemoryBound::new(BOUND));
    session
}

/// What the files take, in bytes.
fn taken(place: &Place) -> u64 {
    let path = |suffix| format!("{}{suffix}", place.path.display());
    let length = |suffix| std::fs::metadata(path(suffix)).map_or(0, |file| file.len());
    ["", "-wal", "-shm"].map(length).iter().sum()
}

/// Runs `work` in a batch; asserts that the files stay within the bound.
fn batch(
    place: &Place,
    writer: &mut dyn Writer,
    work: &mut dyn FnMut(&mut dyn WriteTxn) -> Result<()>,
) -> Result<()> {
    writer.begin(false)?;
    if let Err(error) = work(writer.txn()) {
        writer.abort().unwrap();
        return Err(error);
    }
    writer.commit()?;
    if writer.wants_maintenance() {
        writer.maintenance();
    }
    assert!(taken(place) <= BOUND, "{}", taken(place));
    Ok(())
}

/// Goes on until there is no more room; how often it went.
fn fill(
    place: &Place,
    writer: &mut dyn Writer,
    mut work: impl FnMut(&mut dyn WriteTxn, u64) -> Result<()>,
) -> u64 {
    for i in 0.. {
        match batch(place, writer, &mut |txn| work(txn, i)) {
            Ok(()) => assert!(i < 10_000, "there is no end"),
            Err(error) if error.kind == StoreErrorKind::Full => return i,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

#[test]
fn content_ends_before_the_bound_and_goes_on_when_some_is_removed() {
    let place = Place::new();
    let session = create(&place);
    let mut writer = session.writer().unwrap();
    let mut files = Vec::new();
    let mut add = |writer: &mut dyn Writer| {
        fill(&place, writer, |txn, i| {
            let name = format!("f{i}-{}", files.len());
            let mut row = make(txn, Ino::ROOT, &name, FileKind::Regular);
            txn.write_data(&mut row, 0, &vec![7; 1 << 20])?;
            txn.put_inode(&row)?;
            files.push((name, row.ino));
            Ok(())
        })
    };
    let mib = add(&mut *writer);
    assert!((48..96).contains(&mib), "{mib} MiB");
    let stat = session.disk_usage().unwrap();
    assert!(stat.total_bytes <= BOUND && stat.available_bytes < 40 << 20);
    for (name, ino) in files.drain(..) {
        batch(&place, &mut *writer, &mut |txn| {
            txn.delete_dentry(Ino::ROOT, &super::name(&name))?;
            txn.delete_inode(ino)
        })
        .unwrap();
    }
}

#[test]
fn whiteouts_end_there_too() {
    let place = Place::new();
    let session = create(&place);
    let mut writer = session.writer().unwrap();
    let dir = "/directory".repeat(390);
    fill(&place, &mut *writer, |txn, i| {
        for name in 0..100 {
            let path = format!("{dir}/{i}-{name}");
            txn.add_whiteout(&MergedPath::from_bytes(path.as_bytes()).unwrap(), time(1))?;
        }
        Ok(())
    });
}

/// What changes rows again and again makes the write-ahead log longer, and nothing else; a reader
/// keeps it from starting over.
#[test]
fn the_write_ahead_log_counts() {
    let place = Place::new();
    let session = create(&place);
    let mut writer = session.writer().unwrap();
    let mut rows = Vec::new();
    batch(&place, &mut *writer, &mut |txn| {
        rows = (0..20_000).map(|_| inode(txn.allocate_ino().unwrap(), FileKind::Fifo)).collect();
        rows.iter().try_for_each(|row| txn.put_inode(row))
    })
    .unwrap();
    let reader = place.sql();
    let reading = reader.unchecked_transaction().unwrap();
    let count = "SELECT count(*) FROM fs_inode";
    let _: i64 = reading.query_row(count, [], |row| row.get(0)).unwrap();
    fill(&place, &mut *writer, |txn, i| {
        // One in each page or so.
        rows.iter_mut().step_by(30).try_for_each(|row| {
            row.mtime = time(i.cast_signed());
            txn.put_inode(row)
        })
    });
    drop(reading);
    batch(&place, &mut *writer, &mut |txn| txn.put_inode(&rows[0])).unwrap();
}

#[test]
fn there_is_no_audit_log() {
    let place = Place::new();
    let session = create(&place);
    let mut writer = session.writer().unwrap();
    let row = AuditRow {
        time: time(5),
        client: "[::1]:1023".parse().unwrap(),
        uid: 0,
        gid: 0,
        procedure: AuditProcedure::Create,
        path: MergedPath::root(),
        path2: None,
        fileid: FileId(7),
        offset: None,
        length: None,
        call: None,
        export: None,
        note: None,
        set: AuditSet::default(),
    };
    batch(&place, &mut *writer, &mut |txn| txn.record(&row)).unwrap();
    assert_eq!(place.number("SELECT count(*) FROM acetate_op"), 0);
}
