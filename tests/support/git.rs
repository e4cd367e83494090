//! git, as a person would use it in a base.

use std::path::Path;
use std::process::{Command, Output};

/// Runs git in `dir`, which is a repository or in one.
pub fn git_output(dir: &Path, args: &[&str]) -> Output {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=person", "-c", "user.email=person@example.org"]).args(args);
    git.env("GIT_CEILING_DIRECTORIES", dir.parent().unwrap()).current_dir(dir);
    git.output().unwrap()
}

/// What git prints; it must succeed.
#[track_caller]
pub fn git(dir: &Path, args: &[&str]) -> String {
    let output = git_output(dir, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}
