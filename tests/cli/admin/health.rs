//! `/healthz` and `/readyz` of a real server.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::Watched;
use crate::cli::program::{Serving, failure};
use crate::support::http::{Scraped, get};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the answer at `path` has this status; returns its text.
#[track_caller]
fn wait_for(to: SocketAddr, path: &str, status: u16) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let response = get(to, path);
        if response.status == status {
            return response.body;
        }
        assert!(Instant::now() < deadline, "{path}: {response:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_is_alive_and_ready() {
    let watched = Watched::start("", &[]);
    for path in ["/healthz", "/readyz"] {
        let response = get(watched.admin, path);
        assert_eq!((response.status, response.body.as_str()), (200, "ok\n"), "{path}");
    }
    assert_eq!(Scraped::of(watched.admin).value("acetate_ready"), 1.0);
    watched.server.signal("TERM");
    assert!(watched.server.end().0.success());
}

#[test]
fn a_session_that_is_only_read_is_ready() {
    let watched = Watched::start("file \"x\"", &["--read-only"]);
    assert_eq!(get(watched.admin, "/readyz").status, 200);
    assert_eq!(Scraped::of(watched.admin).value("acetate_sessions_failed"), 0.0);
}

#[test]
fn a_session_that_lost_its_file_is_not_ready() {
    let watched = Watched::start("", &[]);
    fs::rename(watched.path("s.db"), watched.path("moved.db")).unwrap();
    let why = wait_for(watched.admin, "/readyz", 503);
    assert_eq!(why, "a session became read-only after an error; see the log\n");
    assert_eq!(get(watched.admin, "/healthz").status, 200, "a restart would lose its content");
    let scraped = Scraped::of(watched.admin);
    assert_eq!(scraped.value("acetate_sessions_failed"), 1.0);
    assert_eq!(scraped.value("acetate_ready"), 0.0);
}

#[test]
fn a_writer_that_is_stuck_is_no_health() {
    let watched = Watched::start("", &[]);
    let other = Connection::open(watched.path("s.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut peer = watched.peer();
    let change = watched.runtime.spawn(async move {
        let root = peer.root.clone();
        peer.mkdir(&root, "made").await
    });
    let why = wait_for(watched.admin, "/healthz", 503);
    assert_eq!(why, "the writer of a session is stuck in one operation\n");
    assert_eq!(get(watched.admin, "/readyz").status, 503);
    other.execute_batch("ROLLBACK").unwrap();
    wait_for(watched.admin, "/healthz", 200);
    wait_for(watched.admin, "/readyz", 200);
    let _done = watched.runtime.block_on(change).unwrap();
}

#[test]
fn a_server_that_drains_is_alive_and_not_ready() {
    let watched = Watched::start("", &[]);
    let other = Connection::open(watched.path("s.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut peer = watched.peer();
    let change = watched.runtime.spawn(async move {
        let root = peer.root.clone();
        peer.mkdir(&root, "made").await
    });
    let in_flight = || Scraped::of(watched.admin).value("acetate_requests_in_flight");
    let deadline = Instant::now() + PATIENCE;
    while in_flight() == 0.0 {
        assert!(Instant::now() < deadline, "no call came");
    }
    watched.server.signal("TERM");
    // The call holds the server up.
    assert_eq!(wait_for(watched.admin, "/readyz", 503), "draining: the server stops\n");
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    let _done = watched.runtime.block_on(change).unwrap();
    assert!(watched.server.end().0.success());
}

#[test]
fn exports_are_ready_while_one_of_them_is_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let export = |name: &str, more: &str| {
        format!(
            "[[export]]\npath = \"/{name}\"\n[[export.mount]]\nat = \"/\"\n\
             session = \"{name}.db\"\n{more}"
        )
    };
    let all = export("a", "") + &export("b", "base = \"none\"\n");
    fs::write(dir.path().join("exports.toml"), all).unwrap();
    let watched = Watched::start_in(dir, &["--config", "exports.toml"]);
    assert_eq!(get(watched.admin, "/readyz").status, 200);
    watched.server.signal("TERM");
    assert!(watched.server.end().0.success());
}

#[test]
fn other_machines_are_warned_of_and_a_port_in_use_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let far = Serving::start(dir.path(), 1, &["far.db", "--admin", "0.0.0.0:0"]);
    let warned = far.said.iter().find(|line| line.starts_with("warning: ")).unwrap();
    assert!(warned.contains("can read the figures at 0.0.0.0:"), "{warned}");
    let near = Watched::start("", &[]);
    assert!(!near.server.said.iter().any(|line| line.starts_with("warning: other")));
    let taken = near.admin.to_string();
    let args = ["serve", "n.db", "--listen", "0", "--admin", &taken];
    let said = failure(dir.path(), &args);
    let expected = format!("error: cannot listen at {taken} for --admin: ");
    assert!(said.starts_with(&expected), "{said}");
    assert!(said.contains("\nhint: choose another address or port: --admin "), "{said}");
    assert!(!dir.path().join("n.db").exists());
}
