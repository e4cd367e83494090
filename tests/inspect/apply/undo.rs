//! Taking an apply back, and doing it again.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use acetate::inspect::InspectError;
use acetate::inspect::apply::{
    ApplyEvent, ApplyOptions, Consent, Report, UndoKind, UndoOptions, UndoPlan, apply, interrupted,
    plan_undo, resume, undo,
};
use acetate::inspect::opened::OpenSession;

use super::{copy, open, path};
use crate::support::applied::{Book, Exact, all, assert_same, merged, on_host, planned};
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "content"
    dir/sub/deep "deep"
    dir/sub/deeper 600 "deeper"
    gone/a "a"
    gone/b/c "c"
    gone/b/d "d"
    gone/b/moved "moved"
    hard/one "linked"
    hard/two = hard/one
    hard/three = hard/one
    two/file "two"
    link -> dir/file
    type "a file"
    tree/x/y "y"
    locked/ 555
"#;

/// A change of each kind.
pub fn change(world: &World) {
    world.tick(60);
    world.rename("dir/sub", "sub").unwrap();
    world.rename("dir", "t").unwrap();
    world.rename("two", "dir").unwrap();
    world.rename("t", "two").unwrap();
    world.put("two/new", "new");
    world.link("two/new", "sub/new").unwrap();
    world.link("two/file", "sub/file").unwrap();
    world.write("sub/deep", 0, b"DEEP").unwrap();
    world.rename("gone/b/moved", "moved").unwrap();
    world.rm_rf("gone");
    world.rename("hard/one", "dir/one").unwrap();
    world.remove("hard/three").unwrap();
    world.chmod("hard/two", 0o600).unwrap();
    world.remove("type").unwrap();
    world.mkdir("type").unwrap();
    world.put("type/inside", "inside");
    world.chmod("type", 0o500).unwrap();
    world.remove("link").unwrap();
    world.symlink("elsewhere", "link").unwrap();
    world.rm_rf("tree");
    world.put("tree", "a file now");
    world.mkdir("new").unwrap();
    world.mkdir("new/dir").unwrap();
    world.put("new/dir/file", "new");
    world.chmod("locked", 0o755).unwrap();
}

pub fn keeping() -> ApplyOptions {
    ApplyOptions { keep: Some(1 << 30), ..all() }
}

pub fn undoing() -> UndoOptions {
    UndoOptions { keep: Some(1 << 30), ..UndoOptions::default() }
}

pub fn go_on(_: ApplyEvent) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

pub fn undo_dir(world: &World) -> PathBuf {
    world.scratch().join("session.db-undo")
}

/// Applies to a directory, and keeps what is replaced.
#[track_caller]
pub fn apply_kept(opened: &OpenSession, to: Option<&Path>, options: &ApplyOptions) -> Report {
    let plan = planned(opened, to, options).unwrap();
    apply(opened, to, options, Consent::Shown(&plan), None, &mut go_on).unwrap()
}

/// What an undo would do.
#[track_caller]
pub fn plan(world: &World, to: &Path) -> UndoPlan {
    plan_undo(&open(world), Some(to), &undoing()).unwrap().expect("something is kept")
}

#[track_caller]
pub fn undone(opened: &OpenSession, to: Option<&Path>, options: &UndoOptions) -> Report {
    let plan = plan_undo(opened, to, options).unwrap().expect("something is kept");
    undo(opened, to, options, Some(&plan), None, &mut go_on).unwrap()
}

/// Applies to a copy, takes that back, does it again, and takes it back again.
#[track_caller]
fn check(world: &World) {
    let to = copy(world, "undo-copy");
    let opened = open(world);
    let before = on_host(&to);
    assert_eq!(apply_kept(&opened, Some(&to), &keeping()).skipped, []);
    let after = on_host(&to);
    assert_same(&after, &merged(&world.session(), Some(&world.base())));
    for wanted in [&before, &after, &before, &after] {
        let report = undone(&opened, Some(&to), &undoing());
        assert_eq!((report.skipped, report.is_undo), (Vec::new(), true));
        assert_same(&on_host(&to), wanted);
        assert!(!to.join(".acetate-apply").exists());
    }
}

