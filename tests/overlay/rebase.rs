//! What the session removes of its rows once the base has it.

use std::fs;
use std::path::Path;

use acetate::delta::MergedPath;
use acetate::overlay::{MergedParts, RebaseItem, UnchangedCopy};

use crate::support::applied::copy;
use crate::support::world::World;

fn path(path: &str) -> MergedPath {
    MergedPath::from_user(path.as_bytes()).unwrap()
}

/// The object at `to`, as it was applied: it moved there from `from`.
fn moved(world: &World, from: &str, to: &str) -> RebaseItem {
    let attr = world.stat(to);
    RebaseItem {
        path: path(to),
        from: Some(path(from)),
        object: Some((attr.fileid, attr.ctime)),
        was_entry: true,
        base_ctime: None,
        was_linked: false,
        not_given: None,
        merged: MergedParts::default(),
    }
}

fn rebase(world: &World, applied: Vec<RebaseItem>) {
    world.wait(world.overlay.rebase(&world.caller, applied)).unwrap();
}

/// Puts a copy in the place of a directory: all that is in it gets other numbers.
fn replace_by_copy(dir: &Path) {
    let (copied, old) = (dir.with_extension("copy"), dir.with_extension("old"));
    copy(dir, &copied);
    fs::rename(dir, &old).unwrap();
    fs::rename(&copied, dir).unwrap();
}

#[test]
fn what_is_left_of_a_moved_directory_follows_it_in_a_base_that_was_copied() {
    let mut world = World::new("top/a/x/f \"f\"\ntop/a/g \"g\"\ntop/a/sub/h \"h\"");
    world.rename("top/a", "top/b").unwrap();
    world.rename("top/b/x", "y").unwrap();
    world.write("top/b/g", 0, b"G").unwrap();
    world.write("top/b/sub/h", 0, b"H").unwrap();
    let base = world.change_base();
    replace_by_copy(&base.join("top"));
    world.reopen();
    let applied = moved(&world, "top/a", "top/b");
    fs::rename(base.join("top/a"), base.join("top/b")).unwrap();
    // It comes again if the first answer did not arrive.
    for was_entry in [true, false] {
        rebase(&world, vec![RebaseItem { was_entry, ..applied.clone() }]);
        let redirects = "SELECT CAST(base_path AS TEXT) FROM acetate_redirect";
        assert_eq!(world.sql_list(redirects), ["top/b/x"]);
        assert_eq!(world.cat("y/f"), "f");
        let origins = "SELECT CAST(base_path AS TEXT) FROM acetate_origin
            WHERE base_path LIKE 'top/%/%' ORDER BY 1";
        assert_eq!(world.sql_list(origins), ["top/b/g", "top/b/sub", "top/b/sub/h", "top/b/x"]);
        assert_eq!((world.cat("top/b/g"), world.cat("top/b/sub/h")), ("G".into(), "H".into()));
        world.reopen();
    }
}

#[test]
fn directories_of_a_copied_base_that_changed_places_are_followed_once() {
    let mut world = World::new("top/a/f \"a\"\ntop/b/f \"b\"");
    world.rename("top/a", "top/c").unwrap();
    world.rename("top/b", "top/a").unwrap();
    world.rename("top/c", "top/b").unwrap();
    world.put("top/a/left", "left");
    world.put("top/b/left", "left");
    let base = world.change_base();
    replace_by_copy(&base.join("top"));
    world.reopen();
    let applied = [moved(&world, "top/b", "top/a"), moved(&world, "top/a", "top/b")];
    for (from, to) in [("a", "c"), ("b", "a"), ("c", "b")] {
        fs::rename(base.join("top").join(from), base.join("top").join(to)).unwrap();
    }
    for was_entry in [true, false] {
        let again = applied.iter().map(|applied| RebaseItem { was_entry, ..applied.clone() });
        rebase(&world, again.collect());
        assert_eq!((world.cat("top/a/f"), world.cat("top/b/f")), ("b".into(), "a".into()));
        assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM acetate_redirect"), 0);
        world.reopen();
    }
}

