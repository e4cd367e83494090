//! What completes a command line, in the shells themselves.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::{TempDir, tempdir};

use super::program::{acetate, run};
use crate::support::skip::skip;

/// A session with what there is to complete.
fn place() -> TempDir {
    let dir = tempdir().unwrap();
    fs::create_dir_all(dir.path().join("base/docs/deep")).unwrap();
    fs::create_dir_all(dir.path().join("base/gone/sub")).unwrap();
    for file in [
        "docs/one",
        "docs/two words",
        "docs/only",
        ".hidden",
        "gone/in",
        "gone/out",
        "gone/sub/far",
        "was",
    ] {
        fs::write(dir.path().join("base").join(file), file).unwrap();
    }
    fs::write(dir.path().join("notes.txt"), "no session").unwrap();
    for args in [
        &["init", "work.db", "--base", "base"][..],
        &["rm", "work.db", "/docs/only"],
        &["mv", "work.db", "/gone/out", "/docs/deep/out"],
        &["rm", "-r", "work.db", "/gone"],
        &["mv", "work.db", "/was", "/is"],
        &["mkdir", "work.db", "/made"],
        &["kv", "set", "work.db", "colour", "1"],
        &["kv", "set", "work.db", "count", "1"],
        &["tool", "record", "work.db", "edit", "--result", "1"],
    ] {
        assert!(run(dir.path(), args).status.success(), "{args:?}");
    }
    dir
}

