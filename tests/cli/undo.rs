//! `acetate apply --undo`, and what is kept for it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::program::{Serving, run, said};
use crate::support::applied::{assert_same, merged, on_host};
use crate::support::skip::skip;
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

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Where the copy of `dir/file` is, by what was said.
#[track_caller]
fn copy_of(said: &str) -> &str {
    let copy = said.lines().find_map(|line| line.strip_prefix("/dir/file: a copy is at "));
    copy.and_then(|copy| copy.strip_suffix(", until the next apply")).expect("a copy is named")
}

#[test]
fn status_names_what_is_kept() {
    let world = changed();
    let session = world.session();
    let session = session.to_str().unwrap();
    let status =
        |args: &[&str]| said(&run(world.scratch(), &[&["status", session], args].concat()), 0).0;
    let undo = || serde_json::from_str::<Value>(&status(&["--json"])).unwrap()["undo"].clone();
    assert!(!status(&[]).contains("undo "), "nothing is kept yet");
    assert_eq!(undo(), Value::Null);
    said(&apply(&world, &["--yes"]), 0);
    let base = world.base().canonicalize().unwrap();
    let line = status(&[]).lines().find(|line| line.starts_with("last apply ")).unwrap().to_owned();
    let real = world.session().canonicalize().unwrap();
    let begins =
        format!("last apply   kept in {}-undo: 2 objects, 12 B, of the apply at 2", real.display());
    let command = format!("acetate apply --undo {}", real.display());
    let ends = format!(" to {} (`{command}`)", base.display());
    assert!(line.starts_with(&begins) && line.ends_with(&ends), "{line}");
    let kept = undo();
    assert_eq!((&kept["objects"], &kept["bytes"]), (&2.into(), &12.into()));
    assert_eq!((&kept["to"], &kept["is_taken_back"]), (&base.to_str().into(), &false.into()));
    let server = Serving::start(world.scratch(), 1, &[session]);
    assert_eq!(undo(), kept, "also beside a server");
    drop(server);
    said(&apply(&world, &["--undo", "--yes"]), 0);
    assert_eq!(undo()["is_taken_back"], true);
    assert!(status(&[]).contains(", of the undo at "), "{}", status(&[]));
}

#[test]
fn it_shows_and_takes_back() {
    let world = changed();
    let before = on_host(&world.base());
    let (_, err) = said(&apply(&world, &["--undo", "--yes"]), 1);
    assert!(err.contains("nothing to undo"), "{err}");
    said(&apply(&world, &["--yes"]), 0);
    let after = on_host(&world.base());
    let (out, err) = said(&apply(&world, &["--undo", "--dry-run"]), 0);
    assert!(err.is_empty(), "{err}");
    let base = world.base().canonicalize().unwrap();
    let sum = format!("{}: 5 changes to undo, times of 1 directory", base.display());
    let lines =
        ["M /dir/file", "A /dir/other", "R /sub -> /dir/sub/", "D /new/ (1 file, 1 B)", &sum];
    assert_eq!(out.lines().collect::<Vec<_>>(), lines);
    let (_, err) = said(&apply(&world, &["--undo"]), 2);
    assert!(err.contains("cannot ask without a terminal") && err.contains("--yes"), "{err}");
    assert_same(&on_host(&world.base()), &after);
    let (out, err) = said(&apply(&world, &["--undo", "--yes"]), 0);
    assert!(out.ends_with(": undone\n"), "{out}");
    assert!(err.contains("the session does not get the changes back"), "{err}");
    assert_same(&on_host(&world.base()), &before);
    let mut seen = merged(&world.session(), Some(&world.base()));
    // The top is in the session, and its entries changed there.
    seen.insert(Vec::new(), before[&b""[..]].clone());
    assert_same(&seen, &before);
    let (out, err) = said(&apply(&world, &["--undo", "--yes"]), 0);
    assert!(out.contains(" to apply again") && out.ends_with(": applied again\n"), "{out}");
    assert!(err.contains("undoes it, until the next apply"), "{err}");
    assert_same(&on_host(&world.base()), &after);
    // No part of an apply is undone.
    let (_, err) = said(&apply(&world, &["--undo", "--hunk", "abc"]), 2);
    assert!(err.contains("cannot be used with"), "{err}");
}

