//! A directory with something that its client never saw is removed only by its name.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use acetate::inspect::apply::ApplyOptions;

use super::{apply_served, only, open, path};
use crate::support::applied::{all, applied, planned};
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "file"
    dir/sub/deep "deep"
    other/file "other"
"#;

/// A client removed `dir`, in which `secret` was not shown to it.
fn changed(secret: &str) -> World {
    let mut world = World::new(TREE);
    world.change_base();
    world.rename("dir/sub", "dir/moved").unwrap();
    world.rm_rf("dir");
    world.rename("other", "elsewhere").unwrap();
    world.rm_rf("elsewhere");
    world.close();
    // As old as all else is: an export's `hide` leaves no trace in the session.
    let path = world.base().join(secret);
    fs::write(&path, "secret").unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    world
}

/// Where nothing tells that what is there came later.
fn planned_left_out(world: &World, options: &ApplyOptions) -> Vec<String> {
    let plan = planned(&open(world), None, options).unwrap();
    assert!(plan.drifted.is_empty(), "{:?}", plan.drifted);
    plan.left_out.iter().map(|l| format!("{}: {}", l.path.display(), l.why)).collect()
}

/// The same, which has to be so too where only what was kept of the log says it.
fn pruned_left_out(world: &mut World, options: &ApplyOptions) -> Vec<String> {
    let left_out = planned_left_out(world, options);
    let is_open = world.is_open();
    world.prune_log();
    assert_eq!(planned_left_out(world, options), left_out);
    if !is_open {
        world.close();
    }
    left_out
}

#[test]
fn it_is_left_out_unless_it_is_named() {
    let mut world = changed("dir/.env");
    let why = "/dir: holds /dir/.env, which no client removed (hidden from clients?): \
               the directory is removed only if it is named";
    assert_eq!(pruned_left_out(&mut world, &all()), [why]);
    let report = applied(&open(&world), None, &all()).unwrap();
    assert_eq!(report.skipped.len(), 1, "{report:?}");
    assert_eq!(fs::read(world.base().join("dir/.env")).unwrap(), b"secret");
    assert!(!world.base().join("other").exists());
    for named in ["dir", "dir/.env"] {
        assert_eq!(planned_left_out(&world, &only(&[named, "dir"])), [""; 0]);
    }
    applied(&open(&world), None, &only(&["dir"])).unwrap();
    assert!(!world.base().join("dir").exists());
}

#[test]
fn what_drifted_above_it_tells_nothing_of_it() {
    let mut world = World::new(TREE);
    world.change_base();
    world.rm_rf("dir/sub");
    world.chmod("dir", 0o711).unwrap();
    world.close();
    let secret = world.base().join("dir/sub/.env");
    fs::write(&secret, "secret").unwrap();
    let file = fs::File::options().write(true).open(&secret).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    fs::set_permissions(world.base().join("dir"), fs::Permissions::from_mode(0o700)).unwrap();
    for options in [
        ApplyOptions { skip_drifted: true, ..all() },
        ApplyOptions { take_base: vec![path("dir")], ..all() },
        ApplyOptions { force: true, ..all() },
    ] {
        let plan = planned(&open(&world), None, &options).unwrap();
        assert!(plan.has_drifted(&path("dir")), "{:?}", plan.drifted);
        let left_out: Vec<_> = plan.left_out.iter().map(|l| l.path.display().to_string()).collect();
        assert!(left_out.contains(&"/dir/sub".to_owned()), "{left_out:?}");
        applied(&open(&world), None, &options).unwrap();
        assert_eq!(fs::read(&secret).unwrap(), b"secret");
    }
}

#[test]
fn what_was_removed_under_another_name_was_seen() {
    let mut world = changed("dir/sub/.env");
    let left = pruned_left_out(&mut world, &all());
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].starts_with("/dir: holds /dir/sub/.env,"), "{left:?}");
    fs::remove_file(world.base().join("dir/sub/.env")).unwrap();
    assert_eq!(planned_left_out(&world, &all()), [""; 0]);
}

/// What was removed, and left in the base, before its directory moved there too.
#[test]
fn what_was_removed_before_its_directory_was_applied_was_seen() {
    let mut world = World::new("dir/._file \"dropping\"\ndir/file \"file\"\n");
    world.change_base();
    world.remove("dir/._file").unwrap();
    world.rename("dir", "moved").unwrap();
    let without_droppings = ApplyOptions { client_temp_files: false, ..all() };
    let report = apply_served(&world, &without_droppings);
    assert_eq!(report.skipped, []);
    assert!(world.base().join("moved/._file").exists());
    world.rm_rf("moved");
    assert_eq!(pruned_left_out(&mut world, &all()), [""; 0]);
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert!(!world.base().join("moved").exists());
}

/// Of its own, which lay over what was hidden from it.
#[test]
fn what_a_client_removed_over_a_hidden_name_is_not_the_hidden_object() {
    let ways: [fn(&World); 3] = [
        |world| world.put("dir/.env", "of the client"),
        |world| {
            world.put("dir/.env", "of the client");
            world.put("dir/another", "of the client");
            world.rename("dir/another", "dir/.env").unwrap();
        },
        |world| world.link("dir/file", "dir/.env").unwrap(),
    ];
    for (number, way) in ways.iter().enumerate() {
        let mut world = World::new("dir/file \"file\"\n");
        world.change_base();
        way(&world);
        world.remove("dir/.env").unwrap();
        world.rm_rf("dir");
        world.close();
        let path = world.base().join("dir/.env");
        fs::write(&path, "secret").unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(pruned_left_out(&mut world, &all()).len(), 1, "way {number}");
    }
}

/// A directory whose content the client made, applied and removed, where another one had been.
#[test]
fn what_was_made_applied_and_removed_where_another_directory_was() {
    let mut world = World::new("a/old \"old\"\n");
    world.change_base();
    world.rename("a", "b").unwrap();
    world.mkdir("a").unwrap();
    world.put("a/x", "x");
    assert_eq!(apply_served(&world, &all()).skipped, []);
    world.rm_rf("a");
    assert_eq!(pruned_left_out(&mut world, &all()), [""; 0]);
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert!(!world.base().join("a").exists() && world.base().join("b/old").exists());
}