#[test]
fn a_moved_directory_waits_for_its_own_request() {
    let mut world = World::new("top/b/f \"f\"");
    world.put("top/a", "new");
    world.rename("top/b", "top/c").unwrap();
    let base = world.change_base();
    let moved = moved(&world, "top/b", "top/c");
    let first = world.stat("top/a");
    let first = RebaseItem {
        path: path("top/a"),
        from: None,
        object: Some((first.fileid, first.ctime)),
        was_entry: true,
        base_ctime: None,
        was_linked: false,
        not_given: None,
        merged: MergedParts::default(),
    };
    fs::write(base.join("top/a"), "new").unwrap();
    fs::rename(base.join("top/b"), base.join("top/c")).unwrap();
    for request in [first, moved] {
        let kept = world.wait(world.overlay.rebase(&world.caller, vec![request])).unwrap();
        assert_eq!(kept, []);
        assert_eq!(world.ls("top"), ["a", "c"]);
    }
    assert_eq!(world.cat("top/c/f"), "f");
    assert_eq!(world.whiteouts(), [""; 0]);
    // What was applied is in `top`.
    assert_eq!(entries(&world), ["top"]);
}

/// The copy at a path, as it is now.
fn copy_at(world: &World, at: &str) -> UnchangedCopy {
    let attr = world.stat(at);
    UnchangedCopy { path: path(at), object: (attr.fileid, attr.ctime), base: None }
}

fn drop_unchanged(world: &World, copies: Vec<UnchangedCopy>) {
    world.wait(world.overlay.drop_unchanged(&world.caller, copies)).unwrap();
}

/// The names of the session's entries.
fn entries(world: &World) -> Vec<String> {
    world.sql_list("SELECT CAST(name AS TEXT) FROM fs_dentry ORDER BY 1")
}

#[test]
fn a_copy_in_which_nothing_changed_lets_the_base_show_again() {
    let mut world = World::new("dir/file \"f\"\ndir/gone \"g\"\ndir/late \"l\"");
    for file in ["dir/file", "dir/gone", "dir/late"] {
        world.chmod(file, 0o600).unwrap();
        world.chmod(file, 0o644).unwrap();
    }
    let base = world.change_base();
    fs::write(base.join("dir/file"), "person").unwrap();
    fs::remove_file(base.join("dir/gone")).unwrap();
    let copies: Vec<_> =
        ["dir/file", "dir/gone", "dir/late"].iter().map(|at| copy_at(&world, at)).collect();
    // A client changes one after it was looked at.
    world.write("dir/late", 0, b"L").unwrap();
    drop_unchanged(&world, copies.clone());
    assert_eq!(world.ls("dir"), ["file", "late"]);
    assert_eq!((world.cat("dir/file"), world.cat("dir/late")), ("person".into(), "L".into()));
    assert_eq!(entries(&world), ["dir", "late"]);
    let originals = "SELECT CAST(base_path AS TEXT) FROM acetate_original";
    assert_eq!(world.sql_list(originals), ["dir/late"]);
    drop_unchanged(&world, copies);
    world.reopen();
    assert_eq!(world.ls("dir"), ["file", "late"]);
}

#[test]
fn a_copy_stays_where_another_name_of_it_does() {
    let mut world = World::new("one \"1\"\ndir/file \"f\"");
    world.link("one", "more").unwrap();
    world.rename("dir", "moved").unwrap();
    world.chmod("moved/file", 0o600).unwrap();
    world.mkdir("dir").unwrap();
    world.put("dir/file", "new");
    let copies = ["one", "moved/file", "dir/file"].map(|at| copy_at(&world, at));
    drop_unchanged(&world, copies.into());
    // What is in the moved directory is at home there, and the base does not show in the new one.
    assert_eq!(entries(&world), ["dir", "file", "more", "moved", "one"]);
    assert_eq!(world.cat("dir/file"), "new");
    assert_eq!(world.stat("moved/file").mode, world.base_mode("dir/file"));
    assert_eq!(world.stat("one").fileid, world.stat("more").fileid);
    world.remove("more").unwrap();
    let copy = copy_at(&world, "one");
    drop_unchanged(&world, vec![copy]);
    assert_eq!(entries(&world), ["dir", "file", "moved"]);
    world.reopen();
    assert_eq!(world.cat("one"), "1");
}
