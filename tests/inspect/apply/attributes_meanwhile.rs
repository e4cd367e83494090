//! Modes, owners and times that a person sets after the plan was made, or after a kill.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use acetate::inspect::apply::{
    ApplyEvent, ApplyPlan, Consent, Report, ShowPlan, apply, resume, undo,
};
use acetate::inspect::diff::Difference;
use acetate::vfs::Time;

use super::undo::{go_on, keeping, undoing};
use super::undo_as_user::is_root;
use super::undo_killed::stop_at;
use super::undo_random::{Case, Random, cases, change_both, change_session};
use super::{copy, open, watched};
use crate::support::applied::{all, planned};
use crate::support::fixture::FEW_NAMES;
use crate::support::world::World;

const TREE: &str = r#"
    dir/e/a "a"
    dir/other "other"
    moved/file "file"
    a "a"
    c "c"
    mode/ 755
    file "file"
"#;

const DAY: i64 = 24 * 60 * 60;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_time(path: &Path, secs: i64) {
    let time = UNIX_EPOCH + Duration::from_secs(secs.try_into().unwrap());
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

fn time(path: &Path) -> i64 {
    fs::metadata(path).unwrap().mtime()
}

fn words(report: &Report) -> Vec<String> {
    let all = report.skipped.iter().chain(&report.kept_attributes);
    let words = all.map(|s| format!("{}: {}", s.path.display(), s.why));
    words.collect()
}

/// Only entries of the directories change.
fn with_new_entries() -> World {
    let world = World::new(TREE);
    world.tick(60);
    world.put("dir/e/n", "n");
    world.mkdir("src").unwrap();
    for number in 0..4 {
        world.put(format!("src/f{number}"), "new");
    }
    world.rename("moved", "to").unwrap();
    world
}

/// The mode, group and time of two files and a directory are changed.
fn with_attributes() -> World {
    let world = World::new(TREE);
    world.tick(60);
    for path in ["a", "c"] {
        world.utimes(path, Time { secs: 40 * DAY, nanos: 0 }).unwrap();
    }
    world.chmod("mode", 0o711).unwrap();
    world.chmod("file", 0o640).unwrap();
    world
}

/// Breaks off before each step in turn, lets a person act, and finishes. `check` gets the report,
/// and whether the run was broken off.
fn broken_off(
    world: &World,
    act: &mut dyn FnMut(&Path),
    check: &mut dyn FnMut(&Path, &Report, usize),
) {
    let opened = open(world);
    for at in 0.. {
        let to = copy(world, &at.to_string());
        let plan = planned(&opened, Some(&to), &all()).unwrap();
        let mut stop = stop_at(at);
        let report = apply(&opened, Some(&to), &all(), Consent::Shown(&plan), None, &mut stop);
        if report.unwrap().broken_off.is_none() {
            assert!(at > 0);
            break;
        }
        std::thread::sleep(Duration::from_millis(30));
        act(&to);
        let report = resume(&opened, Some(&to), None, &mut go_on).unwrap().unwrap();
        check(&to, &report, at);
        fs::remove_dir_all(to).unwrap();
    }
}

#[test]
fn the_mode_of_a_directory_in_which_only_entries_change_stays_after_a_kill() {
    broken_off(
        &with_new_entries(),
        &mut |to| {
            for path in ["", "dir", "dir/e"] {
                set_mode(&to.join(path), 0o700);
            }
        },
        &mut |to, report, at| {
            for path in ["", "dir", "dir/e"] {
                assert_eq!(mode(&to.join(path)), 0o700, "{path} after {at} steps");
            }
            assert_eq!(words(report), [""; 0]);
            assert_eq!(fs::read(to.join("dir/e/n")).unwrap(), b"n");
        },
    );
}

#[test]
fn mode_and_owner_of_a_directory_stay_that_change_while_objects_are_made() {
    if !is_root() {
        return;
    }
    let mut world = with_new_entries();
    let to = world.change_base();
    let mut is_first = true;
    let report = watched(&open(&world), None, &all(), &mut |event| {
        if matches!(event, ApplyEvent::Making { .. }) && std::mem::take(&mut is_first) {
            set_mode(&to, 0o700);
            set_mode(&to.join("dir"), 0o700);
            chown(to.join("dir"), Some(12345), None).unwrap();
        }
        ControlFlow::Continue(())
    });
    assert_eq!(words(&report.unwrap()), [""; 0]);
    assert_eq!((mode(&to), mode(&to.join("dir"))), (0o700, 0o700));
    assert_eq!(fs::metadata(to.join("dir")).unwrap().uid(), 12345);
    assert_eq!(fs::read(to.join("dir/e/n")).unwrap(), b"n");
}

#[test]
fn a_file_that_gets_only_a_time_keeps_mode_and_new_content() {
    let world = with_attributes();
    let to = copy(&world, "copy");
    let opened = open(&world);
    let plan = planned(&opened, Some(&to), &all()).unwrap();
    let mut stop = stop_at(0);
    let stopped = apply(&opened, Some(&to), &all(), Consent::Shown(&plan), None, &mut stop);
    assert!(stopped.unwrap().broken_off.is_some());
    set_mode(&to.join("a"), 0o600);
    fs::write(to.join("c"), "person").unwrap();
    let written = time(&to.join("c"));
    let report = resume(&opened, Some(&to), None, &mut go_on).unwrap().unwrap();
    assert_eq!((mode(&to.join("a")), time(&to.join("a"))), (0o600, 40 * DAY));
    assert_eq!(time(&to.join("c")), written);
    assert_eq!(words(&report), ["/c: its time changed after the plan was made"]);
    assert_eq!((mode(&to.join("mode")), mode(&to.join("file"))), (0o711, 0o640));
}

#[test]
fn another_directory_in_the_place_of_one_keeps_its_mode() {
    broken_off(
        &with_new_entries(),
        &mut |to| {
            fs::rename(to.join("dir"), to.join("dir.old")).unwrap();
            fs::create_dir_all(to.join("dir/e")).unwrap();
            set_mode(&to.join("dir"), 0o700);
        },
        &mut |to, _, at| assert_eq!(mode(&to.join("dir")), 0o700, "after {at} steps"),
    );
}

#[test]
fn a_mode_that_both_sides_set_is_left_as_the_person_set_it() {
    broken_off(
        &with_attributes(),
        &mut |to| {
            set_mode(&to.join("mode"), 0o700);
            set_mode(&to.join("file"), 0o600);
        },
        &mut |to, report, at| {
            assert_eq!((mode(&to.join("mode")), mode(&to.join("file"))), (0o700, 0o600));
            let told = words(report);
            if at == 0 {
                let why = "its mode changed after the plan was made";
                assert_eq!(told, [format!("/file: {why}"), format!("/mode: {why}")]);
            }
            let kept = report.applied.iter().map(|change| change.path.display().to_string());
            let mut kept: Vec<_> = kept.collect();
            kept.retain(|path| told.iter().any(|told| told.starts_with(&format!("{path}:"))));
            assert_eq!(kept, [""; 0], "the session keeps what was skipped");
        },
    );
}

/// A directory's time is set back only if nothing but the apply changed its entries.
#[test]
fn the_time_of_a_directory_stays_that_got_another_entry() {
    for path in ["", "dir/e", "src", "to"] {
        broken_off(
            &with_new_entries(),
            &mut |to| {
                if to.join(path).is_dir() {
                    fs::write(to.join(path).join("theirs"), "theirs").unwrap();
                }
            },
            &mut |to, report, at| {
                if to.join(path).join("theirs").exists() {
                    let (dir, file) = (time(&to.join(path)), time(&to.join(path).join("theirs")));
                    assert!((dir - file).abs() < 5, "{path} after {at} steps: {dir}, {file}");
                    assert_eq!(words(report), [""; 0]);
                }
            },
        );
    }
}

#[test]
fn a_time_that_a_person_gave_a_directory_stays() {
    for path in ["", "dir", "dir/e"] {
        broken_off(
            &with_new_entries(),
            &mut |to| set_time(&to.join(path), 99 * DAY),
            &mut |to, _, at| {
                assert_eq!(time(&to.join(path)), 99 * DAY, "{path} after {at} steps");
            },
        );
    }
}

#[test]
fn the_mode_of_a_new_or_moved_directory_stays() {
    let mut told = 0;
    broken_off(
        &with_new_entries(),
        &mut |to| {
            for path in ["src", "to"] {
                if to.join(path).is_dir() {
                    set_mode(&to.join(path), 0o750);
                }
            }
            fs::write(to.join("marks"), "").unwrap();
        },
        &mut |to, report, _| {
            let is_kept = mode(&to.join("src")) == 0o750;
            let is_told = words(report).iter().any(|word| word.starts_with("/src: "));
            assert!(is_kept || !is_told, "{:?}", words(report));
            told += usize::from(is_told);
        },
    );
    assert!(told > 0);
}

struct ActThenRefuse<'a>(&'a dyn Fn());

