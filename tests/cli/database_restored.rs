//! Databases that were restored: a copy is not the session that is served here, and a replica with
//! changes that its database lacks is not lost.

use std::fs;

use tempfile::{TempDir, tempdir};

use crate::cli::program::{Serving, acetate, said};
use crate::support::database::server::any;

/// Runs a command of a user with this home; returns what it prints.
fn run(home: &TempDir, args: &[&str]) -> String {
    let mut command = acetate(home.path(), args);
    said(&command.env("XDG_CACHE_HOME", home.path()).output().unwrap(), 0).0
}

#[test]
fn a_command_on_a_copy_leaves_the_session_that_is_served_here_alone() {
    let (one, two) =
        (format!("origin_{}", std::process::id()), format!("copy_{}", std::process::id()));
    let (database, home) = (any().apart(&one), tempdir().unwrap());
    let url = database.url("chat").to_string();
    run(&home, &["init", &url]);
    run(&home, &["mkdir", &url, "/d"]);
    drop(database);
    any().run(&format!("CREATE DATABASE {two} TEMPLATE {one}"));
    let copy = url.replace(&one, &two);
    let mut server = acetate(home.path(), &["serve"]);
    server.env("XDG_CACHE_HOME", home.path());
    let server = Serving::start_as(server, 1, &[&url, "--insecure"]);
    run(&home, &["mkdir", &url, "/served"]);
    run(&home, &["rmdir", &copy, "/d"]);
    assert_eq!(run(&home, &["ls", &copy, "/"]), "");
    assert_eq!(run(&home, &["ls", &url, "/"]), "d\nserved\n");
    assert!(run(&home, &["status", &copy]).contains(&copy));
    server.signal("TERM");
    assert!(server.end().0.success());
    for name in [one, two] {
        any().drop_database(&name);
    }
}

#[test]
fn a_replica_with_changes_that_its_database_lacks_is_set_aside() {
    let (home, elsewhere) = (tempdir().unwrap(), tempdir().unwrap());
    let url = any().new_url();
    let (text, schema, name) = (url.to_string(), any().schema(), &url.name);
    run(&home, &["init", &text]);
    run(&home, &["mkdir", &text, "/only_here"]);
    // The database has another batch of this number, as after a restore.
    any().run(&format!(
        "UPDATE {schema}.change SET stamp = 7 WHERE session = (SELECT id FROM {schema}.session \
         WHERE name = '{name}'); UPDATE {schema}.session SET stamp = 7 WHERE name = '{name}'"
    ));
    run(&elsewhere, &["mkdir", &text, "/of_the_database"]);
    assert!(run(&home, &["ls", &text, "/"]).contains("of_the_database"));
    let replicas = fs::read_dir(home.path().join("acetate")).unwrap();
    let names = replicas.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let aside: Vec<_> = names.filter(|name| name.ends_with(".diverged-1")).collect();
    assert_eq!(aside.len(), 1);
    let aside = home.path().join("acetate").join(&aside[0]);
    let conn = rusqlite::Connection::open(aside).unwrap();
    let sql = "SELECT count(*) FROM fs_dentry WHERE name = 'only_here'";
    assert_eq!(conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
}
