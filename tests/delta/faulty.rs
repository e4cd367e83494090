//! The store's second implementation, for the tests of the layers above.

use acetate::delta::{Ino, Store, StoreError, StoreErrorKind};
use acetate::vfs::FileKind;

use super::{Place, change, look, make, name};
use crate::support::faulty_store::FaultyStore;

#[test]
fn faults_strike_when_they_are_told_to() {
    let place = Place::new();
    let store = FaultyStore::new(place.create());
    let mut writer = store.writer().unwrap();
    store.faults.fail("commit", 2, StoreError::full("test"));
    store.faults.fail("put_inode", 2, StoreError::io("test"));
    change(&mut *writer, |txn| make(txn, Ino::ROOT, "one", FileKind::Regular));
    writer.begin(true).unwrap();
    writer.savepoint().unwrap();
    let row = writer.txn().inode(Ino::ROOT).unwrap().unwrap();
    assert!(matches!(writer.txn().put_inode(&row), Err(error) if error.kind == StoreErrorKind::Io));
    make(writer.txn(), Ino::ROOT, "two", FileKind::Regular);
    writer.release().unwrap();
    assert!(matches!(writer.commit(), Err(error) if error.kind == StoreErrorKind::Full));
    change(&mut *writer, |txn| make(txn, Ino::ROOT, "three", FileKind::Regular));
    look(&store, |txn| {
        assert!(txn.dentry(Ino::ROOT, &name("one")).unwrap().is_some());
        assert!(txn.dentry(Ino::ROOT, &name("two")).unwrap().is_none());
        let mut names = 0;
        txn.dentries(Ino::ROOT, &mut |_, ino, _, _| {
            names += u32::from(txn.inode(ino).unwrap().is_some());
        })
        .unwrap();
        assert_eq!(names, 2);
    });
}
