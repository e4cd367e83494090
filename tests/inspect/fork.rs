//! Forks of sessions.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use acetate::delta::sqlite::{CheckOptions, Host, Session};
use acetate::delta::{Checkpoint, CheckpointId, CheckpointKind, RestoreRequest};
use acetate::inspect::check::check;
use acetate::overlay::CopyLimits;
use acetate::vfs::Time;

use super::checkpoints::{all, step, tree};
use crate::support::check::assert_consistent;
use crate::support::looked::look;
use crate::support::random::Random;
use crate::support::world::{Setup, World};

fn fork(world: &World, at: &Checkpoint, name: &str) -> PathBuf {
    let to = world.scratch().join(name);
    let host = Host::current().unwrap();
    Session::fork_to(&world.session(), &to, at, &host, &mut |_, _| {}).unwrap();
    to
}

/// Random changes: a fork has the tree of its checkpoint, numbers and times included, whatever
/// came before and after.
#[test]
fn a_fork_has_the_tree_of_its_checkpoint() {
    let base =
        "a/a \"aa\"\na/b \"ab\"\na/c/a \"aca\"\nb/a \"ba\"\nb/b = b/a\nc \"c\"\nd/a/b \"dab\"\n";
    for seed in 0..10 {
        let mut world = World::new(base);
        let mut random = Random::new(seed);
        let mut known: BTreeMap<CheckpointId, (Checkpoint, BTreeMap<String, String>)> =
            BTreeMap::new();
        for _ in 0..5 {
            for _ in 0..random.below(18) {
                step(&world, &mut random);
            }
            match random.below(5) {
                0 => world.reopen(),
                1 => world.kill(),
                _ => {
                    let made = world.checkpoint();
                    known.insert(made.id, (made, tree(&world, None)));
                }
            }
        }
        for (id, (checkpoint, then)) in &known {
            let to = fork(&world, checkpoint, &format!("fork-{id}.db"));
            let opened = look(&to, None);
            let forked = all(&opened, true);
            for path in forked.keys().chain(then.keys()) {
                assert_eq!(forked.get(path), then.get(path), "seed {seed}, {id}: {path}");
            }
            let session = opened.session();
            let origin = session.fork_origin().unwrap().unwrap();
            assert_eq!(origin.checkpoint, *id);
            let first = session.checkpoints().unwrap();
            assert_eq!(first.len(), 1);
            assert_eq!(
                (first[0].kind, first[0].next_ino),
                (CheckpointKind::Fork, checkpoint.next_ino)
            );
            assert_consistent(&to);
        }
        world.close();
    }
}

/// Asserts what the program's check says of C3, with the base.
#[track_caller]
fn assert_pending_lost(session: &Path, base: &Path, lost: u64) {
    let found = check(session, Some(base), &CheckOptions { most: 10, quick: false }).unwrap();
    let of_base: u64 = found.broken.iter().map(|broken| broken.count).sum();
    assert_eq!(of_base, lost, "{found:?}");
    assert!(found.broken.iter().all(|broken| broken.rule == "C3"), "{found:?}");
}

/// What was pending at the checkpoint, and was stored since, needs the base no more.
#[test]
fn a_fork_of_the_past_has_what_was_copied_since() {
    let content: String = (0..30).map(|at| char::from(b'a' + at).to_string().repeat(100)).collect();
    let base = format!("cut \"{content}\"\nlarge \"{content}\"\n");
    let copy_up = CopyLimits::of(700, 512);
    let mut world =
        World::with(Setup { base: Some(base), chunk_bytes: 512, copy_up, ..Setup::default() });
    world.chmod("large", 0o600).unwrap();
    world.chmod("cut", 0o600).unwrap();
    assert!(world.copy_pieces(1));
    let then = world.checkpoint();
    // The chunks beyond are stored nowhere.
    world.truncate("cut", 1024).unwrap();
    assert_eq!(world.finish_copies(), 0);
    let base = world.change_base();
    fs::write(base.join("large"), "changed").unwrap();
    let to = fork(&world, &then, "fork.db");
    assert_pending_lost(&to, &base, 0);
    fs::write(base.join("cut"), "changed").unwrap();
    assert_pending_lost(&to, &base, 1);
    assert_consistent(&to);
    let restore = RestoreRequest { to: then.id, seen: None, time: Time::default() };
    world.wait(world.overlay.restore(&world.caller, restore)).unwrap();
    assert_eq!(world.cat("large"), content);
    assert_eq!(world.finish_copies(), 1, "the cut one");
    assert_pending_lost(&world.session(), &base, 1);
    world.close();
}
