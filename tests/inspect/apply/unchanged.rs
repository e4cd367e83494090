//! Copies in which the session changed nothing, and names of files of which some are as in the
//! base.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

use acetate::delta::MergedPath;
use acetate::inspect::apply::{ApplyEvent, ApplyOptions, Consent, DriftReason, apply, resume};
use acetate::inspect::diff::{DiffOptions, diff};
use acetate::inspect::status::touched;
use acetate::overlay::CopyLimits;

use super::drift::{LONG_AGO, at_the_hosts_time};
use super::{apply_served, copy, open, path};
use crate::support::applied::{Book, all, applied, planned};
use crate::support::world::{Setup, World};

const TEXT: &str = "1\\n2\\n3\\n4\\n5\\n6\\n7\\n8\\n9\\n";

/// How many objects the session has, the top left out.
fn inodes(world: &World) -> i64 {
    world.sql_value("SELECT count(*) FROM fs_inode WHERE ino <> 1")
}

/// The paths of the copies that an apply drops, and whether the base changed them.
fn unchanged(world: &World) -> Vec<(String, bool)> {
    let plan = planned(&open(world), None, &all()).unwrap();
    assert_eq!(plan.drifted, []);
    let dropped = plan.unchanged.iter();
    dropped.map(|dropped| (dropped.copy.path.display().to_string(), dropped.is_drifted)).collect()
}

/// A session that made objects where the base then got some too: the same but for `other`, `mode`
/// and `kind`.
fn made_on_both_sides() -> World {
    let mut world = over("d/keep \"TEXT\"");
    for file in ["file", "d/file", "other", "mode", "kind"] {
        world.put(file, "text");
    }
    world.symlink("file", "link").unwrap();
    let base = world.change_base();
    for file in ["file", "d/file", "mode"] {
        fs::write(base.join(file), "text").unwrap();
    }
    fs::write(base.join("other"), "Text").unwrap();
    symlink("file", base.join("link")).unwrap();
    symlink("file", base.join("kind")).unwrap();
    for file in ["file", "d/file", "other", "mode", "kind", "link"] {
        let there = fs::symlink_metadata(base.join(file)).unwrap();
        world.chown(file, there.uid(), there.gid()).unwrap();
        if there.is_file() {
            world.chmod(file, there.mode() & 0o777).unwrap();
        }
    }
    fs::set_permissions(base.join("mode"), fs::Permissions::from_mode(0o600)).unwrap();
    world.reopen();
    at_the_hosts_time(&world, "fs_inode", "ctime", LONG_AGO);
    world.reopen();
    world
}

#[test]
fn what_both_sides_made_alike_is_no_difference() {
    let world = made_on_both_sides();
    let shown = |path: &MergedPath| path.display().to_string();
    let session = ApplyOptions { take_session: vec![path("file")], ..all() };
    for (options, written) in [(session, &["/file"][..]), (all(), &[])] {
        let plan = planned(&open(&world), None, &options).unwrap();
        let drifted: Vec<_> = plan.drifted.iter().map(|d| (shown(&d.path), d.reason)).collect();
        let came = |at: &str| (at.to_owned(), DriftReason::Came);
        assert_eq!(drifted, ["/kind", "/mode", "/other"].map(came));
        // The directories get their times.
        let changed: BTreeSet<_> = plan.changes.iter().map(|change| shown(&change.path)).collect();
        let others = ["/", "/d", "/kind", "/mode", "/other"].iter();
        assert_eq!(changed, others.chain(written).map(|at| at.to_string()).collect());
        let same = plan.unchanged.iter().map(|same| (shown(&same.copy.path), same.is_drifted));
        let alike = ["/d/file", "/file", "/link"].iter().filter(|at| !written.contains(at));
        let alike: BTreeSet<_> = alike.map(|at| (at.to_string(), false)).collect();
        assert_eq!(same.collect::<BTreeSet<_>>(), alike);
    }
    let mtime = || fs::metadata(world.base().join("file")).unwrap().modified().unwrap();
    let (before, rest) = (mtime(), ApplyOptions { skip_drifted: true, ..all() });
    assert_eq!(apply_served(&world, &rest).skipped.len(), 3);
    assert_eq!(mtime(), before, "it is not written");
    fs::write(world.base().join("file"), "later").unwrap();
    assert_eq!(world.cat("file"), "later");
    assert_eq!(inodes(&world), 3);
}

