//! Files with several names in a directory that is removed: what another program changes there is
//! not lost.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use acetate::inspect::apply::{ApplyEvent, Report, resume, undo};

use super::undo::{apply_kept, go_on, keeping, undoing, undone};
use super::undo_killed::stop_at;
use super::{copy, open, watched};
use crate::support::applied::{all, assert_same, on_host};
use crate::support::world::World;

const TREE: &str = r#"
    dir/one "one"
    dir/two = dir/one
    dir/far "far"
    far = dir/far
    mine "mine"
    mine2 = mine
    moved "moved"
    moved2 = moved
    gone "gone"
    dir/gone = gone
    other/out "out"
    other/stays = other/out
"#;

const CHANGED: &str = "/dir: something in it changed after the plan was made";

/// What another program does in the tree.
type Change = fn(&Path);

const CHANGES: [(&str, Change); 6] = [
    ("a new file with two names", |to| {
        fs::write(to.join("dir/new"), "theirs").unwrap();
        fs::hard_link(to.join("dir/new"), to.join("dir/new2")).unwrap();
    }),
    ("an edit", |to| fs::write(to.join("dir/one"), "theirs").unwrap()),
    ("an edit through a name elsewhere", |to| fs::write(to.join("far"), "theirs").unwrap()),
    ("both names of a file", |to| {
        fs::rename(to.join("mine"), to.join("dir/mine")).unwrap();
        fs::rename(to.join("mine2"), to.join("dir/mine2")).unwrap();
    }),
    ("a name of a file that is moved", |to| {
        fs::rename(to.join("moved2"), to.join("dir/moved2")).unwrap();
    }),
    ("an edit of a file that loses a name", |to| fs::write(to.join("dir/gone"), "them").unwrap()),
];

/// The session removes `dir`; of files with a name there, it moves and removes others.
fn changed() -> World {
    let world = World::new(TREE);
    world.tick(60);
    world.rename("moved", "elsewhere").unwrap();
    world.remove("gone").unwrap();
    world.rename("other/out", "out").unwrap();
    world.rm_rf("dir");
    world.rm_rf("other");
    world
}

fn paths(report: &Report) -> Vec<String> {
    report.skipped.iter().map(|s| format!("{}: {}", s.path.display(), s.why)).collect()
}

/// What happens within one tick of the host's clock is told by nothing.
fn tick() {
    sleep(Duration::from_millis(20));
}

/// Applies, with a change by another program before the step that takes the directory.
fn report_with(world: &World, to: &Path, change: Change) -> Report {
    let mut change = Some(change);
    let report = watched(&open(world), Some(to), &all(), &mut |event| {
        if matches!(event, ApplyEvent::Step { done: 0, .. })
            && let Some(change) = change.take()
        {
            tick();
            change(to);
        }
        ControlFlow::Continue(())
    });
    report.unwrap()
}

#[test]
fn what_another_program_does_in_a_removed_directory_stays() {
    let world = changed();
    for (number, (what, change)) in CHANGES.into_iter().enumerate() {
        let to = copy(&world, &format!("copy-{number}"));
        tick();
        let report = report_with(&world, &to, change);
        assert!(paths(&report).contains(&CHANGED.to_owned()), "{what}: {report:?}");
        assert!(to.join("dir").exists(), "{what}");
    }
}

#[test]
fn what_another_program_does_after_a_kill_stays() {
    let world = changed();
    for (number, (what, change)) in CHANGES.into_iter().enumerate() {
        let to = copy(&world, &format!("copy-{number}"));
        let report = watched(&open(&world), Some(&to), &all(), &mut stop_at(0));
        assert!(report.unwrap().broken_off.is_some());
        tick();
        change(&to);
        let report = resume(&open(&world), Some(&to), None, &mut go_on).unwrap().unwrap();
        assert!(paths(&report).contains(&CHANGED.to_owned()), "{what}: {report:?}");
        assert!(to.join("dir").exists(), "{what}");
    }
}

/// The apply's own steps change the ctimes of files whose other names they move, remove or link.
#[test]
fn names_that_the_apply_moves_removes_and_links_do_not_keep_a_directory() {
    let world = changed();
    world.link("mine", "linked").unwrap();
    world.rename("mine2", "mine3").unwrap();
    for at in 0.. {
        let to = copy(&world, &format!("copy-{at}"));
        let before = on_host(&to);
        tick();
        let mut stop = stop_at(at);
        let mut slow = |event| {
            tick();
            stop(event)
        };
        let mut report = watched(&open(&world), Some(&to), &keeping(), &mut slow).unwrap();
        let is_broken_off = report.broken_off.is_some();
        if is_broken_off {
            report = resume(&open(&world), Some(&to), None, &mut go_on).unwrap().unwrap();
        }
        assert_eq!(paths(&report), [""; 0], "after {at} events");
        assert!(!to.join("dir").exists() && !to.join("other").exists());
        // The undo, and the undo of that, which removes what the first one restored.
        let after = on_host(&to);
        for wanted in [&before, &after] {
            tick();
            undone(&open(&world), Some(&to), &undoing());
            assert_same(&on_host(&to), wanted);
        }
        if !is_broken_off {
            break;
        }
    }
}

/// An undo removes the directory that the apply made.
#[test]
fn what_another_program_does_in_a_directory_that_an_undo_removes_stays() {
    let world = World::new("file \"old\"\n");
    world.tick(60);
    world.mkdir("new").unwrap();
    world.put("new/x", "x");
    let to = copy(&world, "copy");
    apply_kept(&open(&world), Some(&to), &keeping());
    let mut change = Some(|| {
        tick();
        fs::write(to.join("new/y"), "theirs").unwrap();
        fs::hard_link(to.join("new/y"), to.join("new/z")).unwrap();
    });
    let watch = &mut |event| {
        if matches!(event, ApplyEvent::Step { .. })
            && let Some(change) = change.take()
        {
            change();
        }
        ControlFlow::Continue(())
    };
    let report = undo(&open(&world), Some(&to), &undoing(), None, None, watch).unwrap();
    assert_eq!(paths(&report), ["/new: something in it changed after the plan was made"]);
    assert_eq!(fs::read(to.join("new/z")).unwrap(), b"theirs");
}
