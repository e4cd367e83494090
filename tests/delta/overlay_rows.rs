//! Whiteouts, redirects and hidden links.

use std::collections::BTreeSet;

use acetate::base::BasePath;
use acetate::delta::{Ino, MergedPath, Store, StoreErrorKind};
use acetate::vfs::{FileId, FileKind, Name};

use super::{Place, change, look, make, name, time};
use crate::support::check::assert_consistent;

fn merged(text: &str) -> MergedPath {
    MergedPath::from_bytes(text.as_bytes()).unwrap()
}

fn base(text: &str) -> BasePath {
    BasePath::from_bytes(text.as_bytes()).unwrap()
}

#[test]
fn whiteouts_cover_exactly_their_path() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let odd = MergedPath::from_bytes(b"/a/\xff").unwrap();
    change(&mut *writer, |txn| {
        for path in ["/a/b", "/a/b/c/d", "/a/bc", "/a.b", "/top"] {
            txn.add_whiteout(&merged(path), time(9)).unwrap();
        }
        txn.add_whiteout(&odd, time(9)).unwrap();
        txn.add_whiteout(&odd, time(10)).unwrap();
    });
    assert_consistent(&place.path);
    look(&session, |txn| {
        assert!(txn.is_whited_out(&merged("/a/b")).unwrap());
        assert!(!txn.is_whited_out(&merged("/a")).unwrap());
        assert!(txn.is_whited_out(&odd).unwrap());
        let in_a: BTreeSet<_> = txn.whiteouts_in(&merged("/a")).unwrap().into_iter().collect();
        let expected = [name("b"), name("bc"), Name::new(b"\xff").unwrap()];
        assert_eq!(in_a, BTreeSet::from(expected));
        let root: BTreeSet<_> =
            txn.whiteouts_in(&MergedPath::root()).unwrap().into_iter().collect();
        assert_eq!(root, BTreeSet::from([name("a.b"), name("top")]));
    });
    change(&mut *writer, |txn| {
        txn.move_whiteouts_below(&merged("/a"), &merged("/x/y")).unwrap();
        assert!(txn.is_whited_out(&merged("/x/y/b/c/d")).unwrap());
        assert!(txn.is_whited_out(&MergedPath::from_bytes(b"/x/y/\xff").unwrap()).unwrap());
        assert!(txn.is_whited_out(&merged("/a.b")).unwrap());
        assert!(txn.whiteouts_in(&merged("/a")).unwrap().is_empty());
        assert!(txn.move_whiteouts_below(&merged("/x"), &merged("/x/z")).is_err());
    });
    assert_consistent(&place.path);
    change(&mut *writer, |txn| {
        assert_eq!(txn.remove_whiteout(&merged("/x/y/b")).unwrap(), Some(9));
        assert_eq!(txn.remove_whiteout(&merged("/x/y/b")).unwrap(), None);
        txn.remove_whiteouts_below(&merged("/x/y/b")).unwrap();
        assert!(!txn.is_whited_out(&merged("/x/y/b/c/d")).unwrap());
        assert!(txn.is_whited_out(&merged("/x/y/bc")).unwrap());
        txn.remove_whiteouts_below(&MergedPath::root()).unwrap();
    });
    assert_eq!(place.number("SELECT count(*) FROM fs_whiteout"), 0);
}

#[test]
fn many_whiteouts_move() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| {
        for i in 0..3000 {
            txn.add_whiteout(&merged(&format!("/a/{i}")), time(9)).unwrap();
        }
        // To where the path is BLOB.
        let to = MergedPath::from_bytes(b"/\xff").unwrap();
        txn.move_whiteouts_below(&merged("/a"), &to).unwrap();
        assert_eq!(txn.whiteouts_in(&to).unwrap().len(), 3000);
        txn.move_whiteouts_below(&to, &merged("/b")).unwrap();
        assert_eq!(txn.whiteouts_in(&merged("/b")).unwrap().len(), 3000);
    });
    assert_eq!(place.number("SELECT count(*) FROM fs_whiteout"), 3000);
    assert_consistent(&place.path);
}

#[test]
fn redirects_are_unique() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let one = change(&mut *writer, |txn| {
        let one = make(txn, Ino::ROOT, "one", FileKind::Directory).ino;
        let two = make(txn, Ino::ROOT, "two", FileKind::Directory).ino;
        txn.put_redirect(one, &base("old/place")).unwrap();
        let again = txn.put_redirect(two, &base("old/place"));
        assert!(matches!(&again, Err(error) if error.kind == StoreErrorKind::Corrupt), "{again:?}");
        one
    });
    look(&session, |txn| {
        assert_eq!(txn.redirect(one).unwrap(), Some(base("old/place")));
        assert_eq!(txn.redirect(Ino::ROOT).unwrap(), None);
        assert_eq!(txn.redirected_to(&base("old/place")).unwrap(), Some(one));
        assert_eq!(txn.redirected_to(&base("old")).unwrap(), None);
    });
    assert_consistent(&place.path);
}

#[test]
fn hidden_links_are_counted() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    assert_eq!(look(&session, |txn| txn.hidden_links(FileId(8)).unwrap()), (0, None));
    change(&mut *writer, |txn| {
        txn.hide_link(FileId(8), time(1)).unwrap();
        txn.hide_link(FileId(8), time(2)).unwrap();
    });
    assert_eq!(look(&session, |txn| txn.hidden_links(FileId(8)).unwrap()), (2, Some(time(2))));
}
