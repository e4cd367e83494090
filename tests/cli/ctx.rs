//! `acetate ctx`, both where a server has the session and where nobody does.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::program::{Serving, acetate, run};
use crate::support::check::assert_consistent;

const COFFEE: &str = "ctx://acme/users/alice/memories/preferences/coffee";
const VISIT: &str = "ctx://acme/agents/gpt-4/memories/events/visit";
const BREW: &str = "ctx://acme/agents/gpt-4/skills/brew";

/// A session, served or not.
struct Place {
    dir: TempDir,
    server: Option<Serving>,
}

impl Place {
    fn new(is_served: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        assert!(run(dir.path(), &["init", "s.db"]).status.success());
        let server = is_served.then(|| Serving::start(dir.path(), 1, &["s.db"]));
        Self { dir, server }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Begins a verb, with all of its input written.
    fn begin(&self, verb: &str, args: &[&str], stdin: &str) -> Child {
        let verb: Vec<&str> = verb.split(' ').collect();
        let args = [&["ctx"], &verb[..], &["s.db"], args].concat();
        let mut command = acetate(self.path(), &args);
        let command = command.env_remove("ACETATE_ACCOUNT").stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let _gone = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        child
    }

    fn ask(&self, verb: &str, args: &[&str], stdin: &str) -> Output {
        self.begin(verb, args, stdin).wait_with_output().unwrap()
    }

    /// What a verb prints to both; it exits with this.
    #[track_caller]
    fn says(&self, code: i32, verb: &str, args: &[&str]) -> String {
        let output = self.ask(verb, args, "");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{verb} {args:?}: {said}");
        String::from_utf8(output.stdout).unwrap() + &said
    }

    #[track_caller]
    fn json(&self, verb: &str, args: &[&str]) -> Vec<Value> {
        let output = self.ask(verb, &[args, &["--json"]].concat(), "");
        let lines = String::from_utf8(output.stdout).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[track_caller]
    fn put(&self, uri: &str, content: &str) {
        let output = self.ask("put", &[uri], content);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }

    #[track_caller]
    fn end(mut self) {
        if let Some(server) = self.server.take() {
            server.signal("TERM");
            assert!(server.end().0.success());
        }
        assert_consistent(&self.path().join("s.db"));
    }
}

fn in_both(test: impl Fn(&Place)) {
    for is_served in [false, true] {
        let place = Place::new(is_served);
        test(&place);
        place.end();
    }
}

#[test]
fn a_node_is_put_and_got() {
    in_both(|place| {
        place.put(COFFEE, "# Coffee\n\nBlack.\n");
        assert_eq!(place.says(0, "get", &[COFFEE]), "# Coffee\n\nBlack.\n");
        assert_eq!(place.says(0, "get", &[COFFEE, "--abstract"]), "Coffee\n");
        assert_eq!(place.says(0, "get", &[COFFEE, "--overview"]), "# Coffee\n");
        std::fs::write(place.path().join("in"), "second").unwrap();
        let options = [COFFEE, "in", "--tag", "a", "--tag", "b", "--abstract", "short"];
        let put = place.json("put", &options).remove(0);
        assert_eq!((&put["uri"], &put["version"]), (&COFFEE.into(), &2.into()));
        let got = place.json("get", &[COFFEE]).remove(0);
        assert_eq!((&got["content"], &got["abstract"]), (&"second".into(), &"short".into()));
        assert_eq!(got["meta"]["tags"], serde_json::json!(["a", "b"]));
        assert_eq!((&got["v"], &got["type"]), (&1.into(), &"ctx_node".into()));
        let meta: Value = serde_json::from_str(&place.says(0, "get", &[COFFEE, "--meta"])).unwrap();
        assert_eq!(meta["status"], "ACTIVE");
        let tree = run(place.path(), &["find", "s.db", "accounts", "--name", "*.md"]).stdout;
        let dir = "/accounts/acme/users/alice/memories/preferences/coffee";
        let files = format!("{dir}/.abstract.md\n{dir}/.overview.md\n{dir}/content.md\n");
        assert_eq!(String::from_utf8(tree).unwrap(), files);
        place.put(VISIT, "a visit");
        assert_eq!(place.says(0, "ls", &["ctx://"]), format!("{VISIT}\n{COFFEE}\n"));
        assert_eq!(place.says(0, "ls", &["ctx://acme/users/"]), format!("{COFFEE}\n"));
        let long = place.says(0, "ls", &["ctx://acme/users", "-la"]);
        assert!(long.starts_with("ACTIVE     2 2") && long.ends_with("coffee  short\n"), "{long}");
        assert_eq!(place.json("ls", &["ctx://acme"])[1]["meta"]["version"], 2);
    });
}

#[test]
fn what_is_not_there_exits_with_1_and_what_is_wrong_with_2() {
    in_both(|place| {
        for verb in ["get", "rm"] {
            assert_eq!(place.says(1, verb, &[COFFEE]), format!("{COFFEE}: no such node\n"));
        }
        for (verb, args, what) in [
            ("get", &["ctx://acme/users/../x"][..], "the user must be of"),
            ("put", &["ctx://acme/users/alice"], "names no node"),
            ("put", &[COFFEE], "no line to make the abstract of"),
            ("put", &[COFFEE, "none"], "none: No such file"),
            ("put", &[COFFEE, "s.db"], "not UTF-8"),
            ("put", &[COFFEE, "--abstract", &"x".repeat(101)], "101 characters"),
            ("mv", &[COFFEE, BREW], "no such node"),
            ("relate", &[COFFEE, BREW], "no such node"),
            ("outbox ack", &["../x"], "not the id of an event"),
            ("ls", &["ctx://acme", "--account", "beta"], "not of the account beta"),
        ] {
            let said = place.says(2, verb, args);
            assert!(said.starts_with("error: ") && said.contains(what), "{verb} {args:?}: {said}");
        }
        assert_eq!(place.says(0, "ls", &["ctx://"]), "");
        let id = "00000000-0000-7000-8000-000000000000";
        for verb in ["ack", "fail", "retry"] {
            let said = place.says(1, &format!("outbox {verb}"), &[id]);
            assert!(said.starts_with(&format!("{id}: no such event")), "{said}");
        }
    });
}

#[test]
fn nodes_are_related_moved_and_removed_and_their_events_taken() {
    in_both(|place| {
        place.put(COFFEE, "coffee");
        place.put(VISIT, "visit");
        let options = ["--type", "because", "--weight", "0.85", "--reason", "why"];
        assert_eq!(place.says(0, "relate", &[&[COFFEE, VISIT], &options[..]].concat()), "");
        let edges: Value =
            serde_json::from_str(&place.says(0, "get", &[COFFEE, "--relations"])).unwrap();
        assert_eq!((&edges[0]["to_uri"], &edges[0]["weight"]), (&VISIT.into(), &0.85.into()));
        assert!(place.says(2, "mv", &[COFFEE, VISIT]).contains("a node already"));
        let moved = place.json("mv", &[COFFEE, BREW]).remove(0);
        assert_eq!((&moved["uri"], &moved["event_type"]), (&BREW.into(), &"MOVE_CONTEXT".into()));
        assert_eq!(place.says(0, "get", &[BREW]), "coffee");
        assert_eq!(place.json("rm", &[VISIT])[0]["version"], Value::Null);
        let events = place.json("outbox ls", &[]);
        let kinds: Vec<&str> =
            events.iter().map(|event| event["event"]["event_type"].as_str().unwrap()).collect();
        let upsert = "UPSERT_CONTEXT";
        assert_eq!(kinds, [upsert, upsert, "UPSERT_RELATION", "MOVE_CONTEXT", "DELETE_CONTEXT"]);
        assert_eq!(
            (&events[0]["node"], &events[0]["event"]["uri"]),
            (&BREW.into(), &COFFEE.into())
        );
        let ids: Vec<&str> =
            events.iter().map(|event| event["event"]["event_id"].as_str().unwrap()).collect();
        for times in 1..=3 {
            let failed = place.json("outbox fail", &[ids[0]]).remove(0);
            assert_eq!(
                (&failed["event"]["retry_count"], &failed["dead"]),
                (&times.into(), &(times == 3).into())
            );
        }
        let dead = place.says(0, "outbox ls", &["--dead"]);
        assert!(dead.contains(ids[0]) && dead.lines().count() == 1, "{dead}");
        place.says(0, "outbox retry", &[ids[0]]);
        assert_eq!(place.says(0, "outbox ls", &["ctx://acme/agents"]).lines().count(), 5);
        assert_eq!(place.json("outbox ack", &ids).len(), 5);
        assert_eq!(place.says(0, "outbox ls", &[]), "");
        let dirs = run(place.path(), &["find", "s.db", "--name", "visit"]).stdout;
        assert!(dirs.is_empty(), "{}", String::from_utf8_lossy(&dirs));
    });
}

#[test]
fn an_account_keeps_to_itself() {
    in_both(|place| {
        let theirs = "ctx://beta/users/bob/memories/profile";
        place.put(COFFEE, "ours");
        place.put(theirs, "theirs");
        for (verb, args) in [
            ("get", &[theirs][..]),
            ("put", &[theirs]),
            ("rm", &[theirs]),
            ("mv", &[COFFEE, theirs]),
            ("ls", &["ctx://beta"]),
            ("ls", &["ctx://"]),
            ("outbox ls", &["ctx://beta/users"]),
        ] {
            let said = place.says(2, verb, &[args, &["--account", "acme"]].concat());
            assert!(said.contains("not of the account acme"), "{verb}: {said}");
        }
        let env = |args: &[&str], account: &str| {
            let mut command = acetate(place.path(), args);
            command.env("ACETATE_ACCOUNT", account).output().unwrap()
        };
        assert_eq!(env(&["ctx", "get", "s.db", theirs], "acme").status.code(), Some(2));
        assert_eq!(env(&["ctx", "get", "s.db", COFFEE], "acme").stdout, b"ours");
        assert_eq!(
            env(&["ctx", "get", "s.db", theirs, "--account", "beta"], "acme").stdout,
            b"theirs"
        );
        let said = env(&["ctx", "get", "s.db", COFFEE], "../x").stderr;
        assert!(String::from_utf8_lossy(&said).contains("ACETATE_ACCOUNT: ../x"));
        assert_eq!(
            env(&["ctx", "outbox", "ls", "s.db"], "acme").stdout.split(|b| *b == b'\n').count(),
            2
        );
    });
}

#[test]
fn repair_says_what_it_does() {
    in_both(|place| {
        place.put(COFFEE, "coffee");
        place.put(VISIT, "visit");
        let dir = "/accounts/acme/users/alice/memories/preferences/coffee";
        let file = |name: &str| format!("{dir}/{name}");
        let meta = place.says(0, "get", &[COFFEE, "--meta"]).replace("ACTIVE", "PENDING");
        std::fs::write(place.path().join("meta"), meta).unwrap();
        let write = ["write", "s.db", &file(".meta.json"), "--from", "meta"];
        assert!(run(place.path(), &write).status.success());
        let said = place.says(1, "get", &[COFFEE]);
        assert!(said.contains("no such node (it is PENDING)\nhint: "), "{said}");
        let all = place.says(0, "ls", &["ctx://acme", "--all"]);
        assert_eq!(all, format!("ACTIVE  {VISIT}\nPENDING {COFFEE}\n"));
        let said = place.says(1, "repair", &["--dry-run"]);
        assert!(said.contains("PENDING, and all of it is there: would be made ACTIVE"), "{said}");
        assert_eq!(place.json("repair", &[])[0]["fault"], "pending_whole");
        assert_eq!(place.says(0, "get", &[COFFEE]), "coffee");
        assert!(run(place.path(), &write).status.success());
        assert!(run(place.path(), &["rm", "s.db", &file(".abstract.md")]).status.success());
        let said = place.says(1, "repair", &[]);
        assert!(said.contains(".abstract.md is missing: marked BROKEN"), "{said}");
        let said = place.says(0, "repair", &[]);
        assert_eq!(said, "ACTIVE: 1 node; BROKEN before: 1\n");
        place.put(COFFEE, "anew");
        assert_eq!(place.says(0, "get", &[COFFEE]), "anew");
    });
}

/// Content of which abstract and overview tell which one it is.
fn version(number: usize) -> String {
    format!("# number {number}\n{}", format!("line {number}\n").repeat(20_000))
}

/// Asserts that a node is all of one version; which one.
#[track_caller]
fn whole(place: &Place, uri: &str) -> Option<usize> {
    let node = place.json("get", &[uri]).pop()?;
    let title = node["abstract"].as_str().unwrap();
    let number = title.strip_prefix("number ").unwrap().parse().unwrap();
    assert_eq!(node["overview"], format!("# number {number}"));
    assert_eq!(node["content"], version(number));
    Some(number)
}

#[test]
fn writers_at_once_take_turns() {
    for is_served in [false, true] {
        let place = Place::new(is_served);
        let writers: Vec<Child> =
            (0..4).map(|number| place.begin("put", &[COFFEE], &version(number))).collect();
        for writer in writers {
            let output = writer.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
        }
        assert!(whole(&place, COFFEE).is_some());
        assert_eq!(place.json("get", &[COFFEE])[0]["meta"]["version"], 4);
        assert_eq!(place.json("outbox ls", &[]).len(), 4);
        place.end();
    }
}

#[test]
fn a_killed_writer_leaves_the_old_node_or_the_new_one() {
    for is_served in [false, true] {
        let place = Place::new(is_served);
        place.put(COFFEE, &version(0));
        let mut before = 0;
        let mut seen = BTreeSet::new();
        // How long a writer has is drawn to the moment at which it is done, wherever that is.
        let mut patience = Duration::from_millis(15);
        for number in 1..=16 {
            let mut writer = place.begin("put", &[COFFEE], &version(number));
            std::thread::sleep(patience);
            writer.kill().unwrap();
            writer.wait().unwrap();
            place.says(0, "repair", &[]);
            let now = whole(&place, COFFEE).unwrap();
            assert!(now == before || now == number, "{now} after {before} and {number}");
            seen.insert(now == number);
            patience = if now == number { patience / 2 } else { patience * 3 / 2 };
            before = now;
            let events = place.json("outbox ls", &[]);
            let version = &place.json("get", &[COFFEE])[0]["meta"]["version"];
            assert_eq!(*version, events.len(), "one event for each version");
        }
        assert_eq!(seen.len(), 2, "none was killed in time, or each");
        place.end();
    }
}
