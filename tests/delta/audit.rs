//! Reading the audit log beside the writer.

use acetate::delta::sqlite::{AuditFilter, AuditPage, OpenMode, Order, Session};
use acetate::delta::{AuditProcedure, AuditRow, AuditSet, MergedPath, Store};
use acetate::vfs::{CallId, FileId, Time};

use super::{Place, change, host, time};

fn row(path: &str) -> AuditRow {
    AuditRow {
        time: time(5),
        client: "[::1]:1023".parse().unwrap(),
        uid: u32::MAX,
        gid: 7,
        procedure: AuditProcedure::Link,
        path: MergedPath::from_bytes(b"/\xff").unwrap(),
        path2: MergedPath::from_bytes(path.as_bytes()),
        fileid: FileId(FileId::LIMIT - 1),
        offset: None,
        length: None,
        call: Some(CallId(u64::MAX)),
        export: None,
        note: None,
        set: AuditSet::default(),
    }
}

fn all(session: &Session) -> AuditPage {
    let audit = session.audit().unwrap().unwrap();
    let last = audit.last_id().unwrap();
    let (filter, order) = (AuditFilter::default(), Order::OldestFirst);
    audit.page(&filter, order, 0..=last, &|_| true).unwrap()
}

#[test]
fn rows_come_back_as_they_were_written() {
    let place = Place::new();
    let session = place.create();
    assert!(all(&session).rows.is_empty());
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| txn.record(&row("/a")).unwrap());
    let inspected = Session::open(&place.path, OpenMode::Inspect, &host("boot")).unwrap();
    for session in [&session, &inspected] {
        let page = all(session);
        assert_eq!(page.rows, [(1, Ok(row("/a")))]);
        assert_eq!(page.rest, None);
    }
    change(&mut *writer, |txn| txn.record(&row("/b")).unwrap());
    assert_eq!(all(&inspected).rows.len(), 2);
    drop(inspected);
    writer.close().unwrap();
}

#[test]
fn an_export_is_found_by_its_name_with_and_without_a_mark() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let through = |export: &str| AuditRow { export: Some(export.into()), ..row("/a") };
    let rows = [through("chat"), through("chat#0a1b2c3d"), through("chats"), row("/a")];
    change(&mut *writer, |txn| rows.iter().for_each(|row| txn.record(row).unwrap()));
    let audit = session.audit().unwrap().unwrap();
    let of = |export: &str| {
        let filter = AuditFilter { export: Some(export.to_owned()), ..AuditFilter::default() };
        let page = audit.page(&filter, Order::OldestFirst, 0..=10, &|_| true).unwrap();
        page.rows.into_iter().map(|(id, row)| (id, row.unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(of("chat"), [(1, rows[0].clone()), (2, rows[1].clone())]);
    assert_eq!(of("chat#0a1b2c3d"), [(2, rows[1].clone())]);
    assert_eq!(of("cha"), []);
    drop(audit);
    writer.close().unwrap();
}

#[test]
fn pages_fit_together_beside_the_writer() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| {
        for number in 0..2500 {
            txn.record(&row(&format!("/{number}"))).unwrap();
        }
    });
    let audit = session.audit().unwrap().unwrap();
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let (mut ids, mut rest) = (Vec::new(), Some(1..=2500));
        while let Some(next) = rest {
            let page = audit.page(&AuditFilter::default(), order, next, &|id| id != 77).unwrap();
            assert!(page.rows.len() <= 1000);
            ids.extend(page.rows.iter().map(|(id, _)| *id));
            change(&mut *writer, |txn| txn.record(&row("/later")).unwrap());
            rest = page.rest;
        }
        if order == Order::NewestFirst {
            ids.reverse();
        }
        assert_eq!(ids, (1..=2500).filter(|id| *id != 77).collect::<Vec<_>>());
    }
    // No page keeps a transaction open.
    let conn = place.sql();
    let busy: i64 = conn.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get(0)).unwrap();
    assert_eq!(busy, 0);
    drop(audit);
    writer.close().unwrap();
}

#[test]
fn a_call_that_nobody_heard_of_is_known_for_a_day() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| txn.record(&row("/a")).unwrap());
    // As a kill leaves it.
    drop((writer, session));
    let known = |later: i64| {
        let mut host = host("boot");
        host.now = Time { secs: time(5).secs + later, nanos: 0 };
        let session = Session::open(&place.path, OpenMode::Serve, &host).unwrap();
        session.unacknowledged_ops().len()
    };
    assert_eq!([0, 86_399, 86_400, 10_000_000].map(known), [1, 1, 0, 0]);
}
