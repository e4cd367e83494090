//! `acetate checkpoint`, and `--at`.

use std::path::Path;
use std::process::Output;

use super::program::{Serving, run};
use crate::support::world::World;

pub fn ask(world: &World, words: &str) -> Output {
    let session = world.session();
    let mut words: Vec<_> = words.split(' ').collect();
    for word in &mut words {
        if *word == "SESSION" {
            *word = session.to_str().unwrap();
        }
    }
    run(world.scratch(), &words)
}

/// What a command prints; it ends with `code`.
#[track_caller]
pub fn said(world: &World, code: i32, words: &str) -> String {
    let output = ask(world, words);
    let all = [&output.stdout[..], &output.stderr].concat();
    let all = String::from_utf8(all).unwrap();
    assert_eq!(output.status.code(), Some(code), "{words}: {all}");
    all
}

/// Checks that the patch from one checkpoint to another, or to now, makes one tree of the other.
fn check_patch(world: &World, from: &str, to: Option<&str>) {
    let at = to.map(|to| format!(" --at {to}")).unwrap_or_default();
    let until = to.map(|to| format!(" --to {to}")).unwrap_or_default();
    for dir in ["then", "now"] {
        let _ = std::fs::remove_dir_all(world.scratch().join(dir));
    }
    said(world, 0, &format!("export SESSION --at {from} --dir then"));
    said(world, 0, &format!("export SESSION{at} --dir now"));
    let patch = ask(world, &format!("diff SESSION -p --from {from}{until}")).stdout;
    let patch = String::from_utf8(patch).unwrap();
    std::fs::write(world.scratch().join("patch"), &patch).unwrap();
    let mut git = std::process::Command::new("git");
    git.current_dir(world.scratch().join("then")).args(["apply", "-p1", "../patch"]);
    let applied = git.env("GIT_CEILING_DIRECTORIES", world.scratch()).output().unwrap();
    assert!(applied.status.success(), "{patch}{}", String::from_utf8_lossy(&applied.stderr));
    let mut diff = std::process::Command::new("diff");
    diff.current_dir(world.scratch()).args(["-r", "--no-dereference", "then", "now"]);
    let compared = diff.output().unwrap();
    let differs = String::from_utf8_lossy(&compared.stdout).into_owned();
    assert!(compared.status.success(), "{from}: {differs}\n{patch}");
}

/// Whether the session is served or at rest makes no difference.
#[test]
fn the_tree_at_a_checkpoint_is_shown() {
    for is_served in [true, false] {
        let mut world = World::new("src/a \"base a\"\nsrc/b \"base b\"\nc \"c\"\n");
        world.put("src/new", "new");
        world.write("src/a", 0, b"BASE").unwrap();
        world.close();
        let session = world.session();
        let args = [session.to_str().unwrap()];
        let server = is_served.then(|| Serving::start(world.scratch(), 1, &args));
        assert_eq!(said(&world, 0, "checkpoint create SESSION before --label step=3"), "1\n");
        assert!(said(&world, 2, "checkpoint create SESSION before").contains("has this name"));
        for words in ["rm SESSION -r src", "rm SESSION c", "mkdir SESSION later"] {
            said(&world, 0, words);
        }
        assert_eq!(said(&world, 0, "checkpoint create SESSION"), "2\n");
        let listed = said(&world, 0, "checkpoint ls SESSION");
        let lines: Vec<_> = listed.lines().collect();
        assert!(lines.len() == 2 && lines[0].ends_with("before  step=3"), "{listed}");
        assert!(lines[1].contains("paths changed"), "{listed}");

        assert_eq!(said(&world, 0, "ls SESSION --at before"), "c\nsrc\n");
        assert_eq!(said(&world, 0, "ls SESSION --at @-1"), "later\n");
        assert_eq!(said(&world, 0, "cat SESSION src/a --at 1"), "BASE a");
        assert_eq!(said(&world, 0, "cat SESSION src/new --at before"), "new");
        assert_eq!(
            said(&world, 2, "cat SESSION src/new"),
            said(&world, 2, "cat SESSION src/new --at 2")
        );
        assert!(said(&world, 0, "find SESSION --at now").contains("/later"));
        assert!(said(&world, 0, "tree SESSION --at before").contains("new +"));
        assert!(said(&world, 0, "stat SESSION src/a --at before").contains("src/a"));
        assert!(said(&world, 0, "du SESSION --at before -d 0").contains('/'));
        assert_eq!(said(&world, 1, "diff SESSION --at before"), "M /src/a\nA /src/new\n");
        assert!(said(&world, 1, "diff SESSION -p --at before").contains("+BASE a"));
        said(&world, 0, "export SESSION --at before --dir then");
        let then = |path: &str| std::fs::read_to_string(world.scratch().join("then").join(path));
        assert_eq!(then("src/b").unwrap(), "base b");
        assert!(!Path::new(&world.scratch().join("then/later")).exists());

        let missing = said(&world, 2, "ls SESSION --at befor");
        assert!(missing.contains("befor: no such checkpoint; there are before, 2"), "{missing}");
        assert!(said(&world, 2, "ls SESSION --at @-3").contains("no such checkpoint"));
        assert!(said(&world, 2, "checkpoint rm SESSION 7").contains("no such checkpoint"));
        for name in ["12", "@-1", "today", ""] {
            let output = run(
                world.scratch(),
                &["checkpoint", "create", world.session().to_str().unwrap(), name],
            );
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{name}: {said}");
            assert!(said.contains("not a name for a checkpoint"), "{name}: {said}");
        }

        let pruned = said(&world, 0, "checkpoint prune SESSION --keep 0 --dry-run");
        assert_eq!(pruned, "would remove 2\n");
        assert_eq!(said(&world, 0, "checkpoint prune SESSION --keep 0"), "removed 2\n");
        assert!(said(&world, 1, "checkpoint prune SESSION --keep 0").contains("nothing to remove"));
        assert_eq!(said(&world, 0, "cat SESSION src/a --at before"), "BASE a");
        assert_eq!(said(&world, 0, "checkpoint rm SESSION before"), "removed 1 (before)\n");
        assert!(said(&world, 1, "checkpoint ls SESSION").contains("no checkpoints"));
        assert!(said(&world, 2, "ls SESSION --at before").contains("the session has none"));
        assert_eq!(said(&world, 0, "checkpoint create SESSION"), "3\n");
        if let Some(server) = server {
            server.signal("TERM");
            assert!(server.end().0.success());
        }
        assert!(said(&world, 0, "check SESSION").ends_with(": sound\n"));
        world.open_again();
    }
}

