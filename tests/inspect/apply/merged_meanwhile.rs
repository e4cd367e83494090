//! Files that a client changes during the apply that merges them: the base's own changes are not
//! taken for the session's, so that no later apply undoes them.

use std::fs::{self, Permissions};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use acetate::delta::MergedPath;
use acetate::inspect::apply::{ApplyEvent, Consent, apply, resume};

use super::parts::lines;
use super::session_meanwhile::{Moment, apply_with};
use super::{apply_served, only, open};
use crate::support::applied::{Book, all, planned};
use crate::support::client::size;
use crate::support::skip::skip;
use crate::support::world::World;

/// Fifteen lines; those of `words` are words.
fn text(words: &[(u32, &str)]) -> String {
    let word = |n: u32| words.iter().find(|(line, _)| *line == n).map(|(_, word)| *word);
    (1..=15).map(|n| word(n).map_or(format!("{n}\n"), |word| format!("{word}\n"))).collect()
}

const SESSION: (u32, &str) = (3, "session");
const PERSON: (u32, &str) = (12, "person");

/// A session that changed a line of `f`.
fn changed() -> (World, PathBuf) {
    let mut world =
        World::new(&format!("f \"{0}\"\nd/e \"{0}\"\n", lines(1..=15).escape_default()));
    world.tick(60);
    world.put("f", &text(&[SESSION]));
    world.tick(60);
    let base = world.change_base();
    (world, base)
}

/// The number of steps of an apply of [`changed`].
fn last_step() -> usize {
    let (world, _) = changed();
    let mut last = 0;
    apply_with(&world, &all(), |now| {
        if let Moment::Step(step) = now {
            last = step;
        }
    });
    last
}

pub fn append(world: &World, path: &str) {
    let at = world.cat(path).len() as u64;
    world.write(path, at, b"agent\n").unwrap();
}

