//! `list`, its cache, and hidden paths.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use acetate::base::{Base, BaseError, BasePath, HostDir, HostDirOptions, ListingLock};
use acetate::vfs::{FileId, FileKind, Name};

use super::{both, names, path, tree};

#[test]
fn lists_every_name_with_the_number_and_type_of_stat() {
    let dir = tree();
    let odd: [&[u8]; 5] = [b"\xff\xfe", b"a\nb", b"...", b" ", "naïve-\u{1f600}".as_bytes()];
    for name in odd {
        std::fs::write(dir.path().join(OsStr::from_bytes(name)), "x").unwrap();
    }
    std::fs::write(dir.path().join("n".repeat(255)), "x").unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::os::unix::fs::symlink("x", dir.path().join("link")).unwrap();
    both(dir.path(), |base| {
        let listing = base.list(&BasePath::root()).unwrap();
        assert_eq!(listing.entries.len(), odd.len() + 3);
        for entry in &listing.entries {
            let attr = base.stat(&BasePath::root().join(&entry.name)).unwrap();
            assert_eq!(entry.fileid, attr.fileid, "{:?}", entry.name);
            assert!(entry.kind.is_none_or(|kind| kind == attr.kind), "{:?}", entry.name);
        }
        for name in odd {
            let name = Name::new(name).unwrap();
            assert!(listing.entries.iter().any(|e| e.name == name), "{name:?}");
        }
        assert_eq!(names(base, &path("sub")).len(), 0);
    });
}

#[test]
fn only_directories_are_listed() {
    let dir = tree();
    std::fs::write(dir.path().join("f"), "x").unwrap();
    std::os::unix::fs::symlink("/", dir.path().join("l")).unwrap();
    both(dir.path(), |base| {
        assert!(matches!(base.list(&path("f")), Err(BaseError::WrongKind)));
        assert!(matches!(base.list(&path("l")), Err(BaseError::WrongKind)));
    });
}

#[test]
fn a_change_is_seen_however_soon_it_comes() {
    let dir = tree();
    both(dir.path(), |base| {
        for n in 0..300 {
            let file = dir.path().join(format!("f{n}"));
            std::fs::write(&file, "").unwrap();
            assert_eq!(names(base, &BasePath::root()).len(), 1);
            std::fs::remove_file(&file).unwrap();
            assert_eq!(names(base, &BasePath::root()).len(), 0);
        }
    });
}

#[test]
fn an_unchanged_directory_is_read_once() {
    let dir = tree();
    std::fs::write(dir.path().join("f"), "x").unwrap();
    // Until the last change is older than any clock's tick.
    std::thread::sleep(Duration::from_millis(120));
    both(dir.path(), |base| {
        let first = base.list(&BasePath::root()).unwrap();
        assert!(Arc::ptr_eq(&first, &base.list(&BasePath::root()).unwrap()));
        std::fs::rename(dir.path().join("f"), dir.path().join("g")).unwrap();
        assert!(names(base, &BasePath::root()).contains_key(&b"g"[..]));
        std::fs::rename(dir.path().join("g"), dir.path().join("f")).unwrap();
        std::thread::sleep(Duration::from_millis(120));
    });
}

#[test]
fn another_directory_of_the_same_name_is_not_taken_for_the_old_one() {
    let dir = tree();
    for name in ["a", "b"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
        std::fs::write(dir.path().join(name).join(format!("in-{name}")), "").unwrap();
    }
    std::thread::sleep(Duration::from_millis(120));
    both(dir.path(), |base| {
        assert!(names(base, &path("a")).contains_key(&b"in-a"[..]));
        for (from, to) in [("a", "c"), ("b", "a"), ("c", "b")] {
            std::fs::rename(dir.path().join(from), dir.path().join(to)).unwrap();
        }
        assert!(names(base, &path("a")).contains_key(&b"in-b"[..]));
        for (from, to) in [("a", "c"), ("b", "a"), ("c", "b")] {
            std::fs::rename(dir.path().join(from), dir.path().join(to)).unwrap();
        }
    });
}

