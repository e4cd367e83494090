//! `acetate tool record`, `ls`, `show` and `stats`.

use std::process::Output;

use serde_json::{Value, json};

use super::program::run;
use crate::support::world::World;

/// Runs a verb on the world's session.
fn tool(world: &World, verb: &str, args: &[&str]) -> Output {
    run(world.scratch(), &[&["tool", verb, "session.db"], args].concat())
}

/// What a verb prints; it exits with 0, and says nothing else.
#[track_caller]
fn says(world: &World, verb: &str, args: &[&str]) -> String {
    let output = tool(world, verb, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The objects that a verb prints.
#[track_caller]
fn objects(world: &World, verb: &str, args: &[&str]) -> Vec<Value> {
    let text = says(world, verb, &[args, &["--json"]].concat());
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Records a call that began and ended at these times of the day at which the tests' clock
/// starts (2033-05-18, 03:33:20).
fn record(world: &World, name: &str, outcome: &[&str], from: &str, to: &str) -> String {
    let moment = |time: &str| format!("2033-05-18T{time}Z");
    let times = ["--started", &moment(from), "--completed", &moment(to)];
    says(world, "record", &[&[name], outcome, &times[..]].concat())
}

#[test]
fn record_prints_the_calls_number() {
    let world = World::plain();
    assert_eq!(record(&world, "read", &["--result", "-1"], "00:00:00", "00:00:02"), "1\n");
    assert_eq!(says(&world, "record", &["edit", "--error", "--no such file"]), "2\n");
    let found = objects(
        &world,
        "record",
        &["edit", "--result", r#"{"n": 1.50}"#, "--parameters", "[]", "--started", "90s"],
    );
    assert_eq!((&found[0]["id"], &found[0]["parameters"]), (&3.into(), &json!([])));
    assert_eq!((&found[0]["v"], &found[0]["type"]), (&1.into(), &"tool_call".into()));
    let took = found[0]["duration_ms"].as_i64().unwrap();
    assert!(took >= 90_000 && took % 1000 == 0, "{took}");
    let columns = "SELECT name || ' ' || ifnull(parameters, '-') || ' ' || ifnull(result, '-')
      || ' ' || ifnull(error, '-') || ' ' || min(duration_ms, 90000) || ' ' || status
      FROM tool_calls";
    assert_eq!(
        world.sql_list(columns),
        [
            "read - -1 - 2000 success",
            "edit - - --no such file 0 error",
            r#"edit [] {"n": 1.50} - 90000 success"#
        ]
    );
}

#[test]
fn wrong_calls_are_not_recorded() {
    let world = World::plain();
    for (args, message, hint) in [
        (&["t"][..], "--result", ""),
        (&["t", "--result", "1", "--error", "e"], "cannot be used with", ""),
        (&["t", "--result", "done"], "result: not JSON", "double quotes"),
        (&["t", "--error", "e", "--parameters", "{a}"], "parameters: not JSON", "double quotes"),
        (&["t", "--error", "e", "--started", "soon"], "expected a moment", ""),
        (
            &["t", "--error", "e", "--started", "2033-05-18", "--completed", "2033-05-17"],
            "before it began",
            "hint: check --started",
        ),
        (&["t", "--parameters", "-", "--result", "-"], "cannot both be read", "hint: give one"),
    ] {
        let output = tool(&world, "record", args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]), "{said}");
        assert!(said.contains(message) && said.contains(hint), "{args:?}: {said}");
    }
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM tool_calls"), 0);
}

#[test]
fn ls_has_a_line_for_each_call() {
    let world = World::plain();
    record(&world, "re\x1bad", &["--result", "1"], "00:00:00", "00:00:02");
    record(&world, "edit", &["--error", "no"], "01:00:00", "01:01:00");
    let rows = "INSERT INTO tool_calls (name, started_at, completed_at, duration_ms)
      VALUES ('wait', 2000000000, 0, 250)";
    world.sql().execute_batch(rows).unwrap();
    let lines = [
        "1 2033-05-18T00:00:00Z      2 s success re\\u{1b}ad\n",
        "2 2033-05-18T01:00:00Z     60 s error   edit\n",
        "3 2033-05-18T03:33:20Z   250 ms pending wait\n",
    ];
    assert_eq!(says(&world, "ls", &[]), lines.concat());
    for (args, expected) in [
        (&["--name", "edit"][..], &lines[1..2]),
        (&["--status", "pending"], &lines[2..]),
        (&["--since", "2033-05-18T01:00:00Z", "--until", "2033-05-18T02:00:00Z"], &lines[1..2]),
        (&["--last", "2"], &lines[1..]),
        (&["--name", "nothing"], &[]),
    ] {
        assert_eq!(says(&world, "ls", args), expected.concat(), "{args:?}");
    }
    let found = objects(&world, "ls", &[]);
    assert_eq!((&found[0]["result"], &found[1]["result"]), (&1.into(), &Value::Null));
    assert_eq!((&found[1]["error"], &found[1]["status"]), (&"no".into(), &"error".into()));
    assert!(found.iter().all(|call| call.get("changes").is_none()));
}

#[test]
fn changes_of_files_are_shown_with_the_call() {
    let world = World::new("file \"content\"\n");
    world.write("file", 2, b"xx").unwrap();
    world.tick(5);
    world.rename("file", "moved").unwrap();
    world.truncate("moved", 1).unwrap();
    record(&world, "a", &["--result", "1"], "03:33:20", "03:33:24");
    record(&world, "b", &["--result", "2"], "03:33:24", "03:33:25");
    assert_eq!(
        says(&world, "ls", &["--changes"]),
        "1 2033-05-18T03:33:20Z      4 s success a\n    \
         2033-05-18T03:33:20.000Z  0:0        127.0.0.1:700    WRITE    /file  offset 2, 2 bytes\n\
         2 2033-05-18T03:33:24Z      1 s success b\n    \
         2033-05-18T03:33:25.000Z  0:0        127.0.0.1:700    RENAME   /file -> /moved\n    \
         2033-05-18T03:33:25.000Z  0:0        127.0.0.1:700    SETATTR  /moved  size 1\n"
    );
    let found = objects(&world, "ls", &["--changes", "--last", "1"]);
    let changes = found[0]["changes"].as_array().unwrap();
    assert_eq!((&changes[0]["op"], &changes[0]["to"]), (&"RENAME".into(), &"/moved".into()));
    assert_eq!((&changes[1]["size"], &changes[1]["uid"]), (&1.into(), &0.into()));
    assert_eq!((&changes[0]["id"], &changes[1]["id"]), (&2.into(), &3.into()));
    assert_eq!(objects(&world, "show", &["2"]), found);
}

#[test]
fn show_tells_all_of_a_call() {
    let world = World::plain();
    world.put("file", "x");
    let outcome = ["--result", "{\"a\":\n\"\\\\\"}", "--parameters", "7"];
    record(&world, "edit", &outcome, "03:33:20", "03:33:20");
    assert_eq!(
        says(&world, "show", &["1"]),
        "1 edit: success\n  started    2033-05-18T03:33:20Z\n  completed  2033-05-18T03:33:20Z\n  \
         duration   0 s\n  parameters 7\n  result     {\"a\":\\n\"\\\\\"}\n  changes    2 in \
         its seconds\n    \
         2033-05-18T03:33:20.000Z  0:0        127.0.0.1:700    CREATE   /file  mode 0644\n    \
         2033-05-18T03:33:20.000Z  0:0        127.0.0.1:700    WRITE    /file  offset 0, 1 byte\n"
    );
    let rows = "INSERT INTO tool_calls (name, parameters, error, started_at, completed_at,
        duration_ms) VALUES ('odd', 'a=1', 'bad' || char(10), 5, 5, 0)";
    world.sql().execute_batch(rows).unwrap();
    let said = says(&world, "show", &["2"]);
    assert!(said.contains("  parameters (not JSON) a=1\n  error      bad\\n\n"), "{said}");
    let found = objects(&world, "show", &["2"]);
    assert_eq!(
        (&found[0]["parameters"], &found[0]["not_json"]),
        (&"a=1".into(), &json!(["parameters"]))
    );
    let output = tool(&world, "show", &["3"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "3: no such tool call\n");
    assert_eq!(tool(&world, "show", &["x"]).status.code(), Some(2));
}

#[test]
fn stats_sum_up_each_tool() {
    let world = World::plain();
    assert_eq!(says(&world, "stats", &[]), "");
    record(&world, "a", &["--result", "1"], "00:00:00", "00:00:02");
    record(&world, "b", &["--error", "no"], "00:00:00", "00:00:01");
    record(&world, "b", &["--result", "1"], "00:00:00", "00:00:04");
    assert_eq!(
        says(&world, "stats", &[]),
        "  calls  errors     total      mean       max tool\n      \
         2       1       5 s   2500 ms       4 s b\n      \
         1       0       2 s       2 s       2 s a\n"
    );
    let found = objects(&world, "stats", &[]);
    assert_eq!(found[0]["type"], "tool_stats");
    assert_eq!((&found[0]["errors"], &found[0]["mean_ms"]), (&1.into(), &json!(2500.0)));
    assert_eq!((&found[1]["name"], &found[1]["max_ms"]), (&"a".into(), &2000.into()));
}
