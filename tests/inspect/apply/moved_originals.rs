//! Originals of files that an apply moves, and that a client changes during it: they move along, so
//! that the next apply merges what a person changed in the base.

use std::fs::{self, Permissions};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use acetate::delta::{Ino, MergedPath};
use acetate::inspect::Result;
use acetate::inspect::apply::{
    AppliedChange, ApplyEvent, ApplyOptions, Consent, DroppedCopy, SessionUpdater, apply,
};
use acetate::overlay::CopyStep;

use super::merged_meanwhile::{append, given_away, owner};
use super::{apply_served, only, open};
use crate::support::applied::{Book, all, planned};
use crate::support::world::World;

/// Updates the session twice, as after a kill between the two updates. A client makes changes
/// before.
struct Twice<'a>(&'a World, fn(&World));

impl SessionUpdater for Twice<'_> {
    fn copy(&mut self, from: Ino) -> Result<CopyStep> {
        Book(self.0).copy(from)
    }

    fn forget(&mut self, applied: &[AppliedChange], is_first: bool) -> Result<Vec<MergedPath>> {
        if is_first {
            (self.1)(self.0);
        }
        let kept = Book(self.0).forget(applied, is_first)?;
        Book(self.0).forget(applied, false)?;
        Ok(kept)
    }

    fn settle_moves(&mut self) -> Result<()> {
        Book(self.0).settle_moves()
    }

    fn drop_unchanged(&mut self, copies: &[DroppedCopy]) {
        Book(self.0).drop_unchanged(copies);
    }
}

/// Applies what `options` say, while a client makes changes.
#[track_caller]
fn apply_updating_twice(world: &World, options: &ApplyOptions, client: fn(&World)) {
    let opened = open(world);
    let plan = planned(&opened, None, options).unwrap();
    let mut go_on = |_: ApplyEvent| ControlFlow::Continue(());
    let mut updater = Twice(world, client);
    apply(&opened, None, options, Consent::Shown(&plan), Some(&mut updater), &mut go_on).unwrap();
}

/// Nothing is drift, and another apply leaves nothing.
#[track_caller]
fn assert_applies(world: &World) {
    assert_eq!(planned(&open(world), None, &all()).unwrap().drifted, []);
    assert_eq!(apply_served(world, &all()).skipped, []);
    assert_eq!(planned(&open(world), None, &all()).unwrap().changes, []);
}

/// Fifteen lines, with `first` and `last` as the first and the last one.
fn text(first: &str, last: &str) -> String {
    let between: String = (2..15).map(|line| format!("{line}\n")).collect();
    format!("{first}\n{between}{last}\n")
}

fn world(moves: &[(&str, &str)]) -> (World, PathBuf) {
    let lines = text("first", "last").escape_default().to_string();
    let tree = format!("a \"{lines}\"\nb \"{lines}\"\nd/f \"{lines}\"\ne/f \"{lines}\"\n");
    let mut world = World::new(&tree);
    world.tick(60);
    for (from, to) in moves {
        world.rename(from, to).unwrap();
    }
    world.tick(60);
    let base = world.change_base();
    (world, base)
}

fn set_last_line(file: &Path, last: &str) {
    fs::write(file, text("first", last)).unwrap();
}

#[test]
fn what_the_base_got_in_a_moved_file_stays_when_a_client_changes_the_file() {
    let (world, base) = world(&[("a", "d/a")]);
    set_last_line(&base.join("a"), "person");
    fs::set_permissions(base.join("a"), Permissions::from_mode(0o604)).unwrap();
    let is_given_away = given_away(&base.join("a"));
    apply_updating_twice(&world, &all(), |world| world.write("d/a", 0, b"agent").unwrap());
    assert_applies(&world);
    let file = base.join("d/a");
    assert_eq!(fs::read_to_string(&file).unwrap(), text("agent", "person"));
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o604);
    assert!(!is_given_away || owner(&file) == (1, 2));
}

#[test]
fn the_owner_that_the_base_gave_a_moved_file_stays_when_a_client_writes_it() {
    let (world, base) = world(&[("a", "d/a")]);
    if !given_away(&base.join("a")) {
        return;
    }
    apply_updating_twice(&world, &all(), |world| append(world, "d/a"));
    assert_applies(&world);
    assert_eq!(owner(&base.join("d/a")), (1, 2));
}

