//! Directories that the base loses and gets again, as by `git checkout` of another branch: whatever
//! the session does at their places meanwhile, what it moved out of them shows once.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use acetate::vfs::FileKind;

use super::discard::discard;
use crate::support::client::Client;
use crate::support::random::Random;
use crate::support::world::World;

/// So many worlds.
const CASES: u64 = 40;

/// Changes of each.
const CHANGES: usize = 16;

pub const TREE: &str = r#"
    a/d/e/g "g"
    a/d/f "f"
    a/h "h"
    b/d/k "k"
    b/l "l"
"#;

/// The directories that the base loses, an inner one before the one that holds it.
pub const LOST: [&str; 5] = ["a/d/e", "a/d", "b/d", "a", "b"];

pub const PATHS: [&str; 13] =
    ["a", "b", "a/d", "b/d", "a/d/e", "n", "n/d", "m", "a/h", "a/d/f", "a/d/e/g", "b/l", "n/x"];

/// The paths of all files below a directory, without a look at link counts: a directory's count is
/// stored, and wrong once the base has lost a directory.
pub fn files(world: &World, dir: &str, found: &mut Vec<String>) {
    for name in world.ls(dir) {
        let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
        match world.stat(&path).kind {
            FileKind::Directory => files(world, &path, found),
            FileKind::Regular => found.push(path),
            _ => {}
        }
    }
}

/// Asserts that no file of the base shows twice.
#[track_caller]
fn assert_shows_once(world: &World, what: &str) {
    let (mut all, mut seen) = (Vec::new(), BTreeMap::new());
    files(world, "", &mut all);
    for path in all {
        let content = world.cat(&path);
        if content != "session" {
            let other = seen.insert(content, path.clone());
            assert_eq!(other, None, "{what}: it is {path} too");
        }
    }
}

/// A world whose session moved `path` away, and whose base then lost `a`; where that is.
fn lost(path: &str) -> (World, PathBuf) {
    let mut world = World::new(TREE);
    let base = world.change_base();
    world.rename(path, "moved").unwrap();
    let away = world.scratch().join("away");
    fs::rename(base.join("a"), &away).unwrap();
    world.reopen();
    (world, away)
}

#[test]
fn what_is_made_in_the_place_of_a_removed_directory_hides_what_moved_out_of_it() {
    type Change = fn(&World);
    let remove: Change = |world| world.rm_rf("a");
    let changes: [(&str, Change); 9] = [
        ("removed", |_| ()),
        ("mkdir", |world| {
            world.mkdir("a").unwrap();
        }),
        ("mkdir, rmdir", |world| {
            world.mkdir("a").unwrap();
            world.rmdir("a").unwrap();
        }),
        ("mkdir, moved away", |world| {
            world.mkdir("a").unwrap();
            world.rename("a", "elsewhere").unwrap();
        }),
        ("file", |world| {
            world.put("a", "session");
            world.remove("a").unwrap();
        }),
        ("file, moved away", |world| {
            world.put("a", "session");
            world.rename("a", "elsewhere").unwrap();
        }),
        ("symlink and link", |world| {
            world.symlink("b", "a").unwrap();
            world.remove("a").unwrap();
            world.link("b/l", "a").unwrap();
            world.remove("a").unwrap();
        }),
        ("a new directory that moves there, and away", |world| {
            world.mkdir("new").unwrap();
            world.rename("new", "a").unwrap();
            world.put("a/mine", "session");
        }),
        ("a base directory that moves there, and away", |world| {
            world.rename("b", "a").unwrap();
            world.rename("a", "b").unwrap();
        }),
    ];
    for path in ["a/d", "a/h", "a/d/f"] {
        for (what, change) in changes {
            let (mut world, away) = lost(path);
            remove(&world);
            change(&world);
            world.reopen();
            fs::rename(&away, world.base().join("a")).unwrap();
            world.reopen();
            assert_shows_once(&world, &format!("{path}, {what}"));
            assert!(!world.exists("a/h"), "{path}, {what}");
            fs::rename(world.base().join("a"), &away).unwrap();
            world.reopen();
            assert_shows_once(&world, &format!("{path}, {what}"));
        }
    }
}

#[test]
fn a_lost_directory_that_moves_out_of_a_moved_one_shows_there_once_the_base_has_it_again() {
    let mut world = World::new(TREE);
    let base = world.change_base();
    world.rename("a", "m").unwrap();
    world.put("m/d/new", "session");
    let away = world.scratch().join("away");
    fs::rename(base.join("a/d"), &away).unwrap();
    world.reopen();
    world.rename("m/d", "n").unwrap();
    fs::rename(&away, base.join("a/d")).unwrap();
    world.reopen();
    let (mut in_m, mut in_n) = (Vec::new(), Vec::new());
    files(&world, "m", &mut in_m);
    files(&world, "n", &mut in_n);
    assert!(!in_m.iter().any(|path| path.starts_with("m/d/")), "{in_m:?}");
    assert!(in_n.iter().any(|path| path == "n/f") && in_n.len() > 2, "{in_n:?}");
    assert_shows_once(&world, "moved out of m");
}

