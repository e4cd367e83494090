//! Which session is served: a new one is told of, and another base is refused.

use std::fs;
use std::path::Path;
use std::process::Command;

use acetate::overlay::CopyLimits;
use tempfile::{TempDir, tempdir};

use super::program::{Serving, failure, run};
use crate::support::world::{Setup, World};

/// Served with these arguments, and stopped: what it said.
fn served(dir: &Path, args: &[&str]) -> Vec<String> {
    let server = Serving::start(dir, 1, args);
    let said = server.said.clone();
    server.signal("TERM");
    assert!(server.end().0.success());
    said
}

/// A base with some files, and `s.db` with changes over it.
fn changed() -> TempDir {
    let dir = tempdir().unwrap();
    fs::create_dir_all(dir.path().join("base/dir")).unwrap();
    for number in 0..4 {
        fs::write(dir.path().join(format!("base/dir/{number}")), "content").unwrap();
    }
    assert!(run(dir.path(), &["init", "s.db", "--base", "base"]).status.success());
    for number in 0..4 {
        let file = format!("/dir/{number}");
        assert!(run(dir.path(), &["write", "s.db", &file]).status.success());
    }
    dir
}

#[test]
fn a_new_session_is_told_of_and_a_similar_name_with_it() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let real = dir.canonicalize().unwrap().display().to_string();
    fs::create_dir(dir.join("base")).unwrap();
    let created = format!("created {real}/work.db");
    assert!(served(dir, &["work.db", "--base", "base"]).contains(&created));
    assert!(!served(dir, &["work.db"]).contains(&created));
    assert!(!served(dir, &["work.db", "--existing"]).contains(&created));
    let said = failure(dir, &["serve", "wrok.db", "--existing", "--listen", "127.0.0.1:0"]);
    assert!(
        said.starts_with("error: wrok.db: no such session\nhint: did you mean work.db?"),
        "{said}"
    );
    assert!(!dir.join("wrok.db").exists());
    let said = served(dir, &["wrok.db"]);
    let hint = format!("hint: did you mean {real}/work.db? (with --existing none");
    assert!(said.iter().any(|line| line.starts_with(&hint)), "{said:?}");
    // Commands that make none suggest it too.
    let said = failure(dir, &["status", "Work"]);
    assert!(said.ends_with("hint: did you mean work.db?\n"), "{said}");
}

/// Sessions that the exports file has are not taken for one that was misspelt.
#[test]
fn sessions_of_an_exports_file_are_compared_with_others_only() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let export = |name: &str| {
        format!(
            "[[export]]\npath = \"/{name}\"\n\
             [[export.mount]]\nat = \"/\"\nsession = \"{name}.db\"\n"
        )
    };
    let hints = |exports: &str| {
        fs::write(dir.join("exports.toml"), exports).unwrap();
        let mut said = served(dir, &["--config", "exports.toml"]);
        assert!(said.iter().any(|line| line.starts_with("created ")), "{said:?}");
        said.retain(|line| line.starts_with("hint: did you mean"));
        said
    };
    assert_eq!(hints(&(export("chat-1") + &export("chat-2"))), Vec::<String>::new());
    let real = dir.canonicalize().unwrap().display().to_string();
    assert_eq!(hints(&export("caht-1")), [format!("hint: did you mean {real}/chat-1.db?")]);
}

#[test]
fn a_session_with_changes_refuses_another_base() {
    let dir = changed();
    let dir = dir.path();
    fs::create_dir(dir.join("other")).unwrap();
    let port = ["--listen", "127.0.0.1:0"];
    let serve = |more: &[&str]| failure(dir, &[&["serve", "s.db"][..], &port, more].concat());
    for more in [&["--base", "other"][..], &["--base", "other", "--read-only"]] {
        let said = serve(more);
        assert!(
            said.contains("/base, not over ")
                && said.contains(
                    "hint: if it is the same tree at another place, take it with --moved"
                ),
            "{said}"
        );
    }
    let said = serve(&["--base", "other", "--moved"]);
    assert!(said.contains("4 of 4 objects") && said.contains("(such as /dir/0)"), "{said}");
    assert!(serve(&["--moved"]).contains("--base"));
    // The session goes on over its own.
    assert!(served(dir, &["s.db"])[0].contains("/base, never written"));
    assert!(served(dir, &["s.db", "--base", "base"])[0].contains("/base, never written"));
}

/// Before it shows a plan.
#[test]
fn apply_writes_no_changes_to_another_base() {
    let dir = changed();
    let dir = dir.path();
    let copied = Command::new("cp").args(["-a", "base", "other"]).current_dir(dir).status();
    assert!(copied.unwrap().success());
    for how in ["--dry-run", "--yes"] {
        let ran = run(dir, &["apply", "s.db", "--base", "other", how]);
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!((ran.status.code(), &ran.stdout[..]), (Some(2), &b""[..]), "{said}");
        assert!(said.contains("/base, not over ") && said.contains("with --moved"), "{said}");
    }
    assert_eq!(fs::read_to_string(dir.join("other/dir/0")).unwrap(), "content");
    said(dir, &["apply", "s.db", "--base", "base", "--yes"]);
}

