//! A base without what is never served: each method of the trait, over a real directory.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;

use acetate::base::{Base, BaseError, BasePath, Hiding, HostDir, HostDirOptions};
use acetate::pattern::{Pattern, PatternSet};
use acetate::vfs::{FileId, Name};
use tempfile::TempDir;

use super::{path, tree};

/// Everything that the tree below has hidden.
const HIDDEN: &[&str] = &[".env", "**/.ssh/**", "/secret", "lib/*.key"];

/// What there is of them.
const GONE: &[&str] = &[
    ".env",
    "lib/.env",
    "home/.ssh/id",
    "home/.ssh/deep/er",
    "secret",
    "secret/a",
    "secret/sub/b",
    "lib/x.key",
];

const SHOWN: &[&str] =
    &["plain", "home", "home/.ssh", "lib", "lib/x.pub", "lib/secret", "sub/.envs"];

fn fixture() -> TempDir {
    let dir = tree();
    let at = |name: &str| dir.path().join(name);
    for folder in ["home/.ssh/deep", "secret/sub", "lib", "sub"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    for file in [".env", "lib/.env", "home/.ssh/id", "home/.ssh/deep/er", "secret/a"] {
        fs::write(at(file), "hidden").unwrap();
    }
    for file in ["secret/sub/b", "lib/x.key"] {
        fs::write(at(file), "hidden").unwrap();
    }
    for file in ["plain", "lib/x.pub", "lib/secret", "sub/.envs"] {
        fs::write(at(file), "shown").unwrap();
    }
    dir
}

fn hiding(root: &Path, patterns: &[&str]) -> Hiding {
    let patterns = patterns.iter().map(|text| Pattern::new(text).unwrap()).collect();
    let inner = HostDir::open(root, HostDirOptions::default()).unwrap();
    Hiding::new(Arc::new(inner), Arc::new(PatternSet::new(patterns).unwrap()))
}

fn names(base: &dyn Base, dir: &str) -> Vec<String> {
    let listing = base.list(&path(dir)).unwrap();
    let name = |name: &Name| String::from_utf8(name.as_bytes().to_vec()).unwrap();
    let mut names: Vec<_> = listing.entries.iter().map(|entry| name(&entry.name)).collect();
    names.sort();
    names
}

fn ino(file: &Path) -> FileId {
    FileId(fs::symlink_metadata(file).unwrap().ino())
}

fn is_gone<T>(result: Result<T, BaseError>) -> bool {
    matches!(result, Err(BaseError::NotFound))
}

#[test]
fn a_hidden_object_is_in_no_answer() {
    let dir = fixture();
    let base = hiding(dir.path(), HIDDEN);
    for name in GONE {
        let (at, id) = (path(name), ino(&dir.path().join(name)));
        assert!(is_gone(base.stat(&at)), "{name}");
        assert!(is_gone(base.list(&at)), "{name}");
        assert!(is_gone(base.entries(&at)), "{name}");
        assert!(is_gone(base.read_link(&at)), "{name}");
        assert!(is_gone(base.read(&at, id, 0, &mut [0; 9])), "{name}");
        assert!(is_gone(base.next_data(&at, id, 0)), "{name}");
        assert_eq!(base.find_linked(id, &mut |_| true).unwrap(), None, "{name}");
        let (parent, own) = at.split().unwrap();
        if let Ok(entries) = base.entries(&parent) {
            assert!(is_gone(entries.stat(&own, id)), "{name}");
        }
    }
}

#[test]
fn all_else_is_as_in_the_base() {
    let dir = fixture();
    symlink("target", dir.path().join("link")).unwrap();
    let base = hiding(dir.path(), HIDDEN);
    let inner = HostDir::open(dir.path(), HostDirOptions::default()).unwrap();
    for name in SHOWN {
        let at = path(name);
        let (shown, real) = (base.stat(&at).unwrap(), inner.stat(&at).unwrap());
        assert_eq!((shown.fileid, shown.size, shown.mode), (real.fileid, real.size, real.mode));
        let (parent, own) = at.split().unwrap();
        let entry = base.entries(&parent).unwrap().stat(&own, real.fileid).unwrap();
        assert_eq!(entry, shown, "{name}");
    }
    let (at, id) = (path("plain"), ino(&dir.path().join("plain")));
    let mut content = [0; 9];
    assert_eq!(base.read(&at, id, 0, &mut content).unwrap().0, 5);
    assert_eq!(&content[..5], b"shown");
    assert_eq!(base.next_data(&at, id, 0).unwrap(), Some((0, 5)));
    assert_eq!(base.find_linked(id, &mut |_| true).unwrap(), Some(at));
    assert_eq!(base.read_link(&path("link")).unwrap(), b"target");
    assert_eq!(base.stat(&BasePath::root()).unwrap().fileid, ino(dir.path()));
}

#[test]
fn listings_pass_over_what_is_hidden() {
    let dir = fixture();
    let base = hiding(dir.path(), HIDDEN);
    assert_eq!(names(&base, ""), ["home", "lib", "plain", "sub"]);
    assert_eq!(names(&base, "lib"), ["secret", "x.pub"]);
    assert_eq!(names(&base, "home"), [".ssh"]);
    assert!(names(&base, "home/.ssh").is_empty());
    // A directory that is hidden itself is not there at all.
    let base = hiding(dir.path(), &[".ssh"]);
    assert!(names(&base, "home").is_empty());
    assert!(is_gone(base.stat(&path("home/.ssh/deep/er"))));
}

#[test]
fn the_number_of_subdirectories_is_not_told() {
    let dir = fixture();
    let base = hiding(dir.path(), HIDDEN);
    let root = BasePath::root();
    assert_eq!(base.stat(&root).unwrap().nlink, 1);
    let (home, id) = (Name::new(b"home").unwrap(), ino(&dir.path().join("home")));
    assert_eq!(base.entries(&root).unwrap().stat(&home, id).unwrap().nlink, 1);
    assert_eq!(base.stat(&path("plain")).unwrap().nlink, 1, "a file has its names");
}

#[test]
fn of_a_file_with_several_names_the_shown_ones_are_found() {
    let dir = fixture();
    let at = |name: &str| dir.path().join(name);
    fs::hard_link(at("secret/a"), at("sub/also")).unwrap();
    let base = hiding(dir.path(), HIDDEN);
    let id = ino(&at("secret/a"));
    for _ in 0..2 {
        let mut asked = Vec::new();
        let found = base.find_linked(id, &mut |path| {
            asked.push(path.clone());
            true
        });
        assert_eq!(found.unwrap(), Some(path("sub/also")));
        assert_eq!(asked, [path("sub/also")], "no hidden path is spoken of");
    }
    assert_eq!(base.find_linked(id, &mut |_| false).unwrap(), None);
}
