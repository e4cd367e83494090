//! The program removes instances that expire, on disks that are full or read-only and when it is
//! killed, and `exports keep` says which stay.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::program::{Serving, failure, run};
use crate::support::skip::skip;

const EXPORTS: &str = "idle_close = \"1s\"\n[[template]]\npath = \"/chat/{id}\"\n\
    allow = { id = \"c[0-9]+\" }\nexpire = \"2s\"\n\
    [[template.mount]]\nat = \"/\"\nsession = \"chats/{id}.db\"\n";

/// Runs a script in a tmpfs of 16 MiB with `exports.toml` and 12 sessions of its template, on a
/// tmpfs of their own; `$a` is the program. A start knows them, as it makes the registry of them.
/// `None` without root.
fn with_instances(script: &str) -> Option<String> {
    if !Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success()) {
        skip("no mount namespace without root");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let before = r#"
        mount -t tmpfs -o size=16m none "$0" && cd "$0" && mkdir chats || exit 9
        mount -t tmpfs -o size=64m none chats || exit 9
        log=/dev/shm/acetate-expire-$$; trap 'rm $log' EXIT
        a="$1"; printf '%s' "$2" >exports.toml
        serve() {
            : >$log
            "$a" --log info serve --config exports.toml --listen 127.0.0.1:0 2>$log & server=$!
            while ! grep -q '^template' $log; do sleep 0.05; done
        }
        stop() { kill "$@" $server; wait $server 2>/dev/null; }
        sessions() { find chats -name '*.db' | wc -l; }
        for c in 1 2 3 4 5 6 7 8 9 10 11 12; do "$a" init chats/c$c.db 2>/dev/null || exit 9; done
        until_gone() {
            for try in $(seq 600); do [ "$(ls -A chats)" ] || return; sleep 0.1; done
            echo "still there:"; ls -A chats
        }
    "#;
    let mut command = Command::new("unshare");
    command.args(["-m", "bash", "-c", &format!("{before}{script}")]).arg(dir.path());
    let output = command.args([env!("CARGO_BIN_EXE_acetate"), EXPORTS]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.stderr.is_empty(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    Some(said)
}

#[test]
fn sessions_in_a_read_only_directory_stay_until_it_can_be_written() {
    let script = r#"
        serve; stop
        mount -o remount,ro chats
        serve; sleep 5; sessions; grep -c 'that expired is not removed' $log; stop
        mount -o remount,rw chats
        serve; until_gone; grep -c 'has expired and is removed' $log; stop; sessions
    "#;
    let Some(said) = with_instances(script) else { return };
    assert_eq!(said, "12\n1\n12\n0\n");
}

#[test]
fn a_session_whose_files_cannot_all_be_renamed_stays_whole() {
    let script = r#"
        echo of a server >chats/c3.db.log
        mkdir chats/c3.db-undo; mount -t tmpfs none chats/c3.db-undo
        serve
        for try in $(seq 600); do [ "$(sessions)" = 1 ] && break; sleep 0.1; done
        sleep 4; ls -A chats; grep -ci 'not removed.*busy' $log
        stop; "$a" check chats/c3.db | tail -1
        umount chats/c3.db-undo
        serve; until_gone; ls -A chats; stop
    "#;
    let Some(said) = with_instances(script) else { return };
    assert_eq!(said, "c3.db\nc3.db-undo\nc3.db.log\n1\nchats/c3.db: sound\n");
}

#[test]
fn a_full_disk_removes_nothing_in_part() {
    let script = r#"
        serve; stop
        head -c 64M /dev/zero >filled 2>/dev/null
        serve; sleep 5; sessions
        grep -c 'that expired is not removed\|does not record uses' $log
        rm filled; until_gone; sessions; stop
    "#;
    let Some(said) = with_instances(script) else { return };
    assert_eq!(said, "12\n1\n0\n");
}

#[test]
fn kills_during_removals_leave_nothing_that_stays() {
    let script = r#"
        killed_at() {
            serve
            for try in $(seq 200000); do
                for file in $1; do [ -s "$file" ] && break 2; done
            done
            stop -9
        }
        for round in 1 2 3; do
            killed_at 'chats/*-lock'
            killed_at exports.toml.instances-journal
            killed_at 'chats/.gone-*'
        done
        serve; until_gone; stop; sessions; grep -c error $log
    "#;
    let Some(said) = with_instances(script) else { return };
    assert_eq!(said, "0\n0\n");
}

#[test]
fn a_second_server_of_an_exports_file_with_templates_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("exports.toml"), EXPORTS).unwrap();
    let first = Serving::start(dir.path(), 1, &["--config", "exports.toml"]);
    let serve = ["serve", "--config", "exports.toml", "--listen", "127.0.0.1:0"];
    let said = failure(dir.path(), &serve);
    assert!(said.contains("another server serves this exports file"), "{said}");
    drop(first);
    // Also after one that was killed.
    Serving::start(dir.path(), 1, &["--config", "exports.toml"]);
}

#[test]
fn an_instance_is_kept_by_its_path() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("exports.toml"), EXPORTS).unwrap();
    let says = |args: &[&str], code: i32| {
        let output = run(dir.path(), &[&["exports", "keep", "exports.toml"][..], args].concat());
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8(text).unwrap()
    };
    assert!(says(&["/chat/c1"], 2).contains("no client has mounted /chat/c1 yet"));
    let file = acetate::workspace::exports::registry_file(&dir.path().join("exports.toml"));
    let (registry, _) = acetate::delta::sqlite::InstanceRegistry::open(&file).unwrap();
    registry.record("/chat/c1", &[]).unwrap();
    registry.complete().unwrap();
    assert_eq!(says(&["/chat/c1"], 0), "/chat/c1 is kept\n");
    let said: Value = serde_json::from_str(&says(&["/chat/c1", "--off", "--json"], 0)).unwrap();
    assert_eq!((&said["is_kept"], &said["was_kept"]), (&Value::Bool(false), &Value::Bool(true)));
    assert_eq!(says(&["/chat/c1", "--off"], 0), "/chat/c1 is no longer kept\n");
    assert!(says(&["/chat/c2"], 2).contains("no client has mounted /chat/c2 yet"));
    assert!(says(&["/chat/d1"], 2).contains("no template matches /chat/d1"));
}
