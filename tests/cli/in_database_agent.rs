//! `kv` and `tool` of sessions in a database: straight in its tables, served or not.

use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use super::in_database::Kept;
use super::program::said;

/// Where the session is while the commands run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// No server has it.
    AtRest,
    /// A server of this machine has it.
    Here,
    /// A server has it that commands do not find.
    Elsewhere,
}

const PLACES: [Place; 3] = [Place::AtRest, Place::Here, Place::Elsewhere];

/// Runs `test` with a command runner for each place.
fn in_each_place(test: impl Fn(&Kept, &dyn Fn(&[&str], i32) -> (String, String), Place)) {
    for place in PLACES {
        let kept = Kept::new();
        let server = (place != Place::AtRest).then(|| kept.serve("served", &[]));
        let run = |args: &[&str], code: i32| {
            let mut command = kept.command(args);
            if place == Place::Elsewhere {
                // Without the registry of this user's servers.
                command.env("XDG_RUNTIME_DIR", kept.path());
            }
            said(&command.output().unwrap(), code)
        };
        test(&kept, &run, place);
        drop(server);
    }
}

#[test]
fn keys_and_values_are_in_the_database() {
    in_each_place(|kept, run, place| {
        let url = kept.url.as_str();
        assert_eq!(run(&["kv", "ls", url], 0).0, "", "{place:?}");
        assert_eq!(run(&["kv", "get", url, "plan"], 1).1, "plan: no such key\n");
        run(&["kv", "set", url, "plan", "[1,2]"], 0);
        run(&["kv", "set", url, "plan/b", "text", "--string"], 0);
        let (_, error) = run(&["kv", "set", url, "plan", "text"], 2);
        assert!(error.contains("not JSON") && error.contains("--string"), "{error}");
        assert_eq!(run(&["kv", "get", url, "plan"], 0).0, "[1,2]\n");
        assert_eq!(run(&["kv", "get", url, "plan/b", "--raw"], 0).0, "text\n");
        let set = run(&["kv", "set", url, "plan", "7", "--json"], 0).0;
        let set: Value = serde_json::from_str(&set).unwrap();
        assert_eq!((&set["key"], &set["value"]), (&"plan".into(), &7.into()), "{set}");
        assert!(set["created_at"].is_string() && set["updated_at"].is_string(), "{set}");
        for key in ["z", "a%b", "a_b", "\u{e9}"] {
            run(&["kv", "set", url, key, "null"], 0);
        }
        assert_eq!(run(&["kv", "ls", url], 0).0, "a%b\na_b\nplan\nplan/b\nz\n\u{e9}\n");
        assert_eq!(run(&["kv", "ls", url, "plan/"], 0).0, "plan/b\n");
        assert_eq!(run(&["kv", "ls", url, "a_"], 0).0, "a_b\n", "no pattern");
        assert!(run(&["kv", "ls", url, "z", "--long"], 0).0.ends_with(" 4 z\n"));
        assert_eq!(run(&["kv", "ls", url, "--json"], 0).0.lines().count(), 6);
        let gone = run(&["kv", "rm", url, "plan", "--json"], 0).0;
        assert_eq!(serde_json::from_str::<Value>(&gone).unwrap()["value"], 7);
        run(&["kv", "rm", url, "plan"], 1);
        assert_eq!(run(&["kv", "get", url, "plan"], 1).0, "");
    });
}

#[test]
fn a_long_value_is_read_from_stdin_and_status_counts() {
    let kept = Kept::new();
    let long = format!("\"{}\"", "x".repeat(3 << 20));
    let mut command = kept.command(&["kv", "set", &kept.url, "long", "-"]);
    let mut setting = command.stdin(Stdio::piped()).spawn().unwrap();
    setting.stdin.take().unwrap().write_all(long.as_bytes()).unwrap();
    assert!(setting.wait().unwrap().success());
    assert_eq!(said(&kept.run(&["kv", "get", &kept.url, "long"]), 0).0, long + "\n");
    said(&kept.run(&["tool", "record", &kept.url, "step", "--result", "1"]), 0);
    let status = kept.on("status", &[]);
    assert!(status.contains("agent        1 value, 1 tool call\n"), "{status}");
}

