//! Directories that both sides moved, and moved ones that the base no longer has.

use std::fs;
use std::path::Path;

use tempfile::{TempDir, tempdir};

use super::program::run;
use crate::support::applied::copy;
use crate::support::git::git;

/// A base with files in `d`, which the session moves to `d2`.
fn moved() -> TempDir {
    let dir = tempdir().unwrap();
    fs::create_dir_all(dir.path().join("base/d")).unwrap();
    for name in ["f1", "f2", "f3"] {
        fs::write(dir.path().join("base/d").join(name), "1\n2\n3\n").unwrap();
    }
    assert_eq!(said(dir.path(), &["init", "s.db", "--base", "base"]).0, 0);
    assert_eq!(said(dir.path(), &["mv", "s.db", "d", "d2"]).0, 0);
    dir
}

/// A base with a file in `a/d`, which the session moves to `d2`.
fn moved_from_a() -> TempDir {
    let dir = tempdir().unwrap();
    fs::create_dir_all(dir.path().join("base/a/d")).unwrap();
    fs::write(dir.path().join("base/a/d/f"), "1\n").unwrap();
    assert_eq!(said(dir.path(), &["init", "s.db", "--base", "base"]).0, 0);
    assert_eq!(said(dir.path(), &["mv", "s.db", "a/d", "d2"]).0, 0);
    dir
}

/// The exit code, and stdout and stderr.
fn said(dir: &Path, args: &[&str]) -> (i32, String) {
    let output = run(dir, args);
    let said = String::from_utf8([&output.stdout[..], &output.stderr].concat()).unwrap();
    (output.status.code().unwrap(), said)
}

#[test]
fn both_sides_moved_it() {
    let dir = moved();
    let dir = dir.path();
    fs::rename(dir.join("base/d"), dir.join("base/d2")).unwrap();
    assert_eq!(said(dir, &["diff", "s.db"]), (0, String::new()));
    assert!(said(dir, &["find", "s.db", "/"]).1.contains("/d2/f3"));
    assert_eq!(said(dir, &["check", "s.db"]).1.matches("R1").count(), 0);
    assert_eq!(said(dir, &["export", "s.db", "--dir", "out"]).0, 0);
    assert!(dir.join("out/d2/f2").exists());
    assert_eq!(said(dir, &["seal", "s.db"]).0, 0);
    assert_eq!(said(dir, &["diff", "s.db"]), (0, String::new()));
    assert!(said(dir, &["apply", "s.db", "-n"]).1.contains("nothing to apply"));
}

/// Each directory of the session with a redirect, and each whiteout, as `status` counts them.
fn moves_left(dir: &Path) -> (bool, bool) {
    let status = said(dir, &["status", "s.db"]).1;
    (status.contains("directory moved"), !status.contains(" 0 names hidden"))
}

#[test]
fn an_apply_settles_it() {
    let dir = moved();
    let dir = dir.path();
    fs::rename(dir.join("base/d"), dir.join("base/d2")).unwrap();
    assert_eq!(moves_left(dir), (true, true));
    assert_eq!(said(dir, &["apply", "s.db", "-n"]).0, 0);
    assert_eq!(moves_left(dir), (true, true));
    assert!(said(dir, &["apply", "s.db", "--yes"]).1.contains("nothing to apply"));
    assert_eq!(moves_left(dir), (false, false));
    fs::create_dir(dir.join("base/d")).unwrap();
    fs::write(dir.join("base/d/mine"), "mine").unwrap();
    fs::rename(dir.join("base/d2"), dir.join("base/d3")).unwrap();
    assert_eq!(said(dir, &["diff", "s.db"]), (0, String::new()));
    assert_eq!(
        said(dir, &["find", "s.db", "/"]).1,
        "/\n/d\n/d/mine\n/d3\n/d3/f1\n/d3/f2\n/d3/f3\n"
    );
}

