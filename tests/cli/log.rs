//! `acetate log`.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::program::{acetate, failure, let_interrupts_through, run};
use crate::support::world::World;

fn ask(world: &World, args: &[&str]) -> Output {
    let session = world.session();
    run(world.scratch(), &[&["log", session.to_str().unwrap()], args].concat())
}

/// What it prints; it exits with `code`.
#[track_caller]
fn says(world: &World, code: i32, args: &[&str]) -> String {
    let output = ask(world, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(said, "");
    String::from_utf8(output.stdout).unwrap()
}

/// Some changes by several users.
fn changed() -> World {
    let world = World::new("dir/file \"content\"\n");
    world.write("dir/file", 3, b"C").unwrap();
    world.tick(3600);
    world.chmod("", 0o777).unwrap();
    let user = world.user(1000, 100, &[]);
    user.put("new", "some text");
    user.link("new", "again").unwrap();
    world.rename("dir", "moved").unwrap();
    world.truncate("moved/file", 2).unwrap();
    world
}

#[test]
fn a_line_for_each_change() {
    let world = changed();
    let at = |time: &str, owner: &str, rest: &str| {
        format!("2033-05-18T{time}.000Z  {owner:<9}  127.0.0.1:700    {rest}\n")
    };
    let lines = [
        at("03:33:20", "0:0", "WRITE    /dir/file  offset 3, 1 byte"),
        at("04:33:20", "0:0", "SETATTR  /  mode 0777"),
        at("04:33:20", "1000:100", "CREATE   /new  mode 0644"),
        at("04:33:20", "1000:100", "WRITE    /new  offset 0, 9 bytes"),
        at("04:33:20", "1000:100", "LINK     /new -> /again"),
        at("04:33:20", "0:0", "RENAME   /dir -> /moved"),
        at("04:33:20", "0:0", "SETATTR  /moved/file  size 2"),
    ];
    assert_eq!(says(&world, 0, &[]), lines.concat());
    assert_eq!(says(&world, 0, &["/"]), lines.concat());
    let reversed: String = lines.iter().rev().map(String::as_str).collect();
    assert_eq!(says(&world, 0, &["--reverse"]), reversed);
    let file = [&*lines[0], &lines[5], &lines[6]].concat();
    assert_eq!(says(&world, 0, &["moved/file"]), file);
    assert_eq!(says(&world, 0, &["/dir/file"]), [&*lines[0], &lines[5]].concat());
    for (args, which) in [
        (&["--uid", "1000"][..], 2..5),
        (&["--last", "2"], 5..7),
        (&["-n", "2"], 5..7),
        (&["--since", "2033-05-18T04:00:00Z"], 1..7),
        (&["--until", "2033-05-18T04:00:00Z"], 0..1),
        (&["--op", "create,Link", "--op", "WRITE", "--uid", "1000"], 2..5),
        (&["--client", "127.0.0.1"], 0..7),
        (&["--client", "127.0.0.1:700"], 0..7),
    ] {
        assert_eq!(says(&world, 0, args), lines[which].concat(), "{args:?}");
    }
}

#[test]
fn nothing_to_show_is_a_finding() {
    let world = changed();
    for args in [
        &["--uid", "7"][..],
        &["--client", "::1"],
        &["--op", "mknod", "--json"],
        &["--since", "2034-01-01"],
    ] {
        assert_eq!(says(&world, 1, args), "", "{args:?}");
    }
}

#[test]
fn an_object_for_each_change() {
    let world = changed();
    world.create(b"\xff", acetate::vfs::CreateHow::Guarded(Default::default())).unwrap();
    let said = says(&world, 0, &["--json"]);
    let all: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(all.len(), 8);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        all[0],
        serde_json::json!({
            "v": 1, "type": "change", "id": 1, "time": "2033-05-18T03:33:20Z",
            "client": "127.0.0.1:700", "uid": 0, "gid": 0, "op": "WRITE", "path": "/dir/file",
            "fileid": world.stat("moved/file").fileid.0, "offset": 3, "length": 1,
        })
    );
    assert_eq!((&all[5]["path"], &all[5]["to"]), (&"/dir".into(), &"/moved".into()));
    assert_eq!((&all[6]["size"], &all[6]["offset"]), (&2.into(), &Value::Null));
    assert_eq!(all[7]["path_hex"], "2fff");
    let plain = ["v", "type", "id", "time", "client", "uid", "gid", "op", "path", "fileid", "set"];
    let (mut got, mut expected) = (keys(&all[2]), plain.map(str::to_owned));
    got.sort();
    expected.sort();
    assert_eq!(got, expected);
}

