//! What is mounted below the base is not entered.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Command;

use acetate::base::{Base, BaseAttr, BaseError, BasePath};
use acetate::vfs::{FileId, FileKind, Time};

use super::{again_in, both, content, is_again, names, path, tree};
use crate::support::skip::skip;

fn check_stands_in(attr: &BaseAttr, kind: FileKind) {
    let mode = if kind == FileKind::Directory { 0o755 } else { 0o444 };
    assert_eq!((attr.kind, attr.mode, attr.size, attr.used), (kind, mode, 0, 0));
    assert_eq!((attr.uid, attr.gid), (0, 0));
    let epoch = Time::default();
    assert_eq!((attr.atime, attr.mtime, attr.ctime), (epoch, epoch, epoch));
}

#[test]
fn proc_below_the_root_directory_is_an_empty_directory() {
    both(Path::new("/"), |base| {
        let proc = base.stat(&path("proc")).unwrap();
        check_stands_in(&proc, FileKind::Directory);
        assert_eq!(names(base, &BasePath::root())[&b"proc"[..]], proc.fileid);
        assert_eq!(base.stat(&path("proc")).unwrap(), proc);
        assert_eq!(names(base, &path("proc")).len(), 0);
        for below in ["proc/self", "proc/self/root/etc", "proc/1/status", "proc/none"] {
            assert!(matches!(base.stat(&path(below)), Err(BaseError::NotFound)), "{below}");
            assert!(matches!(base.list(&path(below)), Err(BaseError::NotFound)), "{below}");
            assert!(matches!(base.read_link(&path(below)), Err(BaseError::NotFound)), "{below}");
        }
        assert!(matches!(base.read_link(&path("proc")), Err(BaseError::WrongKind)));
        let read = base.read(&path("proc"), proc.fileid, 0, &mut [0]);
        assert!(matches!(read, Err(BaseError::WrongKind)), "{read:?}");
    });
}

/// Whether this machine lets us mount, in a namespace that is ours alone.
fn unshared() -> Option<Command> {
    ["-m", "-rm"].into_iter().find_map(|flags| {
        let works = Command::new("unshare").args([flags, "true"]).status();
        works.is_ok_and(|status| status.success()).then(|| {
            let mut command = Command::new("unshare");
            command.arg(flags);
            command
        })
    })
}

fn mount(arguments: &[&str], from: &Path, to: &Path) {
    let mut command = Command::new("mount");
    let status = command.args(arguments).arg(from).arg(to).status().unwrap();
    assert!(status.success(), "mount {arguments:?}");
}

#[test]
fn whatever_is_mounted_below_the_base_is_covered() {
    const NAME: &str = "base::mounts::whatever_is_mounted_below_the_base_is_covered";
    if !is_again() {
        // Where no namespace can be made, the test above has gone the same ways with /proc.
        match unshared() {
            Some(mut command) => again_in(&mut command, NAME),
            None => skip("no mount namespace here"),
        }
        return;
    }
    let (dir, other) = (tree(), tree());
    let at = |name: &str| dir.path().join(name);
    for name in ["a/tmpfs/below", "a/same/below", "elsewhere"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    for file in ["a/file", "a/plain", "elsewhere/f"] {
        std::fs::write(at(file), "covered").unwrap();
    }
    std::fs::write(other.path().join("f"), "mounted").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(120));
    both(dir.path(), |base| {
        let numbers = names(base, &path("a"));
        let id = base.stat(&path("a/file")).unwrap().fileid;
        mount(&["-t", "tmpfs"], Path::new("none"), &at("a/tmpfs"));
        // From the same filesystem, so that no device number tells.
        mount(&["--bind"], &at("elsewhere"), &at("a/same"));
        mount(&["--bind"], &other.path().join("f"), &at("a/file"));
        std::fs::write(at("a/tmpfs/f"), "mounted").unwrap();

        for name in ["tmpfs", "same"] {
            let dir = path("a").join(&acetate::vfs::Name::new(name.as_bytes()).unwrap());
            let attr = base.stat(&dir).unwrap();
            check_stands_in(&attr, FileKind::Directory);
            assert_eq!(attr.fileid, numbers[name.as_bytes()], "the number of what is covered");
            assert_eq!(names(base, &dir).len(), 0);
            assert!(base.stat(&path(format!("a/{name}/f"))).is_err());
            assert!(base.stat(&path(format!("a/{name}/below"))).is_err());
            assert!(base.read(&path(format!("a/{name}/f")), id, 0, &mut [0]).is_err());
        }
        let entries = base.entries(&path("a")).unwrap();
        for (name, id) in &numbers {
            let name = acetate::vfs::Name::new(name).unwrap();
            let listed = entries.stat(&name, *id).unwrap();
            assert_eq!(listed, base.stat(&path("a").join(&name)).unwrap(), "{name:?}");
        }
        let file = base.stat(&path("a/file")).unwrap();
        check_stands_in(&file, FileKind::Regular);
        assert_eq!(file.fileid, numbers[&b"file"[..]]);
        assert_eq!(content(base, &path("a/file")).unwrap(), b"");
        assert_eq!(base.next_data(&path("a/file"), file.fileid, 0).unwrap(), None);
        assert_eq!(names(base, &path("a")), numbers);
        assert_eq!(content(base, &path("a/plain")).unwrap(), b"covered");
        assert_eq!(base.find_linked(FileId(3), &mut |_| true).unwrap(), None);
        for name in ["a/tmpfs", "a/same", "a/file"] {
            let status = Command::new("umount").arg(at(name)).status().unwrap();
            assert!(status.success());
        }
        assert_eq!(base.stat(&path("a/file")).unwrap().size, 7);
    });
}
