//! Reading leaves no trace in the base.
// macOS has no O_NOATIME.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use acetate::base::{Base, BasePath};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use super::{both, content, path, tree};

/// Everything that a host process can see of a tree.
fn traces(root: &Path) -> BTreeMap<PathBuf, Vec<i64>> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![root.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        // The attributes first: reading the directory moves its atime.
        let meta = std::fs::symlink_metadata(&dir).unwrap();
        let times = [meta.atime(), meta.atime_nsec(), meta.mtime(), meta.mtime_nsec()];
        let rest = [meta.ctime(), meta.ctime_nsec(), i64::from(meta.mode()), meta.size() as i64];
        all.insert(dir.clone(), [times, rest].concat());
        if meta.is_dir() {
            dirs.extend(std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()));
        }
    }
    all
}

/// Makes the last read of everything older than the last change, so that even a relatime mount
/// notes the next one.
fn age(root: &Path) {
    let mut dirs = vec![root.to_path_buf()];
    while let Some(at) = dirs.pop() {
        if at.symlink_metadata().unwrap().is_dir() {
            dirs.extend(std::fs::read_dir(&at).unwrap().map(|e| e.unwrap().path()));
        }
        let times = Timestamps {
            last_access: Timespec { tv_sec: 1_000_000, tv_nsec: 0 },
            last_modification: Timespec { tv_sec: 2_000_000, tv_nsec: 0 },
        };
        rustix::fs::utimensat(CWD, &at, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

#[test]
fn reading_leaves_no_trace_in_the_base() {
    let dir = tree();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(at("a/b")).unwrap();
    std::fs::write(at("a/b/f"), "content").unwrap();
    std::fs::write(at("g"), "content").unwrap();
    std::os::unix::fs::symlink("g", at("l")).unwrap();
    both(dir.path(), |base| {
        age(dir.path());
        let before = traces(dir.path());
        age(dir.path());
        let id = base.stat(&path("a/b/f")).unwrap().fileid;
        for dir in [BasePath::root(), path("a"), path("a/b")] {
            base.stat(&dir).unwrap();
            base.list(&dir).unwrap();
        }
        assert_eq!(content(base, &path("a/b/f")).unwrap(), b"content");
        assert_eq!(content(base, &path("g")).unwrap(), b"content");
        base.next_data(&path("g"), base.stat(&path("g")).unwrap().fileid, 0).unwrap();
        base.find_linked(id, &mut |_| true).unwrap();
        let mut after = traces(dir.path());
        for (at, trace) in &mut after {
            // Ageing itself moves ctime.
            trace[4..6].copy_from_slice(&before[at][4..6]);
        }
        assert_eq!(before, after);
    });
    // The same through the standard library does leave one, so that this test can fail.
    let moved = |name: &str| std::fs::metadata(at(name)).unwrap().atime() != 1_000_000;
    age(dir.path());
    std::fs::read(at("g")).unwrap();
    let is_noatime = rustix::fs::statvfs(dir.path())
        .unwrap()
        .f_flag
        .contains(rustix::fs::StatVfsMountFlags::NOATIME);
    assert!(moved("g") || is_noatime);
}
