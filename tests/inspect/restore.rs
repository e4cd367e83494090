//! Restoring checkpoints.

use std::collections::{BTreeMap, BTreeSet};

use acetate::delta::{
    Checkpoint, CheckpointId, KEPT_CHECKPOINTS, MergedPath, RestoreOutcome, RestoreRequest,
    RestoredTree, StoreError,
};
use acetate::inspect::diff::{Difference, DifferenceKind};
use acetate::inspect::restore::plan_restore;
use acetate::overlay::CopyLimits;
use acetate::vfs::{CreateHow, CreateVerifier, FsError, Locator, SetAttr, Time};

use super::checkpoints::{all, open_at, step, tree};
use crate::support::random::Random;
use crate::support::world::{Setup, World};

fn outcome(world: &World, to: CheckpointId, seen: Option<i64>) -> RestoreOutcome {
    let restore = RestoreRequest { to, seen, time: Time::default() };
    world.wait(world.overlay.restore(&world.caller, restore)).unwrap()
}

fn restore(world: &World, to: &Checkpoint) -> RestoredTree {
    match outcome(world, to.id, None) {
        RestoreOutcome::Restored(restored) => restored,
        other => panic!("{other:?}"),
    }
}

/// A tree without the times of the last change of attributes.
fn without_ctimes(tree: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let strip = |what: &String| what.rsplit_once(" Time").unwrap().0.to_owned();
    tree.iter().map(|(path, what)| (path.clone(), strip(what))).collect()
}

#[track_caller]
fn assert_same(is: &BTreeMap<String, String>, expected: &BTreeMap<String, String>, what: &str) {
    for path in is.keys().chain(expected.keys()) {
        assert_eq!(is.get(path), expected.get(path), "{what}: {path}");
    }
}

/// Checks that a plan lists each path that a restore of `to` brings, takes or changes.
fn check_plan(world: &World, to: &Checkpoint) {
    let now = open_at(world, None);
    let plan = plan_restore(&now, None, to).unwrap();
    let (before, after) = (all(&now, false), all(&open_at(world, Some(to)), false));
    let mut listed = BTreeSet::new();
    let mut moved = Vec::new();
    for difference in &plan.differences {
        let to = difference.path.display().to_string();
        if let Some(old) = &difference.old {
            let from = MergedPath::of_base(&old.path).display().to_string();
            moved.push(from.clone());
            listed.insert(from);
        }
        moved.push(to.clone());
        listed.insert(to);
    }
    let is_listed = |path: &str| {
        // What moved along with a directory has no line of its own.
        let is_below =
            |dir: &String| path.strip_prefix(dir.as_str()).is_some_and(|r| r.starts_with('/'));
        listed.contains(path) || moved.iter().any(is_below)
    };
    for path in before.keys().chain(after.keys()) {
        if before.get(path) != after.get(path) {
            assert!(is_listed(path), "{path}: {:?}", plan.differences);
        }
    }
    if before == after {
        let is_time = |difference: &Difference| difference.kind == DifferenceKind::Modified;
        assert!(plan.differences.iter().all(is_time), "{:?}", plan.differences);
    }
}

/// Random changes, checkpoints and restores: each restore has the tree of its moment, numbers
/// included, nothing that changed keeps its ctime, and all checkpoints still show theirs.
#[test]
fn a_restored_tree_is_that_of_its_moment() {
    let base =
        "a/a \"aa\"\na/b \"ab\"\na/c/a \"aca\"\nb/a \"ba\"\nb/b = b/a\nc \"c\"\nd/a/b \"dab\"\n";
    for seed in 0..12 {
        let mut world = World::new(base);
        let mut random = Random::new(seed);
        let mut known: BTreeMap<CheckpointId, (Checkpoint, BTreeMap<String, String>)> =
            BTreeMap::new();
        for _ in 0..9 {
            for _ in 0..random.below(14) {
                step(&world, &mut random);
            }
            match random.below(8) {
                0 => world.reopen(),
                1 => world.kill(),
                2 if !known.is_empty() => {
                    let id = *known.keys().nth(random.below(known.len())).unwrap();
                    assert!(world.wait(world.overlay.remove_checkpoint(id)).unwrap());
                    known.remove(&id);
                }
                3..=5 if !known.is_empty() => {
                    let (to, then) =
                        known.values().nth(random.below(known.len())).cloned().unwrap();
                    let before = tree(&world, None);
                    check_plan(&world, &to);
                    world.tick(1);
                    let restored = restore(&world, &to);
                    let now = tree(&world, None);
                    let what = format!("seed {seed}, checkpoint {}", to.id);
                    assert_same(&without_ctimes(&now), &without_ctimes(&then), &what);
                    for (path, what) in &now {
                        let (is, ctime) = what.rsplit_once(" Time").unwrap();
                        let was = before.get(path).map(|what| what.rsplit_once(" Time").unwrap());
                        if let Some((was, earlier)) = was
                            && was != is
                        {
                            assert_ne!(ctime, earlier, "{path}: {was}, {is}");
                        }
                    }
                    let listed = open_at(&world, None).session().checkpoints().unwrap();
                    let safety = listed.into_iter().find(|one| one.id == restored.before).unwrap();
                    known.entry(safety.id).or_insert((safety, before));
                }
                _ => {
                    let made = world.checkpoint();
                    known.insert(made.id, (made, tree(&world, None)));
                }
            }
            for (id, (checkpoint, then)) in &known {
                let shown = tree(&world, Some(checkpoint));
                assert_same(&shown, then, &format!("seed {seed}, checkpoint {id}"));
            }
        }
        world.close();
    }
}