#[test]
fn names_cannot_steer_the_terminal() {
    let world = World::plain();
    world.mkdir("\x1b[2J\n").unwrap();
    world.rename("\x1b[2J\n", "a\\b").unwrap();
    let said = says(&world, 0, &["--last", "1"]);
    assert!(said.ends_with("  RENAME   /\\u{1b}[2J\\n -> /a\\\\b\n"), "{said}");
    assert_eq!(said.lines().count(), 1);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let world = changed();
    for (args, what) in [
        (&["--op", "READ"][..], "expected one of SETATTR, WRITE, CREATE, MKDIR"),
        (&["--client", "localhost"], "expected an IP address"),
        (&["--since", "tomorrow"], "expected a moment"),
        (&["--uid", "root"], "invalid digit"),
        (&["../etc"], "not a path in the session's tree"),
        (&["--follow", "--reverse"], "cannot be used with"),
        (&["--follow", "--until", "2033-01-01"], "cannot be used with"),
        (&["dir", "--base", "missing"], "missing"),
    ] {
        let output = ask(&world, args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.starts_with("error: ") && said.contains(what), "{args:?}: {said}");
        assert!(output.stdout.is_empty());
    }
    let said = failure(world.scratch(), &["log", "missing.db"]);
    assert!(said.contains("missing.db: no such session"), "{said}");
}

#[test]
fn rows_that_cannot_be_read_are_named() {
    let world = changed();
    for _ in 0..12 {
        world
            .sql()
            .execute_batch(
                "INSERT INTO acetate_op (time, time_nsec, client, uid, gid, procedure, path, fileid)
                 VALUES (1, 0, 'nowhere', 0, 0, 'WRITE', '/x', 5)",
            )
            .unwrap();
    }
    let output = ask(&world, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout.iter().filter(|&&byte| byte == b'\n').count(), 7);
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 11);
    assert_eq!(lines[0], "skipped row 8 of acetate_op: its client cannot be read");
    assert_eq!(lines[10], "skipped 2 more rows that cannot be read");
    assert_eq!(says(&world, 0, &["new"]).lines().count(), 3, "the others are not about it");
}

#[test]
fn it_says_how_many_older_changes_are_gone() {
    let world = changed();
    let lost = "INSERT INTO acetate_meta VALUES ('audit_dropped', 5), ('audit_since', 1);
                UPDATE acetate_op SET id = id + 1005; UPDATE acetate_op SET id = id - 1000";
    world.sql().execute_batch(lost).unwrap();
    let output = ask(&world, &[]);
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("5 older changes gone: pruned, "), "{said}");
    assert_eq!(says(&world, 0, &["-n", "1"]).lines().count(), 1);
}

#[test]
fn a_session_without_an_audit_log_says_so() {
    let mut world = changed();
    world.close();
    let sql = world.sql();
    sql.execute_batch("DROP TABLE acetate_op").unwrap();
    drop(sql);
    for args in [&["log", "session.db"][..], &["log", "session.db", "dir/file", "--follow"]] {
        let said = failure(world.scratch(), args);
        assert!(said.contains("session.db: has no audit log\nhint: "), "{said}");
    }
    world.open_again();
}

