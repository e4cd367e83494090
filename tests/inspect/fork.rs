//! Forks of sessions.

use std::collections::BTreeMap;
use std::path::PathBuf;

use acetate::delta::sqlite::{Host, Session};
use acetate::delta::{Checkpoint, CheckpointId, CheckpointKind};

use super::checkpoints::{all, open_file, step, tree};
use crate::support::check::assert_consistent;
use crate::support::random::Random;
use crate::support::world::World;

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
            let opened = open_file(&to, None);
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
