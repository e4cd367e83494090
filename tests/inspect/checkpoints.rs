//! The merged tree at a checkpoint.

use std::collections::BTreeMap;

use acetate::delta::sqlite::{OpenMode, Session};
use acetate::delta::{Checkpoint, CheckpointId, CheckpointKind, NewCheckpoint};
use acetate::inspect::opened::OpenSession;
use acetate::inspect::walk::{WalkControl, walk};
use acetate::vfs::{CreateHow, FileKind, SetAttr, Time};

use crate::support::random::Random;
use crate::support::world::World;

fn create(world: &World) -> Checkpoint {
    let new = NewCheckpoint {
        name: None,
        kind: CheckpointKind::Manual,
        labels: BTreeMap::new(),
        time: Time::default(),
    };
    world.wait(world.overlay.create_checkpoint(new)).unwrap().unwrap()
}

/// Each object's path, number, type, mode, owner, times and content, at a checkpoint or now.
fn tree(world: &World, at: Option<&Checkpoint>) -> BTreeMap<String, String> {
    let host = acetate::delta::sqlite::Host::current().unwrap();
    let mut session = Session::open(&world.session(), OpenMode::Inspect, &host).unwrap();
    if let Some(at) = at {
        session.show_at(at);
    }
    let opened = OpenSession::over(session, None).unwrap();
    let mut all = BTreeMap::new();
    opened
        .with_tree(|view| {
            let root = view.root().unwrap();
            walk(view, &root, &mut |_, object, _| {
                let attr = object.attr();
                let is_dir = attr.kind == FileKind::Directory;
                let mut content = vec![0; if is_dir { 0 } else { attr.size as usize }];
                if attr.kind == FileKind::Regular {
                    let read = view.read(object, 0, &mut content).unwrap();
                    content.truncate(read);
                }
                let links = if is_dir { 0 } else { attr.nlink };
                let what = format!(
                    "{:?} {:?} {:o} {} {} {links} {:?} {:?} {content:?}",
                    attr.fileid, attr.kind, attr.mode, attr.uid, attr.gid, attr.mtime, attr.ctime
                );
                all.insert(object.path().display().to_string(), what);
                Ok(WalkControl::Deeper)
            })
            .map(drop)
        })
        .unwrap();
    all
}

/// One random change by a client.
fn step(world: &World, random: &mut Random) {
    let (one, other) = (random.path(), random.path());
    let is_in_dir = |path: &str| {
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        world.find(above).is_ok_and(|found| found.attr.kind == FileKind::Directory)
    };
    if !is_in_dir(&one) || !is_in_dir(&other) {
        return;
    }
    let is_there = world.find(&one).is_ok();
    // Some of these fail, as a client's do.
    let _is_done = match random.below(10) {
        0..=2 => {
            let content = vec![b'x'; random.below(9000)];
            world.create(&one, CreateHow::Unchecked(SetAttr::default())).is_ok()
                && world.write(&one, 0, &content).is_ok()
        }
        3 => world.mkdir(&one).is_ok(),
        _ if !is_there => false,
        4 => world.write(&one, random.below(6000) as u64, b"changed").is_ok(),
        5 | 6 => world.rename(&one, &other).is_ok(),
        7 => world.remove(&one).is_ok() || world.rmdir(&one).is_ok(),
        8 => world.link(&one, &other).is_ok(),
        _ => world.truncate(&one, random.below(5000) as u64).is_ok(),
    };
}

#[test]
fn each_checkpoint_shows_its_tree() {
    let base =
        "a/a \"aa\"\na/b \"ab\"\na/c/a \"aca\"\nb/a \"ba\"\nb/b = b/a\nc \"c\"\nd/a/b \"dab\"\n";
    for seed in 0..10 {
        let mut world = World::new(base);
        let mut random = Random::new(seed);
        let mut known: BTreeMap<CheckpointId, (Checkpoint, BTreeMap<String, String>)> =
            BTreeMap::new();
        for _ in 0..7 {
            for _ in 0..random.below(18) {
                step(&world, &mut random);
            }
            match random.below(8) {
                0 => world.reopen(),
                1 => world.kill(),
                2 => assert!(world.wait(world.overlay.compact()).is_ok()),
                3 if !known.is_empty() => {
                    let id = *known.keys().nth(random.below(known.len())).unwrap();
                    assert!(world.wait(world.overlay.remove_checkpoint(id)).unwrap());
                    known.remove(&id);
                }
                _ => {
                    let made = create(&world);
                    known.insert(made.id, (made, tree(&world, None)));
                }
            }
            for (id, (checkpoint, then)) in &known {
                let shown = tree(&world, Some(checkpoint));
                for path in shown.keys().chain(then.keys()) {
                    assert_eq!(shown.get(path), then.get(path), "seed {seed}, {id}: {path}");
                }
            }
        }
    }
}
