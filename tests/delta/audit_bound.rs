//! How much of the audit log stays in a session with limits.

use acetate::delta::sqlite::{AuditFilter, Order};
use acetate::delta::{AuditProcedure, AuditRow, AuditSet, MergedPath, Store, Writer};
use acetate::vfs::{CallId, FileId};

use super::{Place, change, time};

/// What the log may take, in bytes, and what it may go past that.
const BOUND: i64 = (64 << 20) + (64 << 10);

/// A row of about 8 KiB, or of 100 bytes.
fn row(second: i64, is_long: bool) -> AuditRow {
    let long = "/directory".repeat(400);
    let path = MergedPath::from_bytes(if is_long { long.as_bytes() } else { b"/file" }).unwrap();
    AuditRow {
        time: time(second),
        client: "[::1]:1023".parse().unwrap(),
        uid: 0,
        gid: 0,
        procedure: AuditProcedure::Rename,
        path: path.clone(),
        path2: Some(path),
        fileid: FileId(7),
        offset: None,
        length: None,
        call: Some(CallId(second.cast_unsigned())),
        export: None,
        note: None,
        set: AuditSet::default(),
    }
}

/// Adds the rows of these seconds, under a limit.
fn add(writer: &mut dyn Writer, seconds: std::ops::Range<i64>, is_long: bool) {
    let mut at = seconds.start;
    while at < seconds.end {
        let to = seconds.end.min(at + 500);
        change(writer, |txn| {
            txn.bound_audit(true);
            (at..to).for_each(|i| txn.record(&row(i, is_long)).unwrap());
        });
        at = to;
    }
}

const HELD: &str = "SELECT sum(64 + length(path) + length(path2) + length(client))
    FROM acetate_op";

#[test]
fn a_session_with_limits_keeps_the_newest_rows_and_says_how_many_are_gone() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    // A log from before there were limits.
    add(&mut *writer, 1..12_001, true);
    assert!(place.number(HELD) > BOUND + (24 << 20));
    writer.count_usage().unwrap();
    // Counted, as it is to show what the session takes; nothing limits it.
    change(&mut *writer, |txn| txn.record(&row(12_000, true)).unwrap());
    assert_eq!(place.number("SELECT count(*) FROM acetate_op"), 12_001);
    let before = place.number("SELECT count(*) FROM acetate_op");
    add(&mut *writer, 12_001..12_002, false);
    let after = place.number("SELECT count(*) FROM acetate_op");
    assert!(before - after <= 1024, "one change drops {}", before - after);
    add(&mut *writer, 12_002..13_000, true);
    assert!(place.number(HELD) <= BOUND);
    // The last rows are all there: calls are known by them after a kill.
    assert_eq!(place.number("SELECT count(*) FROM acetate_op WHERE id > 13000 - 5000"), 5000);
    let left = place.number("SELECT count(*) FROM acetate_op");
    let audit = session.audit().unwrap().unwrap();
    let dropped = audit.dropped().unwrap().unwrap();
    assert_eq!((dropped.rows as i64 + left, dropped.since.secs), (13_000, 1));
    let page = audit.page(&AuditFilter::default(), Order::OldestFirst, 0..=i64::MAX, &|_| true);
    assert_eq!(page.unwrap().rows[0].0 as u64, dropped.rows + 1);
    drop(audit);
    // Nothing of them is kept elsewhere: that would grow past the limit.
    let past = "SELECT count(*) FROM sqlite_master WHERE name = 'acetate_past'";
    assert_eq!(place.number(past), 0);

    // What is rolled back drops nothing, and is not counted.
    let held = place.number(HELD);
    for _ in 0..3 {
        writer.begin(false).unwrap();
        writer.savepoint().unwrap();
        (0..500).for_each(|i| writer.txn().record(&row(20_000 + i, true)).unwrap());
        writer.roll_back().unwrap();
        writer.abort().unwrap();
    }
    assert_eq!(place.number(HELD), held);
    add(&mut *writer, 13_000..13_100, true);
    assert!((BOUND - (128 << 10)..=BOUND).contains(&place.number(HELD)));
    writer.close().unwrap();
    drop((writer, session));
    let left = place.number("SELECT count(*) FROM acetate_op").cast_unsigned();
    let figures = place.open().stats().unwrap();
    assert_eq!((figures.changes, figures.dropped_changes), (left, 13_100 - left));
}

#[test]
fn a_session_without_limits_keeps_all_rows() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    add(&mut *writer, 0..9000, true);
    assert!(place.number(HELD) > BOUND);
    assert_eq!(place.number("SELECT count(*) FROM acetate_op"), 9000);
    assert_eq!(session.audit().unwrap().unwrap().dropped().unwrap(), None);
}

/// Rows that the bound drops are told in full nowhere, though the owner had pruned before.
#[test]
fn a_log_that_its_bound_cuts_is_not_known_in_full() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    add(&mut *writer, 0..9000, true);
    change(&mut *writer, |txn| {
        assert_eq!(txn.prune_audit(100, time(2_000_000_000), 1000).unwrap(), 100);
    });
    let is_kept = "SELECT count(*) FROM acetate_meta WHERE key = 'audit_kept'";
    assert_eq!(place.number(is_kept), 1);
    writer.count_usage().unwrap();
    add(&mut *writer, 9000..9100, true);
    assert_eq!(place.number(is_kept), 0);
}
