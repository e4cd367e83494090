//! Giving up what the session holds.

use std::fs;
use std::time::Duration;

use acetate::delta::MergedPath;
use acetate::overlay::{DiscardExtent, Idle, MergedParts, RebaseItem};
use acetate::vfs::FsError;

use super::paths;
use crate::support::applied::assert_makes_merged;
use crate::support::client::Result;
use crate::support::tree::{assert_same, read_tree};
use crate::support::world::World;

pub const BASE: &str = r#"
    kept "kept"
    dir/a "a"
    dir/b 755 "b"
    dir/sub/c "c"
    other/ 755
    one "linked"
    two = one
"#;

pub fn path(text: &str) -> MergedPath {
    MergedPath::from_user(text.as_bytes()).unwrap()
}

pub fn discard(world: &World, paths: &[&str]) -> Result<DiscardExtent> {
    let paths = paths.iter().map(|text| path(text)).collect();
    world.wait(world.overlay.discard(&world.caller, paths))
}

/// What the session has at these paths now was applied.
pub fn applied(world: &World, paths: &[&str]) -> Vec<RebaseItem> {
    let object = |text: &str| world.find(text).ok().map(|found| found.attr);
    let let_go = |text: &&str| RebaseItem {
        path: path(text),
        from: None,
        object: object(text).map(|attr| (attr.fileid, attr.ctime)),
        was_entry: true,
        base_ctime: None,
        was_linked: true,
        not_given: None,
        merged: MergedParts::default(),
    };
    paths.iter().map(let_go).collect()
}

pub fn rebase(world: &World, paths: &[&str]) {
    let applied = applied(world, paths);
    world.wait(world.overlay.rebase(&world.caller, applied)).unwrap();
}

fn given_up(extent: &DiscardExtent) -> Vec<String> {
    extent.paths.iter().map(|path| path.display().to_string()).collect()
}

#[test]
fn a_directory_looks_changed_when_only_the_bases_half_of_it_is_left() {
    let mut world = World::new(BASE);
    world.tick(-1_000_000_000);
    world.remove("dir/a").unwrap();
    world.put("other/born", "born");
    std::thread::sleep(Duration::from_millis(30));
    let base = world.change_base();
    std::fs::write(base.join("dir/late"), "late").unwrap();
    std::fs::write(base.join("other/late"), "late").unwrap();
    let before = ["dir", "other"].map(|dir| world.stat(dir));
    discard(&world, &["dir/a", "other"]).unwrap();
    assert_eq!(world.ls("dir"), ["a", "b", "late", "sub"]);
    assert_eq!(world.ls("other"), ["late"]);
    for (before, after) in before.iter().zip(["dir", "other"].map(|dir| world.stat(dir))) {
        assert!(before.ctime != after.ctime && before.mtime != after.mtime, "{before:?} {after:?}");
    }
}

#[test]
fn a_changed_file_shows_the_base_again() {
    let world = World::new(BASE);
    let before = world.stat("dir/a");
    world.write("dir/a", 0, b"changed").unwrap();
    world.write("kept", 0, b"changed").unwrap();
    let extent = discard(&world, &["dir/a"]).unwrap();
    assert_eq!(given_up(&extent), ["/dir/a"]);
    assert_eq!((extent.changes, extent.idle.len()), (1, 0));
    assert_eq!(world.cat("dir/a"), "a");
    assert_eq!(world.stat("dir/a"), before);
    assert_eq!(world.cat("kept"), "changed");
    // Nothing is left of it, and nothing of the directory that came along.
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM fs_dentry"), 1);
}

#[test]
fn a_client_that_has_the_file_open_reads_the_base() {
    let world = World::new(BASE);
    let handle = world.at("dir/a");
    world.write("dir/a", 0, b"changed").unwrap();
    assert_eq!(world.read_all(&handle).unwrap(), b"changed");
    discard(&world, &["dir"]).unwrap();
    assert_eq!(world.read_all(&handle).unwrap(), b"a");
    world.put("dir/new", "new");
    let born = world.at("dir/new");
    discard(&world, &["dir/new"]).unwrap();
    assert_eq!(world.getattr(&born), Err(FsError::Stale));
}