#[test]
fn what_an_undo_left_out_is_kept_until_the_next_apply() {
    let world = changed();
    said(&apply(&world, &["--yes"]), 0);
    fs::write(world.base().join("dir/file"), "a person's").unwrap();
    let (out, _) = said(&apply(&world, &["--undo", "--yes", "--skip-drifted"]), 1);
    let copy = Path::new(copy_of(&out)).to_owned();
    let is_kept = || copy.exists();
    assert!(is_kept());
    for _ in 0..3 {
        apply(&world, &["--undo", "--yes"]);
        assert!(is_kept());
    }
    put(&world, "/more");
    said(&apply(&world, &["--yes"]), 0);
    assert!(!is_kept());
}

/// Writes a file of the session, with its name in it.
fn put(world: &World, path: &str) {
    let session = world.session();
    let from = world.scratch().join("from");
    fs::write(&from, path).unwrap();
    let args = ["write", session.to_str().unwrap(), path, "--from", from.to_str().unwrap()];
    said(&run(world.scratch(), &args), 0);
}

#[test]
fn what_was_taken_back_is_not_lost_by_another_apply() {
    let world = changed();
    said(&apply(&world, &["--yes"]), 0);
    let after = on_host(&world.base());
    said(&apply(&world, &["--undo", "--yes"]), 0);
    // Only the times of the top differ: what is kept stays.
    apply(&world, &["--yes"]);
    put(&world, "/more");
    let (_, err) = said(&apply(&world, &["--yes"]), 2);
    assert!(err.contains("the last apply was undone"), "{err}");
    assert!(err.contains("--undo") && err.contains("--no-keep"), "{err}");
    let (_, err) = said(&apply(&world, &["-n"]), 2);
    assert!(err.contains("the last apply was undone"), "{err}");
    said(&apply(&world, &["-n", "--no-keep"]), 0);
    assert!(!world.base().join("more").exists());
    said(&apply(&world, &["--undo", "--yes"]), 0);
    let there = on_host(&world.base());
    assert_eq!(there.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    said(&apply(&world, &["--yes"]), 0);
    assert!(world.base().join("more").exists());
    said(&apply(&world, &["--undo", "--yes"]), 0);
    assert!(!world.base().join("more").exists());
    // Given up on purpose.
    put(&world, "/other");
    said(&apply(&world, &["--yes", "--no-keep"]), 0);
    assert!(world.base().join("other").exists());
}

#[test]
fn attributes_that_were_taken_back_are_not_lost_by_another_apply() {
    let mut world = World::new("file \"file\"\ndir/in \"in\"\n");
    world.chmod("file", 0o600).unwrap();
    world.chmod("dir", 0o700).unwrap();
    world.change_base();
    world.close();
    said(&apply(&world, &["--yes"]), 0);
    said(&apply(&world, &["--undo", "--yes"]), 0);
    put(&world, "/more");
    let (_, err) = said(&apply(&world, &["--yes"]), 2);
    assert!(err.contains("the last apply was undone"), "{err}");
    said(&apply(&world, &["--undo", "--yes"]), 0);
    let mode = |at: &str| mode(&world.base().join(at));
    assert_eq!((mode("file"), mode("dir")), (0o600, 0o700));
    said(&apply(&world, &["--yes"]), 0);
}

#[test]
fn what_has_no_place_any_more_is_refused_before_anything_is_written() {
    let mut world = World::new("a/f \"precious\"\nt \"t\"\nfile \"file\"\n");
    world.remove("a/f").unwrap();
    world.write("t", 0, b"T").unwrap();
    world.write("file", 0, b"F").unwrap();
    world.change_base();
    world.close();
    said(&apply(&world, &["--yes"]), 0);
    let base = world.base();
    // The directory is gone, and a directory has come where a file is to go back to.
    fs::rename(base.join("a"), base.join("z")).unwrap();
    fs::remove_file(base.join("file")).unwrap();
    fs::create_dir(base.join("file")).unwrap();
    fs::write(base.join("file/kept"), "kept").unwrap();
    let (out, _) = said(&apply(&world, &["--undo", "--yes"]), 1);
    assert!(out.contains("! /a/f: its directory is gone since it was applied"), "{out}");
    assert!(out.contains("! /file: changed since it was applied; it cannot come back"), "{out}");
    assert_eq!(fs::read(base.join("t")).unwrap(), b"T");
    let (out, _) = said(&apply(&world, &["--undo", "--yes", "--force"]), 1);
    assert!(out.contains("/a/f: a copy is at "), "{out}");
    assert_eq!(fs::read(base.join("t")).unwrap(), b"t");
    assert_eq!(fs::read(base.join("file/kept")).unwrap(), b"kept");
    std::os::unix::fs::symlink("/tmp", base.join("a")).unwrap();
    said(&apply(&world, &["--undo", "--yes", "--skip-drifted"]), 0);
}

#[test]
fn hunks_that_were_applied_are_taken_back() {
    let lines = |first: &str, last: &str| format!("{first}\n2\n3\n4\n5\n6\n7\n8\n{last}\n");
    let old = (lines("1", "9"), 0o644);
    // The first hunk, the second one, and the mode.
    for at in 0..3 {
        let mut world = World::new(&format!("f {:?}\n", old.0));
        world.write("f", 0, lines("a", "z").as_bytes()).unwrap();
        world.chmod("f", 0o600).unwrap();
        world.change_base();
        world.close();
        let (session, base) = (world.session(), world.base());
        let args = ["diff", session.to_str().unwrap(), "--json", "--hunks"];
        let (out, _) = said(&run(world.scratch(), &args), 1);
        let ids = out.lines().filter_map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["id"].as_str().map(str::to_owned)
        });
        let id = ids.collect::<Vec<_>>().swap_remove(at);
        let now = || (fs::read_to_string(base.join("f")).unwrap(), mode(&base.join("f")));
        let before = on_host(&base);
        let (_, err) = said(&apply(&world, &["--yes", "--hunk", &id]), 0);
        assert!(err.contains("--undo"), "{err}");
        let applied = now();
        assert!(applied != old && applied != (lines("a", "z"), 0o600), "{applied:?}");
        let (out, _) = said(&apply(&world, &["--undo", "--yes"]), 0);
        assert!(out.starts_with("M /f\n") && out.ends_with(": undone\n"), "{out}");
        assert_same(&on_host(&base), &before);
        // The session has all, and no other apply gives up what was undone.
        let content = run(world.scratch(), &["cat", session.to_str().unwrap(), "f"]).stdout;
        assert_eq!(content, lines("a", "z").as_bytes());
        let (_, err) = said(&apply(&world, &["--yes"]), 2);
        assert!(err.contains("the last apply was undone"), "{err}");
        for wanted in [&applied, &old, &applied] {
            said(&apply(&world, &["--undo", "--yes"]), 0);
            assert_eq!(now(), *wanted);
        }
        said(&apply(&world, &["--yes"]), 0);
        assert_eq!(now(), (lines("a", "z"), 0o600));
    }
}

