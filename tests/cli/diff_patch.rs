//! `acetate diff --patch` and the forms for people, compared with git.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::program::run;
use crate::support::world::World;
use acetate::vfs::Time;

fn ask(world: &World, args: &[&str]) -> Output {
    let session = world.session();
    run(world.scratch(), &[&["diff", session.to_str().unwrap()], args].concat())
}

/// What is printed to stdout and to stderr, with the exit code.
fn told(world: &World, args: &[&str]) -> (String, String, Option<i32>) {
    let output = ask(world, args);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

#[track_caller]
fn says(world: &World, args: &[&str]) -> String {
    let (said, error, code) = told(world, args);
    assert_eq!(code, Some(1), "{args:?}: {error}");
    said
}

/// Applies the patch to a copy of the base, and gives the copy's paths.
#[track_caller]
fn applied(world: &World, patch: &str) -> Vec<String> {
    let copy = world.scratch().join("copy");
    fs::write(world.scratch().join("patch"), patch).unwrap();
    let _none = fs::remove_dir_all(&copy);
    let copied = Command::new("cp").arg("-a").args([&world.base(), &copy]).status().unwrap();
    assert!(copied.success());
    let mut git = Command::new("git");
    git.args(["apply", "../patch"]).env("GIT_CEILING_DIRECTORIES", world.scratch());
    let output = git.current_dir(&copy).output().unwrap();
    assert!(output.status.success(), "{}\n{patch}", String::from_utf8_lossy(&output.stderr));
    let mut paths = Vec::new();
    below(&copy, "", &mut paths);
    paths.sort();
    paths
}

fn below(dir: &Path, above: &str, paths: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = format!("{above}{}", entry.file_name().into_string().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => {
                paths.push(format!("{path}/"));
                below(&entry.path(), &format!("{path}/"), paths);
            }
            false => paths.push(path),
        }
    }
}

/// A warning that a file is left out because of what `git apply` does not remove.
fn blocked(path: &str, obstacle: &str) -> String {
    format!(
        "warning: not in the patch: {path}: the base has {obstacle} there, which `git apply` does \
         not remove\n"
    )
}

#[test]
fn a_file_in_place_of_what_git_does_not_remove_is_left_out() {
    let mut world = World::new("d/a \"a\\n\"\nother \"o\\n\"\n");
    fs::create_dir(world.change_base().join("d/sub")).unwrap();
    world.rm_rf("d");
    world.put("d", "new\n");
    world.put("other", "changed\n");
    let (patch, said, code) = told(&world, &["-p"]);
    let empty = "not in the patch: 1 directory without files in it\n";
    assert_eq!(said, format!("{empty}{}", blocked("/d", "/d/sub")));
    assert_eq!(code, Some(2));
    assert_eq!(applied(&world, &patch), ["d/", "d/a", "d/sub/", "other"]);
    assert_eq!(fs::read_to_string(world.scratch().join("copy/other")).unwrap(), "changed\n");
    // The counts are of what the session changed, whatever git can do with it.
    assert!(says(&world, &["--shortstat"]).starts_with(" 3 files changed"));
}

#[test]
fn a_file_in_place_of_a_directory_is_in_the_patch_if_git_empties_the_directory() {
    let mut world = World::new("d/deep/a \"a\\n\"\nd/b \"b\\n\"\n");
    fs::create_dir(world.change_base().join("hollow")).unwrap();
    world.rename("d/b", "moved").unwrap();
    world.rm_rf("d");
    world.rm_rf("hollow");
    world.put("d", "new\n");
    world.symlink("d", "hollow").unwrap();
    let (patch, said, code) = told(&world, &["-p"]);
    assert_eq!((said.as_str(), code), ("", Some(1)));
    assert_eq!(applied(&world, &patch), ["d", "hollow", "moved"]);
}

#[test]
fn what_a_patch_leaves_out_blocks_a_file_in_its_place() {
    let mut world =
        World::new("d/.git/HEAD \"h\\n\"\ne/one \"1\\n\"\ne/two \"2\\n\"\nx \"x\\n\"\n");
    let base = world.change_base();
    let pipe = Command::new("mkfifo").arg(base.join("pipe")).status().unwrap();
    assert!(pipe.success());
    world.rm_rf("d");
    world.rm_rf("e");
    world.remove("pipe").unwrap();
    world.put("d", "new\n");
    world.rename("x", "e").unwrap();
    world.put("pipe", "new\n");
    let (patch, said, code) = told(&world, &["-p", ".", ":!e/two"]);
    let warnings =
        [("/d", "/d/.git/HEAD"), ("/e", "/e/two"), ("/pipe", "/pipe")].map(|(a, b)| blocked(a, b));
    assert!(said.ends_with(&warnings.concat()), "{said}");
    assert_eq!(code, Some(2));
    // Neither what they replace nor what was renamed to them is removed.
    assert_eq!(patch, "");
}

