//! Deep trees, few descriptors, and that reading leaves no trace.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use acetate::base::{Base, BasePath, HostDir, HostDirOptions};
use acetate::vfs::{FileKind, Name};
use rustix::fs::{CWD, Mode, OFlags};

use super::{again_in, both, content, is_again, names, path, tree};

#[test]
fn paths_may_be_longer_than_the_kernel_takes() {
    const DEPTH: usize = 60;
    let dir = tree();
    let name = "n".repeat(200);
    let mut here: OwnedFd =
        rustix::fs::openat(CWD, dir.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..DEPTH {
        rustix::fs::mkdirat(&here, &*name, Mode::RWXU).unwrap();
        here = rustix::fs::openat(&here, &*name, OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let flags = OFlags::CREATE | OFlags::WRONLY;
    let file = rustix::fs::openat(&here, "f", flags, Mode::RWXU).unwrap();
    rustix::io::write(&file, b"deep").unwrap();
    rustix::fs::symlinkat("target", &here, "l").unwrap();
    let deep = path(vec![&*name; DEPTH].join("/"));
    assert!(deep.as_bytes().len() > 12_000);
    both(dir.path(), |base| {
        let at = |name: &[u8]| deep.join(&Name::new(name).unwrap());
        assert_eq!(base.stat(&deep).unwrap().kind, FileKind::Directory);
        assert_eq!(names(base, &deep).len(), 2);
        assert_eq!(content(base, &at(b"f")).unwrap(), b"deep");
        assert_eq!(base.read_link(&at(b"l")).unwrap(), b"target");
        assert!(base.stat(&at(b"none")).is_err());
        let id = base.stat(&at(b"f")).unwrap().fileid;
        assert_eq!(base.find_linked(id, &mut |_| true).unwrap(), Some(at(b"f")));
    });
}

#[test]
fn twenty_thousand_files_need_few_descriptors() {
    const NAME: &str = "base::limits::twenty_thousand_files_need_few_descriptors";
    const LIMITED: [&str; 2] = ["-c", "ulimit -n 256 && exec \"$0\" \"$@\""];
    if !is_again() {
        return again_in(Command::new("sh").args(LIMITED), NAME);
    }
    let dir = tree();
    for n in 0..200 {
        std::fs::create_dir(dir.path().join(format!("d{n}"))).unwrap();
        for file in 0..100 {
            std::fs::write(dir.path().join(format!("d{n}/f{file}")), n.to_string()).unwrap();
        }
    }
    both(dir.path(), |base| {
        for n in 0..200 {
            for entry in &base.list(&path(format!("d{n}"))).unwrap().entries {
                let at = path(format!("d{n}")).join(&entry.name);
                assert_eq!(content(base, &at).unwrap(), n.to_string().as_bytes());
            }
        }
        let fds = if cfg!(target_os = "macos") { "/dev/fd" } else { "/proc/self/fd" };
        let open = std::fs::read_dir(fds).unwrap().count();
        assert!(open < 100, "{open} descriptors are open");
    });
}

/// Everything that a host process can see of a tree.
fn traces(root: &Path) -> BTreeMap<std::path::PathBuf, Vec<i64>> {
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
    use rustix::fs::{AtFlags, Timespec, Timestamps};
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

// macOS has no O_NOATIME; APFS does not keep exact access times.
#[cfg(target_os = "linux")]
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

#[test]
fn a_base_is_opened_by_several_views_at_once() {
    let dir = tree();
    std::fs::write(dir.path().join("f"), "x").unwrap();
    let first = HostDir::open(dir.path(), HostDirOptions::default()).unwrap();
    let hidden = HostDirOptions { hidden: vec![path("f")] };
    let second = HostDir::open(dir.path(), hidden).unwrap();
    assert_eq!(content(&first, &path("f")).unwrap(), b"x");
    assert!(content(&second, &path("f")).is_err());
}
