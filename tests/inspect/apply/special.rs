//! Set-user-ID files and device nodes are made only on request.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use acetate::inspect::apply::ApplyOptions;
use acetate::vfs::{Device, NewNode, SetAttr};

use super::{copy, open};
use crate::support::applied::{all, applied, planned};
use crate::support::skip::skip;
use crate::support::world::World;

const TREE: &str = r#"
    plain "plain"
    suid 4755 "program"
    dir/file "file"
"#;

fn changed() -> World {
    let world = World::new(TREE);
    world.put("evil", "#!/bin/sh");
    world.chmod("evil", 0o6755).unwrap();
    world.chmod("plain", 0o2755).unwrap();
    let disk = NewNode::Block(Device { major: 8, minor: 0 });
    world.make("disk", disk, SetAttr::default()).unwrap();
    world.make("dir/pipe", NewNode::Fifo, SetAttr::default()).unwrap();
    // Nothing new: the host has a program with this content, owner and bits.
    world.chmod("suid", 0o4711).unwrap();
    world.rename("suid", "dir/suid").unwrap();
    // A directory's set-group-ID bit gives no rights.
    world.mkdir("shared").unwrap();
    world.chmod("shared", 0o2775).unwrap();
    world
}

#[test]
fn they_are_left_out_by_name() {
    let world = changed();
    let to = copy(&world, "copy");
    let options = ApplyOptions { special: false, ..all() };
    let plan = planned(&open(&world), Some(&to), &options).unwrap();
    let left: Vec<_> =
        plan.left_out.iter().map(|l| format!("{}: {}", l.path.display(), l.why)).collect();
    assert_eq!(
        left,
        [
            "/disk: a block device: not made by default",
            "/evil: a set-user-ID file: not made by default",
            "/plain: a set-group-ID file: not made by default",
        ]
    );
    assert_eq!(applied(&open(&world), Some(&to), &options).unwrap().skipped, []);
    let mode = |name: &str| fs::metadata(to.join(name)).unwrap().permissions().mode() & 0o7777;
    assert!(!to.join("disk").exists() && !to.join("evil").exists());
    assert_eq!(mode("plain"), 0o644);
    assert_eq!((mode("dir/suid"), mode("shared")), (0o4711, 0o2775));
    assert!(to.join("dir/pipe").exists());
}

#[test]
fn they_are_named_and_made_where_that_is_asked_for() {
    let world = changed();
    let to = copy(&world, "copy");
    let plan = planned(&open(&world), Some(&to), &all()).unwrap();
    let named: Vec<_> =
        plan.special.iter().map(|s| format!("{}: {}", s.path.display(), s.what)).collect();
    let wanted =
        ["/disk: a block device", "/evil: a set-user-ID file", "/plain: a set-group-ID file"];
    assert_eq!((named, plan.left_out), (wanted.map(str::to_owned).to_vec(), vec![]));
    let report = applied(&open(&world), Some(&to), &all()).unwrap();
    if !rustix::process::geteuid().is_root() {
        skip("only root makes devices");
        assert_eq!(report.skipped.len(), 1, "{report:?}");
        return;
    }
    assert_eq!(report.skipped, []);
    assert!(fs::metadata(to.join("disk")).unwrap().file_type().is_block_device());
    assert_eq!(fs::metadata(to.join("evil")).unwrap().permissions().mode() & 0o7777, 0o6755);
}

/// A program with other content is another program.
#[test]
fn other_content_of_a_set_user_id_file_is_left_out() {
    let world = World::new(TREE);
    world.write("suid", 0, b"PROGRAM").unwrap();
    world.chmod("suid", 0o4755).unwrap();
    let to = copy(&world, "copy");
    let options = ApplyOptions { special: false, ..all() };
    let plan = planned(&open(&world), Some(&to), &options).unwrap();
    assert_eq!(plan.left_out.len(), 1, "{plan:?}");
    applied(&open(&world), Some(&to), &options).unwrap();
    assert_eq!(fs::read(to.join("suid")).unwrap(), b"program");
}

fn left_out(world: &World, to: Option<&Path>) -> Vec<String> {
    let options = ApplyOptions { special: false, ..all() };
    let plan = planned(&open(world), to, &options).unwrap();
    applied(&open(world), to, &options).unwrap();
    plan.left_out.iter().map(|l| format!("{}: {}", l.path.display(), l.why)).collect()
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The mode that the object gets decides, and not the session's.
#[test]
fn new_content_does_not_get_the_set_id_bits_that_the_base_got_since() {
    let mut world = World::new("one \"one\"\ntwo \"two\"\nlines \"1\\n2\\n3\\n4\\n5\\n\"\n");
    world.change_base();
    world.write("one", 0, b"ONE").unwrap();
    world.write("two", 0, b"TWO").unwrap();
    world.write("lines", 0, b"I").unwrap();
    world.close();
    let base = world.base();
    fs::write(base.join("lines"), "1\n2\n3\n4\nV\n").unwrap();
    for (name, mode) in [("one", 0o4755), ("two", 0o2755), ("lines", 0o6755)] {
        chmod(&base.join(name), mode);
    }
    let plan = planned(&open(&world), None, &all()).unwrap();
    let named: Vec<_> = plan.special.iter().map(|s| s.path.display().to_string()).collect();
    assert_eq!(named, ["/lines", "/one", "/two"]);
    let mut left = left_out(&world, None);
    left.sort();
    assert_eq!(
        left,
        [
            "/lines: a set-user-ID file: not made by default",
            "/one: a set-user-ID file: not made by default",
            "/two: a set-group-ID file: not made by default",
        ]
    );
    assert_eq!(fs::read(base.join("one")).unwrap(), b"one");
    assert_eq!(fs::read(base.join("lines")).unwrap(), b"1\n2\n3\n4\nV\n");
}

#[test]
fn another_owner_does_not_get_the_set_id_bits_that_the_base_got_since() {
    if !rustix::process::geteuid().is_root() {
        skip("only root gives files away");
        return;
    }
    let mut world = World::new("one \"one\"\n");
    world.change_base();
    world.chown("one", 1234, 1234).unwrap();
    world.close();
    chmod(&world.base().join("one"), 0o4755);
    assert_eq!(left_out(&world, None), ["/one: a set-user-ID file: not made by default"]);
}

#[test]
fn new_content_is_applied_without_the_set_id_bits_that_the_base_removed() {
    let mut world = World::new(TREE);
    world.change_base();
    world.write("suid", 0, b"PROGRAM").unwrap();
    world.chmod("suid", 0o4755).unwrap();
    world.close();
    let program = world.base().join("suid");
    chmod(&program, 0o755);
    assert_eq!(left_out(&world, None), [""; 0]);
    assert_eq!(fs::read(&program).unwrap(), b"PROGRAM");
    assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o7777, 0o755);
}
