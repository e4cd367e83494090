//! `acetate diff` where the base changed too: originals that are not known, files that both sides
//! added, and what was removed with its directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tempfile::{TempDir, tempdir};

use super::program::{acetate, run};
use crate::support::git::{git, git_output};
use crate::support::world::{Setup, World};
use acetate::overlay::CopyLimits;

/// What `diff` prints to stdout and to stderr, with the exit code.
fn told(dir: &Path, args: &[&str]) -> (String, String, Option<i32>) {
    let output = run(dir, &[&["diff", "session.db"], args].concat());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

/// A session without originals: of three files that it changed, the base changed one, and of two
/// that it removed another one.
fn without_originals() -> World {
    let files = ["drifted", "kept", "gone", "gone2"];
    let base: String = files.iter().map(|name| format!("{name} \"1\\n2\\n\"\n")).collect();
    let copy_up = CopyLimits::keeping_originals(Some(0));
    let mut world = World::with(Setup { base: Some(base), copy_up, ..Setup::default() });
    world.put("drifted", "1\n2\n3\n");
    world.put("kept", "1\n2\n3\n");
    world.remove("gone").unwrap();
    world.remove("gone2").unwrap();
    world.keep_removed();
    let base = world.change_base();
    fs::write(base.join("drifted"), "person\n").unwrap();
    fs::write(base.join("gone"), "person\n").unwrap();
    world.close();
    world
}

#[test]
fn a_file_whose_original_is_not_known_is_in_no_count_without_a_word() {
    let world = without_originals();
    let warnings = "warning: not counted: /drifted: what the base had when it was changed is not \
                    known\n\
                    warning: not counted: /gone: the base changed it since the session deleted it, \
                    and the content of deleted files is not kept\n";
    let warnings = warnings.to_owned();
    let told = |form| told(world.scratch(), &[form]);
    let (stat, said, code) = told("--stat");
    assert_eq!((said.as_str(), code), (warnings.as_str(), Some(2)));
    let lines: Vec<_> = stat.lines().collect();
    assert_eq!(lines[0], "M /drifted | lines not known, changed in the base too");
    assert_eq!(lines[1], "D /gone    | lines not known, changed in the base too");
    assert_eq!(*lines.last().unwrap(), " 4 files changed, 1 insertion(+), 2 deletions(-)");
    let numstat = "?\t?\t/drifted\n?\t?\t/gone\n0\t2\t/gone2\n1\t0\t/kept\n";
    assert_eq!(told("--numstat"), (numstat.to_owned(), warnings.clone(), Some(2)));
    let shortstat = " 4 files changed, 1 insertion(+), 2 deletions(-)\n";
    assert_eq!(told("--shortstat"), (shortstat.to_owned(), warnings, Some(2)));
    // Forms without counts miss nothing.
    assert_eq!((told("--name-only").1.as_str(), told("--name-only").2), ("", Some(1)));
}

/// What a command prints; it ends with 0.
#[track_caller]
fn done(dir: &Path, args: &[&str]) {
    let output = run(dir, args);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

fn write(dir: &Path, path: &str, content: &str) {
    use std::io::Write;
    let mut command = acetate(dir, &["write", "session.db", path]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(content.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// A repository as base, in which both sides then add files.
fn added_on_both_sides() -> TempDir {
    let dir = tempdir().unwrap();
    let base = dir.path().join("base");
    fs::create_dir(&base).unwrap();
    fs::write(base.join("file"), "file\n").unwrap();
    git(&base, &["init", "-q"]);
    git(&base, &["add", "."]);
    git(&base, &["commit", "-qm", "first"]);
    done(dir.path(), &["init", "session.db", "--base", "base"]);
    write(dir.path(), "text", "agent\nshared\n");
    write(dir.path(), "other", "agent\n");
    done(dir.path(), &["ln", "-s", "session.db", "agent", "link"]);
    // The times of the base have steps of a few milliseconds.
    std::thread::sleep(Duration::from_millis(50));
    fs::write(base.join("text"), "person\nshared\n").unwrap();
    symlink("person", base.join("link")).unwrap();
    dir
}

#[test]
fn a_file_that_both_sides_added_is_a_new_file_in_the_patch() {
    let dir = added_on_both_sides();
    let base = dir.path().join("base");
    let (patch, said, code) = told(dir.path(), &["-p"]);
    assert_eq!((said.as_str(), code), ("", Some(1)));
    for (path, mode, line) in
        [("link", "120000", "agent"), ("other", "100644", "agent"), ("text", "100644", "agent")]
    {
        let head = format!("diff --git a/{path} b/{path}\nnew file mode {mode}\n");
        assert!(patch.contains(&head), "{patch}");
        assert!(patch.contains(&format!("--- /dev/null\n+++ b/{path}\n")), "{patch}");
        assert!(patch.contains(&format!("+{line}\n")), "{patch}");
    }
    let numstat = "1\t0\t/link\n1\t0\t/other\n2\t0\t/text\n";
    assert_eq!(told(dir.path(), &["--numstat"]), (numstat.to_owned(), String::new(), Some(1)));
    // git merges it as two branches that added the file.
    fs::remove_file(base.join("link")).unwrap();
    fs::write(dir.path().join("patch"), &patch).unwrap();
    git(&base, &["add", "."]);
    git(&base, &["commit", "-qm", "person"]);
    let applied = git_output(&base, &["apply", "-3", "../patch"]);
    let said = String::from_utf8([applied.stdout, applied.stderr].concat()).unwrap();
    assert!(said.contains("Applied patch to 'text' with conflicts"), "{said}");
    assert_eq!(fs::read_to_string(base.join("other")).unwrap(), "agent\n");
    let merged = fs::read_to_string(base.join("text")).unwrap();
    assert!(
        merged.contains("person\n=======\nagent\n") && merged.ends_with("shared\n"),
        "{merged}"
    );
}

/// The name was free: only git can say what is to become of the two files.
#[test]
fn a_file_that_was_renamed_to_a_name_that_the_base_then_took_is_a_new_file_there() {
    let dir = added_on_both_sides();
    done(dir.path(), &["mv", "session.db", "file", "taken"]);
    std::thread::sleep(Duration::from_millis(50));
    fs::write(dir.path().join("base/taken"), "person\n").unwrap();
    let (patch, said, code) = told(dir.path(), &["-p", "file", "taken"]);
    assert_eq!((said.as_str(), code), ("", Some(1)));
    let gone = "diff --git a/file b/file\ndeleted file mode 100644\n";
    let new = "diff --git a/taken b/taken\nnew file mode 100644\n";
    assert!(patch.contains(gone) && patch.contains(new), "{patch}");
    assert!(patch.ends_with("@@ -0,0 +1 @@\n+file\n"), "{patch}");
    assert_eq!(told(dir.path(), &["--numstat", "taken"]).2, Some(1));
}

#[test]
fn a_file_that_replaced_another_is_no_new_file() {
    let dir = tempdir().unwrap();
    let base = dir.path().join("base");
    fs::create_dir(&base).unwrap();
    fs::write(base.join("from"), "from\n").unwrap();
    fs::write(base.join("to"), "to\n").unwrap();
    done(dir.path(), &["init", "session.db", "--base", "base"]);
    done(dir.path(), &["mv", "session.db", "from", "to"]);
    std::thread::sleep(Duration::from_millis(50));
    fs::write(base.join("to"), "person\n").unwrap();
    let (patch, said, code) = told(dir.path(), &["-p"]);
    assert_eq!((said.as_str(), code), ("", Some(1)));
    assert!(patch.ends_with("--- a/to\n+++ b/to\n@@ -1 +1 @@\n-to\n+from\n"), "{patch}");
}

#[test]
fn files_of_a_removed_directory_that_the_base_changed_are_marked_each() {
    let dir = tempdir().unwrap();
    let inner = dir.path().join("base/src/process");
    fs::create_dir_all(inner.join("deep")).unwrap();
    for file in ["a", "b", "deep/c", "deep/d"] {
        fs::write(inner.join(file), "1\n").unwrap();
    }
    done(dir.path(), &["init", "session.db", "--base", "base"]);
    done(dir.path(), &["rm", "session.db", "-r", "src/process"]);
    fs::write(inner.join("a"), "person\n").unwrap();
    fs::write(inner.join("deep/d"), "person\n").unwrap();
    let (said, ..) = told(dir.path(), &["src/process"]);
    let mark = " (changed in the base too)";
    let lines = [
        format!("D /src/process/{mark}"),
        format!("D /src/process/a{mark}"),
        "D /src/process/b".to_owned(),
        format!("D /src/process/deep/{mark}"),
        "D /src/process/deep/c".to_owned(),
        format!("D /src/process/deep/d{mark}"),
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), lines);
    let (said, ..) = told(dir.path(), &["--json", "src/process"]);
    let drifted = said.lines().filter(|line| line.contains("\"drifted\":true"));
    assert_eq!(drifted.count(), 4, "{said}");
}

#[test]
fn letters_and_paths_have_no_remarks() {
    let dir = added_on_both_sides();
    let base = dir.path().join("base");
    fs::write(base.join("old\tname"), "old\n").unwrap();
    done(dir.path(), &["mv", "session.db", "old\tname", "new name"]);
    done(dir.path(), &["chmod", "session.db", "600", "file"]);
    let lines = ["M\t/file", "M\t/link", "R\t\"/old\\tname\"\t/new name", "A\t/other", "M\t/text"];
    let (said, ..) = told(dir.path(), &["--name-status"]);
    assert_eq!(said.lines().collect::<Vec<_>>(), lines);
    let (said, ..) = told(dir.path(), &["--name-status", "--color=always"]);
    assert_eq!(said.lines().collect::<Vec<_>>(), lines);
}
