//! `--no-base`: what a session holds, where its base is gone.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use tempfile::{TempDir, tempdir};

use super::program::{acetate, failure, run};

/// `s.db` with changes over a base that is gone.
fn orphan() -> TempDir {
    let dir = tempdir().unwrap();
    fs::create_dir_all(dir.path().join("base/dir/sub")).unwrap();
    fs::write(dir.path().join("base/dir/file"), "of the base").unwrap();
    fs::write(dir.path().join("base/dir/gone"), "of the base").unwrap();
    fs::write(dir.path().join("base/dir/sub/kept"), "of the base").unwrap();
    assert!(run(dir.path(), &["init", "s.db", "--base", "base"]).status.success());
    for (file, content) in [("/dir/file", "changed"), ("/dir/sub/made", "made")] {
        let mut command = acetate(dir.path(), &["write", "s.db", file]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), content.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }
    assert!(run(dir.path(), &["rm", "s.db", "/dir/gone"]).status.success());
    fs::remove_dir_all(dir.path().join("base")).unwrap();
    dir
}

#[track_caller]
fn said(dir: &Path, code: i32, args: &[&str]) -> String {
    let output = run(dir, args);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_the_session_holds_can_be_looked_at() {
    let dir = orphan();
    let dir = dir.path();
    assert_eq!(
        said(dir, 0, &["find", "s.db", "--no-base"]).lines().collect::<Vec<_>>(),
        ["/", "/dir", "/dir/file", "/dir/sub", "/dir/sub/made"]
    );
    assert_eq!(said(dir, 0, &["cat", "s.db", "/dir/file", "--no-base"]), "changed");
    assert_eq!(said(dir, 0, &["ls", "s.db", "/dir/sub", "--no-base"]), "made\n");
    assert!(said(dir, 0, &["tree", "s.db", "--no-base"]).contains("made"));
    said(dir, 0, &["du", "s.db", "--no-base"]);
    said(dir, 0, &["stat", "s.db", "/dir/file", "--no-base"]);
    let status = said(dir, 0, &["status", "s.db", "--no-base"]);
    assert!(status.contains("/base, not looked at\n"), "{status}");
    let diff = said(dir, 1, &["diff", "s.db", "--no-base", "--no-fold"]);
    for line in ["A /dir/file\n", "A /dir/sub/made\n", "D /dir/gone\n"] {
        assert!(diff.contains(line), "{diff}");
    }
    let only = said(dir, 1, &["diff", "s.db", "--no-base", "/dir/gone"]);
    assert_eq!(only, "D /dir/gone\n");
    assert!(status.contains(", 1 deleted\n"), "{status}");
    let gone = said(dir, 1, &["diff", "s.db", "--no-base", "--json", "/dir/gone"]);
    assert!(gone.contains(r#""change":"deleted""#) && !gone.contains("before"), "{gone}");
    let patch = failed_patch(dir);
    assert!(patch.contains("/dir/gone"), "what was deleted is not known: {patch}");
    said(dir, 0, &["export", "s.db", "--no-base", "--dir", "out"]);
    assert_eq!(fs::read_to_string(dir.join("out/dir/file")).unwrap(), "changed");
}

/// What a patch without the base says before it exits with 2.
#[track_caller]
fn failed_patch(dir: &Path) -> String {
    let output = run(dir, &["diff", "s.db", "--no-base", "--patch"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_error_offers_it() {
    let dir = orphan();
    for command in ["status", "ls", "tree", "find", "du", "diff"] {
        let said = failure(dir.path(), &[command, "s.db"]);
        assert!(said.contains("/base: ") && said.contains("with --no-base\n"), "{said}");
        assert!(said.contains("need --base DIR --moved, which records it"), "{said}");
    }
    let alone = |command: &[&str]| failure(dir.path(), &[command, &["s.db", "/dir"]].concat());
    for command in [&["discard"][..], &["rm", "-r"], &["apply"]] {
        let said = alone(command);
        assert!(said.ends_with("need --base DIR --moved, which records it\n"), "{said}");
    }
    let both = failure(dir.path(), &["ls", "s.db", "--no-base", "--base", "."]);
    assert!(both.contains("cannot be used with"), "{both}");
}
