//! Choosing changes and hunks: `--hunk`, `-p`, `-i`.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Output};

use acetate::inspect::diff::{DiffOptions, diff};
use acetate::inspect::hunks::whole_id;
use acetate::inspect::opened::OpenSession;
use serde_json::Value;

use super::program::{Serving, failure, run, said};
use crate::support::applied::{assert_same, merged, on_host};
use crate::support::world::World;

fn lines(lines: impl IntoIterator<Item = u32>) -> String {
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

/// Twenty lines of which these are changed.
fn with(changed: &[u32]) -> String {
    lines((1..=20).map(|n| if changed.contains(&n) { n * 10 } else { n }))
}

/// Two texts, a deletion and a new directory; of the first text the lines 2, 4 and 15 changed.
fn changed() -> World {
    let text = with(&[]).escape_default().to_string();
    let mut world = World::new(&format!("a \"{text}\"\nb \"one\\n\"\ngone \"gone\\n\"\n"));
    world.put("a", &with(&[2, 4, 15]));
    world.put("b", "ONE\n");
    world.remove("gone").unwrap();
    world.mkdir("new").unwrap();
    world.put("new/x", "x\n");
    world.put("new/y", "y\n");
    world.change_base();
    world.close();
    world
}

fn ask(world: &World, args: &[&str]) -> Output {
    let session = world.session();
    run(world.scratch(), &[&[args[0], session.to_str().unwrap()], &args[1..]].concat())
}

/// The hunks as JSON: id, path, part.
fn hunks(world: &World) -> Vec<(String, String, String)> {
    let (out, _) = said(&ask(world, &["diff", "--json", "--hunks"]), 1);
    let text = |object: &Value, key: &str| object[key].as_str().unwrap().to_owned();
    let one = |line: &str| {
        let object: Value = serde_json::from_str(line).unwrap();
        assert_eq!((text(&object, "type").as_str(), &object["v"]), ("hunk", &Value::from(1)));
        (text(&object, "id"), text(&object, "path"), text(&object, "part"))
    };
    out.lines().map(one).collect()
}

/// What a command says on a terminal on which this is typed.
pub(super) fn typed(world: &World, typed: &str, args: &str, editor: Option<&Path>) -> String {
    let program = env!("CARGO_BIN_EXE_acetate");
    let (verb, rest) = args.split_once(' ').unwrap();
    let line = format!("{program} {verb} {} {rest}", world.session().display());
    let answered = format!("printf '{typed}' | script -qec '{line}' /dev/null");
    let mut command = Command::new("sh");
    command.args(["-c", &answered]).env("NO_COLOR", "1").env_remove("VISUAL");
    if let Some(editor) = editor {
        command.env("EDITOR", format!("sh {}", editor.display()));
    }
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).replace('\r', "")
}

fn base(world: &World, path: &str) -> String {
    fs::read_to_string(world.base().join(path)).unwrap()
}

/// The content in the merged tree.
fn session(world: &World, path: &str) -> String {
    said(&ask(world, &["cat", path]), 0).0
}