#[test]
fn empty_directories_that_are_gone_with_others_are_counted() {
    let mut world = World::new("d/a \"a\\n\"\nm/a \"a\\n\"\n");
    for dir in ["d/one", "m/two", "m/deep"] {
        fs::create_dir(world.change_base().join(dir)).unwrap();
    }
    world.rm_rf("d");
    world.rename("m", "n").unwrap();
    let (_, said, _) = told(&world, &["-p"]);
    assert_eq!(said, "not in the patch: 3 directories without files in them\n");
}

#[test]
fn stat_counts_what_moved_with_a_directory() {
    let world = World::new("top/a/one \"1\\n\"\ntop/a/two \"2\\n\"\nlast/one \"1\\n\"\n");
    world.rename("top/a", "top/b").unwrap();
    world.rename("last", "end").unwrap();
    let stat = says(&world, &["--stat"]);
    assert!(stat.contains("R /last => /end/ | 1 file\n"), "{stat}");
    assert!(stat.contains("R /top/{a => b}/ | 2 files\n"), "{stat}");
}

/// What git prints for the base and the merged tree.
fn git(world: &World, args: &[&str]) -> String {
    let session = world.session();
    let merged = world.scratch().join("merged");
    let _none = fs::remove_dir_all(&merged);
    let export = ["export", session.to_str().unwrap(), "--dir", merged.to_str().unwrap()];
    assert_eq!(run(world.scratch(), &export).status.code(), Some(0));
    let base = world.base();
    let base = base.file_name().unwrap().to_str().unwrap();
    let mut git = Command::new("git");
    git.args(["diff", "--no-index", "--full-index", "--no-renames"]).args(args);
    let output = git.args([base, "merged"]).current_dir(world.scratch()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    said.replace(&format!("/{base}/"), "/").replace("/merged/", "/")
}

/// A text of random lines, some of them long, some that end with CR and LF.
fn random_text(random: &mut impl FnMut(u64) -> u64) -> Vec<Vec<u8>> {
    let line = |random: &mut dyn FnMut(u64) -> u64| {
        let length = if random(8) == 0 { random(200) } else { random(30) };
        let mut line: Vec<u8> = (0..length).map(|_| b'a' + random(26) as u8).collect();
        line.extend(if random(6) == 0 { &b"\r\n"[..] } else { b"\n" });
        line
    };
    (0..5 + random(60)).map(|_| line(random)).collect()
}

#[test]
fn renames_have_the_similarity_that_git_counts() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut world = World::new("");
    let base = world.change_base();
    let mut texts = Vec::new();
    for number in 0..24 {
        let mut text = random_text(&mut random);
        if number % 6 == 0 {
            text[0][0] = 0;
        }
        fs::write(base.join(format!("old{number:02}")), text.concat()).unwrap();
        texts.push(text);
    }
    for (number, mut text) in texts.into_iter().enumerate() {
        // Less than half of it, so that git takes the two for one file.
        for _ in 0..random(1 + text.len() as u64 / 3) {
            let at = random(text.len() as u64) as usize;
            match random(3) {
                0 => drop(text.remove(at)),
                1 => text.insert(at, format!("new {}\n", random(1 << 40)).into_bytes()),
                _ => text[at].insert(0, b'x'),
            }
        }
        let (old, new) = (format!("old{number:02}"), format!("new{number:02}"));
        let mut text = text.concat();
        if random(2) == 0 {
            text.pop();
        }
        if number % 2 == 0 {
            world.rename(&old, &new).unwrap();
        } else {
            world.remove(&old).unwrap();
        }
        world.put(&new, "");
        world.write(&new, 0, &text).unwrap();
    }
    let lines = |patch: &str| -> Vec<String> {
        let lines = patch.lines().filter(|line| {
            ["diff --git ", "similarity ", "dissimilarity "]
                .iter()
                .any(|start| line.starts_with(start))
        });
        lines.map(str::to_owned).collect()
    };
    let args = ["-p", "-M30%"];
    let ours = lines(&says(&world, &args));
    assert_eq!(ours, lines(&git(&world, &args)));
    assert!(ours.iter().filter(|line| line.starts_with("similarity index ")).count() > 20);
}

