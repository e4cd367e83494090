//! `read` and `next_data`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use acetate::base::{Base, BaseError, BasePath};
use acetate::vfs::FileId;

use super::{both, content, path, tree};

/// Longer than an open file is trusted to be still at its path.
const LATER: Duration = Duration::from_millis(60);

#[test]
fn reads_any_range_and_is_short_only_at_the_end() {
    let dir = tree();
    let data: Vec<u8> = (0..100_000u32).map(|n| (n * 7 % 251) as u8).collect();
    std::fs::write(dir.path().join("f"), &data).unwrap();
    both(dir.path(), |base| {
        let at = path("f");
        let id = base.stat(&at).unwrap().fileid;
        for (offset, length) in [(0, 10), (1, 99_999), (99_999, 5), (100_000, 1), (50, 0)] {
            let mut buffer = vec![0; length];
            let (read, attr) = base.read(&at, id, offset as u64, &mut buffer).unwrap();
            assert_eq!(buffer[..read], data[offset..(offset + length).min(data.len())]);
            assert_eq!((attr.size, attr.fileid), (100_000, id));
        }
        for offset in [1 << 40, i64::MAX as u64, u64::MAX] {
            assert_eq!(base.read(&at, id, offset, &mut [0; 8]).unwrap().0, 0, "{offset}");
        }
    });
}

#[test]
fn what_is_no_regular_file_cannot_be_read() {
    let dir = tree();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    both(dir.path(), |base| {
        for at in [BasePath::root(), path("d")] {
            let id = base.stat(&at).unwrap().fileid;
            assert!(matches!(base.read(&at, id, 0, &mut [0]), Err(BaseError::WrongKind)));
            assert!(matches!(base.next_data(&at, id, 0), Err(BaseError::WrongKind)));
        }
        let other = FileId(base.stat(&path("d")).unwrap().fileid.0 + 1);
        assert!(matches!(base.read(&path("d"), other, 0, &mut [0]), Err(BaseError::Changed)));
    });
}

#[test]
fn a_file_that_was_replaced_is_changed_at_once() {
    let dir = tree();
    both(dir.path(), |base| {
        let (at, file) = (path("f"), dir.path().join("f"));
        std::fs::write(&file, "old").unwrap();
        let old = base.stat(&at).unwrap().fileid;
        assert_eq!(content(base, &at).unwrap(), b"old");

        std::fs::write(dir.path().join("new"), "new").unwrap();
        std::fs::rename(dir.path().join("new"), &file).unwrap();
        assert!(matches!(base.read(&at, old, 0, &mut [0; 3]), Err(BaseError::Changed)));
        assert!(matches!(base.next_data(&at, old, 0), Err(BaseError::Changed)));
        assert_eq!(content(base, &at).unwrap(), b"new");

        let new = base.stat(&at).unwrap().fileid;
        std::fs::rename(&file, dir.path().join("elsewhere")).unwrap();
        assert!(matches!(base.read(&at, new, 0, &mut [0; 3]), Err(BaseError::NotFound)));
        std::fs::create_dir(&file).unwrap();
        assert!(matches!(base.read(&at, new, 0, &mut [0; 3]), Err(BaseError::Changed)));
        std::fs::remove_dir(&file).unwrap();
    });
}

#[test]
fn a_directory_that_was_moved_away_takes_its_open_files_with_it() {
    let (dir, outside) = (tree(), tree());
    both(dir.path(), |base| {
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/f"), "x").unwrap();
        let (at, id) = (path("a/b/f"), base.stat(&path("a/b/f")).unwrap().fileid);
        assert_eq!(content(base, &at).unwrap(), b"x");

        std::fs::rename(dir.path().join("a"), outside.path().join("a")).unwrap();
        std::fs::write(outside.path().join("a/b/f"), "y").unwrap();
        assert!(matches!(base.read(&at, id, 0, &mut [0]), Err(BaseError::NotFound)));

        std::fs::rename(outside.path().join("a"), dir.path().join("a")).unwrap();
        assert_eq!(content(base, &at).unwrap(), b"y");
        std::fs::rename(dir.path().join("a"), outside.path().join("a")).unwrap();
        std::thread::sleep(LATER);
        assert!(matches!(base.read(&at, id, 0, &mut [0]), Err(BaseError::NotFound)));
        std::fs::remove_dir_all(outside.path().join("a")).unwrap();
    });
}

