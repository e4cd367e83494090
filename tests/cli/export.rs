//! `acetate export`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::{TempDir, tempdir};

use super::program::{Serving, acetate, failure, run};
use crate::support::skip::skip;

/// A directory with a base and a session over it.
fn place() -> TempDir {
    let dir = tempdir().unwrap();
    fs::create_dir(dir.path().join("base")).unwrap();
    fs::write(dir.path().join("base/file"), "content").unwrap();
    assert!(run(dir.path(), &["init", "s.db", "--base", "base"]).status.success());
    dir
}

#[test]
fn an_archive_to_a_file_or_to_stdout() {
    let dir = place();
    let output = run(dir.path(), &["export", "s.db", "--tar", "out.tar"]);
    assert!(output.status.success());
    assert!(output.stderr.is_empty(), "no progress without a terminal");
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, "s.db: 2 objects, 7 B, written to out.tar\n");
    let output = run(dir.path(), &["export", "s.db", "--tar", "-"]);
    assert!(output.status.success());
    assert_eq!(output.stdout, fs::read(dir.path().join("out.tar")).unwrap());
    let said = failure(dir.path(), &["export", "s.db", "--tar", "out.tar"]);
    assert!(said.contains("error: out.tar: file exists") && said.contains("--force"), "{said}");
    assert!(run(dir.path(), &["export", "s.db", "--tar", "out.tar", "--force"]).status.success());
    let mut names: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["base", "out.tar", "s.db"], "nothing is left beside it");
}

/// What an archive takes, in bytes, without its two blocks at the end and the padding to 10 KiB.
#[test]
fn small_files_have_one_header_each_unless_times_are_to_be_exact() {
    let dir = place();
    for number in 0..200 {
        fs::write(dir.path().join(format!("base/{number}")), "small").unwrap();
    }
    let bytes = |args: &[&str]| {
        let output = run(dir.path(), &[&["export", "s.db", "--tar", "-"], args].concat());
        assert!(output.status.success());
        output.stdout.len() / 512
    };
    // A header and a block of content, and a header for the directory.
    assert!((403..=403 + 40).contains(&bytes(&[])), "{}", bytes(&[]));
    assert!(bytes(&["--exact-times"]) > 800, "{}", bytes(&["--exact-times"]));
}

#[test]
fn an_archive_is_its_owners_alone() {
    let dir = place();
    let archive = dir.path().join("out.tar");
    fs::write(&archive, "old").unwrap();
    fs::set_permissions(&archive, Permissions::from_mode(0o666)).unwrap();
    assert!(run(dir.path(), &["export", "s.db", "--tar", "out.tar", "--force"]).status.success());
    assert_eq!(fs::metadata(&archive).unwrap().permissions().mode() & 0o7777, 0o600);
}

#[test]
fn a_directory_while_the_session_is_served() {
    let dir = place();
    let server = Serving::start(dir.path(), 1, &["s.db"]);
    let output = run(dir.path(), &["export", "s.db", "--dir", "out", "--json"]);
    assert!(output.status.success());
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&object["v"], &object["type"]), (&1.into(), &"export".into()));
    assert_eq!((&object["files"], &object["bytes"]), (&1.into(), &7.into()));
    assert_eq!(fs::read_to_string(dir.path().join("out/file")).unwrap(), "content");
    server.signal("TERM");
    assert!(server.end().0.success());
    let said = failure(dir.path(), &["export", "s.db", "--dir", "out"]);
    assert!(said.contains("error: out: not an empty directory"), "{said}");
}

#[test]
fn what_cannot_be_is_said() {
    let dir = place();
    let said = failure(dir.path(), &["export", "s.db"]);
    assert!(said.contains("<--tar <FILE>|--dir <DIR>>"), "{said}");
    let said = failure(dir.path(), &["export", "s.db", "--tar", "-", "--json"]);
    assert!(said.contains("both go to stdout"), "{said}");
    let said = failure(dir.path(), &["export", "s.db", "--tar", "base/out.tar"]);
    assert!(said.contains("in the base"), "{said}");
    let said = failure(dir.path(), &["export", "s.db", "--tar", "none/out.tar"]);
    assert!(said.contains("none/out.tar: No such file or directory"), "{said}");
    let said = failure(dir.path(), &["export", "s.db", "--tar", "s.db", "--force"]);
    assert!(said.contains("a file of the session"), "{said}");
    if std::path::Path::new("/dev/full").exists() {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = acetate(dir.path(), &["export", "s.db", "--tar", "-"]);
        let output = command.stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("No space left on device"), "{said}");
    }
}

#[test]
fn a_terminal_gets_no_archive() {
    let dir = place();
    // `script` gives the program a terminal.
    let program = env!("CARGO_BIN_EXE_acetate");
    let mut script = Command::new("script");
    let line = format!("{program} export s.db --tar -");
    script.args(["-qec", &line, "/dev/null"]).current_dir(dir.path());
    let Ok(output) = script.stdin(Stdio::null()).output() else {
        return skip("no script(1) here");
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("refusing to write an archive to a terminal"), "{said}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn killed_it_leaves_no_half_archive_under_the_name() {
    let dir = place();
    fs::write(dir.path().join("base/large"), vec![7; 64 << 20]).unwrap();
    let mut was_killed = 0;
    for delay in [5, 20, 60, 120] {
        let mut command = acetate(dir.path(), &["export", "s.db", "--tar", "out.tar", "--force"]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        child.kill().unwrap();
        let killed = !child.wait().unwrap().success();
        was_killed += usize::from(killed);
        if killed {
            let whole = fs::metadata(dir.path().join("out.tar")).map(|meta| meta.len());
            assert!(whole.is_err() || whole.unwrap() > 64 << 20);
        }
    }
    assert!(was_killed > 0, "it was never killed");
}