#[test]
fn an_index_that_git_wrote_again_is_named_with_the_way_on() {
    let mut world = World::new(".git/index \"old\"\nfile \"file\"\n");
    world.put(".git/index", "new");
    world.put("file", "new");
    world.change_base();
    world.close();
    said(&apply(&world, &["--yes"]), 0);
    fs::write(world.base().join(".git/index"), "refreshed").unwrap();
    let (out, err) = said(&apply(&world, &["--undo", "--yes"]), 1);
    assert!(out.contains("! /.git/index: changed since it was applied"), "{out}");
    assert!(err.contains("git rewrites /.git/index even when it only looks"), "{err}");
    let (out, _) = said(&apply(&world, &["--undo", "--yes", "--force"]), 0);
    assert!(out.contains("/.git/index: a copy is at "), "{out}");
    assert_eq!(fs::read(world.base().join(".git/index")).unwrap(), b"old");
    fs::write(world.base().join("file"), "a person's").unwrap();
    let (_, err) = said(&apply(&world, &["--undo", "--yes"]), 1);
    assert!(!err.contains("git writes"), "{err}");
}

/// Where nothing can be kept, --no-keep applies all the same.
#[test]
fn a_directory_that_cannot_be_used_stops_no_apply_that_keeps_nothing() {
    let world = changed();
    fs::write(world.session().with_extension("db-undo"), "a file").unwrap();
    let (_, err) = said(&apply(&world, &["--yes"]), 2);
    assert!(err.contains("--no-keep"), "{err}");
    assert!(!world.base().join("new").exists());
    said(&apply(&world, &["--yes", "--no-keep"]), 0);
    assert!(world.base().join("new").exists());
    assert!(!world.base().join(".acetate-apply").exists());
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
    let copy = copy_of(&out);
    assert_eq!(fs::read(copy).unwrap(), b"a person's");
}