fn names(world: &World) -> Vec<String> {
    let output = ask(world, &["diff"]);
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn hunks_are_listed_and_applied_by_their_ids() {
    let world = changed();
    let all = hunks(&world);
    let parts: Vec<_> = all.iter().map(|(_, path, part)| (&**path, &**part)).collect();
    let a = ("/a", "lines");
    let whole = |path| (path, "whole");
    assert_eq!(
        parts,
        [a, a, a, ("/b", "lines"), whole("/gone"), whole("/new"), whole("/new/x"), whole("/new/y")]
    );
    let (out, _) = said(&ask(&world, &["diff", "--json", "--hunks", "a"]), 1);
    let first: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!(first["header"], "@@ -1,3 +1,3 @@");
    assert_eq!(first["lines"], serde_json::json!([" 1\n", "-2\n", "+20\n", " 3\n"]));
    assert_eq!((&first["old_start"], &first["new_lines"]), (&2.into(), &1.into()));

    let id = |at: usize| all[at].0.as_str();
    let args = ["apply", "--yes", "--hunk", id(1), "--hunk", &id(4)[..8], "--hunk", id(7)];
    let (out, _) = said(&ask(&world, &args), 0);
    assert!(out.contains("M /a\n") && out.contains("D /gone\n"), "{out}");
    assert_eq!(base(&world, "a"), with(&[4]));
    assert!(!world.base().join("gone").exists());
    assert_eq!(base(&world, "new/y"), "y\n");
    assert!(!world.base().join("new/x").exists());
    let rest: Vec<_> = hunks(&world).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(rest, [id(0), id(2), id(3), id(6)]);
    assert_eq!(session(&world, "a"), with(&[2, 4, 15]));

    // What is not there, or not one.
    let program =
        ["apply", world.session().to_str().unwrap(), "--yes", "--hunk"].map(str::to_owned);
    let fails = |given: &str| {
        let args: Vec<_> = program.iter().map(String::as_str).chain([given]).collect();
        failure(world.scratch(), &args)
    };
    assert!(fails(id(1)).contains("no such hunk"));
    assert!(fails("").contains("no such hunk"));
}

#[test]
fn a_file_with_hunks_has_no_id_of_its_own() {
    let world = changed();
    let mut id = String::new();
    let opened = OpenSession::open(&world.session(), None).unwrap();
    diff(&opened, &DiffOptions::default(), &mut |_, difference| {
        if difference.change.path.as_bytes() == b"/a" {
            id = whole_id(&difference).to_string();
        }
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    for command in ["apply", "discard"] {
        let (_, err) = said(&ask(&world, &[command, "--yes", "--hunk", &id]), 2);
        assert!(err.contains("no such hunk"), "{err}");
    }
}

#[test]
fn a_dry_run_of_hunks_writes_nothing() {
    let world = changed();
    let id = hunks(&world)[0].0.clone();
    let (out, _) = said(&ask(&world, &["apply", "--dry-run", "--hunk", &id]), 0);
    assert!(out.starts_with("M /a\n") && !out.contains("gone"), "{out}");
    let (out, _) = said(&ask(&world, &["discard", "--dry-run", "--hunk", &id]), 0);
    assert_eq!(out, "would discard: /a (1 of 3 hunks)\n");
    assert_eq!((base(&world, "a"), session(&world, "a")), (with(&[]), with(&[2, 4, 15])));
}

#[test]
fn hunks_are_discarded() {
    let world = changed();
    let all: Vec<_> = hunks(&world).into_iter().map(|(id, ..)| id).collect();
    let (out, _) = said(&ask(&world, &["discard", "--hunk", &all[1], "--hunk", &all[4]]), 0);
    assert_eq!(out, "discarded: /a (1 of 3 hunks)\ndiscarded: /gone\n");
    assert_eq!((session(&world, "a"), base(&world, "a")), (with(&[2, 15]), with(&[])));
    assert_eq!(session(&world, "gone"), "gone\n");
    let rest: Vec<_> = hunks(&world).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(rest[..3], [&*all[0], &all[2], &all[3]]);
    // The last ones of a file: the base shows again.
    let (out, _) =
        said(&ask(&world, &["discard", "--json", "--hunk", &all[0], "--hunk", &all[2]]), 0);
    let first: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!((&first["path"], first.get("hunks")), (&"/a".into(), None));
    assert_eq!(names(&world), ["M /b", "A /new/ (2 files, 4 B)"]);
    // A new directory goes with what is in it, or not at all.
    let dir = hunks(&world)[1].0.clone();
    let (_, err) = said(&ask(&world, &["discard", "--hunk", &dir]), 1);
    assert!(err.contains("/new: holds changes that are not chosen"), "{err}");
    assert_eq!(session(&world, "new/x"), "x\n");
    let (_, err) = said(&ask(&world, &["undo", "--yes"]), 0);
    assert!(err.contains("takes back the discard of /a\n"), "{err}");
    assert_eq!(session(&world, "a"), with(&[2, 15]));
}

#[test]
fn a_removed_directory_counts_with_all_in_it() {
    let mut world = World::new("dir/a \"a\\n\"\ndir/b \"b\\n\"\n");
    world.rm_rf("dir");
    let dir = hunks(&world)[0].0.clone();
    world.close();
    for more in [&["--dry-run"][..], &[]] {
        let args = [&["discard", "--json", "--hunk", &dir], more].concat();
        let (out, _) = said(&ask(&world, &args), 0);
        let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        assert_eq!((&last["paths"], &last["changes"]), (&1.into(), &3.into()), "{out}");
    }
    world.open_again();
}

#[test]
fn a_server_takes_hunks_out_of_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("base")).unwrap();
    fs::write(dir.path().join("base/a"), with(&[])).unwrap();
    let serving = Serving::start(dir.path(), 1, &["s.db", "--base", "base"]);
    let command = |args: &[&str]| said(&run(dir.path(), args), 0).0;
    fs::write(dir.path().join("new"), with(&[2, 10, 15])).unwrap();
    command(&["write", "s.db", "a", "--from", "new"]);
    let listed = || {
        let (out, _) = said(&run(dir.path(), &["diff", "s.db", "--json", "--hunks"]), 1);
        let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].clone();
        out.lines().map(|line| id(line).as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = listed();
    command(&["discard", "s.db", "--hunk", &all[0]]);
    assert_eq!(command(&["cat", "s.db", "a"]), with(&[10, 15]));
    command(&["apply", "s.db", "--yes", "--hunk", &all[1]]);
    assert_eq!(fs::read_to_string(dir.path().join("base/a")).unwrap(), with(&[10]));
    assert_eq!(command(&["cat", "s.db", "a"]), with(&[10, 15]));
    assert_eq!(listed(), [all[2].clone()]);
    command(&["apply", "s.db", "--yes"]);
    assert_eq!(fs::read_to_string(dir.path().join("base/a")).unwrap(), with(&[10, 15]));
    drop(serving);
}

#[test]
fn without_a_terminal_nothing_can_be_asked() {
    let world = changed();
    for option in ["-p", "-i"] {
        for verb in ["apply", "discard"] {
            let said = failure(world.scratch(), &[verb, world.session().to_str().unwrap(), option]);
            assert!(said.contains("needs a terminal") && said.contains("--hunk ID"), "{said}");
        }
    }
}

#[test]
fn apply_asks_for_each_hunk() {
    let world = changed();
    // Split the first two, no, yes; not the third; the rest: only the new directory.
    let said = typed(&world, "s\nn\ny\nn\nn\nn\ny\ny\n", "apply -p", None);
    assert!(said.contains("M /a\n@@ -1,7 +1,7 @@\n 1\n-2\n+20\n 3\n-4\n+40\n 5\n"), "{said}");
    assert!(said.contains("(1/2) Apply this hunk [y,n,q,a,d,j,J,g,/,s,?]? "), "{said}");
    assert!(said.contains("Split into 2 hunks.\n@@ -1,3 +1,3 @@\n"), "{said}");
    assert!(said.contains("(2/3) Apply this hunk [y,n,q,a,d,j,J,K,g,/,?]? "), "{said}");
    assert!(said.contains("(1/1) Apply this deletion [y,n,q,a,d,?]? "), "{said}");
    assert!(said.contains("-gone\n"), "{said}");
    assert!(said.contains("A /new/ (2 files, 4 B)\n(1/1) Apply this new directory "), "{said}");
    assert!(is_applied(&said), "{said}");
    assert_eq!((base(&world, "a"), base(&world, "b")), (with(&[4]), "one\n".to_owned()));
    assert_eq!(base(&world, "new/x"), "x\n");
    assert_eq!(names(&world), ["M /a", "M /b", "D /gone"]);
    assert_eq!(session(&world, "a"), with(&[2, 4, 15]));
}

#[test]
fn the_answers_of_git_go_through_the_hunks() {
    let world = changed();
    // To the last one and take it, back, quit: the plan has one hunk, and is not wanted.
    let said = typed(&world, "J\ny\n?\nz\nq\nn\n", "apply -p a", None);
    assert!(said.contains("@@ -12,7 +12,7 @@"), "{said}");
    assert!(said.contains("s - split the current hunk into smaller hunks\n"), "{said}");
    assert!(said.contains("`z` is not an answer here\n"), "{said}");
    assert!(said.contains("M /a\n") && said.ends_with("nothing was written\n"), "{said}");
    assert_eq!(base(&world, "a"), with(&[]));
    // Search, go to, take all from there; nothing of the rest.
    let said = typed(&world, "/150\ng 1\nn\ny\nq\n", "apply -p --yes", None);
    assert!(is_applied(&said), "{said}");
    assert_eq!((base(&world, "a"), base(&world, "b")), (with(&[15]), "one\n".to_owned()));
    // All of a file, and the end of the input.
    typed(&world, "a\nq\n", "apply -p --yes", None);
    assert_eq!(names(&world), ["M /b", "D /gone", "A /new/ (2 files, 4 B)"]);
    let said = typed(&world, "d\nd\nd\n", "apply -p", None);
    assert!(said.ends_with("nothing was chosen\n"), "{said}");
}

/// A directory that moved, with changes in it and deep in it.
fn moved() -> World {
    let tree = "old/sub/deep \"deep\\n\"\nold/file \"file\\n\"\nold/sub/more/x \"x\"\n";
    let mut world = World::new(tree);
    world.rename("old", "new").unwrap();
    world.put("new/sub/deep", "deeper\n");
    world.put("new/sub/more/y", "y\n");
    world.remove("new/file").unwrap();
    world.change_base();
    world.close();
    world
}

#[test]
fn what_is_in_a_directory_whose_move_is_not_chosen_is_not_asked_for() {
    let world = moved();
    let said = typed(&world, "n\n", "apply -p", None);
    assert!(said.contains("R /old -> /new/\n(1/1) Apply this rename"), "{said}");
    assert!(said.contains("/new/sub/deep: left out, as the move of /new is not chosen"), "{said}");
    assert!(said.ends_with("nothing was chosen\n"), "{said}");
    // The move alone.
    let said = typed(&world, "y\nn\nn\nn\ny\n", "apply -p", None);
    assert!(is_applied(&said), "{said}");
    assert_eq!(base(&world, "new/sub/deep"), "deep\n");
    assert_eq!(base(&world, "new/file"), "file\n");
    assert_eq!(session(&world, "new/sub/deep"), "deeper\n");
    assert_eq!(names(&world).len(), 3);
}

#[test]
fn choosing_everything_is_choosing_nothing() {
    for args in ["apply -i", "apply -p"] {
        let world = moved();
        let wanted = merged(&world.session(), Some(&world.base()));
        let editor = world.scratch().join("editor.sh");
        fs::write(&editor, "true\n").unwrap();
        let answers = if args == "apply -i" { "y\n" } else { "y\ny\ny\ny\ny\n" };
        let said = typed(&world, answers, args, Some(&editor));
        assert!(is_applied(&said), "{said}");
        assert_same(&on_host(&world.base()), &wanted);
        assert_eq!(said_nothing(&world), "");
    }
}

fn said_nothing(world: &World) -> String {
    said(&ask(world, &["diff", "--times", "--all"]), 0).0
}

#[test]
fn paths_and_exclusions_bound_what_is_asked_for() {
    let world = changed();
    let said = typed(&world, "q\n", "apply -p --exclude a new b", None);
    assert!(said.contains("M /b\n") && !said.contains("M /a"), "{said}");
    // What was not offered keeps its directory.
    let said = typed(&world, "y\ny\n", "discard -p --exclude y new", None);
    assert!(said.contains("/new: holds changes that are not chosen"), "{said}");
    assert_eq!((session(&world, "new/y"), names(&world).len()), ("y\n".to_owned(), 4));
    let said = typed(&world, "y\ny\n", "discard -p gone", None);
    assert!(said.contains("(1/1) Discard this deletion") && !said.contains("M /"), "{said}");
    assert_eq!(session(&world, "gone"), "gone\n");
}

#[test]
fn discard_asks_for_each_hunk() {
    let world = changed();
    let said = typed(&world, "n\ny\nq\ny\n", "discard -p", None);
    assert!(said.contains("(2/2) Discard this hunk [y,n,q,a,d,K,g,/,?]? "), "{said}");
    assert!(said.contains("would discard: /a (1 of 3 hunks)\n"), "{said}");
    assert!(said.contains("discard what was chosen of 1 path? [y/N] "), "{said}");
    assert!(said.contains("discarded: /a (1 of 3 hunks)\n"), "{said}");
    assert_eq!(session(&world, "a"), with(&[2, 4]));
}

#[test]
fn binary_contents_are_not_shown_to_a_person() {
    let mut world = World::new("data \"1\"\n");
    world.write("data", 0, b"\0\x01\x02").unwrap();
    world.change_base();
    world.close();
    for args in ["apply -p", "discard -p", "diff -p --no-pager --color=never"] {
        let said = typed(&world, "n\n", args, None);
        assert!(said.contains("Binary files a/data and b/data differ\n"), "{args}: {said}");
        assert!(!said.contains("GIT binary patch"), "{args}: {said}");
    }
    let (patch, _) = said(&ask(&world, &["diff", "-p"]), 1);
    assert!(patch.contains("GIT binary patch"), "{patch}");
}

#[test]
fn a_list_in_the_editor_chooses() {
    let world = changed();
    let editor = world.scratch().join("editor.sh");
    let edited = |script: &str, answers: &str, args: &str| {
        fs::write(&editor, script).unwrap();
        typed(&world, answers, args, Some(&editor))
    };
    let nothing = edited("grep '^pick' \"$1\" >&2; : > \"$1\"\n", "", "apply -i");
    for line in ["M /a\n", "M /b\n", "D /gone\n", "A /new/ (2 files, 4 B)\n"] {
        assert!(nothing.contains(line), "{nothing}");
    }
    assert!(nothing.ends_with("nothing was chosen\n"), "{nothing}");
    let wrong = edited("echo squash 12 /a > \"$1\"\n", "", "apply -i");
    assert!(wrong.contains("line 1 of the list: `squash` is neither"), "{wrong}");
    let failed = edited("exit 3\n", "", "apply -i");
    assert!(failed.contains("ended with exit status 3"), "{failed}");

    let some = edited("sed -i -e '/ .a$/d' -e '/gone/s/pick/drop/' \"$1\"\n", "y\n", "apply -i");
    assert!(is_applied(&some), "{some}");
    assert_eq!((base(&world, "b"), base(&world, "a")), ("ONE\n".to_owned(), with(&[])));
    assert_eq!(names(&world), ["M /a", "D /gone"]);
    let rest = edited("sed -i '/gone/d' \"$1\"\n", "y\n", "discard -i");
    assert!(rest.contains("discarded: /a\n"), "{rest}");
    assert_eq!(names(&world), ["D /gone"]);
    // As it is: everything, as without the list.
    let all = edited("true\n", "y\n", "apply -i");
    assert!(is_applied(&all), "{all}");
    assert_eq!(said_nothing(&world), "");
}

/// Whether an apply said last that it was done, and how to undo it.
fn is_applied(said: &str) -> bool {
    // Hunks are not undone.
    said.ends_with(": applied\n") || said.contains(": applied\n`acetate apply --undo ")
}

#[test]
fn hunks_are_listed_by_their_first_changed_line_and_conflicts_are_marked() {
    let mut world = World::new(&format!("a \"{}\"\nb \"one\\n\"\n", with(&[]).escape_default()));
    world.put("a", &with(&[2, 15]));
    world.put("b", "ONE\n");
    let base = world.change_base();
    fs::write(base.join("a"), lines((1..=20).map(|n| if n == 15 { 99 } else { n }))).unwrap();
    fs::remove_file(base.join("b")).unwrap();
    world.close();
    let said = typed(&world, "g\n2\nq\n", "apply -p --yes", None);
    assert!(said.contains("  1: -2 +2                -2\n"), "{said}");
    let second = "  2: -15 +15              -15 (conflicts with the base)\n";
    assert!(said.contains(second), "{said}");
    assert!(said.contains("@@ -1,5 +1,5 @@\n"), "{said}");
    assert!(said.contains("@@ -12,7 +12,7 @@ (conflicts with the base)\n"), "{said}");
    let said = typed(&world, "y\nn\nn\n", "apply -p --yes", None);
    let removed = "M /b (was removed in the base) (conflicts with the base)\n";
    assert!(said.contains(removed), "{said}");
    // The hunk that is not marked is merged.
    let merged = lines((1..=20).map(|n| {
        if n == 2 {
            20
        } else if n == 15 {
            99
        } else {
            n
        }
    }));
    assert_eq!(fs::read_to_string(base.join("a")).unwrap(), merged, "{said}");
}

/// `diff` of a path in a removed directory gives an id of that path alone.
#[test]
fn a_hunk_in_a_removed_directory_is_said_to_go_with_it() {
    let mut world = World::new("dir/file \"1\\n\"\ndir/sub/other \"2\\n\"\nkept \"3\\n\"\n");
    world.rm_rf("dir");
    world.put("kept", "agent\n");
    world.close();
    let id = |path: &[&str]| {
        let (out, _) = said(&ask(&world, &[&["diff", "--json", "--hunks"], path].concat()), 1);
        let hunk: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
        hunk["id"].as_str().unwrap().to_owned()
    };
    let whole = id(&["dir"]);
    for inner in ["dir/file", "dir/sub/other"] {
        let one = id(&[inner]);
        let wanted = format!(
            "error: {one}: /{inner} was removed with /dir, and goes or comes back only with it\n\
             hint: --hunk {whole} chooses /dir\n"
        );
        for args in
            [&["apply", "--yes", "--hunk", &one][..], &["apply", "-n", "--hunk", &one, inner]]
        {
            assert_eq!(said(&ask(&world, args), 2).1, wanted, "{args:?}");
        }
        assert_eq!(said(&ask(&world, &["discard", "--hunk", &one]), 2).1, wanted);
    }
    world.change_base();
    said(&ask(&world, &["apply", "--yes", "--hunk", &whole]), 0);
    assert!(!world.base().join("dir").exists() && base(&world, "kept") == "3\n");
    assert!(said(&ask(&world, &["apply", "--hunk", "ff"]), 2).1.contains("ff: no such hunk"));
}

#[test]
fn a_hunk_outside_of_the_paths_is_named_with_its_path() {
    let world = changed();
    let all = hunks(&world);
    let id = |of: &str| all.iter().find(|(_, path, _)| path == of).unwrap().0.clone();
    for (path, given) in [("/a", "b"), ("/gone", "b"), ("/new/x", "new/y")] {
        let id = id(path);
        let wanted = format!(
            "error: {id}: {path} is outside of the paths given\nhint: give {path} too, or no path\n"
        );
        for args in [&["apply", "-n", "--hunk"][..], &["discard", "-n", "--hunk"]] {
            assert_eq!(said(&ask(&world, &[args, &[&id, given]].concat()), 2).1, wanted);
        }
    }
    let id = id("/a");
    for args in [["--exclude", "a"], ["b", ":!a"]] {
        let (_, err) =
            said(&ask(&world, &[&["discard", "-n", "--hunk", &id], &args[..]].concat()), 2);
        let wanted = format!("error: {id}: /a is outside of the paths given, or excluded\n");
        assert_eq!(err, wanted);
    }
}

#[test]
fn a_hunk_that_the_plan_leaves_out_is_said_to_be_there() {
    let mut world = World::new("a \"1\"\ntool \"2\"\n");
    world.put("a", "agent");
    world.chmod("tool", 0o4755).unwrap();
    world.close();
    let all = hunks(&world);
    let (id, ..) = all.iter().find(|(_, path, _)| path == "/tool").unwrap();
    let wanted =
        format!("error: {id}: /tool is left out\nhint: `acetate apply --dry-run` says why\n");
    assert_eq!(said(&ask(&world, &["apply", "--yes", "--hunk", id]), 2).1, wanted);
    let (out, _) = said(&ask(&world, &["apply", "--dry-run"]), 1);
    assert!(out.contains("- /tool: a set-user-ID file: not made by default\n"), "{out}");
    let (out, _) = said(&ask(&world, &["apply", "-n", "--allow-special", "--hunk", id]), 0);
    assert!(out.contains("* /tool: a set-user-ID file\n"), "{out}");
}
