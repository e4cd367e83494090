//! `acetate check`.

use std::process::Output;

use serde_json::Value;
use tempfile::tempdir;

use super::program::{Serving, failure, run};
use crate::delta::Place;
use crate::inspect::half_empty;

fn ask(place: &Place, args: &[&str]) -> Output {
    let all = [&["check", "session.db"], args].concat();
    run(place.path.parent().unwrap(), &all)
}

#[test]
fn a_sound_session_is_sound_served_or_not() {
    let dir = tempdir().unwrap();
    let server = Serving::start(dir.path(), 1, &["s.db"]);
    for args in [&["check", "s.db"][..], &["check", "s.db", "--quick"]] {
        let output = run(dir.path(), args);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "s.db: sound\n");
        assert!(output.stderr.is_empty());
    }
    server.signal("TERM");
    assert!(server.end().0.success());
    assert_eq!(run(dir.path(), &["check", "s.db"]).status.code(), Some(0));
    let said = failure(dir.path(), &["check", "none.db"]);
    assert!(said.contains("none.db: no such session"), "{said}");
}

#[test]
fn findings_are_lines_and_exit_with_1() {
    let place = Place::new();
    half_empty(&place, 12);
    let damage = "UPDATE fs_inode SET nlink = 7 WHERE ino <> 1;
        UPDATE fs_dentry SET name = 'red' || char(27) WHERE name = 'f1'";
    place.sql().execute_batch(damage).unwrap();
    let output = ask(&place, &["--max", "2"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("S7 /red\\u{1b} (inode "), "{said}");
    assert!(lines[0].ends_with("): nlink is 7, and not 1"), "{said}");
    assert_eq!(lines[2..], ["S7: 4 more", "session.db: 6 findings"], "{said}");
}

#[test]
fn json_has_an_object_for_each_and_one_for_all() {
    let place = Place::new();
    half_empty(&place, 12);
    place.sql().execute_batch("UPDATE fs_inode SET nlink = 7 WHERE ino <> 1").unwrap();
    let output = ask(&place, &["--json", "--max", "1", "--quick"]);
    assert_eq!(output.status.code(), Some(1));
    let lines = String::from_utf8(output.stdout).unwrap();
    let objects: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let types: Vec<_> = objects.iter().map(|o| o["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["finding", "rest", "check"]);
    assert_eq!((&objects[0]["rule"], &objects[0]["path"]), (&"S7".into(), &"/f1".into()));
    assert_eq!((&objects[0]["is_note"], &objects[1]["count"]), (&false.into(), &5.into()));
    assert_eq!((&objects[2]["findings"], &objects[2]["is_sound"]), (&6.into(), &false.into()));
}

#[test]
fn notes_of_files_of_others_are_no_findings() {
    let place = Place::new();
    place.sql().execute_batch(crate::delta::FOREIGN).unwrap();
    let output = ask(&place, &[]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("note S2 /dangling: it leads to inode 77, which is not there"), "{said}");
    assert!(said.lines().last().unwrap().starts_with("session.db: sound, "), "{said}");
}