/// The base may get another directory at the old path by the apply itself.
#[test]
fn an_apply_that_makes_something_at_the_old_path_settles_it_first() {
    for is_copied in [false, true] {
        let dir = moved();
        let dir = dir.path();
        assert_eq!(said(dir, &["mkdir", "s.db", "d"]).0, 0);
        assert_eq!(said(dir, &["mkdir", "s.db", "d/sub"]).0, 0);
        if is_copied {
            copy(&dir.join("base/d"), &dir.join("base/d2"));
            fs::remove_dir_all(dir.join("base/d")).unwrap();
        } else {
            fs::rename(dir.join("base/d"), dir.join("base/d2")).unwrap();
        }
        let (code, told) = said(dir, &["apply", "s.db", "--yes"]);
        assert!(code == 0 && !told.contains("skipped"), "{told}");
        assert_eq!(said(dir, &["check", "s.db"]), (0, "s.db: sound\n".to_owned()));
        let tree = "/\n/d\n/d/sub\n/d2\n/d2/f1\n/d2/f2\n/d2/f3\n";
        assert_eq!(said(dir, &["find", "s.db", "/"]).1, tree);
        assert_eq!(said(dir, &["diff", "s.db"]), (0, String::new()));
        assert_eq!(moves_left(dir), (false, false));
        assert!(dir.join("base/d/sub").is_dir());
    }
}

/// git removes a directory that another branch lacks, and makes it again.
#[test]
fn a_directory_that_was_made_again_is_no_drift() {
    let dir = moved();
    let dir = dir.path();
    fs::rename(dir.join("base/d"), dir.join("old")).unwrap();
    fs::create_dir(dir.join("base/between")).unwrap();
    fs::create_dir(dir.join("base/d")).unwrap();
    for name in ["f1", "f2", "f3"] {
        fs::copy(dir.join("old").join(name), dir.join("base/d").join(name)).unwrap();
    }
    assert_eq!(said(dir, &["apply", "s.db", "--yes"]).0, 0);
    assert!(dir.join("base/d2/f1").exists() && !dir.join("base/d").exists());
}

#[test]
fn a_discard_of_one_end_gives_up_both() {
    for end in ["a", "d2", "/"] {
        let dir = moved_from_a();
        let dir = dir.path();
        fs::rename(dir.join("base/a/d"), dir.join("base/d2")).unwrap();
        assert_eq!(said(dir, &["discard", "s.db", "--yes", end]).0, 0);
        assert_eq!(said(dir, &["check", "s.db"]), (0, "s.db: sound\n".to_owned()), "{end}");
        assert_eq!(moves_left(dir), (false, false), "{end}");
        fs::rename(dir.join("base/d2"), dir.join("base/a/d")).unwrap();
        assert_eq!(said(dir, &["diff", "s.db"]), (0, String::new()), "{end}");
        assert_eq!(said(dir, &["find", "s.db", "/"]).1, "/\n/a\n/a/d\n/a/d/f\n", "{end}");
    }
}

#[test]
fn a_discard_of_something_else_keeps_the_move() {
    let dir = moved_from_a();
    let dir = dir.path();
    assert_eq!(said(dir, &["mkdir", "s.db", "new"]).0, 0);
    fs::rename(dir.join("base/a/d"), dir.join("base/d2")).unwrap();
    assert_eq!(said(dir, &["discard", "s.db", "--yes", "new"]).0, 0);
    fs::rename(dir.join("base/d2"), dir.join("base/a/d")).unwrap();
    assert_eq!(said(dir, &["diff", "s.db"]).1, "R /a/d -> /d2/\n");
}

