//! `acetate check`.

use std::process::Output;

use serde_json::Value;
use tempfile::tempdir;

use super::program::{Serving, failure, run};
use crate::delta::Place;
use crate::inspect::{all_rows, half_empty};

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
fn a_file_that_another_program_wrote_to_is_usable_and_repair_agrees() {
    let place = Place::new();
    place.sql().execute_batch(crate::delta::FOREIGN).unwrap();
    let output = ask(&place, &[]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("note S2 /dangling: it leads to inode 77, which is not there"), "{said}");
    let last = said.lines().last().unwrap();
    let usable = "session.db: usable, written by another program too, ";
    assert!(last.starts_with(usable) && last.ends_with(" notes"), "{said}");
    for (option, code, words) in [
        ("--lenient", 0, usable),
        ("--strict", 1, "session.db: "),
        ("--repair --dry-run", 1, "session.db: would be repaired"),
    ] {
        let output = ask(&place, &option.split(' ').collect::<Vec<_>>());
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(code), "{option}: {said}");
        let last = said.lines().last().unwrap();
        assert!(last.starts_with(words), "{option}: {said}");
        assert_eq!(last.contains(" finding"), option == "--strict", "{last}");
    }
}

/// A session with content that no entry leads to.
fn broken() -> Place {
    let place = Place::new();
    half_empty(&place, 4);
    let damage = "UPDATE fs_inode SET nlink = 7 WHERE ino <> 1;
        DELETE FROM fs_dentry WHERE name = 'f1'";
    place.sql().execute_batch(damage).unwrap();
    place
}

#[test]
fn a_repair_says_what_it_did_and_where_the_copy_is() {
    let place = broken();
    let output = ask(&place, &["--repair", "--dry-run"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("would be mended: S6: inode 4503603922"), "{said}");
    assert!(said.ends_with("session.db: would be repaired\n"), "{said}");
    assert_eq!(place.names(), ["session.db"]);
    let output = ask(&place, &["--repair", "--backup", "copy.db"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("\nsession.db: repaired, now sound; as it was: /"), "{said}");
    assert!(said.ends_with("/copy.db\n"), "{said}");
    let found = run(place.path.parent().unwrap(), &["ls", "session.db", "/lost+found"]);
    assert_eq!(String::from_utf8(found.stdout).unwrap().lines().count(), 1);
    let output = ask(&place, &["--repair"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, "session.db: sound, nothing to repair\n");
    let output = ask(&place, &["--backup", "copy.db"]);
    assert_eq!(output.status.code(), Some(2), "without --repair it means nothing");
}

#[test]
fn a_repair_in_json_has_an_object_for_each_rule_and_one_for_all() {
    let place = broken();
    let output = ask(&place, &["--repair", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let lines = String::from_utf8(output.stdout).unwrap();
    let objects: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let types: Vec<_> = objects.iter().map(|o| o["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["mended", "mended", "repair"], "{lines}");
    assert_eq!((&objects[0]["rule"], &objects[0]["count"]), (&"S6".into(), &1.into()));
    let all = &objects[2];
    assert_eq!((&all["is_done"], &all["is_sound"]), (&true.into(), &true.into()));
    assert!(all["backup"].as_str().unwrap().ends_with("/session.db.before-repair"));
}

#[test]
fn a_repair_of_a_served_session_is_refused() {
    let dir = tempdir().unwrap();
    let server = Serving::start(dir.path(), 1, &["s.db"]);
    let said = failure(dir.path(), &["check", "s.db", "--repair"]);
    assert!(said.contains("s.db: in use by another server"), "{said}");
    assert!(said.contains("hint: stop that server first, then repair"), "{said}");
    server.signal("TERM");
    assert!(server.end().0.success());
}

#[test]
fn a_repair_that_is_killed_or_has_no_room_leaves_the_old_session_or_the_new_one() {
    let place = Place::new();
    half_empty(&place, 24);
    let damage = "DELETE FROM fs_dentry; UPDATE fs_data SET data = CAST(data AS TEXT)";
    place.sql().execute_batch(damage).unwrap();
    let dir = place.path.parent().unwrap();
    let old = std::fs::read(&place.path).unwrap();
    let rows = all_rows(&place.path);
    let (mut was_old, mut was_new) = (0, 0);
    // A limit on what a file may hold, in KiB or half of that, in place of a disk.
    let limits = [1, 2, 4].map(|part| format!("ulimit -f {};", old.len() / 1024 * part / 2 + 40));
    let runs = limits
        .map(|limit| (limit, 5000))
        .into_iter()
        .chain([10, 20, 30, 40, 60, 80, 120, 5000].map(|delay| (String::new(), delay)));
    for (limit, delay) in runs {
        let program = env!("CARGO_BIN_EXE_acetate");
        let script = format!("trap '' XFSZ; {limit} exec {program} check session.db --repair");
        let mut command = std::process::Command::new("sh");
        command.current_dir(dir).args(["-c", &script]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_millis(delay);
        while child.try_wait().unwrap().is_none() && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let _ended_already = child.kill();
        child.wait().unwrap();
        let copy = dir.join("session.db.before-repair");
        if copy.exists() {
            assert!(all_rows(&copy) == rows, "the copy is another");
            std::fs::remove_file(copy).unwrap();
        }
        if all_rows(&place.path) == rows {
            was_old += 1;
            continue;
        }
        was_new += 1;
        crate::support::check::assert_consistent(&place.path);
        for name in place.names().iter().filter(|name| name.starts_with("session.db-")) {
            std::fs::remove_file(dir.join(name)).unwrap();
        }
        std::fs::write(&place.path, &old).unwrap();
    }
    assert!(was_old > 0 && was_new > 0, "{was_old} times the old one, {was_new} the new one");
}