#[test]
fn what_is_made_in_the_place_of_a_moved_file_hides_it() {
    type Change = fn(&World);
    let changes: [(&str, Change); 5] = [
        ("moved", |world| world.rename("a/h", "moved").unwrap()),
        ("a new file", |world| {
            world.rename("a/h", "moved").unwrap();
            world.put("a/h", "session");
            world.remove("a/h").unwrap();
        }),
        ("a new directory", |world| {
            world.rename("a/h", "moved").unwrap();
            world.mkdir("a/h").unwrap();
            world.rmdir("a/h").unwrap();
        }),
        ("a link", |world| {
            world.link("a/h", "moved").unwrap();
            world.remove("a/h").unwrap();
        }),
        ("another file that moves there, and away", |world| {
            world.rename("a/h", "moved").unwrap();
            world.rename("b/l", "a/h").unwrap();
            world.rename("a/h", "b/l").unwrap();
        }),
    ];
    for (what, change) in changes {
        let mut world = World::new(TREE);
        let base = world.change_base();
        world.chmod("a/h", 0o600).unwrap();
        let away = world.scratch().join("away");
        fs::rename(base.join("a"), &away).unwrap();
        world.reopen();
        change(&world);
        world.reopen();
        fs::rename(&away, base.join("a")).unwrap();
        world.reopen();
        assert_shows_once(&world, what);
        assert_eq!((world.cat("moved"), world.exists("a/h")), ("h".into(), false), "{what}");
    }
}

#[test]
fn a_discard_in_the_new_directory_keeps_the_rest_of_the_old_one_hidden() {
    for path in ["a/mine", "a"] {
        let (mut world, away) = lost("a/d");
        world.rm_rf("a");
        world.mkdir("a").unwrap();
        world.put("a/mine", "session");
        discard(&world, &[path]).unwrap();
        world.reopen();
        fs::rename(&away, world.base().join("a")).unwrap();
        world.reopen();
        assert_shows_once(&world, path);
        // The removal of the whole directory stays unless it is given up.
        assert_eq!(world.exists("a/h"), path == "a");
    }
}

fn is_dir(client: &Client, path: &str) -> bool {
    client.find(path).is_ok_and(|found| found.attr.kind == FileKind::Directory)
}

/// Changes the session, if what was drawn has an effect; some of these fail.
pub fn change_session(world: &World, random: &mut Random) -> Option<String> {
    let [dir, other] = [PATHS; 2].map(|paths| paths[random.below(paths.len())]);
    let has_parent =
        |path: &str| path.rsplit_once('/').is_none_or(|(parent, _)| is_dir(world, parent));
    if !has_parent(dir) {
        return None;
    }
    if !world.exists(dir) {
        match random.below(4) {
            0 => world.put(dir, "session"),
            1 => drop(world.symlink("x", dir).unwrap()),
            _ => drop(world.mkdir(dir).unwrap()),
        }
        return Some(format!("make {dir}"));
    }
    let new = format!("{dir}/new");
    match random.below(8) {
        0 if is_dir(world, dir) => world.rm_rf(dir),
        0 => world.remove(dir).unwrap(),
        1 => return discard(world, &[dir]).ok().map(|_| format!("discard {dir}")),
        2 if is_dir(world, dir) && !world.exists(&new) => {
            world.put(&new, "session");
            return Some(format!("put {new}"));
        }
        3 if world.exists(&new) => {
            return discard(world, &[&new]).ok().map(|_| format!("discard {new}"));
        }
        _ if has_parent(other) => {
            return world.rename(dir, other).ok().map(|()| format!("move {dir} {other}"));
        }
        _ => return None,
    }
    Some(format!("remove {dir}"))
}

/// The base loses a directory, or gets it again, if it can.
fn change_base(world: &World, dir: &str) -> Option<String> {
    // By the originals of replaced directories, others are not taken for the moved ones.
    world.keep_removed();
    let aside = world.scratch().join("away");
    fs::create_dir_all(&aside).unwrap();
    let (away, at) = (aside.join(dir.replace('/', "-")), world.base().join(dir));
    if away.exists() {
        return fs::rename(&away, &at).ok().map(|()| format!("back {dir}"));
    }
    fs::rename(&at, &away).ok().map(|()| format!("lose {dir}"))
}

#[test]
fn random_changes_while_the_base_loses_directories() {
    let cases = std::env::var("ACETATE_MODEL_CASES").ok();
    let cases = cases.map_or(CASES, |cases| cases.parse().expect("a number of cases"));
    for seed in 0..cases {
        let mut world = World::new(TREE);
        world.change_base();
        let mut random = Random::new(seed);
        let mut done = vec![format!("seed {seed}")];
        for _ in 0..CHANGES {
            if random.below(3) > 0 {
                done.extend(change_session(&world, &mut random));
                continue;
            }
            done.extend(change_base(&world, LOST[random.below(LOST.len())]));
            let reopened = catch_unwind(AssertUnwindSafe(|| world.reopen()));
            assert!(reopened.is_ok(), "{done:?}");
            assert_shows_once(&world, &format!("{done:?}"));
        }
        for dir in LOST.iter().rev() {
            if world.scratch().join("away").join(dir.replace('/', "-")).exists() {
                done.extend(change_base(&world, dir));
            }
        }
        world.reopen();
        assert_shows_once(&world, &format!("{done:?}"));
    }
}