#[test]
fn a_base_that_is_elsewhere_is_done_without() {
    let mut world = changed();
    let all = says(&world, 0, &["moved/file"]);
    world.close();
    let away = world.scratch().join("away");
    std::fs::rename(world.change_base(), &away).unwrap();
    assert_eq!(says(&world, 0, &["moved/file"]), all);
    std::fs::rename(&away, world.base()).unwrap();
    world.open_again();
}

/// `acetate log --follow` that runs; killed if it is dropped.
struct Following {
    child: Child,
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Following {
    fn start(world: &World, args: &[&str]) -> Self {
        let session = world.session();
        let all = [&["log", session.to_str().unwrap(), "--follow"], args].concat();
        let mut command = acetate(world.scratch(), &all);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines: Some(lines) }
    }

    /// The last word of the next line.
    fn path(&mut self) -> String {
        let line = self.lines.as_mut().unwrap().next().expect("another line").unwrap();
        line.split_whitespace().nth(4).unwrap().to_owned()
    }

    fn end(mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[test]
fn following_shows_what_happens_meanwhile() {
    let world = World::plain();
    for number in 0..15 {
        world.mkdir(format!("dir-{number}")).unwrap();
    }
    let mut last = Following::start(&world, &[]);
    let mut all = Following::start(&world, &["--since", "2000-01-01"]);
    let mut one = Following::start(&world, &["--last", "1", "dir-3"]);
    assert_eq!(last.path(), "/dir-5");
    assert_eq!(all.path(), "/dir-0");
    assert_eq!(one.path(), "/dir-3");
    for number in 6..15 {
        assert_eq!(last.path(), format!("/dir-{number}"));
    }
    world.mkdir("dir-3/new").unwrap();
    assert_eq!(last.path(), "/dir-3/new");
    assert_eq!(one.path(), "/dir-3/new");
    world.rmdir("dir-4").unwrap();
    world.mkdir("dir-3/newer").unwrap();
    assert_eq!(last.path(), "/dir-4");
    assert_eq!(one.path(), "/dir-3/newer");
}

#[test]
fn following_ends_with_its_reader_and_with_a_signal() {
    let_interrupts_through();
    use std::os::unix::process::ExitStatusExt;
    let world = World::plain();
    world.mkdir("dir").unwrap();
    let mut unread = Following::start(&world, &[]);
    assert_eq!(unread.path(), "/dir");
    unread.lines = None;
    assert_eq!(unread.end().code(), Some(0), "though nothing happens");
    let mut stopped = Following::start(&world, &[]);
    assert_eq!(stopped.path(), "/dir");
    let pid = stopped.child.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
    assert_eq!(stopped.end().signal(), Some(2));
}

#[test]
fn a_reader_that_has_had_enough_is_no_failure() {
    let world = World::plain();
    world
        .sql()
        .execute_batch(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
             INSERT INTO acetate_op (time, time_nsec, client, uid, gid, procedure, path, fileid)
             SELECT i, 0, '10.0.0.1:1', 0, 0, 'MKDIR', '/' || i, i + 10 FROM n",
        )
        .unwrap();
    let session = world.session();
    let line = format!("{} log {}", env!("CARGO_BIN_EXE_acetate"), session.display());
    let piped = format!("({line}; echo $? >&2) | head -1");
    let output = Command::new("sh").args(["-c", &piped]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr).trim(), "0");
    assert_eq!(output.stdout.iter().filter(|&&byte| byte == b'\n').count(), 1);
}

/// What was set, and what was made.
#[test]
fn attributes_that_were_set_are_told() {
    let world = World::plain();
    world.mkdir("d").unwrap();
    world.chown("d", 7, 8).unwrap();
    world.utimes("d", acetate::vfs::Time { secs: 5, nanos: 20 }).unwrap();
    let said = says(&world, 0, &[]);
    let ends: Vec<&str> = said.lines().map(|line| line.split_once("/d").unwrap().1).collect();
    let times = "  atime 1970-01-01T00:00:05.000Z  mtime 1970-01-01T00:00:05.000Z";
    assert_eq!(ends, ["  mode 0755", "  uid 7  gid 8", times]);
    let said = says(&world, 0, &["--json"]);
    let all = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let set: Vec<Value> = all.map(|change| change["set"].clone()).collect();
    let time = "1970-01-01T00:00:05.00000002Z";
    assert_eq!(set[0], serde_json::json!({ "mode": "0755" }));
    assert_eq!(set[1], serde_json::json!({ "uid": 7, "gid": 8 }));
    assert_eq!(set[2], serde_json::json!({ "atime": time, "mtime": time }));
}

#[test]
fn changes_are_counted_by_path() {
    let world = changed();
    let (early, late) = ("2033-05-18T03:33:20Z", "2033-05-18T04:33:20Z");
    let expected = [
        format!("{late}  {late}  /  1 SETATTR"),
        format!("{late}  {late}  /again  1 LINK"),
        format!("{late}  {late}  /dir  1 RENAME"),
        format!("{early}  {early}  /dir/file  1 WRITE, 1 B written"),
        format!("{late}  {late}  /moved  1 RENAME"),
        format!("{late}  {late}  /moved/file  1 SETATTR"),
        format!("{late}  {late}  /new  1 WRITE, 1 CREATE, 1 LINK, 9 B written"),
    ];
    let said = says(&world, 0, &["--summary"]);
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    let said = says(&world, 0, &["--summary", "--json", "--op", "write", "--uid", "1000"]);
    assert_eq!(
        serde_json::from_str::<Value>(&said).unwrap(),
        serde_json::json!({
            "v": 1, "type": "changes", "by": "path", "name": "/new", "ops": { "WRITE": 1 },
            "written_bytes": 9, "first": late, "last": late,
        })
    );
    assert_eq!(says(&world, 1, &["--summary", "--uid", "7"]), "");
}

#[test]
fn changes_are_counted_by_tool_client_and_export() {
    let world = changed();
    let session = world.session();
    let record = |tool: &str, start: &str, end: &str| {
        let args = ["tool", "record", session.to_str().unwrap(), tool, "--started", start];
        let rest = ["--completed", end, "--result", "1"];
        let output = run(world.scratch(), &[&args[..], &rest].concat());
        assert!(output.status.success(), "{output:?}");
    };
    record("edit", "2033-05-18T03:33:00Z", "2033-05-18T03:33:20Z");
    record("bash", "2033-05-18T03:33:20Z", "2033-05-18T03:40:00Z");
    record("bash", "2033-05-18T03:50:00Z", "2033-05-18T03:51:00Z");
    let at = "2033-05-18T03:33:20Z";
    let said = says(&world, 0, &["--by", "tool", "--until", "2033-05-18T04:00:00Z"]);
    let line = |name: &str| format!("{at}  {at}  {name}  1 path: 1 WRITE, 1 B written");
    assert_eq!(said.lines().collect::<Vec<_>>(), [line("bash"), line("edit")]);
    let said = says(&world, 0, &["--by", "tool", "--since", "2033-05-18T04:00:00Z", "-n", "1"]);
    assert!(said.contains("  (no tool call)  1 path: 1 SETATTR"), "{said}");
    let said = says(&world, 0, &["--by", "client"]);
    assert!(said.contains("  127.0.0.1  7 paths: 2 SETATTR, 2 WRITE, 1 CREATE"), "{said}");
    let said = says(&world, 0, &["--by", "export", "--json"]);
    let group: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&group["name"], &group["paths"]), (&Value::Null, &7.into()));
}

#[test]
fn the_last_none_of_the_changes_are_none_as_for_git() {
    let world = changed();
    for args in [&["-n", "0"][..], &["-n0", "--json"], &["-n0", "--summary"], &["-n0", "new"]] {
        assert_eq!(says(&world, 0, args), "", "{args:?}");
    }
    assert_eq!(says(&world, 0, &["-n1"]).lines().count(), 1);
}
