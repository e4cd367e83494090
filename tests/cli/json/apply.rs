//! Writing a session's changes to its base.

use std::fs;

use rustix::fs::{XattrFlags, setxattr};

use super::Seen;
use super::looks::changed;
use crate::cli::apply_interrupted::with_mode_of_a_person;
use crate::cli::program::run as run_program;

/// Lines from 1 on.
fn lines(count: usize) -> String {
    (1..=count).map(|number| format!("{number}\n")).collect()
}

pub(super) fn run(seen: &mut Seen) {
    let dir = changed();
    let dir = dir.path();
    let text = dir.join("base/text");
    fs::write(&text, lines(20)).unwrap();
    fs::write(dir.join("base/touched"), "touched").unwrap();
    fs::write(dir.join("base/linked"), "linked").unwrap();
    fs::hard_link(dir.join("base/linked"), dir.join("outside")).unwrap();
    fs::write(dir.join("ours"), lines(20).replace("20", "twenty")).unwrap();
    for args in [
        &["write", "s.db", "/text", "--from", "ours"][..],
        &["write", "s.db", "/root", "--from", "ours"],
        &["chmod", "s.db", "4755", "/root"],
        &["write", "s.db", "/touched", "--from", "base/touched"],
        &["rm", "s.db", "/linked"],
    ] {
        assert!(run_program(dir, args).status.success(), "{args:?}");
    }
    // The person's side.
    fs::write(&text, lines(20).replacen('1', "one", 1)).unwrap();
    fs::write(dir.join("base/drifted"), "by a person").unwrap();
    fs::write(dir.join("base/touched"), "by a person").unwrap();
    let base = dir.join("base/typed");
    if setxattr(&base, "user.note", b"kept", XattrFlags::empty()).is_err() {
        seen.skip("loss", "this filesystem has no extended attributes");
    }
    seen.run(dir, 1, &["apply", "s.db", "--dry-run"]);
    seen.run(dir, 1, &["apply", "s.db", "--dry-run", "--allow-special"]);
    seen.run(dir, 1, &["apply", "s.db", "--yes", "--skip-drifted"]);
    seen.run(dir, 1, &["status", "s.db"]);
    seen.run(dir, 0, &["apply", "s.db", "--undo", "--dry-run"]);
    // The person changes what was applied.
    fs::write(dir.join("base/made"), "by a person").unwrap();
    seen.run(dir, 1, &["apply", "s.db", "--undo", "--yes"]);
    seen.run(dir, 0, &["apply", "s.db", "--undo", "--yes", "--force"]);
    seen.run(dir, 1, &["apply", "s.db", "--yes", "--force", "--no-keep"]);
    let moved = with_mode_of_a_person();
    seen.run(moved.scratch(), 1, &["apply", moved.session().to_str().unwrap(), "--yes"]);
}