/// A base directory that the session moved out of one that the base has lost for a while.
#[test]
fn what_moved_out_shows_once_when_the_base_has_its_directory_again() {
    let changes = [
        &["rm", "-r", "s.db", "a"][..],
        &["mv", "s.db", "a", "b"],
        &["discard", "s.db", "--yes", "a"],
        // A new directory in its place, which the apply makes in the base meanwhile.
        &["apply", "s.db", "--yes", "a"],
    ];
    for change in changes {
        let dir = moved_from_a();
        let dir = dir.path();
        fs::write(dir.join("base/a/g"), "g").unwrap();
        fs::rename(dir.join("base/a"), dir.join("away")).unwrap();
        if change[0] == "apply" {
            assert_eq!(said(dir, &["rm", "-r", "s.db", "a"]).0, 0);
            assert_eq!(said(dir, &["mkdir", "s.db", "a"]).0, 0);
            assert_eq!(said(dir, &["mkdir", "s.db", "a/mine"]).0, 0);
        }
        assert_eq!(said(dir, change).0, 0, "{change:?}");
        let made = dir.join("base/a");
        if made.exists() {
            assert_eq!(said(dir, &["check", "s.db"]).1.matches("too").count(), 0);
            fs::rename(&made, dir.join("made")).unwrap();
        }
        fs::rename(dir.join("away"), made).unwrap();
        assert_eq!(said(dir, &["check", "s.db"]), (0, "s.db: sound\n".to_owned()), "{change:?}");
        let tree = said(dir, &["find", "s.db", "/"]).1;
        assert_eq!(tree.matches("/f\n").count(), 1, "{change:?}: {tree}");
        let (code, told) = said(dir, &["apply", "s.db", "--yes", "--force"]);
        assert!(code == 0 && !told.contains("skipped"), "{change:?}: {told}");
        assert_eq!(said(dir, &["diff", "s.db"]), (0, String::new()), "{change:?}");
        assert_eq!(said(dir, &["find", "s.db", "/"]).1, tree, "{change:?}");
        // A discard of the old place gives up the move.
        let is_discarded = change[0] == "discard";
        let at = ["base/a/d/f", "base/d2/f"].map(|path| dir.join(path).exists());
        assert_eq!(at, [is_discarded, !is_discarded], "{change:?}");
    }
}

#[test]
fn what_is_left_to_a_base_without_the_old_place_is_given_up_whole() {
    let dir = moved_from_a();
    let dir = dir.path();
    fs::rename(dir.join("base/a"), dir.join("away")).unwrap();
    let (code, told) = said(dir, &["apply", "s.db", "--yes", "--take", "base", "d2"]);
    assert_eq!(code, 0, "{told}");
    fs::rename(dir.join("away"), dir.join("base/a")).unwrap();
    assert_eq!(said(dir, &["check", "s.db"]), (0, "s.db: sound\n".to_owned()));
    assert_eq!(said(dir, &["diff", "s.db"]), (0, String::new()));
    assert_eq!(said(dir, &["find", "s.db", "/"]).1, "/\n/a\n/a/d\n/a/d/f\n");
}

/// What the agent made of a file that it moved out is not given up with the directory.
#[test]
fn work_that_moved_out_of_what_is_left_to_the_base_is_named_or_stays() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir_all(dir.join("base/a")).unwrap();
    fs::create_dir(dir.join("base/k")).unwrap();
    fs::write(dir.join("base/a/h"), "base\n").unwrap();
    for args in [&["init", "s.db", "--base", "base"][..], &["mv", "s.db", "a/h", "k/x"]] {
        assert_eq!(said(dir, args).0, 0, "{args:?}");
    }
    assert_eq!(said(dir, &["chmod", "s.db", "600", "k/x"]).0, 0);
    assert_eq!(said(dir, &["chmod", "s.db", "711", "a"]).0, 0);
    fs::rename(dir.join("base/a"), dir.join("away")).unwrap();
    let take = ["apply", "s.db", "--yes", "--skip-drifted", "--take", "base", "a"];
    let (code, told) = said(dir, &take);
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("/k/x: cannot stay if the base's side of /a is taken"), "{told}");
    assert_eq!(said(dir, &["cat", "s.db", "k/x"]), (0, "base\n".to_owned()));
    let (code, told) = said(dir, &[&take[..], &["--take", "base", "k/x"]].concat());
    assert_eq!(code, 0, "{told}");
    assert_eq!(said(dir, &["diff", "s.db"]), (0, String::new()));
}

/// In a copied base, and after an editor saved by a rename, another object is at the same name.
#[test]
fn what_a_moved_directory_holds_does_not_move_by_itself() {
    let dir = moved_from_a();
    let dir = dir.path();
    for (path, mode) in [("d2/f", "600"), ("d2/f", "644"), ("d2/sub/new", "600")] {
        if path.ends_with("new") {
            fs::create_dir(dir.join("base/a/d/sub")).unwrap();
            fs::write(dir.join("base/a/d/sub/new"), "2\n").unwrap();
        }
        assert_eq!(said(dir, &["chmod", "s.db", mode, path]).0, 0, "{path}");
    }
    copy(&dir.join("base"), &dir.join("copy"));
    let wanted = "R /a/d -> /d2/\nR /a/d/sub/new -> /d2/sub/new (mode 0644 -> 0600)\n";
    for base in ["base", "copy"] {
        let (_, lines) = said(dir, &["diff", "s.db", "--base", base]);
        assert_eq!(lines, wanted, "{base}");
    }
}

