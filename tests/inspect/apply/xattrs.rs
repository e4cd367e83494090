//! Extended attributes and access control lists of what is replaced.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, setxattr};

use super::{copy, open};
use crate::support::applied::{all, applied, planned};
use crate::support::skip::skip;
use crate::support::world::World;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const CAPABILITY: &str = "security.capability";

/// Of cap_net_admin, permitted and effective (struct vfs_cap_data, version 2).
const NET_ADMIN: [u8; 20] = [1, 0, 0, 2, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A list: owner rw, user 1234 rw, the owning group as given, mask rw, others nothing.
fn acl(group: u16) -> Vec<u8> {
    let none = u32::MAX;
    let entries =
        [(1_u16, 6_u16, none), (2, 6, 1234), (4, group, none), (0x10, 6, none), (0x20, 0, none)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend(tag.to_le_bytes().into_iter().chain(bits.to_le_bytes()));
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    match setxattr(path, name, value, XattrFlags::empty()) {
        Ok(()) => true,
        Err(error) => {
            skip(&format!("cannot set {name} here: {error}"));
            false
        }
    }
}

fn get(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 1024];
    let length = getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A world over a base in which `file` has these attributes; `None` where that cannot be.
fn world(xattrs: &[(&str, &[u8])]) -> Option<World> {
    let mut world = World::new("file 640 \"content\"\ndir/other \"other\"\n");
    let file = world.change_base().join("file");
    let is_set = xattrs.iter().all(|(name, value)| set(&file, name, value));
    world.reopen();
    is_set.then_some(world)
}

#[test]
fn the_group_that_a_list_shuts_out_stays_out() {
    let Some(world) = world(&[(ACCESS, &acl(0))]) else { return };
    assert_eq!(world.stat("file").mode, 0o600, "what the list grants the group");
    world.write("file", 0, b"CONTENT").unwrap();
    applied(&open(&world), None, &all()).unwrap();
    let file = world.base().join("file");
    assert_eq!(fs::read(&file).unwrap(), b"CONTENT");
    assert_eq!((get(&file, ACCESS), mode(&file)), (Some(acl(0)), 0o660));
}

#[test]
fn a_mode_that_the_session_set_is_set_as_chmod_does() {
    let Some(world) = world(&[(ACCESS, &acl(0))]) else { return };
    world.write("file", 0, b"CONTENT").unwrap();
    world.chmod("file", 0o644).unwrap();
    applied(&open(&world), None, &all()).unwrap();
    let file = world.base().join("file");
    assert_eq!(mode(&file), 0o644);
    let mut wanted = acl(0);
    // Mask and others are read; the group's own entry is what it was.
    wanted[4 + 3 * 8 + 2] = 4;
    wanted[4 + 4 * 8 + 2] = 4;
    assert_eq!(get(&file, ACCESS), Some(wanted));
}

#[test]
fn a_copy_without_the_list_gets_it() {
    let Some(world) = world(&[(ACCESS, &acl(0))]) else { return };
    world.write("file", 0, b"CONTENT").unwrap();
    let to = copy(&world, "copy");
    rustix::fs::removexattr(to.join("file"), ACCESS).unwrap();
    applied(
        &open(&world),
        Some(&to),
        &acetate::inspect::apply::ApplyOptions { force: true, ..all() },
    )
    .unwrap();
    assert_eq!(get(&to.join("file"), ACCESS), Some(acl(0)));
}

#[test]
fn what_moves_or_is_replaced_under_another_name_keeps_its_own() {
    let Some(world) = world(&[(ACCESS, &acl(4)), ("user.note", b"mine")]) else { return };
    world.rename("file", "dir/moved").unwrap();
    applied(&open(&world), None, &all()).unwrap();
    let moved = world.base().join("dir/moved");
    assert_eq!(get(&moved, "user.note"), Some(b"mine".to_vec()));
    assert_eq!(get(&moved, ACCESS), Some(acl(4)));

    let Some(world) = self::world(&[(ACCESS, &acl(4)), ("user.note", b"mine")]) else { return };
    world.write("file", 0, b"CONTENT").unwrap();
    world.rename("file", "dir/moved").unwrap();
    world.rename("dir", "dir2").unwrap();
    applied(&open(&world), None, &all()).unwrap();
    let moved = world.base().join("dir2/moved");
    assert_eq!(fs::read(&moved).unwrap(), b"CONTENT");
    assert_eq!(get(&moved, "user.note"), Some(b"mine".to_vec()));
    assert_eq!(get(&moved, ACCESS), Some(acl(4)));

    // As editors save: a new file takes the name.
    let Some(world) = self::world(&[(ACCESS, &acl(4)), ("user.note", b"mine")]) else { return };
    world.put("file.new", "saved");
    world.rename("file.new", "file").unwrap();
    applied(&open(&world), None, &all()).unwrap();
    let file = world.base().join("file");
    assert_eq!(fs::read(&file).unwrap(), b"saved");
    assert_eq!(get(&file, "user.note"), Some(b"mine".to_vec()));
}

#[test]
fn capabilities_do_not_go_to_other_content() {
    let Some(world) = world(&[(CAPABILITY, &NET_ADMIN), ("user.note", b"mine")]) else { return };
    world.write("file", 0, b"CONTENT").unwrap();
    let plan = planned(&open(&world), None, &all()).unwrap();
    assert_eq!(plan.losses.len(), 1, "{plan:?}");
    assert_eq!(plan.losses[0].names, [CAPABILITY]);
    applied(&open(&world), None, &all()).unwrap();
    let file = world.base().join("file");
    assert_eq!(get(&file, CAPABILITY), None);
    assert_eq!(get(&file, "user.note"), Some(b"mine".to_vec()));
}

#[test]
fn capabilities_stay_with_the_content_and_go_with_the_owner() {
    let Some(world) = world(&[(CAPABILITY, &NET_ADMIN)]) else { return };
    world.chmod("file", 0o600).unwrap();
    world.rename("file", "moved").unwrap();
    applied(&open(&world), None, &all()).unwrap();
    assert!(get(&world.base().join("moved"), CAPABILITY).is_some());

    let Some(world) = self::world(&[(CAPABILITY, &NET_ADMIN)]) else { return };
    world.chown("file", 12, 34).unwrap();
    let plan = planned(&open(&world), None, &all()).unwrap();
    assert_eq!(plan.losses.len(), 1, "{plan:?}");
    applied(&open(&world), None, &all()).unwrap();
    assert_eq!(get(&world.base().join("file"), CAPABILITY), None);
}

#[test]
fn what_another_type_loses_is_named() {
    let Some(world) = world(&[("user.note", b"mine")]) else { return };
    world.remove("file").unwrap();
    world.mkdir("file").unwrap();
    let plan = planned(&open(&world), None, &all()).unwrap();
    assert_eq!(plan.losses.len(), 1, "{plan:?}");
    assert_eq!(plan.losses[0].why, "its type differs");
}

/// They are made at the top, and belong elsewhere.
#[test]
fn new_files_get_nothing_of_the_tops_default_list() {
    let mut world = World::new("dir/file \"content\"\n");
    if !set(&world.change_base(), DEFAULT, &acl(6)) {
        return;
    }
    world.reopen();
    world.write("dir/file", 0, b"CONTENT").unwrap();
    world.mkdir("dir/new").unwrap();
    world.put("dir/new/file", "new");
    applied(&open(&world), None, &all()).unwrap();
    for path in ["dir/file", "dir/new", "dir/new/file"] {
        let path = world.base().join(path);
        assert_eq!((get(&path, ACCESS), get(&path, DEFAULT)), (None, None), "{path:?}");
    }
}
