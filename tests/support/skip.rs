//! Tests that this machine, or this user, cannot run say so where everybody sees it.

use std::io::{Write, stderr};
use std::thread;

/// Says that the running test, or the rest of it, is skipped.
///
/// The line goes past the harness, which captures what a test prints. `integration/test` lists
/// these lines at its end.
pub fn skip(why: &str) {
    let current = thread::current();
    let test = current.name().unwrap_or("a test");
    // One write, so that tests beside this one do not come between.
    let line = format!("SKIPPED {test}: {why}\n");
    stderr().write_all(line.as_bytes()).expect("stderr takes a line");
}