#[test]
fn a_forced_apply_names_the_copies() {
    let world = changed();
    fs::write(world.base().join("dir/file"), "a person's\0").unwrap();
    let (out, _) = said(&apply(&world, &["--yes", "--force"]), 0);
    let copy = copy_of(&out);
    assert_eq!(fs::read(copy).unwrap(), b"a person's\0");
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
    assert!(out.contains(", 9.0 KiB replaced: more than --undo may keep"), "{out}");
    let (_, err) = said(&apply(&world, &["--yes", "--keep-limit", "1"]), 2);
    assert!(err.contains("keeping 9.0 KiB for undo exceeds the limit of 1 B"), "{err}");
    assert!(err.contains("--no-keep"), "{err}");
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

#[test]
fn directories_are_one_line_with_what_they_hold() {
    let mut world = World::new("gone/a \"aaaa\"\ngone/sub/b \"bb\"\nmoved/c \"c\"\nempty/\n");
    world.rm_rf("gone");
    world.rm_rf("empty");
    world.rename("moved", "new").unwrap();
    world.mkdir("made").unwrap();
    world.mkdir("made/sub").unwrap();
    world.put("made/sub/d", "dd");
    world.change_base();
    world.close();
    said(&apply(&world, &["--yes"]), 0);
    let (out, _) = said(&apply(&world, &["--undo", "--dry-run"]), 0);
    let lines: Vec<_> = out.lines().filter(|line| !line.contains("to undo")).collect();
    let undone =
        ["A /empty/", "A /gone/ (2 files, 6 B)", "D /made/ (1 file, 2 B)", "R /new -> /moved/"];
    assert_eq!(lines, undone);
    said(&apply(&world, &["--undo", "--yes"]), 0);
    let (out, _) = said(&apply(&world, &["--undo", "--dry-run"]), 0);
    let lines: Vec<_> = out.lines().filter(|line| !line.contains("to apply again")).collect();
    let redone =
        ["D /empty/", "D /gone/ (2 files, 6 B)", "A /made/ (1 file, 2 B)", "R /moved -> /new/"];
    assert_eq!(lines, redone);
}

#[test]
fn an_undo_finds_a_base_that_was_moved() {
    let world = changed();
    let before = on_host(&world.base());
    said(&apply(&world, &["--yes"]), 0);
    let moved = world.scratch().join("elsewhere");
    fs::rename(world.base(), &moved).unwrap();
    let base = ["--base", moved.to_str().unwrap()];
    let (out, _) = said(&apply(&world, &[&base[..], &["--undo", "--yes"]].concat()), 0);
    assert!(out.ends_with(": undone\n"), "{out}");
    assert_same(&on_host(&moved), &before);
    // What is another directory, and not the one that is gone, is told apart.
    fs::create_dir(world.base()).unwrap();
    fs::rename(&moved, world.scratch().join("again")).unwrap();
    let base = ["--base", world.base().to_str().unwrap(), "--undo", "--yes"].map(str::to_owned);
    let base: Vec<_> = base.iter().map(String::as_str).collect();
    let (_, err) = said(&apply(&world, &base), 2);
    assert!(err.contains("elsewhere is gone") && !err.contains("--to DIR"), "{err}");
}

#[test]
fn many_small_files_are_kept_only_where_there_is_room() {
    let is_root = Command::new("unshare").args(["-m", "true"]).status();
    if !is_root.is_ok_and(|status| status.success()) {
        skip("no mount namespace without root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Files of one byte take a block each.
    let script = r#"
        mkdir "$0/disk" "$0/base" "$0/base/many" && cd "$0" || exit 9
        mount -t tmpfs -o size=8m none disk || exit 9
        for n in $(seq 3000); do printf 1 >base/many/$n; done
        "$1" init disk/s.db --base base >said && "$1" rm disk/s.db -r /many >>said || exit 9
        "$1" apply disk/s.db --dry-run --json 2>>said | grep -o '"kept_bytes":[0-9]*'
        "$1" apply disk/s.db --yes >>said 2>&1 </dev/null; echo "exit $?"
        grep -o 'keeping .* for undo exceeds the free space' said; ls base/many | wc -l
        "$1" apply disk/s.db --yes --no-keep >>said 2>&1 </dev/null; echo "exit $?"; ls base
    "#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(dir.path());
    let output = command.arg(env!("CARGO_BIN_EXE_acetate")).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    // The directory has blocks of its own, as many as its filesystem says.
    let kept = said.lines().find_map(|line| line.strip_prefix("\"kept_bytes\":"));
    let kept: u64 = kept.and_then(|kept| kept.parse().ok()).expect(&said);
    let files = 3000 * (4096 + 512);
    assert!((files..files + (1 << 20)).contains(&kept), "{said}");
    let tenths = (kept * 10) >> 20;
    let size = format!("{}.{} MiB", tenths / 10, tenths % 10);
    let refused = format!("exit 2\nkeeping {size} for undo exceeds the free space\n3000\nexit 0\n");
    assert_eq!(said, format!("\"kept_bytes\":{kept}\n{refused}"));
}

#[test]
fn an_apply_to_another_directory_says_that_the_last_undo_goes() {
    let mut world = changed();
    said(&apply(&world, &["--yes"]), 0);
    world.open_again();
    world.put("later", "later");
    world.close();
    let note = |dir: &Path| {
        let dir = dir.canonicalize().unwrap();
        format!("this apply ends the undo of the one to {} of ", dir.display())
    };
    let (out, _) = said(&apply(&world, &["--dry-run"]), 0);
    assert!(!out.contains("ends the undo"), "{out}");
    let copy = world.scratch().join("copy");
    fs::create_dir(&copy).unwrap();
    let to = ["--to", copy.to_str().unwrap()];
    let (out, _) = said(&apply(&world, &[&to[..], &["--dry-run"]].concat()), 0);
    assert!(out.contains(&note(&world.base())), "{out}");
    said(&apply(&world, &[&to[..], &["--yes"]].concat()), 0);
    let (out, _) = said(&apply(&world, &["--dry-run"]), 0);
    assert!(out.contains(&note(&copy)), "{out}");
}

#[test]
fn the_log_says_that_an_apply_was_taken_back() {
    let world = changed();
    let session = world.session();
    let log = || said(&run(world.scratch(), &["log", session.to_str().unwrap()]), 0).1;
    said(&apply(&world, &["--yes"]), 0);
    assert_eq!(log(), "");
    said(&apply(&world, &["--undo", "--yes"]), 0);
    let base = world.base().canonicalize().unwrap();
    let note = format!("the last apply, to {}, was undone at ", base.display());
    assert!(log().starts_with(&note), "{}", log());
    said(&apply(&world, &["--undo", "--yes"]), 0);
    assert_eq!(log(), "");
}