#[test]
fn what_a_copy_has_as_both_sides_made_it_is_no_difference() {
    let world = made_on_both_sides();
    let to = copy(&world, "copy");
    fs::write(to.join("d/file"), "copy").unwrap();
    let plan = planned(&open(&world), Some(&to), &all()).unwrap();
    let shown = |path: &MergedPath| path.display().to_string();
    let drifted: Vec<_> = plan.drifted.iter().map(|d| shown(&d.path)).collect();
    assert_eq!(drifted, ["/d/file", "/kind", "/mode", "/other"]);
    let changed: BTreeSet<_> = plan.changes.iter().map(|change| shown(&change.path)).collect();
    let expected = ["/", "/d", "/d/file", "/kind", "/mode", "/other"];
    assert_eq!(changed, expected.map(str::to_owned).into());
    assert_eq!(plan.unchanged, []);
}

/// A session over a text, with its further names as the base has them.
fn over(tree: &str) -> World {
    World::new(&tree.replace("TEXT", TEXT))
}

#[test]
fn changes_that_were_taken_back_hide_nothing_after_an_apply() {
    let mut world = over("edited \"TEXT\"\nremoved \"TEXT\"\nsame \"TEXT\"");
    for file in ["edited", "removed", "same"] {
        world.chmod(file, 0o600).unwrap();
        world.chmod(file, 0o644).unwrap();
    }
    world.put("new", "new");
    let base = world.change_base();
    fs::write(base.join("edited"), "person").unwrap();
    fs::remove_file(base.join("removed")).unwrap();
    let expected = [("/edited", true), ("/removed", true), ("/same", false)];
    assert_eq!(unchanged(&world), expected.map(|(at, drifted)| (at.to_owned(), drifted)));
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(world.cat("edited"), "person");
    assert!(!world.exists("removed"));
    assert_eq!(inodes(&world), 0);
    assert_eq!(fs::read(base.join("edited")).unwrap(), b"person");
}