#[test]
fn what_changed_between_checkpoints_is_listed_counted_and_a_patch() {
    let base = "dir/kept \"kept\"\ndir/changed \"one\\ntwo\\n\"\ndir/sub/deep \"deep\"\n\
                dir/sub/stays \"s\"\ngone/a \"a\"\ngone/b \"b\"\nfile \"file\\n\"\nlink = file\n";
    let mut world = World::new(base);
    world.write("dir/changed", 0, b"ONE").unwrap();
    world.close();
    assert_eq!(said(&world, 0, "checkpoint create SESSION first"), "1\n");
    for words in ["mv SESSION dir moved", "rm SESSION -r gone", "rm SESSION link"] {
        said(&world, 0, words);
    }
    assert_eq!(said(&world, 0, "checkpoint create SESSION second"), "2\n");
    let put = |path: &str, content: &str| {
        std::fs::write(world.scratch().join("content"), content).unwrap();
        said(&world, 0, &format!("write SESSION {path} --from content"));
    };
    put("moved/changed", "ONE\ntwo\nthree\n");
    said(&world, 0, "mkdir SESSION new");
    put("new/x", "x\n");
    put("new/y", "y\n");
    for words in ["chmod SESSION +x file", "mv SESSION moved/sub/deep deeper"] {
        said(&world, 0, words);
    }

    let first = said(&world, 1, "diff SESSION --from first --to second");
    assert_eq!(first, "D /gone/ (2 files, 2 B)\nD /link\nR /dir -> /moved/\n");
    let second = said(&world, 1, "diff SESSION --from second");
    assert_eq!(
        second,
        "R /moved/sub/deep -> /deeper\nM /file (mode 0644 -> 0755)\nM /moved/changed\n\
         A /new/ (2 files, 4 B)\n"
    );
    let all = said(&world, 1, "diff SESSION --from first --name-status");
    assert_eq!(
        all,
        "R\t/dir/sub/deep\t/deeper\nM\t/file\nD\t/gone/\nD\t/gone/a\nD\t/gone/b\nD\t/link\n\
         R\t/dir/\t/moved/\nR\t/dir/changed\t/moved/changed\nA\t/new/\nA\t/new/x\nA\t/new/y\n"
    );
    let one = "M /moved/changed\n";
    assert_eq!(said(&world, 1, "diff SESSION --from second moved --exclude deep*"), one);
    let moved = format!("R /moved/sub/deep -> /deeper\n{one}");
    assert_eq!(said(&world, 1, "diff SESSION --from second moved"), moved);
    assert_eq!(said(&world, 1, "diff SESSION --from first --to second gone/a"), "D /gone/a\n");
    assert_eq!(said(&world, 0, "diff SESSION --from second gone"), "");
    assert_eq!(said(&world, 0, "diff SESSION --from second --to second"), "");
    for (option, expected) in [
        ("-M", "--find-renames does not go with --from\nhint: leave it out: what moved since"),
        ("--json --hunks", "--hunks does not go with --from\nhint: leave --from out: hunks are"),
        ("--at first", "--at does not go with --from\nhint: --from names the earlier tree, and"),
    ] {
        let told = said(&world, 2, &format!("diff SESSION --from second {option}"));
        assert!(told.contains(expected), "{told}");
    }
    let counted = said(&world, 1, "diff SESSION --from second --stat");
    assert!(counted.contains("| 1 +") && counted.contains("5 files changed, 3 "), "{counted}");
    let json = said(&world, 1, "diff SESSION --from second --json file");
    assert!(json.contains("\"change\":\"modified\"") && json.contains("\"before\""), "{json}");
    let swapped = said(&world, 2, "diff SESSION --from second --to first");
    assert!(swapped.contains("--from is later than --to"), "{swapped}");
    assert!(said(&world, 2, "diff SESSION --from thrid").contains("no such checkpoint"));
    assert!(said(&world, 2, "diff SESSION --to first").contains("--from"));
    assert!(said(&world, 2, "diff SESSION --from second nowhere").contains("nowhere"));

    for (from, to) in [("first", Some("second")), ("second", None), ("first", None)] {
        check_patch(&world, from, to);
    }
    world.open_again();
}

