//! The merged tree at a checkpoint.

use std::collections::{BTreeMap, BTreeSet};

use acetate::delta::{Checkpoint, CheckpointId, MergedPath};
use acetate::inspect::between::Moments;
use acetate::inspect::diff::{DiffOptions, DifferenceKind};
use acetate::inspect::opened::OpenSession;
use acetate::overlay::BlobDigest;
use acetate::vfs::{CreateHow, FileKind, SetAttr};

use crate::support::looked::{each_object, look};
use crate::support::random::Random;
use crate::support::world::World;

pub fn open_at(world: &World, at: Option<&Checkpoint>) -> OpenSession {
    look(&world.session(), at)
}

/// Each object's path, number, type, mode, owner, times and content, at a checkpoint or now.
pub fn tree(world: &World, at: Option<&Checkpoint>) -> BTreeMap<String, String> {
    all(&open_at(world, at), true)
}

/// The same; without `exact`, without what no difference shows.
pub fn all(opened: &OpenSession, exact: bool) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    each_object(opened, &mut |object, content| {
        let attr = object.attr();
        let links = if attr.kind == FileKind::Directory { 0 } else { attr.nlink };
        let content = digest(&content);
        let mut what =
            format!("{:?} {:o} {} {} {content}", attr.kind, attr.mode, attr.uid, attr.gid);
        if exact {
            let (number, mtime, ctime) = (attr.fileid, attr.mtime, attr.ctime);
            what += &format!(" {number:?} {links} {mtime:?} {ctime:?}");
        }
        all.insert(object.path().display().to_string(), what);
    });
    all
}

/// Content in few characters.
fn digest(content: &[u8]) -> String {
    let mut hash = BlobDigest::new(content.len() as u64);
    hash.update(content);
    format!("{} {:02x?}", content.len(), &hash.finish()[..4])
}

/// The later tree, made of the earlier one and the differences; each difference is checked.
fn check_differences(world: &World, from: &Checkpoint, until: Option<&Checkpoint>) {
    let (old, new) = (open_at(world, Some(from)), open_at(world, until));
    let moments = Moments { old: &old, new: &new, from, until };
    let found = moments.differences(&DiffOptions::default()).unwrap();
    let (before, after) = (all(&old, false), all(&new, false));
    let path = |path: &MergedPath| path.display().to_string();
    let mut gone = BTreeSet::new();
    let mut moves: Vec<(String, String)> = Vec::new();
    let mut made = BTreeMap::new();
    for difference in &found.all {
        let to = path(&difference.path);
        let from = difference.old.as_ref().map(|old| path(&MergedPath::of_base(&old.path)));
        if let Some(from) = &from {
            assert!(gone.insert(from.clone()), "{from} twice");
            assert!(before.contains_key(from), "{from} was not there");
        }
        let kind = difference.kind;
        if let (DifferenceKind::Renamed, Some(from)) = (kind, &from) {
            moves.push((from.clone(), to.clone()));
        }
        if kind == DifferenceKind::Deleted {
            assert_eq!(from.as_ref(), Some(&to));
            continue;
        }
        if let (DifferenceKind::Modified, Some(from)) = (kind, &from) {
            assert_ne!(before.get(from), after.get(&to), "{to}: nothing differs");
        }
        assert!(made.insert(to.clone(), after[&to].clone()).is_none(), "{to} twice");
    }
    let carried = |path: &str| {
        let above = |from: &str| {
            path.strip_prefix(from).is_some_and(|rest| rest.starts_with('/') || from == "/")
        };
        let moved = moves.iter().filter(|(from, _)| above(from));
        let moved = moved.max_by_key(|(from, _)| from.len());
        moved.map_or_else(|| path.to_owned(), |(from, to)| to.clone() + &path[from.len()..])
    };
    for (path, what) in before.iter().filter(|(path, _)| !gone.contains(*path)) {
        let to = carried(path);
        assert!(made.insert(to.clone(), what.clone()).is_none(), "{path} and another are {to}");
    }
    for path in made.keys().chain(after.keys()) {
        let (are, is) = (made.get(path), after.get(path));
        assert_eq!(are, is, "{path}: {before:#?} {after:#?} {:#?} {moves:?}", made);
    }
}

/// One random change by a client.
pub fn step(world: &World, random: &mut Random) {
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

/// The same, or now and then a discard.
pub fn step_or_discard(world: &World, random: &mut Random) {
    match random.below(12) {
        0 => {
            let path = MergedPath::from_user(random.path().as_bytes()).unwrap();
            let _is_done = world.wait(world.overlay.discard(&world.caller, vec![path]));
        }
        _ => step(world, random),
    }
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
                    let made = world.checkpoint();
                    known.insert(made.id, (made, tree(&world, None)));
                }
            }
            for (id, (checkpoint, then)) in &known {
                let shown = tree(&world, Some(checkpoint));
                for path in shown.keys().chain(then.keys()) {
                    assert_eq!(shown.get(path), then.get(path), "seed {seed}, {id}: {path}");
                }
                let later = known.values().filter(|(later, _)| later.id > *id);
                let later = later.map(|(later, _)| Some(later)).chain([None]);
                later.for_each(|until| check_differences(&world, checkpoint, until));
            }
        }
    }
}
