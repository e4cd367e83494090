//! Relative paths begin at the current directory in the base, in every command with paths; a slash
//! at the end of a path means a directory.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::change::in_both;
use super::program::run;

#[test]
fn relative_paths_begin_at_the_current_directory() {
    in_both(|place| {
        let dir = place.host("base/dir");
        let does = |args: &[&str]| {
            let (command, rest) = args.split_first().unwrap();
            let output = run(&dir, &[&[*command, "../../s.db"], rest].concat());
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
            String::from_utf8(output.stdout).unwrap()
        };
        let kept = place.host("base/kept");
        let kept = kept.to_str().unwrap();
        assert_eq!(does(&["cat", "file", "../kept", "/kept"]), "contentkeptkept");
        assert_eq!(does(&["ls", "."]), "file\nsub\n");
        assert_eq!(does(&["ls"]), "file\nsub\n");
        assert_eq!(does(&["find"]), "/dir\n/dir/file\n/dir/sub\n/dir/sub/deep\n");
        assert!(does(&["tree"]).starts_with("/dir\n"));
        assert!(does(&["du"]).ends_with("/dir\n"));
        assert_eq!(does(&["ls", "/"]), "dir\nkept\nlink\n");
        assert_eq!(does(&["find", "sub"]), "/dir/sub\n/dir/sub/deep\n");
        assert!(does(&["tree", "sub"]).starts_with("/dir/sub\n"));
        assert!(does(&["du", "sub"]).contains("/dir/sub\n"));
        assert!(does(&["stat", "file"]).contains("/dir/file"));
        does(&["write", "written", "--from", kept]);
        does(&["mkdir", "new"]);
        does(&["touch", "new/touched"]);
        does(&["cp", kept, ":copied"]);
        does(&["cp", ":file", ":new/within"]);
        does(&["cp", ":../kept", "../../out"]);
        does(&["mv", "copied", "new"]);
        does(&["ln", "file", "again"]);
        does(&["ln", "-s", "file", "symbolic"]);
        does(&["chmod", "600", "written"]);
        does(&["mkdir", "going"]);
        does(&["rmdir", "going"]);
        does(&["rm", "-r", "sub"]);
        assert_eq!(
            place.says(0, "find", &["dir", "--changed"]),
            "/dir\n/dir/again\n/dir/file\n/dir/new\n/dir/new/copied\n/dir/new/touched\n\
             /dir/new/within\n/dir/symbolic\n/dir/written\n"
        );
        assert_eq!(place.says(0, "ls", &[]), "dir\nkept\nlink\n");
        let outside = run(&dir, &["cat", "../../s.db", "../../kept"]);
        let said = String::from_utf8_lossy(&outside.stderr).into_owned();
        assert_eq!(said, "error: ../../kept: not a path in the session's tree\n");
        for command in ["cat", "ls", "rm", "mkdir", "write"] {
            let said = place.says(2, command, &[""]);
            assert!(said.starts_with("error: an empty path names nothing"), "{command}: {said}");
        }
    });
}