/// What bash puts in place of the last word of a line.
fn bash(dir: &Path, words: &[&str]) -> Vec<String> {
    let script = r#"
        source <("$ACETATE" completions bash) || exit
        COMP_WORDS=(acetate "$@") COMP_CWORD=$# COMP_TYPE=9
        _clap_complete_acetate acetate "${!#}" "${COMP_WORDS[COMP_CWORD-1]}" 2>/dev/null
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", script, "bash"]).args(words).current_dir(dir);
    let output = command.env("ACETATE", env!("CARGO_BIN_EXE_acetate")).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    said.split(['\n', '\u{b}']).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_sessions_paths_keys_and_tools() {
    let dir = place();
    let dir = dir.path();
    for (words, expected) in [
        (&["disc"][..], &["discard"][..]),
        (&["diff", "--no-f"], &["--no-fold"]),
        (&["help", "dis"], &["discard"]),
        (&["help", "log", "p"], &["prune"]),
        (&["help", "kv", "se"], &["set"]),
        (&["diff", "wo"], &["work.db"]),
        (&["diff", "n"], &[]),
        (&["diff", "work.db", "/"], &["/.hidden", "/docs/", "/gone/", "/is", "/made/"]),
        (
            &["diff", "work.db", "/docs/"],
            &["/docs/deep/", "/docs/one", "/docs/only", "/docs/two\\ words"],
        ),
        (&["discard", "work.db", "/docs/on"], &["/docs/one", "/docs/only"]),
        (&["apply", "work.db", "docs/onl"], &["docs/only"]),
        (&["diff", "work.db", "/g"], &["/gone/"]),
        (&["diff", "work.db", "/gone/"], &["/gone/in", "/gone/sub/"]),
        (&["log", "work.db", "gone/i"], &["gone/in"]),
        (&["apply", "work.db", "/gone/sub/"], &["/gone/sub/far"]),
        (&["discard", "work.db", "/gone/sub/f"], &["/gone/sub/far"]),
        (&["ls", "work.db", "/gone/"], &[]),
        (&["ls", "work.db", "/docs/on"], &["/docs/one"]),
        (&["cat", "work.db", "docs/two\\ w"], &["docs/two\\ words"]),
        (&["ls", "work.db", "/none/"], &[]),
        (&["cp", "work.db", ":/do"], &[":/docs/"]),
        (&["cp", "work.db", ":", "/do"], &["/docs/"]),
        (&["cp", "work.db", "not"], &["notes.txt"]),
        (&["kv", "get", "work.db", "co"], &["colour", "count"]),
        (&["tool", "ls", "work.db", "--name", ""], &["edit"]),
    ] {
        assert_eq!(bash(dir, words), expected, "{words:?}");
    }
    // No session, or what is none: no answer, and nothing is made.
    assert!(bash(dir, &["ls", "none.db", "/"]).is_empty());
    assert!(bash(dir, &["ls", "notes.txt", "/"]).is_empty());
    assert!(!dir.join("none.db").exists());
}

#[test]
fn bash_completes_values_of_options() {
    let dir = place();
    let dir = dir.path();
    for (words, expected) in [
        (&["apply", "work.db", "--take", ""][..], &["base", "session"][..]),
        (&["apply", "work.db", "--take", "s"], &["session"]),
        (&["apply", "work.db", "--take", "base", "/do"], &["/docs/"]),
        // bash takes `=` for a word of its own, and none for the one that begins behind it.
        (&["apply", "work.db", "--take", "=", "s"], &["session"]),
        (&["apply", "work.db", "--take", "=", "base", "/do"], &["/docs/"]),
        (&["log", "work.db", "--op", "re"], &["remove", "rename", "refuse", "restore"]),
        (&["log", "work.db", "--op", "REN"], &["RENAME"]),
        (&["log", "work.db", "--op", "write,ren"], &["write,rename"]),
    ] {
        assert_eq!(bash(dir, words), expected, "{words:?}");
    }
    let ids = hunk_ids(dir);
    for command in ["apply", "discard"] {
        let mut found = bash(dir, &[command, "work.db", "--hunk", ""]);
        found.sort();
        assert_eq!(found, ids, "{command}");
        assert_eq!(bash(dir, &[command, "work.db", "--hunk", &ids[0][..8]]), ids[..1], "{command}");
    }
}

/// The ids of all hunks, in the order of the ids.
fn hunk_ids(dir: &Path) -> Vec<String> {
    let output = run(dir, &["diff", "work.db", "--json", "--hunks"]);
    let said = String::from_utf8(output.stdout).unwrap();
    let objects = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut ids: Vec<_> = objects.map(|hunk| hunk["id"].as_str().unwrap().to_owned()).collect();
    assert!(ids.len() > 1, "{said}");
    ids.sort();
    ids
}

/// An agent may have given files names that a shell would run.
#[test]
fn names_of_this_machine_are_escaped() {
    let dir = place();
    let dir = dir.path();
    let name = "run$(touch RUN)`touch RUN`.db";
    std::fs::copy(dir.join("work.db"), dir.join(name)).unwrap();
    std::fs::create_dir(dir.join("dir$(touch RUN)")).unwrap();
    let found = bash(dir, &["diff", "run"]);
    assert_eq!(found.len(), 1, "{found:?}");
    for word in [&found[0], &bash(dir, &["cp", "work.db", "run"])[0]] {
        assert_eq!(word.replace('\\', ""), name);
        assert!(word.contains("\\$\\(touch\\ RUN\\)\\`"), "{word}");
    }
    let dirs = bash(dir, &["diff", "--base", "dir"]);
    assert!(dirs[0].contains("\\$\\(touch"), "{dirs:?}");
    // The protocol has a line for each name.
    std::fs::copy(dir.join("work.db"), dir.join("two\nlines.db")).unwrap();
    assert_eq!(bash(dir, &["diff", "two"]), [""; 0]);
}

#[test]
fn relative_paths_begin_at_the_current_directory() {
    let dir = place();
    let docs = dir.path().join("base/docs");
    let session = dir.path().join("work.db");
    let session = session.to_str().unwrap();
    assert_eq!(bash(&docs, &["diff", session, "o"]), ["one", "only"]);
    assert_eq!(bash(&docs, &["ls", session, "o"]), ["one"]);
    assert_eq!(bash(&docs, &["ls", session, "../do"]), ["../docs/"]);
}

/// zsh and fish show what a candidate is.
#[test]
fn hunks_are_completed_with_their_paths() {
    let dir = place();
    let dir = dir.path();
    let ids = hunk_ids(dir);
    let mut asked = acetate(dir, &["--", "acetate", "apply", "work.db", "--hunk", &ids[0]]);
    asked.env("ACETATE_COMPLETE", "zsh").env("_CLAP_COMPLETE_INDEX", "4").stdin(Stdio::null());
    let said = String::from_utf8(asked.output().unwrap().stdout).unwrap();
    let path = said.strip_prefix(&format!("{}:", ids[0])).unwrap();
    assert!(["/docs/deep/out", "/docs/only", "/made", "/gone", "/is"].contains(&path), "{said}");
    let mut asked = acetate(dir, &["--", "acetate", "apply", "work.db", "--take="]);
    asked.env("ACETATE_COMPLETE", "zsh").env("_CLAP_COMPLETE_INDEX", "3").stdin(Stdio::null());
    let said = String::from_utf8(asked.output().unwrap().stdout).unwrap();
    assert_eq!(said, "--take=base\n--take=session");
    let joined = ["apply", "work.db", "--dry-run", "--take=session", "/docs/only", "/docs/only"];
    assert!(run(dir, &joined).status.success(), "{joined:?}");
    if is_there("fish") {
        for (line, expected) in
            [("apply work.db --take b", "base\n"), ("log work.db --op writ", "write\n")]
                .into_iter()
                .chain([("help dis", "discard\n")])
        {
            let script =
                format!("$ACETATE completions fish | source; complete -C 'acetate {line}'");
            assert_eq!(fish(dir, &script), expected, "{line}");
        }
    }
}

fn fish(dir: &Path, script: &str) -> String {
    let mut fish = Command::new("fish");
    fish.args(["--no-config", "-c", script]).current_dir(dir).env("HOME", dir);
    let output = fish.env("ACETATE", env!("CARGO_BIN_EXE_acetate")).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Whether there is such a shell; one that is not is named.
fn is_there(shell: &str) -> bool {
    let found = Command::new(shell).args(["-c", "true"]).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        skip(&format!("no {shell} here"));
    }
    is_there
}

#[test]
fn fish_completes_paths() {
    if !is_there("fish") {
        return;
    }
    let dir = place();
    let script = "$ACETATE completions fish | source; complete -C \"acetate diff work.db /docs/\"";
    let paths = "/docs/deep/\n/docs/one\n/docs/only\n/docs/two words\n";
    assert_eq!(fish(dir.path(), script), paths);
}

#[test]
fn zsh_reads_the_script_and_is_answered() {
    if !is_there("zsh") {
        return;
    }
    let dir = place();
    let script = "autoload -Uz compinit; compinit -D; source <($ACETATE completions zsh)
        whence -w _clap_dynamic_completer_acetate";
    let mut zsh = Command::new("zsh");
    zsh.args(["-f", "-c", script]).current_dir(dir.path());
    let output = zsh.env("ACETATE", env!("CARGO_BIN_EXE_acetate")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("function"), "{output:?}");
    // What its function asks.
    let mut asked = acetate(dir.path(), &["--", "acetate", "diff", "work.db", "/docs/"]);
    asked.env("ACETATE_COMPLETE", "zsh").env("_CLAP_COMPLETE_INDEX", "3").stdin(Stdio::null());
    let output = asked.output().unwrap();
    assert_eq!(output.stdout, b"/docs/deep/\n/docs/one\n/docs/only\n/docs/two words");
}

#[test]
fn a_large_directory_is_cut_and_answered_at_once() {
    let dir = tempdir().unwrap();
    let base = dir.path().join("base");
    fs::create_dir(&base).unwrap();
    for number in 0..20_000 {
        fs::write(base.join(format!("f{number}")), "").unwrap();
    }
    assert!(run(dir.path(), &["init", "s.db", "--base", "base"]).status.success());
    let ask = |word: &str| {
        let mut asked = acetate(dir.path(), &["--", "acetate", "ls", "s.db", word]);
        asked.env("ACETATE_COMPLETE", "zsh").env("_CLAP_COMPLETE_INDEX", "3");
        let output = asked.output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    assert_eq!(ask("/"), 1000);
    assert_eq!(ask("/f1999"), 11);
}
