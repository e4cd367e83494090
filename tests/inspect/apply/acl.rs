//! Applying attributes to an object with an access ACL, which the base shows as fewer mode bits.
#![cfg(target_os = "linux")]

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use acetate::vfs::Time;
use rustix::fs::{XattrFlags, getxattr, setxattr};

use super::{applied, copy, open, watched};
use crate::support::skip::skip;
use crate::support::world::World;

const ACCESS: &str = "system.posix_acl_access";

/// `u::rw-,u:1234:rw-,g::---,m::rw-,o::r--`: the host shows mode 0664.
fn acl() -> Vec<u8> {
    let mut acl = vec![2, 0, 0, 0];
    let none = u32::MAX;
    for (tag, permissions, id) in
        [(1, 6, none), (2, 6, 1234), (4, 0, none), (16, 6, none), (32, 4, none)]
    {
        acl.extend([tag, 0, permissions, 0]);
        acl.extend(u32::to_le_bytes(id));
    }
    acl
}

fn acl_of(file: &Path) -> Vec<u8> {
    let mut value = vec![0; 1024];
    let length = getxattr(file, ACCESS, &mut value[..]).unwrap();
    value.truncate(length);
    value
}

#[test]
fn a_mode_that_nobody_changed_leaves_the_mask_of_an_acl_as_it_is() {
    let mut world = World::new("dir/file \"content\"");
    let base = world.change_base();
    for path in ["dir/file", "dir", ""] {
        if setxattr(base.join(path), ACCESS, &acl(), XattrFlags::empty()).is_err() {
            skip(&format!("{} has no ACLs", base.display()));
            return;
        }
    }
    assert_eq!(world.stat("dir/file").mode, 0o604);
    world.utimes("dir/file", Time { secs: 5, nanos: 0 }).unwrap();
    world.utimes("dir", Time { secs: 6, nanos: 0 }).unwrap();
    let to = copy(&world, "copy");
    let report =
        watched(&open(&world), Some(&to), &applied::all(), &mut |_| ControlFlow::Continue(()));
    assert_eq!(report.unwrap().skipped.len(), 0);
    for (path, mtime) in [("dir/file", 5), ("dir", 6)] {
        assert_eq!(fs::metadata(to.join(path)).unwrap().mtime(), mtime);
        assert_eq!(acl_of(&to.join(path)), acl(), "{path}");
    }
    world.chmod("dir/file", 0o600).unwrap();
    watched(&open(&world), Some(&to), &applied::all(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(fs::metadata(to.join("dir/file")).unwrap().mode() & 0o777, 0o600);
}