#[test]
fn commands_that_change_a_session_take_a_base_that_was_moved() {
    let changes: [&[&str]; 6] = [
        &["apply", "s.db", "--yes"],
        &["discard", "s.db", "--yes", "/dir/0"],
        &["rm", "s.db", "/dir/0"],
        &["mkdir", "s.db", "/new"],
        &["cp", "s.db", ":/dir/0", ":/dir/copy"],
        &["mv", "s.db", "/dir/0", "/dir/moved"],
    ];
    for args in changes {
        let dir = changed();
        let dir = dir.path();
        fs::rename(dir.join("base"), dir.join("moved")).unwrap();
        let gone = failure(dir, args);
        assert!(gone.contains("hint: the session names this directory"), "{args:?}: {gone}");
        assert!(gone.contains("--base DIR --moved"), "{args:?}: {gone}");
        let named = failure(dir, &[args, &["--base", "moved"]].concat());
        assert!(named.contains("take it with --moved"), "{args:?}: {named}");
        fs::create_dir(dir.join("other")).unwrap();
        let other = failure(dir, &[args, &["--base", "other", "--moved"]].concat());
        assert!(other.contains("(such as /dir/0)"), "{args:?}: {other}");
        let output = run(dir, &[args, &["--base", "moved", "--moved"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
        // It is recorded.
        let output = run(dir, &["diff", "s.db"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() < Some(2), "{args:?}: {said}");
    }
}

/// Without an original of what is in it, the directory tells whether the base changed it.
#[test]
fn what_was_removed_is_no_drift_in_a_base_that_was_copied_before() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir_all(dir.join("base/d/e")).unwrap();
    fs::write(dir.join("base/d/e/a"), "a").unwrap();
    let copied = Command::new("cp").args(["-a", "base", "copy"]).current_dir(dir).status();
    assert!(copied.unwrap().success());
    said(dir, &["init", "s.db", "--base", "base"]);
    said(dir, &["rm", "-r", "s.db", "d"]);
    let session = rusqlite::Connection::open(dir.join("s.db")).unwrap();
    let files = "DELETE FROM acetate_original WHERE base_path = CAST('d/e/a' AS BLOB)";
    assert_eq!(session.execute(files, []).unwrap(), 1);
    drop(session);
    fs::rename(dir.join("base"), dir.join("base.old")).unwrap();
    served(dir, &["s.db", "--base", "copy", "--moved"]);
    assert!(!said(dir, &["apply", "s.db", "--yes"]).contains("! "));
    assert!(!dir.join("copy/d").exists());
}

#[test]
fn the_same_tree_at_another_place_is_taken_and_remembered() {
    let dir = changed();
    let dir = dir.path();
    let copied = Command::new("cp").args(["-a", "base", "copy"]).current_dir(dir).status();
    assert!(copied.unwrap().success());
    fs::remove_dir_all(dir.join("base")).unwrap();
    // Half of it may differ.
    fs::write(dir.join("copy/dir/0"), "another").unwrap();
    fs::write(dir.join("copy/dir/1"), "longer than before").unwrap();
    fs::remove_file(dir.join("copy/dir/2")).unwrap();
    let said = served(dir, &["s.db", "--base", "copy", "--moved"]);
    assert!(said.iter().any(|line| line.contains("/copy, never written")), "{said:?}");
    assert!(served(dir, &["s.db"])[0].contains("/copy, never written"));
    fs::rename(dir.join("copy"), dir.join("again")).unwrap();
    fs::remove_file(dir.join("again/dir/0")).unwrap();
    let said = failure(dir, &["serve", "s.db", "--base", "again", "--moved"]);
    assert!(said.contains("3 of 4 objects"), "{said}");
}

/// A closed session with a file that is copied up in part: 20 chunks, of which the session has
/// one.
fn copied_in_part() -> World {
    let base = format!("dir/large \"{}\"", "a".repeat(20 * 512));
    let copy_up = CopyLimits::of(1000, 1024);
    let setup = Setup { base: Some(base), chunk_bytes: 512, copy_up, ..Setup::default() };
    let mut world = World::with(setup);
    world.write("dir/large", 0, b"!").unwrap();
    world.close();
    world
}

/// What is still to be copied, in bytes.
fn uncopied(world: &World) -> i64 {
    world.sql_value("SELECT ifnull(sum(end_byte - next_byte), 0) FROM acetate_copy_up")
}

#[test]
fn content_that_is_not_copied_yet_comes_from_the_moved_base_if_that_has_it() {
    for is_same in [true, false] {
        let world = copied_in_part();
        assert!(uncopied(&world) > 0);
        let dir = world.scratch();
        let mut copy = Command::new("cp");
        assert!(
            copy.arg("-a").arg(world.base()).arg(dir.join("moved")).status().unwrap().success()
        );
        if !is_same {
            let large = fs::File::options().write(true).open(dir.join("moved/dir/large"));
            large.unwrap().set_modified(std::time::SystemTime::now()).unwrap();
        }
        let session = world.session();
        let said = served(dir, &[session.to_str().unwrap(), "--base", "moved", "--moved"]);
        let said = said.join("\n");
        let is_said =
            said.contains("the given base does not have it") && said.contains("/dir/large");
        assert_eq!(is_said, !is_same, "{said}");
        let read = run(dir, &["cat", "session.db", "/dir/large"]);
        let content = format!("!{}", "a".repeat(20 * 512 - 1));
        assert_eq!(read.stdout == content.as_bytes(), is_same, "{read:?}");
        assert_eq!((read.status.success(), uncopied(&world) == 0), (is_same, is_same));
    }
}

/// A session over `base` with changes of these paths, and then over `copy`, which is a copy of it.
fn moved_to_copy(base: &[(&str, &str)], commands: &[&[&str]]) -> TempDir {
    let dir = tempdir().unwrap();
    for (path, content) in base {
        let path = dir.path().join("base").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    if base.iter().any(|(path, _)| *path == "one") {
        fs::hard_link(dir.path().join("base/one"), dir.path().join("base/two")).unwrap();
    }
    assert!(run(dir.path(), &["init", "s.db", "--base", "base"]).status.success());
    for args in commands {
        assert!(run(dir.path(), args).status.success(), "{args:?}");
    }
    let copied = Command::new("cp").args(["-a", "base", "copy"]).current_dir(&dir).status();
    assert!(copied.unwrap().success());
    fs::rename(dir.path().join("base"), dir.path().join("base.old")).unwrap();
    served(dir.path(), &["s.db", "--base", "copy", "--moved"]);
    dir
}

/// What a command says on stdout; it succeeds.
#[track_caller]
fn said(dir: &Path, args: &[&str]) -> String {
    let ran = run(dir, args);
    assert!(ran.status.success(), "{args:?}: {ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn what_moved_is_applied_to_a_copy_that_the_session_is_over_now() {
    let base = [("lib/a/p", "1"), ("lib/a/q/r", "2"), ("lib/c", "3"), ("lib/d/e", "4")];
    let moves = [
        &["mv", "s.db", "lib/a", "lib/b"][..],
        &["mv", "s.db", "lib/b/q/r", "lib/b/q/s"],
        &["mv", "s.db", "lib/d", "lib/f"],
    ];
    let dir = moved_to_copy(&base, &moves);
    let dir = dir.path();
    assert_eq!(said(dir, &["check", "s.db"]), "s.db: sound\n");
    said(dir, &["apply", "s.db", "--yes"]);
    assert_eq!(said(dir, &["diff", "s.db"]), "");
    assert_eq!(fs::read_to_string(dir.join("copy/lib/b/q/s")).unwrap(), "2");
    assert!(!dir.join("copy/.acetate-apply").exists() && !dir.join("copy/lib/a").exists());
    said(dir, &["apply", "s.db", "--undo", "--yes"]);
    assert_eq!(fs::read_to_string(dir.join("copy/lib/a/q/r")).unwrap(), "2");
}

#[test]
fn names_of_one_file_are_those_of_the_moved_base() {
    let chmod = ["chmod", "s.db", "600", "one"];
    let dir = moved_to_copy(&[("one", "1"), ("other", "o")], &[&chmod]);
    let dir = dir.path();
    // Both names of the copy lead to what was changed.
    for name in ["one", "two"] {
        let stat = said(dir, &["stat", "s.db", name]);
        assert!(stat.contains("600"), "{stat}");
    }
    let numbers: Vec<u64> = {
        let session = rusqlite::Connection::open(dir.join("s.db")).unwrap();
        let mut all = session.prepare("SELECT base_ino FROM acetate_origin").unwrap();
        let all = all.query_map([], |row| row.get::<_, i64>(0)).unwrap();
        all.map(|number| number.unwrap() as u64).collect()
    };
    use std::os::unix::fs::MetadataExt;
    assert_eq!(numbers, [fs::metadata(dir.join("copy/two")).unwrap().ino()]);
    assert_eq!(said(dir, &["check", "s.db"]), "s.db: sound\n");
    said(dir, &["apply", "s.db", "--yes"]);
    assert_eq!(fs::metadata(dir.join("copy/two")).unwrap().mode() & 0o777, 0o600);
    assert_eq!(said(dir, &["diff", "s.db"]), "");
}
