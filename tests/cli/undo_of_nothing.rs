//! An apply that writes nothing, or is refused: there is nothing to undo of it, and the undo
//! of an earlier one stays.

use std::fs;
use std::process::Output;

use super::program::{run, said};
use crate::support::world::World;

fn apply(world: &World, args: &[&str]) -> Output {
    let session = world.session();
    run(world.scratch(), &[&["apply", session.to_str().unwrap()], args].concat())
}

#[test]
fn an_apply_that_writes_nothing_has_no_undo_and_ends_none() {
    let mut world = World::new("first \"1\"\nother \"2\"\n");
    world.put("first", "an agent's");
    world.close();
    fs::write(world.change_base().join("first"), "a person's").unwrap();
    let undo_dir = world.scratch().join("session.db-undo");
    let (out, err) = said(&apply(&world, &["--yes", "--skip-drifted"]), 1);
    assert!(out.contains("nothing was written"), "{out}");
    assert!(!err.contains("--undo"), "{err}");
    assert!(!undo_dir.exists());
    let session = world.session();
    let (out, _) = said(&run(world.scratch(), &["status", session.to_str().unwrap()]), 1);
    assert!(!out.contains("undo"), "{out}");
    // An earlier one stays.
    world.open_again();
    world.put("other", "an agent's");
    world.close();
    said(&apply(&world, &["--yes", "--skip-drifted"]), 1);
    said(&apply(&world, &["--yes", "--skip-drifted"]), 1);
    let copy = world.scratch().join("copy");
    crate::support::applied::copy(&world.base(), &copy);
    fs::write(copy.join("first"), "another person's").unwrap();
    // An apply that is refused ends nothing, and does not say so.
    let (out, _) = said(&apply(&world, &["--yes", "--to", copy.to_str().unwrap()]), 1);
    assert!(out.contains("! /first") && !out.contains("ends the undo"), "{out}");
    said(&apply(&world, &["--yes", "--undo"]), 0);
    assert_eq!(fs::read(world.base().join("other")).unwrap(), b"2");
}

#[test]
fn an_apply_after_an_undo_is_refused_before_it_shows_or_asks() {
    let mut world = World::new("first \"1\"\n");
    world.put("first", "an agent's");
    world.close();
    world.change_base();
    said(&apply(&world, &["--yes"]), 0);
    said(&apply(&world, &["--yes", "--undo"]), 0);
    world.open_again();
    world.put("later", "later");
    world.close();
    let (out, err) = said(&apply(&world, &["--yes"]), 2);
    assert_eq!(out, "");
    assert!(err.starts_with("error: the last apply was undone, and only the copies"), "{err}");
}
