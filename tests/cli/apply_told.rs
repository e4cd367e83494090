//! What `acetate apply` says of what the base changed, and of plans that write no content.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Output};

use serde_json::Value;

use super::program::{run, said};
use crate::support::world::World;

fn apply(world: &World, args: &[&str]) -> Output {
    let session = world.session();
    run(world.scratch(), &[&["apply", session.to_str().unwrap()], args].concat())
}

#[test]
fn what_is_left_to_the_base_ends_no_undo_and_no_copy_loses_it() {
    let mut world = World::new("first \"1\"\nother \"other\"\n");
    world.write("first", 0, b"first").unwrap();
    world.write("other", 0, b"mine!").unwrap();
    world.close();
    let base = world.change_base();
    fs::write(base.join("other"), "a\nperson's\n").unwrap();
    let copy = world.scratch().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::write(copy.join("first"), "1").unwrap();
    fs::write(copy.join("other"), "a\nperson's\n").unwrap();
    let to = ["--yes", "--no-keep", "--to", copy.to_str().unwrap(), "--take", "base", "other"];
    let (_, err) = said(&apply(&world, &to), 0);
    let stays = "1 object stays as the copy has it (--take base); the session keeps its own\n";
    assert_eq!(err, stays);
    said(&apply(&world, &["--yes", "--skip-drifted"]), 1);
    said(&apply(&world, &["--yes", "--take", "base", "other"]), 0);
    said(&apply(&world, &["--yes", "--undo"]), 0);
    assert_eq!(fs::read(base.join("first")).unwrap(), b"1");
    assert_eq!(fs::read(base.join("other")).unwrap(), b"a\nperson's\n");
}

#[test]
fn attributes_and_removals_in_the_base_are_said_as_such() {
    let mut world = World::new("mode \"1\"\nowner \"2\"\ngone \"3\"\n");
    world.close();
    let session = world.session();
    let session = session.to_str().unwrap();
    for args in [["chmod", session, "755", "/mode"], ["touch", session, "/owner", "/owner"]] {
        assert!(run(world.scratch(), &args).status.success());
    }
    let (out, _) = said(&apply(&world, &["--dry-run"]), 0);
    assert!(out.ends_with(": mode of 1 file, time of 1 file\n"), "{out}");
    assert!(run(world.scratch(), &["chmod", session, "600", "/gone"]).status.success());
    fs::remove_file(world.change_base().join("gone")).unwrap();
    let (out, _) = said(&apply(&world, &["--dry-run", "--skip-drifted"]), 1);
    assert!(out.contains("! /gone: was removed in the base; skipped (--skip-drifted)\n"), "{out}");
    assert!(!out.contains("0 files to write"), "{out}");
    let diff = run(world.scratch(), &["diff", session]);
    let diff = String::from_utf8(diff.stdout).unwrap();
    assert!(diff.contains("M /gone (mode 0644 -> 0600, was removed in the base)\n"), "{diff}");
}

#[test]
fn moves_links_and_new_directories_are_in_the_total() {
    let mut world = World::new("b/a \"1\"\nb/c \"2\"\n");
    world.rename("b/a", "b/a2").unwrap();
    world.link("b/c", "b/c2").unwrap();
    world.mkdir("b/nd").unwrap();
    world.close();
    let total = |out: &str| out.lines().last().unwrap().rsplit(": ").next().unwrap().to_owned();
    let (out, _) = said(&apply(&world, &["--dry-run"]), 0);
    assert_eq!(total(&out), "1 moved, 1 link, 1 new directory, times of 1 directory");
    world.open_again();
    world.put("b/new", "new");
    world.link("b/new", "b/new2").unwrap();
    world.close();
    let (out, _) = said(&apply(&world, &["--dry-run"]), 0);
    let wanted = "1 file to write (3 B), 1 moved, 2 links, 1 new directory, times of 1 directory";
    assert_eq!(total(&out), wanted);
    for how in ["--dry-run", "--yes"] {
        let (out, _) = said(&apply(&world, &[how, "--json"]), 0);
        let objects = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let plan = objects.into_iter().find(|object| object["type"] == "plan").unwrap();
        let numbers = ["moves", "links", "new_dirs"].map(|key| plan[key].as_u64());
        assert_eq!(numbers, [Some(1), Some(2), Some(1)], "{how}: {plan}");
        world.change_base();
    }
}

