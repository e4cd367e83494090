//! Giving up moves out of directories that the base lost, and gets again, as by `git checkout` of
//! another branch.

use std::fs;

use acetate::vfs::FileKind;

use super::discard::discard;
use super::lost_dirs::{self, LOST, PATHS, change_session, files};
use crate::support::random::Random;
use crate::support::world::World;

const TREE: &str = r#"
    a/d/e/g "g"
    a/d/f "f"
    a/h "h"
    b/k "k"
    z/one "linked"
    a/two = z/one
"#;

/// Runs `changes`, discards `path` while the base has lost `lost`, and gives it back to the base.
/// The number of rows in the session is returned for both states.
fn discarded_while_lost(changes: &dyn Fn(&World), lost: &str, path: &str) -> (World, [i64; 2]) {
    let mut world = World::new(TREE);
    let base = world.change_base();
    changes(&world);
    let away = world.scratch().join("away");
    fs::rename(base.join(lost), &away).unwrap();
    world.reopen();
    discard(&world, &[path]).unwrap();
    let while_lost = rows(&world);
    world.reopen();
    fs::rename(&away, base.join(lost)).unwrap();
    world.reopen();
    let after = rows(&world);
    (world, [while_lost, after])
}

/// Each file with its content.
fn contents(world: &World) -> Vec<(String, String)> {
    let mut all = Vec::new();
    files(world, "", &mut all);
    all.into_iter().map(|path| (path.clone(), world.cat(path))).collect()
}

/// How many rows the session has besides the root's.
fn rows(world: &World) -> i64 {
    let tables = [
        "fs_dentry",
        "fs_whiteout",
        "acetate_original",
        "acetate_origin",
        "acetate_redirect",
        "acetate_opaque",
        "acetate_link",
    ];
    tables.iter().map(|t| world.sql_value::<i64>(&format!("SELECT count(*) FROM {t}"))).sum()
}

#[test]
fn a_move_out_of_a_lost_directory_is_given_up_whole() {
    type Changes = &'static dyn Fn(&World);
    let cases: [(&str, Changes, &[&str], &str); 8] = [
        ("file", &|world| world.rename("a/h", "b/x").unwrap(), &["a"], "a/h"),
        ("directory", &|world| world.rename("a/d", "b/x").unwrap(), &["a"], "a/d"),
        (
            "edited before and after",
            &|world| {
                world.write("a/h", 0, b"1").unwrap();
                world.rename("a/h", "b/x").unwrap();
                world.write("b/x", 1, b"2").unwrap();
            },
            &["a"],
            "a/h",
        ),
        (
            "edited below",
            &|world| {
                world.rename("a/d", "b/x").unwrap();
                world.write("b/x/e/g", 1, b"2").unwrap();
                world.remove("b/x/f").unwrap();
            },
            &["a"],
            "a/d",
        ),
        ("deep", &|world| world.rename("a/d/e/g", "b/x").unwrap(), &["a", "a/d", "a/d/e"], "a/d/e"),
        ("deep directory", &|world| world.rename("a/d/e", "b/x").unwrap(), &["a", "a/d"], "a/d/e"),
        (
            "another file in its place",
            &|world| {
                world.rename("a/h", "b/x").unwrap();
                world.put("a/h", "session");
            },
            &["a"],
            "a/h",
        ),
        (
            "another directory in its place",
            &|world| {
                world.rename("a/d", "b/x").unwrap();
                world.mkdir("a/d").unwrap();
                world.put("a/d/f", "session");
            },
            &["a"],
            "a/d",
        ),
    ];
    let before = contents(&World::new(TREE));
    for (what, changes, lost, old) in cases {
        for lost in lost {
            for path in ["b/x", old, "a", ""] {
                let (world, rows) = discarded_while_lost(changes, lost, path);
                let what = format!("{what}, without {lost}, discard {path}");
                assert_eq!(contents(&world), before, "{what}");
                assert_eq!(rows, [0, 0], "{what}");
            }
        }
    }
}

#[test]
fn a_move_over_another_file_is_given_up_whole() {
    let before = contents(&World::new(TREE));
    let changes = |world: &World| {
        world.rename("a/h", "b/k").unwrap();
        world.keep_removed();
    };
    for path in ["b/k", "a/h", "a"] {
        let (world, rows) = discarded_while_lost(&changes, "a", path);
        assert_eq!((contents(&world), rows), (before.clone(), [0, 0]), "{path}");
    }
}

