//! `acetate diff`: what is folded, how changes are counted, and how they look.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::program::{acetate, run};
use crate::support::skip::skip;
use crate::support::world::World;

const TREE: &str = r#"
    .git/HEAD "ref: refs/heads/main\n"
    dir/a "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n"
    dir/b "1\n2\n3\n"
    gone/x "x\ny\n"
    gone/sub/z "z"
    kept/file "kept\n"
    text "alpha beta\ngamma delta\n"
"#;

fn ask(world: &World, args: &[&str]) -> Output {
    let session = world.session();
    run(world.scratch(), &[&["diff", session.to_str().unwrap()], args].concat())
}

#[track_caller]
fn says(world: &World, args: &[&str]) -> String {
    let output = ask(world, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn changed() -> World {
    let world = World::new(TREE);
    world.put(".git/HEAD", "ref: refs/heads/agent\n");
    world.put(".git/index", "index");
    world.mkdir("made").unwrap();
    world.mkdir("made/deep").unwrap();
    world.put("made/deep/one", &"1\n".repeat(100));
    world.put("made/two", "2\n");
    world.rename("gone/x", "kept/x").unwrap();
    world.rm_rf("gone");
    world.put("dir/a", "one\ntwo\nTHREE\nfour\nfive\nsix\nseven\nEIGHT\nnine\n");
    world.chmod("text", 0o600).unwrap();
    world
}

/// What git makes of the base and the merged tree, which are exported for it.
fn git(world: &World, args: &[&str]) -> String {
    let session = world.session();
    let merged = world.scratch().join("merged");
    let _none = std::fs::remove_dir_all(&merged);
    let export = ["export", session.to_str().unwrap(), "--dir", merged.to_str().unwrap()];
    assert_eq!(run(world.scratch(), &export).status.code(), Some(0));
    let base = world.base();
    let mut git = Command::new("git");
    git.args(["-c", "core.quotePath=true", "diff", "--no-index"]).args(args);
    git.args([base.file_name().unwrap(), merged.file_name().unwrap()]);
    let output = git.current_dir(world.scratch()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn directories_that_are_new_or_gone_are_one_line() {
    let world = changed();
    let mode = world.base_mode("text");
    let text = format!("M /text (mode {mode:04o} -> 0600)");
    let git = "M /.git/ (2 files of git's own, 27 B)";
    let renamed = "R /gone/x -> /kept/x";
    let lines = |args: &[&str]| says(&world, args).lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        lines(&[]),
        [git, "M /dir/a", "D /gone/ (1 file, 1 B)", renamed, "A /made/ (2 files, 202 B)", &text]
    );
    let whole = [
        "M /dir/a",
        "D /gone/",
        "D /gone/sub/",
        "D /gone/sub/z",
        renamed,
        "A /made/",
        "A /made/deep/",
        "A /made/deep/one",
        "A /made/two",
        &text,
    ];
    assert_eq!(lines(&["--no-fold"]), [&[git][..], &whole].concat());
    let own = ["M /.git/HEAD", "A /.git/index"];
    assert_eq!(lines(&["--no-fold", "--all"]), [&own[..], &whole].concat());
    assert_eq!(
        lines(&["made"]),
        ["A /made/", "A /made/deep/ (1 file, 200 B)", "A /made/two"],
        "what is named is opened"
    );
    assert_eq!(lines(&["--name-only"]).len(), 12, "a line for each path");
    assert_eq!(lines(&["--json"]).len(), 12);
}

#[test]
fn stat_counts_and_fits_the_terminal() {
    let world = changed();
    world.put(format!("dir/{}", "long".repeat(20)), "x\n");
    let mut command =
        acetate(world.scratch(), &["diff", world.session().to_str().unwrap(), "--stat"]);
    let output = command.env("COLUMNS", "60").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.iter().all(|line| line.chars().count() <= 60), "{said}");
    assert!(
        lines[0].starts_with("M /.git/ ") && lines[0].ends_with("| 2 files of git's own, 27 B")
    );
    assert!(lines[1].starts_with("M /dir/a ") && lines[1].ends_with("| 5 +++--"), "{said}");
    assert!(lines[2].starts_with("A ...") && lines[2].ends_with("| 1 +"), "{said}");
    assert!(lines[4].starts_with("R /{gone => kept}/x ") && lines[4].ends_with("| 0"), "{said}");
    assert!(lines[6].contains("| mode "), "{said}");
    assert_eq!(
        lines[7..],
        [
            "13 changes: 6 added, 3 deleted, 3 modified, 1 renamed",
            "(4 directories, 2 of git's own, 1 only in mode or owner)",
            " 6 files changed, 105 insertions(+), 3 deletions(-)"
        ]
    );
}

#[test]
fn stat_is_never_wider_than_the_terminal() {
    let mut world = World::new(TREE);
    world.change_base();
    world.put("dir/a", &"new\n".repeat(3000));
    world.put("dir/b", "1\n");
    world.put(format!("dir/{}", "long".repeat(40)), "x\n");
    world.rename("text", "another name of the text").unwrap();
    world.put("another name of the text", "alpha\n");
    std::fs::write(world.base().join("dir/b"), "the base has other lines\nand more\n").unwrap();
    for width in [10, 20, 40, 80, 200] {
        let stat = |colour| {
            let session = world.session();
            let args = ["diff", session.to_str().unwrap(), "--stat", "--color", colour];
            let mut command = acetate(world.scratch(), &args);
            let output = command.env("COLUMNS", width.to_string()).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let (plain, coloured) = (stat("never"), stat("always"));
        let bare = ["\x1b[32m", "\x1b[31m", "\x1b[m"];
        let bare = bare.iter().fold(coloured.clone(), |text, code| text.replace(code, ""));
        assert_eq!(bare.replace(" \n", "\n"), plain, "colours change no column");
        let rows = plain.lines().filter(|line| line.contains(" | "));
        for row in rows.clone() {
            assert!(row.chars().count() <= width, "{width}: {row:?}");
        }
        assert!(width < 40 || rows.count() == 4, "{plain}");
        if width == 200 {
            assert!(plain.contains("changed in the base too"), "{plain}");
        }
    }
}

#[test]
fn files_and_lines_are_counted_as_git_counts_them() {
    let world = World::new(TREE);
    world.put("dir/a", "one\ntwo\nTHREE\nfour\nfive\nsix\nsix\nseven\neight");
    world.put("dir/b", "3\n1\n2\n3\n\0");
    world.put("\u{fc} new\"\t", "a\nb");
    world.put("empty", "");
    world.put("text", "alpha  beta\ngamma delta\n");
    world.rm_rf("gone");
    let ours = |args: &[&str]| {
        let said = says(&world, args);
        said.replace("\t/", "\t").replace("\t\"/", "\t\"")
    };
    let theirs = |args: &[&str]| {
        let said = git(&world, args);
        // The names of the two directories stand before each path, and git compares both sides.
        let name = |line: &str| {
            let (counts, name) = line.rsplit_once('\t').unwrap();
            let name = name.replace("{base => merged}/", "").replace("base => /dev/null", "");
            format!("{counts}\t{name}\n")
        };
        said.lines().map(name).collect::<String>()
    };
    let counts = |text: &str| {
        let mut rows: Vec<_> =
            text.lines().map(|l| l.rsplit_once('\t').unwrap().0.to_owned()).collect();
        rows.sort();
        rows
    };
    for args in [&["--numstat"][..], &["--numstat", "-w"]] {
        let theirs = theirs(&[&["--no-renames"], args].concat());
        assert_eq!(counts(&ours(args)), counts(&theirs), "{args:?}");
    }
    let short = git(&world, &["--no-renames", "--shortstat"]);
    assert_eq!(says(&world, &["--shortstat"]), short);
}

#[test]
fn a_change_of_type_is_counted_once_as_git_counts_it() {
    let world = World::new("text \"a\\nb\\n\"\n link -> text\n binary \"1\0\"\n");
    world.remove("text").unwrap();
    world.symlink("elsewhere", "text").unwrap();
    world.remove("link").unwrap();
    world.put("link", "a\nb\nc\n");
    world.symlink("elsewhere", "new").unwrap();
    world.rename("new", "binary").unwrap();
    assert_eq!(says(&world, &["--numstat"]), "-\t-\t/binary\n3\t1\t/link\n1\t2\t/text\n");
    let stat = says(&world, &["--stat"]);
    assert!(stat.contains("| Bin 2 -> 9 bytes\n"), "{stat}");
    let sum = " 3 files changed, 4 insertions(+), 3 deletions(-)";
    assert_eq!(stat.lines().last().unwrap(), sum);
    assert_eq!(says(&world, &["--shortstat"]).trim_end_matches('\n'), sum);
}

#[test]
fn files_that_are_alike_are_renamed_where_that_is_asked_for() {
    let world = World::new(TREE);
    let text: String = (0..40).map(|line| format!("line {line}\n")).collect();
    world.put("dir/b", &text);
    world.remove("dir/a").unwrap();
    world.put("kept/a", "one\ntwo\nthree\nfour\nfive\nsix\nseven\nand more\n");
    assert_eq!(says(&world, &["-M", "--name-status", "kept", "dir/a"]), "R\t/dir/a\t/kept/a\n");
    assert_eq!(says(&world, &["-M=95%", "kept", "dir/a"]), "D /dir/a\nA /kept/a\n");
    let patch = says(&world, &["-M", "-p", "kept", "dir/a"]);
    assert!(patch.contains("rename from dir/a\nrename to kept/a\n"), "{patch}");
    assert_eq!(says(&world, &["-M", "--numstat", "kept", "dir/a"]), "1\t1\t/{dir => kept}/a\n");
}

/// The patch makes the merged tree of the base, and the base of the merged tree.
#[track_caller]
fn assert_applies_both_ways(world: &World, args: &[&str]) {
    let output = ask(world, &[&["-p"], args].concat());
    std::fs::write(world.scratch().join("patch"), &output.stdout).unwrap();
    let _none = std::fs::remove_dir_all(world.scratch().join("copy"));
    let copied =
        Command::new("cp").arg("-a").arg(world.base()).arg(world.scratch().join("copy")).status();
    assert!(copied.unwrap().success());
    for more in [&["--check"][..], &[], &["--check", "-R"], &["-R"]] {
        let mut git = Command::new("git");
        git.arg("apply").args(more).args(["--whitespace=nowarn", "../patch"]);
        git.env("GIT_CEILING_DIRECTORIES", world.scratch());
        let output = git.current_dir(world.scratch().join("copy")).output().unwrap();
        assert!(output.status.success(), "{more:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn git_takes_binary_deltas_and_what_git_keeps_is_in_no_patch() {
    let world = changed();
    let noise = |seed: u32| (0..60_000_u32).map(move |n| (n.wrapping_mul(seed) >> 13) as u8);
    let mut bytes: Vec<u8> = noise(2_654_435_761).collect();
    world.put("binary", "");
    world.write("binary", 0, &bytes).unwrap();
    assert_applies_both_ways(&world, &[]);
    let mut world = World::new(TREE);
    std::fs::write(world.change_base().join("binary"), &bytes).unwrap();
    bytes.splice(20_000..20_010, *b"\0changed in the middle");
    bytes.extend(noise(40_503).take(100));
    world.put("binary", "");
    world.write("binary", 0, &bytes).unwrap();
    let output = ask(&world, &["-p", "-M"]);
    let patch = String::from_utf8_lossy(&output.stdout);
    assert!(patch.contains("\ndelta ") && !patch.contains("\nliteral 60"), "{patch}");
    assert_applies_both_ways(&world, &["-M"]);
}

#[test]
fn a_patch_says_what_it_does_not_hold() {
    let world = changed();
    world.mkdir("hollow").unwrap();
    world.make("fifo", acetate::vfs::NewNode::Fifo, crate::support::client::mode(0o600)).unwrap();
    let output = ask(&world, &["--patch"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said,
        "not in the patch: 1 special file (fifos, sockets, devices)\n\
         not in the patch: 1 directory without files in it\n\
         not in the patch: /.git: 2 files of git's own (--all has them)\n\
         not in the patch: /text: its mode or owner\n"
    );
    assert!(!String::from_utf8_lossy(&output.stdout).contains(".git"));
    assert!(says(&world, &["--patch", "--all"]).contains("b/.git/index"));
    let only_mode = ask(&world, &["-p", "text"]);
    assert!(only_mode.stdout.is_empty() && only_mode.status.code() == Some(1));
}

#[test]
fn context_spaces_and_words() {
    let world = World::new(TREE);
    world.put("dir/a", "one\ntwo\nthree\nFOUR\nfive\nsix\nseven\neight\n");
    world.put("text", "alpha \tbeta\ngamma epsilon\n");
    let patch = says(&world, &["-p", "-U1", "dir/a"]);
    assert!(patch.ends_with("@@ -3,3 +3,3 @@ two\n three\n-four\n+FOUR\n five\n"), "{patch}");
    let patch = says(&world, &["-p", "-w", "text"]);
    assert!(
        patch.ends_with("@@ -1,2 +1,2 @@\n alpha \tbeta\n-gamma delta\n+gamma epsilon\n"),
        "{patch}"
    );
    let patch = says(&world, &["--word-diff", "-w", "text"]);
    assert!(patch.ends_with("\nalpha \tbeta\ngamma [-delta-]{+epsilon+}\n"), "{patch}");
    world.put("text", "alpha\tbeta\ngamma   delta\n");
    assert_eq!(says(&world, &["-p", "-w", "text"]), "");
}

#[test]
fn colours_and_what_would_steer_the_terminal() {
    let world = World::new(TREE);
    world.put("text", "alpha beta\n\x1b[2J\u{202e}evil\n");
    let patch = says(&world, &["-p", "--color=always", "text"]);
    assert!(patch.contains("\x1b[31m-gamma delta\x1b[m\n"), "{patch:?}");
    assert!(patch.contains("\x1b[32m+\\u{1b}[2J\\u{202e}evil\x1b[m\n"), "{patch:?}");
    assert!(says(&world, &["-p"]).contains("+\x1b[2J\u{202e}evil\n"), "as it is, for git");
    assert!(!says(&world, &["-p", "--color", "never"]).contains("\x1b[3"));
}

/// What a command shows on a terminal, with these variables.
fn on_a_terminal(world: &World, args: &str, variables: &[(&str, &str)]) -> String {
    let program = env!("CARGO_BIN_EXE_acetate");
    let line = format!("{program} diff {} {args}", world.session().display());
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).env("TERM", "xterm");
    script.env_remove("NO_COLOR").env_remove("GIT_PAGER").env_remove("PAGER").env_remove("LESS");
    script.env("HOME", world.scratch()).env_remove("XDG_CONFIG_HOME");
    script.envs(variables.iter().copied());
    String::from_utf8_lossy(&script.output().unwrap().stdout).replace('\r', "")
}

#[test]
fn the_pager_is_chosen_as_git_chooses_it() {
    if !Path::new("/usr/bin/script").exists() {
        skip("no script(1) here");
        return;
    }
    let world = World::new(TREE);
    world.put("new", "x\u{202e}\n");
    let shown = |args: &str, variables: &[_]| on_a_terminal(&world, args, variables);
    let paged = shown("--stat", &[("PAGER", "sed s/^/P:/")]);
    assert!(paged.starts_with("P:A /new | 1 \x1b[32m+"), "{paged:?}");
    let paged = shown("", &[("PAGER", "false"), ("GIT_PAGER", "sed s/^/G:/"), ("NO_COLOR", "1")]);
    assert_eq!(paged, "G:A /new\n");
    std::fs::write(world.scratch().join(".gitconfig"), "[core]\npager = sed s/^/C:/\n").unwrap();
    let paged = shown("--color=never", &[("PAGER", "false")]);
    assert_eq!(paged, "C:A /new\n");
    let plain = shown("--no-pager --color never -p", &[("PAGER", "false")]);
    assert!(plain.ends_with("+x\\u{202e}\n"), "{plain:?}");
    assert_eq!(shown("--color never", &[("GIT_PAGER", "cat")]), "A /new\n");
}

#[test]
fn a_pager_that_cannot_run_or_fails_loses_nothing() {
    if !Path::new("/usr/bin/script").exists() {
        skip("no script(1) here");
        return;
    }
    let world = World::new(TREE);
    world.put("new", &"line\n".repeat(100_000));
    for (pager, why) in [
        ("no-such-pager", "No such file or directory"),
        ("false", "exit status 1"),
        ("exec no-such-pager", "exit status 127"),
        ("read line; exit 3", "exit status 3"),
    ] {
        for form in ["", "-p"] {
            let shown =
                on_a_terminal(&world, &format!("--color=never {form}"), &[("PAGER", pager)]);
            let note = format!("cannot show this with the pager {pager}: {why}");
            assert!(shown.contains(&note), "{pager}: {}", &shown[..shown.len().min(300)]);
            let lines = shown.matches("+line\n").count();
            let expected = if form == "-p" { lines == 100_000 } else { shown.contains("A /new\n") };
            assert!(expected, "{pager} {form}: {lines} lines");
        }
    }
    // It was content with what it read.
    let shown = on_a_terminal(&world, "--color=never -p", &[("PAGER", "head -1")]);
    assert_eq!(shown.lines().count(), 1, "{shown}");
}

#[test]
fn a_pattern_that_matches_no_change_is_said() {
    let world = changed();
    let said = |args: &[&str]| {
        let output = ask(&world, args);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let note = "note: no change matches *.none\n";
    assert_eq!(said(&["*.none"]), (Some(0), note.to_owned()));
    for form in ["--stat", "--json", "-p", "--name-only"] {
        assert_eq!(said(&["*.none", form]), (Some(0), note.to_owned()), "{form}");
    }
    let either = said(&["*.none", "dir/*", "te[x]t", ":!*.o"]);
    assert_eq!(either, (Some(1), note.to_owned()), "what matches is not named, nor an exclusion");
    assert_eq!(said(&["dir/*"]).1, "");
    assert_eq!(said(&["none"]).0, Some(2), "a path is no pattern");
    let (session, target) = (world.session(), world.scratch().join("out.tar"));
    let (session, target) = (session.to_str().unwrap(), target.to_str().unwrap());
    for (args, code, what) in [
        (&["apply", session, "-n"][..], 0, "change"),
        (&["discard", session], 1, "change"),
        (&["log", session], 1, "change in the log"),
        (&["export", session, "--tar", target], 0, "path"),
    ] {
        let output = run(world.scratch(), &[args, &["*.none"]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(&format!("note: no {what} matches *.none\n")), "{args:?}: {said}");
    }
}

#[test]
fn a_reader_that_has_had_enough_of_a_patch_is_no_failure() {
    let world = World::new(TREE);
    world.put("large", &"line\n".repeat(200_000));
    let program = env!("CARGO_BIN_EXE_acetate");
    for form in ["-p", "--numstat", "--stat"] {
        let line = format!("{program} diff {} {form}; echo $? >&2", world.session().display());
        let piped = format!("({line}) | head -1 >/dev/null");
        let output = Command::new("sh").args(["-c", &piped]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let expected = if form == "-p" { "0" } else { "1" };
        assert_eq!(said.trim(), expected, "{form}");
    }
}

#[test]
fn context_nodes_are_one_line() {
    let world = World::new("accounts/acme/notes \"x\"");
    for dir in ["users", "users/alice", "users/alice/memories", "users/alice/memories/profile"] {
        world.mkdir(format!("accounts/acme/{dir}")).unwrap();
    }
    world.put("accounts/acme/users/alice/memories/profile/content.md", "about");
    world.put("new", "x");
    let said = says(&world, &["--no-fold"]);
    assert!(said.starts_with("M /accounts/ (1 file of context nodes, 5 B)\n"), "{said}");
    assert!(said.contains("A /new\n") && !said.contains("content.md"), "{said}");
    assert!(says(&world, &["--no-fold", "--all"]).contains("content.md"));
    let patch = ask(&world, &["-p"]);
    assert!(String::from_utf8_lossy(&patch.stderr).contains("1 file of context nodes"));
}

#[test]
fn repositories_that_git_files_name_are_gits_own() {
    let world = World::new(
        r#"
        main/.git "gitdir: ../store/worktrees/main\n"
        main/file "x\n"
        store/HEAD "ref: refs/heads/main\n"
        store/refs/
        store/worktrees/main/HEAD "ref: refs/heads/main\n"
        "#,
    );
    world.put("main/file", "y\n");
    world.put("store/objects", "object");
    world.put("store/worktrees/main/HEAD", "ref: refs/heads/agent\n");
    assert_eq!(says(&world, &[]), "M /main/file\nM /store/ (2 files of git's own, 28 B)\n");
    assert!(!says(&world, &["-p"]).contains("store"));
}

/// A file `.git` that names a directory that is no repository takes nothing out of a review.
#[test]
fn a_git_file_hides_nothing_but_a_repository() {
    let mut world = World::new("src/a.c \"a\"\nstore/HEAD \"x\"\nstore/refs/\nstore/objects/\n");
    world.change_base();
    world.put("src/a.c", "changed\n");
    world.put("store/config", "mine\n");
    world.mkdir("new").unwrap();
    world.put("new/.git", "gitdir: ../src\n");
    world.put("new/file", "x\n");
    assert!(says(&world, &["-p"]).contains("b/src/a.c"), "{}", says(&world, &["-p"]));
    // The list and the patch agree, in a new directory too.
    world.put("new/.git", "gitdir: ../store\n");
    assert!(says(&world, &[]).contains("M /store/ (1 file of git's own"), "{}", says(&world, &[]));
    assert!(!says(&world, &["-p"]).contains("store/config"));
    // Another directory whose name only begins as that of the base.
    let outside = format!("gitdir: {}-old/store\n", world.base().display());
    world.put("new/.git", &outside);
    world.mkdir("-old").unwrap();
    for dir in ["-old/store", "-old/store/refs", "-old/store/objects"] {
        world.mkdir(dir).unwrap();
    }
    world.put("-old/store/HEAD", "x\n");
    assert!(says(&world, &["-p"]).contains("-old/store/HEAD"));
}

#[test]
fn too_many_files_for_renames_are_told() {
    let world = World::new("gone \"one\\ntwo\\n\"\n");
    world.remove("gone").unwrap();
    for number in 0..1001 {
        world.put(format!("new{number}"), &format!("{number}\n"));
    }
    for form in ["-p", "--stat"] {
        let output = ask(&world, &[form, "-M"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("there are 1001 files, and 1000 at most"), "{said}");
        let output = ask(&world, &[form]);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("renames"));
    }
}