#[test]
fn a_file_that_was_merged_in_a_moved_directory_is_one_change_to_undo() {
    let dir = moved();
    let dir = dir.path();
    fs::write(dir.join("mine"), "1\n2\nagent\n").unwrap();
    assert_eq!(said(dir, &["cp", "s.db", "mine", ":/d2/f1"]).0, 0);
    fs::write(dir.join("base/d/saved"), "person\n2\n3\n").unwrap();
    fs::rename(dir.join("base/d/saved"), dir.join("base/d/f1")).unwrap();
    let (_, told) = said(dir, &["apply", "s.db", "--yes"]);
    assert!(told.contains("& /d2/f1: merged"), "{told}");
    assert_eq!(fs::read(dir.join("base/d2/f1")).unwrap(), b"person\n2\nagent\n");
    let (_, told) = said(dir, &["apply", "s.db", "--undo", "--yes"]);
    assert!(told.starts_with("R /d2 -> /d/\nM /d/f1\n"), "{told}");
    assert!(told.contains(": 2 changes to undo"), "{told}");
    assert_eq!(fs::read(dir.join("base/d/f1")).unwrap(), b"person\n2\n3\n");
    let (_, told) = said(dir, &["apply", "s.db", "--undo", "--yes"]);
    assert!(told.starts_with("R /d -> /d2/\nM /d2/f1\n"), "{told}");
    assert!(told.contains(": 2 changes to apply again"), "{told}");
    assert_eq!(fs::read(dir.join("base/d2/f1")).unwrap(), b"person\n2\nagent\n");
}

#[test]
fn the_base_no_longer_has_it() {
    let dir = moved();
    let dir = dir.path();
    fs::rename(dir.join("base/d"), dir.join("base/away")).unwrap();
    let gone = "/d2: its directory in the base, /d, is gone";
    for args in [&["diff", "s.db"][..], &["status", "s.db"], &["apply", "s.db", "-n"]] {
        let (_, said) = said(dir, args);
        assert!(said.contains(gone), "{args:?}: {said}");
    }
    for args in [&["seal", "s.db"][..], &["seal", "s.db", "--dry-run"]] {
        let (code, said) = said(dir, args);
        assert!(code == 2 && said.contains(gone), "{args:?}: {said}");
    }
    let (code, told) = said(dir, &["export", "s.db", "--dir", "out"]);
    assert!(code == 1 && told.contains("/d2: left out: "), "{told}");
    assert!(said(dir, &["check", "s.db"]).1.contains("R1"));
    fs::rename(dir.join("base/away"), dir.join("base/d")).unwrap();
    assert_eq!(said(dir, &["seal", "s.db"]).0, 0);
    assert!(said(dir, &["find", "s.db", "/"]).1.contains("/d2/f3"));
}

