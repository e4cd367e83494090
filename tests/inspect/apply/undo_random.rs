//! Random trees, random changes of the session and of the base, random choices: no apply loses what
//! a person wrote to the base, and taking it back gives the base exactly as it was. Nor does taking
//! it back lose a mode that a person set since.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use acetate::inspect::apply::{ApplyOptions, Consent, UndoOptions, apply, last_apply, undo};
use acetate::vfs::{CreateHow, FileKind};

use super::undo::{go_on, keeping, undoing};
use super::{open, path};
use crate::support::applied::{Exact, assert_same, on_host, planned};
use crate::support::client::size;
use crate::support::fixture::FEW_NAMES;
pub use crate::support::random::Random;
use crate::support::world::World;

/// So many worlds, which are changed at the same moments.
const CASES: u64 = 16;

/// Some of these fail, since nothing is there, or something is.
pub(super) fn change_session(world: &World, random: &mut Random, number: usize) {
    let (at, to) = (random.path(), random.path());
    let has_dir = |path: &str| path.rsplit_once('/').is_none_or(|(dir, _)| world.exists(dir));
    if !has_dir(&at) || !has_dir(&to) {
        return;
    }
    let _may_fail = match random.below(9) {
        0 | 1 => world
            .create(&at, CreateHow::Unchecked(size(0)))
            .and_then(|_| world.write(&at, 0, format!("agent {number}\n").as_bytes())),
        2 if world.exists(&at) => world.write(&at, 0, format!("AGENT {number}").as_bytes()),
        3 | 4 if world.exists(&at) => world.rename(&at, &to),
        5 if world.exists(&at) => world.link(&at, &to),
        6 => world.mkdir(&at).map(drop),
        7 if world.exists(&at) => world.chmod(&at, [0o600, 0o755, 0o640][random.below(3)]),
        _ if !world.exists(&at) => Ok(()),
        _ if world.stat(&at).kind != FileKind::Directory => world.remove(&at),
        _ => {
            world.rm_rf(&at);
            Ok(())
        }
    };
}

/// Makes directories outside the base, and returns what a person wrote into them.
fn set_aside(world: &World, random: &mut Random) -> BTreeSet<String> {
    let mut written = BTreeSet::new();
    for number in 0..4 {
        let at = world.scratch().join("aside").join(random.path());
        let text = format!("aside {number}\n");
        let is_written = fs::create_dir_all(at.parent().unwrap()).and_then(|()| {
            fs::OpenOptions::new().write(true).create_new(true).open(&at)?;
            fs::write(&at, &text)
        });
        written.extend(is_written.ok().map(|()| text));
    }
    written
}

/// A person moves a directory into the base, within it, out of it, or back.
fn move_dir(base: &Path, random: &mut Random) {
    let outside = base.with_file_name("aside");
    let mut places = [&outside, base, base].map(|dir| dir.join(random.path()));
    places.swap(0, random.below(3));
    let [from, to, _] = places;
    if from.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        let kept = outside.join(format!("old {}", random.below(1_000_000)));
        let _may_be_absent = fs::rename(&to, kept);
        let _may_fail = fs::rename(from, to);
    }
}

/// What a person wrote.
pub(super) fn change_base(base: &Path, random: &mut Random, number: usize) -> Option<String> {
    let at = base.join(random.path());
    let text = format!("person {number}\n");
    match random.below(9) {
        0..=2 => match at.symlink_metadata() {
            Ok(meta) if !meta.is_file() => None,
            _ => fs::write(&at, &text).ok().map(|()| text),
        },
        3 => {
            let _may_fail = fs::create_dir(&at);
            None
        }
        4 => {
            let _may_fail = fs::rename(&at, base.join(random.path()));
            None
        }
        _ => {
            move_dir(base, random);
            None
        }
    }
}

/// All texts in a directory that a person wrote.
pub fn texts(base: &Path, written: &BTreeSet<String>) -> BTreeSet<String> {
    let tree = on_host(base);
    let has = |text: &&String| {
        let text = text.trim_end().as_bytes();
        tree.values().any(|object| object.content.windows(text.len()).any(|part| part == text))
    };
    written.iter().filter(has).cloned().collect()
}

/// The content and mode of each object, by path.
fn contents(tree: &Exact) -> BTreeMap<&[u8], (&[u8], u32)> {
    tree.iter().map(|(path, object)| (&path[..], (&object.content[..], object.mode))).collect()
}

fn check(world: &World, random: &mut Random, written: &BTreeSet<String>) -> bool {
    let base = world.base();
    let before = on_host(&base);
    let mut options = ApplyOptions { skip_drifted: true, ..keeping() };
    if random.below(3) == 0 {
        let paths: Vec<_> = (0..2).map(|_| random.path()).collect();
        options.selection =
            acetate::inspect::selection::Selection::of(paths.iter().map(|at| path(at)));
    }
    options.conflict_markers = random.below(2) == 0;
    let opened = open(world);
    // Some choices are refused: what was moved has to be named whole.
    let Ok(plan) = planned(&opened, None, &options) else {
        assert_same(&on_host(&base), &before);
        return false;
    };
    let persons = texts(&base, written);
    apply(&opened, None, &options, Consent::Shown(&plan), None, &mut go_on).unwrap();
    let after = on_host(&base);
    assert_eq!(texts(&base, written), persons, "a person's text is lost");
    if last_apply(opened.session()).is_none() {
        // Nothing was written, so there is nothing to undo.
        assert_eq!(contents(&after), contents(&before));
        return true;
    }
    for wanted in [&before, &after, &before] {
        let report = undo(&opened, None, &undoing(), None, None, &mut go_on).unwrap();
        assert_eq!(report.skipped, []);
        assert_same(&on_host(&base), wanted);
    }
    true
}

