//! `acetate log limit`, and what a server does with it.

use std::time::{Duration, Instant};

use tempfile::tempdir;

use super::program::{Serving, failure, run};

#[test]
fn a_server_deletes_what_the_limit_does_not_keep() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let done = |args: &[&str]| {
        let output = run(dir, args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    done(&["init", "s.db"]);
    for number in 0..20 {
        done(&["mkdir", "s.db", &format!("/{number}")]);
    }
    assert_eq!(done(&["log", "limit", "s.db"]), "s.db: keeps all changes\n");
    assert_eq!(done(&["log", "limit", "s.db", "10"]), "s.db: keeps the newest 10 changes\n");
    let both = "s.db: keeps the newest 10 changes, and changes of the last 7 days\n";
    assert_eq!(done(&["log", "limit", "s.db", "10", "1 week"]), both);
    done(&["log", "limit", "s.db", "10"]);
    let status = done(&["status", "s.db"]);
    assert!(status.contains("20 rows") && status.contains("; keeps the newest 10"), "{status}");
    // What a killed server's reply cache needs stays: the changes of the last day.
    let sql = rusqlite::Connection::open(dir.join("s.db")).unwrap();
    let count = "SELECT count(*) FROM acetate_op";
    let rows = || sql.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap();
    let server = Serving::start(dir, 1, &["s.db"]);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(rows(), 20);
    let said = failure(dir, &["log", "limit", "s.db", "none"]);
    assert!(said.contains("in use"), "{said}");
    server.signal("TERM");
    assert!(server.end().0.success());
    sql.execute("UPDATE acetate_op SET time = time - 200000", []).unwrap();
    let server = Serving::start(dir, 1, &["s.db"]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while rows() != 10 {
        assert!(Instant::now() < deadline, "{} rows", rows());
        std::thread::sleep(Duration::from_millis(20));
    }
    server.signal("TERM");
    assert!(server.end().0.success());
    assert!(done(&["status", "s.db"]).contains("10 older rows dropped"));
    assert_eq!(done(&["log", "limit", "s.db", "none"]), "s.db: keeps all changes\n");
    done(&["check", "s.db"]);
    for two in [["10", "20"], ["none", "5"], ["1d", "2d"]] {
        let said = failure(dir, &[&["log", "limit", "s.db"][..], &two].concat());
        assert!(said.contains("two limits are a number of changes and an age"), "{said}");
    }
    let said = failure(dir, &["log", "limit", "s.db", "much"]);
    assert!(said.contains("expected a number of changes"), "{said}");
}

/// What the exports file says counts instead of what the session says.
#[test]
fn an_exports_file_has_a_limit_too() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    assert!(run(dir, &["init", "s.db"]).status.success());
    for number in 0..20 {
        assert!(run(dir, &["mkdir", "s.db", &format!("/{number}")]).status.success());
    }
    assert!(run(dir, &["log", "limit", "s.db", "15"]).status.success());
    let sql = rusqlite::Connection::open(dir.join("s.db")).unwrap();
    sql.execute("UPDATE acetate_op SET time = time - 200000", []).unwrap();
    let exports = "[[export]]\npath = \"/x\"\n[[export.mount]]\nat = \"/\"\nsession = \"s.db\"\n\
                   keep_log = { changes = 5, days = 1 }\n";
    std::fs::write(dir.join("exports.toml"), exports).unwrap();
    let server = Serving::start(dir, 1, &["--config", "exports.toml"]);
    let count = "SELECT count(*) FROM acetate_op";
    let rows = || sql.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while rows() != 5 {
        assert!(Instant::now() < deadline, "{} rows", rows());
        std::thread::sleep(Duration::from_millis(20));
    }
    server.signal("TERM");
    assert!(server.end().0.success());
}

/// The last connection that is closed is the writer's, which removes the WAL.
#[test]
fn a_server_that_ends_while_it_looks_at_the_log_leaves_no_wal() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    assert!(run(dir, &["init", "s.db"]).status.success());
    assert!(run(dir, &["mkdir", "s.db", "/d"]).status.success());
    let sql = rusqlite::Connection::open(dir.join("s.db")).unwrap();
    // Some tenths of a second of reading.
    sql.execute(
        "WITH RECURSIVE more(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM more WHERE n < 1000000)
         INSERT INTO acetate_op (time, time_nsec, client, uid, gid, procedure, path, fileid)
         SELECT time, time_nsec, client, uid, gid, procedure, path, fileid FROM acetate_op, more",
        [],
    )
    .unwrap();
    drop(sql);
    assert!(run(dir, &["log", "limit", "s.db", "999d"]).status.success());
    let old = rusqlite::Connection::open(dir.join("s.db")).unwrap();
    old.execute("UPDATE acetate_op SET time = time - 200000000", []).unwrap();
    drop(old);
    let server = Serving::start(dir, 1, &["s.db"]);
    server.signal("TERM");
    assert!(server.end().0.success());
    assert!(!dir.join("s.db-wal").exists());
}
