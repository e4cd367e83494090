//! `acetate log prune`: which rows go, and which stay.

use std::process::Output;

use serde_json::Value;

use super::program::{Serving, run};
use crate::support::world::World;

/// A session with so many changes, some old and some new, of which the last 4,096 stay.
fn long_log(old: i64, new: i64) -> World {
    let mut world = World::plain();
    world.put("a", "a");
    world.close();
    let sql = world.sql();
    let add = |count: i64, time: i64| {
        let add = format!(
            "INSERT INTO acetate_op (time, time_nsec, client, uid, gid, procedure, path, fileid,
               offset, length)
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
             SELECT {time}, 0, '127.0.0.1:700', 0, 0, 'WRITE', '/a', 2, i, 1 FROM n"
        );
        sql.execute_batch(&add).unwrap();
    };
    sql.execute_batch("DELETE FROM acetate_op").unwrap();
    add(old, 1_000_000_000);
    add(new, jiff_now());
    drop(sql);
    world.open_again();
    world
}

fn jiff_now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

#[test]
fn the_oldest_changes_are_pruned_and_archived() {
    let mut world = long_log(2500, 5000);
    world.close();
    let session = world.session();
    let rows = || world.sql_value::<i64>("SELECT count(*) FROM acetate_op");
    let prune = |args: &[&str]| {
        let base = ["log", "prune", session.to_str().unwrap()];
        run(world.scratch(), &[&base[..], args].concat())
    };
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let dry = prune(&["--older-than", "1d", "--dry-run"]);
    assert_eq!(
        (dry.status.code(), said(&dry)),
        (Some(0), "2500 changes would be deleted\n".into())
    );
    assert_eq!(rows(), 7500);
    let pruned = prune(&["--older-than", "1d", "--archive", "old.jsonl.zst", "--json"]);
    assert_eq!(pruned.status.code(), Some(0), "{}", said(&pruned));
    let object: Value = serde_json::from_slice(&pruned.stdout).unwrap();
    assert_eq!((&object["deleted"], &object["archive"]), (&2500.into(), &"old.jsonl.zst".into()));
    assert_eq!(rows(), 5000);
    let archive = std::fs::File::open(world.scratch().join("old.jsonl.zst")).unwrap();
    let text = std::io::read_to_string(zstd::Decoder::new(archive).unwrap()).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2500);
    assert_eq!((&lines[0]["id"], &lines[2499]["id"]), (&1.into(), &2500.into()));
    // Nor is the file seen before it is whole: one that is killed leaves another name.
    let names = std::fs::read_dir(world.scratch()).unwrap().map(|e| e.unwrap().file_name());
    let mut names = names.map(|name| name.into_string().unwrap());
    assert!(!names.any(|name| name.contains(".partial-")));
    // An archive is not written over, and then nothing goes.
    let again = prune(&["--keep", "10", "--archive", "old.jsonl.zst"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(said(&again).contains("old.jsonl.zst: ") && said(&again).contains("another name"));
    assert_eq!(rows(), 5000);
    // What the reply cache needs after a kill stays.
    let most = prune(&["--keep", "10"]);
    let stay = |count: u32| {
        format!(
            "{count} more stay: a server that was killed needs the newest 4,096 changes of the \
             last day, and the last change\n"
        )
    };
    let told = "904 changes deleted\n".to_owned() + &stay(4086);
    assert_eq!((most.status.code(), said(&most)), (Some(0), told));
    assert_eq!(rows(), 4096);
    let none = prune(&["--keep", "10"]);
    let told = "0 changes deleted\n".to_owned() + &stay(4086);
    assert_eq!((none.status.code(), said(&none)), (Some(1), told));
    let json = prune(&["--keep", "96", "--json"]).stdout;
    assert_eq!(serde_json::from_slice::<Value>(&json).unwrap()["needed"], 4000);
    let few = said(&prune(&["--keep", "5000", "--dry-run"]));
    assert_eq!(few, "0 changes would be deleted: the log has no more than 5000\n");
    let young = said(&prune(&["--older-than", "1d", "--keep", "1"]));
    assert_eq!(young, "0 changes deleted: none is that old\n");
    assert_eq!(prune(&[]).status.code(), Some(2), "it has to be said what goes");
    let log = run(world.scratch(), &["log", session.to_str().unwrap(), "--summary"]);
    assert!(said(&log).starts_with("3404 older changes gone: "), "{}", said(&log));
    let status = run(world.scratch(), &["status", session.to_str().unwrap(), "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(
        (&status["audit_rows"], &status["audit_rows_dropped"]),
        (&4096.into(), &3404.into())
    );
    assert!(status["audit_bytes"].as_u64().unwrap() > 4096 * 64);
    world.open_again();
}

#[test]
fn a_server_prunes_its_log_itself() {
    let mut world = long_log(2500, 1);
    world.close();
    let (dir, session) = (world.scratch().to_owned(), world.session());
    let server = Serving::start(&dir, 1, &["session.db"]);
    assert!(run(&dir, &["mkdir", "session.db", "d"]).status.success());
    let pruned = run(&dir, &["log", "prune", "session.db", "--keep", "1", "--json"]);
    assert!(pruned.status.success(), "{pruned:?}");
    let object: Value = serde_json::from_slice(&pruned.stdout).unwrap();
    assert_eq!(object["deleted"], 2500);
    assert!(run(&dir, &["mkdir", "session.db", "e"]).status.success());
    server.signal("TERM");
    assert!(server.end().0.success());
    let ids = "SELECT group_concat(id) FROM acetate_op";
    assert_eq!(world.sql_value::<String>(ids), "2501,2502,2503", "numbers go on");
    assert!(run(&dir, &["check", session.to_str().unwrap()]).status.success());
    world.open_again();
}
