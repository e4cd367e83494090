//! Leases of several sessions that one server renews.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use acetate::delta::postgres::{
    Hold, HoldOptions, LeaseRenewals, LeaseTime, SessionUrl, connect, find, upload,
};
use acetate::delta::sqlite::{CreateOptions, Session};
use tokio::runtime::Handle;
use tokio_postgres::Client;

use super::host;
use crate::support::database::server::any;

const TERM: Duration = Duration::from_secs(2);

fn new_session() -> SessionUrl {
    let (url, dir) = (any().new_url(), tempfile::tempdir().unwrap());
    let file = dir.path().join("new.db");
    let file = Session::create(&file, &CreateOptions::default(), &host()).unwrap();
    any().with(|client, runtime| upload((client, runtime), &url, &file, TERM).unwrap());
    url
}

fn hold(url: &SessionUrl, renewals: &Arc<LeaseRenewals>) -> Hold {
    let options = HoldOptions {
        holder: "a test".to_owned(),
        address: String::new(),
        is_standby: false,
        patience: None,
        renewals: Arc::clone(renewals),
    };
    any().with(|_, runtime| runtime.block_on(Hold::take(url, &options, runtime)).unwrap())
}

fn beat(url: &SessionUrl) -> i64 {
    any().with(|client, runtime| runtime.block_on(find(client, url)).unwrap().lease.beat)
}

fn is_valid(hold: &Hold) -> bool {
    hold.session.lease.is_valid(LeaseTime::now())
}

/// Whether it is true within a few terms.
fn soon(is_it: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + TERM * 5;
    while !is_it() {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

#[test]
fn one_connection_renews_all_sessions_and_one_that_is_lost_ends_alone() {
    let urls = [new_session(), new_session(), new_session()];
    let renewals = Arc::new(LeaseRenewals::default());
    let [first, second, third] = urls.each_ref().map(|url| hold(url, &renewals));
    assert_eq!(renewals.connections(), 1);
    thread::sleep(TERM * 2);
    assert!([&first, &second, &third].iter().all(|hold| is_valid(hold)));
    let schema = any().schema();
    any().run(&format!(
        "UPDATE {schema}.session SET epoch = epoch + 1 WHERE name = '{}'",
        urls[1].name
    ));
    assert!(soon(|| second.session.lease.is_lost()), "the others say so");
    let before = beat(&urls[0]);
    assert!(soon(|| beat(&urls[0]) > before) && is_valid(&first) && is_valid(&third));
    drop((first, second, third));
    assert!(soon(|| renewals.connections() == 0), "no connection is left");
    let again = hold(&new_session(), &renewals);
    thread::sleep(TERM * 2);
    assert!(is_valid(&again), "and a later session has one");
}

#[test]
fn a_session_whose_row_is_locked_by_a_batch_holds_up_no_other() {
    let urls = [new_session(), new_session()];
    let renewals = Arc::new(LeaseRenewals::default());
    let [busy, other] = urls.each_ref().map(|url| hold(url, &renewals));
    busy.session.lease.set_shipping(true);
    let schema = any().schema();
    let name = &urls[0].name;
    // As a statement that takes long.
    let connected = |_: &mut Client, runtime: &Handle| {
        runtime.block_on(connect(&urls[0].connection, runtime)).unwrap()
    };
    let slow = any().with(connected);
    let run = |sql: &str| any().with(|_, it| it.block_on(slow.batch_execute(sql)).unwrap());
    run(&format!("BEGIN; UPDATE {schema}.session SET beat = beat + 1 WHERE name = '{name}'"));
    let end = Instant::now() + TERM * 3;
    while Instant::now() < end {
        assert!(is_valid(&other), "its renewals wait for the batch of another session");
        thread::sleep(Duration::from_millis(10));
    }
    run("ROLLBACK");
    busy.session.lease.set_shipping(false);
    assert!(soon(|| is_valid(&busy)), "and it is renewed again");
}
