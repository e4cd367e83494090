//! `acetate log`: what `--summary` folds, and what is said where there is nothing to show.

use std::process::{Command, Stdio};

use super::program::run;
use crate::support::world::World;

#[test]
fn a_summary_has_one_line_for_what_is_a_program_s_own() {
    let world = World::new("sub/.git/HEAD \"ref: refs/heads/main\\n\"\nfile \"content\"");
    world.put("sub/.git/index", "index");
    world.put("sub/.git/ORIG_HEAD", "x");
    world.put("sub/.gitignore", "target");
    let session = world.session();
    let says = |args: &[&str]| {
        let args = [&["log", session.to_str().unwrap(), "--summary"], args].concat();
        let output = run(world.scratch(), &args);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let names = |args: &[&str]| {
        let said = says(args);
        said.lines().map(|line| line.splitn(3, "  ").nth(2).unwrap().to_owned()).collect::<Vec<_>>()
    };
    let folded = names(&[]);
    assert_eq!(folded.len(), 2, "{folded:?}");
    assert!(folded[0].starts_with("/sub/.git/  2 paths of git's own: 2 WRITE, "), "{folded:?}");
    assert!(folded[0].ends_with(", 6 B written"), "{folded:?}");
    assert!(folded[1].starts_with("/sub/.gitignore  1 WRITE, "), "{folded:?}");
    let all = names(&["--all"]);
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all[0].starts_with("/sub/.git/ORIG_HEAD  1 WRITE, "), "{all:?}");
    assert_eq!(says(&["--json"]).lines().count(), 3);
}

/// A person is told that no change is of that kind; a program gets an empty output, as always.
#[test]
fn filters_that_match_nothing_are_named_on_a_terminal() {
    let world = World::new("file \"content\"");
    world.put("new", "new");
    let line = |args: &str| {
        let program = env!("CARGO_BIN_EXE_acetate");
        format!("{program} log {} {args}", world.session().display())
    };
    let said = |line: &str, program: &str| {
        let mut command = Command::new(program);
        match program {
            "script" => command.args(["-qec", line, "/dev/null"]),
            _ => command.args(["-c", line]),
        };
        let output = command.stdin(Stdio::null()).output().ok()?;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let all = [output.stdout, output.stderr].concat();
        Some(String::from_utf8(all).unwrap().replace('\r', ""))
    };
    for filter in ["--uid 4711", "--op rename", "--until 2001-01-01", "--summary --op rename"] {
        if let Some(said) = said(&line(filter), "script") {
            assert_eq!(said, "no change in the log is of this kind\n", "{filter}");
        }
        assert_eq!(said(&line(filter), "sh").unwrap(), "", "{filter}");
    }
    assert_eq!(said(&line("--uid 4711 --json"), "script").unwrap_or_default(), "");
}
