//! `acetate compact`.

use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::tempdir;

use super::program::{Serving, acetate, failure, run};
use crate::delta::Place;
use crate::inspect::all_rows;
use crate::inspect::half_empty;
use crate::support::check::assert_consistent;
use crate::support::skip::skip;

#[test]
fn it_says_how_large_the_session_was_and_is() {
    let place = Place::new();
    half_empty(&place, 40);
    let dir = place.path.parent().unwrap();
    let output = run(dir, &["compact", "session.db"]);
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("session.db: ") && said.ends_with(" MiB after\n"), "{said}");
    assert!(output.stderr.is_empty(), "no progress without a terminal");
    let output = run(dir, &["compact", "--json", "session.db"]);
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["session"], "session.db");
    assert_eq!(object["is_delayed"], false);
    let bytes = std::fs::metadata(&place.path).unwrap().len();
    assert_eq!(object["after_bytes"], bytes);
    assert!(object["before_bytes"].as_u64().unwrap() >= bytes);
}

#[test]
fn a_served_session_is_compacted_by_its_server() {
    let dir = tempdir().unwrap();
    let server = Serving::start(dir.path(), 1, &["s.db"]);
    std::fs::write(dir.path().join("large"), vec![b'l'; 20 << 20]).unwrap();
    for args in [["write", "kept"], ["write", "gone"]] {
        let from = ["s.db", args[1], "--from", "large"];
        assert!(run(dir.path(), &[&args[..1], &from].concat()).status.success());
    }
    assert!(run(dir.path(), &["rm", "s.db", "gone"]).status.success());
    let output = run(dir.path(), &["compact", "s.db", "--json"]);
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let (before, after) = (&object["before_bytes"], &object["after_bytes"]);
    assert!(before.as_u64().unwrap() > after.as_u64().unwrap() + (15 << 20), "{object}");
    // It goes on: what was kept is there, and what comes is taken.
    assert!(run(dir.path(), &["cp", "s.db", ":kept", ":more"]).status.success());
    assert_eq!(run(dir.path(), &["cat", "s.db", "more"]).stdout.len(), 20 << 20);
    server.signal("TERM");
    assert!(server.end().0.success());
    assert_consistent(&dir.path().join("s.db"));
}

#[test]
fn a_server_without_a_control_socket_and_a_missing_session_are_refused() {
    let dir = tempdir().unwrap();
    let server = Serving::start(dir.path(), 1, &["s.db"]);
    std::fs::remove_file(dir.path().join("s.db-control")).unwrap();
    let said = failure(dir.path(), &["compact", "s.db"]);
    assert!(said.starts_with("error: ") && said.contains("in use by another server"), "{said}");
    assert!(said.contains("hint: stop that server first"), "{said}");
    server.signal("TERM");
    assert!(server.end().0.success());
    assert!(run(dir.path(), &["compact", "s.db"]).status.success());
    let said = failure(dir.path(), &["compact", "none.db"]);
    assert!(said.contains("none.db: no such session"), "{said}");
}

#[test]
fn killed_at_any_time_it_loses_nothing() {
    let place = Place::new();
    half_empty(&place, 300);
    let dir = place.path.parent().unwrap();
    let rows = all_rows(&place.path);
    let before = std::fs::metadata(&place.path).unwrap().len();
    let mut was_killed = 0;
    for delay in [2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128] {
        let mut command = acetate(dir, &["compact", "session.db"]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        child.kill().unwrap();
        was_killed += usize::from(!child.wait().unwrap().success());
        assert!(all_rows(&place.path) == rows, "a row changed, killed after {delay} ms");
    }
    assert!(was_killed > 0, "it was never killed");
    assert_consistent(&place.path);
    assert!(run(dir, &["compact", "session.db"]).status.success());
    assert!(std::fs::metadata(&place.path).unwrap().len() < before * 6 / 10);
    assert_eq!(place.names(), ["session.db"]);
    assert!(all_rows(&place.path) == rows);
}

#[test]
fn a_server_on_a_disk_that_is_full_is_said_how_much_it_needs() {
    if !Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success()) {
        skip("no mount namespace without root");
        return;
    }
    let place = Place::new();
    half_empty(&place, 40);
    let dir = tempdir().unwrap();
    let script = r#"
        mount -t tmpfs -o size=64m none "$0" && cd "$0" && cp "$2" s.db || exit 9
        "$1" serve s.db --listen 127.0.0.1:0 2>/dev/null &
        while ! "$1" status s.db | grep -q "^at "; do sleep 0.1; done
        head -c 64M /dev/zero >filled 2>/dev/null
        "$1" compact s.db 2>&1; echo "exit $?"
        kill $!; wait
    "#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(dir.path());
    let output = command.arg(env!("CARGO_BIN_EXE_acetate")).arg(&place.path).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("hint: compacting needs about ") && said.ends_with("exit 2\n"), "{said}");
}

#[test]
fn a_disk_that_is_nearly_full_leaves_the_session_as_it_was() {
    if !Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success()) {
        skip("no mount namespace without root");
        return;
    }
    let place = Place::new();
    half_empty(&place, 40);
    let dir = tempdir().unwrap();
    // What is left of the disk, in MiB: nothing, and less than what is in use; then enough.
    let script = r#"
        mount -t tmpfs -o size=64m none "$0" && cd "$0" && cp "$2" s.db || exit 9
        for left in 0 1 3; do
            head -c $((64 - left - $(du -sm . | cut -f1)))M /dev/zero >filled 2>/dev/null
            "$1" compact s.db >>said 2>&1 </dev/null; echo "exit $?"
            cmp s.db "$2" && echo same; ls
            rm -f filled
        done
        mount -o remount,size=1g .
        "$1" compact s.db >/dev/null && echo compacted; "$1" check s.db >/dev/null && echo sound
    "#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(dir.path());
    let output = command.arg(env!("CARGO_BIN_EXE_acetate")).arg(&place.path).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let refused = "exit 2\nsame\nfilled\ns.db\nsaid\n";
    assert_eq!(said, format!("{}compacted\nsound\n", refused.repeat(3)));
}
