//! Ranges as NLM writes them.

use acetate::nfs::lock::ByteRange;

#[test]
fn a_length_of_zero_goes_on_for_ever() {
    let range = ByteRange::new(5, 0).unwrap();
    assert_eq!((range.first, range.last, range.length()), (5, u64::MAX, 0));
    let range = ByteRange::new(5, 3).unwrap();
    assert_eq!((range.first, range.last, range.length()), (5, 7, 3));
}

#[test]
fn nothing_lies_beyond_the_largest_file() {
    let largest = i64::MAX as u64;
    assert!(ByteRange::new(largest, 1).is_some());
    assert!(ByteRange::new(0, largest + 1).is_some());
    assert!(ByteRange::new(largest, 2).is_none());
    assert!(ByteRange::new(largest + 1, 0).is_none());
    assert!(ByteRange::new(u64::MAX, u64::MAX).is_none());
}
