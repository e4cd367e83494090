//! What depends on a change that is left out is left out too, and can be applied later.

use std::fs;
use std::path::{Path, PathBuf};

use acetate::inspect::apply::ApplyOptions;

use super::drift::LONG_AGO;
use super::{apply_served, only, open, path};
use crate::support::applied::{all, planned};
use crate::support::world::World;

const TREE: &str = r#"
    a/file "file"
    a/sub/deep "deep"
    d/x "x"
    f "f"
    g "g"
"#;

/// A world in which the session changes long before what a person changes then.
fn changed_long_ago() -> World {
    let world = World::new(TREE);
    world.tick(LONG_AGO - world.now());
    world
}

fn persons_base(world: &mut World) -> PathBuf {
    world.keep_removed();
    world.change_base()
}

fn skipping() -> ApplyOptions {
    ApplyOptions { skip_drifted: true, ..all() }
}

/// What is left out of the plan; asserts that all else is done.
#[track_caller]
fn left_out(world: &World, options: &ApplyOptions) -> Vec<String> {
    let plan = planned(&open(world), None, options).unwrap();
    let report = apply_served(world, options);
    assert_eq!(report.skipped, plan.left_out);
    assert_eq!(report.applied.len() + plan.left_out.len(), plan.changes.len());
    let mut left = plan.left_out;
    left.sort_by(|a, b| a.path.cmp(&b.path));
    left.into_iter().map(|left| format!("{}: {}", left.path.display(), left.why)).collect()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn directories_keep_their_times_if_all_else_is_left_out() {
    let mut world = changed_long_ago();
    world.put("a/new", "agent");
    world.put("new", "agent");
    let base = persons_base(&mut world);
    fs::write(base.join("a/new"), "person").unwrap();
    fs::write(base.join("new"), "person").unwrap();
    let times = || ["", "a"].map(|dir| fs::metadata(base.join(dir)).unwrap().modified().unwrap());
    let before = times();
    let options = ApplyOptions { needs_difference: true, ..skipping() };
    assert_eq!(apply_served(&world, &options).skipped.len(), 2);
    assert_eq!(times(), before);
    assert_eq!((text(&base.join("a/new")), world.cat("a/new")), ("person".into(), "agent".into()));
}

#[test]
fn what_is_in_a_directory_that_is_not_made() {
    let mut world = changed_long_ago();
    world.mkdir("n").unwrap();
    world.mkdir("n/sub").unwrap();
    world.put("n/sub/new", "agent");
    world.rename("g", "n/g").unwrap();
    world.put("h", "agent");
    let base = persons_base(&mut world);
    fs::write(base.join("n"), "person").unwrap();
    let plan = planned(&open(&world), None, &skipping()).unwrap();
    assert_eq!((plan.files, plan.bytes, plan.deletions), (1, 5, 0));
    let inside = |name: &str| format!("/n{name}: in /n, which is left out");
    let top = "/n: created or changed in the base too".to_owned();
    let wanted = [top, inside("/g"), inside("/sub"), inside("/sub/new")];
    assert_eq!(left_out(&world, &skipping()), wanted);
    let read = ["n", "g", "h"].map(|name| text(&base.join(name)));
    assert_eq!(read, ["person", "g", "agent"]);
    assert_eq!(left_out(&world, &skipping()), wanted);
    fs::remove_file(base.join("n")).unwrap();
    assert_eq!(left_out(&world, &all()), [""; 0]);
    assert_eq!(["n/g", "n/sub/new"].map(|name| text(&base.join(name))), ["g", "agent"]);
}

#[test]
fn what_is_in_a_directory_that_is_not_moved_and_what_takes_its_place() {
    let mut world = changed_long_ago();
    world.rename("a", "b").unwrap();
    world.put("b/new", "agent");
    world.rename("f", "a").unwrap();
    world.put("f", "new f");
    let base = persons_base(&mut world);
    fs::create_dir(base.join("b")).unwrap();
    fs::write(base.join("b/person"), "person").unwrap();
    let wanted = [
        "/a: its path is not free: the move from there to /b is left out",
        "/b: created or changed in the base too",
        "/b/new: in /b, which is left out",
        "/f: its path is not free: the move from there to /a is left out",
    ];
    assert_eq!(left_out(&world, &skipping()), wanted);
    assert_eq!(["a/file", "f", "b/person"].map(|at| text(&base.join(at))), ["file", "f", "person"]);
    assert!(!base.join("b/new").exists());
    fs::rename(base.join("b"), base.join("c")).unwrap();
    assert_eq!(left_out(&world, &skipping()), [""; 0]);
    let names = ["b/file", "b/new", "a", "f"];
    assert_eq!(names.map(|at| text(&base.join(at))), ["file", "agent", "f", "new f"]);
}

#[test]
fn what_is_in_a_directory_that_takes_no_files_place() {
    let mut world = changed_long_ago();
    world.remove("f").unwrap();
    world.mkdir("f").unwrap();
    world.put("f/new", "agent");
    let base = persons_base(&mut world);
    fs::write(base.join("f"), "person").unwrap();
    let left = left_out(&world, &skipping());
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(left[1], "/f/new: in /f, which is left out");
    assert_eq!(text(&base.join("f")), "person");
    assert_eq!(world.cat("f/new"), "agent");
}

/// Other attributes of a directory are no reason to leave out what is in it.
#[test]
fn what_is_in_a_directory_whose_mode_is_left_out_is_applied() {
    let mut world = changed_long_ago();
    world.chmod("a", 0o711).unwrap();
    world.put("a/new", "agent");
    let base = persons_base(&mut world);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(base.join("a"), mode).unwrap();
    assert_eq!(left_out(&world, &skipping()), ["/a: changed in the base too"]);
    assert_eq!(text(&base.join("a/new")), "agent");
    assert_eq!(world.base_mode("a") & 0o777, 0o700);
}

/// It would be removed with its directory, or get a path in it that the session does not know.
#[test]
fn a_directory_stays_with_what_does_not_move_out_of_it() {
    let ways: [fn(&World); 2] =
        [|world| world.rm_rf("d"), |world| world.rename("d", "elsewhere").unwrap()];
    for way in ways {
        let mut world = changed_long_ago();
        world.rename("d/x", "y").unwrap();
        way(&world);
        let base = persons_base(&mut world);
        fs::write(base.join("y"), "person").unwrap();
        let left = left_out(&world, &skipping());
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(left[0].ends_with(": holds /d/x, whose move to /y is left out"));
        assert_eq!((text(&base.join("d/x")), text(&base.join("y"))), ("x".into(), "person".into()));
        assert_eq!(left_out(&world, &skipping()), left);
        fs::remove_file(base.join("y")).unwrap();
        assert_eq!(left_out(&world, &skipping()), [""; 0]);
        assert_eq!(text(&base.join("y")), "x");
        assert!(!base.join("d").exists());
    }
}

/// It is one of several names of a new file.
#[test]
fn a_further_name_is_made_where_the_first_one_is_left_out() {
    let mut world = changed_long_ago();
    world.put("m", "agent");
    world.link("m", "n").unwrap();
    world.link("m", "o").unwrap();
    let base = persons_base(&mut world);
    fs::write(base.join("m"), "person").unwrap();
    let plan = planned(&open(&world), None, &skipping()).unwrap();
    assert_eq!((plan.files, plan.bytes), (1, 5));
    assert_eq!(left_out(&world, &skipping()), ["/m: created or changed in the base too"]);
    let read = ["m", "n", "o"].map(|name| text(&base.join(name)));
    assert_eq!(read, ["person", "agent", "agent"]);
    use std::os::unix::fs::MetadataExt;
    assert_eq!(fs::metadata(base.join("n")).unwrap().nlink(), 2);
}

/// What is left to the base is left whole, and is no reason to look at it again.
#[test]
fn what_is_in_a_directory_that_is_left_to_the_base() {
    let mut world = changed_long_ago();
    world.mkdir("n").unwrap();
    world.put("n/new", "agent");
    world.put("h", "agent");
    let base = persons_base(&mut world);
    fs::write(base.join("n"), "person").unwrap();
    let options = ApplyOptions { take_base: vec![path("n")], ..all() };
    let plan = planned(&open(&world), None, &options).unwrap();
    assert_eq!(plan.left_out_unasked(), 0);
    let kept: Vec<_> = plan.kept_in_base().map(|kept| &kept.path).collect();
    assert_eq!(kept, [&path("n")]);
    assert_eq!(left_out(&world, &options).len(), 2);
    assert_eq!([text(&base.join("n")), text(&base.join("h"))], ["person", "agent"]);
}

/// What the session has of it there would show what came.
#[test]
fn what_comes_to_where_the_base_removed_what_was_moved() {
    let mut world = changed_long_ago();
    world.rename("a", "b").unwrap();
    world.rename("d", "a").unwrap();
    world.rename("f", "h").unwrap();
    world.put("f", "agent");
    let base = persons_base(&mut world);
    fs::remove_dir_all(base.join("a")).unwrap();
    fs::remove_file(base.join("f")).unwrap();
    for named in ["a", "f"] {
        let refused = planned(&open(&world), None, &only(&[named])).unwrap_err();
        let what = format!("/{named}: the object that was there was moved to /");
        assert!(refused.to_string().contains(&what), "{refused}");
    }
    let wanted = [
        "/a: the move from there to /b is left out",
        "/b: was removed in the base",
        "/f: the move from there to /h is left out",
        "/h: was removed in the base",
    ];
    for _ in 0..2 {
        assert_eq!(left_out(&world, &skipping()), wanted);
        let there = ["a", "b", "f", "h"].map(|name| base.join(name).exists());
        assert_eq!((there, text(&base.join("d/x"))), ([false; 4], "x".to_owned()));
        assert_eq!(["a/x", "f", "h"].map(|at| world.cat(at)), ["x", "agent", "f"]);
    }
}