#[test]
fn a_copy_in_which_nothing_changed_is_dropped_where_nothing_else_is_applied() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir_all(dir.join("base/sub")).unwrap();
    fs::write(dir.join("base/sub/file"), "old").unwrap();
    let done = |args: &[&str]| {
        let ran = run(dir, args);
        assert!(ran.status.success(), "{args:?}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    done(&["init", "s.db", "--base", "base"]);
    done(&["chmod", "s.db", "600", "sub/file"]);
    done(&["chmod", "s.db", "644", "sub/file"]);
    fs::write(dir.join("base/sub/file"), "person").unwrap();
    let plan = "= /sub/file: the session changed nothing of it: what the base has shows again\n";
    assert!(done(&["apply", "s.db", "-n"]).starts_with(plan));
    assert_eq!(done(&["cat", "s.db", "sub/file"]), "old");
    let json = done(&["apply", "s.db", "-n", "--json"]);
    assert!(json.contains(r#""type":"unchanged""#) && json.contains(r#""/sub/file""#), "{json}");
    assert!(done(&["apply", "s.db", "--yes"]).starts_with(plan));
    assert_eq!(done(&["cat", "s.db", "sub/file"]), "person");
    assert!(done(&["apply", "s.db", "--yes"]).starts_with("nothing to apply"));
}

#[test]
fn objects_that_only_get_attributes_are_in_the_json_total() {
    let mut world = World::new("mode \"1\"\nother \"2\"\ntime \"3\"\nd/f \"4\"\ne/f \"5\"\n");
    world.chmod("mode", 0o600).unwrap();
    world.chmod("other", 0o600).unwrap();
    world.chmod("d", 0o700).unwrap();
    world.put("e/new", "new");
    world.close();
    let session = world.session();
    said(&run(world.scratch(), &["touch", session.to_str().unwrap(), "/time"]), 0);
    let (out, _) = said(&apply(&world, &["--dry-run", "--json"]), 0);
    let plan: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    let keys = ["modes", "owners", "times", "dir_attributes", "dir_times"];
    assert_eq!(keys.map(|key| plan[key].as_u64()), [2, 0, 1, 1, 1].map(Some), "{plan}");
    let (out, _) = said(&apply(&world, &["--dry-run"]), 0);
    let wanted = "mode of 2 files, time of 1 file, mode or owner of 1 directory, times of 1 \
                  directory\n";
    assert!(out.ends_with(wanted), "{out}");
}

/// A directory whose time alone changes has no line in the plan, and does not count.
#[test]
fn what_was_applied_is_counted_as_the_plan_and_diff_count() {
    let tree = "dir/file \"1\"\nother \"other\"\ngone/a \"a\"\ngone/b \"b\"\ngone/c \"c\"\n";
    let mut world = World::new(tree);
    world.write("other", 0, b"mine!").unwrap();
    world.put("dir/new", "new");
    world.rm_rf("gone");
    world.close();
    let base = world.change_base();
    fs::write(base.join("other"), "a\nperson's\n").unwrap();
    let session = world.session();
    let names = run(world.scratch(), &["diff", session.to_str().unwrap(), "--name-only"]).stdout;
    assert_eq!(names.iter().filter(|&&byte| byte == b'\n').count(), 6);
    let (out, _) = said(&apply(&world, &["--yes", "--skip-drifted"]), 1);
    assert!(out.ends_with(": 5 applied, 1 skipped: the session keeps those\n"), "{out}");
}

#[test]
fn the_bases_mode_of_a_directory_is_taken_and_what_the_session_has_in_it_stays() {
    let mut world = World::new("d/x \"x\"\n");
    world.chmod("d", 0o700).unwrap();
    world.put("d/new", "agent");
    world.put("d/later", "agent");
    world.close();
    let base = world.change_base();
    fs::set_permissions(base.join("d"), fs::Permissions::from_mode(0o711)).unwrap();
    let take = ["--yes", "--take", "base", "d", "--exclude", "d/later"];
    let (_, err) = said(&apply(&world, &take), 0);
    let stays = "1 object stays as the base has it (--take base); the session gave up its own";
    assert!(err.contains(stays) && err.ends_with("\n/d (mode or owner)\n"), "{err}");
    assert_eq!(fs::read(base.join("d/new")).unwrap(), b"agent");
    assert!(!base.join("d/later").exists());
    let session = world.session();
    let diff = run(world.scratch(), &["diff", session.to_str().unwrap()]);
    assert_eq!(String::from_utf8(diff.stdout).unwrap(), "A /d/later\n");
    said(&apply(&world, &["--yes"]), 0);
    assert_eq!(fs::read(base.join("d/later")).unwrap(), b"agent");
    assert_eq!(fs::metadata(base.join("d")).unwrap().permissions().mode() & 0o7777, 0o711);
}

/// A session over a directory in which git ignores `*.o`: one directory is gone and one moved, each
/// with such a file, and a file is written.
fn with_ignored() -> World {
    let tree =
        "gone/x \"x\"\ngone/k.o \"o\"\nold/m \"m\"\nold/k.o \"o\"\ntop \"top\"\n.gitignore \"*.o\"";
    let mut world = World::new(tree);
    world.rm_rf("gone");
    world.rename("old", "moved").unwrap();
    world.write("top", 0, b"TOP").unwrap();
    world.keep_removed();
    world.close();
    world.change_base();
    world
}

#[test]
fn what_holds_ignored_files_is_counted_with_how_to_apply_it() {
    let world = with_ignored();
    let session = world.session();
    let next = format!(
        "a directory that holds what is not chosen stays: without --gitignore, \
         `acetate apply {} /moved` applies it whole\n",
        session.display()
    );
    let (_, err) = said(&apply(&world, &["--dry-run", "--gitignore"]), 1);
    assert_eq!(err, next);
    let copy = world.scratch().join("copy");
    crate::support::applied::copy(&world.base(), &copy);
    let to = copy.to_str().unwrap();
    let (_, err) = said(&apply(&world, &["--dry-run", "--exclude", "*.o", "--to", to]), 1);
    assert!(err.contains(&format!(" --to {to} /moved` applies it whole")), "{err}");
    let (_, err) = said(&apply(&world, &["--dry-run", "moved", ":!moved/k.o"]), 1);
    assert!(err.contains("stays: without ':!moved/k.o', `acetate"), "{err}");
    let (out, err) = said(&apply(&world, &["--yes", "--gitignore"]), 1);
    assert!(out.ends_with(": 1 applied, 2 skipped: the session keeps those\n"), "{out}");
    assert!(err.contains(&next), "{err}");
    said(&apply(&world, &["--yes", "/moved"]), 0);
    assert!(world.base().join("moved/k.o").exists());
    let (out, err) = said(&apply(&world, &["--yes", "--json", "--exclude", "k.o"]), 1);
    assert!(out.contains(r#""changes":0,"skipped":1,"#), "{out}");
    assert!(err.contains("/gone` applies it whole"), "{err}");
}

#[test]
fn what_is_left_to_the_base_is_not_listed_as_removed() {
    let world = with_ignored();
    fs::write(world.base().join("gone/x"), "person").unwrap();
    let (out, _) = said(&apply(&world, &["--dry-run", "--skip-drifted", "gone"]), 1);
    assert!(!out.contains("D /gone") && out.contains("! /gone/x: "), "{out}");
    assert!(
        out.contains(
            "- /gone: holds /gone/x: created or changed in the base since /gone was deleted\n"
        ),
        "{out}"
    );
    let (out, _) = said(&apply(&world, &["--yes", "--take", "base", "gone"]), 0);
    assert!(!out.contains("D /gone"), "{out}");
    assert!(
        out.contains("! /gone/x: created or changed in the base since /gone was deleted; stays"),
        "{out}"
    );
    assert!(world.base().join("gone/k.o").exists());
}

#[test]
fn one_file_of_a_removed_directory_is_left_to_the_base_alone() {
    let mut world = World::new("d/f1 \"1\"\nd/f2 \"2\"\nd/f3 \"3\"\nd/sub/f4 \"4\"\nother \"o\"\n");
    world.rm_rf("d");
    world.write("other", 0, b"mine").unwrap();
    world.keep_removed();
    world.close();
    let base = world.change_base();
    for name in ["d/f2", "d/sub/f4"] {
        fs::write(base.join(name), "a person's").unwrap();
    }
    let (out, _) = said(&apply(&world, &["--yes", "--take", "base", "d/f2"]), 1);
    assert!(
        out.contains("! /d/sub/f4: created or changed in the base since /d was deleted\n"),
        "{out}"
    );
    let sides = ["--yes", "--take", "base", "d/f2", "--take", "base", "d/sub"];
    let (out, err) = said(&apply(&world, &sides), 1);
    assert!(out.contains("- /d: holds /d/f2, which stays as the base has it"), "{out}");
    assert!(err.ends_with("shows the base there:\n/d/f2\n/d/sub/f4\n"), "{err}");
    assert_eq!(fs::read(base.join("other")).unwrap(), b"mine");
    let session = world.session();
    let session = session.to_str().unwrap();
    let (out, _) = said(&run(world.scratch(), &["diff", session]), 1);
    assert_eq!(out, "D /d/f1\nD /d/f3\n");
    let (out, _) = said(&run(world.scratch(), &["cat", session, "/d/f2"]), 0);
    assert_eq!(out, "a person's");
    said(&run(world.scratch(), &["check", session]), 0);
    said(&apply(&world, &["--yes"]), 0);
    let mut left: Vec<_> = fs::read_dir(base.join("d")).unwrap().map(|e| e.unwrap()).collect();
    left.sort_by_key(|entry| entry.file_name());
    assert_eq!(left.iter().map(|e| e.file_name()).collect::<Vec<_>>(), ["f2", "sub"]);
    assert_eq!(fs::read(base.join("d/sub/f4")).unwrap(), b"a person's");
}

#[test]
fn one_file_of_a_replaced_directory_is_not_left_to_the_base_alone() {
    let mut world = World::new("d/f1 \"1\"\nd/f2 \"2\"\n");
    world.rm_rf("d");
    world.put("d", "a file");
    world.keep_removed();
    world.close();
    fs::write(world.change_base().join("d/f2"), "a person's").unwrap();
    let (_, err) = said(&apply(&world, &["--yes", "--take", "base", "d/f2"]), 2);
    let what = "error: /d/f2: cannot come back without the rest of /d\n\
                hint: name that directory itself with --take base\n";
    assert_eq!(err, what);
    said(&apply(&world, &["--yes", "--take", "base", "d"]), 0);
    assert_eq!(fs::read(world.base().join("d/f2")).unwrap(), b"a person's");
}

#[test]
fn in_what_a_copy_differs_is_said() {
    let tree = "gone \"1\"\nother \"other\"\nmode \"m\"\nlink -> gone\nkind \"k\"";
    let mut world = World::new(tree);
    for name in ["gone", "other", "mode", "kind"] {
        world.write(name, 0, b"W").unwrap();
    }
    world.remove("link").unwrap();
    world.put("new", "new");
    world.close();
    let copy = world.scratch().join("copy");
    crate::support::applied::copy(&world.base(), &copy);
    fs::remove_file(copy.join("gone")).unwrap();
    fs::write(copy.join("other"), "copys").unwrap();
    fs::set_permissions(copy.join("mode"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(copy.join("link")).unwrap();
    symlink("other", copy.join("link")).unwrap();
    fs::remove_file(copy.join("kind")).unwrap();
    fs::create_dir(copy.join("kind")).unwrap();
    fs::write(copy.join("new"), "theirs").unwrap();
    let (out, _) = said(&apply(&world, &["--dry-run", "--to", copy.to_str().unwrap()]), 1);
    for (name, what) in [
        ("gone", "it is not there"),
        ("kind", "another type"),
        ("link", "another target"),
        ("new", "the base has nothing there"),
        ("other", "another content"),
    ] {
        let line = format!("! /{name}: differs from the base in this copy: {what}\n");
        assert!(out.contains(&line), "{line}{out}");
    }
}

#[test]
fn a_second_apply_does_not_end_what_undo_takes_back() {
    let mut world = World::new("b \"1\"\nother \"other\"\nd/f \"f\"");
    world.link("b", "d/link").unwrap();
    world.write("other", 0, b"OTHER").unwrap();
    world.close();
    let base = world.change_base();
    fs::write(base.join("b"), "1 and a person's").unwrap();
    said(&apply(&world, &["--yes", "/d/link", "/other"]), 0);
    let session = world.session();
    let diff = run(world.scratch(), &["diff", session.to_str().unwrap()]);
    assert_eq!((diff.status.code(), &diff.stdout[..]), (Some(0), &b""[..]));
    said(&apply(&world, &["--yes"]), 0);
    said(&apply(&world, &["--yes", "--undo"]), 0);
    assert_eq!(fs::read(base.join("other")).unwrap(), b"other");
    assert!(!base.join("d/link").exists());
}

#[test]
fn a_directory_that_only_the_copy_has_keeps_what_is_in_it() {
    let mut world = World::new("d/a \"a\"\nd/e/b \"b\"\n");
    world.write("d/a", 0, b"A").unwrap();
    world.close();
    let base = world.change_base();
    let copy = world.scratch().join("copy");
    crate::support::applied::copy(&base, &copy);
    fs::remove_dir_all(base.join("d")).unwrap();
    fs::write(copy.join("d/own"), "mine").unwrap();
    let to = copy.to_str().unwrap();
    said(&apply(&world, &["--yes", "--to", to, "--take", "session", "d", "--no-keep"]), 0);
    for (path, content) in [("d/a", "A"), ("d/own", "mine"), ("d/e/b", "b")] {
        assert_eq!(fs::read_to_string(copy.join(path)).unwrap(), content, "{path}");
    }
}

#[test]
fn a_directory_that_both_sides_made_is_made_in_a_copy_without_it() {
    let mut world = World::new("d/a \"a\"\n");
    world.mkdir("z").unwrap();
    world.put("z/n", "n");
    world.close();
    let base = world.change_base();
    let copy = world.scratch().join("copy");
    crate::support::applied::copy(&base, &copy);
    fs::create_dir(base.join("z")).unwrap();
    let to = copy.to_str().unwrap();
    said(&apply(&world, &["--yes", "--to", to, "--force"]), 0);
    assert_eq!(fs::read_to_string(copy.join("z/n")).unwrap(), "n");
}

#[test]
fn the_mode_of_a_directory_that_both_sides_made_is_drift() {
    let mut world = World::new("d/a \"a\"\n");
    world.mkdir("z").unwrap();
    world.put("z/n", "n");
    world.close();
    let base = world.change_base();
    fs::create_dir(base.join("z")).unwrap();
    fs::set_permissions(base.join("z"), fs::Permissions::from_mode(0o700)).unwrap();
    let (out, _) = said(&apply(&world, &["--yes"]), 1);
    assert!(out.contains("! /z: "), "{out}");
    assert_eq!(fs::metadata(base.join("z")).unwrap().permissions().mode() & 0o7777, 0o700);
    said(&apply(&world, &["--yes", "--take", "base", "z"]), 0);
    assert_eq!(fs::metadata(base.join("z")).unwrap().permissions().mode() & 0o7777, 0o700);
    assert_eq!(fs::read_to_string(base.join("z/n")).unwrap(), "n");
}

/// `diff` lists what is in a removed directory; `apply` can only remove it whole.
#[test]
fn what_is_chosen_in_a_removed_directory_is_left_out_and_said() {
    let mut world = World::new("dir/file \"1\"\ndir/other \"2\"\nkept \"3\"\n");
    world.close();
    let session = world.session();
    let session = session.to_str().unwrap();
    said(&run(world.scratch(), &["rm", "-r", session, "dir"]), 0);
    for asked in ["dir/file", "dir/f*"] {
        let (out, err) = said(&apply(&world, &["--yes", asked]), 1);
        let why = "- /dir: was removed whole, with /dir/file, which is chosen: name the \
                   directory to remove it\n";
        assert!(out.starts_with(why), "{out}");
        assert!(!err.contains("no change matches"), "{err}");
    }
    world.change_base();
    said(&apply(&world, &["--yes", "dir"]), 0);
    assert!(!world.base().join("dir").exists());
}

#[test]
fn a_move_that_is_left_out_has_one_line_with_both_names() {
    let mut world = World::new("file \"1\"\nother \"2\"\n");
    world.rename("file", "moved").unwrap();
    world.close();
    fs::remove_file(world.change_base().join("file")).unwrap();
    let (out, _) = said(&apply(&world, &["--dry-run", "--skip-drifted"]), 1);
    let line = "! /file -> /moved: was removed in the base; skipped (--skip-drifted)\n";
    assert!(out.starts_with(line), "{out}");
}

#[test]
fn a_file_saved_anew_without_a_change_is_not_written_for_a_link() {
    let mut world = World::new("file \"1\"\n");
    world.close();
    let session = world.session();
    said(&run(world.scratch(), &["ln", session.to_str().unwrap(), "file", "link"]), 0);
    let base = world.change_base();
    let copied = Command::new("cp").args(["-a", "file", "saved"]).current_dir(&base).status();
    assert!(copied.unwrap().success());
    fs::rename(base.join("saved"), base.join("file")).unwrap();
    let number = || fs::metadata(base.join("file")).unwrap().ino();
    let saved = number();
    let (out, _) = said(&apply(&world, &["--yes"]), 0);
    assert!(out.starts_with("A /link (link)\n"), "{out}");
    assert_eq!((number(), fs::metadata(base.join("link")).unwrap().ino()), (saved, saved));
}

/// In JSON, as in the text: a directory whose time alone changes is no change, and all that a
/// removed directory held are changes.
#[test]
fn json_counts_changes_as_diff_does() {
    let mut world = World::new("d/f \"1\"\ngone/a \"a\"\ngone/sub/b \"b\"\n");
    world.put("d/n", "new");
    world.mkdir("made").unwrap();
    world.put("made/x", "x");
    world.rm_rf("gone");
    world.close();
    world.change_base();
    let session = world.session();
    let names = run(world.scratch(), &["diff", session.to_str().unwrap(), "--name-only"]).stdout;
    let shown = names.iter().filter(|&&byte| byte == b'\n').count();
    assert_eq!(shown, 7);
    let counts = |args: &[&str]| -> Vec<(String, usize)> {
        let (out, _) = said(&apply(&world, &[args, &["--yes", "--json"]].concat()), 0);
        let objects = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let count = |object: Value| {
            let changes = object["changes"].as_u64()?;
            Some((object["type"].as_str()?.to_owned(), changes as usize))
        };
        objects.filter_map(count).collect()
    };
    let of = |plan: &str| [plan, "applied"].map(|kind| (kind.to_owned(), shown));
    assert_eq!(counts(&[]), of("plan"));
    assert_eq!(counts(&["--undo"]), of("undo_plan"));
    assert_eq!(counts(&["--undo"]), of("undo_plan"), "again");
}

#[test]
fn a_side_that_is_none_is_said_before_its_path() {
    let world = World::new("file \"1\"\n");
    let (_, err) = said(&apply(&world, &["--take", "foo", "nowhere"]), 2);
    assert!(err.starts_with("error: --take foo: not a side\n"), "{err}");
    assert!(err.contains("the sides are `session` and `base`"), "{err}");
}

#[test]
fn what_the_base_changed_is_in_no_other_line_and_no_other_total() {
    let mut world = World::new("a \"1\"\nd/f1 \"1\"\nd/f2 \"2\"\n");
    world.put("a", "an agent's");
    world.rm_rf("d");
    world.mkdir("new").unwrap();
    world.put("new/x", "x");
    world.keep_removed();
    world.close();
    let base = world.change_base();
    for name in ["a", "d/f1"] {
        fs::write(base.join(name), "a person's").unwrap();
    }
    let (out, _) = said(&apply(&world, &["--dry-run"]), 1);
    let lines: Vec<_> = out.lines().collect();
    assert!(lines[0].starts_with("A /new/ (1 file"), "{out}");
    assert!(lines[1].starts_with("! /a: ") && lines[2].starts_with("! /d/f1: "), "{out}");
    let sum = ": 1 file to write (1 B), 1 new directory, ";
    assert!(lines[3].contains(sum), "{out}");
    assert!(lines[3].ends_with("2 drifted"), "{out}");
    let (out, _) = said(&apply(&world, &["--dry-run", "--force"]), 0);
    assert!(
        out.contains("D /d/ (2 files") && out.contains(": 2 files to write (11 B), 1 to"),
        "{out}"
    );
}
