//! Nothing outside the base is reached, and nothing blocks, whatever a hostile process does in
//! the base while we read.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use acetate::base::{Base, BaseError, HostDir, HostDirOptions};
use acetate::vfs::{FileId, FileKind};
use rustix::fs::{CWD, RenameFlags};

use super::{both, content, make_fifo, path, tree};

const SECRET: &[u8] = b"SECRET";

/// How long a race runs.
const RACE: Duration = Duration::from_millis(700);

/// When a reader that has not come back is stuck.
const STUCK: Duration = Duration::from_secs(30);

#[test]
fn a_symbolic_link_leads_nowhere_in_any_position() {
    let (dir, outside) = (tree(), tree());
    std::fs::create_dir_all(outside.path().join("d")).unwrap();
    std::fs::write(outside.path().join("d/f"), SECRET).unwrap();
    std::fs::create_dir_all(dir.path().join("in/d")).unwrap();
    std::fs::write(dir.path().join("in/d/f"), "inside").unwrap();
    symlink(outside.path(), dir.path().join("abs")).unwrap();
    symlink("/", dir.path().join("slash")).unwrap();
    symlink("..", dir.path().join("up")).unwrap();
    symlink("../..", dir.path().join("in/up")).unwrap();
    symlink("in", dir.path().join("within")).unwrap();
    symlink(outside.path().join("d/f"), dir.path().join("file")).unwrap();
    symlink("/proc/self/root", dir.path().join("magic")).unwrap();
    let inode = std::fs::metadata(outside.path().join("d/f")).unwrap().ino();
    both(dir.path(), |base| {
        for below in
            ["abs/d/f", "abs/d", "slash/etc", "up/x", "in/up/etc", "within/d/f", "magic/etc"]
        {
            assert!(matches!(base.stat(&path(below)), Err(BaseError::NotFound)), "{below}");
            assert!(matches!(base.list(&path(below)), Err(BaseError::NotFound)), "{below}");
            assert!(matches!(base.read_link(&path(below)), Err(BaseError::NotFound)), "{below}");
            let read = base.read(&path(below), FileId(inode), 0, &mut [0; 8]);
            assert!(matches!(read, Err(BaseError::NotFound)), "{below}: {read:?}");
        }
        for link in ["abs", "slash", "up", "in/up", "within", "file", "magic"] {
            assert_eq!(base.stat(&path(link)).unwrap().kind, FileKind::Symlink, "{link}");
            assert!(matches!(base.list(&path(link)), Err(BaseError::WrongKind)), "{link}");
            let read = base.read(&path(link), FileId(inode), 0, &mut [0; 8]);
            assert!(matches!(read, Err(BaseError::Changed)), "{link}: {read:?}");
        }
    });
}

/// Swaps `a` and `b` for a while, as fast as it goes, while `check` runs over and over.
fn race(a: &Path, b: &Path, check: impl Fn()) {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // When `check` panics too.
        let _stop = Stop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let began = Instant::now();
        while began.elapsed() < RACE {
            check();
        }
    });
}

#[test]
fn a_directory_that_turns_into_a_link_while_we_read_gives_nothing_away() {
    let (dir, outside) = (tree(), tree());
    std::fs::write(outside.path().join("f"), SECRET).unwrap();
    std::fs::write(outside.path().join("secret-name"), SECRET).unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    std::fs::write(dir.path().join("d/f"), "inside").unwrap();
    symlink(outside.path(), dir.path().join("l")).unwrap();
    let secret = FileId(std::fs::metadata(outside.path().join("f")).unwrap().ino());
    let inside = FileId(std::fs::metadata(dir.path().join("d/f")).unwrap().ino());
    both(dir.path(), |base| {
        let (seen, refused) = (AtomicBool::new(false), AtomicBool::new(false));
        let look = || {
            let mut buffer = [0; 16];
            match base.read(&path("d/f"), inside, 0, &mut buffer) {
                Ok((length, _)) => {
                    assert_eq!(&buffer[..length], b"inside");
                    seen.store(true, Ordering::Relaxed);
                }
                Err(_) => refused.store(true, Ordering::Relaxed),
            }
            assert!(base.read(&path("d/f"), secret, 0, &mut buffer).is_err());
            if let Ok(attr) = base.stat(&path("d/f")) {
                assert_eq!(attr.fileid, inside);
            }
            if let Ok(listing) = base.list(&path("d")) {
                assert!(listing.entries.iter().all(|e| e.name.as_bytes() == b"f"));
            }
        };
        // On a busy machine one side of the race may not be met in one go.
        let is_met = (0..30).any(|_| {
            race(&dir.path().join("d"), &dir.path().join("l"), look);
            seen.load(Ordering::Relaxed) && refused.load(Ordering::Relaxed)
        });
        assert!(is_met, "read {seen:?}, refused {refused:?}");
    });
}

#[test]
fn a_file_that_turns_into_a_link_while_we_read_gives_nothing_away() {
    let (dir, outside) = (tree(), tree());
    std::fs::write(outside.path().join("f"), SECRET).unwrap();
    std::fs::write(dir.path().join("f"), "inside").unwrap();
    symlink(outside.path().join("f"), dir.path().join("l")).unwrap();
    both(dir.path(), |base| {
        race(&dir.path().join("f"), &dir.path().join("l"), || {
            if let Ok(data) = content(base, &path("f")) {
                assert_eq!(data, b"inside");
            }
        });
    });
}

#[test]
fn a_fifo_that_takes_a_files_place_blocks_nothing() {
    for open in [HostDir::open, HostDir::open_stepwise] {
        let dir = tree();
        std::fs::write(dir.path().join("f"), "inside").unwrap();
        let fifo = dir.path().join("p");
        make_fifo(&fifo);
        let (done, finished) = mpsc::channel();
        std::thread::spawn(move || {
            let base = open(dir.path(), HostDirOptions::default()).unwrap();
            race(&dir.path().join("f"), &dir.path().join("p"), || {
                if let Ok(data) = content(&base, &path("f")) {
                    assert_eq!(data, b"inside");
                }
                base.list(&acetate::base::BasePath::root()).unwrap();
                base.find_linked(FileId(2), &mut |_| true).unwrap();
            });
            done.send(()).unwrap();
        });
        finished.recv_timeout(STUCK).expect("the reader failed, or a FIFO blocks it");
    }
}
