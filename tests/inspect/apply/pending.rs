//! What a large file still has in the base is the session's before that changes there.

use std::fs;
use std::ops::ControlFlow;

use acetate::inspect::apply::{ApplyEvent, ApplyOptions, Consent, Report, apply, resume};
use acetate::overlay::CopyLimits;
use acetate::vfs::FsError;

use super::{only, open};
use crate::support::applied::{Book, planned};
use crate::support::world::{Setup, World};

const CHUNK: u64 = 512;

/// Ten chunks, each byte of which tells its chunk.
fn large() -> Vec<u8> {
    (0..10 * CHUNK).map(|at| b'a' + (at / CHUNK) as u8).collect()
}

/// What is there once its second chunk was written to.
fn written() -> Vec<u8> {
    let mut content = large();
    content[CHUNK as usize..][..3].copy_from_slice(b"NEW");
    content
}

/// Nothing is copied in the background here.
fn world() -> World {
    let large = String::from_utf8(large()).unwrap();
    let base = format!(
        "big \"{large}\"\ndir/file \"{large}\"\none \"{large}\"\ntwo = one\nsmall \"small\""
    );
    let copy_up = CopyLimits::of(CHUNK, 2 * CHUNK);
    let setup = Setup { base: Some(base), chunk_bytes: CHUNK, copy_up, ..Setup::default() };
    let mut world = World::with(setup);
    world.change_base();
    world
}

fn write(world: &World, path: &str) {
    world.write(path, CHUNK, b"NEW").unwrap();
}

/// Applies to the base; what `watch` makes of `at` comes before that.
fn applied(world: &World, options: &ApplyOptions, at: ApplyEvent, does: impl FnOnce()) -> Report {
    let opened = open(world);
    let plan = planned(&opened, None, options).unwrap();
    let mut does = Some(does);
    let mut watch = |event: ApplyEvent| {
        if event == at
            && let Some(does) = does.take()
        {
            does();
        }
        ControlFlow::Continue(())
    };
    apply(&opened, None, options, Consent::Shown(&plan), Some(&mut Book(world)), &mut watch)
        .unwrap()
}

/// The beginning of the work.
fn making(all: u64) -> ApplyEvent {
    ApplyEvent::Making { done: 0, all }
}

#[test]
fn a_name_that_is_left_out_keeps_its_content() {
    let mut world = world();
    world.link("big", "other").unwrap();
    write(&world, "big");
    let report = applied(&world, &only(&["big"]), making(10 * CHUNK), || {});
    assert_eq!(report.skipped, []);
    assert!(fs::read(world.base().join("big")).unwrap() == written());
    world.reopen();
    assert!(world.read("other").unwrap() == written());
    assert!(world.read("big").unwrap() == written());
}

#[test]
fn a_file_that_is_written_to_meanwhile_keeps_its_content() {
    let mut world = world();
    write(&world, "big");
    applied(&world, &only(&["big"]), making(10 * CHUNK), || {
        world.tick(1);
        world.write("big", 0, b"!").unwrap();
    });
    world.reopen();
    let mut expected = written();
    expected[0] = b'!';
    assert!(world.read("big").unwrap() == expected);
}

#[test]
fn a_file_that_is_first_written_to_meanwhile_keeps_its_content() {
    let mut world = world();
    world.remove("one").unwrap();
    world.write("small", 0, b"SMALL").unwrap();
    applied(&world, &only(&["one", "small"]), making(5), || write(&world, "two"));
    assert!(!world.base().join("one").exists());
    world.reopen();
    assert!(world.read("two").unwrap() == written());
}

#[test]
fn attributes_that_are_set_in_the_base_cost_no_content() {
    let mut world = world();
    world.chmod("big", 0o600).unwrap();
    world.link("big", "other").unwrap();
    applied(&world, &only(&["big"]), making(0), || {});
    world.reopen();
    assert!(world.read("other").unwrap() == large());
}

#[test]
fn what_is_lost_already_stops_nothing() {
    let mut world = world();
    write(&world, "big");
    write(&world, "dir/file");
    fs::write(world.base().join("dir/file"), "theirs").unwrap();
    let report = applied(&world, &only(&["big"]), making(10 * CHUNK), || {});
    assert_eq!(report.skipped, []);
    assert!(fs::read(world.base().join("big")).unwrap() == written());
    world.reopen();
    assert_eq!(world.read("dir/file").err(), Some(FsError::Io));
}

#[test]
fn a_run_that_is_finished_later_costs_no_content() {
    let mut world = world();
    world.remove("one").unwrap();
    let opened = open(&world);
    let options = only(&["one"]);
    let plan = planned(&opened, None, &options).unwrap();
    let mut book = Book(&world);
    let mut stop = |event: ApplyEvent| match event {
        ApplyEvent::Step { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let report =
        apply(&opened, None, &options, Consent::Shown(&plan), Some(&mut book), &mut stop).unwrap();
    assert!(report.broken_off.is_some_and(|(done, all)| done == 0 && all > 0));
    write(&world, "two");
    let mut watch = |_: ApplyEvent| ControlFlow::Continue(());
    let report = resume(&opened, None, Some(&mut book), &mut watch).unwrap().unwrap();
    assert_eq!((report.broken_off, report.skipped), (None, vec![]));
    assert!(!world.base().join("one").exists());
    drop(opened);
    world.reopen();
    assert!(world.read("two").unwrap() == written());
}
