//! Objects with an access ACL.
#![cfg(target_os = "linux")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use acetate::base::{Base, BasePath};
use acetate::vfs::Name;
use rustix::fs::{XattrFlags, setxattr};

use super::{both, path, tree};
use crate::support::skip::skip;

/// Gives a file the ACL `u::rw-,u:1234:NAMED,g::OWNING,m::rw-,o::r--`; whether its filesystem has
/// ACLs.
fn set_acl(file: &Path, named: u8, owning: u8) -> bool {
    let mut acl = vec![2, 0, 0, 0];
    for (tag, permissions, id) in [
        (1, 6, u32::MAX),
        (2, named, 1234),
        (4, owning, u32::MAX),
        (16, 6, u32::MAX),
        (32, 4, u32::MAX),
    ] {
        acl.extend([tag, 0, permissions, 0]);
        acl.extend(u32::to_le_bytes(id));
    }
    let set = setxattr(file, "system.posix_acl_access", &acl, XattrFlags::empty());
    if set.is_err() {
        skip(&format!("{} has no ACLs", file.display()));
    }
    set.is_ok()
}

#[test]
fn the_mode_of_an_object_grants_nobody_what_its_acl_denies() {
    let dir = tree();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("dir")).unwrap();
    for name in ["dir/file", "top", "plain"] {
        fs::write(at(name), "content").unwrap();
        fs::set_permissions(at(name), Permissions::from_mode(0o644)).unwrap();
    }
    if !(set_acl(&at("dir/file"), 6, 0) && set_acl(&at("top"), 0, 4) && set_acl(&at("dir"), 6, 4)) {
        return;
    }
    assert_eq!(fs::metadata(at("top")).unwrap().mode() & 0o7777, 0o664, "the mask is rw-");
    both(dir.path(), |base| {
        for (name, mode) in [("dir/file", 0o604), ("top", 0o600), ("dir", 0o644), ("plain", 0o644)]
        {
            // Also when it is remembered.
            for _ in 0..2 {
                assert_eq!(base.stat(&path(name)).unwrap().mode, mode, "{name}");
            }
        }
        let id = base.stat(&path("dir/file")).unwrap().fileid;
        let (_, after) = base.read(&path("dir/file"), id, 0, &mut [0]).unwrap();
        assert_eq!(after.mode, 0o604, "as a reply to READ has it");
        let entries = base.entries(&path("dir")).unwrap();
        let listed = entries.stat(&Name::new(b"file").unwrap(), id).unwrap();
        assert_eq!(listed.mode, 0o604, "as a listing has it");
    });
}

#[test]
fn an_acl_that_is_set_or_removed_counts_at_once() {
    let dir = tree();
    let file = dir.path().join("file");
    fs::write(&file, "content").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    both(dir.path(), |base| {
        let mode = || base.stat(&path("file")).unwrap().mode;
        assert_eq!(mode(), 0o644);
        if !set_acl(&file, 6, 0) {
            return;
        }
        assert_eq!(mode(), 0o604);
        rustix::fs::removexattr(&file, "system.posix_acl_access").unwrap();
        assert_eq!(mode(), fs::metadata(&file).unwrap().mode() & 0o7777);
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    });
}

#[test]
fn the_root_of_the_base_has_an_acl_too() {
    let dir = tree();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    if set_acl(dir.path(), 6, 0) {
        both(dir.path(), |base| assert_eq!(base.stat(&BasePath::root()).unwrap().mode, 0o604));
    }
}