/// A random world, by its seed, with what a person wrote into it.
pub struct Case {
    pub seed: u64,
    pub world: World,
    pub random: Random,
    pub written: BTreeSet<String>,
}

/// Worlds over `tree`, one for each seed; `prepare` returns what a person has written before.
pub fn cases(
    seeds: Range<u64>,
    tree: &str,
    prepare: impl Fn(&World, &mut Random) -> BTreeSet<String>,
) -> Vec<Case> {
    let case = |seed| {
        let mut world = World::new(tree);
        world.change_base();
        let mut random = Random::new(seed);
        let written = prepare(&world, &mut random);
        Case { seed, world, random, written }
    };
    seeds.map(case).collect()
}

/// Has clients change all worlds, and then a person their bases, each in a second of its own: the
/// second tells which of a removal and a change came first.
pub fn change_both(
    cases: &mut [Case],
    clients: impl Fn(&World, &mut Random),
    person: impl Fn(&mut Case),
) {
    let second = Duration::from_millis(1100);
    thread::sleep(second);
    for case in &mut *cases {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        case.world.tick(now as i64 - case.world.now());
        clients(&case.world, &mut case.random);
        case.world.keep_removed();
    }
    thread::sleep(second);
    cases.iter_mut().for_each(person);
}

#[test]
fn nothing_of_a_person_is_lost_and_all_comes_back() {
    let mut cases = cases(0..CASES, FEW_NAMES, set_aside);
    let clients = |world: &World, random: &mut Random| {
        for number in 0..1 + random.below(12) {
            change_session(world, random, number);
        }
    };
    change_both(&mut cases, clients, |Case { world, random, written, .. }| {
        for number in 0..random.below(9) {
            written.extend(change_base(&world.base(), random, number));
        }
    });
    let (mut failed, mut applied) = (Vec::new(), 0);
    for Case { seed, world, random, written } in &mut cases {
        let checked = catch_unwind(AssertUnwindSafe(|| check(world, random, written)));
        match checked {
            Ok(is_applied) => applied += u32::from(is_applied),
            Err(_) => failed.push(*seed),
        }
    }
    assert!(failed.is_empty(), "seeds {failed:?}");
    assert!(applied > 8, "{applied} of {CASES}");
}

/// The modes of the objects in a directory, by inode number.
fn modes(base: &Path) -> BTreeMap<u64, u32> {
    let path = |path: &Vec<u8>| base.join(std::ffi::OsStr::from_bytes(path));
    let ino = |at: &Vec<u8>| fs::symlink_metadata(path(at)).unwrap().ino();
    on_host(base).iter().map(|(path, object)| (ino(path), object.mode)).collect()
}

#[test]
fn no_mode_that_a_person_set_after_the_apply_is_lost() {
    let mut cases = cases(100..100 + CASES, FEW_NAMES, |_, _| BTreeSet::new());
    let clients = |world: &World, random: &mut Random| {
        for number in 0..3 + random.below(12) {
            change_session(world, random, number);
        }
    };
    change_both(&mut cases, clients, |_| ());
    let (mut failed, mut drifted) = (Vec::new(), 0);
    for Case { seed, world, random, .. } in &mut cases {
        let base = world.base();
        let checked = catch_unwind(AssertUnwindSafe(|| {
            let opened = open(world);
            let plan = planned(&opened, None, &keeping()).unwrap();
            apply(&opened, None, &keeping(), Consent::Shown(&plan), None, &mut go_on).unwrap();
            // More of those that the apply changed.
            let changed = plan.changes.iter().map(|change| change.path.as_bytes()[1..].to_vec());
            let mut paths: Vec<_> = changed.collect();
            paths.extend(on_host(&base).into_keys().take(4));
            let mut set = BTreeSet::new();
            for _ in 0..3 + random.below(5) {
                let at = &paths[random.below(paths.len())];
                let at = base.join(std::ffi::OsStr::from_bytes(at));
                if at.symlink_metadata().is_ok_and(|meta| !meta.is_symlink()) {
                    fs::set_permissions(&at, fs::Permissions::from_mode(0o711)).unwrap();
                    set.insert(fs::metadata(&at).unwrap().ino());
                }
            }
            if last_apply(opened.session()).is_none() {
                // Nothing was written, so there is nothing to undo.
                return 0;
            }
            let options = UndoOptions { skip_drifted: true, ..undoing() };
            let report = undo(&opened, None, &options, None, None, &mut go_on).unwrap();
            let now = modes(&base);
            for ino in set {
                assert_eq!(now.get(&ino), Some(&0o711), "{ino} of {:?}", report.skipped);
            }
            report.skipped.len()
        }));
        match checked {
            Ok(skipped) => drifted += usize::from(skipped > 0),
            Err(_) => failed.push(*seed),
        }
    }
    assert!(failed.is_empty(), "seeds {failed:?}");
    assert!(drifted > 3, "{drifted} of {CASES}");
}
