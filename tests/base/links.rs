//! `find_linked`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use acetate::base::Base;
use acetate::vfs::FileId;

use super::{both, path, tree};

fn ino(file: &Path) -> FileId {
    FileId(std::fs::symlink_metadata(file).unwrap().ino())
}

#[test]
fn finds_a_file_wherever_it_is() {
    let dir = tree();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(at("a/b/c")).unwrap();
    std::fs::create_dir_all(at("z/y")).unwrap();
    std::fs::write(at("a/b/c/one"), "1").unwrap();
    std::fs::hard_link(at("a/b/c/one"), at("z/y/two")).unwrap();
    std::fs::write(at("top"), "2").unwrap();
    both(dir.path(), |base| {
        assert_eq!(base.find_linked(ino(&at("top")), &mut |_| true).unwrap(), Some(path("top")));
        let linked = base.find_linked(ino(&at("a/b/c/one")), &mut |_| true).unwrap().unwrap();
        assert!([path("a/b/c/one"), path("z/y/two")].contains(&linked), "{linked:?}");
        assert_eq!(base.find_linked(ino(&at("top")), &mut |_| true).unwrap(), Some(path("top")));
        assert_eq!(base.find_linked(ino(&at("a/b")), &mut |_| true).unwrap(), None, "a directory");
        assert_eq!(base.find_linked(FileId(3), &mut |_| true).unwrap(), None);
    });
}

#[test]
fn an_answer_is_checked_before_it_is_given() {
    let dir = tree();
    let at = |name: &str| dir.path().join(name);
    both(dir.path(), |base| {
        std::fs::create_dir_all(at("a")).unwrap();
        std::fs::create_dir_all(at("b")).unwrap();
        std::fs::write(at("a/one"), "1").unwrap();
        std::fs::hard_link(at("a/one"), at("b/two")).unwrap();
        let id = ino(&at("a/one"));
        // The whole tree is in the index after this.
        assert_eq!(base.find_linked(FileId(3), &mut |_| true).unwrap(), None);

        std::fs::remove_file(at("a/one")).unwrap();
        assert_eq!(base.find_linked(id, &mut |_| true).unwrap(), Some(path("b/two")));
        std::fs::rename(at("b/two"), at("b/three")).unwrap();
        assert_eq!(base.find_linked(id, &mut |_| true).unwrap(), Some(path("b/three")));
        std::fs::remove_file(at("b/three")).unwrap();
        assert_eq!(base.find_linked(id, &mut |_| true).unwrap(), None);
        std::fs::remove_dir_all(at("a")).unwrap();
        std::fs::remove_dir_all(at("b")).unwrap();
    });
}

#[test]
fn only_a_path_that_will_do_is_found() {
    let dir = tree();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(at("a")).unwrap();
    std::fs::create_dir_all(at("b")).unwrap();
    std::fs::write(at("a/one"), "1").unwrap();
    std::fs::hard_link(at("a/one"), at("b/two")).unwrap();
    let id = ino(&at("a/one"));
    both(dir.path(), |base| {
        for name in ["a/one", "b/two"] {
            let found = base.find_linked(id, &mut |at| *at == path(name)).unwrap();
            assert_eq!(found, Some(path(name)));
        }
        assert_eq!(base.find_linked(id, &mut |_| false).unwrap(), None);
    });
}