#[test]
fn a_large_directory_is_listed_whole() {
    const ENTRIES: usize = 20_000;
    let dir = tree();
    for n in 0..ENTRIES {
        std::fs::File::create(dir.path().join(format!("a-name-of-some-length-{n}"))).unwrap();
    }
    both(dir.path(), |base| assert_eq!(names(base, &BasePath::root()).len(), ENTRIES));
}

#[test]
fn hidden_paths_do_not_exist() {
    let dir = tree();
    std::fs::create_dir_all(dir.path().join("a/hidden-dir/below")).unwrap();
    for file in ["a/s.db", "a/s.db-wal", "a/shown", "a/hidden-dir/below/f", "s.db"] {
        std::fs::write(dir.path().join(file), "x").unwrap();
    }
    let hidden = ["a/s.db", "a/s.db-wal", "a/s.db-shm", "a/hidden-dir"];
    let options = HostDirOptions { hidden: hidden.map(path).to_vec() };
    for open in [HostDir::open, HostDir::open_stepwise] {
        let base = open(dir.path(), options.clone()).unwrap();
        let listed = names(&base, &path("a"));
        assert_eq!(listed.keys().collect::<Vec<_>>(), [b"shown"]);
        for gone in hidden.iter().chain(&["a/hidden-dir/below", "a/hidden-dir/below/f"]) {
            assert!(matches!(base.stat(&path(gone)), Err(BaseError::NotFound)), "{gone}");
            assert!(matches!(base.list(&path(gone)), Err(BaseError::NotFound)), "{gone}");
            assert!(matches!(base.read_link(&path(gone)), Err(BaseError::NotFound)), "{gone}");
            let id = ino(&dir.path().join(gone));
            let read = base.read(&path(gone), id, 0, &mut [0]);
            assert!(matches!(read, Err(BaseError::NotFound)), "{gone}");
            let data = base.next_data(&path(gone), id, 0);
            assert!(matches!(data, Err(BaseError::NotFound)), "{gone}");
            assert_eq!(base.find_linked(id, &mut |_| true).unwrap(), None, "{gone}");
        }
        assert_eq!(base.stat(&path("s.db")).unwrap().kind, FileKind::Regular);
    }
}

fn ino(file: &std::path::Path) -> FileId {
    use std::os::unix::fs::MetadataExt;
    FileId(std::fs::symlink_metadata(file).map_or(2, |meta| meta.ino()))
}

#[test]
fn a_large_directory_waits_for_its_turn_and_a_small_one_does_not() {
    let dir = tree();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(at("large")).unwrap();
    std::fs::create_dir_all(at("small")).unwrap();
    for number in 0..9000 {
        std::fs::File::create(at("large").join(number.to_string())).unwrap();
    }
    std::fs::write(at("small/one"), "1").unwrap();
    let turn = Arc::new(ListingLock::default());
    let bases = [(); 2].map(|()| {
        let base = HostDir::open(dir.path(), HostDirOptions::default()).unwrap();
        base.with_turn(Arc::clone(&turn))
    });
    let taken = turn.take(Duration::ZERO).unwrap();
    assert!(matches!(bases[0].list(&path("large")), Err(BaseError::Busy)));
    assert_eq!(bases[0].list(&path("small")).unwrap().entries.len(), 1);
    drop(taken);
    // What was just changed is kept by no cache: the turn is held as long as the listing is.
    let large = loop {
        std::fs::write(at("large/0"), "").unwrap();
        std::fs::remove_file(at("large/0")).unwrap();
        let large = bases[0].list(&path("large")).unwrap();
        if large.turn.is_some() {
            break large;
        }
    };
    assert_eq!(large.entries.len(), 8999);
    assert!(matches!(bases[1].list(&path("large")), Err(BaseError::Busy)));
    drop(large);
    std::thread::sleep(Duration::from_millis(100));
    let kept = bases[1].list(&path("large")).unwrap();
    assert!(kept.turn.is_none() && turn.take(Duration::ZERO).is_some());
}