#[test]
fn the_target_is_what_it_was_and_back_again() {
    let world = World::new(TREE);
    change(&world);
    check(&world);
    let mode = fs::metadata(undo_dir(&world)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn files_with_names_that_stay() {
    let world = World::new(crate::support::fixture::FEW_NAMES);
    world.tick(60);
    world.remove("a/e").unwrap();
    check(&world);
    let world = World::new(crate::support::fixture::FEW_NAMES);
    world.tick(60);
    world.rm_rf("a");
    world.put("b/a", "other");
    check(&world);
}

#[test]
fn holes_stay_holes() {
    let mut world = World::new("dir/\n");
    let base = world.change_base();
    let file = fs::File::create(base.join("dir/sparse")).unwrap();
    file.set_len(64 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"data", 32 << 20).unwrap();
    world.tick(60);
    world.remove("dir/sparse").unwrap();
    check(&world);
    let blocks = fs::metadata(world.scratch().join("undo-copy/dir")).unwrap().blocks();
    assert!(blocks < 1 << 10);
}

#[test]
fn the_session_is_told_nothing_by_an_undo() {
    let mut world = World::new(TREE);
    world.tick(60);
    world.rename("dir", "moved").unwrap();
    world.write("moved/file", 0, b"CONTENT").unwrap();
    world.rm_rf("gone");
    world.put("new", "new");
    let base = world.change_base();
    let before = on_host(&base);
    let opened = open(&world);
    let plan = planned(&opened, None, &keeping()).unwrap();
    let consent = Consent::Shown(&plan);
    let mut book = Book(&world);
    let report = apply(&opened, None, &keeping(), consent, Some(&mut book), &mut go_on);
    assert_eq!(report.unwrap().skipped, []);
    drop(opened);
    let opened = open(&world);
    let plan = planned(&opened, None, &all()).unwrap();
    assert!(plan.changes.is_empty() && plan.drifted.is_empty(), "{plan:#?}");
    let report = undo(&opened, None, &undoing(), None, Some(&mut Book(&world)), &mut go_on);
    assert_eq!(report.unwrap().skipped, []);
    assert_same(&on_host(&base), &before);
    drop(opened);
    world.reopen();
    let mut seen = merged(&world.session(), Some(&base));
    // The top is in the session, and its entries changed there.
    seen.insert(Vec::new(), before[&b""[..]].clone());
    assert_same(&seen, &before);
    let plan = planned(&open(&world), None, &all()).unwrap();
    let changed: Vec<_> = plan.changes.iter().filter(|change| change.path != path("/")).collect();
    assert!(changed.is_empty() && plan.drifted.is_empty(), "{plan:#?}");
}

/// Applied to a copy.
fn applied() -> (World, PathBuf, Exact) {
    let world = World::new(TREE);
    change(&world);
    let to = copy(&world, "copy");
    let before = on_host(&to);
    apply_kept(&open(&world), Some(&to), &keeping());
    (world, to, before)
}

#[test]
fn the_plan_says_what_becomes_of_each_path() {
    let (world, to, _) = applied();
    let plan = plan_undo(&open(&world), Some(&to), &undoing()).unwrap().unwrap();
    let kind = |at: &str| {
        let found = plan.changes.iter().find(|change| change.path == path(at));
        found.map(|change| change.kind.clone())
    };
    assert_eq!(kind("gone"), Some(UndoKind::Restored));
    assert_eq!(kind("link"), Some(UndoKind::Changed));
    assert_eq!(kind("type"), Some(UndoKind::Changed));
    assert_eq!(kind("locked"), Some(UndoKind::Changed));
    assert_eq!(kind("dir/sub"), Some(UndoKind::Moved(path("sub"))));
    assert_eq!(kind("new/dir/file"), Some(UndoKind::Removed));
    assert_eq!(plan.drifted, []);
}

#[test]
fn after_whichever_step() {
    let (world, to, before) = applied();
    let after = on_host(&to);
    let opened = open(&world);
    for at in 0.. {
        let mut is_done = true;
        for wanted in [&before, &after] {
            let mut steps = 0;
            let watch = &mut |event| match event {
                ApplyEvent::Step { done, all } => {
                    steps = all;
                    if done == at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                }
                ApplyEvent::Making { .. } | ApplyEvent::Copying(_) => ControlFlow::Continue(()),
            };
            let report = undo(&opened, Some(&to), &undoing(), None, None, watch).unwrap();
            if report.broken_off.is_some() {
                is_done = false;
                assert_eq!(
                    interrupted(&opened, Some(&to)).unwrap().map(|left| left.steps),
                    Some(steps)
                );
                let report = resume(&opened, Some(&to), None, &mut go_on).unwrap().unwrap();
                assert_eq!((report.skipped, report.is_undo), (vec![], true), "after {at} steps");
            }
            assert_same(&on_host(&to), wanted);
        }
        if is_done {
            assert!(at > 20, "{at}");
            break;
        }
    }
}

#[test]
fn an_apply_that_was_interrupted_keeps_all_too() {
    let world = World::new(TREE);
    change(&world);
    let opened = open(&world);
    for at in 0.. {
        let to = copy(&world, &at.to_string());
        let before = on_host(&to);
        let plan = planned(&opened, Some(&to), &keeping()).unwrap();
        let consent = Consent::Shown(&plan);
        let report = apply(&opened, Some(&to), &keeping(), consent, None, &mut |event| {
            let stops = matches!(event, ApplyEvent::Step { done, .. } if done == at);
            if stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let is_done = report.unwrap().broken_off.is_none();
        if !is_done {
            resume(&opened, Some(&to), None, &mut go_on).unwrap().unwrap();
        }
        assert_eq!(undone(&opened, Some(&to), &undoing()).skipped, [], "after {at} steps");
        assert_same(&on_host(&to), &before);
        if is_done {
            break;
        }
    }
}

#[test]
fn what_changed_since_the_apply_is_never_overwritten() {
    let (world, to, before) = applied();
    let opened = open(&world);
    // Saved again, with the same content: no drift.
    fs::write(to.join("two/new"), "new").unwrap();
    assert_eq!(plan_undo(&opened, Some(&to), &undoing()).unwrap().unwrap().drifted, []);
    fs::write(to.join("sub/deep"), "a person's").unwrap();
    fs::write(to.join("new/dir/person"), "a person's").unwrap();
    fs::create_dir(to.join("gone")).unwrap();
    fs::write(to.join("gone/person"), "a person's").unwrap();
    let with_persons = on_host(&to);
    let plan = plan_undo(&opened, Some(&to), &undoing()).unwrap().unwrap();
    let drifted: Vec<_> =
        plan.drifted.iter().map(|d| format!("{}: {}", d.path.display(), d.why)).collect();
    for line in [
        "/sub/deep: changed since it was applied",
        "/new/dir/person: came there since the apply",
        "/gone: came there since the apply",
    ] {
        assert!(drifted.contains(&line.to_owned()), "{drifted:#?}");
    }
    let refused = undo(&opened, Some(&to), &undoing(), Some(&plan), None, &mut go_on);
    assert!(matches!(refused, Err(InspectError::Refused { .. })), "{refused:?}");
    assert_same(&on_host(&to), &with_persons);

    let options = UndoOptions { skip_drifted: true, ..undoing() };
    let report = undone(&opened, Some(&to), &options);
    let skipped: Vec<_> = report.skipped.iter().map(|s| s.path.display().to_string()).collect();
    assert!(skipped.contains(&"/new/dir/person".to_owned()), "{skipped:?}");
    let now = on_host(&to);
    for person in ["new/dir/person", "gone/person"] {
        assert_eq!(now[person.as_bytes()].content, b"a person's");
    }
    assert_eq!(now[&b"dir/sub/deep"[..]].content, b"a person's");
    assert_eq!(now[&b"tree/x/y"[..]], before[&b"tree/x/y"[..]]);
    // What is left out stays where it can be found.
    let kept = report.kept.unwrap();
    let gone = kept.iter().find(|kept| kept.path == path("gone")).unwrap();
    assert_eq!(fs::read(gone.copy.join("b/c")).unwrap(), b"c");
}

#[test]
fn with_force_what_is_overwritten_is_kept() {
    let (world, to, before) = applied();
    let opened = open(&world);
    fs::write(to.join("sub/deep"), "a person's").unwrap();
    fs::create_dir(to.join("gone")).unwrap();
    fs::write(to.join("gone/person"), "a person's").unwrap();
    let options = UndoOptions { force: true, ..undoing() };
    let report = undone(&opened, Some(&to), &options);
    assert_eq!(report.skipped, []);
    let now = on_host(&to);
    assert_eq!(now[&b"gone/b/c"[..]], before[&b"gone/b/c"[..]]);
    assert_eq!(now[&b"dir/sub/deep"[..]], before[&b"dir/sub/deep"[..]]);
    let kept = report.kept.unwrap();
    let copy = |at: &str| kept.iter().find(|kept| kept.path == path(at)).unwrap().copy.clone();
    assert_eq!(fs::read(copy("gone").join("person")).unwrap(), b"a person's");
    assert_eq!(fs::read(copy("sub/deep")).unwrap(), b"a person's");
}

#[test]
fn a_forced_apply_says_where_the_copies_are() {
    let mut world = World::new("file \"base\"\ndir/file \"base\"\n");
    world.write("file", 0, b"session").unwrap();
    let base = world.change_base();
    fs::write(base.join("file"), b"a person's\0").unwrap();
    let options = ApplyOptions { force: true, ..keeping() };
    let report = apply_kept(&open(&world), None, &options);
    let kept = report.kept.unwrap();
    assert_eq!((kept.len(), &kept[0].path), (1, &path("file")));
    assert_eq!(fs::read(&kept[0].copy).unwrap(), b"a person's\0");
    assert!(kept[0].copy.starts_with(undo_dir(&world).canonicalize().unwrap()));
    assert_eq!(undone(&open(&world), None, &undoing()).skipped, []);
    assert_eq!(fs::read(base.join("file")).unwrap(), b"a person's\0");
}

#[test]
fn more_than_the_limit_is_refused_before_anything_is_written() {
    let world = World::new("dir/file \"0123456789\"\nother \"0123456789\"\n");
    world.rm_rf("dir");
    world.put("other", "x");
    let to = copy(&world, "copy");
    let before = on_host(&to);
    let opened = open(&world);
    // Two files and a directory, each with a block and an inode.
    let options = ApplyOptions { keep: Some(13_823), ..all() };
    let plan = planned(&opened, Some(&to), &options).unwrap();
    assert_eq!(plan.kept_bytes, 3 * (4096 + 512));
    let consent = Consent::Shown(&plan);
    let refused = apply(&opened, Some(&to), &options, consent, None, &mut go_on).unwrap_err();
    assert!(
        refused.to_string().contains("keeping 13.5 KiB for undo exceeds the limit of 13.4 KiB"),
        "{refused}"
    );
    assert_same(&on_host(&to), &before);
    assert!(!undo_dir(&world).exists());
    assert_eq!(
        apply_kept(&opened, Some(&to), &ApplyOptions { keep: Some(13_824), ..all() }).skipped,
        []
    );
    let options = UndoOptions { keep: Some(0), ..undoing() };
    let plan = plan_undo(&opened, Some(&to), &options).unwrap().unwrap();
    assert_eq!(plan.kept_bytes, 4096 + 512);
    let refused = undo(&opened, Some(&to), &options, None, None, &mut go_on).unwrap_err();
    assert!(
        refused.to_string().contains("keeping 4.5 KiB for undo exceeds the limit of 0 B"),
        "{refused}"
    );
}

#[test]
fn an_apply_that_keeps_nothing_forgets_what_an_earlier_one_kept() {
    let (world, to, _) = applied();
    world.put("dir/file", "again");
    let opened = open(&world);
    assert_eq!(apply_kept(&opened, Some(&copy(&world, "other")), &all()).kept, None);
    assert!(!undo_dir(&world).exists());
    assert!(plan_undo(&opened, Some(&to), &undoing()).unwrap().is_none());
}

#[test]
fn another_directory_is_refused_by_name() {
    let (world, to, _) = applied();
    let error = plan_undo(&open(&world), None, &undoing()).unwrap_err();
    let to = to.canonicalize().unwrap();
    assert!(error.to_string().contains(&format!("was to {}", to.display())), "{error}");
}

#[test]
fn a_directory_of_another_user_is_not_used() {
    let world = World::new(TREE);
    world.put("dir/file", "x");
    fs::create_dir(undo_dir(&world)).unwrap();
    fs::set_permissions(undo_dir(&world), fs::Permissions::from_mode(0o755)).unwrap();
    let (to, opened) = (copy(&world, "copy"), open(&world));
    let before = on_host(&to);
    let plan = planned(&opened, Some(&to), &keeping()).unwrap();
    let consent = Consent::Shown(&plan);
    let refused = apply(&opened, Some(&to), &keeping(), consent, None, &mut go_on).unwrap_err();
    assert!(refused.to_string().contains("cannot be kept"), "{refused}");
    assert_same(&on_host(&to), &before);
}

#[test]
fn a_file_that_another_name_changes_is_kept_as_it_was() {
    let world = World::new("one \"linked\"\ntwo = one\n");
    world.remove("two").unwrap();
    let to = copy(&world, "copy");
    apply_kept(&open(&world), Some(&to), &keeping());
    fs::write(to.join("one"), "a person's").unwrap();
    assert_eq!(undone(&open(&world), Some(&to), &undoing()).skipped, []);
    assert_eq!(fs::read(to.join("one")).unwrap(), b"a person's");
    assert_eq!(fs::read(to.join("two")).unwrap(), b"linked");
}

#[test]
fn a_kill_between_the_further_name_and_the_rename_costs_nothing() {
    let world = World::new("file \"old\"\n");
    world.put("file", "new");
    let (to, opened) = (copy(&world, "copy"), open(&world));
    let plan = planned(&opened, Some(&to), &keeping()).unwrap();
    let consent = Consent::Shown(&plan);
    let stop = &mut |event| match event {
        ApplyEvent::Step { .. } => ControlFlow::Break(()),
        ApplyEvent::Making { .. } | ApplyEvent::Copying(_) => ControlFlow::Continue(()),
    };
    apply(&opened, Some(&to), &keeping(), consent, None, stop).unwrap();
    fs::hard_link(to.join("file"), to.join(".acetate-apply/replaced/1")).unwrap();
    let report = resume(&opened, Some(&to), None, &mut go_on).unwrap().unwrap();
    assert_eq!(report.skipped, []);
    assert_eq!(fs::read(to.join("file")).unwrap(), b"new");
    undone(&opened, Some(&to), &undoing());
    assert_eq!(fs::read(to.join("file")).unwrap(), b"old");
}
