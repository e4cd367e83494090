//! Which paths commands are about: pathspecs, exclusions, ignore rules, relative paths.

use std::path::Path;
use std::process::Output;

use super::program::{acetate, run};
use crate::support::world::World;

const TREE: &str = r#"
    src/main.rs "main"
    src/lib.rs "lib"
    src/deep/more.rs "more"
    notes.txt "notes"
    gone/a.rs "a"
    gone/b.txt "b"
    gone/sub/c.rs "c"
    moved/d.rs "d"
    moved/e.txt "e"
    .gitignore "*.log\n/build/\n"
"#;

fn ask(world: &World, args: &[&str]) -> Output {
    let session = world.session();
    let (command, rest) = args.split_first().unwrap();
    run(world.scratch(), &[&[*command, session.to_str().unwrap()], rest].concat())
}

/// What a command prints, sorted; it exits with `code`.
#[track_caller]
fn lines(world: &World, code: i32, args: &[&str]) -> Vec<String> {
    let output = ask(world, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    let mut lines: Vec<_> =
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn changed() -> World {
    let world = World::new(TREE);
    world.put("src/main.rs", "main!");
    world.put("src/deep/more.rs", "more!");
    world.put("notes.txt", "notes!");
    world.rm_rf("gone");
    world.rename("moved", "new").unwrap();
    world.mkdir("build").unwrap();
    world.put("build/out.rs", "out");
    world.put("x.log", "log");
    world
}

#[test]
fn pathspecs_choose_as_in_git() {
    let world = changed();
    let diff = |specs: &[&str]| lines(&world, 1, &[&["diff", "--name-only"], specs].concat());
    assert_eq!(
        diff(&["*.rs"]),
        [
            "/build/out.rs",
            "/gone/a.rs",
            "/gone/sub/c.rs",
            "/new/d.rs",
            "/src/deep/more.rs",
            "/src/main.rs"
        ]
    );
    assert_eq!(diff(&[":(glob)src/*.rs"]), ["/src/main.rs"]);
    assert_eq!(diff(&["src", ":!src/deep"]), ["/src/main.rs"]);
    assert_eq!(diff(&["src", ":^*main*"]), ["/src/deep/more.rs"]);
    assert_eq!(diff(&["gone/sub"]), ["/gone/sub/c.rs"]);
    assert_eq!(diff(&[":(icase)NOTES*"]), ["/notes.txt"]);
    assert_eq!(diff(&[":(exclude)*.rs", ":!gone", ":!build"]), ["/new/", "/notes.txt", "/x.log"]);
    assert_eq!(diff(&["--exclude", "*.txt", "gone"]), ["/gone/a.rs", "/gone/sub/c.rs"]);
    assert_eq!(
        diff(&["--exclude", "src/", "--exclude", "/build", ":!gone"]),
        ["/new/", "/notes.txt", "/x.log"]
    );
    assert!(diff(&["--gitignore"]).iter().all(|path| *path != "/x.log" && *path != "/build/"));
    assert_eq!(lines(&world, 0, &["diff", "*.zzz"]), [""; 0]);
    for (specs, message) in [
        (&["nowhere"][..], "/nowhere: no such file or directory"),
        (&["src", "../x"], "../x: not a path in the session's tree"),
        (&[":(attr:x)src"], "magic words"),
        (&["--exclude", "a//b"], "excluded path a//b"),
    ] {
        for command in ["diff", "log", "apply", "discard"] {
            let output = ask(&world, &[&[command], specs].concat());
            let said = String::from_utf8_lossy(&output.stderr);
            let is_usage = command == "discard" && specs[0] == "--exclude";
            assert_eq!(output.status.code(), Some(2), "{command} {specs:?}: {said}");
            assert!(is_usage || said.contains(message), "{command} {specs:?}: {said}");
        }
    }
}

#[test]
fn apply_leaves_out_what_is_excluded_and_splits_no_directory() {
    let mut world = changed();
    world.change_base();
    world.close();
    let output = ask(&world, &["apply", "--yes", "--exclude", "*.txt", "--gitignore"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("- /gone: holds /gone/b.txt, which is not chosen"), "{said}");
    assert!(said.contains("- /new: holds /new/e.txt, which is not chosen"), "{said}");
    let base = world.base();
    assert!(base.join("gone/b.txt").exists() && base.join("moved/e.txt").exists());
    assert!(base.join("moved/d.rs").exists() && !base.join("new").exists());
    assert_eq!(std::fs::read(base.join("src/main.rs")).unwrap(), b"main!");
    assert_eq!(std::fs::read(base.join("notes.txt")).unwrap(), b"notes");
    assert!(!base.join("x.log").exists() && !base.join("build").exists());
    world.open_again();
    let left = lines(&world, 1, &["diff", "--name-only"]);
    let gone = ["/gone/", "/gone/a.rs", "/gone/b.txt", "/gone/sub/", "/gone/sub/c.rs"];
    let others = ["/new/", "/notes.txt", "/x.log"];
    assert_eq!(left, [&["/build/", "/build/out.rs"][..], &gone, &others].concat());
}

/// A script whose variable is empty, or whose pattern matches more than it was meant to.
#[test]
fn all_that_the_session_changed_is_not_discarded_unasked() {
    let mut world = changed();
    world.close();
    let before = lines(&world, 1, &["diff"]);
    let all = "--yes discards all that the session changed";
    for (spec, wanted) in [("*", all), ("/*", all), (":!nosuch", all), ("", "an empty path")] {
        let output = ask(&world, &["discard", spec]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{spec:?}: {said}");
        assert!(said.contains(wanted), "{spec:?}: {said}");
        assert_eq!(lines(&world, 1, &["diff"]), before, "{spec:?}");
    }
    lines(&world, 0, &["discard", "*", "--yes"]);
    assert!(lines(&world, 0, &["diff"]).is_empty());
}

#[test]
fn discard_gives_up_what_is_chosen() {
    let mut world = changed();
    world.close();
    let said = lines(&world, 0, &["discard", "/", "--exclude", "src", "--exclude", "gone"]);
    assert_eq!(
        said,
        [
            "discarded: /build",
            "discarded: /moved",
            "discarded: /new",
            "discarded: /notes.txt",
            "discarded: /x.log"
        ]
    );
    let left = lines(&world, 1, &["diff", "--name-only"]);
    let gone = ["/gone/", "/gone/a.rs", "/gone/b.txt", "/gone/sub/", "/gone/sub/c.rs"];
    assert_eq!(left, [&gone[..], &["/src/deep/more.rs", "/src/main.rs"]].concat());
    assert_eq!(lines(&world, 0, &["discard", "*main*"]), ["discarded: /src/main.rs"]);
    assert_eq!(lines(&world, 1, &["discard", "*main*"]), [""; 0]);
    world.open_again();
}

#[test]
fn the_log_has_the_rows_of_what_is_chosen() {
    let world = changed();
    let paths = |args: &[&str]| {
        let rows = lines(&world, 0, &[&["log", "--op", "create"], args].concat());
        let path =
            |row: &String| row.split_whitespace().find(|w| w.starts_with('/')).map(str::to_owned);
        rows.iter().map(|row| path(row).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(paths(&[":!x.log"]), ["/build/out.rs"]);
    assert_eq!(paths(&["--exclude", "build"]), ["/x.log"]);
    assert_eq!(paths(&["*.rs", "*.log"]), ["/build/out.rs", "/x.log"]);
    world.remove("x.log").unwrap();
    assert_eq!(paths(&["x.log"]), ["/x.log"], "it is gone, and the log knows it");
}

#[test]
fn export_writes_what_is_chosen() {
    let world = changed();
    let out = world.scratch().join("out");
    let args = ["export", "--dir", out.to_str().unwrap(), "--exclude", "src", "--gitignore"];
    assert_eq!(ask(&world, &args).status.code(), Some(0));
    let mut names: Vec<_> =
        std::fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".gitignore", "new", "notes.txt"]);
    let out = world.scratch().join("globbed");
    let args = ["export", "--dir", out.to_str().unwrap(), "*more*"];
    assert_eq!(ask(&world, &args).status.code(), Some(0));
    assert!(out.join("src/deep/more.rs").exists() && !out.join("src/main.rs").exists());
}

#[test]
fn relative_paths_begin_at_the_current_directory_inside_the_base() {
    let world = changed();
    let session = world.session();
    let diff = |dir: &Path, args: &[&str]| {
        let all = [&["diff", session.to_str().unwrap(), "--name-only"], args].concat();
        let output = acetate(dir, &all).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &said)
    };
    let src = world.base().join("src");
    assert_eq!(diff(&src, &["main.rs"]), (Some(1), "/src/main.rs\n".to_owned()));
    assert_eq!(diff(&src, &["../notes.txt"]), (Some(1), "/notes.txt\n".to_owned()));
    assert_eq!(diff(&src, &["/notes.txt"]), (Some(1), "/notes.txt\n".to_owned()));
    assert_eq!(diff(&src, &[":/notes.txt"]), (Some(1), "/notes.txt\n".to_owned()));
    assert_eq!(diff(&src, &["m*"]), (Some(1), "/src/main.rs\n".to_owned()));
    let (code, said) = diff(&src, &["notes.txt"]);
    assert!(code == Some(2) && said.contains("relative paths begin at"), "{said}");
    assert_eq!(diff(world.scratch(), &["src/main.rs"]), (Some(1), "/src/main.rs\n".to_owned()));
}

#[test]
fn printed_paths_can_be_given_back() {
    let world = World::new(TREE);
    let name = "a\tb\n\u{202e}\\c";
    world.put(name, "x");
    let printed = lines(&world, 1, &["diff", "--name-only"]);
    assert_eq!(printed, [r"/a\tb\n\u{202e}\\c"]);
    for form in [&*printed[0], r#""a\tb\n\342\200\256\\c""#, name] {
        assert_eq!(lines(&world, 1, &["diff", "--name-only", form]), printed, "{form}");
    }
    let output = ask(&world, &["cat", r#""a\tb\n\342\200\256\\c""#]);
    assert_eq!(output.stdout, b"x");
}

/// Runs `discard` on a terminal, with this answer; what it says.
fn discard_on_a_terminal(world: &World, answer: &str, args: &str) -> String {
    use std::process::Command;
    let program = env!("CARGO_BIN_EXE_acetate");
    let line = format!("{program} discard {} {args}", world.session().display());
    let answered = format!("echo {answer} | script -qec '{line}' /dev/null");
    let output = Command::new("sh").args(["-c", &answered]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).replace('\r', "")
}

#[test]
fn discard_asks_on_a_terminal() {
    let mut world = changed();
    world.close();
    let before = lines(&world, 1, &["diff", "--name-only"]);
    let said = discard_on_a_terminal(&world, "n", "src");
    assert!(
        said.contains("would discard: /src\n") || said.contains("would discard: /src/"),
        "{said}"
    );
    assert!(said.contains("discard 2 changes? [y/N] "), "{said}");
    assert!(said.ends_with("nothing was discarded\n"), "{said}");
    assert_eq!(lines(&world, 1, &["diff", "--name-only"]), before);
    let said = discard_on_a_terminal(&world, "y", "/");
    assert!(said.contains("discarded: /\n"), "{said}");
    assert_eq!(lines(&world, 0, &["diff", "--name-only", "--all"]), [""; 0]);
    world.open_again();
}

/// The rules are the directory's own, and are at its new name.
#[test]
fn what_git_ignores_in_a_directory_that_moved_or_went_is_in_no_patch() {
    let world = World::new(
        r#"
        d/a "a\n"
        d/.gitignore "*.o\n"
        d/same.o "same\n"
        d/edited.o "edited\n"
        d/gone.o "gone\n"
        gone/b "b\n"
        gone/.gitignore "*.o\n"
        gone/b.o "b\n"
    "#,
    );
    world.rename("d", "e").unwrap();
    world.write("e/edited.o", 0, b"E").unwrap();
    world.remove("e/gone.o").unwrap();
    world.rm_rf("gone");
    let patch = lines(&world, 1, &["diff", "--patch", "--gitignore"]);
    let names: Vec<_> = patch.iter().filter(|line| line.starts_with("diff --git ")).collect();
    let expected = [
        "diff --git a/d/.gitignore b/e/.gitignore",
        "diff --git a/d/a b/e/a",
        "diff --git a/gone/.gitignore b/gone/.gitignore",
        "diff --git a/gone/b b/gone/b",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_moved_directory_is_the_same_rename_by_either_of_its_names() {
    let world = changed();
    world.write("new/d.rs", 0, b"D").unwrap();
    let patch = |dir: &str| lines(&world, 1, &["diff", "--patch", dir]);
    let by_new_name = patch("new");
    for line in
        ["rename from moved/d.rs", "rename to new/d.rs", "rename from moved/e.txt", "-d", "+D"]
    {
        assert!(by_new_name.iter().any(|l| l == line), "{line}: {by_new_name:?}");
    }
    assert_eq!(by_new_name, patch("moved"));
    let counts = lines(&world, 1, &["diff", "--shortstat", "new"]);
    assert_eq!(counts, [" 2 files changed, 1 insertion(+), 1 deletion(-)"]);
}

/// The count before ` change` in the last lines of what a command prints.
#[track_caller]
fn changes(world: &World, code: i32, args: &[&str]) -> u64 {
    let output = ask(world, args);
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    let said = said.concat();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    let line = said.lines().find(|line| line.contains(" change")).unwrap();
    line.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn discard_counts_changes_as_diff_does() {
    let mut world = changed();
    world.chmod("src/lib.rs", 0o600).unwrap();
    // Times of directories differ as well, which `diff` does not show.
    for paths in [&["/"][..], &["gone"], &["new", "build"], &["src", "gone"], &["*.log"]] {
        let shown = changes(&world, 1, &[&["diff", "--stat", "--all"], paths].concat());
        let counted = changes(&world, 0, &[&["discard", "--dry-run"], paths].concat());
        assert_eq!(counted, shown, "{paths:?}");
    }
    let json = |world: &World, args: &[&str]| -> serde_json::Value {
        let said = lines(world, 0, &[&["discard", "--json"], args].concat());
        let said = said.iter().find(|line| line.contains(r#""type":"discard""#)).unwrap();
        serde_json::from_str(said).unwrap()
    };
    assert_eq!(json(&world, &["--dry-run", "gone"])["changes"], 5);
    world.close();
    assert_eq!(json(&world, &["gone"])["changes"], 5);
    let all = changes(&world, 1, &["diff", "--stat", "--all"]);
    assert_eq!(changes(&world, 0, &["discard", "/", "--yes"]), all);
    world.open_again();
}

#[test]
fn base_files_that_only_the_ignore_rules_leave_out_are_named() {
    let mut world = World::new(
        "Cargo.lock \"1\"\n.gitignore \"*.lock\\n/out/\\n\"\n\
         out/a \"a\"\nout/b \"b\"\nout/c \"c\"\n\
         kept.lock \"k\"\n",
    );
    world.put("Cargo.lock", "2");
    world.put("new.lock", "new");
    // Written with the content that it had.
    world.put("kept.lock", "k");
    world.close();
    let said = |args: &[&str]| {
        let output = ask(&world, args);
        (String::from_utf8(output.stderr).unwrap(), output.status.code())
    };
    let note = "note: --gitignore leaves out 1 changed file that the base has: /Cargo.lock\n";
    assert_eq!(said(&["diff", "--gitignore"]), (note.to_owned(), Some(0)));
    assert_eq!(said(&["diff", "-p", "--gitignore"]), (note.to_owned(), Some(0)));
    assert_eq!(said(&["apply", "--dry-run", "--gitignore"]), (note.to_owned(), Some(0)));
    // What another rule leaves out is not told.
    assert_eq!(said(&["diff", "--gitignore", ":!*.lock"]).0, "");
    assert_eq!(said(&["diff"]).0, "");
    world.open_again();
    for name in ["a", "b", "c"] {
        world.put(format!("out/{name}"), "changed");
    }
    world.close();
    let output = ask(&world, &["diff", "--gitignore", "--stat"]);
    let note = "note: --gitignore leaves out 4 changed files that the base has: /Cargo.lock, \
                /out/a, /out/b, ...\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), note);
}

/// A move changes two paths. An excluded one stays as it is.
#[test]
fn a_move_is_left_out_where_one_of_its_paths_is_excluded() {
    let mut world = World::new("vendor/lib.rs \"lib\"\ndocs/a.txt \"a\"\ndir/x \"x\"\ndir/y \"y\"");
    world.mkdir("own").unwrap();
    world.rename("vendor/lib.rs", "own/lib.rs").unwrap();
    world.rename("docs/a.txt", "vendor/a.txt").unwrap();
    world.rename("dir/x", "vendor/x").unwrap();
    world.rename("dir", "moved").unwrap();
    world.put("moved/new", "new");
    world.put("new", "new");
    for args in [&["diff", "--name-only"][..], &["diff", "--stat"]] {
        let output = ask(&world, &[args, &["--exclude", "vendor"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said.matches("it was moved, and").count(), 3, "{args:?}: {said}");
        assert!(said.contains("note: /own/lib.rs is left out"), "{args:?}: {said}");
    }
    let shown = lines(&world, 1, &["diff", "--name-only", ":!/vendor"]);
    assert_eq!(shown, ["/moved/", "/moved/new", "/new", "/own/"]);
    world.close();
    // What was in the directory would come back with it, and leave the excluded path.
    let output = ask(&world, &["discard", "/", "--exclude", "vendor"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("/moved: was moved, and cannot come back without"), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "discarded: /moved/new\ndiscarded: /new\n");
    world.change_base();
    let output = ask(&world, &["apply", "--yes", "--exclude", "vendor"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("- /vendor/x: it was moved, and /vendor/x is excluded"), "{said}");
    assert!(said.contains("- /moved: holds /dir/x, whose move to /vendor/x is left out"), "{said}");
    let base = world.base();
    assert!(base.join("vendor/lib.rs").exists() && base.join("docs/a.txt").exists(), "{said}");
    assert!(!base.join("vendor/a.txt").exists() && !base.join("vendor/x").exists(), "{said}");
    assert!(base.join("dir/x").exists() && base.join("dir/y").exists(), "{said}");
    assert!(base.join("own").exists() && !base.join("own/lib.rs").exists(), "{said}");
    lines(&world, 0, &["apply", "--yes"]);
    assert!(base.join("moved/y").exists() && !base.join("moved/x").exists());
    assert!(base.join("vendor/x").exists() && base.join("own/lib.rs").exists());
    world.open_again();
}
