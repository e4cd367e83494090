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
    assert!(diff.contains("A /dir/file\n") && diff.contains("A /dir/sub/made\n"), "{diff}");
    said(dir, 0, &["export", "s.db", "--no-base", "--dir", "out"]);
    assert_eq!(fs::read_to_string(dir.join("out/dir/file")).unwrap(), "changed");
}

#[test]
fn the_error_offers_it() {
    let dir = orphan();
    for command in ["status", "ls", "tree", "find", "du", "diff"] {
        let said = failure(dir.path(), &[command, "s.db"]);
        assert!(said.contains("/base: ") && said.contains("with --no-base\n"), "{said}");
    }
    let both = failure(dir.path(), &["ls", "s.db", "--no-base", "--base", "."]);
    assert!(both.contains("cannot be used with"), "{both}");
}