/// Objects keep their handles: one that is there at both moments, and one that returns; one that
/// was made since is stale.
#[test]
fn handles_stay_valid_across_a_restore() {
    let world = World::new("base \"base\"\ndir/in \"in\"\n");
    let found = |path: &str| world.find(path).unwrap();
    for name in ["own", "goes"] {
        world.create(name, CreateHow::Unchecked(SetAttr::default())).unwrap();
        world.write(name, 0, b"then").unwrap();
    }
    world.write("base", 0, b"BASE").unwrap();
    let (own, goes, base) = (found("own"), found("goes"), found("base"));
    let checkpoint = world.checkpoint();
    world.write("own", 0, b"changed since").unwrap();
    world.remove("goes").unwrap();
    world.truncate("base", 0).unwrap();
    world.rename("dir", "moved").unwrap();
    world.create("later", CreateHow::Unchecked(SetAttr::default())).unwrap();
    let (changed, later) = (found("own"), found("later"));
    assert_eq!(world.getattr(&goes.object), Err(FsError::Stale));
    restore(&world, &checkpoint);

    let content = |object: &Locator| world.read_all(object).unwrap();
    for (then, content_then) in [(&own, "then"), (&goes, "then"), (&base, "BASE")] {
        let now = world.getattr(&then.object).unwrap();
        assert_eq!(content(&then.object), content_then.as_bytes());
        assert_eq!((now.fileid, now.mtime, now.size), (then.attr.fileid, then.attr.mtime, 4));
        assert!(now.ctime > then.attr.ctime);
    }
    assert!(world.getattr(&own.object).unwrap().ctime > changed.attr.ctime);
    assert_eq!(world.getattr(&later.object), Err(FsError::Stale));
    assert!(world.find("dir/in").is_ok() && world.find("moved").is_err());
    // The next object does not get the number of one that is gone.
    world.create("next", CreateHow::Unchecked(SetAttr::default())).unwrap();
    assert!(found("next").attr.fileid > later.attr.fileid);
}

/// Nothing is restored if somebody changed something after the user looked, or without the
/// checkpoint.
#[test]
fn a_restore_is_of_what_was_shown() {
    let world = World::new("");
    world.mkdir("one").unwrap();
    let checkpoint = world.checkpoint();
    world.mkdir("two").unwrap();
    let seen = plan_restore(&open_at(&world, None), None, &checkpoint).unwrap().seen;
    world.mkdir("three").unwrap();
    assert_eq!(outcome(&world, checkpoint.id, Some(seen)), RestoreOutcome::ChangedSince);
    let none = CheckpointId(checkpoint.id.0 + 100);
    assert_eq!(outcome(&world, none, None), RestoreOutcome::NoCheckpoint);
    assert!(world.find("three").is_ok());
    assert!(matches!(outcome(&world, checkpoint.id, Some(seen + 1)), RestoreOutcome::Restored(_)));
    assert!(world.find("one").is_ok() && world.find("two").is_err());
}