impl ShowPlan for ActThenRefuse<'_> {
    fn difference(&mut self, _: &Difference) {}

    fn plan(&mut self, _: &ApplyPlan) -> ControlFlow<()> {
        (self.0)();
        ControlFlow::Break(())
    }
}

#[test]
fn the_mode_of_the_top_stays_that_changes_while_the_plan_is_shown() {
    let world = with_new_entries();
    let to = copy(&world, "copy");
    let before = time(&to);
    let act = || set_mode(&to, 0o700);
    let mut show = ActThenRefuse(&act);
    let consent = Consent::All(&mut show);
    let report = apply(&open(&world), Some(&to), &all(), consent, None, &mut go_on).unwrap();
    assert_eq!(report.broken_off, Some((0, 0)));
    assert_eq!((mode(&to), time(&to)), (0o700, before));
}

#[test]
fn an_undo_that_is_finished_later_keeps_what_a_person_set() {
    for at in 0.. {
        let world = with_attributes();
        world.put("dir/e/n", "n");
        let opened = open(&world);
        let to = copy(&world, &format!("undo{at}"));
        super::undo::apply_kept(&opened, Some(&to), &keeping());
        let mut stop = stop_at(at);
        let report = undo(&opened, Some(&to), &undoing(), None, None, &mut stop).unwrap();
        if report.broken_off.is_none() {
            break;
        }
        let paths: [PathBuf; 5] = ["", "dir", "dir/e", "mode", "file"].map(|path| to.join(path));
        paths.iter().for_each(|path| set_mode(path, 0o750));
        let report = resume(&opened, Some(&to), None, &mut go_on).unwrap().unwrap();
        let modes = paths.iter().map(|path| mode(path)).collect::<Vec<_>>();
        assert_eq!(modes, [0o750; 5], "after {at} steps");
        if at == 0 {
            assert_eq!(report.skipped.len(), 2, "{:?}", words(&report));
        }
        fs::remove_dir_all(to).unwrap();
    }
}

