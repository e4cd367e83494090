//! What the session removes of its rows once the base has it.

use std::fs;
use std::path::Path;

use acetate::delta::MergedPath;
use acetate::overlay::RebaseItem;

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
