//! A person who edits, moves and removes in the base what the session changed, and has it again
//! later, as with another branch and back.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tempfile::{TempDir, tempdir};

use super::program::{acetate, run};

/// A base with some files, and a session over it.
struct Loop(TempDir);

impl Loop {
    fn new() -> Self {
        let dir = tempdir().unwrap();
        fs::create_dir_all(dir.path().join("b/d/inner")).unwrap();
        for (name, text) in [("d/f", "1\n2\n3\n"), ("d/inner/g", "g\n"), ("x", "x\n"), ("y", "y\n")]
        {
            fs::write(dir.path().join("b").join(name), text).unwrap();
        }
        let made = Self(dir);
        made.done(&["init", "s.db", "--base", "b"]);
        made
    }

    fn dir(&self) -> &Path {
        self.0.path()
    }

    fn base(&self, name: &str) -> std::path::PathBuf {
        self.dir().join("b").join(name)
    }

    /// What it says on stdout and stderr; it must not fail.
    fn said(&self, args: &[&str], code: i32) -> String {
        let output = run(self.dir(), args);
        let said = [&output.stdout[..], &output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        said
    }

    fn done(&self, args: &[&str]) -> String {
        self.said(args, 0)
    }

    /// Writes a file of the session.
    fn write(&self, path: &str, text: &str) {
        let mut command = acetate(self.dir(), &["write", "s.db", path]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// Writes a file of the session, as an editor does: beside it, and renamed over it.
    fn save(&self, path: &str, text: &str) {
        self.write("/new", text);
        self.done(&["mv", "s.db", "new", path]);
    }
}

#[test]
fn what_was_moved_stays_moved_while_the_base_is_without_it() {
    for settle in
        [&["discard", "s.db", "--yes", "y"][..], &["apply", "s.db", "--yes", "--skip-drifted"]]
    {
        let world = Loop::new();
        world.done(&["mv", "s.db", "d", "moved"]);
        world.done(&["rm", "s.db", "x"]);
        world.done(&["chmod", "s.db", "600", "y"]);
        std::thread::sleep(Duration::from_millis(300));
        fs::rename(world.base("d"), world.dir().join("away")).unwrap();
        run(world.dir(), settle);
        let check = run(world.dir(), &["check", "s.db"]);
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
        fs::rename(world.dir().join("away"), world.base("d")).unwrap();
        assert!(!world.done(&["ls", "s.db", "/"]).lines().any(|line| line.ends_with(" d")));
        assert!(world.done(&["check", "s.db"]).contains("sound"));
    }
}

#[test]
fn a_file_that_was_saved_by_rename_and_is_gone_in_the_base_is_drift() {
    let world = Loop::new();
    world.save("y", "agent\n");
    fs::remove_file(world.base("y")).unwrap();
    let plan = world.said(&["apply", "s.db", "-n"], 1);
    assert!(plan.contains("! /y: was removed in the base"), "{plan}");
    let diff = world.said(&["diff", "s.db"], 1);
    assert!(diff.contains("M /y"), "{diff}");
    world.said(&["apply", "s.db", "--yes"], 1);
    assert!(!world.base("y").exists());
}

#[test]
fn another_text_at_a_further_name_in_a_copy_is_drift() {
    let world = Loop::new();
    fs::hard_link(world.base("y"), world.base("z")).unwrap();
    world.write("/y", "agent\n");
    fs::create_dir_all(world.dir().join("copy")).unwrap();
    for name in ["x", "y"] {
        fs::copy(world.base(name), world.dir().join("copy").join(name)).unwrap();
    }
    fs::write(world.dir().join("copy/z"), "person\n").unwrap();
    let said = world.said(&["apply", "s.db", "--yes", "--to", "copy"], 1);
    assert!(said.contains("! /z"), "{said}");
    assert_eq!(fs::read_to_string(world.dir().join("copy/z")).unwrap(), "person\n");
}

#[test]
fn an_apply_that_does_nothing_leaves_the_copy_of_what_was_overwritten() {
    let world = Loop::new();
    for name in ["y", "d/f"] {
        world.write(name, "agent\0\n");
        fs::write(world.base(name), "person\0\n").unwrap();
    }
    world.done(&["apply", "s.db", "--yes", "--force", "y"]);
    let undo = || fs::read_dir(world.dir().join("s.db-undo")).unwrap().count();
    let kept = undo();
    assert_eq!(kept, 2, "the record, and the file");
    fs::write(world.base("d/other"), "").unwrap();
    fs::remove_file(world.base("d/other")).unwrap();
    world.said(&["apply", "s.db", "--yes", "--skip-drifted"], 1);
    assert_eq!(undo(), kept);
    world.done(&["apply", "s.db", "--undo", "--yes"]);
    assert_eq!(fs::read_to_string(world.base("y")).unwrap(), "person\0\n");
}

#[test]
fn status_counts_drift_in_a_moved_directory_and_modes_of_directories() {
    let world = Loop::new();
    world.write("d/f", "agent\n");
    world.done(&["mv", "s.db", "d", "moved"]);
    world.done(&["chmod", "s.db", "711", "moved/inner"]);
    // The directory, and what changed in it: as `diff` counts them.
    let counts = ": 3 renamed\n";
    assert!(world.done(&["status", "s.db"]).contains(counts));
    assert!(world.said(&["diff", "s.db", "--stat"], 1).contains(counts));
    fs::write(world.base("d/f"), "person\n").unwrap();
    assert!(world.said(&["status", "s.db"], 1).contains("drift        1 object"));
    let other = Loop::new();
    other.done(&["chmod", "s.db", "711", "d"]);
    assert!(other.done(&["status", "s.db"]).contains("1 modified"));
    let mode = fs::metadata(other.base("d")).unwrap().permissions().mode();
    assert_ne!(mode & 0o777, 0o711);
}

#[test]
fn a_new_file_where_one_was_moved_from_has_not_drifted() {
    let world = Loop::new();
    world.done(&["mv", "s.db", "y", "y2"]);
    world.write("y", "agent\n");
    fs::remove_file(world.base("y")).unwrap();
    let plan = world.said(&["apply", "s.db", "-n"], 1);
    assert!(
        plan.contains("! /y -> /y2: was removed in the base") && plan.contains("A /y\n"),
        "{plan}"
    );
}

#[test]
fn a_link_of_a_file_that_is_merged_is_a_link_of_what_comes_of_it() {
    let world = Loop::new();
    fs::write(world.base("y"), "1\n2\n3\n4\n5\n6\n").unwrap();
    world.write("y", "1\n2\n3\n4\n5\nagent\n");
    world.done(&["ln", "s.db", "y", "z"]);
    fs::write(world.base("y"), "person\n2\n3\n4\n5\n6\n").unwrap();
    world.done(&["apply", "s.db", "--yes"]);
    for name in ["y", "z"] {
        assert_eq!(fs::read_to_string(world.base(name)).unwrap(), "person\n2\n3\n4\n5\nagent\n");
    }
    let number = |name: &str| fs::metadata(world.base(name)).unwrap().ino();
    assert_eq!(number("y"), number("z"));
    world.done(&["diff", "s.db"]);
    world.done(&["apply", "s.db", "--undo", "--yes"]);
    assert_eq!(fs::read_to_string(world.base("y")).unwrap(), "person\n2\n3\n4\n5\n6\n");
    assert!(!world.base("z").exists());
}

#[test]
fn the_time_of_a_directory_that_only_the_base_changed_stays() {
    for has_entry in [true, false] {
        let world = Loop::new();
        let dir = world.base("d");
        let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        fs::File::open(&dir).unwrap().set_modified(old).unwrap();
        world.write("d/f", "agent\n");
        if has_entry {
            fs::write(dir.join("mine"), "person\n").unwrap();
        } else {
            fs::File::open(&dir).unwrap().set_modified(old + Duration::from_secs(9)).unwrap();
        }
        let time = || fs::metadata(&dir).unwrap().modified().unwrap();
        let before = time();
        assert_ne!(before, old);
        world.done(&["apply", "s.db", "--yes"]);
        assert_eq!(fs::read_to_string(dir.join("f")).unwrap(), "agent\n");
        assert_eq!(time(), before, "{has_entry}");
        assert!(world.done(&["apply", "s.db", "-n"]).contains("nothing to apply"));
        assert!(!world.done(&["apply", "s.db", "-n"]).contains("times of"));
    }
}

#[test]
fn a_directory_in_which_both_sides_made_entries_gets_the_later_time() {
    let world = Loop::new();
    let dir = world.base("d");
    world.write("d/agents", "agent\n");
    std::thread::sleep(Duration::from_millis(30));
    fs::write(dir.join("mine"), "person\n").unwrap();
    let before = fs::metadata(&dir).unwrap().modified().unwrap();
    world.done(&["apply", "s.db", "--yes"]);
    assert_eq!(fs::metadata(&dir).unwrap().modified().unwrap(), before);
    assert!(!world.done(&["apply", "s.db", "-n"]).contains("times of"));
}

fn time_of(path: &Path) -> std::time::SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

/// Long before the test.
fn long_ago() -> std::time::SystemTime {
    std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}

fn set_time(path: &Path) {
    fs::File::open(path).unwrap().set_modified(long_ago()).unwrap();
}

#[test]
fn an_overwriting_apply_writes_the_time_of_a_directory_only_if_the_session_set_it() {
    let overwriting = [&["--force"][..], &["--take", "session", "d"]];
    for (options, is_set) in overwriting.into_iter().flat_map(|o| [(o, false), (o, true)]) {
        let world = Loop::new();
        let dir = world.base("d");
        set_time(&dir);
        world.write("d/f", "agent\n");
        if is_set {
            world.done(&["touch", "s.db", "-d", "2001-02-03T00:00:00Z", "d"]);
        }
        fs::write(dir.join("mine"), "person\n").unwrap();
        let before = time_of(&dir);
        let apply = [&["apply", "s.db"], options].concat();
        let plan = world.done(&[&apply[..], &["-n"]].concat());
        assert_eq!(plan.contains("times of 1 directory"), is_set, "{plan}");
        world.done(&[&apply[..], &["--yes"]].concat());
        assert_eq!(time_of(&dir) == before, !is_set, "{options:?}");
        assert!(!world.done(&["apply", "s.db", "-n"]).contains("times of"));
    }
}

/// A copied base has directories with other numbers.
#[test]
fn an_apply_to_a_copied_base_leaves_no_rows_of_unchanged_directories() {
    let world = Loop::new();
    fs::create_dir(world.base("e")).unwrap();
    fs::write(world.base("e/g"), "g\n").unwrap();
    let dirs = ["d", "e"].map(|name| world.base(name));
    dirs.iter().for_each(|dir| set_time(dir));
    for file in ["d/f", "e/g"] {
        world.write(file, "agent\n");
    }
    std::os::unix::fs::symlink("x", world.base("d/mine")).unwrap();
    fs::remove_file(world.base("e/g")).unwrap();
    fs::write(world.base("e/g"), "person\n").unwrap();
    let (base, copied) = (world.dir().join("b"), world.dir().join("copied"));
    let from = [base.to_str().unwrap(), copied.to_str().unwrap()];
    assert!(std::process::Command::new("cp").arg("-a").args(from).status().unwrap().success());
    fs::rename(&base, world.dir().join("first")).unwrap();
    fs::rename(&copied, &base).unwrap();
    let before = dirs.each_ref().map(|dir| time_of(dir));
    assert!(before.iter().all(|time| *time != long_ago()));
    let of_session = |name: &str| world.done(&["stat", "s.db", name]).contains("copied");
    world.said(&["apply", "s.db", "--skip-drifted", "--yes"], 1);
    assert_eq!(["d", "e"].map(of_session), [false, true]);
    let plan = world.done(&["apply", "s.db", "--force", "-n"]);
    assert!(!plan.contains("times of"), "{plan}");
    world.done(&["apply", "s.db", "--force", "--yes"]);
    assert_eq!(fs::read_to_string(world.base("e/g")).unwrap(), "agent\n");
    assert_eq!(dirs.each_ref().map(|dir| time_of(dir)), before);
    assert_eq!(["d", "e"].map(of_session), [false; 2]);
}

#[test]
fn the_top_keeps_a_later_time_of_the_base_unless_the_session_set_one() {
    for (options, is_set) in [(&[][..], false), (&["--force"], false), (&[], true)] {
        let world = Loop::new();
        world.write("d/f", "agent\n");
        if is_set {
            world.done(&["touch", "s.db", "-d", "2001-02-03T00:00:00Z", "/"]);
        }
        fs::write(world.base("mine"), "person\n").unwrap();
        let top = world.dir().join("b");
        let before = time_of(&top);
        world.done(&[&["apply", "s.db", "--yes"], options].concat());
        assert_eq!(time_of(&top) == before, !is_set, "{options:?}");
        assert!(!world.done(&["apply", "s.db", "-n"]).contains("times of"));
    }
}
