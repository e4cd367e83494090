//! `acetate apply` to a git repository in which both sides commit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::{TempDir, tempdir};

use super::program::{acetate, run, said};
use crate::support::git::git;

fn state(base: &Path) -> [String; 3] {
    let read = |args: &[&str]| git(base, args);
    [read(&["log", "--oneline", "--all"]), read(&["branch"]), read(&["status", "--short"])]
}

/// A repository with a session, in which the agent committed on `branch`, and a person on main.
fn committed(branch: &str) -> (TempDir, PathBuf) {
    let dir = tempdir().unwrap();
    let base = dir.path().join("base");
    fs::create_dir(&base).unwrap();
    git(&base, &["init", "-q", "-b", "main"]);
    fs::write(base.join("file"), "1\n2\n").unwrap();
    fs::write(base.join("other"), "other\n").unwrap();
    git(&base, &["add", "."]);
    git(&base, &["commit", "-qm", "first"]);
    let agent = dir.path().join("agent");
    assert!(Command::new("cp").arg("-a").args([&base, &agent]).status().unwrap().success());
    said(&run(dir.path(), &["init", "s.db", "--base", "base"]), 0);
    git(&agent, &["checkout", "-q", "-B", branch]);
    fs::write(agent.join("file"), "agent\n2\n").unwrap();
    git(&agent, &["commit", "-qam", "the agent's"]);
    said(&run(dir.path(), &["cp", "-r", "s.db", "agent/.git", ":/"]), 0);
    let mut write = acetate(dir.path(), &["write", "s.db", "file"]);
    write.stdin(Stdio::from(fs::File::open(agent.join("file")).unwrap()));
    assert!(write.status().unwrap().success());
    // The times of the base have steps of a few milliseconds.
    std::thread::sleep(Duration::from_millis(50));
    fs::write(base.join("other"), "person\n").unwrap();
    git(&base, &["commit", "-qam", "the person's"]);
    (dir, base)
}

#[test]
fn gits_own_files_are_not_merged_and_go_whole_or_not_at_all() {
    for branch in ["main", "agent"] {
        let (dir, base) = committed(branch);
        let before = state(&base);
        let (out, err) = said(&run(dir.path(), &["apply", "s.db", "--yes"]), 1);
        let why = "! /.git/index: the base changed it too, and git's own files are not merged\n";
        assert!(out.contains(why), "{out}");
        assert!(err.contains("':!.git' leaves git's own files out"), "{err}");
        assert!(!err.contains("--conflict-markers"), "{err}");
        let args = ["apply", "s.db", "--yes", "--skip-drifted", "--conflict-markers"];
        let (out, err) = said(&run(dir.path(), &args), 1);
        assert!(!out.contains("& /.git"), "{out}");
        let rest = "- /.git: all of it but its objects is left out, because the base changed it";
        assert_eq!(out.matches(rest).count(), 1, "{out}");
        assert!(!out.contains("- /.git/") && !out.contains("skipped /.git/HEAD"), "{out}{err}");
        let [log, branches, status] = state(&base);
        assert_eq!([&log, &branches], [&before[0], &before[1]]);
        assert_eq!(status, " M file\n");
        assert_eq!(fs::read_to_string(base.join("file")).unwrap(), "agent\n2\n");
        git(&base, &["fsck"]);
    }
}

#[test]
fn gits_own_files_are_left_to_the_base_together() {
    let (dir, base) = committed("agent");
    let before = state(&base);
    let args = ["apply", "s.db", "--yes", "--take", "base", "/.git/index"];
    let (_, err) = said(&run(dir.path(), &args), 2);
    assert!(err.contains("hint: name the git directory itself with --take base"), "{err}");
    let args = ["apply", "s.db", "--yes", "--take", "base", "/.git"];
    let (out, err) = said(&run(dir.path(), &args), 1);
    let rest = "- /.git: all of it but its objects and new branches stays as the base has it, and \
                the session gives up its own\n";
    assert!(out.contains(rest), "{out}");
    assert!(out.contains("- /.git/refs/heads/agent: new, but the rest of /.git stays"), "{out}");
    assert!(err.contains("\n/.git/HEAD\n") && !err.contains("\n/.git/refs"), "{err}");
    let [log, branches, status] = state(&base);
    assert_eq!([log, branches, status], [before[0].as_str(), &before[1], " M file\n"]);
    // The branch is in the session alone, and goes to the base beside what that has.
    let (out, _) = said(&run(dir.path(), &["apply", "s.db", "--yes", "--all"]), 0);
    assert!(!out.contains("! "), "{out}");
    assert_eq!(state(&base)[1], "  agent\n* main\n");
    git(&base, &["fsck"]);
    assert_eq!(git(&base, &["log", "-1", "--format=%s", "agent"]), "the agent's\n");
    let (out, _) = said(&run(dir.path(), &["apply", "s.db", "--yes"]), 0);
    assert!(out.starts_with("nothing to apply"), "{out}");
}

#[test]
fn the_branch_that_both_changed_is_left_to_the_base() {
    let (dir, base) = committed("main");
    let before = state(&base);
    said(&run(dir.path(), &["apply", "s.db", "--yes", "--take", "base", "/.git"]), 0);
    let [log, branches, status] = state(&base);
    assert_eq!([log, branches, status], [before[0].as_str(), &before[1], " M file\n"]);
    let (out, _) = said(&run(dir.path(), &["apply", "s.db", "--yes"]), 0);
    assert!(out.starts_with("nothing to apply"), "{out}");
}

#[test]
fn gits_own_files_are_one_line_of_an_undo_too() {
    let (dir, _base) = committed("agent");
    let lines = |args: &[&str]| {
        let out = String::from_utf8(run(dir.path(), args).stdout).unwrap();
        let in_git = |line: &&str| line.contains("/.git") && line.starts_with(['A', 'D', 'M']);
        out.lines().filter(in_git).map(str::to_owned).collect::<Vec<_>>()
    };
    said(&run(dir.path(), &["apply", "s.db", "--yes", "--force"]), 0);
    let folded = lines(&["apply", "s.db", "--undo", "-n"]);
    assert_eq!(folded.len(), 1, "{folded:?}");
    assert!(folded[0].starts_with("M /.git/ ("), "{folded:?}");
    assert!(folded[0].ends_with(" files of git's own)"), "{folded:?}");
    let all = lines(&["apply", "s.db", "--undo", "-n", "--all"]);
    assert!(all.len() > 5 && all.contains(&"M /.git/index".to_owned()), "{all:?}");
}
