//! The log of tool calls, beside a server and without one.

use acetate::delta::sqlite::{AgentAccess, CallFilter, CallRow, CallStatus, InvalidRow, NewCall};
use acetate::delta::{AuditProcedure, AuditRow};
use acetate::inspect::check::check;
use acetate::inspect::repair::repair;
use acetate::inspect::tool::{ToolCalls, ToolChanges};
use acetate::inspect::{CheckOptions, RepairOptions};

use crate::support::check::{assert_consistent, violations};
use crate::support::world::{START_SECS, World};

/// The specification's rules for a row (0.4, "Consistency Rules"), and what other
/// implementations need: each query counts the rows that break one.
const RULES: &[&str] = &[
    "SELECT count(*) FROM tool_calls WHERE (result IS NULL) = (error IS NULL)",
    "SELECT count(*) FROM tool_calls WHERE completed_at IS NULL",
    "SELECT count(*) FROM tool_calls
       WHERE duration_ms IS NOT (completed_at - started_at) * 1000 OR duration_ms < 0",
    "SELECT count(*) FROM tool_calls WHERE json_valid(parameters) = 0 OR json_valid(result) = 0",
    "SELECT count(*) FROM tool_calls
       WHERE status IS NOT CASE WHEN error IS NULL THEN 'success' ELSE 'error' END",
    "SELECT count(*) FROM tool_calls
       WHERE typeof(name) <> 'text' OR typeof(started_at) <> 'integer'",
];

/// How the SDKs make the table: a call is added when it begins.
const OF_SDK: &str = "
  DROP TABLE tool_calls;
  CREATE TABLE tool_calls (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL,
    parameters TEXT, result TEXT, error TEXT, status TEXT NOT NULL DEFAULT 'pending',
    started_at INTEGER NOT NULL, completed_at INTEGER, duration_ms INTEGER);";

/// The specification's own.
const OF_SPEC: &str = "
  DROP TABLE tool_calls;
  CREATE TABLE tool_calls (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL,
    parameters TEXT, result TEXT, error TEXT, started_at INTEGER NOT NULL,
    completed_at INTEGER NOT NULL, duration_ms INTEGER NOT NULL);";

fn open(world: &World, access: AgentAccess) -> ToolCalls {
    ToolCalls::open(&world.session(), access).unwrap()
}

/// A call of `name` that took from `from` to `to`, in seconds.
fn call<'a>(name: &'a str, from: i64, to: i64) -> NewCall<'a> {
    let outcome = Ok("1");
    NewCall { name, parameters: None, outcome, started_at: from, completed_at: to, begin: None }
}

fn all(calls: &ToolCalls) -> Vec<CallRow> {
    calls.list(&CallFilter::default()).unwrap()
}

fn ids(calls: &ToolCalls, filter: CallFilter) -> Vec<i64> {
    calls.list(&filter).unwrap().iter().map(|call| call.id).collect()
}

