//! A session is created by one sync of its file and one of its directory, and a kill at any system
//! call leaves no session or a whole one, and nothing in the way of the next.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::tempdir;

use super::program::run;
use crate::support::skip::skip;

/// System calls at which a creation is killed.
const CALLS: [&str; 6] = ["openat", "pwrite64", "fsync", "renameat2", "unlink", "close"];

/// Creates `s.db` in `dir` under strace with these options, which writes to `trace`; `None` if this
/// machine has no strace.
fn create(dir: &Path, options: &[&str]) -> Option<Output> {
    let mut command = Command::new("strace");
    command.current_dir(dir).args(["-f", "-qq", "-y", "-o", "trace"]).args(options);
    command.args([env!("CARGO_BIN_EXE_acetate"), "init", "s.db"]);
    let created = command.output().ok();
    if created.is_none() {
        skip("there is no strace");
    }
    created
}

#[test]
fn one_sync_of_the_file_and_one_of_the_directory() {
    let dir = tempdir().unwrap();
    let syncs = ["-e", "trace=fsync,fdatasync,sync_file_range,syncfs,sync,msync"];
    let Some(created) = create(dir.path(), &syncs) else { return };
    assert!(created.status.success(), "{created:?}");
    let trace = fs::read_to_string(dir.path().join("trace")).unwrap();
    let synced: Vec<&str> = trace.lines().filter(|line| line.contains("sync")).collect();
    let [file, directory] = synced[..] else { panic!("{trace}") };
    assert!(file.contains("s.db-new>"), "{trace}");
    let name = format!("{}>", dir.path().canonicalize().unwrap().display());
    assert!(directory.contains(&name), "{trace}");
}

#[test]
fn a_kill_leaves_nothing_in_the_way_and_no_half_session() {
    for call in CALLS {
        let mut nth = 1;
        loop {
            let dir = tempdir().unwrap();
            let inject = format!("inject={call}:signal=KILL:when={nth}");
            let Some(created) = create(dir.path(), &["-e", &inject]) else { return };
            let has_name = dir.path().join("s.db").exists();
            if created.status.success() {
                assert!(has_name && nth > 1, "{call} is not called");
                break;
            }
            if !has_name {
                let again = run(dir.path(), &["init", "s.db"]);
                assert!(again.status.success(), "{call} {nth}: {again:?}");
            }
            let checked = run(dir.path(), &["check", "s.db"]);
            assert!(checked.status.success(), "{call} {nth}: {checked:?}");
            nth += 1 + nth / 4;
        }
    }
}
