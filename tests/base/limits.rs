//! Deep trees and few descriptors.

use std::os::fd::OwnedFd;
use std::process::Command;

use acetate::base::{Base, HostDir, HostDirOptions};
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
