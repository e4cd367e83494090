//! Looking at the entries of a directory that is being listed.

use std::fs;
use std::time::Duration;

use acetate::base::{Base, BaseAttr, BaseError, BasePath, HostDir, HostDirOptions};
use acetate::vfs::{FileId, Name};

use super::{both, make_fifo, path, tree};

/// Longer than a directory may change without moving its times.
const SETTLED: Duration = Duration::from_millis(120);

/// Longer than a listing tells what it has seen.
const FORGOTTEN: Duration = Duration::from_millis(1100);

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// What a listing that begins now says of `name` in the root.
fn listed(base: &HostDir, text: &str, id: FileId) -> Result<BaseAttr, BaseError> {
    base.entries(&BasePath::root()).unwrap().stat(&name(text), id)
}

#[test]
fn entries_are_what_stat_says() {
    let dir = tree();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("d/sub/below")).unwrap();
    fs::write(at("d/file"), "content").unwrap();
    fs::hard_link(at("d/file"), at("d/again")).unwrap();
    std::os::unix::fs::symlink("nowhere", at("d/link")).unwrap();
    make_fifo(&at("d/fifo"));
    both(dir.path(), |base| {
        for dir in [BasePath::root(), path("d"), path("d/sub")] {
            let listing = base.list(&dir).unwrap();
            let entries = base.entries(&dir).unwrap();
            for entry in &listing.entries {
                let found = entries.stat(&entry.name, entry.fileid).unwrap();
                assert_eq!(found, base.stat(&dir.join(&entry.name)).unwrap(), "{entry:?}");
            }
            let absent = entries.stat(&name("absent"), FileId(2));
            assert!(matches!(absent, Err(BaseError::NotFound)));
        }
        for none in ["d/file", "d/link", "absent", "d/file/x"] {
            let of_none = base.entries(&path(none)).map(|entries| {
                assert!(matches!(entries.stat(&name("x"), FileId(2)), Err(BaseError::NotFound)));
            });
            assert!(matches!(of_none, Ok(()) | Err(BaseError::NotFound)), "{none}");
        }
    });
}

#[test]
fn a_listing_shows_nothing_older_than_another_answer() {
    let dir = tree();
    let file = dir.path().join("f");
    fs::write(&file, "").unwrap();
    std::thread::sleep(SETTLED);
    both(dir.path(), |base| {
        fs::write(&file, "").unwrap();
        let id = base.stat(&path("f")).unwrap().fileid;
        let size = || listed(base, "f", id).unwrap().size;
        assert_eq!(size(), 0);
        fs::write(&file, "12345").unwrap();
        assert_eq!(base.stat(&path("f")).unwrap().size, 5);
        assert_eq!(size(), 5, "as it was told");
        fs::write(&file, "123").unwrap();
        let read = base.read(&path("f"), id, 0, &mut [0; 9]).unwrap();
        assert_eq!((read.1.size, size()), (3, 3), "by READ as well");
        fs::write(&file, "1234567").unwrap();
        std::thread::sleep(FORGOTTEN);
        assert_eq!(size(), 7, "asked anew");
    });
}

#[test]
fn what_is_hidden_or_gone_is_not_there() {
    let dir = tree();
    fs::write(dir.path().join("s.db"), "").unwrap();
    fs::write(dir.path().join("f"), "").unwrap();
    let options = HostDirOptions { hidden: vec![path("s.db")] };
    let base = HostDir::open(dir.path(), options).unwrap();
    let id = base.stat(&path("f")).unwrap().fileid;
    assert!(matches!(listed(&base, "s.db", FileId(9)), Err(BaseError::NotFound)));
    assert!(listed(&base, "f", id).is_ok());
    fs::remove_file(dir.path().join("f")).unwrap();
    assert!(matches!(listed(&base, "f", id), Err(BaseError::NotFound)), "though just seen");
}

#[test]
fn what_we_change_ourselves_is_looked_at_anew() {
    let dir = tree();
    let root = dir.path();
    both(root, |base| {
        fs::create_dir_all(root.join("old/in")).unwrap();
        fs::create_dir_all(root.join("new/in")).unwrap();
        fs::write(root.join("old/in/f"), "old").unwrap();
        fs::write(root.join("new/in/f"), "brand new").unwrap();
        let size = || base.stat(&path("old/in/f")).unwrap().size;
        assert_eq!(size(), 3);
        // The directory that was looked in is where it was; the one above is not.
        fs::rename(root.join("old"), root.join("gone")).unwrap();
        fs::rename(root.join("new"), root.join("old")).unwrap();
        base.invalidate();
        assert_eq!(size(), 9);
        fs::remove_dir_all(root.join("old")).unwrap();
        fs::remove_dir_all(root.join("gone")).unwrap();
    });
}

#[test]
fn a_directory_that_was_moved_is_soon_found_where_it_is() {
    let dir = tree();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("a/b")).unwrap();
    fs::write(at("a/b/f"), "x").unwrap();
    both(dir.path(), |base| {
        let id = base.stat(&path("a/b/f")).unwrap().fileid;
        fs::rename(at("a"), at("c")).unwrap();
        assert_eq!(base.stat(&path("c/b/f")).unwrap().fileid, id, "at once");
        std::thread::sleep(Duration::from_millis(60));
        assert!(matches!(base.stat(&path("a/b/f")), Err(BaseError::NotFound)));
        assert!(matches!(base.stat(&path("a")), Err(BaseError::NotFound)));
        assert!(base.stat(&path("c/b")).is_ok() && base.stat(&path("c")).is_ok());
        fs::rename(at("c"), at("a")).unwrap();
        // The directory itself is found out at once.
        assert!(matches!(base.stat(&path("c")), Err(BaseError::NotFound)));
        std::thread::sleep(Duration::from_millis(60));
    });
}
