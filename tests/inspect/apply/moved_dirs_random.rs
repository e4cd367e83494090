//! A session removes, makes and moves directories, and a person moves others to these places: no
//! apply loses what the person had in them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use acetate::inspect::apply::{ApplyOptions, Consent, apply};
use acetate::vfs::FileKind;

use super::open;
use super::undo::go_on;
use super::undo_random::{Case, Random, cases, change_both, texts};
use crate::support::applied::planned;
use crate::support::world::World;

/// So many worlds, which are changed at the same moments.
const CASES: u64 = 48;

const TREE: &str = r#"
    d/s/x "d/s/x"
    d/x "d/x"
    e/s/y "e/s/y"
    e/x "e/x"
"#;

const DIRS: [&str; 6] = ["d", "e", "n", "d/s", "e/s", "n/s"];
const NAMES: [&str; 3] = ["x", "y", "z"];

fn is_dir(world: &World, path: &str) -> bool {
    world.find(path).is_ok() && world.stat(path).kind == FileKind::Directory
}

/// Some of these fail, since nothing is there, or something is.
fn change_session(world: &World, random: &mut Random) {
    let [dir, other] = [DIRS; 2].map(|dirs| dirs[random.below(dirs.len())]);
    let has_parent =
        |path: &str| path.rsplit_once('/').is_none_or(|(parent, _)| is_dir(world, parent));
    if !is_dir(world, dir) {
        if has_parent(dir) && !world.exists(dir) {
            world.mkdir(dir).unwrap();
        }
        return;
    }
    match random.below(6) {
        0 => world.rm_rf(dir),
        1 if has_parent(other) => {
            let _may_fail = world.rename(dir, other);
        }
        _ => {
            let file = format!("{dir}/{}", NAMES[random.below(3)]);
            if !world.exists(&file) {
                world.put(&file, "session");
            } else if random.below(2) == 0 {
                world.remove(&file).unwrap();
            } else {
                world.write(&file, 0, b"session").unwrap();
            }
        }
    }
}

/// Directories outside the base, as old as all that is in it.
fn set_aside(outside: &Path) -> BTreeSet<String> {
    let mut written = BTreeSet::new();
    for number in 0..3 {
        let dir = outside.join(number.to_string());
        fs::create_dir_all(dir.join("s")).unwrap();
        for name in NAMES {
            for file in [name.to_owned(), format!("s/{name}")] {
                let text = format!("person's {number}/{file}");
                fs::write(dir.join(&file), &text).unwrap();
                written.insert(text);
            }
        }
    }
    written
}

/// Moves a directory into the base, or within it; what is there goes out of it.
fn change_base(base: &Path, outside: &Path, random: &mut Random) {
    let to = base.join(DIRS[random.below(DIRS.len())]);
    let from = match random.below(3) {
        0 => base.join(DIRS[random.below(DIRS.len())]),
        _ => outside.join(random.below(6).to_string()),
    };
    if from.is_dir() && !to.starts_with(&from) && !from.starts_with(&to) {
        let free = (3..).map(|number: u32| outside.join(number.to_string()));
        let kept = free.into_iter().find(|path| !path.exists()).unwrap();
        let _may_be_absent = fs::rename(&to, kept);
        let _may_have_no_parent = fs::rename(from, to);
    }
}

#[test]
fn nothing_that_a_person_moved_into_the_base_is_lost() {
    let outside = |world: &World| world.scratch().join("outside");
    let mut cases = cases(0..CASES, TREE, |world, _| set_aside(&outside(world)));
    let clients = |world: &World, random: &mut Random| {
        for _ in 0..1 + random.below(6) {
            change_session(world, random);
        }
    };
    change_both(&mut cases, clients, |Case { world, random, .. }| {
        for _ in 0..1 + random.below(3) {
            change_base(&world.base(), &outside(world), random);
        }
    });
    let mut lost = Vec::new();
    for Case { seed, world, written, .. } in &cases {
        let before = texts(&world.base(), written);
        // What nothing tells of is removed if it is named.
        let options = ApplyOptions { skip_drifted: true, keep: None, ..super::only(&DIRS) };
        let opened = open(world);
        let plan = planned(&opened, None, &options).unwrap();
        apply(&opened, None, &options, Consent::Shown(&plan), None, &mut go_on).unwrap();
        let after = texts(&world.base(), written);
        if before != after {
            lost.push((*seed, before.difference(&after).cloned().collect::<Vec<_>>()));
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
}