/// Mode, group and mtime.
fn attributes(path: &Path) -> (u64, [i64; 3]) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.ino(), [i64::from(meta.mode() & 0o7777), i64::from(meta.gid()), meta.mtime()])
}

/// What a person sets: the values, by inode number and the index in [`attributes`].
fn set_some(to: &Path, random: &mut Random, group: Option<u32>) -> BTreeMap<(u64, usize), i64> {
    let (all, mut set) = (all_below(to), BTreeMap::new());
    let is_staging = |path: &Path| path.starts_with(to.join(".acetate-apply"));
    let mut paths: Vec<_> = all.into_values().map(|(path, _)| path).collect();
    paths.retain(|path| !is_staging(path));
    paths.sort();
    for _ in 0..2 + random.below(8) {
        let path = &paths[random.below(paths.len())];
        let meta = fs::symlink_metadata(path).unwrap();
        // Nothing tells a chmod of a file with several names from a further link.
        if meta.is_symlink() || (meta.is_file() && meta.nlink() > 1) {
            continue;
        }
        let field = random.below(3);
        match field {
            0 => set_mode(path, [0o700, 0o751, 0o777][random.below(3)]),
            1 => chown(path, None, group).unwrap(),
            _ => set_time(path, DAY * (100 + random.below(9) as i64)),
        }
        let (ino, values) = attributes(path);
        set.insert((ino, field), values[field]);
    }
    set
}

fn all_below(top: &Path) -> BTreeMap<u64, (PathBuf, [i64; 3])> {
    let (mut found, mut open) = (BTreeMap::new(), vec![top.to_owned()]);
    while let Some(path) = open.pop() {
        let (ino, values) = attributes(&path);
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert(ino, (path, values));
    }
    found
}

#[test]
fn nothing_of_what_a_person_sets_at_any_step_is_lost_unsaid() {
    let (count, mut checked) = (24, 0);
    let group = is_root().then_some(4321);
    let mut cases = cases(0..count, FEW_NAMES, |_, _| BTreeSet::new());
    let clients = |world: &World, random: &mut Random| {
        for number in 0..2 + random.below(10) {
            change_session(world, random, number);
        }
    };
    change_both(&mut cases, clients, |_| {});
    for Case { seed, world, random, .. } in &mut cases {
        let (to, opened) = (copy(world, "copy"), open(world));
        let plan = planned(&opened, Some(&to), &all()).unwrap();
        let at = random.below(12);
        let mut stop = stop_at(at);
        let report = apply(&opened, Some(&to), &all(), Consent::Shown(&plan), None, &mut stop);
        if report.unwrap().broken_off.is_none() {
            continue;
        }
        std::thread::sleep(Duration::from_millis(30));
        let set = set_some(&to, random, group);
        let report = resume(&opened, Some(&to), None, &mut go_on).unwrap().unwrap();
        let now = all_below(&to);
        for ((ino, field), value) in &set {
            let Some((path, values)) = now.get(ino) else { continue };
            checked += 1;
            let name = format!("/{}", path.strip_prefix(&to).unwrap().display());
            let is_told = report.skipped.iter().any(|s| s.path.display().to_string() == name);
            let is_kept = values[*field] == *value;
            assert!(is_kept || is_told, "seed {seed}, {at} steps: {name}: {field}, {value}");
        }
    }
    assert!(checked > 10, "{checked}");
}
