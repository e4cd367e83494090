//! `acetate apply` where a person changed the base too: to the base, and to a copy of what the
//! session started from.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tempfile::TempDir;

use super::program::{run, said};
use crate::support::applied::{assert_same, on_host};

/// A base, `base`, and a session over it, `s.db`.
struct Place(TempDir);

impl Place {
    fn new(files: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join("base").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{file}\n")).unwrap();
        }
        let place = Self(dir);
        place.done(&["init", "s.db", "--base", "base"]);
        place
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn done(&self, args: &[&str]) -> String {
        said(&run(self.0.path(), args), 0).0
    }

    fn diff(&self) -> String {
        String::from_utf8(run(self.0.path(), &["diff", "s.db"]).stdout).unwrap()
    }

    /// Writes a file of the session.
    fn put(&self, path: &str) {
        fs::write(self.path("agent"), "agent\n").unwrap();
        self.done(&["cp", "s.db", "agent", &format!(":/{path}")]);
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn mode(&self, path: &str) -> u32 {
        self.path(path).metadata().unwrap().permissions().mode() & 0o777
    }
}

/// The paths of what was overwritten without a copy, in JSON objects.
fn lost(out: &str) -> Vec<String> {
    let objects = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lost = objects.filter(|object| object["type"] == "kept" && object["copy"].is_null());
    lost.map(|object| object["path"].as_str().unwrap().to_owned()).collect()
}

fn age(path: &Path) -> SystemTime {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
    time
}

#[test]
fn the_mode_of_a_directory_that_only_the_base_changed_stays_and_is_not_shown() {
    let place = Place::new(&["d/a", "d/b"]);
    place.put("d/a");
    fs::set_permissions(place.path("base/d"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(place.diff(), "M /d/a\n");
    assert!(place.done(&["apply", "s.db", "--yes"]).ends_with(": applied\n"));
    assert_eq!((place.mode("base/d"), place.text("base/d/a").as_str()), (0o700, "agent\n"));
    assert_eq!(place.diff(), "");
    place.put("d/b");
    assert_eq!(place.diff(), "M /d/b\n");
    place.done(&["chmod", "s.db", "711", "d"]);
    assert_eq!(place.diff(), "M /d/ (mode 0700 -> 0711)\nM /d/b\n");
    fs::set_permissions(place.path("base/d"), fs::Permissions::from_mode(0o750)).unwrap();
    let (out, _) = said(&run(place.0.path(), &["apply", "s.db", "--yes"]), 1);
    assert!(out.contains("! /d: changed in the base too\n"), "{out}");
    place.done(&["apply", "s.db", "--yes", "--force"]);
    assert_eq!(place.mode("base/d"), 0o711);
}

#[test]
fn an_apply_without_differences_writes_nothing_to_the_base() {
    let place = Place::new(&["d/a", "b"]);
    place.put("d/new");
    place.put("new");
    place.done(&["rm", "s.db", "d/new", "new"]);
    let old = age(&place.path("base/d"));
    age(&place.path("base"));
    let before = on_host(&place.path("base"));
    let ctime = place.path("base").metadata().unwrap().ctime_nsec();
    assert_eq!(place.diff(), "");
    for option in ["-n", "--yes"] {
        let out = place.done(&["apply", "s.db", option]);
        assert!(out.starts_with("nothing to apply to "), "{out}");
    }
    assert_same(&on_host(&place.path("base")), &before);
    assert_eq!(place.path("base").metadata().unwrap().ctime_nsec(), ctime);
    assert_eq!(place.path("base/d").metadata().unwrap().modified().unwrap(), old);
    place.put("d/new");
    place.done(&["apply", "s.db", "--yes"]);
    assert!(place.path("base/d").metadata().unwrap().modified().unwrap() > old);
}

#[test]
fn only_options_that_can_help_are_named() {
    let place = Place::new(&["text", "binary", "gone", "other"]);
    for file in ["text", "binary"] {
        place.put(file);
    }
    place.done(&["rm", "s.db", "gone"]);
    fs::write(place.path("base/binary"), "\0").unwrap();
    fs::write(place.path("base/gone"), "person\n").unwrap();
    let told =
        |args: &[&str]| said(&run(place.0.path(), &[&["apply", "s.db"], args].concat()), 1).1;
    let begin = "nothing was written, because of 2 objects marked with `!`: ";
    let sides = "for each of them, --take base PATH keeps what the base has";
    assert_eq!(
        told(&["--yes", "--conflict-markers"]),
        format!("{begin}{sides}, and --take session PATH overwrites it\n").replace(
            &format!("{begin}{sides}"),
            &format!("{begin}--skip-drifted applies the rest; {sides}")
        )
    );
    assert_eq!(
        told(&["--yes", "binary", "gone"]),
        format!("{begin}{sides}, and --take session PATH overwrites it\n")
    );
    fs::write(place.path("base/text"), "person\n").unwrap();
    let text = told(&["--yes", "text"]);
    assert!(
        text.contains(", and --conflict-markers merges") || text.contains("merges it"),
        "{text}"
    );
    assert!(!text.contains("--skip-drifted"), "{text}");
    assert!(told(&["--yes"]).contains("--conflict-markers merges those in which"));
    assert!(!told(&["--yes", "--conflict-markers"]).contains("--conflict-markers"));
    let next = told(&["--yes", "--skip-drifted", "binary", "gone"]);
    assert!(next.contains("--take session PATH") && !next.contains("--conflict-markers"), "{next}");
}

#[test]
fn the_rest_that_can_be_applied_may_be_the_move_of_a_directory_that_holds_what_drifted() {
    let told = |place: &Place, args: &[&str]| {
        said(&run(place.0.path(), &[&["apply", "s.db"], args].concat()), 1).1
    };
    let place = Place::new(&["dir/a", "dir/b", "gone/x"]);
    place.put("dir/a");
    place.done(&["mv", "s.db", "dir", "moved"]);
    place.done(&["rm", "-r", "s.db", "gone"]);
    fs::write(place.path("base/dir/a"), "person\n").unwrap();
    fs::write(place.path("base/gone/x"), "person\n").unwrap();
    let rest = ": --skip-drifted applies the rest; ";
    assert!(told(&place, &["--yes"]).contains(rest));
    assert!(told(&place, &["--yes", "dir", "moved"]).contains(rest));
    // A removed directory stays whole where something in it drifted.
    let removed = told(&place, &["--yes", "gone"]);
    assert!(removed.starts_with("nothing was written") && !removed.contains(rest), "{removed}");
    said(&run(place.0.path(), &["apply", "s.db", "--yes", "--skip-drifted"]), 1);
    assert_eq!(place.text("base/moved/a") + &place.text("base/moved/b"), "person\ndir/b\n");
    assert_eq!(place.text("base/gone/x"), "person\n");
    let left = told(&place, &["--yes"]);
    assert!(left.starts_with("nothing was written") && !left.contains(rest), "{left}");
    // The move of a directory whose mode both changed: what is in it waits for the move.
    let place = Place::new(&["dir/a", "dir/b"]);
    place.done(&["mv", "s.db", "dir", "moved"]);
    place.done(&["chmod", "s.db", "700", "moved"]);
    place.put("moved/a");
    fs::set_permissions(place.path("base/dir"), fs::Permissions::from_mode(0o750)).unwrap();
    let left = told(&place, &["--yes"]);
    assert!(left.starts_with("nothing was written") && !left.contains(rest), "{left}");
}

#[test]
fn what_is_overwritten_without_a_copy_is_said_to_be_gone() {
    let drifted = || {
        let place = Place::new(&["a", "d/b", "gone", "kept"]);
        for file in ["a", "d/b", "gone", "kept"] {
            place.put(file);
        }
        for file in ["a", "d/b"] {
            fs::write(place.path("base").join(file), "person\n").unwrap();
        }
        fs::remove_file(place.path("base/gone")).unwrap();
        place
    };
    let gone = "what the base had at 2 paths is gone for good: --no-keep keeps no copies\n";
    let run = |place: &Place, args: &[&str]| {
        said(&run(place.0.path(), &[&["apply", "s.db", "--yes"], args].concat()), 0)
    };
    let (_, err) = run(&drifted(), &["--force", "--no-keep"]);
    assert_eq!(err, gone);
    let (out, _) = run(&drifted(), &["--force", "--no-keep", "--json"]);
    assert_eq!(lost(&out), ["/a", "/d/b"]);
    let (out, err) = run(&drifted(), &["--force"]);
    assert!(out.contains("/a: a copy is at ") && !err.contains("gone"), "{out}{err}");
    let (out, _) = run(&drifted(), &["--force", "--json"]);
    assert!(out.contains(r#""copy":""#) && lost(&out).is_empty(), "{out}");
}

#[test]
fn what_the_sessions_side_overwrites_is_kept_and_named_or_said_to_be_gone() {
    let drifted = || {
        let place = Place::new(&["a", "d/b", "gone", "kept"]);
        for file in ["a", "d/b", "kept"] {
            place.put(file);
        }
        place.done(&["rm", "s.db", "gone"]);
        for file in ["a", "d/b", "gone"] {
            fs::write(place.path("base").join(file), "person\n").unwrap();
        }
        place
    };
    let run = |place: &Place, args: &[&str]| {
        let take = ["a", "d", "gone"].map(|path| ["--take", "session", path]).concat();
        said(&run(place.0.path(), &[&["apply", "s.db", "--yes"], &take[..], args].concat()), 0)
    };
    let (out, err) = run(&drifted(), &[]);
    for line in [
        "! /a: the base changed the same lines; overwritten (--take session)\n",
        "! /d/b: the base changed the same lines; overwritten (--take session)\n",
        "! /gone: changed in the base since it was deleted; overwritten (--take session)\n",
        "3 drifted\n",
        "/a: a copy is at ",
        "/d/b: a copy is at ",
        "/gone: a copy is at ",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(!err.contains("gone for good"), "{err}");
    let gone = "what the base had at 3 paths is gone for good: --no-keep keeps no copies\n";
    assert_eq!(run(&drifted(), &["--no-keep"]).1, gone);
    let (out, _) = run(&drifted(), &["--no-keep", "--json"]);
    assert_eq!(lost(&out), ["/a", "/d/b", "/gone"]);
    let place = drifted();
    let (out, _) = run(&place, &["--json"]);
    assert_eq!(out.matches(r#""copy":""#).count(), 3, "{out}");
    assert!(out.contains(r#""drifted":3"#), "{out}");
    assert_eq!(place.text("base/a"), "agent\n");
}

/// Text that could be merged is overwritten whole.
#[test]
fn the_sessions_side_of_what_could_be_merged_is_named_too() {
    let place = Place::new(&["a"]);
    let text = |first: &str, last: &str| format!("{first}\n2\n3\n4\n5\n6\n{last}\n");
    fs::write(place.path("base/a"), text("1", "7")).unwrap();
    fs::write(place.path("agent"), text("agent", "7")).unwrap();
    place.done(&["cp", "s.db", "agent", ":/a"]);
    fs::write(place.path("base/a"), text("1", "person")).unwrap();
    let out = place.done(&["apply", "s.db", "--yes", "--take", "session", "a"]);
    assert!(out.contains("! /a: changed in the base too; overwritten (--take session)\n"), "{out}");
    assert!(out.contains("/a: a copy is at "), "{out}");
    assert_eq!(place.text("base/a"), text("agent", "7"));
}

#[test]
fn what_an_undo_overwrites_without_a_copy_is_said_to_be_gone() {
    let drifted = || {
        let place = Place::new(&["a", "gone", "moved", "away/x", "kept"]);
        place.done(&["mkdir", "s.db", "nd"]);
        for file in ["a", "n", "nd/f"] {
            place.put(file);
        }
        place.done(&["mv", "s.db", "moved", "nd/moved"]);
        place.done(&["rm", "s.db", "gone"]);
        place.done(&["chmod", "s.db", "600", "kept"]);
        place.done(&["apply", "s.db", "--yes"]);
        for file in ["a", "n", "nd/f", "nd/moved", "gone"] {
            fs::write(place.path("base").join(file), "person\n").unwrap();
        }
        let kept = place.path("base/kept");
        fs::set_permissions(kept, fs::Permissions::from_mode(0o640)).unwrap();
        place
    };
    let run = |place: &Place, args: &[&str], code| {
        let undo = ["apply", "s.db", "--undo", "--yes"];
        said(&run(place.0.path(), &[&undo, args].concat()), code)
    };
    let gone = "what the base had at 4 paths is gone for good: --no-keep keeps no copies\n";
    let place = drifted();
    let err = run(&place, &["--no-keep"], 1).1;
    assert!(err.ends_with("--force all that can be, and keeps no copies of what it overwrites\n"));
    let err = run(&place, &["--force", "--no-keep"], 0).1;
    assert!(err.starts_with(gone), "{err}");
    // It is only moved back.
    assert_eq!(place.text("base/moved"), "person\n");
    assert!(!place.path("base/nd").exists());
    let (out, _) = run(&drifted(), &["--force", "--no-keep", "--json"], 0);
    assert_eq!(lost(&out), ["/a", "/gone", "/n", "/nd/f"]);
    let (out, err) = run(&drifted(), &["--force"], 0);
    assert!(out.contains("/a: a copy is at ") && !err.contains("gone for good"), "{out}{err}");
}

#[test]
fn an_undo_that_keeps_nothing_says_that_the_changes_are_gone() {
    let place = Place::new(&["a"]);
    place.put("a");
    let undo = |args: &[&str]| {
        let undo = ["apply", "s.db", "--undo", "--yes"];
        said(&run(place.0.path(), &[&undo, args].concat()), 0).1
    };
    let gone =
        "the session does not get the changes back, and nothing of them is kept (--no-keep)\n";
    place.done(&["apply", "s.db", "--yes"]);
    undo(&[]);
    // Once they are applied again, the base has them.
    assert_eq!(undo(&["--no-keep"]), "");
    assert_eq!(place.text("base/a"), "agent\n");
    place.put("b");
    place.done(&["apply", "s.db", "--yes"]);
    assert_eq!(undo(&["--no-keep"]), gone);
    assert!(!place.path("base/b").exists());
}

#[test]
fn what_is_gone_from_a_copy_was_not_in_the_base() {
    let place = Place::new(&["a"]);
    place.put("a");
    fs::create_dir(place.path("copy")).unwrap();
    fs::write(place.path("copy/a"), "person\n").unwrap();
    let args = ["apply", "s.db", "--yes", "--to", "copy", "--force", "--no-keep"];
    let (_, err) = said(&run(place.0.path(), &args), 0);
    assert_eq!(err, "what the copy had at 1 path is gone for good: --no-keep keeps no copies\n");
}

#[test]
fn a_path_whose_state_counts_brings_the_directories_that_the_base_removed() {
    let place = Place::new(&["d/e/a", "d/b", "c"]);
    for file in ["d/e/a", "d/b", "d/e/new"] {
        place.put(file);
    }
    fs::remove_dir_all(place.path("base/d")).unwrap();
    let (out, _) = said(&run(place.0.path(), &["apply", "s.db", "--yes", "d/e/a"]), 1);
    assert!(out.contains("! /d/e/a: was removed in the base\n"), "{out}");
    place.done(&["apply", "s.db", "--yes", "d/e/a", "--take", "session", "d/e/a"]);
    assert_eq!(place.text("base/d/e/a"), "agent\n");
    assert!(!place.path("base/d/b").exists() && !place.path("base/d/e/new").exists());
    place.done(&["apply", "s.db", "--yes", "--take", "session", "d/b"]);
    assert_eq!(place.text("base/d/b") + &place.text("base/d/e/new"), "agent\nagent\n");
    assert_eq!(place.diff(), "");
}

#[test]
fn what_is_left_out_is_listed_by_path() {
    let place = Place::new(&["k/b", "a", "m/y/c", "n"]);
    for file in ["k/b", "a", "m/y/c", "n"] {
        place.put(file);
        fs::write(place.path("base").join(file), "person\n").unwrap();
    }
    for (file, mode) in [("p", "4755"), ("m/s", "4755"), ("k/s", "4755")] {
        place.put(file);
        place.done(&["chmod", "s.db", mode, file]);
    }
    let paths = |out: &str, mark: &str| -> Vec<String> {
        let lines = out.lines().filter_map(|line| line.strip_prefix(mark));
        lines.map(|line| line.split(':').next().unwrap().to_owned()).collect()
    };
    let plan = said(&run(place.0.path(), &["apply", "s.db", "-n", "--skip-drifted"]), 1).0;
    assert_eq!(paths(&plan, "- "), ["/k/s", "/m/s", "/p"], "{plan}");
    assert_eq!(paths(&plan, "! "), ["/a", "/k/b", "/m/y/c", "/n"], "{plan}");
    place.put("new");
    let out = said(&run(place.0.path(), &["apply", "s.db", "--yes", "--skip-drifted"]), 1).0;
    assert_eq!(paths(&out, "- "), ["/k/s", "/m/s", "/p"], "{out}");
    let skipped = paths(&out, "skipped ");
    assert_eq!(skipped, ["/a", "/k/b", "/m/y/c", "/n"], "{out}");
}

#[test]
fn names_that_are_applied_one_by_one_stay_one_file() {
    let place = Place::new(&["b", "d/other"]);
    place.done(&["mv", "s.db", "b", "x"]);
    place.done(&["ln", "s.db", "x", "d/y"]);
    place.put("made");
    place.done(&["ln", "s.db", "made", "d/made"]);
    place.done(&["apply", "s.db", "--yes", "d/y", "made"]);
    assert_eq!(place.diff(), "A /d/made (link)\nA /x (link)\n");
    let out = place.done(&["apply", "s.db", "--yes"]);
    assert!(out.ends_with(": applied\n"), "{out}");
    let ino = |path: &str| place.path("base").join(path).metadata().unwrap().ino();
    assert_eq!((ino("x"), ino("made")), (ino("d/y"), ino("d/made")));
    assert_eq!((place.text("base/x"), place.text("base/d/made")), ("b\n".into(), "agent\n".into()));
    assert_eq!(place.diff(), "");
    fs::write(place.path("base/x"), "person\n").unwrap();
    fs::write(place.path("base/made"), "person\n").unwrap();
    for path in ["x", "d/y", "made", "d/made"] {
        assert_eq!(place.done(&["cat", "s.db", path]), "person\n");
    }
}

/// What a person does to the base, the session's changes, and the tree that a copy of the base's
/// first state has to become.
#[test]
fn a_copy_of_the_first_state_gets_the_sessions_state_whatever_became_of_the_base() {
    type Way = (&'static str, fn(&Place), fn(&Path));
    let moved: fn(&Place) = |place| {
        place.done(&["mv", "s.db", "lib", "lib2"]);
        place.put("lib2/a");
    };
    let removed: fn(&Place) = |place| drop(place.done(&["rm", "-r", "s.db", "old"]));
    let ways: [Way; 10] = [
        ("a changed directory moved", |place| place.put("src/a"), |base| mv(base, "src", "source")),
        (
            "a removal in it",
            |place| drop(place.done(&["rm", "s.db", "src/a", "old/sub/s"])),
            |base| {
                mv(base, "src", "source");
                mv(base, "old", "older");
            },
        ),
        ("a moved directory moved", moved, |base| mv(base, "lib", "library")),
        ("a directory came into a moved one", moved, |base| mv(base, "docs", "lib/docs")),
        ("a directory below a moved one moved", moved, |base| mv(base, "lib/deep", "deep")),
        ("a directory came into a removed one", removed, |base| {
            mv(base, "docs", "old/docs");
            fs::create_dir(base.join("old/new")).unwrap();
            fs::write(base.join("old/new/x"), "person\n").unwrap();
            fs::write(base.join("old/sub/x"), "person\n").unwrap();
        }),
        ("a directory below a removed one moved", removed, |base| mv(base, "old/sub", "sub")),
        ("a directory came to the new path", moved, |base| mv(base, "docs", "lib2")),
        (
            "both made a directory",
            |place| {
                place.done(&["mkdir", "s.db", "made"]);
                place.put("made/a");
            },
            |base| mv(base, "docs", "made"),
        ),
        (
            "a directory was made again",
            |place| {
                place.done(&["rm", "-r", "s.db", "old"]);
                place.done(&["mkdir", "s.db", "old"]);
                place.put("old/o");
            },
            |base| mv(base, "docs", "old/docs"),
        ),
    ];
    for (name, agent, person) in ways {
        let files = ["src/a", "src/b", "lib/a", "lib/deep/d", "docs/d", "old/o", "old/sub/s"];
        let place = Place::new(&files);
        agent(&place);
        for copy in ["wanted", "fresh"] {
            copy_by_content(&place.path("base"), &place.path(copy));
        }
        place.done(&["apply", "s.db", "--yes", "--to", "wanted"]);
        std::thread::sleep(Duration::from_millis(20));
        person(&place.path("base"));
        let out = run(place.0.path(), &["apply", "s.db", "--yes", "--to", "fresh"]);
        let (out, err) = said(&out, 0);
        assert!(!out.contains("\n! ") && !out.starts_with("! "), "{name}: {out}{err}");
        assert_eq!(
            contents(&place.path("fresh")),
            contents(&place.path("wanted")),
            "{name}: {out}"
        );
    }
}

fn mv(base: &Path, from: &str, to: &str) {
    fs::rename(base.join(from), base.join(to)).unwrap();
}

/// Copies as git checks out: with times of its own.
fn copy_by_content(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_by_content(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

fn contents(top: &Path) -> Vec<(String, String)> {
    let tree = on_host(top).into_iter();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    tree.map(|(path, object)| (text(path), text(object.content))).collect()
}
