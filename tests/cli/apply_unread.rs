//! `acetate apply` where stdout takes nothing, or nobody reads it.

use std::fs;
use std::path::Path;

use super::apply::changed;
use super::program::{acetate, run, said};
use crate::support::applied::{assert_same, on_host};

#[test]
fn a_plan_that_cannot_be_printed_is_not_applied_but_a_closed_pipe_is_no_reason() {
    let world = changed();
    let session = world.session();
    let before = on_host(&world.base());
    let mut command = acetate(world.scratch(), &["apply", session.to_str().unwrap(), "--yes"]);
    if Path::new("/dev/full").exists() {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (_, error) = said(&command.stdout(full).output().unwrap(), 2);
        assert!(error.contains("error: cannot print: "), "{error}");
        assert!(error.contains("hint: nothing was written"), "{error}");
        assert_same(&on_host(&world.base()), &before);
    }
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    said(&command.stdout(write).output().unwrap(), 0);
    assert_eq!(fs::read(world.base().join("dir/file")).unwrap(), b"CONTENT, and more");
}

#[test]
fn the_side_of_the_base_is_taken_though_nobody_reads_the_report() {
    let world = changed();
    let session = world.session();
    fs::write(world.base().join("dir/file"), "of the base").unwrap();
    let take = ["apply", session.to_str().unwrap(), "--yes", "--take", "base", "dir/file"];
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let output = acetate(world.scratch(), &take).stdout(write).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read(world.base().join("dir/file")).unwrap(), b"of the base");
    let left = run(world.scratch(), &["diff", session.to_str().unwrap()]);
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
}