/// The agent's commits come from a clone, in which the same was done as in the session.
#[test]
fn git_merged_the_agent_s_commits() {
    let dir = tempdir().unwrap();
    let (dir, base, agent) = (dir.path(), dir.path().join("base"), dir.path().join("agent"));
    for name in ["src/a", "src/b", "src/c", "src/sub/d", "docs/x", "docs/y", "old/m", "one/single"]
    {
        let file = base.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let lines: Vec<String> = (1..=20).map(|line| format!("{line} of {name}\n")).collect();
        fs::write(file, lines.concat()).unwrap();
    }
    git(&base, &["init", "-q"]);
    git(&base, &["add", "."]);
    git(&base, &["commit", "-qm", "begun"]);
    git(dir, &["clone", "-q", "base", "agent"]);
    let done = |args: &[&str]| assert_eq!(said(dir, args).0, 0, "{args:?}");
    done(&["init", "s.db", "--base", "base"]);
    for (from, to) in [("src", "lib"), ("lib/sub", "lib/under"), ("one/single", "one/double")] {
        done(&["mv", "s.db", from, to]);
        git(&agent, &["mv", from, to]);
    }
    done(&["rm", "s.db", "lib/c", "docs/y"]);
    done(&["rm", "-r", "s.db", "old"]);
    git(&agent, &["rm", "-qrf", "lib/c", "docs/y", "old"]);
    for (name, line) in [("lib/a", "5 of"), ("docs/x", "7 of")] {
        let text = fs::read_to_string(agent.join(name)).unwrap();
        fs::write(agent.join(name), text.replacen(line, "agent of", 1)).unwrap();
        let copy = agent.join(name);
        done(&["cp", "s.db", copy.to_str().unwrap(), &format!(":/{name}")]);
    }
    git(&agent, &["commit", "-qam", "agent"]);
    let a = fs::read_to_string(base.join("src/a")).unwrap();
    fs::write(base.join("src/a"), a.replace("15 of src/a\n", "person\n")).unwrap();
    git(&base, &["commit", "-qam", "person"]);
    git(&base, &["fetch", "-q", "../agent"]);
    git(&base, &["merge", "-q", "--no-edit", "FETCH_HEAD"]);

    let plan = said(dir, &["apply", "-n", "s.db", ":!.git"]);
    assert!(plan.0 == 0 && !plan.1.contains('!'), "{plan:?}");
    let lines = said(dir, &["diff", "s.db", "--name-status", ":!.git"]).1;
    assert!(lines.lines().all(|line| line.starts_with('M')), "{lines}");
    done(&["apply", "--yes", "s.db", ":!.git"]);
    assert_eq!(git(&base, &["status", "--short"]), "");
    assert_eq!(said(dir, &["diff", "s.db", ":!.git"]), (0, String::new()));
    assert!(said(dir, &["cat", "s.db", "lib/under/d"]).1.starts_with("1 of src/sub/d"));
}

/// The base moved a directory, and the session then moved that on, and what it had of it to there.
#[test]
fn a_directory_that_the_base_moved_shows_once() {
    for (session, base, shown) in [
        (
            &["write s.db d/new", "BASE d p", "mv s.db p q", "mv s.db d p"][..],
            "p",
            "/\n/p\n/p/new\n/q\n/q/f\n",
        ),
        (&["mv s.db d z", "mv s.db k d", "BASE d -", "BASE k d"], "d", "/\n/d\n/d/k1\n/z\n"),
    ] {
        let dir = tempdir().unwrap();
        let dir = dir.path();
        let at = |name: &str| dir.join("base").join(name);
        for (name, text) in [("d", "f"), ("k", "k1")] {
            if name == "d" || base == "d" {
                fs::create_dir_all(at(name)).unwrap();
                fs::write(at(name).join(text), text).unwrap();
            }
        }
        assert_eq!(said(dir, &["init", "s.db", "--base", "base"]).0, 0);
        for line in session {
            let args: Vec<_> = line.split(' ').collect();
            match args[..] {
                ["BASE", from, "-"] => fs::remove_dir_all(at(from)).unwrap(),
                ["BASE", from, to] => fs::rename(at(from), at(to)).unwrap(),
                _ => assert_eq!(said(dir, &args).0, 0, "{line}"),
            }
        }
        assert_eq!(said(dir, &["find", "s.db"]).1, shown);
        let checked = said(dir, &["check", "s.db"]);
        assert!(checked.0 == 0 && checked.1.contains("s.db: sound"), "{checked:?}");
        let refused = said(dir, &["apply", "s.db", "--yes"]);
        assert!(refused.0 == 1 && refused.1.contains(": was removed in the base"), "{refused:?}");
        assert_eq!(said(dir, &["find", "s.db"]).1, shown);
        assert_eq!(said(dir, &["apply", "s.db", "--yes", "--force"]).0, 0);
        assert_eq!(said(dir, &["diff", "s.db"]), (0, String::new()));
        assert_eq!(said(dir, &["find", "s.db"]).1, shown);
        for path in shown.lines().filter(|path| *path != "/") {
            assert!(dir.join("base").join(&path[1..]).exists(), "{path}");
        }
        assert!(at(base).is_dir());
    }
}