/// Each of these commands does, or refuses, the same as the program of that name on the host.
#[test]
fn a_slash_at_the_end_means_a_directory() {
    in_both(|place| {
        let host = place.host("host");
        fs::create_dir_all(host.join("dir/sub")).unwrap();
        for (path, content) in [("dir/file", "content"), ("dir/sub/deep", "deep"), ("kept", "kept")]
        {
            fs::write(host.join(path), content).unwrap();
        }
        std::os::unix::fs::symlink("dir/file", host.join("link")).unwrap();
        let names = || {
            let mut find = Command::new("find");
            let found = find.args([".", "-mindepth", "1"]).current_dir(&host).output().unwrap();
            let found = String::from_utf8(found.stdout).unwrap();
            let mut names: Vec<_> = found.lines().map(|name| name[1..].to_owned()).collect();
            names.sort();
            names
        };
        for (line, is_done) in [
            ("mv kept none/", false),
            ("mv kept dir/file/", false),
            ("mv kept/ other", false),
            ("ln -s kept none/", false),
            ("ln kept none/", false),
            ("touch none/", false),
            ("touch kept/", false),
            ("touch -c none/", true),
            ("rm kept/", false),
            ("rm link/", false),
            ("rmdir kept/", false),
            ("chmod 600 kept/", false),
            ("mkdir made/", true),
            ("mv dir/sub moved/", true),
            ("mv kept dir/", true),
            ("rmdir made/", true),
            ("rm -r moved/", true),
        ] {
            let (program, rest) = line.split_once(' ').unwrap();
            let mut on_host = Command::new(program);
            on_host.args(rest.split(' ')).current_dir(&host).stderr(Stdio::null());
            assert_eq!(on_host.status().unwrap().success(), is_done, "{line} on the host");
            let args: Vec<_> = rest.split(' ').collect();
            let said = place.says(if is_done { 0 } else { 2 }, program, &args);
            assert_eq!(!is_done, said.contains(": not a directory"), "{line}: {said}");
            let found = place.says(0, "find", &["/"]);
            assert_eq!(found.lines().skip(1).collect::<Vec<_>>(), names(), "{line}");
        }
        let copied = place.host("copied");
        fs::write(&copied, "x").unwrap();
        for args in [
            &["cp", "copied", ":none/"][..],
            &["cp", ":dir/kept/", "out"],
            &["cp", ":dir/kept", ":none/"],
            &["cp", ":dir/kept", "none/"],
            &["write", "none/"],
            &["write", "dir/kept/"],
            &["cat", "dir/kept/"],
        ] {
            let said = place.says(2, args[0], &args[1..]);
            assert!(said.contains(": not a directory\n"), "{args:?}: {said}");
        }
        assert!(place.says(2, "write", &["dir/"]).contains("is a directory"));
        place.does("cp", &["-r", "host", ":made/"]);
        place.does("cp", &["-r", ":made", "out/"]);
        assert!(host.join("../out/dir/kept").exists());
        // The other paths are removed all the same.
        let said = place.says(1, "rm", &["dir/kept/", "dir/file"]);
        assert_eq!(said, "error: /dir/kept: not a directory\n");
        assert_eq!(place.says(0, "ls", &["dir"]), "kept\n");
    });
}

#[test]
fn touch_follows_links_within_the_tree() {
    in_both(|place| {
        let time = |path: &str| {
            let said = place.says(0, "stat", &[path, "--json"]);
            serde_json::from_str::<Value>(&said).unwrap()["mtime"].clone()
        };
        let at = |year: u32| format!("{year}-02-03T04:05:06Z");
        for (target, link) in
            [("dir/../link", "again"), ("sub", "dir/in"), ("none", "dir/dangling"), ("/x", "out")]
        {
            place.does("ln", &["-s", target, link]);
        }
        place.does("ln", &["-s", "loop", "loop"]);
        let before = time("link");
        place.does("touch", &["-d", &at(2001), "again", "dir/dangling"]);
        place.does("touch", &["-d", &at(2002), "dir/in/deep"]);
        assert_eq!(time("dir/file"), at(2001));
        assert_eq!(time("dir/sub/deep"), at(2002));
        assert_eq!(time("link"), before);
        assert_eq!(place.cat("dir/none"), "");
        place.does("touch", &["--no-dereference", "-d", &at(2003), "link"]);
        assert_eq!((time("link"), time("dir/file")), (at(2003).into(), at(2001).into()));
        assert!(place.says(2, "touch", &["out"]).contains("/out: a symbolic link leads out of"));
        assert!(place.says(2, "touch", &["loop"]).contains("/loop: too many levels of symbolic"));
    });
}

#[test]
fn rm_with_force_says_nothing_about_paths_that_are_not_there() {
    in_both(|place| {
        place.does("rm", &["-f", "none", "none/x", "kept/x", "kept", "kept"]);
        place.does("rm", &["-rf", "dir/sub", "dir/none"]);
        place.does("rm", &["--force", "none"]);
        assert_eq!(place.says(0, "find", &["/"]), "/\n/dir\n/dir/file\n/link\n");
        assert!(place.says(2, "rm", &["-f", "dir"]).contains("/dir: is a directory"));
        let said = place.says(0, "rm", &["-f", "none", "--json"]);
        assert!(said.contains("\"removed\":0"), "{said}");
    });
}