#[test]
fn what_was_deleted_comes_back_whole() {
    let world = World::new(BASE);
    let before = read_tree(&world);
    world.rm_rf("dir");
    world.put("dir", "a file now");
    discard(&world, &["/dir/"]).unwrap();
    assert_same(&read_tree(&world), &before, "discarded");
    assert_eq!(world.whiteouts(), [""; 0]);
}

#[test]
fn both_ends_of_a_rename_are_given_up() {
    let world = World::new(BASE);
    let before = read_tree(&world);
    world.rename("dir/a", "other/moved").unwrap();
    world.rename("dir", "other/tree").unwrap();
    world.write("other/tree/sub/c", 0, b"changed").unwrap();
    let extent = discard(&world, &["other/tree"]).unwrap();
    assert_eq!(given_up(&extent), ["/dir", "/other/moved", "/other/tree"]);
    assert_same(&read_tree(&world), &before, "discarded");
}

#[test]
fn a_name_in_a_moved_directory_shows_what_moved_with_it() {
    let world = World::new(BASE);
    world.rename("dir", "tree").unwrap();
    world.write("tree/a", 0, b"changed").unwrap();
    world.remove("tree/b").unwrap();
    discard(&world, &["tree/a", "tree/b"]).unwrap();
    assert_eq!((world.cat("tree/a"), world.cat("tree/b")), ("a".into(), "b".into()));
    assert!(!world.exists("dir"));
}

#[test]
fn what_cannot_be_given_up_is_said() {
    let world = World::new(BASE);
    world.rm_rf("dir");
    let extent = discard(&world, &["kept", "dir/sub/c", "nowhere"]).unwrap();
    let idle =
        |text, gone_with: Option<&str>| Idle { path: path(text), gone_with: gone_with.map(path) };
    assert_eq!(extent.paths, []);
    assert_eq!(
        extent.idle,
        [idle("kept", None), idle("dir/sub/c", Some("dir")), idle("nowhere", None)]
    );
    assert!(!world.exists("dir"));
}

#[test]
fn each_of_many_paths_is_looked_at() {
    let world = World::new(BASE);
    world.mkdir("made").unwrap();
    world.mkdir("made/deep").unwrap();
    let names: Vec<_> = (0..30).map(|n| format!("made/deep/{n}")).collect();
    names.iter().for_each(|name| world.put(name, "made"));
    world.rename("dir/sub", "moved").unwrap();
    let mut asked: Vec<_> = names[..20].iter().map(String::as_str).collect();
    asked.extend(["made/deep/30", "kept", "dir/sub", "other"]);
    let extent = discard(&world, &asked).unwrap();
    let idle: Vec<_> = extent.idle.iter().map(|idle| idle.path.display().to_string()).collect();
    assert_eq!(idle, ["/made/deep/30", "/kept", "/other"]);
    assert_eq!((extent.paths.len(), extent.changes), (22, 21));
    assert_eq!(world.ls("made/deep").len(), 10);
    assert_eq!(world.ls("dir"), ["a", "b", "sub"]);
    // A path above one that was left is touched by it.
    assert_eq!(given_up(&discard(&world, &["made", "made/deep/20"]).unwrap()), ["/made"]);
    assert!(!world.exists("made"));
}