#[test]
fn words_are_shown_as_git_shows_them() {
    let texts = [
        (
            "    gone one\nkeep\nfoo bar baz\n\tindent x\nlast bit",
            "keep\nfoo baz\n\tindent x\nlast",
        ),
        ("keep\nfoo baz\nlast", "    new one\nkeep\nfoo bar baz\n  more\n\nlast bit"),
        ("if a {\n    b;\n    c;\n}\n", "while a {\n        b;\n}\n"),
        ("  one two\n  three four\n\n", "one\nthree\nfive  six\n"),
        ("\tonly\n", ""),
        ("", "  only\n"),
        ("a b c d e f\n", "a c B d f e\n"),
    ];
    for (old, new) in texts {
        let mut world = World::new("");
        fs::write(world.change_base().join("text"), old).unwrap();
        world.put("text", new);
        for args in [&["--word-diff"][..], &["--word-diff", "-U0"], &["-w", "--word-diff"]] {
            assert_eq!(told(&world, args).0, git(&world, args), "{args:?}: {old:?} -> {new:?}");
        }
        // git also resets the colour where none is set.
        let args = ["--word-diff", "--color=always"];
        let [ours, gits] =
            [told(&world, &args).0, git(&world, &args)].map(|said| said.replace("\x1b[m\n", "\n"));
        assert_eq!(ours, gits, "{old:?} -> {new:?}");
    }
}

#[test]
fn forms_for_people_have_no_binary_contents() {
    let mut world = World::new("");
    let base = world.change_base();
    for (name, content) in [("gone", "\0g"), ("name", "\0n")] {
        fs::write(base.join(name), content).unwrap();
    }
    world.remove("gone").unwrap();
    world.put("new é", "");
    world.write("new é", 0, b"\0new").unwrap();
    world.write("name", 0, b"\0\0").unwrap();
    for args in [&["-p", "-w"][..], &["--word-diff"]] {
        let said = says(&world, args);
        assert!(said.contains("Binary files a/name and b/name differ\n"), "{said}");
        let git_args = &args[args.len() - 1..];
        assert_eq!(said, git(&world, git_args));
    }
    assert!(says(&world, &["-p"]).contains("GIT binary patch"));
}

#[test]
fn lines_of_context_ask_for_a_patch() {
    let world = World::new("text \"1\\n2\\n3\\n4\\n5\\n\"\n");
    world.put("text", "1\n2\nx\n4\n5\n");
    let patch = says(&world, &["-U1"]);
    assert_eq!(patch, says(&world, &["-p", "-U1"]));
    assert!(patch.ends_with("@@ -2,3 +2,3 @@\n 2\n-3\n+x\n 4\n"), "{patch}");
    for form in ["--stat", "--numstat", "--shortstat", "--name-only", "--name-status", "--json"] {
        assert_eq!(told(&world, &["-U1", form]).2, Some(2), "{form}");
    }
}

#[test]
fn hunks_name_the_path_that_differences_name() {
    let world = World::new("kept \"1\\n\"\ndir/one \"1\\n\"\ndir/two \"2\\n\"\ngone \"g\\n\"\n");
    world.put("kept", "2\n");
    world.remove("gone").unwrap();
    world.rename("dir", "moved").unwrap();
    world.remove("moved/one").unwrap();
    let paths = |args: &[&str]| -> Vec<(String, String)> {
        let field = |object: &Value, key: &str| object[key].as_str().unwrap().to_owned();
        let said = says(&world, args);
        let objects = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        objects.map(|object| (field(&object, "path"), field(&object, "change"))).collect()
    };
    let differences = paths(&["--json"]);
    assert!(
        differences.contains(&("/dir/one".to_owned(), "deleted".to_owned())),
        "{differences:?}"
    );
    assert_eq!(paths(&["--json", "--hunks"]), differences);
}

