//! Which files of a session its process has open: few while it is idle, none after its end,
//! whichever way it ends.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use acetate::workspace::Workspace;
use acetate::workspace::layers::{self, LayerOptions};

/// What this process has open in a directory.
fn open_files(dir: &Path) -> Vec<PathBuf> {
    let dir = dir.canonicalize().unwrap();
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let files = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    files.filter(|file| file.starts_with(&dir)).collect()
}

fn until_none_is_open(dir: &Path) {
    let began = Instant::now();
    while !open_files(dir).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", open_files(dir));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_idle_session_has_six_files_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    layers::close(&layers::create(&path, None, None, &Default::default()).unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let pool = layers::pool(runtime.handle());
    let opened = layers::open(&LayerOptions::new(&path, None), &pool).unwrap();
    // The database and the index of its WAL twice, for their locks; the WAL, and the lock.
    let open = open_files(dir.path());
    assert!(open.len() <= 6, "{open:?}");
    runtime.block_on(opened.worker.shut_down()).unwrap();
}

/// A session of which much was read and written.
fn used(path: &Path) -> Workspace {
    let mut work = Workspace::create(path, None).unwrap();
    // The WAL is checkpointed by a task beside the writer.
    work.write("large", std::io::repeat(7).take(24 << 20)).unwrap();
    work.make_dir("dir").unwrap();
    assert_eq!(work.list("/").unwrap(), ["dir", "large"]);
    work
}

#[test]
fn no_file_is_open_after_the_end_of_a_session() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..5 {
        used(&dir.path().join(format!("{round}.db"))).close().unwrap();
        assert_eq!(open_files(dir.path()), Vec::<PathBuf>::new(), "round {round}");
    }
}

#[test]
fn no_file_stays_open_of_a_session_that_was_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    drop(used(&path));
    until_none_is_open(dir.path());
    let work = Workspace::open(&path, None).unwrap();
    assert_eq!(work.list("/").unwrap(), ["dir", "large"]);
}

#[test]
fn no_file_is_open_after_an_opening_that_failed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    used(&path).close().unwrap();
    let before = std::fs::read(&path).unwrap();
    assert!(Workspace::open(&path, Some(&dir.path().join("no base"))).is_err());
    assert_eq!(open_files(dir.path()), Vec::<PathBuf>::new());
    assert!(std::fs::read(&path).unwrap() == before, "the file is another one");
}