#[test]
fn everything_can_be_given_up() {
    let mut world = World::new(BASE);
    let before = read_tree(&world);
    let root = world.stat("");
    world.rename("dir", "other/tree").unwrap();
    world.remove("kept").unwrap();
    world.write("one", 0, b"LINKED").unwrap();
    world.put("new", "new");
    world.chmod("", 0o700).unwrap();
    discard(&world, &[""]).unwrap();
    assert_same(&read_tree(&world), &before, "discarded");
    let now = world.stat("");
    assert_eq!((now.mode, now.mtime, now.nlink), (root.mode, root.mtime, root.nlink));
    assert!(now.ctime > root.ctime);
    world.reopen();
    assert_same(&read_tree(&world), &before, "and opened again");
    for table in ["fs_dentry", "fs_whiteout", "fs_data", "acetate_redirect", "acetate_link"] {
        assert_eq!(world.sql_value::<i64>(&format!("SELECT count(*) FROM {table}")), 0, "{table}");
    }
    let log = world.sql_list("SELECT procedure || ' ' || path FROM acetate_op ORDER BY id DESC");
    assert_eq!(log[0], "DISCARD /");
}

#[test]
fn what_the_base_has_by_now_is_let_go_of() {
    let mut world = World::new(BASE);
    world.write("dir/a", 0, b"changed").unwrap();
    world.remove("kept").unwrap();
    world.rename("dir/sub", "moved").unwrap();
    world.write("moved/c", 0, b"C").unwrap();
    world.put("moved/not applied", "mine");
    world.mkdir("fresh").unwrap();
    world.put("fresh/file", "file");
    let before = read_tree(&world);
    let base = world.change_base();
    std::fs::write(base.join("dir/a"), "changed").unwrap();
    std::fs::remove_file(base.join("kept")).unwrap();
    std::fs::rename(base.join("dir/sub"), base.join("moved")).unwrap();
    std::fs::write(base.join("moved/c"), "C").unwrap();
    std::fs::create_dir(base.join("fresh")).unwrap();
    std::fs::write(base.join("fresh/file"), "file").unwrap();
    rebase(&world, &["dir/a", "kept", "moved", "dir/sub", "moved/c", "fresh", "fresh/file"]);
    assert_eq!(world.cat("moved/not applied"), "mine");
    world.reopen();
    let modes_of = |tree: &crate::support::tree::Tree| {
        tree.iter().map(|(path, o)| (path.clone(), o.content.clone())).collect::<Vec<_>>()
    };
    assert_eq!(modes_of(&read_tree(&world)), modes_of(&before));
    let left = world.sql_list("SELECT CAST(name AS TEXT) FROM fs_dentry ORDER BY 1");
    // The base's directories have other times than clients saw.
    assert_eq!(left, ["dir", "fresh", "moved", "not applied"]);
    assert_eq!(world.whiteouts(), [""; 0]);
}

#[test]
fn what_the_base_has_not_stays() {
    let mut world = World::new(BASE);
    world.put("new", "new");
    world.remove("kept").unwrap();
    world.write("one", 0, b"LINKED").unwrap();
    let base = world.change_base();
    // One of two names was applied: the other keeps what was written.
    std::fs::remove_file(base.join("one")).unwrap();
    std::fs::write(base.join("one"), "LINKED").unwrap();
    rebase(&world, &["new", "kept", "one"]);
    assert_eq!(world.cat("new"), "new");
    assert!(!world.exists("kept"));
    assert_eq!((world.cat("one"), world.cat("two")), ("LINKED".into(), "LINKED".into()));
}

#[test]
fn a_read_only_export_gives_nothing_up() {
    let mut world = World::new(BASE);
    world.remove("kept").unwrap();
    world.reopen_read_only();
    assert_eq!(discard(&world, &[""]), Err(FsError::ReadOnly));
    assert!(!world.exists("kept"));
}

#[test]
fn what_moved_out_of_a_moved_directory_goes_back_into_it() {
    let mut world = World::new(BASE);
    world.rename("dir", "tree").unwrap();
    world.rename("tree/sub", "other/sub").unwrap();
    discard(&world, &["tree/sub"]).unwrap();
    assert_eq!(world.cat("tree/sub/c"), "c");
    assert!(!world.exists("other/sub") && !world.exists("dir"));
    world.reopen();
}