/// Of a file with two names, one removal is drift: the base seems to have changed the file since.
#[test]
fn the_owner_that_the_base_gave_a_file_stays_when_both_of_its_names_move() {
    let mut world = World::new("d/e/f \"1\"\nd/e/h = d/e/f\n");
    world.chmod("d/e/h", 0o664).unwrap();
    world.tick(-world.now());
    world.rename("d/e/f", "d/e/f2").unwrap();
    let base = world.change_base();
    if !given_away(&base.join("d/e/h")) {
        return;
    }
    world.rename("d/e/h", "d/h2").unwrap();
    let options = ApplyOptions { skip_drifted: true, ..all() };
    apply_updating_twice(&world, &options, |world| append(world, "d/h2"));
    for name in ["d/e/f2", "d/h2"] {
        apply_served(&world, &only(&[name]));
    }
    for name in ["d/e/f2", "d/h2"] {
        assert_eq!(owner(&base.join(name)), (1, 2), "{name}");
        assert_eq!(fs::read_to_string(base.join(name)).unwrap(), "1agent\n", "{name}");
    }
}

#[test]
fn files_that_exchange_places_keep_each_its_own_original() {
    let (world, base) = world(&[("a", "c"), ("b", "a"), ("c", "b")]);
    set_last_line(&base.join("a"), "person in a");
    set_last_line(&base.join("b"), "person in b");
    apply_updating_twice(&world, &all(), |world| {
        for file in ["a", "b"] {
            world.write(file, 0, b"agent").unwrap();
        }
    });
    assert_applies(&world);
    let read = |file: &str| fs::read_to_string(base.join(file)).unwrap();
    assert_eq!(read("a"), text("agent", "person in b"));
    assert_eq!(read("b"), text("agent", "person in a"));
}

#[test]
fn of_two_files_that_exchange_places_the_one_that_a_client_changes_keeps_its_original() {
    for changed in ["a", "b"] {
        let (world, base) = world(&[("a", "c"), ("b", "a"), ("c", "b")]);
        set_last_line(&base.join("a"), "person in a");
        set_last_line(&base.join("b"), "person in b");
        let change: fn(&World) = match changed {
            "a" => |world| world.write("a", 0, b"agent").unwrap(),
            _ => |world| world.write("b", 0, b"agent").unwrap(),
        };
        apply_updating_twice(&world, &all(), change);
        assert_applies(&world);
        for (file, other) in [("a", "b"), ("b", "a")] {
            let first = if file == changed { "agent" } else { "first" };
            let wanted = text(first, &format!("person in {other}"));
            assert_eq!(fs::read_to_string(base.join(file)).unwrap(), wanted, "{changed}: {file}");
        }
    }
}

/// The files' own changes conflict with the base's, and stay in the session.
#[test]
fn files_in_directories_that_exchange_places_keep_each_its_own_original() {
    let (world, base) = world(&[("d", "c"), ("e", "d"), ("c", "e")]);
    let end = text("first", "last").len() - "last\n".len();
    for file in ["d/f", "e/f"] {
        world.write(file, end as u64, b"LAST\n").unwrap();
    }
    for file in ["d/f", "e/f"] {
        set_last_line(&base.join(file), "person");
    }
    let options = ApplyOptions { skip_drifted: true, ..all() };
    apply_updating_twice(&world, &options, |_| {});
    let files = [("d/f", "of e"), ("e/f", "of d")];
    for (file, first) in files {
        assert_eq!(fs::read_to_string(base.join(file)).unwrap(), text("first", "person"));
        fs::write(base.join(file), text(first, "last")).unwrap();
    }
    assert_applies(&world);
    for (file, first) in files {
        assert_eq!(fs::read_to_string(base.join(file)).unwrap(), text(first, "LAST"), "{file}");
    }
}

/// The file conflicts; the move of its directory is applied.
#[test]
fn a_file_that_moved_out_of_a_moved_directory_is_still_known_after_an_apply_of_that() {
    let (world, base) = world(&[("d", "d2"), ("d2/f", "e/g")]);
    let end = text("first", "last").len() - "last\n".len();
    world.write("e/g", end as u64, b"LAST\n").unwrap();
    set_last_line(&base.join("d/f"), "person");
    let options = ApplyOptions { skip_drifted: true, ..only(&["d2", "e/g"]) };
    apply_updating_twice(&world, &options, |_| {});
    assert!(base.join("d2/f").exists());
    fs::write(base.join("d2/f"), text("person", "last")).unwrap();
    assert_applies(&world);
    assert_eq!(fs::read_to_string(base.join("e/g")).unwrap(), text("person", "LAST"));
    assert!(!base.join("d2/f").exists());
}
