//! The watchdog hears of a server while it is live, and only then.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::tempdir;

use super::manager::Manager;
use crate::cli::program::{acetate, run};

/// Microseconds, and a while that holds several messages.
const PERIOD: &str = "200000";
const SEVERAL: Duration = Duration::from_millis(1500);

const ARGS: [&str; 3] = ["s.db", "--listen", "127.0.0.1:0"];

#[test]
fn a_server_is_live_until_its_writer_is_stuck_and_again_afterwards() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let manager = Manager::new(dir);
    let more = [("WATCHDOG_USEC", PERIOD)];
    let server = manager.start(acetate(dir, &["serve"]), &ARGS, &more);
    manager.until("READY", "1");
    for _ in 0..3 {
        assert!(manager.next().has("WATCHDOG", "1"));
    }
    // Another program has the session's lock, and a change waits for it.
    let holder = rusqlite::Connection::open(dir.join("s.db")).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut change = acetate(dir, &["mkdir", "s.db", "made"]);
    let mut change = change.stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while manager.within(SEVERAL).is_some() {
        assert!(Instant::now() < deadline, "the watchdog never stops");
        if change.try_wait().unwrap().is_some() {
            // The change gave up before.
            change =
                acetate(dir, &["mkdir", "s.db", "made"]).stderr(Stdio::null()).spawn().unwrap();
        }
    }
    holder.execute_batch("ROLLBACK").unwrap();
    assert!(manager.next().has("WATCHDOG", "1"));
    change.wait().unwrap();
    assert!(run(dir, &["check", "s.db"]).status.success());
    server.signal("TERM");
    assert!(server.end().0.success());
}

#[test]
fn a_process_that_does_not_run_is_not_live() {
    let dir = tempdir().unwrap();
    let manager = Manager::new(dir.path());
    let more = [("WATCHDOG_USEC", PERIOD)];
    let server = manager.start(acetate(dir.path(), &["serve"]), &ARGS, &more);
    manager.until("WATCHDOG", "1");
    server.signal("STOP");
    while manager.within(SEVERAL).is_some() {}
    server.signal("CONT");
    assert!(manager.next().has("WATCHDOG", "1"));
    server.signal("TERM");
    assert!(server.end().0.success());
}

#[test]
fn there_is_no_watchdog_without_a_period_or_for_another_process() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let manager = Manager::new(dir);
    let of_shell = format!("WATCHDOG_PID={}", std::process::id());
    for more in [&[][..], &["WATCHDOG_USEC=0"], &["WATCHDOG_USEC=100000", &of_shell]] {
        let more: Vec<_> = more.iter().map(|pair| pair.split_once('=').unwrap()).collect();
        let server = manager.start(acetate(dir, &["serve"]), &ARGS, &more);
        manager.until("READY", "1");
        assert_eq!(manager.within(SEVERAL), None, "{more:?}");
        server.signal("TERM");
        assert!(server.end().0.success());
        manager.rest();
    }
    // With the process's own number there is one.
    let mut serve = Command::new("sh");
    let program = acetate(dir, &[]);
    serve.args(["-c", "WATCHDOG_PID=$$ exec \"$@\"", "sh"]).arg(program.get_program());
    serve.arg("serve").current_dir(dir);
    let server = manager.start(serve, &ARGS, &[("WATCHDOG_USEC", PERIOD)]);
    manager.until("WATCHDOG", "1");
    drop(server);
}
