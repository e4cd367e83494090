//! `stat` and `read_link`.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use acetate::base::{Base, BaseError, BasePath, DELTA_IDS, HASHED_IDS, hash_fileid};
use acetate::vfs::{Device, FileId, FileKind, Time};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use super::{both, make_fifo, path, tree};

#[test]
fn a_file_has_the_hosts_attributes_to_the_nanosecond() {
    let dir = tree();
    let file = dir.path().join("f");
    std::fs::write(&file, vec![7; 10_000]).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o4751)).unwrap();
    std::fs::hard_link(&file, dir.path().join("g")).unwrap();
    let times = Timestamps {
        last_access: Timespec { tv_sec: -5, tv_nsec: 1 },
        last_modification: Timespec { tv_sec: 1_234_567_890, tv_nsec: 123_456_789 },
    };
    rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty()).unwrap();
    let meta = std::fs::metadata(&file).unwrap();
    both(dir.path(), |base| {
        let attr = base.stat(&path("f")).unwrap();
        assert_eq!((attr.kind, attr.mode, attr.nlink), (FileKind::Regular, 0o4751, 2));
        assert_eq!((attr.uid, attr.gid), (meta.uid(), meta.gid()));
        assert_eq!((attr.size, attr.used), (10_000, meta.blocks() * 512));
        assert_eq!((attr.dev, attr.ino, attr.rdev), (meta.dev(), meta.ino(), Device::default()));
        assert_eq!(attr.fileid, FileId(meta.ino()));
        assert_eq!(attr.atime, Time { secs: -5, nanos: 1 });
        assert_eq!(attr.mtime, Time { secs: 1_234_567_890, nanos: 123_456_789 });
        let ctime = Time { secs: meta.ctime(), nanos: meta.ctime_nsec() as u32 };
        assert_eq!(attr.ctime, ctime);
        assert_eq!(attr, base.stat(&path("g")).unwrap());
    });
}

#[test]
fn every_type_is_told_apart_and_none_is_followed() {
    let dir = tree();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("dir")).unwrap();
    symlink("/", at("link")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    make_fifo(&at("fifo"));
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    #[cfg_attr(not(target_os = "linux"), allow(unused_mut))]
    let mut expected = vec![
        ("dir", FileKind::Directory),
        ("link", FileKind::Symlink),
        ("dangling", FileKind::Symlink),
        ("fifo", FileKind::Fifo),
        ("socket", FileKind::Socket),
    ];
    // Only root can make devices.
    #[cfg(target_os = "linux")]
    if rustix::process::geteuid().is_root() {
        use rustix::fs::{FileType, Mode};
        let mode = Mode::from_raw_mode(0o600);
        let (null, disk) = (rustix::fs::makedev(1, 3), rustix::fs::makedev(259, 70_000));
        rustix::fs::mknodat(CWD, at("null"), FileType::CharacterDevice, mode, null).unwrap();
        rustix::fs::mknodat(CWD, at("disk"), FileType::BlockDevice, mode, disk).unwrap();
        expected.extend([("null", FileKind::Character), ("disk", FileKind::Block)]);
    }
    both(dir.path(), |base| {
        for (name, kind) in &expected {
            assert_eq!(base.stat(&path(name)).unwrap().kind, *kind, "{name}");
            let read = base.read(&path(name), base.stat(&path(name)).unwrap().fileid, 0, &mut [0]);
            assert!(matches!(read, Err(BaseError::WrongKind)), "{name}: {read:?}");
        }
        if let Ok(attr) = base.stat(&path("disk")) {
            assert_eq!(attr.rdev, Device { major: 259, minor: 70_000 });
        }
        let root = base.stat(&BasePath::root()).unwrap();
        assert_eq!(root.kind, FileKind::Directory);
        assert_eq!(root.ino, std::fs::metadata(dir.path()).unwrap().ino());
    });
}

#[test]
fn a_links_target_is_its_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tree();
    let long = format!("/{}", "t".repeat(4094));
    let odd = std::ffi::OsStr::from_bytes(b"\xff/../\x01");
    symlink(&long, dir.path().join("long")).unwrap();
    symlink(odd, dir.path().join("odd")).unwrap();
    std::fs::write(dir.path().join("file"), "x").unwrap();
    both(dir.path(), |base| {
        assert_eq!(base.read_link(&path("long")).unwrap(), long.as_bytes());
        assert_eq!(base.read_link(&path("odd")).unwrap(), odd.as_bytes());
        assert!(matches!(base.read_link(&path("file")), Err(BaseError::WrongKind)));
        assert!(matches!(base.read_link(&BasePath::root()), Err(BaseError::WrongKind)));
        assert!(matches!(base.read_link(&path("none")), Err(BaseError::NotFound)));
    });
}

#[test]
fn what_is_not_there_is_not_found() {
    let dir = tree();
    std::fs::write(dir.path().join("file"), "x").unwrap();
    both(dir.path(), |base| {
        for name in ["none", "none/below", "file/below", "file/a/b"] {
            assert!(matches!(base.stat(&path(name)), Err(BaseError::NotFound)), "{name}");
            assert!(matches!(base.list(&path(name)), Err(BaseError::NotFound)), "{name}");
            let read = base.read(&path(name), FileId(5), 0, &mut [0]);
            assert!(matches!(read, Err(BaseError::NotFound)), "{name}");
        }
    });
}

#[test]
fn what_the_host_denies_is_denied() {
    let dir = tree();
    let closed = dir.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::write(closed.join("file"), "x").unwrap();
    std::fs::write(dir.path().join("secret"), "x").unwrap();
    for (name, mode) in [("closed", 0o000), ("secret", 0o000), ("", 0o755)] {
        let at = dir.path().join(name);
        std::fs::set_permissions(at, PermissionsExt::from_mode(mode)).unwrap();
    }
    both(dir.path(), |base| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Nothing is denied to root; this is for the thread alone.
                #[cfg(target_os = "linux")]
                if rustix::process::geteuid().is_root() {
                    let nobody = rustix::fs::Uid::from_raw(65534);
                    rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
                }
                let secret = base.stat(&path("secret")).unwrap();
                let read = base.read(&path("secret"), secret.fileid, 0, &mut [0]);
                assert!(matches!(read, Err(BaseError::Denied)), "{read:?}");
                assert!(matches!(base.list(&path("closed")), Err(BaseError::Denied)));
                assert!(matches!(base.stat(&path("closed/file")), Err(BaseError::Denied)));
                assert_eq!(base.stat(&path("closed")).unwrap().kind, FileKind::Directory);
            });
        });
    });
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn numbers_that_cannot_be_shown_are_folded_into_their_own_range() {
    assert_eq!(hash_fileid(1, 1, 2), FileId(2));
    assert_eq!(hash_fileid(1, 1, HASHED_IDS - 1), FileId(HASHED_IDS - 1));
    for (dev, ino) in [(1, 0), (1, 1), (1, HASHED_IDS), (1, u64::MAX), (2, 2)] {
        let FileId(id) = hash_fileid(1, dev, ino);
        assert!((HASHED_IDS..DELTA_IDS).contains(&id), "({dev}, {ino}) → {id}");
    }
    assert_ne!(hash_fileid(1, 2, 2), hash_fileid(1, 3, 2));
}