/// What the background has copied since stays in the session: the base may have changed it.
#[test]
fn content_that_was_copied_in_the_background_stays() {
    let content: String = (0..4000).map(|at| char::from(b'a' + (at / 512) as u8)).collect();
    let base = Some(format!("large \"{content}\"\n"));
    let copy_up = CopyLimits::of(1000, 1024);
    let mut world = World::with(Setup { base, chunk_bytes: 512, copy_up, ..Setup::default() });
    world.write("large", 0, b"!").unwrap();
    let checkpoint = world.checkpoint();
    world.finish_copies();
    world.write("large", 3000, b"changed").unwrap();
    std::fs::write(world.change_base().join("large"), "other").unwrap();
    restore(&world, &checkpoint);
    let is = world.read_all(&world.find("large").unwrap().object).unwrap();
    assert_eq!(String::from_utf8(is).unwrap(), content.replacen('a', "!", 1));
}

/// What the background copies after a restore is not taken for content of a checkpoint at which it
/// was a hole.
#[test]
fn a_hole_stays_a_hole_after_a_restore_and_a_copy() {
    let content = "x".repeat(4000);
    let base = Some(format!("large \"{content}\"\n"));
    let copy_up = CopyLimits::of(1000, 1024);
    let mut world = World::with(Setup { base, chunk_bytes: 512, copy_up, ..Setup::default() });
    world.chmod("large", 0o600).unwrap();
    let pending = world.checkpoint();
    world.truncate("large", 100).unwrap();
    world.truncate("large", 4000).unwrap();
    let with_hole = world.checkpoint();
    let then = tree(&world, None);
    restore(&world, &pending);
    let later = world.checkpoint();
    world.finish_copies();
    assert_eq!(world.read("large").unwrap(), content.as_bytes());
    assert!(world.wait(world.overlay.remove_checkpoint(later.id)).unwrap());
    assert_same(&tree(&world, Some(&with_hole)), &then, "the hole");
    restore(&world, &with_hole);
    assert_same(&without_ctimes(&tree(&world, None)), &without_ctimes(&then), "the hole");
    world.close();
}

/// A full disk stops a restore at any step: nothing has changed, and the checkpoint that was made
/// before stays.
#[test]
fn a_restore_that_fails_changes_nothing() {
    for (method, call) in [("restore", 1), ("put_inode", 1), ("record", 1), ("commit", 2)] {
        let mut world = World::new("dir/sub/a \"a\"\nb \"b\"\n");
        world.mkdir("dir/new").unwrap();
        let checkpoint = world.checkpoint();
        let then = tree(&world, None);
        world.remove("b").unwrap();
        world.rename("dir", "moved").unwrap();
        world.rmdir("moved/new").unwrap();
        let before = tree(&world, None);
        world.faults.fail(method, call, StoreError::full("full"));
        let to = RestoreRequest { to: checkpoint.id, seen: None, time: Time::default() };
        let failed = world.wait(world.overlay.restore(&world.caller, to));
        assert_eq!(failed.unwrap_err(), FsError::NoSpace.into(), "{method}");
        assert!(!world.faults.clear(), "{method} was not called");
        assert_same(&tree(&world, None), &before, method);
        let all = open_at(&world, None).session().checkpoints().unwrap();
        let kinds: Vec<_> = all.iter().map(|one| one.kind.as_str()).collect();
        assert_eq!(kinds, ["manual", "safety"], "{method}");
        assert_eq!(restore(&world, &checkpoint).before, all[1].id);
        let now = tree(&world, None);
        assert_same(&without_ctimes(&now), &without_ctimes(&then), method);
        world.close();
    }
}

/// A session that accepts no changes is not restored.
#[test]
fn a_session_that_is_only_read_is_not_restored() {
    let mut world = World::new("");
    world.mkdir("one").unwrap();
    let checkpoint = world.checkpoint();
    world.mkdir("two").unwrap();
    world.reopen_read_only();
    let to = RestoreRequest { to: checkpoint.id, seen: None, time: Time::default() };
    let refused = world.wait(world.overlay.restore(&world.caller, to));
    assert_eq!(refused.unwrap_err(), FsError::ReadOnly.into());
    assert!(world.find("two").is_ok());
}

/// Restored objects have later ctimes than ever before, also where a clock went back.
#[test]
fn restored_objects_have_later_ctimes() {
    let world = World::new("");
    world.put("file", "then");
    let checkpoint = world.checkpoint();
    world.tick(100);
    world.write("file", 0, b"late").unwrap();
    let late = world.stat("file").ctime;
    world.tick(-1000);
    restore(&world, &checkpoint);
    assert_eq!(world.read("file").unwrap(), b"then");
    assert!(world.stat("file").ctime > late);
}