#[test]
fn hard_links_part_as_if_the_base_had_lost_nothing() {
    type Changes = &'static dyn Fn(&World);
    let cases: [(&str, Changes, &[&str]); 6] = [
        ("link", &|world| world.link("a/h", "b/x").unwrap(), &["a/h", "a", "b/x"]),
        (
            "edited link",
            &|world| {
                world.link("a/h", "b/x").unwrap();
                world.write("b/x", 0, b"1").unwrap();
            },
            &["a/h", "a", "b/x"],
        ),
        (
            "link of a moved file",
            &|world| {
                world.rename("a/h", "b/x").unwrap();
                world.link("b/x", "b/y").unwrap();
            },
            &["a/h", "a", "b/x", "b/y"],
        ),
        (
            "edited base link",
            &|world| world.write("a/two", 0, b"1").map(drop).unwrap(),
            &["a/two", "a"],
        ),
        ("moved base link", &|world| world.rename("a/two", "b/x").unwrap(), &["a/two", "b/x"]),
        (
            "edited, moved and linked base link",
            &|world| {
                world.write("a/two", 0, b"1").unwrap();
                world.rename("a/two", "b/x").unwrap();
                world.link("b/x", "b/y").unwrap();
            },
            &["a/two", "b/x"],
        ),
    ];
    for (what, changes, paths) in cases {
        for path in paths {
            let world = World::new(TREE);
            changes(&world);
            discard(&world, &[path]).unwrap();
            let expected = contents(&world);
            let (world, _) = discarded_while_lost(changes, "a", path);
            assert_eq!(contents(&world), expected, "{what}, discard {path}");
        }
    }
}

#[test]
fn a_removal_in_a_lost_directory_is_given_up() {
    type Changes = &'static dyn Fn(&World);
    let cases: [(Changes, &str); 4] = [
        (&|world| world.remove("a/h").unwrap(), "a/h"),
        (&|world| world.rm_rf("a/d"), "a/d"),
        (
            &|world| {
                world.rm_rf("a/d");
                world.put("a/d", "session");
            },
            "a/d",
        ),
        (&|world| world.rm_rf("a"), "a"),
    ];
    let before = contents(&World::new(TREE));
    for (changes, old) in cases {
        for path in [old, "a", ""] {
            let (world, rows) = discarded_while_lost(changes, "a", path);
            assert_eq!((contents(&world), rows), (before.clone(), [0, 0]), "{old}, {path}");
        }
    }
}

/// Writes to a file, or links it, if the paths that were drawn allow it.
fn change_file(world: &World, random: &mut Random) -> Option<String> {
    let [path, to] = [PATHS; 2].map(|paths| paths[random.below(paths.len())]);
    let is_file = world.find(path).is_ok_and(|found| found.attr.kind == FileKind::Regular);
    match random.below(3) {
        0 if is_file => world.write(path, 0, b"X").ok().map(|_| format!("write {path}")),
        1 if is_file && !world.exists(to) && world.exists(to.rsplit_once('/')?.0) => {
            world.link(path, to).ok().map(|()| format!("link {path} {to}"))
        }
        _ => None,
    }
}

/// So many pairs of worlds.
const CASES: u64 = 30;

#[test]
fn random_discards_do_the_same_while_the_base_has_lost_directories() {
    let cases = std::env::var("ACETATE_MODEL_CASES").ok();
    let cases = cases.map_or(CASES, |cases| cases.parse().expect("a number of cases"));
    for seed in 0..cases {
        let mut results = Vec::new();
        for is_lost in [false, true] {
            let mut random = Random::new(seed);
            let mut world = World::new(lost_dirs::TREE);
            let base = world.change_base();
            let mut done = vec![format!("seed {seed}")];
            for _ in 0..6 {
                done.extend(change_file(&world, &mut random));
                done.extend(change_session(&world, &mut random));
            }
            world.keep_removed();
            let [lost, path] = [&LOST[..], &PATHS[..]].map(|all| all[random.below(all.len())]);
            done.push(format!("lose {lost}, discard {path}"));
            let away = world.scratch().join("away");
            if is_lost {
                fs::rename(base.join(lost), &away).unwrap();
                world.reopen();
            }
            let extent = discard(&world, &[path]).unwrap();
            world.reopen();
            if is_lost {
                fs::rename(&away, base.join(lost)).unwrap();
                world.reopen();
            }
            results.push((contents(&world), world.whiteouts(), extent, done));
        }
        let [there, lost] = &results[..] else { unreachable!() };
        assert_eq!(
            (&there.0, &there.1),
            (&lost.0, &lost.1),
            "{:?} {:#?} {:#?}",
            there.3,
            there.2,
            lost.2
        );
    }
}
