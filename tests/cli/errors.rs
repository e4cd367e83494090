//! Each failure names what it is about, and says what to do.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use tempfile::tempdir;

use super::program::{Serving, acetate, failure, run, said};

/// Asserts that `args` fail with one `error:` line that has all of `parts`, and one `hint:`
/// line that has `hint`.
#[track_caller]
fn check(directory: &std::path::Path, args: &[&str], parts: &[&str], hint: &str) {
    let said = failure(directory, args);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].starts_with("error: "), "{said}");
    assert!(lines[1].starts_with("hint: "), "{said}");
    assert!(parts.iter().all(|part| lines[0].contains(part)), "{said}");
    assert!(lines[1].contains(hint), "{said}");
}

#[test]
fn errors_of_the_system_are_said_in_words() {
    let dir = tempdir().unwrap();
    fs::create_dir(dir.path().join("base")).unwrap();
    fs::write(dir.path().join("base/file"), "x").unwrap();
    assert!(run(dir.path(), &["init", "s.db", "--base", "base"]).status.success());
    let fails = |args: &[&str], what: &str| {
        let said = failure(dir.path(), args);
        assert_eq!(said.lines().next().unwrap(), what, "{args:?}: {said}");
    };
    if Path::new("/dev/full").exists() {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = acetate(dir.path(), &["ls", "s.db"]).stdout(full).output().unwrap();
        assert_eq!(said(&output, 2).1, "error: cannot print: No space left on device\n");
    }
    fails(&["cp", "s.db", "missing", ":/z"], "error: missing: No such file or directory");
    fails(&["cp", "s.db", ":file", "none/x"], "error: none/x: No such file or directory");
    let exports = "[[export]]\npath = \"/\"\n[[export.mount]]\nat = \"/\"\nsession = \"s.db\"\n\
                   [[export.guard]]\npath = \"/log\"\njsonl_schema = \"none.json\"\n";
    fs::write(dir.path().join("exports.toml"), exports).unwrap();
    let (found, _) = said(&run(dir.path(), &["config", "check", "exports.toml"]), 1);
    assert!(found.contains("none.json: cannot be read: No such file or directory\n"), "{found}");
    fs::rename(dir.path().join("base"), dir.path().join("moved")).unwrap();
    let said = failure(dir.path(), &["ls", "s.db"]);
    let first = said.lines().next().unwrap();
    assert!(first.ends_with(": cannot read the base: No such file or directory"), "{first}");
}

#[test]
fn init_never_overwrites() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    let parts = ["notes.txt", "file exists"];
    check(dir.path(), &["init", "notes.txt"], &parts, "another path");
    assert_eq!(fs::read_to_string(dir.path().join("notes.txt")).unwrap(), "mine");
    assert!(run(dir.path(), &["init", "s.db"]).status.success());
    let before = fs::read(dir.path().join("s.db")).unwrap();
    check(dir.path(), &["init", "s.db"], &["s.db", "file exists"], "another path");
    assert_eq!(fs::read(dir.path().join("s.db")).unwrap(), before);
}

#[test]
fn a_base_that_is_no_directory_leaves_no_session() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    for command in ["init", "serve"] {
        let args = |base| [command, "s.db", "--base", base];
        check(dir.path(), &args("none"), &["base none", "No such file"], "--base DIR");
        check(dir.path(), &args("file"), &["base file", "not a directory"], "--base DIR");
    }
    assert!(!dir.path().join("s.db").exists());
}

#[test]
fn a_recorded_base_that_is_gone_is_asked_for() {
    let dir = tempdir().unwrap();
    fs::create_dir(dir.path().join("old")).unwrap();
    assert!(run(dir.path(), &["init", "s.db", "--base", "old"]).status.success());
    fs::rename(dir.path().join("old"), dir.path().join("new")).unwrap();
    let args = ["serve", "s.db", "--listen", "127.0.0.1:0"];
    check(dir.path(), &args, &["/old"], "--base DIR");
}

#[test]
fn chunk_sizes_are_checked() {
    let dir = tempdir().unwrap();
    let args = ["init", "s.db", "--chunk-size", "1000"];
    check(dir.path(), &args, &["1000", "power of two"], "65536");
    assert!(run(dir.path(), &["init", "s.db", "--chunk-size", "4096"]).status.success());
    let args = ["serve", "s.db", "--listen", "127.0.0.1:0", "--chunk-size", "8192"];
    check(dir.path(), &args, &["s.db", "4096", "8192"], "--chunk-size");
}

#[test]
fn what_is_no_session_is_refused_untouched() {
    let dir = tempdir().unwrap();
    let text = "a text that is long enough for a header of one hundred bytes ".repeat(3);
    fs::write(dir.path().join("text.db"), &text).unwrap();
    let args = ["serve", "text.db", "--listen", "127.0.0.1:0"];
    check(dir.path(), &args, &["text.db", "not a SQLite database"], "session file");
    assert_eq!(fs::read_to_string(dir.path().join("text.db")).unwrap(), text);
    check(dir.path(), &["serve", "."], &["not a regular file"], "session file");
}

#[test]
fn a_port_in_use_is_named_and_leaves_no_session() {
    let dir = tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let args = ["serve", "s.db", "--listen", &address];
    check(dir.path(), &args, &[&address, "in use"], "--listen 127.0.0.1:");
    assert!(!dir.path().join("s.db").exists());
}

#[test]
fn a_session_in_use_is_refused() {
    let dir = tempdir().unwrap();
    let first = Serving::start(dir.path(), 1, &["s.db"]);
    let args = ["serve", "s.db", "--listen", "127.0.0.1:0"];
    check(dir.path(), &args, &["s.db", "in use"], "stop that server");
    first.signal("TERM");
    assert!(first.end().0.success());
}

#[test]
fn wrong_usage_says_nothing_that_steers_the_terminal() {
    let dir = tempdir().unwrap();
    let evil = "x\u{1b}]0;evil\u{7}\u{202e}y";
    let option = format!("--{evil}");
    for args in [
        &["log", "s.db", "--since", evil][..],
        &["serve", "s.db", "--listen", evil],
        &["diff", "s.db", "-U", evil],
        &["diff", "s.db", &option],
        &[evil],
    ] {
        let said = failure(dir.path(), args);
        assert!(said.contains("x\\u{1b}]0;evil\\u{7}\\u{202e}y"), "{args:?}: {said}");
        let is_raw = |c: &char| c.is_control() && *c != '\n' || *c == '\u{202e}';
        assert_eq!(said.chars().find(is_raw), None, "{args:?}: {said}");
    }
}
