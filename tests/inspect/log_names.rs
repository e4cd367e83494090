//! The history of paths through random changes, compared with one that is told by the objects.

use std::collections::{BTreeMap, BTreeSet};

use acetate::delta::AuditProcedure;
use acetate::inspect::log::{LogOptions, PathState, now};
use acetate::inspect::opened::OpenSession;

use super::log::{path, rows, words};
use crate::support::world::World;

/// Few names on few levels, so that they are used again and again.
const NAMES: [&str; 8] = ["a", "b", "a/a", "a/b", "b/a", "b/b", "a/a/a", "b/a/b"];

/// Numbers that look random (Marsaglia, "Xorshift RNGs", 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Does something, or finds that it cannot be done.
fn step(world: &World, random: &mut Random) {
    let name = NAMES[random.below(NAMES.len())];
    let other = NAMES[random.below(NAMES.len())];
    let has_dir = |name: &str| name.rsplit_once('/').is_none_or(|(dir, _)| world.exists(dir));
    if !has_dir(name) || !has_dir(other) {
        return;
    }
    let exists = world.exists(name);
    match random.below(6) {
        0 if !exists => drop(world.mkdir(name)),
        1 if !exists => {
            drop(world.create(name, acetate::vfs::CreateHow::Guarded(Default::default())));
        }
        2 if exists => drop(world.write(name, 0, b"x")),
        3 if exists => drop(world.remove(name)),
        4 if exists => drop(world.rmdir(name)),
        5 if exists && name != other => drop(world.rename(name, other)),
        _ => {}
    }
}

fn is_within(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Where each object is, by its number: after each change, from the first on.
type Places = Vec<BTreeMap<u64, String>>;

/// The ids of the rows that are about `asked`: at or below it, or at, below or above any object
/// that was there then or later.
fn expected(changes: &[(i64, AuditProcedure, Vec<String>, u64)], asked: &str) -> BTreeSet<i64> {
    let mut places: Places = vec![BTreeMap::new()];
    for (_, procedure, paths, id) in changes {
        let mut now = places.last().unwrap().clone();
        match procedure {
            AuditProcedure::Remove | AuditProcedure::Rmdir => drop(now.remove(id)),
            AuditProcedure::Rename => {
                now.retain(|_, place| *place != paths[1]);
                for place in now.values_mut().filter(|place| is_within(place, &paths[0])) {
                    *place = format!("{}{}", paths[1], &place[paths[0].len()..]);
                }
            }
            AuditProcedure::Write => {}
            _ => drop(now.insert(*id, paths[0].clone())),
        }
        places.push(now);
    }
    let last_there = |id: u64| places.iter().rposition(|p| p.get(&id).is_some_and(|p| p == asked));
    let was_there: BTreeMap<u64, usize> = (places.iter().flat_map(|p| p.keys()))
        .filter_map(|id| Some((*id, last_there(*id)?)))
        .collect();
    let mut about = BTreeSet::new();
    for (at, (id, _, paths, _)) in changes.iter().enumerate() {
        let touches = |name: &str| paths.iter().any(|path| is_within(path, name));
        let moved = was_there.iter().any(|(object, last)| {
            // The change leads from places[at] to places[at + 1].
            let (before, after) = (places[at].get(object), places[at + 1].get(object));
            let is_before = *last > at && before.is_some_and(|name| touches(name));
            let is_after = *last > at && after.is_some_and(|name| touches(name));
            let leaves = *last == at && before.is_some() && before != after;
            is_before || is_after || (*last > at && before.is_some() && before != after) || leaves
        });
        if touches(asked) || moved {
            about.insert(*id);
        }
    }
    about
}

#[test]
fn random_changes_have_the_history_of_their_objects() {
    for seed in 1..=4 {
        let world = World::plain();
        let mut random = Random(0x9e37_79b9_7f4a_7c15 + seed);
        for _ in 0..1000 {
            step(&world, &mut random);
        }
        let all = rows(&world, LogOptions::default());
        let changes: Vec<_> = (all.iter())
            .map(|(id, row)| {
                let row = row.as_ref().unwrap();
                let paths = [Some(&row.path), row.path2.as_ref()];
                let text = |p: &_| format!("{p:?}");
                let paths: Vec<String> = paths.into_iter().flatten().map(text).collect();
                (*id, row.procedure, paths, row.fileid.0)
            })
            .collect();
        assert!(changes.len() > 50, "{}: too little happened", changes.len());
        let opened = OpenSession::open(&world.session(), None).unwrap();
        for name in NAMES {
            let expected = expected(&changes, &format!("/{name}"));
            for now in [now(&opened, &path(name)), PathState::Unknown] {
                let path = Some((path(name), now));
                let got = rows(&world, LogOptions { path, ..LogOptions::default() });
                let ids: BTreeSet<i64> = got.iter().map(|(id, _)| *id).collect();
                let missing: Vec<_> = expected.difference(&ids).collect();
                assert!(missing.is_empty(), "{seed} {name} {now:?}: {missing:?} of {expected:?}");
                // A directory's move is told of where nobody knows whether that had the name.
                let more = got.into_iter().filter(|(id, _)| !expected.contains(id)).collect();
                let more = words(&more);
                let are_moves = more.iter().all(|words| words.starts_with("RENAME "));
                assert!(are_moves, "{seed} {name} {now:?}: {more:?}");
            }
        }
    }
}
