//! Changing a session's tree.

use super::Seen;
use super::looks::{changed, fed};
use crate::cli::program::run as run_program;

pub(super) fn run(seen: &mut Seen) {
    let dir = changed();
    let dir = dir.path();
    let args = ["write", "s.db", "/written"];
    let output = fed(dir, &seen.with_json(&args), "content");
    seen.check(0, &args, output);
    seen.run(dir, 0, &["cp", "s.db", "-r", "base", ":/copy"]);
    seen.run(dir, 0, &["mv", "s.db", "/copy/gone", "/moved"]);
    seen.run(dir, 0, &["ln", "s.db", "/moved", "/another"]);
    seen.run(dir, 0, &["mkdir", "s.db", "-p", "/a/b"]);
    seen.run(dir, 0, &["touch", "s.db", "/a/b", "/a/c"]);
    seen.run(dir, 0, &["chmod", "s.db", "-R", "go-rwx", "/a"]);
    seen.run(dir, 0, &["rm", "s.db", "-r", "/copy"]);
    seen.run(dir, 0, &["rmdir", "s.db", "/a/b"]);
    seen.run(dir, 0, &["discard", "s.db", "/gone", "/kept"]);
    seen.run(dir, 0, &["hide", "s.db", "--hide", "*.key"]);
    seen.run(dir, 0, &["checkpoint", "create", "s.db", "named", "--label", "key=value"]);
    seen.run(dir, 0, &["checkpoint", "create", "s.db"]);
    seen.run(dir, 0, &["checkpoint", "ls", "s.db"]);
    seen.run(dir, 0, &["mkdir", "s.db", "later"]);
    seen.run(dir, 0, &["restore", "s.db", "@-1", "--dry-run"]);
    seen.run(dir, 0, &["restore", "s.db", "@-1", "later", "--dry-run"]);
    seen.run(dir, 0, &["restore", "s.db", "named", "--yes"]);
    seen.run(dir, 0, &["undo", "s.db", "--yes"]);
    let made = ["mkdir", "s.db", "called"];
    let program = env!("CARGO_BIN_EXE_acetate");
    let call = [&["tool", "run", "s.db", "mkdir", "--", program], &made[..]].concat();
    assert!(run_program(dir, &call).status.success());
    seen.run(dir, 0, &["tool", "show", "s.db", "1"]);
    let taken = seen.run(dir, 0, &["restore", "s.db", "--tool-call", "1", "--yes"]);
    assert_eq!(taken.last().unwrap()["tool_call"], 1);
    seen.run(dir, 0, &["log", "s.db", "--op", "restore"]);
    seen.run(dir, 0, &["fork", "s.db", "fork.db"]);
    seen.run(dir, 0, &["mkdir", "fork.db", "new"]);
    seen.run(dir, 0, &["mv", "fork.db", "/written", "/again"]);
    seen.run(dir, 0, &["rm", "s.db", "/written"]);
    seen.run(dir, 1, &["merge", "s.db", "fork.db", "--yes"]);
    let taken = ["merge", "s.db", "fork.db", "--yes", "--take", "theirs", "/"];
    assert!(seen.run(dir, 0, &taken).len() > 2);
    seen.run(dir, 0, &["checkpoint", "prune", "s.db", "--keep", "0"]);
    seen.run(dir, 0, &["checkpoint", "rm", "s.db", "named"]);
    seen.run(dir, 0, &["quota", "s.db", "--bytes", "1GiB"]);
    // A quota counts what the session holds.
    seen.run(dir, 0, &["status", "s.db"]);
}
