//! How long the WAL gets, and what a change adds to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use acetate::delta::sqlite::Session;
use acetate::delta::{
    AuditProcedure, AuditRow, AuditSet, Ino, MergedPath, ReadTxn, Store, WriteTxn, Writer,
};
use acetate::vfs::{CallId, FileId, FileKind};

use super::{Place, change, inode, make, name, time};

const MIB: u64 = 1 << 20;

/// A page in the WAL, with its header, in bytes.
const FRAME_BYTES: u64 = 4096 + 24;

/// What a served session keeps, in bytes.
const KEPT_BYTES: u64 = 20 * MIB;

/// The length that docs/OPERATIONS.md promises, in bytes.
const PROMISED_BYTES: u64 = 64 * MIB;

fn wal_bytes(place: &Place) -> u64 {
    std::fs::metadata(format!("{}-wal", place.path.display())).unwrap().len()
}

/// Commits so many bytes in batches of so many; the longest that the WAL was, in bytes.
fn write(place: &Place, writer: &mut dyn Writer, bytes: u64, batch: u64) -> u64 {
    let name = format!("{bytes} bytes");
    let mut row = change(writer, |txn| make(txn, Ino::ROOT, &name, FileKind::Regular));
    let data = vec![7; batch as usize];
    let mut longest = 0;
    for _ in 0..bytes / batch {
        let at = row.size;
        change(writer, |txn| {
            txn.write_data(&mut row, at, &data).unwrap();
            txn.put_inode(&row).unwrap();
        });
        longest = longest.max(wal_bytes(place));
    }
    longest
}

#[test]
fn the_log_starts_over_and_keeps_its_file() {
    let place = Place::new();
    let session = place.create_with(65536);
    let mut writer = session.writer().unwrap();
    // Not before 16 MiB, where commits are small.
    write(&place, &mut *writer, 40 * MIB, MIB / 2);
    assert!(wal_bytes(&place) > 16 * MIB, "it was cut");
    let longest = write(&place, &mut *writer, 80 * MIB, 4 * MIB);
    // Where the writer waits, and a batch beyond that.
    assert!(longest < 45 * MIB, "{longest}");
    writer.close().unwrap();
    assert_eq!(wal_bytes(&place), 0);
}

/// Does the maintenance that is the next to come.
fn tend(writer: &mut dyn Writer) {
    let begun = Instant::now();
    while !writer.wants_maintenance() {
        assert!(begun.elapsed() < Duration::from_secs(60), "there is nothing to do");
        std::thread::sleep(Duration::from_millis(5));
    }
    writer.maintenance();
}

#[test]
fn what_a_new_log_holds_is_not_taken_for_synced() {
    let place = Place::new();
    let session = place.create_with(65536);
    let mut writer = session.writer().unwrap();
    let mut row = change(&mut *writer, |txn| make(txn, Ino::ROOT, "large", FileKind::Regular));
    let mut write_at_once = |writer: &mut dyn Writer, mib: u64| {
        let data = vec![mib as u8; (mib * MIB) as usize];
        change(writer, |txn| {
            txn.write_data(&mut row, 0, &data).unwrap();
            txn.put_inode(&row).unwrap();
        });
    };
    write_at_once(&mut *writer, 8);
    writer.sync().unwrap();
    tend(&mut *writer);
    // All was copied: the WAL starts over, and is longer at once than what was synced before.
    write_at_once(&mut *writer, 9);
    assert!(writer.unsynced_bytes() >= 9 * MIB, "{}", writer.unsynced_bytes());
}

#[test]
fn a_log_that_was_long_is_cut_once_nothing_large_comes() {
    let place = Place::new();
    let session = place.create_with(65536);
    let mut writer = session.writer().unwrap();
    assert_eq!(writer.maintenance_at(), None);
    write(&place, &mut *writer, 24 * MIB, 24 * MIB);
    assert!(wal_bytes(&place) > KEPT_BYTES, "it did not get long");
    while writer.maintenance_at().is_some() {
        tend(&mut *writer);
    }
    assert!(wal_bytes(&place) <= KEPT_BYTES, "{}", wal_bytes(&place));
}

/// How long the writer waits for readers, at most.
const READERS_WAIT: Duration = Duration::from_secs(2);

/// Reads over and over, so that some snapshot is always open; how long one was, at most.
fn keep_reading(session: &Session, stop: &AtomicBool) -> Duration {
    let mut reader = session.reader().unwrap();
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let mut hold = |txn: &dyn ReadTxn| {
            txn.hold().unwrap();
            std::thread::sleep(Duration::from_millis(20));
        };
        reader.read(&mut hold).unwrap();
        longest = longest.max(begun.elapsed());
    }
    longest
}

#[test]
fn the_log_stays_below_its_bound_beside_readers() {
    for _ in 0..5 {
        let place = Place::new();
        let session = place.create_with(65536);
        let mut writer = session.writer().unwrap();
        let stop = AtomicBool::new(false);
        let (wal, held) = std::thread::scope(|scope| {
            let readers = [0; 3].map(|_| scope.spawn(|| keep_reading(&session, &stop)));
            let wal = write(&place, &mut *writer, 160 * MIB, 16 * MIB);
            stop.store(true, Ordering::Relaxed);
            (wal, readers.map(|reader| reader.join().unwrap()).into_iter().max().unwrap())
        });
        if wal < PROMISED_BYTES {
            return;
        }
        // A disk that stands still keeps readers from ending, and nothing is promised then.
        assert!(held >= READERS_WAIT / 4, "{wal} bytes, though no reader took more than {held:?}");
    }
    panic!("readers were held up five times");
}

#[test]
fn a_change_adds_few_pages() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let writer = &mut *writer;
    let dir = change(writer, |txn| make(txn, Ino::ROOT, "dir", FileKind::Directory));
    // Trees of more than one page.
    for number in 0..400 {
        change(writer, |txn| make(txn, dir.ino, &format!("file-{number:04}"), FileKind::Regular));
    }
    let mut added = |what: &str, pages: u64, work: &mut dyn FnMut(&mut dyn WriteTxn)| {
        let before = wal_bytes(&place);
        change(writer, |txn| work(txn));
        let found = (wal_bytes(&place) - before) / FRAME_BYTES;
        assert!((1..=pages).contains(&found), "{what}: {found} pages");
    };
    let op = AuditRow {
        time: time(1),
        client: "127.0.0.1:700".parse().unwrap(),
        uid: 1,
        gid: 2,
        procedure: AuditProcedure::Setattr,
        path: MergedPath::root(),
        path2: None,
        fileid: FileId(5),
        offset: None,
        length: None,
        call: Some(CallId(u64::MAX)),
        export: None,
        note: None,
        set: AuditSet::default(),
    };
    let mut row = inode(Ino(0), FileKind::Regular);
    added("CREATE", 6, &mut |txn| {
        row = make(txn, dir.ino, "new", FileKind::Regular);
        txn.record(&op).unwrap();
    });
    added("SETATTR", 2, &mut |txn| {
        row.mode = 0o600;
        txn.put_inode(&row).unwrap();
        txn.record(&op).unwrap();
    });
    added("RENAME", 7, &mut |txn| {
        txn.move_dentry((dir.ino, &name("new")), (dir.ino, &name("a")), row.ino).unwrap();
        txn.put_inode(&row).unwrap();
        txn.record(&op).unwrap();
    });
    added("REMOVE", 6, &mut |txn| {
        txn.delete_dentry(dir.ino, &name("a")).unwrap();
        txn.delete_inode(row.ino).unwrap();
        txn.record(&op).unwrap();
    });
}