#[test]
fn what_shows_through_a_directory_made_anew_moves_with_it() {
    for how in ["discarded", "applied", "late"] {
        let mut world = World::new(BASE);
        world.rm_rf("dir");
        world.mkdir("dir").unwrap();
        world.mkdir("dir/sub").unwrap();
        world.put("dir/sub/new", "new");
        let base = world.change_base();
        let shown = match how {
            "discarded" => {
                discard(&world, &["dir/a", "dir/sub/c"]).unwrap();
                vec!["", "a", "sub", "sub/c", "sub/new"]
            }
            "applied" => {
                std::fs::write(base.join("dir/sub/new"), "new").unwrap();
                rebase(&world, &["dir/sub/new"]);
                vec!["", "sub", "sub/new"]
            }
            // It stays hidden: nothing of the base shows through what was made in its place.
            _ => {
                std::fs::write(base.join("dir/sub/late"), "late").unwrap();
                vec!["", "sub", "sub/new"]
            }
        };
        let below = |world: &World, dir: &str| -> Vec<String> {
            let all = paths(world).into_iter();
            all.filter_map(|p| Some(p.strip_prefix(dir)?.trim_start_matches('/').into())).collect()
        };
        assert_eq!(below(&world, "dir"), shown, "{how}");
        for (from, to) in [("dir", "moved"), ("moved", "other/moved"), ("other/moved", "dir")] {
            world.rename(from, to).unwrap();
            assert_eq!(below(&world, to), shown, "{how}: {to}");
            assert!(!world.exists(from));
            world.reopen();
            assert_eq!(below(&world, to), shown, "{how}: {to}");
        }
        world.rename("dir/sub", "dir/again").unwrap();
        world.reopen();
        assert_eq!(world.cat("dir/again/new"), "new");
        discard(&world, &["dir"]).unwrap();
        assert!(world.ls("dir").starts_with(&["a".into(), "b".into(), "sub".into()]));
    }
}

/// A directory made anew, through which the base shows again, makes a diff when it moves.
#[test]
fn a_directory_made_anew_is_applied_with_what_shows_through_it() {
    let world = World::new(BASE);
    world.rm_rf("dir");
    world.mkdir("dir").unwrap();
    discard(&world, &["dir/a", "dir/sub"]).unwrap();
    assert_makes_merged(&world.session(), &world.base());
    world.rename("dir", "moved").unwrap();
    assert_eq!(world.ls("moved"), ["a", "sub"]);
    assert_makes_merged(&world.session(), &world.base());
    world.mkdir("dir").unwrap();
    world.put("dir/a", "made");
    assert_makes_merged(&world.session(), &world.base());
    discard(&world, &["moved"]).unwrap();
    assert_eq!((world.cat("dir/a"), world.exists("moved")), ("a".into(), false));
}

/// A directory made where one moved away hides what shows there: these are not ends of one change.
#[test]
fn what_was_made_at_the_old_place_of_a_directory_is_another_object() {
    for (asked, kept) in [("tree/a", "dir/a"), ("dir/a", "tree/a")] {
        let mut world = World::new(BASE);
        world.rename("dir", "tree").unwrap();
        world.mkdir("dir").unwrap();
        world.put("dir/a", "made");
        world.write("tree/a", 0, b"edited").unwrap();
        let before = world.cat(kept);
        let extent = discard(&world, &[asked]).unwrap();
        assert_eq!(given_up(&extent), [format!("/{asked}")]);
        world.reopen();
        assert_eq!(world.cat(kept), before);
        let is_moved = asked == "tree/a";
        assert_eq!(world.ls("dir"), if is_moved { vec!["a"] } else { vec![] });
        assert_eq!(world.cat("tree/a"), if is_moved { "a" } else { "edited" });
        discard(&world, &["dir"]).unwrap();
        assert_eq!((world.cat("dir/a"), world.exists("tree")), ("a".into(), false));
    }
}

