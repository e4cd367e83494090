//! What `acetate apply --undo` says of directories that stay because of what they hold.

use std::fs;
use std::process::Output;

use super::program::{run, said};
use crate::support::world::World;

fn apply(world: &World, args: &[&str]) -> Output {
    let session = world.session();
    run(world.scratch(), &[&["apply", session.to_str().unwrap()], args].concat())
}

/// The lines of stdout from the first one that does not begin with `D`, without the target.
fn notes(out: &str) -> Vec<String> {
    let lines = out.lines().filter(|line| !line.starts_with("D "));
    lines.map(|line| line.rsplit_once("base: ").map_or(line, |(_, sum)| sum).to_owned()).collect()
}

#[test]
fn a_directory_that_holds_a_changed_file_is_named_with_it() {
    let mut world = World::new("old \"1\"\n");
    let base = world.change_base();
    world.mkdir("n").unwrap();
    world.put("n/f", "f");
    world.close();
    said(&apply(&world, &["--yes"]), 0);
    fs::write(base.join("n/f"), "a person's").unwrap();
    let (out, _) = said(&apply(&world, &["--undo", "--yes", "--skip-drifted"]), 1);
    let wanted = [
        "! /n/f: changed since it was applied",
        "- /n: holds /n/f, which stays",
        "0 changes to undo, 1 not as the apply left it, 1 left out",
        "skipped /n: holds /n/f, which stays",
        "skipped /n/f: changed since it was applied",
    ];
    assert_eq!(notes(&out)[..5], wanted, "{out}");
    assert!(out.contains("2 skipped"), "{out}");
}

#[test]
fn each_directory_above_an_entry_that_came_is_named_with_it() {
    let mut world = World::new("old \"1\"\n");
    let base = world.change_base();
    for dir in ["a", "a/b"] {
        world.mkdir(dir).unwrap();
    }
    world.put("a/b/f", "f");
    world.put("a/g", "g");
    world.close();
    said(&apply(&world, &["--yes"]), 0);
    fs::write(base.join("a/b/new"), "a person's").unwrap();
    let (out, _) = said(&apply(&world, &["--undo", "--yes", "--skip-drifted"]), 1);
    let wanted = [
        "! /a/b/new: came there since the apply",
        "- /a: holds /a/b/new, which stays",
        "- /a/b: holds /a/b/new, which stays",
    ];
    assert_eq!(notes(&out)[..3], wanted, "{out}");
    assert!(notes(&out)[3].ends_with(", 1 not as the apply left it, 2 left out"), "{out}");
    for line in [
        "skipped /a: holds /a/b/new, which stays\n",
        "skipped /a/b: holds /a/b/new, which stays\n",
        "skipped /a/b/new: came there since the apply\n",
        "3 skipped",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert_eq!(fs::read(base.join("a/b/new")).unwrap(), b"a person's");
    assert!(!base.join("a/g").exists() && !base.join("a/b/f").exists());
}
