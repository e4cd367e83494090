//! `acetate apply --undo`, and what is kept for it.

use std::fs;
use std::process::Output;

use serde_json::Value;

use super::program::{Serving, run};
use crate::support::applied::{assert_same, merged, on_host};
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "content"
    dir/other "other"
    dir/sub/deep "deep"
"#;

fn changed() -> World {
    let mut world = World::new(TREE);
    world.change_base();
    world.write("dir/file", 0, b"CONTENT, and more").unwrap();
    world.remove("dir/other").unwrap();
    world.rename("dir/sub", "sub").unwrap();
    world.mkdir("new").unwrap();
    world.put("new/a", "a");
    world.close();
    world
}

fn apply(world: &World, args: &[&str]) -> Output {
    let session = world.session();
    run(world.scratch(), &[&["apply", session.to_str().unwrap()], args].concat())
}

#[track_caller]
fn said(output: &Output, code: i32) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    (out, err)
}

#[test]
fn it_shows_and_takes_back() {
    let world = changed();
    let before = on_host(&world.base());
    let (_, err) = said(&apply(&world, &["--undo", "--yes"]), 1);
    assert!(err.contains("nothing to take back"), "{err}");
    said(&apply(&world, &["--yes"]), 0);
    let after = on_host(&world.base());
    let (out, err) = said(&apply(&world, &["--undo", "--dry-run"]), 0);
    assert!(err.is_empty(), "{err}");
    let base = world.base().canonicalize().unwrap();
    let sum = format!("{}: 5 changes to take back, times of 1 directory", base.display());
    let lines = [
        "M /dir/file",
        "A /dir/other",
        "R /sub -> /dir/sub/",
        "D /new/ (with 1 object in it)",
        &sum,
    ];
    assert_eq!(out.lines().collect::<Vec<_>>(), lines);
    let (_, err) = said(&apply(&world, &["--undo"]), 2);
    assert!(err.contains("nobody to ask") && err.contains("--yes"), "{err}");
    assert_same(&on_host(&world.base()), &after);
    let (out, err) = said(&apply(&world, &["--undo", "--yes"]), 0);
    assert!(out.ends_with(": taken back\n"), "{out}");
    assert!(err.contains("the session does not have these changes any more"), "{err}");
    assert_same(&on_host(&world.base()), &before);
    let mut seen = merged(&world.session(), Some(&world.base()));
    // The top is in the session, and its entries changed there.
    seen.insert(Vec::new(), before[&b""[..]].clone());
    assert_same(&seen, &before);
    said(&apply(&world, &["--undo", "--yes"]), 0);
    assert_same(&on_host(&world.base()), &after);
}

#[test]
fn what_a_person_changed_since_is_refused_and_listed() {
    let world = changed();
    said(&apply(&world, &["--yes"]), 0);
    fs::write(world.base().join("dir/file"), "a person's").unwrap();
    let before = on_host(&world.base());
    let (out, err) = said(&apply(&world, &["--undo", "--yes"]), 1);
    assert!(out.contains("! /dir/file: changed since it was applied"), "{out}");
    assert!(err.contains("--skip-drifted") && err.contains("--force"), "{err}");
    assert_same(&on_host(&world.base()), &before);
    let (out, _) = said(&apply(&world, &["--undo", "--yes", "--force"]), 0);
    assert_eq!(fs::read(world.base().join("dir/file")).unwrap(), b"content");
    let copy = out.lines().find_map(|line| line.strip_prefix("/dir/file: a copy is at "));
    assert_eq!(fs::read(copy.expect("a copy is named")).unwrap(), b"a person's");
}

#[test]
fn a_forced_apply_names_the_copies() {
    let world = changed();
    fs::write(world.base().join("dir/file"), "a person's\0").unwrap();
    let (out, _) = said(&apply(&world, &["--yes", "--force"]), 0);
    let copy = out.lines().find_map(|line| line.strip_prefix("/dir/file: a copy is at "));
    assert_eq!(fs::read(copy.expect("a copy is named")).unwrap(), b"a person's\0");
}

#[test]
fn json_has_all_of_it() {
    let world = changed();
    said(&apply(&world, &["--yes", "--json"]), 0);
    let (out, _) = said(&apply(&world, &["--undo", "--yes", "--json"]), 0);
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let moved = lines.iter().find(|line| line["kind"] == "moved").unwrap();
    assert_eq!((&moved["path"], &moved["from"]), (&"/dir/sub".into(), &"/sub".into()));
    let plan = lines.iter().find(|line| line["type"] == "undo_plan").unwrap();
    assert_eq!(plan["changes"], 5);
    let done = lines.last().unwrap();
    assert_eq!((&done["type"], &done["undo"]), (&"applied".into(), &true.into()));
}

#[test]
fn the_limit_is_said_and_kept_to() {
    let world = changed();
    let before = on_host(&world.base());
    let (out, _) = said(&apply(&world, &["--dry-run", "--keep-limit", "1"]), 0);
    assert!(out.contains(", 12 B replaced: more than --undo may keep"), "{out}");
    let (_, err) = said(&apply(&world, &["--yes", "--keep-limit", "1"]), 2);
    assert!(err.contains("12 bytes") && err.contains("--no-keep"), "{err}");
    assert_same(&on_host(&world.base()), &before);
    let (_, err) = said(&apply(&world, &["--yes", "--no-keep"]), 0);
    assert!(!err.contains("--undo"), "{err}");
    said(&apply(&world, &["--undo", "--yes"]), 1);
}

#[test]
fn it_works_beside_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    fs::create_dir(&base).unwrap();
    crate::support::fixture::build(&base, TREE);
    let before = on_host(&base);
    let server = Serving::start(dir.path(), 1, &["s.db", "--base", "base"]);
    let does = |args: &[&str]| assert!(run(dir.path(), args).status.success(), "{args:?}");
    does(&["rm", "s.db", "-r", "dir/sub"]);
    does(&["write", "s.db", "dir/file", "--from", "/dev/null"]);
    does(&["apply", "s.db", "--yes"]);
    does(&["apply", "s.db", "--undo", "--yes"]);
    assert_same(&on_host(&base), &before);
    assert_eq!(run(dir.path(), &["cat", "s.db", "dir/file"]).stdout, b"content");
    server.signal("TERM");
    assert!(server.end().0.success());
}

#[test]
fn another_directory_is_named() {
    let world = changed();
    let to = world.scratch().join("copy");
    crate::support::applied::copy(&world.base(), &to);
    let to = to.to_str().unwrap();
    said(&apply(&world, &["--yes", "--to", to]), 0);
    let (_, err) = said(&apply(&world, &["--undo", "--yes"]), 2);
    assert!(err.contains(to) && err.contains("--to"), "{err}");
    let before = on_host(&world.base());
    said(&apply(&world, &["--undo", "--yes", "--to", to]), 0);
    assert_same(&on_host(to.as_ref()), &before);
}
