//! What is excluded is neither applied nor discarded, whatever moves around it.

use std::process::Output;

use super::program::run;
use crate::support::world::World;

fn ask(world: &World, args: &[&str]) -> Output {
    let session = world.session();
    let (command, rest) = args.split_first().unwrap();
    run(world.scratch(), &[&[*command, session.to_str().unwrap()], rest].concat())
}

/// A base with `fN` and `sN/gN` in each of the directories `a`, `b` and `v`.
fn three_directories() -> World {
    let files = ["a", "b", "v"].map(|n| format!("{n}/f{n} \"{n}\"\n{n}/s{n}/g{n} \"{n}{n}\"\n"));
    World::new(&files.concat())
}

/// What a session changes, and what an apply or discard then leaves.
struct Case<'a> {
    change: fn(&World),
    args: &'a [&'a str],
    stays: &'a [&'a str],
    /// The path that the apply leaves out.
    left: &'a str,
}

/// What is excluded in the base stays, whatever takes the place of its directory or carries it.
#[test]
fn apply_changes_no_excluded_path() {
    let cases = [
        Case {
            change: |w| {
                w.rm_rf("v");
                w.rename("a", "v").unwrap();
            },
            args: &["--exclude=fv"],
            stays: &["v/fv", "a/fa"],
            left: "/v",
        },
        Case {
            change: |w| {
                w.rm_rf("v");
                w.rename("a/fa", "v").unwrap();
            },
            args: &["--exclude=fv"],
            stays: &["v/fv", "a/fa"],
            left: "/v",
        },
        Case {
            change: |w| {
                w.rename("a", "c").unwrap();
                w.put("c/fa", "new");
            },
            args: &["--exclude=fa"],
            stays: &["a/fa"],
            left: "/c",
        },
        Case {
            change: |w| {
                w.rename("b/sb", "v/y").unwrap();
                w.rename("b", "c").unwrap();
            },
            args: &["--exclude=/b/sb"],
            stays: &["b/sb/gb", "b/fb"],
            left: "/c",
        },
    ];
    for Case { change, args, stays, left } in cases {
        let mut world = three_directories();
        world.put("b/other", "other");
        change(&world);
        world.put("new", "new");
        world.change_base();
        world.close();
        let output = ask(&world, &[&["apply", "--yes"], args].concat());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains(&format!("- {left}: ")), "{args:?}: {said}");
        for path in stays {
            assert!(world.base().join(path).exists(), "{args:?} {path}: {said}");
        }
        assert!(world.base().join("new").exists(), "{args:?}: {said}");
        world.open_again();
    }
}

/// What is excluded stays in the session, whatever is given up around it.
#[test]
fn discard_gives_up_no_excluded_change() {
    let cases = [
        Case {
            change: |w| {
                w.rename("b", "v/b").unwrap();
                w.rename("v/b/fb", "a/y").unwrap();
                w.put("a/y", "precious");
            },
            args: &["/", "--exclude", "/a/y"],
            stays: &["a/y"],
            left: "",
        },
        Case {
            change: |w| {
                w.rename("a/sa", "x").unwrap();
                w.rename("a", "v/n1").unwrap();
                w.put("x/new", "precious");
            },
            args: &["/", "--exclude", "/x"],
            stays: &["x/new", "x/ga"],
            left: "",
        },
        Case {
            change: |w| {
                w.rename("v/fv", "a/n1").unwrap();
                w.rename("v", "b/x").unwrap();
                w.put("b/x/fv", "precious");
            },
            args: &["/", "--exclude", "x"],
            stays: &["b/x/fv"],
            left: "",
        },
        Case {
            change: |w| w.rename("a/sa", "x").unwrap(),
            args: &["/", "--exclude", "g*"],
            stays: &["x/ga"],
            left: "",
        },
    ];
    for Case { change, args, stays, .. } in cases {
        let mut world = three_directories();
        change(&world);
        let contents =
            |world: &World| stays.iter().map(|path| world.read(path).ok()).collect::<Vec<_>>();
        let before = contents(&world);
        assert!(before.iter().all(Option::is_some), "{args:?}");
        world.close();
        let output = ask(&world, &[&["discard", "--yes"], args].concat());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        world.open_again();
        assert_eq!(contents(&world), before, "{args:?}: {said}");
    }
}