#[test]
fn tool_calls_are_in_the_database() {
    in_each_place(|kept, run, place| {
        let url = kept.url.as_str();
        let record = ["tool", "record", url, "read", "--parameters", "{\"p\":1}"];
        let times = ["--started", "2026-11-21T12:00:00Z", "--completed", "2026-11-21T12:00:02Z"];
        let (number, _) = run(&[&record[..], &["--result", "[]"], &times].concat(), 0);
        assert_eq!(number, "1\n", "{place:?}");
        let failed = ["tool", "record", url, "read", "--error", "no such file", "--json"];
        let failed: Value = serde_json::from_str(&run(&failed, 0).0).unwrap();
        assert_eq!((&failed["id"], &failed["error"]), (&2.into(), &"no such file".into()));
        run(&["tool", "record", url, "write", "--result", "1"], 0);
        let ids = |args: &[&str]| {
            let (listed, _) = run(&[&["tool", "ls", url][..], args].concat(), 0);
            let first = listed.lines().map(|line| line.split_whitespace().next().unwrap());
            first.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ids(&[]), "1 2 3");
        assert_eq!(ids(&["--name", "read"]), "1 2");
        assert_eq!(ids(&["--status", "error"]), "2");
        assert_eq!(ids(&["--status", "success", "--last", "1"]), "3");
        assert_eq!(ids(&["--until", "2026-11-21T12:00:00Z"]), "1");
        assert_eq!(ids(&["--since", "2026-11-21T12:00:01Z"]), "2 3");
        let (shown, _) = run(&["tool", "show", url, "1"], 0);
        assert!(shown.contains("{\"p\":1}") && shown.contains("2 s"), "{shown}");
        run(&["tool", "show", url, "9"], 1);
        let (stats, _) = run(&["tool", "stats", url], 0);
        assert!(stats.lines().nth(2).unwrap_or(&stats).ends_with(" write"), "{stats}");
        let stats = run(&["tool", "stats", url, "--json"], 0).0;
        let read: Value = serde_json::from_str(stats.lines().next().unwrap()).unwrap();
        assert_eq!((&read["calls"], &read["errors"]), (&2.into(), &1.into()), "{read}");
    });
}

#[test]
fn a_tool_that_runs_has_its_changes_and_can_be_taken_back() {
    for is_served in [false, true] {
        let kept = Kept::new();
        let server = is_served.then(|| kept.serve("served", &[]));
        kept.on("mkdir", &["/before"]);
        let acetate = env!("CARGO_BIN_EXE_acetate");
        let line = format!("{acetate} mkdir '{}' /made; exit 3", kept.url);
        said(&kept.run(&["tool", "run", &kept.url, "make", "--", "sh", "-c", &line]), 3);
        kept.on("mkdir", &["/after"]);
        let (shown, _) = said(&kept.run(&["tool", "show", &kept.url, "1"]), 0);
        assert!(shown.contains("MKDIR") && shown.contains("/made"), "{shown}");
        assert!(!shown.contains("/before") && !shown.contains("/after"), "{shown}");
        let (listed, _) = said(&kept.run(&["tool", "ls", &kept.url, "--changes"]), 0);
        assert!(listed.contains("/made"), "{listed}");
        let bounds = kept.on("restore", &["--tool-call", "1", "--yes"]);
        assert_eq!(kept.on("ls", &[]), "a\nafter\nbefore\n", "{bounds}");
        // Also where the log is asked by tools.
        assert!(kept.on("log", &[]).contains("/made"));
        drop(server);
    }
}

#[test]
fn what_the_agent_keeps_moves_with_the_session() {
    let kept = Kept::new();
    said(&kept.run(&["kv", "set", &kept.url, "plan", "7"]), 0);
    said(&kept.run(&["tool", "run", &kept.url, "step", "--no-checkpoint", "--", "true"]), 0);
    said(&kept.run(&["pull", &kept.url, "back.db"]), 0);
    assert_eq!(said(&kept.run(&["kv", "get", "back.db", "plan"]), 0).0, "7\n");
    assert!(said(&kept.run(&["tool", "ls", "back.db"]), 0).0.contains("step"));
    assert!(said(&kept.run(&["check", "back.db"]), 0).0.contains("sound"));
    for args in [&["kv", "set", &kept.url, "a", "1"][..], &["tool", "stats", &kept.url]] {
        let (_, error) = said(&kept.run(args), 2);
        assert!(error.contains("the session was moved to"), "{error}");
    }
}