/// Checkpoints before restores do not add up, and the one that is restored stays.
#[test]
fn checkpoints_before_restores_become_fewer() {
    let world = World::new("");
    world.mkdir("one").unwrap();
    let first = world.checkpoint();
    for step in 0..120 {
        world.mkdir(format!("dir{step}")).unwrap();
        restore(&world, &first);
    }
    let all = open_at(&world, None).session().checkpoints().unwrap();
    // The newest hundred, one for the hour, and that of the test.
    assert!(all.len() <= KEPT_CHECKPOINTS + 2, "{}", all.len());
    assert_eq!(all[0].id, first.id);
}

/// A file that changed in pieces comes back whole.
#[test]
fn pieces_of_a_file_come_back() {
    let mut world = World::new("");
    let content: Vec<u8> = (0..1_000_000_u32).map(|at| (at / 4096) as u8).collect();
    world.put("file", "");
    world.write("file", 0, &content).unwrap();
    let checkpoint = world.checkpoint();
    for at in (0..1_000_000).step_by(70_000) {
        world.write("file", at, b"changed").unwrap();
    }
    restore(&world, &checkpoint);
    assert!(world.read("file").unwrap() == content);
    world.close();
}

/// The verifier of an exclusive CREATE does not come back with its file.
#[test]
fn an_exclusive_create_from_before_is_not_known_again() {
    let world = World::new("");
    let how = || CreateHow::Exclusive(CreateVerifier([7; 8]));
    world.create("file", how()).unwrap();
    let checkpoint = world.checkpoint();
    assert!(world.create("file", how()).is_ok(), "a retransmission");
    world.remove("file").unwrap();
    restore(&world, &checkpoint);
    assert_eq!(world.create("file", how()).unwrap_err(), FsError::Exists);
}

/// Other programs save no rows: what they made goes, what they removed stays removed, and the
/// session is sound.
#[test]
fn a_restore_after_changes_by_another_program_leaves_a_sound_session() {
    let mut world = World::new("base \"base\"\n");
    for path in ["dir", "goes", "goes/sub"] {
        world.mkdir(path).unwrap();
    }
    for path in ["dir/own", "goes/sub/file", "linked", "moved", "kept"] {
        world.put(path, "then");
    }
    let checkpoint = world.checkpoint();
    let then = tree(&world, None);
    for path in ["dir/own", "goes/sub/file", "linked", "kept"] {
        world.put(path, "later");
    }
    world.rename("dir", "renamed").unwrap();
    world.rename("moved", "moved on").unwrap();
    world.put("goes/sub/new", "new");
    world.remove("goes/sub/new").unwrap();
    let number = |path: &str| world.stat(path).fileid.0.cast_signed();
    let numbers =
        ["renamed", "goes", "goes/sub", "goes/sub/file", "linked", "moved on"].map(number);
    let [renamed, goes, sub, file, linked, moved] = numbers;
    let gone = format!("{goes}, {sub}, {file}");
    world.close();
    world
        .sql()
        .execute_batch(&format!(
            "INSERT INTO fs_inode (mode, nlink, size, atime, mtime, ctime)
               VALUES (16877, 1, 0, 5, 5, 5);
             INSERT INTO fs_dentry (name, parent_ino, ino) SELECT 'by', 1, max(ino) FROM fs_inode;
             INSERT INTO fs_dentry (name, parent_ino, ino) VALUES ('further', 1, {linked});
             UPDATE fs_inode SET nlink = 2 WHERE ino = {linked};
             UPDATE fs_dentry SET name = 'theirs' WHERE ino IN ({renamed});
             UPDATE fs_dentry SET name = 'their file' WHERE ino = {moved};
             DELETE FROM fs_data WHERE ino = {file};
             DELETE FROM fs_dentry WHERE ino IN ({gone});
             DELETE FROM fs_inode WHERE ino IN ({gone});
             DELETE FROM acetate_inode WHERE ino IN ({gone});"
        ))
        .unwrap();
    world.open_again();
    restore(&world, &checkpoint);
    let now = tree(&world, None);
    let names: Vec<_> = now.keys().map(String::as_str).collect();
    let expected =
        ["/", "/base", "/dir", "/dir/own", "/further", "/kept", "/linked", "/moved", "/their file"];
    assert_eq!(names, expected);
    for path in ["/dir/own", "/kept"] {
        let what = |tree: &BTreeMap<String, String>| without_ctimes(tree)[path].clone();
        assert_eq!(what(&now), what(&then));
    }
    assert_eq!((world.stat("linked").nlink, world.stat("moved").nlink), (2, 2));
    assert_eq!(world.cat("linked"), "then");
    world.close();
}
