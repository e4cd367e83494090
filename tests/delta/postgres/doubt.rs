//! Batches without an answer: kept once, or never.

use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use acetate::delta::{Store, StoreErrorKind};

use super::proxy::{Cut, Proxy};
use super::{Kept, assert_alike, make_files, names};
use crate::support::database::server::any;

fn kept_through_a_proxy() -> (Proxy, Kept) {
    let proxy = Proxy::start(any().address());
    let kept = Kept::through(proxy.port);
    (proxy, kept)
}

#[test]
fn a_batch_whose_answer_is_lost_is_kept_once() {
    let (proxy, kept) = kept_through_a_proxy();
    let mut writer = kept.store.writer().unwrap();
    make_files(&mut *writer, &["before"]).unwrap();
    let seq = kept.row().mark.seq;
    for number in 1..=3 {
        proxy.cut(Cut::Answer);
        make_files(&mut *writer, &[&format!("cut{number}")]).unwrap();
        assert!(proxy.is_cut());
        assert_eq!(kept.row().mark.seq, seq + number, "once");
    }
    make_files(&mut *writer, &["later"]).unwrap();
    assert_eq!(names(&kept.rows()), ["before", "cut1", "cut2", "cut3", "later"]);
    assert_alike(&kept.ours(), &kept.rows());
}

#[test]
fn a_batch_that_did_not_arrive_is_sent_again_and_finds_its_number_used_when_it_arrives() {
    let (proxy, kept) = kept_through_a_proxy();
    let mut writer = kept.store.writer().unwrap();
    make_files(&mut *writer, &["before"]).unwrap();
    let seq = kept.row().mark.seq;
    proxy.cut(Cut::Request);
    make_files(&mut *writer, &["again"]).unwrap();
    assert_eq!(kept.row().mark.seq, seq + 1);
    make_files(&mut *writer, &["later"]).unwrap();
    let rows = kept.rows();
    proxy.send_held();
    assert_eq!(kept.row().mark.seq, seq + 2);
    assert_alike(&rows, &kept.rows());
}

#[test]
fn a_batch_in_doubt_is_given_up_only_by_using_up_its_number() {
    let (proxy, kept) = kept_through_a_proxy();
    let mut writer = kept.store.writer().unwrap();
    make_files(&mut *writer, &["before"]).unwrap();
    let (schema, id, seq) = (kept.database.schema(), kept.row.id, kept.row().mark.seq);
    // The second attempt is refused for good, as on a full disk; the first one still runs.
    kept.database.run(&format!(
        "CREATE FUNCTION {schema}.full{id}() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; END $$;
         CREATE TRIGGER full{id} BEFORE INSERT ON {schema}.fs_dentry FOR EACH ROW
           WHEN (NEW.session = {id}) EXECUTE FUNCTION {schema}.full{id}()"
    ));
    proxy.cut(Cut::Request);
    let error = make_files(&mut *writer, &["given-up"]).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
    let used = kept.row().mark;
    assert_eq!(used.seq, seq + 1, "its number is used up");
    kept.database.run(&format!("DROP TRIGGER full{id} ON {schema}.fs_dentry"));
    let rows = kept.rows();
    proxy.send_held();
    assert_eq!(kept.row().mark, used, "what still ran changed nothing");
    assert_alike(&rows, &kept.rows());
    make_files(&mut *writer, &["later"]).unwrap();
    assert_eq!(names(&kept.rows()), ["before", "later"]);
    assert_eq!(kept.row().mark.seq, seq + 2);
    assert_alike(&kept.ours(), &kept.rows());
}

#[test]
fn a_batch_that_is_refused_at_once_leaves_its_number() {
    let (_proxy, kept) = kept_through_a_proxy();
    let mut writer = kept.store.writer().unwrap();
    let (schema, id, mark) = (kept.database.schema(), kept.row.id, kept.row().mark);
    kept.database.run(&format!(
        "CREATE FUNCTION {schema}.no{id}() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '53100'; END $$;
         CREATE TRIGGER no{id} BEFORE INSERT ON {schema}.fs_dentry FOR EACH ROW
           WHEN (NEW.session = {id}) EXECUTE FUNCTION {schema}.no{id}()"
    ));
    make_files(&mut *writer, &["refused"]).unwrap_err();
    assert_eq!(kept.row().mark, mark);
    kept.database.run(&format!("DROP TRIGGER no{id} ON {schema}.fs_dentry"));
    make_files(&mut *writer, &["later"]).unwrap();
    assert_eq!(names(&kept.rows()), ["later"]);
    assert_alike(&kept.ours(), &kept.rows());
}

#[test]
fn a_batch_without_an_answer_stays_in_doubt_when_another_server_has_the_session() {
    let (proxy, kept) = kept_through_a_proxy();
    let mut writer = kept.store.writer().unwrap();
    make_files(&mut *writer, &["before"]).unwrap();
    kept.take_away();
    proxy.cut(Cut::Request);
    let error = make_files(&mut *writer, &["doubtful"]).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::InDoubt, "{error}");
    assert!(kept.lease.is_lost());
    proxy.send_held();
    assert_eq!(names(&kept.rows()), ["before"]);
    let error = make_files(&mut *writer, &["later"]).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Lost, "nothing was sent: {error}");
}

#[test]
fn a_batch_ends_when_its_session_is_given_up_while_the_database_is_away() {
    // Nothing listens there.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let kept = Kept::through(port);
    let mut writer = kept.store.writer().unwrap();
    let lease = Arc::clone(&kept.lease);
    let given_up = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        lease.lose("the server stops");
        Instant::now()
    });
    let error = make_files(&mut *writer, &["never"]).unwrap_err();
    assert!(given_up.join().unwrap().elapsed() < Duration::from_secs(2));
    assert_eq!(error.kind, StoreErrorKind::Lost, "{error}");
    assert_eq!(names(&kept.rows()), [""; 0]);
}
