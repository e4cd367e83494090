//! What a connection keeps between batches, and that a writer at rest keeps less.
#![cfg(target_os = "linux")]

use acetate::delta::{Ino, Store, WriteTxn, Writer};
use acetate::vfs::FileKind;

use super::{Place, change, make};

/// The read calls of this thread so far, but for those of this function.
fn read_calls() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap();
    line.parse().unwrap()
}

/// The read calls of looking at the root in a batch.
fn cost_of_a_look(writer: &mut dyn Writer) -> u64 {
    let of_counting = read_calls();
    let of_counting = read_calls() - of_counting;
    let before = read_calls();
    change(writer, |txn| assert!(txn.inode(Ino::ROOT).unwrap().is_some()));
    read_calls() - before - of_counting
}

#[test]
fn a_writer_at_rest_keeps_no_pages() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn: &mut dyn WriteTxn| {
        make(txn, Ino::ROOT, "file", FileKind::Regular);
    });
    cost_of_a_look(&mut *writer);
    assert_eq!(cost_of_a_look(&mut *writer), 0, "the pages are in memory");
    writer.rest();
    assert!(cost_of_a_look(&mut *writer) > 0);
    assert_eq!(cost_of_a_look(&mut *writer), 0);
    writer.close().unwrap();
}