/// git touches the objects that it would write again; `apply` also sets times.
#[test]
fn files_of_gits_own_are_counted_apart_from_their_times() {
    let tree =
        ".git/HEAD \"h\\n\"\n.git/objects/aa/1 \"1\"\n.git/objects/aa/2 \"2\"\nfile \"f\\n\"\n";
    let world = World::new(tree);
    world.put(".git/HEAD", "other\n");
    for object in ["1", "2"] {
        let time = world.stat(format!(".git/objects/aa/{object}")).mtime;
        let time = Time { secs: time.secs + 100, ..time };
        world.utimes(format!(".git/objects/aa/{object}"), time).unwrap();
    }
    let own = "M /.git/ (1 file of git's own, 6 B";
    assert_eq!(says(&world, &[]), format!("{own})\n"));
    let with_times = format!("{own}, and times of 2 more)\n");
    assert_eq!(says(&world, &["--times"]), with_times);
    let session = world.session();
    let apply = |args: &[&str]| {
        let output = run(world.scratch(), &[&["apply", session.to_str().unwrap()], args].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    let plan = apply(&["--dry-run"]);
    assert!(plan.starts_with(&with_times), "{plan}");
    let plan = apply(&["--dry-run", ".git/objects"]);
    assert!(plan.starts_with("M /.git/ (times of 2 files of git's own)\n"), "{plan}");
}

#[test]
fn stat_leaves_out_files_in_which_only_ignored_spaces_changed() {
    let world = World::new("a \"1\\n2\\n\"\nb \"1\\n2\\n\"\nc \"1\\n2\\n\"\nd \"1\\n\"\n");
    world.put("a", "1 \n\t2\n");
    world.put("b", "1 \n\t3\n");
    world.put("c", "1 \n\t2\n");
    world.chmod("c", 0o755).unwrap();
    world.rename("d", "e").unwrap();
    let stat = says(&world, &["-w", "--stat"]);
    assert!(!stat.contains("/a"), "{stat}");
    assert!(stat.contains("M /b       | 2 +-\n") && stat.contains("M /c       | mode"), "{stat}");
    assert!(
        stat.contains("3 changes: 2 modified, 1 renamed\n")
            && stat.contains("\n 3 files changed, 1 ins"),
        "{stat}"
    );
    assert_eq!(says(&world, &["-w", "--numstat"]).lines().count(), 3);
    assert!(says(&world, &["--stat"]).contains("M /a       | 4 ++--\n"));
    assert_eq!(says(&world, &["-w", "--stat", "a"]), "");
    // The list is of all that differs.
    assert_eq!(says(&world, &["-w", "a"]), "M /a\n");
}

#[test]
fn hunks_name_the_function_that_they_are_in_as_git_does() {
    let body = |changed: u32| -> String {
        (0..12)
            .map(|n| if n == changed { "\tnew;\n".to_owned() } else { format!("\t{n};\n") })
            .collect()
    };
    let text = |a: u32, b: u32, c: u32| {
        let long = format!("$long_{}", "é".repeat(60));
        [
            format!("first(\u{202e}) \t\n{{\n{}}}\n", body(a)),
            format!("{long}\n{}  indented\n", body(b)),
            format!("9\nélan\n-\n{}_last\n", body(c)),
        ]
        .concat()
    };
    let mut world = World::new("");
    fs::write(world.change_base().join("text"), text(99, 99, 99)).unwrap();
    world.put("text", &text(8, 8, 8));
    for args in [&["-p"][..], &["-U0"], &["-U1"], &["-p", "-w"], &["-U20"]] {
        let gits = args.iter().copied().filter(|arg| *arg != "-p").collect::<Vec<_>>();
        let ours = run(world.scratch(), &[&["diff", "session.db"], args].concat());
        assert_eq!(String::from_utf8_lossy(&ours.stdout), git(&world, &gits), "{args:?}");
    }
    let shown = says(&world, &["-p", "--color=always"]);
    assert!(shown.contains("\x1b[36m@@ -8,7 +8,7 @@\x1b[m first(\\u{202e})\n"), "{shown:?}");
}

/// Of a content that stays, nothing is in the patch.
#[test]
fn a_large_file_that_only_moved_or_changed_its_mode_is_in_the_patch() {
    let mut world = World::new("mode \"\"\nmoved \"\"\ndir/along \"\"\nother \"\"\n");
    let base = world.change_base();
    for file in ["mode", "moved", "dir/along", "other"] {
        fs::File::options().write(true).open(base.join(file)).unwrap().set_len(513 << 20).unwrap();
    }
    world.chmod("mode", 0o755).unwrap();
    world.rename("moved", "renamed").unwrap();
    world.rename("dir", "new").unwrap();
    world.write("other", 0, b"x").unwrap();
    let (patch, said, code) = told(&world, &["-p"]);
    let header = |from: &str, to: &str, what: &str| format!("diff --git a/{from} b/{to}\n{what}\n");
    let renamed = |from: &str, to: &str| {
        let what = format!("similarity index 100%\nrename from {from}\nrename to {to}");
        header(from, to, &what)
    };
    let mode = header("mode", "mode", "old mode 100644\nnew mode 100755");
    assert_eq!(patch, mode + &renamed("dir/along", "new/along") + &renamed("moved", "renamed"));
    assert_eq!(
        (said.as_str(), code),
        ("not in the patch: /other: larger than 512.0 MiB\n", Some(1))
    );
    let stat = says(&world, &["--stat"]);
    assert!(stat.contains(" | mode 0644 -> 0755\n"), "{stat}");
    assert!(stat.contains("| Bin 537919488 -> 537919488 bytes\n"), "{stat}");
}
