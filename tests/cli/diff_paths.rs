//! `acetate diff`: what each form lists, how changes are counted, and options as git takes them.

use std::process::{Command, Output};

use serde_json::Value;

use super::program::run;
use crate::support::world::World;

const TREE: &str = r#"
    gone/x "x\ny\n"
    gone/sub/z "z"
    kept/file "kept\n"
    alike "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n"
"#;

fn ask(world: &World, command: &str, args: &[&str]) -> Output {
    let session = world.session();
    run(world.scratch(), &[&[command, session.to_str().unwrap()], args].concat())
}

#[track_caller]
fn says(world: &World, args: &[&str]) -> String {
    let output = ask(world, "diff", args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn paths(world: &World, args: &[&str]) -> Vec<String> {
    let objects = says(world, &[&["--json"], args].concat());
    let path = |line: &str| {
        let object: Value = serde_json::from_str(line).unwrap();
        assert_eq!(object["type"], "difference");
        object["path"].as_str().unwrap().to_owned()
    };
    objects.lines().map(path).collect()
}

#[test]
fn forms_for_programs_name_each_path() {
    let world = World::new(TREE);
    world.rename("gone/x", "kept/x").unwrap();
    world.rm_rf("gone");
    world.mkdir("made").unwrap();
    world.put("made/file", "new\n");
    assert_eq!(
        says(&world, &[]),
        "D /gone/ (1 file, 1 B)\nR /gone/x -> /kept/x\nA /made/ (1 file, 4 B)\n"
    );
    let each = "/gone/\n/gone/sub/\n/gone/sub/z\n/kept/x\n/made/\n/made/file\n";
    assert_eq!(says(&world, &["--name-only"]), each);
    let letters = "D\t/gone/\nD\t/gone/sub/\nD\t/gone/sub/z\nR\t/gone/x\t/kept/x\nA\t/made/\n\
                   A\t/made/file\n";
    assert_eq!(says(&world, &["--name-status"]), letters);
    let objects = ["/gone", "/gone/sub", "/gone/sub/z", "/kept/x", "/made", "/made/file"];
    assert_eq!(paths(&world, &[]), objects);
    assert_eq!(paths(&world, &["gone/sub"]), ["/gone/sub/z"]);
    let stat = says(&world, &["--stat"]);
    let sums = "6 changes: 2 added, 3 deleted, 1 renamed\n(3 directories)\n \
                3 files changed, 1 insertion(+), 1 deletion(-)\n";
    assert!(stat.ends_with(sums), "{stat}");
    let status = ask(&world, "status", &["--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let counts = ["added", "deleted", "modified", "renamed"].map(|kind| status[kind].as_u64());
    assert_eq!(counts, [2, 3, 0, 1].map(Some), "{status}");
}

#[test]
fn the_top_directory_shows_as_any_other() {
    let world = World::new(TREE);
    let mode = world.base_mode("");
    world.chmod("", 0o700).unwrap();
    let line = format!("M / (mode {mode:04o} -> 0700)\n");
    assert_eq!(says(&world, &[]), line);
    assert_eq!(says(&world, &["--name-only"]), "/\n");
    assert_eq!(paths(&world, &[]), ["/"]);
    assert!(says(&world, &["--stat"]).contains("1 change: 1 modified\n"));
    let plan = ask(&world, "apply", &["--dry-run"]);
    let plan = String::from_utf8(plan.stdout).unwrap();
    assert_eq!(plan.lines().next(), line.lines().next(), "{plan}");
    let status = ask(&world, "status", &["--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["modified"], 1, "{status}");
    // A mode that the session has had from the beginning is no change of its own.
    world.chmod("", mode).unwrap();
    assert_eq!(ask(&world, "diff", &[]).status.code(), Some(0));
}

#[test]
fn similarity_is_given_as_git_takes_it() {
    let world = World::new(TREE);
    world.remove("alike").unwrap();
    world.put("kept/alike", "one\ntwo\nthree\nfour\nfive\nsix\nseven\nand more\n");
    let renamed = "R /alike -> /kept/alike (modified)\n";
    for form in ["-M", "-M50", "-M50%", "-M=50%", "--find-renames", "--find-renames=50"] {
        assert_eq!(says(&world, &[form]), renamed, "{form}");
    }
    assert!(says(&world, &["-wM50", "--numstat"]).contains(" => "));
    let other = "D /alike\nA /kept/alike\n";
    for form in ["-M99", "-M99%", "--find-renames=99%"] {
        assert_eq!(says(&world, &[form]), other, "{form}");
    }
    for form in ["-M101", "-Mx"] {
        let output = ask(&world, "diff", &[form]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{form}: {said}");
    }
}

/// Each change is in one count: a file of the sum, or one of those in brackets.
#[test]
fn totals_name_moves_links_directories_and_special_files() {
    let mut world = World::new("d/a \"a\\n\"\nd/b \"b\\n\"\nf \"f\\n\"\n");
    let pipe = Command::new("mkfifo").arg(world.change_base().join("pipe")).status().unwrap();
    assert!(pipe.success());
    world.rename("d", "e").unwrap();
    world.put("e/new", "new\n");
    world.link("f", "g").unwrap();
    world.mkdir("made").unwrap();
    world.remove("pipe").unwrap();
    let stat = says(&world, &["--stat"]);
    assert_eq!(
        stat,
        "R /d => /e/ | 2 files\nA /e/new    | 1 +\nA /g        | 1 + link\nA /made/    |\n\
         D /pipe     | fifo\n5 changes: 3 added, 1 deleted, 1 renamed\n\
         (2 directories, 1 hard link, 1 special file)\n\
         besides: 2 files moved with their directories\n \
         4 files changed, 2 insertions(+)\n"
    );
}

#[test]
fn a_rename_that_is_found_says_what_else_differs() {
    let world = World::new("same \"1\\n\"\nother \"1\\n2\\n3\\n4\\n\"\n");
    let mode = world.base_mode("same");
    for name in ["same", "other"] {
        world.remove(name).unwrap();
    }
    world.put("a", "1\n");
    world.chmod("a", 0o700).unwrap();
    world.put("b", "1\n2\n3\nfour\n");
    world.chmod("b", mode).unwrap();
    let same = format!("R /same -> /a (mode {mode:04o} -> 0700)\n");
    assert_eq!(says(&world, &["-M"]), same + "R /other -> /b (modified)\n");
    world.chmod("a", mode).unwrap();
    assert!(says(&world, &["-M"]).starts_with("R /same -> /a\n"));
}