/// What a client does during the apply, and where the file is then.
type Change = (&'static str, fn(&World), &'static [&'static str]);

const CHANGES: [Change; 5] = [
    ("write", |w| append(w, "f"), &["f"]),
    ("chmod", |w| w.chmod("f", 0o700).unwrap(), &["f"]),
    ("rename", |w| w.rename("f", "g").unwrap(), &["g"]),
    ("rename to another directory", |w| w.rename("f", "d/g").unwrap(), &["d/g"]),
    ("link", |w| w.link("f", "g").unwrap(), &["f", "g"]),
];

#[test]
fn lines_of_the_base_in_a_merged_file_stay_when_a_client_changes_the_file() {
    for (what, change, paths) in CHANGES {
        let (world, base) = changed();
        fs::write(base.join("f"), text(&[PERSON])).unwrap();
        apply_with(&world, &all(), |now| {
            if now == Moment::LettingGo {
                change(&world);
            }
        });
        let merged = text(&[SESSION, PERSON]);
        assert_eq!(fs::read_to_string(base.join("f")).unwrap(), merged, "{what}");
        assert_eq!(planned(&open(&world), None, &all()).unwrap().drifted, [], "{what}");
        assert_eq!(apply_served(&world, &all()).skipped, [], "{what}");
        let wanted = if what == "write" { merged + "agent\n" } else { merged };
        for path in paths {
            assert_eq!(fs::read_to_string(base.join(path)).unwrap(), wanted, "{what}: {path}");
        }
        assert_eq!(base.join("f").exists(), paths.contains(&"f"), "{what}");
        assert_eq!(planned(&open(&world), None, &all()).unwrap().changes, [], "{what}");
    }
}

/// Its removal would remove the person's line.
#[test]
fn a_client_that_removes_a_merged_file_has_not_seen_the_lines_of_the_base() {
    let (world, base) = changed();
    fs::write(base.join("f"), text(&[PERSON])).unwrap();
    apply_with(&world, &all(), |now| {
        if now == Moment::LettingGo {
            world.remove("f").unwrap();
        }
    });
    let plan = planned(&open(&world), None, &all()).unwrap();
    let drifted: Vec<_> = plan.drifted.iter().map(|drifted| &drifted.path).collect();
    assert_eq!(drifted, [&MergedPath::from_user(b"/f").unwrap()]);
}

/// The same of a file that the session only moved, by a client between two runs. The originals of
/// removed objects are kept later.
#[test]
fn a_client_that_removes_a_moved_file_has_not_seen_the_lines_of_the_base() {
    for (again, steps) in [None, Some("again")].into_iter().flat_map(|to| [1, 2].map(|n| (to, n))) {
        let (world, base) = changed();
        world.rename("d/e", "e").unwrap();
        fs::write(base.join("d/e"), text(&[PERSON])).unwrap();
        let mut stop = |event: ApplyEvent| match event {
            ApplyEvent::Step { done, .. } if done == steps => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let opened = open(&world);
        let plan = planned(&opened, None, &only(&["e"])).unwrap();
        let (consent, mut book) = (Consent::Shown(&plan), Book(&world));
        let options = only(&["e"]);
        apply(&opened, None, &options, consent, Some(&mut book), &mut stop).unwrap();
        match again {
            Some(to) => world.rename("e", to).unwrap(),
            None => world.remove("e").unwrap(),
        }
        let mut go_on = |_: ApplyEvent| ControlFlow::Continue(());
        resume(&opened, None, Some(&mut book), &mut go_on).unwrap();
        world.keep_removed();
        let plan = planned(&open(&world), None, &all()).unwrap();
        assert_eq!((plan.drifted.is_empty(), plan.deletions), (again.is_some(), 0), "{plan:#?}");
        if again.is_some() {
            apply_served(&world, &all());
            assert_eq!(fs::read_to_string(base.join("again")).unwrap(), text(&[PERSON]));
        }
    }
}

#[test]
fn the_mode_and_time_of_the_base_stay_when_a_client_changes_the_file() {
    let (world, base) = changed();
    let file = base.join("d/e");
    world.chmod("d/e", 0o604).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(77);
    fs::set_permissions(base.join("f"), Permissions::from_mode(0o755)).unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    apply_with(&world, &all(), |now| {
        if now == Moment::LettingGo {
            append(&world, "f");
            world.chmod("d/e", 0o606).unwrap();
        }
    });
    let mode = |path: &str| fs::metadata(base.join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("f"), mode("d/e")), (0o755, 0o604));
    assert_eq!(planned(&open(&world), None, &all()).unwrap().drifted, []);
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!((mode("f"), mode("d/e")), (0o755, 0o606));
    assert_eq!(fs::metadata(&file).unwrap().mtime(), 77);
    assert_eq!(fs::read_to_string(base.join("f")).unwrap(), text(&[SESSION]) + "agent\n");
}

/// A file that was not merged has the session's state as its original: a client's second change of
/// a line is no conflict with the first.
#[test]
fn a_line_that_was_applied_may_change_again() {
    let (world, base) = changed();
    apply_with(&world, &all(), |now| {
        if now == Moment::LettingGo {
            world.put("f", &text(&[(3, "agent")]));
        }
    });
    let plan = planned(&open(&world), None, &all()).unwrap();
    assert!(plan.drifted.is_empty() && plan.merged.is_empty(), "{plan:?}");
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(fs::read_to_string(base.join("f")).unwrap(), text(&[(3, "agent")]));
}

#[test]
fn what_a_person_changes_after_the_step_stays_when_a_client_changes_the_file_too() {
    for is_removed in [false, true] {
        let (world, base) = changed();
        let last = last_step();
        apply_with(&world, &all(), |now| match now {
            Moment::Step(step) if step == last => {
                fs::write(base.join("f"), text(&[SESSION, PERSON])).unwrap();
            }
            Moment::LettingGo if is_removed => world.remove("f").unwrap(),
            Moment::LettingGo => append(&world, "f"),
            _ => {}
        });
        let drifted = planned(&open(&world), None, &all()).unwrap().drifted;
        assert_eq!(drifted.len(), usize::from(is_removed), "{drifted:?}");
        if !is_removed {
            assert_eq!(apply_served(&world, &all()).skipped, []);
            let wanted = text(&[SESSION, PERSON]) + "agent\n";
            assert_eq!(fs::read_to_string(base.join("f")).unwrap(), wanted);
        }
    }
}

#[test]
fn the_mode_that_a_person_gave_a_directory_is_not_replaced_by_a_clients() {
    let mut world = World::new("d/e \"1\"\n");
    world.tick(60);
    world.create("d/new", acetate::vfs::CreateHow::Unchecked(size(0))).unwrap();
    let base = world.change_base();
    fs::set_permissions(base.join("d"), Permissions::from_mode(0o775)).unwrap();
    apply_with(&world, &all(), |now| {
        if now == Moment::LettingGo {
            world.chmod("d", 0o700).unwrap();
        }
    });
    let plan = planned(&open(&world), None, &all()).unwrap();
    let drifted: Vec<_> = plan.drifted.iter().map(|drifted| &drifted.path).collect();
    assert_eq!(drifted, [&MergedPath::from_user(b"/d").unwrap()]);
}

/// A person gives a base file away; `false` if only root could.
pub fn given_away(file: &Path) -> bool {
    if !rustix::process::geteuid().is_root() {
        skip("only root gives files away");
        return false;
    }
    chown(file, Some(1), Some(2)).unwrap();
    true
}

pub fn owner(file: &Path) -> (u32, u32) {
    let meta = fs::metadata(file).unwrap();
    (meta.uid(), meta.gid())
}

#[test]
fn the_owner_that_the_base_got_stays_when_a_client_changes_the_file() {
    let (world, base) = changed();
    if !given_away(&base.join("f")) {
        return;
    }
    apply_with(&world, &all(), |now| {
        if now == Moment::LettingGo {
            append(&world, "f");
        }
    });
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(owner(&base.join("f")), (1, 2));
    assert_eq!(fs::read_to_string(base.join("f")).unwrap(), text(&[SESSION]) + "agent\n");
}

/// The session's other name becomes a further link of the base's file.
#[test]
fn the_owner_that_the_base_got_stays_when_another_name_of_the_file_is_applied_later() {
    let (world, base) = changed();
    world.link("f", "g").unwrap();
    if !given_away(&base.join("f")) {
        return;
    }
    assert_eq!(apply_served(&world, &only(&["f"])).skipped, []);
    assert_eq!(owner(&base.join("f")), (1, 2));
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(["f", "g"].map(|name| owner(&base.join(name))), [(1, 2); 2]);
}

/// Of a base file with two names, the session changes the mode.
#[test]
fn the_owner_that_the_base_got_stays_when_one_of_its_own_names_is_applied() {
    let mut world = World::new("f \"1\"\ng = f\n");
    world.chmod("f", 0o604).unwrap();
    let base = world.change_base();
    if !given_away(&base.join("f")) {
        return;
    }
    assert_eq!(apply_served(&world, &only(&["f"])).skipped, []);
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(["f", "g"].map(|name| owner(&base.join(name))), [(1, 2); 2]);
}