#[test]
fn what_is_recorded_keeps_the_specifications_rules() {
    let mut world = World::plain();
    let calls = open(&world, AgentAccess::Write);
    for number in 0..20 {
        let error = format!("it's \"broken\" {number}");
        let outcome = if number % 3 == 0 { Err(error.as_str()) } else { Ok(r#"{"ok": [1, 2]}"#) };
        let parameters = (number % 2 == 0).then_some(r#" {"path": "a"} "#);
        let call = NewCall { parameters, outcome, ..call("tool", 1000, 1000 + number) };
        assert_eq!(calls.record(&call).unwrap(), number + 1);
        world.put(format!("file-{number}"), "content");
    }
    for rule in RULES {
        assert_eq!(world.sql_value::<i64>(rule), 0, "{rule}");
    }
    assert_eq!(world.sql_value::<String>("PRAGMA integrity_check"), "ok");
    let found = calls.get(5).unwrap().unwrap();
    assert_eq!(found.parameters.as_deref(), Some(&br#"{"path": "a"}"#[..]));
    assert_eq!((found.row.status, found.row.duration_ms), (CallStatus::Success, Some(4000)));
    let found = calls.get(4).unwrap().unwrap();
    assert_eq!(found.error.as_deref(), Some(&b"it's \"broken\" 3"[..]));
    assert_eq!((found.row.status, found.result), (CallStatus::Error, None));
    assert_eq!(calls.get(21).unwrap(), None);
    drop(calls);
    world.reopen();
    assert_eq!(all(&open(&world, AgentAccess::Read)).len(), 20);
}

#[test]
fn rows_are_only_added() {
    let world = World::plain();
    let calls = open(&world, AgentAccess::Write);
    let rows =
        || world.sql_list("SELECT id || name || result || started_at || status FROM tool_calls");
    calls.record(&call("first", 1, 2)).unwrap();
    let before = rows();
    calls.record(&call("first", 1, 2)).unwrap();
    assert_eq!(rows()[..1], before);
    // The number of a row that somebody removed all the same does not come back.
    world.sql().execute_batch("DELETE FROM tool_calls WHERE id = 2").unwrap();
    assert_eq!(calls.record(&call("third", 1, 2)).unwrap(), 3);
}

#[test]
fn what_breaks_a_rule_is_refused() {
    let world = World::plain();
    let calls = open(&world, AgentAccess::Write);
    let good = call("tool", 5, 5);
    for (bad, message) in [
        (NewCall { parameters: Some("a=1"), ..good }, "parameters: not JSON"),
        (NewCall { outcome: Ok("done"), ..good }, "result: not JSON"),
        (NewCall { completed_at: 4, ..good }, "cannot end before it began"),
    ] {
        let error = calls.record(&bad).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    assert!(all(&calls).is_empty());
    calls.require_writable().unwrap();
    assert!(all(&calls).is_empty());
}

#[test]
fn a_status_is_what_the_row_comes_to() {
    for (table, has_status) in [("", true), (OF_SDK, true), (OF_SPEC, false)] {
        let mut world = World::plain();
        world.close();
        world.sql().execute_batch(table).unwrap();
        let calls = open(&world, AgentAccess::Write);
        let rows: &[(&str, &str, &str, &str, CallStatus)] = &[
            ("'success'", "'1'", "NULL", "9", CallStatus::Success),
            ("'success'", "NULL", "NULL", "9", CallStatus::Success),
            ("'success'", "NULL", "''", "9", CallStatus::Success),
            ("'error'", "NULL", "'e'", "9", CallStatus::Error),
            ("'pending'", "NULL", "NULL", "NULL", CallStatus::Pending),
            ("'pending'", "'1'", "NULL", "9", CallStatus::Success),
            ("'pending'", "NULL", "'e'", "9", CallStatus::Error),
            ("'pending'", "'1'", "'e'", "9", CallStatus::Error),
            ("'other'", "NULL", "NULL", "9", CallStatus::Success),
        ];
        let mut expected = Vec::new();
        for (status, result, error, completed, seen) in rows {
            if !has_status && (*error == "''" || *completed == "NULL") {
                continue;
            }
            let (column, value) =
                if has_status { (", status", format!(", {status}")) } else { ("", String::new()) };
            let sql = format!(
                "INSERT INTO tool_calls (name, result, error, started_at, completed_at,
                   duration_ms{column}) VALUES ('t', {result}, {error}, 5, {completed},
                   ({completed} - 5) * 1000{value})"
            );
            world.sql().execute_batch(&sql).unwrap();
            expected.push(*seen);
        }
        let found: Vec<_> = all(&calls).iter().map(|call| call.status).collect();
        assert_eq!(found, expected, "{table}");
        for status in [CallStatus::Pending, CallStatus::Success, CallStatus::Error] {
            let filter = CallFilter { status: Some(status), ..CallFilter::default() };
            let count = expected.iter().filter(|other| **other == status).count();
            assert_eq!(ids(&calls, filter).len(), count, "{status:?}");
        }
        calls.record(&call("ours", 1, 2)).unwrap();
        assert_eq!(all(&calls).last().unwrap().status, CallStatus::Success);
        let stats = calls.stats().unwrap();
        let errors = expected.iter().filter(|status| **status == CallStatus::Error).count();
        assert_eq!((stats[0].name.as_slice(), stats[0].errors), (&b"t"[..], errors as u64));
        drop(calls);
    }
}

#[test]
fn a_missing_table_is_empty_and_made_when_it_is_needed() {
    let mut world = World::plain();
    world.close();
    let before: i64 = world.sql_value("SELECT count(*) FROM sqlite_master");
    world.sql().execute_batch("DROP TABLE tool_calls").unwrap();
    let calls = open(&world, AgentAccess::Read);
    assert!(all(&calls).is_empty() && calls.stats().unwrap().is_empty());
    assert_eq!(calls.get(1).unwrap(), None);
    drop(calls);
    let calls = open(&world, AgentAccess::Write);
    calls.require_writable().unwrap();
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM sqlite_master"), before - 3);
    assert_eq!(calls.record(&call("tool", 1, 2)).unwrap(), 1);
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM sqlite_master"), before);
    world.sql().execute_batch("ALTER TABLE tool_calls DROP COLUMN duration_ms").unwrap();
    let error = calls.record(&call("tool", 1, 2)).unwrap_err().to_string();
    assert!(error.contains("tool_calls has no column duration_ms"), "{error}");
}

#[test]
fn calls_are_looked_for_by_all_that_is_asked() {
    let world = World::plain();
    let calls = open(&world, AgentAccess::Write);
    for (name, from) in [("a", 10), ("b", 20), ("a", 30), ("a", 40)] {
        calls.record(&call(name, from, from + 5)).unwrap();
    }
    calls.record(&NewCall { outcome: Err("no"), ..call("b", 50, 51) }).unwrap();
    let none = CallFilter::default;
    assert_eq!(ids(&calls, none()), [1, 2, 3, 4, 5]);
    assert_eq!(ids(&calls, CallFilter { name: Some("a".into()), ..none() }), [1, 3, 4]);
    assert_eq!(ids(&calls, CallFilter { since: Some(20), until: Some(40), ..none() }), [2, 3, 4]);
    assert_eq!(ids(&calls, CallFilter { status: Some(CallStatus::Error), ..none() }), [5]);
    assert_eq!(ids(&calls, CallFilter { last: Some(2), ..none() }), [4, 5]);
    let last_a = CallFilter { name: Some("a".into()), last: Some(1), until: Some(35), ..none() };
    assert_eq!(ids(&calls, last_a), [3]);
    assert_eq!(ids(&calls, CallFilter { last: Some(0), ..none() }), [0; 0]);
}

#[test]
fn stats_count_and_add_up() {
    let mut world = World::plain();
    world.close();
    world.sql().execute_batch(OF_SDK).unwrap();
    let calls = open(&world, AgentAccess::Write);
    for (name, took) in [("a", 1), ("a", 4), ("b", 2)] {
        calls.record(&call(name, 0, took)).unwrap();
    }
    calls.record(&NewCall { outcome: Err("no"), ..call("a", 0, 1) }).unwrap();
    world
        .sql()
        .execute_batch(
            "INSERT INTO tool_calls (name, started_at) VALUES ('a', 1), ('c', 1);
             INSERT INTO tool_calls (name, result, started_at, completed_at, duration_ms)
               VALUES ('huge', '1', 0, 0, 9223372036854775807), ('b', '1', 0, 0, 'long'),
                 ('huge', '1', 0, 0, 9223372036854775807)",
        )
        .unwrap();
    let stats = calls.stats().unwrap();
    let names: Vec<&[u8]> = stats.iter().map(|tool| &tool.name[..]).collect();
    assert_eq!(names, [b"a", &b"b"[..], b"huge", b"c"]);
    let a = &stats[0];
    assert_eq!((a.calls, a.errors, a.pending), (4, 1, 1));
    assert_eq!((a.total_ms, a.mean_ms, a.max_ms), (6000, Some(2000.0), Some(4000)));
    assert_eq!((stats[1].calls, stats[1].total_ms), (2, 2000), "what is no number is 0");
    assert_eq!((stats[2].calls, stats[2].total_ms), (2, i64::MAX));
    assert_eq!((stats[3].pending, stats[3].mean_ms, stats[3].max_ms), (1, None, None));
}

#[test]
fn changes_belong_to_the_calls_in_whose_time_they_were() {
    let world = World::plain();
    for name in ["at-0", "at-10", "at-20"] {
        world.put(name, "new");
        world.tick(10);
    }
    // The clock is set back: later rows with earlier times.
    world.tick(-20);
    world.rename("at-0", "moved").unwrap();
    let calls = open(&world, AgentAccess::Write);
    for (from, to) in [(0, 9), (1, 9), (10, 10), (0, 30), (15, 15)] {
        calls.record(&call("tool", START_SECS + from, START_SECS + to)).unwrap();
    }
    let rows = all(&calls);
    let changes = calls.changes(&rows).unwrap();
    let during = |changes: &ToolChanges, row: &CallRow| -> Vec<AuditRow> {
        let rows = changes.during(row).unwrap();
        rows.into_iter().map(|change| change.row.unwrap()).collect()
    };
    let paths = |row: &CallRow| {
        let changes = during(&changes, row);
        let mut paths: Vec<_> =
            changes.iter().map(|change| change.path.display().to_string()).collect();
        paths.dedup();
        paths
    };
    assert_eq!(paths(&rows[0]), ["/at-0"]);
    assert_eq!(paths(&rows[1]), [""; 0]);
    assert_eq!(paths(&rows[2]), ["/at-10", "/at-0"]);
    assert_eq!(paths(&rows[3]), ["/at-0", "/at-10", "/at-0", "/at-20"]);
    assert_eq!(paths(&rows[4]), [""; 0]);
    let renamed = during(&changes, &rows[2]).pop().unwrap();
    assert_eq!(renamed.procedure, AuditProcedure::Rename);
    assert_eq!(renamed.path2.unwrap().as_bytes(), b"/moved");
    // One that has not ended has all changes since, and one that ended before it began none.
    let pending = CallRow { started_at: START_SECS + 10, completed_at: None, ..rows[0].clone() };
    let odd = CallRow { completed_at: Some(0), ..rows[3].clone() };
    let some = [pending.clone(), odd.clone()];
    let changes = calls.changes(&some).unwrap();
    assert_eq!(during(&changes, &pending).last().unwrap().path.as_bytes(), b"/at-20");
    assert_eq!(during(&changes, &odd), []);
    // More than a page of rows, and one among them that nobody can read.
    world
        .sql()
        .execute_batch(
            "INSERT INTO acetate_op (time, time_nsec, client, uid, gid, procedure, path, fileid)
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
             SELECT 5, 0, '127.0.0.1:7', 0, 0, iif(i = 9, 'DANCE', 'CREATE'), '/f' || i, 1 FROM n",
        )
        .unwrap();
    let many = CallRow { started_at: 5, completed_at: Some(5), ..odd };
    let found = calls.changes(std::slice::from_ref(&many)).unwrap().during(&many).unwrap();
    assert_eq!(found.iter().filter(|change| change.row.is_ok()).count(), 2499);
    assert_eq!(found[8].row, Err(InvalidRow { column: "procedure" }));
}

/// The last row of the log may be that of a WRITE which another continues: it is still in one call.
#[test]
fn each_change_is_in_one_call() {
    let world = World::plain();
    world.put("file", "");
    let calls = open(&world, AgentAccess::Write);
    for (offset, data) in [(0, b"aa"), (2, b"bb"), (4, b"cc")] {
        let begin = Some(calls.begin().unwrap());
        world.write("file", offset, data).unwrap();
        calls.record(&NewCall { begin, ..call("tool", START_SECS, START_SECS) }).unwrap();
    }
    world.write("file", 6, b"dd").unwrap();
    let begin = Some(calls.begin().unwrap());
    calls.record(&NewCall { begin, ..call("idle", START_SECS, START_SECS) }).unwrap();
    calls.record(&call("other", START_SECS, START_SECS)).unwrap();
    let rows = all(&calls);
    let changes = calls.changes(&rows).unwrap();
    let extents = |row: &CallRow| -> Vec<_> {
        let rows = changes.during(row).unwrap().into_iter();
        rows.map(|change| change.row.unwrap()).map(|row| (row.offset, row.length)).collect()
    };
    for (row, offset) in rows.iter().zip([0, 2, 4]) {
        assert_eq!(extents(row), [(Some(offset), Some(2))]);
    }
    assert_eq!(extents(&rows[3]), []);
    // With the CREATE, and the last WRITE.
    assert_eq!(extents(&rows[4]).len(), 5);
    assert_eq!(calls.get(2).unwrap().unwrap().row, rows[1]);
    assert!(rows[..4].iter().all(|row| row.bounds.is_some()) && rows[4].bounds.is_none());
}

/// T1: each row has its call and its rows of the log.
#[test]
fn bounds_that_are_none_are_found_and_mended() {
    let mut world = World::plain();
    world.put("file", "x");
    let calls = open(&world, AgentAccess::Write);
    for _ in 0..3 {
        let begin = Some(calls.begin().unwrap());
        calls.record(&NewCall { begin, ..call("tool", 0, 1) }).unwrap();
    }
    drop(calls);
    world.close();
    assert_consistent(&world.session());
    for damage in [
        "DELETE FROM tool_calls WHERE id = 3",
        "UPDATE acetate_tool_call SET end_op = 99 WHERE call = 2",
        "UPDATE acetate_tool_call SET begin_op = end_op + 1 WHERE call = 1",
    ] {
        world.sql().execute_batch(damage).unwrap();
        let options = CheckOptions { most: 9, quick: false };
        let is_sound = || check(&world.session(), None, &options).unwrap().is_sound();
        assert!(!is_sound(), "{damage}");
        assert_eq!(violations(&world.session()).len(), 1, "{damage}");
        let backup = world.scratch().join("backup.db");
        let how = RepairOptions { backup: Some(&backup), dry_run: false, most: 9 };
        let (report, _) = repair(&world.session(), None, &how, &mut |_, _| ()).unwrap();
        std::fs::remove_file(backup).unwrap();
        let rules: Vec<_> = report.mended.iter().map(|mended| mended.rule).collect();
        assert_eq!(rules, ["T1"], "{damage}");
        assert!(is_sound(), "{damage}");
        assert_consistent(&world.session());
    }
    let rows = all(&open(&world, AgentAccess::Read));
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.bounds.is_none()));
    world.open_again();
}

#[test]
fn odd_rows_of_other_programs_are_no_obstacle() {
    let world = World::plain();
    world
        .sql()
        .execute_batch(
            "INSERT INTO tool_calls (name, parameters, result, started_at, completed_at,
               duration_ms) VALUES (x'ff', 'a=1', x'00ff', 'today', 1.5, 'long')",
        )
        .unwrap();
    let calls = open(&world, AgentAccess::Read);
    let found = calls.get(1).unwrap().unwrap();
    assert_eq!((&found.row.name[..], found.row.started_at), (&b"\xff"[..], 0));
    assert_eq!((found.row.completed_at, found.row.duration_ms), (Some(1), Some(0)));
    assert_eq!((found.parameters, found.result), (Some(b"a=1".to_vec()), Some(vec![0, 0xff])));
    assert_eq!(all(&calls), [found.row]);
    assert_eq!(calls.stats().unwrap().len(), 1);
}