/// What moved out of a directory that is gone goes back with whatever took its place, only.
#[test]
fn what_took_the_place_of_a_directory_that_is_gone_stays() {
    let world = World::new(BASE);
    world.rename("dir/a", "moved").unwrap();
    world.rm_rf("dir");
    world.rename("other", "dir").unwrap();
    world.put("dir/a", "made");
    let extent = discard(&world, &["moved"]).unwrap();
    assert_eq!(given_up(&extent), ["/moved"]);
    assert_eq!(world.cat("dir/a"), "made");
    assert!(!world.exists("moved"));
    let world = World::new(BASE);
    let before = read_tree(&world);
    world.rename("dir/a", "moved").unwrap();
    world.rm_rf("dir");
    world.rename("other", "dir").unwrap();
    let extent = discard(&world, &["dir"]).unwrap();
    assert_eq!(given_up(&extent), ["/dir", "/moved", "/other"]);
    assert_same(&read_tree(&world), &before, "discarded");
}

#[test]
fn what_changed_since_it_was_applied_stays() {
    let mut world = World::new(BASE);
    world.write("dir/a", 0, b"applied").unwrap();
    world.remove("kept").unwrap();
    let applied = applied(&world, &["dir/a", "kept"]);
    let base = world.change_base();
    std::fs::write(base.join("dir/a"), "applied").unwrap();
    std::fs::remove_file(base.join("kept")).unwrap();
    world.write("dir/a", 0, b"LATER").unwrap();
    world.put("kept", "made again");
    world.wait(world.overlay.rebase(&world.caller, applied)).unwrap();
    assert_eq!((world.cat("dir/a"), world.cat("kept")), ("LATERed".into(), "made again".into()));
}

#[test]
fn what_a_client_removed_before_the_base_got_it_stays_removed() {
    let mut world = World::new(BASE);
    world.put("born", "born");
    world.put("renamed", "renamed");
    world.mkdir("newdir").unwrap();
    world.put("newdir/file", "file");
    let applied = applied(&world, &["born", "newdir", "newdir/file", "renamed"]);
    world.remove("born").unwrap();
    world.rename("renamed", "elsewhere").unwrap();
    world.rename("newdir", "olddir").unwrap();
    world.mkdir("newdir").unwrap();
    let base = world.change_base();
    fs::write(base.join("born"), "born").unwrap();
    fs::write(base.join("renamed"), "renamed").unwrap();
    fs::create_dir(base.join("newdir")).unwrap();
    fs::write(base.join("newdir/file"), "file").unwrap();
    let kept = world.wait(world.overlay.rebase(&world.caller, applied)).unwrap();
    assert_eq!(kept.len(), 4, "{kept:?}");
    assert!(!world.exists("born") && !world.exists("renamed"));
    assert_eq!(world.cat("elsewhere"), "renamed");
    assert_eq!(world.ls("newdir"), [""; 0]);
    assert_eq!(world.cat("olddir/file"), "file");
    world.reopen();
    assert!(!world.exists("born") && !world.exists("renamed"));
    assert_eq!(world.ls("newdir"), [""; 0]);
}

/// What came along with a moved directory cannot come back without it.
#[test]
fn what_moved_with_a_directory_comes_back_with_it() {
    let mut world = World::new(BASE);
    world.mkdir("new").unwrap();
    world.rename("dir", "new/moved").unwrap();
    world.write("new/moved/a", 0, b"A").unwrap();
    let extent = discard(&world, &["new/moved/sub/c"]).unwrap();
    let gone_with = Some(path("new/moved"));
    assert_eq!(extent.idle, [Idle { path: path("new/moved/sub/c"), gone_with }]);
    assert_eq!(given_up(&discard(&world, &["new/moved/a"]).unwrap()), ["/new/moved/a"]);
    assert_eq!(discard(&world, &["other"]).unwrap().idle[0].gone_with, None);
    world.close();
}