#[test]
fn the_log_between_checkpoints_is_shown() {
    let mut world = World::new("");
    world.put("first", "1");
    world.close();
    said(&world, 0, "checkpoint create SESSION one");
    said(&world, 0, "mkdir SESSION second");
    said(&world, 0, "checkpoint create SESSION two");
    said(&world, 0, "mkdir SESSION third");
    let dirs = |words: &str| {
        let said = said(&world, 0, &format!("log SESSION {words}"));
        let path =
            |line: &str| line.split(' ').find(|word| word.starts_with('/')).map(str::to_owned);
        said.lines().map(|line| path(line).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(dirs("--since-checkpoint one"), ["/second", "/third"]);
    assert_eq!(dirs("--since-checkpoint one --until-checkpoint @-1"), ["/second"]);
    assert!(dirs("--until-checkpoint one").iter().all(|path| path == "/first"));
    assert_eq!(said(&world, 1, "log SESSION --since-checkpoint one /first"), "");
    let wrong = said(&world, 2, "log SESSION --since-checkpoint two --until-checkpoint one");
    assert!(wrong.contains("is later than"), "{wrong}");
    assert!(said(&world, 2, "log SESSION --since-checkpoint three").contains("no such"));
    world.open_again();
}

#[test]
fn a_tool_call_begins_with_a_checkpoint() {
    for is_served in [true, false] {
        let mut world = World::new("");
        world.close();
        let session = world.session();
        let args = [session.to_str().unwrap()];
        let server = is_served.then(|| Serving::start(world.scratch(), 1, &args));
        said(&world, 0, "tool run SESSION none --no-checkpoint -- true");
        assert!(said(&world, 1, "checkpoint ls SESSION").contains("no checkpoints"));
        said(&world, 0, "mkdir SESSION dir");
        said(&world, 0, "tool run SESSION edit -- true");
        said(&world, 0, "tool run SESSION look -- true");
        let listed = said(&world, 0, "checkpoint ls SESSION");
        // The first call changed nothing: the checkpoint is of the second.
        assert!(listed.lines().count() == 1 && listed.contains("tool=look"), "{listed}");
        said(&world, 0, "rmdir SESSION dir");
        let undo = said(&world, 0, "undo SESSION --dry-run");
        assert!(undo.contains("(tool, tool look)"), "{undo}");
        said(&world, 1, "tool run SESSION fails -- false");
        assert_eq!(said(&world, 0, "ls SESSION --at 1"), "dir\n");
        if let Some(server) = server {
            server.signal("TERM");
            assert!(server.end().0.success());
        }
        world.open_again();
    }
}

#[test]
fn what_moved_onto_another_object_or_with_its_directory_is_whole() {
    let base = "d/x \"x\"\nd/e/y \"y\"\nd/e/z \"z\"\nd/sub/deep \"deep\"\n\
                g \"one\"\nh \"two\"\nf/file \"f\"\n";
    let mut world = World::new(base);
    world.close();
    said(&world, 0, "checkpoint create SESSION one");
    for words in ["mv SESSION g h", "mv SESSION d/e e2", "rm SESSION f/file", "mv SESSION d f/file"]
    {
        said(&world, 0, words);
    }
    let listed = said(&world, 1, "diff SESSION --from one");
    assert_eq!(listed, "R /d/e -> /e2/\nD /f/file\nR /d -> /f/file/\nD /h\nR /g -> /h\n");
    check_patch(&world, "one", None);
    let counted = said(&world, 1, "diff SESSION --from one --shortstat h g");
    assert!(counted.contains("2 files changed, 1 insertion(+), 2 deletions(-)"), "{counted}");

    // Of what moved with its directory, what is named.
    assert_eq!(said(&world, 1, "diff SESSION --from one e2/y"), "R /d/e/y -> /e2/y\n");
    // Once, though a directory above moved along with another.
    said(&world, 0, "chmod SESSION 700 f/file/sub");
    let once = said(&world, 1, "diff SESSION --from one f/file/sub/deep");
    assert_eq!(once, "R /d/sub/deep -> /f/file/sub/deep\n");
    let patch = said(&world, 1, "diff SESSION -p --from one e2/y");
    assert!(patch.contains("rename to e2/y") && !patch.contains("e2/z"), "{patch}");
    assert!(!said(&world, 1, "diff SESSION -p --from one h").contains("e2"));
    let without = said(&world, 1, "diff SESSION -p --from one --exclude e2");
    assert!(!without.contains("e2") && without.contains("f/file/x"), "{without}");
    world.open_again();
}