#[test]
fn sees_what_the_host_writes_into_an_open_file() {
    let dir = tree();
    let file = File::create(dir.path().join("f")).unwrap();
    both(dir.path(), |base| {
        let at = path("f");
        let id = base.stat(&at).unwrap().fileid;
        for round in 0..50u64 {
            file.set_len(0).unwrap();
            file.write_all_at(&round.to_be_bytes(), 0).unwrap();
            let mut buffer = [0; 16];
            let (length, attr) = base.read(&at, id, 0, &mut buffer).unwrap();
            assert_eq!((length, attr.size), (8, 8));
            assert_eq!(buffer[..8], round.to_be_bytes());
        }
    });
}

#[test]
fn holes_are_told_from_data() {
    const MIB: u64 = 1 << 20;
    let dir = tree();
    let file = File::create(dir.path().join("sparse")).unwrap();
    file.set_len(8 * MIB).unwrap();
    file.write_all_at(&[1; 4096], 2 * MIB).unwrap();
    file.write_all_at(&[1; 4096], 5 * MIB).unwrap();
    File::create(dir.path().join("hole")).unwrap().set_len(MIB).unwrap();
    std::fs::write(dir.path().join("dense"), [1; 10_000]).unwrap();
    std::fs::write(dir.path().join("empty"), "").unwrap();
    both(dir.path(), |base| {
        let ranges = |name: &str| {
            let (mut ranges, mut offset) = (Vec::new(), 0);
            let id = base.stat(&path(name)).unwrap().fileid;
            while let Some((start, end)) = base.next_data(&path(name), id, offset).unwrap() {
                assert!(offset <= start && start < end);
                ranges.push((start, end));
                offset = end;
            }
            ranges
        };
        // ext4, XFS, btrfs, tmpfs and APFS all know holes of a MiB.
        let sparse = ranges("sparse");
        assert_eq!(sparse.len(), 2, "{sparse:?}");
        assert!(sparse[0].0 <= 2 * MIB && 2 * MIB + 4096 <= sparse[0].1 && sparse[0].1 < 5 * MIB);
        assert!(sparse[1].0 <= 5 * MIB && 5 * MIB + 4096 <= sparse[1].1 && sparse[1].1 < 8 * MIB);
        assert_eq!(ranges("hole"), []);
        assert_eq!(ranges("empty"), []);
        let dense = ranges("dense");
        assert!(dense.len() == 1 && dense[0].0 == 0 && dense[0].1 >= 10_000, "{dense:?}");
        let id = base.stat(&path("dense")).unwrap().fileid;
        assert_eq!(base.next_data(&path("dense"), id, 500).unwrap().unwrap().0, 500);
        assert_eq!(base.next_data(&path("dense"), id, u64::MAX).unwrap(), None);
    });
}

#[test]
fn threads_read_the_same_files_at_once() {
    let dir = tree();
    for n in 0..300u32 {
        std::fs::write(dir.path().join(format!("f{n}")), n.to_string().repeat(1000)).unwrap();
    }
    both(dir.path(), |base| {
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                scope.spawn(move || {
                    for round in 0..1500u32 {
                        let n = (round * 31 + thread * 7) % 300;
                        let at = path(format!("f{n}"));
                        assert_eq!(
                            content(base, &at).unwrap(),
                            n.to_string().repeat(1000).as_bytes()
                        );
                    }
                });
            }
        });
    });
}