#[test]
fn copies_are_dropped_by_a_run_that_finishes_another_one() {
    let mut world = over("edited \"TEXT\"\nsame \"TEXT\"");
    for file in ["edited", "same"] {
        world.chmod(file, 0o600).unwrap();
        world.chmod(file, 0o644).unwrap();
    }
    world.put("new", "new");
    let base = world.change_base();
    fs::write(base.join("edited"), "person").unwrap();
    let opened = open(&world);
    let plan = planned(&opened, None, &all()).unwrap();
    let mut book = Book(&world);
    let mut stop = |event: ApplyEvent| match event {
        ApplyEvent::Step { done: 1, .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let report =
        apply(&opened, None, &all(), Consent::Shown(&plan), Some(&mut book), &mut stop).unwrap();
    assert!(report.broken_off.is_some_and(|(done, _)| done == 1), "{report:#?}");
    assert_eq!(inodes(&world), 3);
    let mut go_on = |_: ApplyEvent| ControlFlow::Continue(());
    let report = resume(&opened, None, Some(&mut book), &mut go_on).unwrap().unwrap();
    assert_eq!((report.skipped, report.broken_off), (Vec::new(), None));
    assert_eq!(inodes(&world), 0);
    assert_eq!((world.cat("edited"), world.cat("new")), ("person".into(), "new".into()));
}

#[test]
fn a_time_alone_never_drifts() {
    let mut world = over("edited \"TEXT\"\nremoved \"TEXT\"\nsame \"TEXT\"");
    for file in ["edited", "removed", "same"] {
        world.write(file, 0, b"1").unwrap();
    }
    let base = world.change_base();
    fs::write(base.join("edited"), "person").unwrap();
    fs::remove_file(base.join("removed")).unwrap();
    let expected = [("/edited", true), ("/removed", true)];
    assert_eq!(unchanged(&world), expected.map(|(at, drifted)| (at.to_owned(), drifted)));
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(fs::read(base.join("edited")).unwrap(), b"person");
    assert!(!base.join("removed").exists() && !world.exists("removed"));
    assert_eq!(inodes(&world), 0);
}

#[test]
fn a_time_of_what_a_copy_does_not_have_is_no_drift() {
    let world = over("edited \"TEXT\"\nremoved \"TEXT\"\nsame \"TEXT\"");
    for file in ["edited", "removed", "same"] {
        world.write(file, 0, b"1").unwrap();
    }
    let to = copy(&world, "copy");
    fs::write(to.join("edited"), "person").unwrap();
    fs::remove_file(to.join("removed")).unwrap();
    let opened = open(&world);
    let plan = planned(&opened, Some(&to), &all()).unwrap();
    assert_eq!((plan.drifted.len(), plan.unchanged.len()), (0, 0));
    assert_eq!(applied(&opened, Some(&to), &all()).unwrap().skipped, []);
    assert_eq!(fs::read(to.join("edited")).unwrap(), b"person");
    assert!(!to.join("removed").exists());
}

#[test]
fn what_is_taken_from_the_session_is_written_though_only_its_time_differs() {
    let mut world = over("removed \"TEXT\"");
    world.write("removed", 0, b"1").unwrap();
    let base = world.change_base();
    fs::remove_file(base.join("removed")).unwrap();
    let options = ApplyOptions { take_session: vec![path("removed")], ..all() };
    assert_eq!(planned(&open(&world), None, &options).unwrap().unchanged, []);
    assert_eq!(apply_served(&world, &options).skipped, []);
    assert!(base.join("removed").exists());
    // Its content counts.
    world.write("removed", 0, b"one").unwrap();
    fs::remove_file(base.join("removed")).unwrap();
    let plan = planned(&open(&world), None, &all()).unwrap();
    assert_eq!((plan.unchanged.len(), plan.drifted[0].reason), (0, DriftReason::Removed));
}

#[test]
fn a_file_of_which_a_further_name_was_applied_is_the_bases_again() {
    for (tree, moves) in [
        ("file \"TEXT\"", false),
        ("file \"TEXT\"\nlinked = file", false),
        ("dir/file \"TEXT\"", true),
    ] {
        let mut world = over(tree);
        let file = if moves { "moved/file" } else { "file" };
        if moves {
            world.rename("dir", "moved").unwrap();
        }
        world.link(file, "more").unwrap();
        let base = world.change_base();
        assert_eq!(apply_served(&world, &all()).skipped, []);
        assert_eq!(inodes(&world), 0, "{tree}");
        fs::write(base.join("more"), "person").unwrap();
        assert_eq!((world.cat("more"), world.cat(file)), ("person".into(), "person".into()));
        world.reopen();
        assert_eq!(world.stat(file).fileid, world.stat("more").fileid);
    }
}

#[test]
fn a_file_that_the_base_changed_goes_with_the_further_name_that_is_applied() {
    let mut world = over("file \"TEXT\"");
    world.link("file", "more").unwrap();
    let base = world.change_base();
    let theirs = TEXT.replace("\\n", "\n") + "person\n";
    fs::write(base.join("file"), &theirs).unwrap();
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!((world.cat("file"), world.cat("more")), (theirs.clone(), theirs));
    assert_eq!(inodes(&world), 0);
    let plan = planned(&open(&world), None, &all()).unwrap();
    assert!(plan.changes.is_empty() && plan.unchanged.is_empty(), "{plan:#?}");
}

/// What `diff` lists; `status` counts drift in so many.
fn listed(world: &World, drifted: u64) -> Vec<String> {
    let (opened, mut found) = (open(world), Vec::new());
    diff(&opened, &DiffOptions::default(), &mut |_, difference| {
        found.push(difference.path.display().to_string());
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    assert_eq!(touched(&opened).unwrap().drifted, drifted);
    found
}

#[test]
fn a_directory_that_the_base_removed_goes_with_the_copies_in_it() {
    let mut world =
        over("d/edited \"TEXT\"\nd/s/linked \"TEXT\"\nd/s/t/written \"TEXT\"\nkeep \"TEXT\"");
    world.chmod("d/edited", 0o600).unwrap();
    world.chmod("d/edited", 0o644).unwrap();
    world.write("d/s/t/written", 0, b"1").unwrap();
    world.link("d/s/linked", "more").unwrap();
    let base = world.change_base();
    fs::remove_dir_all(base.join("d")).unwrap();
    assert_eq!(listed(&world, 0), ["/more"]);
    let dropped = ["/d", "/d/edited", "/d/s", "/d/s/linked", "/d/s/t", "/d/s/t/written"];
    assert_eq!(unchanged(&world), dropped.map(|at| (at.to_owned(), true)));
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert!(!base.join("d").exists() && !world.exists("d"));
    assert_eq!(world.cat("more"), TEXT.replace("\\n", "\n"));
    assert_eq!(inodes(&world), 0);
}

#[test]
fn a_directory_that_the_base_removed_stays_with_what_changed_in_it() {
    let changes: [fn(&World); 4] = [
        |world| world.put("d/s/new", "new"),
        |world| world.write("d/edited", 0, b"one").unwrap(),
        |world| world.mkdir("d/s/made").map(drop).unwrap(),
        |world| world.chmod("d/s", 0o700).unwrap(),
    ];
    for change in changes {
        let mut world = over("d/edited \"TEXT\"\nd/s/same \"TEXT\"");
        world.chmod("d/edited", 0o600).unwrap();
        world.chmod("d/edited", 0o644).unwrap();
        world.tick(1);
        change(&world);
        fs::remove_dir_all(world.change_base().join("d")).unwrap();
        let plan = planned(&open(&world), None, &all()).unwrap();
        assert!(
            plan.drifted.iter().any(|drifted| drifted.reason == DriftReason::Removed),
            "{plan:#?}"
        );
        assert!(touched(&open(&world)).unwrap().drifted > 0);
    }
}

/// It may be of another branch.
#[test]
fn what_was_removed_from_a_directory_stays_so_while_the_base_does_not_have_it() {
    let mut world = over("d/edited \"TEXT\"\nd/removed \"TEXT\"\nkeep \"TEXT\"");
    world.chmod("d/edited", 0o600).unwrap();
    world.chmod("d/edited", 0o644).unwrap();
    world.remove("d/removed").unwrap();
    world.keep_removed();
    let base = world.change_base();
    let away = world.scratch().join("away");
    fs::rename(base.join("d"), &away).unwrap();
    assert_eq!(listed(&world, 0), [""; 0]);
    world.put("new", "new");
    assert_eq!(apply_served(&world, &all()).skipped, []);
    fs::rename(&away, base.join("d")).unwrap();
    world.reopen();
    assert_eq!(world.ls("d"), ["edited"]);
    assert_eq!(listed(&world, 0), ["/d/removed"]);
}

/// Without an original, and not moved.
#[test]
fn a_directory_that_the_base_removed_goes_with_removals_that_have_no_original() {
    let mut world = over("d/s/x/removed \"TEXT\"\nkeep \"TEXT\"");
    world.rm_rf("d/s/x");
    let base = world.change_base();
    fs::remove_dir_all(base.join("d")).unwrap();
    assert_eq!(unchanged(&world), ["/d", "/d/s"].map(|at| (at.to_owned(), true)));
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!((world.exists("d"), inodes(&world)), (false, 0));
    assert_eq!(world.whiteouts(), [""; 0]);
}

#[test]
fn a_directory_that_the_base_removed_is_not_said_to_go_where_a_removal_or_a_move_keeps_it() {
    let keep: [fn(&mut World); 2] = [
        |world| {
            world.rm_rf("d/s/x");
            world.keep_removed();
        },
        |world| world.rename("d/s/x", "moved").unwrap(),
    ];
    for keep in keep {
        let mut world = over("d/s/x/file \"TEXT\"\nd/t/same \"TEXT\"\nkeep \"TEXT\"");
        keep(&mut world);
        world.chmod("d/t/same", 0o600).unwrap();
        world.chmod("d/t/same", 0o644).unwrap();
        let base = world.change_base();
        fs::remove_dir_all(base.join("d")).unwrap();
        let plan = planned(&open(&world), None, &all()).unwrap();
        let dropped: Vec<_> = plan.unchanged.iter().map(|dropped| &dropped.copy.path).collect();
        assert_eq!(dropped, [&path("d/t"), &path("d/t/same")]);
        apply_served(&world, &ApplyOptions { skip_drifted: true, ..all() });
        assert!(world.exists("d/s") && !world.exists("d/t"));
        let plan = planned(&open(&world), None, &all()).unwrap();
        assert_eq!(plan.unchanged, []);
    }
}

#[test]
fn a_directory_over_what_the_base_put_in_its_place_is_made_with_those_in_it() {
    let mut world = over("d/s/x/file \"TEXT\"\nkeep \"TEXT\"");
    world.rm_rf("d/s/x");
    let base = world.change_base();
    fs::remove_dir_all(base.join("d")).unwrap();
    symlink("keep", base.join("d")).unwrap();
    assert_eq!(listed(&world, 2), ["/d", "/d/s"]);
    let plan = planned(&open(&world), None, &ApplyOptions { skip_drifted: true, ..all() }).unwrap();
    assert_eq!(plan.unchanged, []);
    let report = apply_served(&world, &ApplyOptions { force: true, ..all() });
    assert_eq!(report.skipped, []);
    assert!(base.join("d/s").is_dir() && !base.join("d/s/x").exists());
    assert_eq!(inodes(&world), 0);
}

#[test]
fn an_unchanged_copy_that_the_base_changed_is_no_drift_of_the_session() {
    let mut world = over("edited \"TEXT\"\nremoved \"TEXT\"");
    for file in ["edited", "removed"] {
        world.chmod(file, 0o600).unwrap();
        world.chmod(file, 0o644).unwrap();
    }
    let base = world.change_base();
    fs::write(base.join("edited"), "person").unwrap();
    fs::remove_file(base.join("removed")).unwrap();
    assert_eq!(listed(&world, 0), [""; 0]);
}

/// Its content is compared with the session's.
#[test]
fn a_time_alone_is_no_drift_where_no_digest_is_kept() {
    let copy_up = CopyLimits::keeping_originals(Some(0));
    let mut world = World::with(Setup {
        base: Some("file \"content\"\nlater \"content\"".to_owned()),
        copy_up,
        ..Setup::default()
    });
    for file in ["file", "later"] {
        world.chmod(file, 0o600).unwrap();
    }
    world.finish_copies();
    let base = world.change_base();
    let touch = |name: &str| {
        let file = fs::File::options().write(true).open(base.join(name)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_500_000_000)).unwrap();
    };
    touch("file");
    touch("later");
    assert_eq!(listed(&world, 0), ["/file", "/later"]);
    assert_eq!(planned(&open(&world), None, &all()).unwrap().drifted, []);
    fs::write(base.join("later"), "Content").unwrap();
    touch("later");
    let plan = planned(&open(&world), None, &all()).unwrap();
    let found: Vec<_> = plan.drifted.iter().map(|d| d.path.display().to_string()).collect();
    assert_eq!(found, ["/later"]);
    assert_eq!(touched(&open(&world)).unwrap().drifted, 1);
}

#[test]
fn what_both_sides_made_alike_in_a_directory_that_moved_is_no_difference() {
    let mut world = over("d/keep \"TEXT\"");
    for file in ["d/file", "d/other"] {
        world.put(file, "text");
    }
    world.rename("d", "e").unwrap();
    let base = world.change_base();
    fs::write(base.join("d/file"), "text").unwrap();
    fs::write(base.join("d/other"), "Text").unwrap();
    for file in ["file", "other"] {
        let (there, file) = (base.join("d").join(file).metadata().unwrap(), format!("e/{file}"));
        world.chown(&file, there.uid(), there.gid()).unwrap();
        world.chmod(&file, there.mode() & 0o777).unwrap();
    }
    world.reopen();
    at_the_hosts_time(&world, "fs_inode", "ctime", LONG_AGO);
    world.reopen();
    let plan = planned(&open(&world), None, &all()).unwrap();
    let drifted = plan.drifted.iter().map(|d| (d.path.display().to_string(), d.reason));
    assert_eq!(drifted.collect::<Vec<_>>(), [("/e/other".to_owned(), DriftReason::Came)]);
    let dropped: Vec<_> = plan.unchanged.iter().map(|same| &same.copy.path).collect();
    assert_eq!(dropped, [&path("e/file")]);
    let rest = ApplyOptions { skip_drifted: true, ..all() };
    assert_eq!(apply_served(&world, &rest).skipped.len(), 1);
    let read = |at: &str| fs::read_to_string(base.join(at)).unwrap();
    assert_eq!(["e/file", "e/other"].map(read), ["text", "Text"]);
    fs::write(base.join("e/file"), "later").unwrap();
    assert_eq!(["e/file", "e/other"].map(|at| world.cat(at)), ["later", "text"]);
}
