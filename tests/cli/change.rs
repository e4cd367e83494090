//! The commands that change the tree: write, cp, mkdir, rm, discard; and `sessions`. Each both
//! where a server has the session and where nobody does.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::program::{HalfWritten, Serving, acetate, run};
use crate::support::check::assert_consistent;
use crate::support::fixture;
use crate::support::host_tree::HostTree;

const BASE: &str = r#"
    dir/file 640 "content"
    dir/sub/deep "deep"
    kept "kept"
    link -> dir/file
"#;

/// A session over a base, served or not.
pub(super) struct Place {
    dir: TempDir,
    server: Option<Serving>,
    before: HostTree,
}

impl Place {
    pub(super) fn new(is_served: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("base")).unwrap();
        fixture::build(&dir.path().join("base"), BASE);
        let before = HostTree::read(&dir.path().join("base"));
        let made = run(dir.path(), &["init", "s.db", "--base", "base"]);
        assert!(made.status.success());
        let mut place = Self { dir, server: None, before };
        if is_served {
            place.serve();
        }
        place
    }

    fn serve(&mut self) {
        self.server = Some(Serving::start(self.path(), 1, &["s.db"]));
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn host(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Runs a command on the session with this on stdin.
    fn ask_with(&self, stdin: &[u8], command: &str, args: &[&str]) -> Output {
        let mut child = acetate(self.path(), &[&[command, "s.db"], args].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(stdin).unwrap();
        child.wait_with_output().unwrap()
    }

    #[track_caller]
    pub(super) fn says(&self, code: i32, command: &str, args: &[&str]) -> String {
        let output = self.ask_with(b"", command, args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{command} {args:?}: {said}");
        String::from_utf8(output.stdout).unwrap() + &said
    }

    #[track_caller]
    pub(super) fn does(&self, command: &str, args: &[&str]) {
        assert_eq!(self.says(0, command, args), "");
    }

    #[track_caller]
    pub(super) fn cat(&self, path: &str) -> String {
        self.says(0, "cat", &[path])
    }

    /// Ends the server, and looks at what is left.
    #[track_caller]
    fn end(&mut self) {
        if let Some(server) = self.server.take() {
            server.signal("TERM");
            assert!(server.end().0.success());
        }
        assert_eq!(self.before, HostTree::read(&self.host("base")), "the base changed");
        let names = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let left: Vec<_> = fs::read_dir(self.path()).unwrap().map(names).collect();
        let ours = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("s.db-");
        assert!(!left.iter().any(ours), "{left:?}");
        assert_consistent(&self.host("s.db"));
    }
}

pub(super) fn in_both(test: impl Fn(&mut Place)) {
    for is_served in [false, true] {
        let mut place = Place::new(is_served);
        test(&mut place);
        place.end();
    }
}

#[test]
fn a_file_is_written() {
    in_both(|place| {
        let written = place.ask_with(b"one\n", "write", &["new", "--mode", "600", "--json"]);
        let json: Value = serde_json::from_slice(&written.stdout).unwrap();
        assert_eq!((&json["path"], &json["bytes"]), (&"/new".into(), &4.into()));
        assert!(place.ask_with(b"two\n", "write", &["/new", "-a"]).status.success());
        assert_eq!(place.cat("new"), "one\ntwo\n");
        assert!(place.ask_with(b"x", "write", &["dir/file"]).status.success());
        assert_eq!(place.cat("dir/file"), "x");
        let long = place.says(0, "ls", &["-l", "dir/file", "new"]);
        assert!(long.contains("-rw-r-----") && long.contains("-rw-------"), "{long}");
        let large = vec![b'l'; 5 << 20];
        fs::write(place.host("large"), &large).unwrap();
        place.does("write", &["large", "--from", "large"]);
        assert!(place.cat("large").as_bytes() == large);
        let log = place.says(0, "log", &["new"]);
        assert!(log.contains("127.0.0.1:0"), "{log}");
    });
}

#[test]
fn what_is_half_written_when_the_server_stops_is_taken_back() {
    // Large content is gathered in a file of its own.
    for path in ["kept", "new"] {
        let mut place = Place::new(true);
        let writing = HalfWritten::begin(place.path(), "s.db", path);
        let deadline = Instant::now() + Duration::from_secs(20);
        let listed = loop {
            let listed = place.says(0, "ls", &[]);
            if listed.contains(".acetate-write-") {
                break listed;
            }
            assert!(Instant::now() < deadline, "{path}: nothing is written");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(!listed.contains("new"), "{listed}");
        assert_eq!(place.says(0, "diff", &[]), "");
        place.end();
        writing.assert_told_to_stop();
        assert_eq!(place.says(0, "ls", &[]), "dir\nkept\nlink\n");
        assert_eq!(place.cat("kept"), "kept");
        let refused = place.says(2, "discard", &["/"]);
        assert!(
            refused.starts_with("error: cannot ask without a terminal: nothing was discarded\n"),
            "{refused}"
        );
    }
}

#[test]
fn what_cannot_be_written_is_said() {
    in_both(|place| {
        for (args, what) in [
            (&["kept", "--new"][..], "/kept: file exists"),
            (&["dir"], "/dir: is a directory"),
            (&["link"], "/link: is not a regular file"),
            (&["no/where"], "/no: no such file or directory"),
            (&["kept/below"], "/kept: not a directory"),
            (&["../out"], "not a path in the session's tree"),
            (&["kept", "--from", "dir-that-is-not"], "dir-that-is-not"),
            (&["kept", "--from", "base"], "is a directory"),
        ] {
            let said = place.says(2, "write", args);
            assert!(said.starts_with("error: ") && said.contains(what), "{args:?}: {said}");
        }
        assert_eq!(place.cat("kept"), "kept");
        assert_eq!(place.says(0, "diff", &[]), "");
    });
}

#[test]
fn directories_are_made_and_removed() {
    in_both(|place| {
        place.does("mkdir", &["a", "--mode", "700"]);
        place.does("mkdir", &["-p", "a/b/c", "dir/new"]);
        assert!(place.says(2, "mkdir", &["x/y"]).contains("/x: no such file"));
        assert!(place.says(2, "mkdir", &["x/y"]).contains("hint: -p makes the directories above"));
        assert!(place.says(2, "mkdir", &["dir"]).contains("/dir: file exists"));
        assert!(place.says(2, "mkdir", &["-p", "kept/x"]).contains("/kept: not a directory"));
        assert_eq!(place.says(0, "find", &["a"]), "/a\n/a/b\n/a/b/c\n");
        assert!(place.says(0, "ls", &["-l"]).contains("drwx------"));
        let said = place.says(2, "rm", &["dir"]);
        assert!(said.contains("/dir: is a directory") && said.contains("-r"), "{said}");
        let removed = place.says(0, "rm", &["-r", "dir", "kept", "--json"]);
        let counts: Vec<Value> = removed
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["removed"].clone())
            .collect();
        assert_eq!(counts, [5, 1]);
        let diff = place.says(1, "diff", &[]);
        assert_eq!(diff, "A /a/ (2 directories)\nD /dir/ (2 files, 11 B)\nD /kept\n");
        assert!(place.says(2, "rm", &["dir"]).contains("/dir: no such file"));
        assert!(place.says(2, "rm", &["/"]).contains("the root"));
    });
}

#[test]
fn files_are_copied_in_out_and_within() {
    in_both(|place| {
        fixture::build(&place.host("in"), "a 755 \"a\"\nsub/b 600 \"b\"\nsub/l -> ../a\npipe fifo");
        let said = place.says(1, "cp", &["-r", "in", ":/copied"]);
        assert_eq!(said, "left out: in/pipe: is a fifo\n");
        assert_eq!(place.cat("copied/sub/b"), "b");
        place.does("cp", &[":copied/a", ":/dir/file", ":/dir/sub"]);
        assert_eq!(
            (place.cat("dir/sub/a"), place.cat("dir/sub/file")),
            ("a".into(), "content".into())
        );
        place.does("cp", &["-r", ":copied", "out"]);
        let (inside, outside) = (place.host("in"), place.host("out"));
        for name in ["", "a", "sub", "sub/b"] {
            let meta = |dir: &Path| dir.join(name).metadata().unwrap();
            let (inside, outside) = (meta(&inside), meta(&outside));
            let brief = |m: &fs::Metadata| (m.permissions().mode(), m.mtime(), m.mtime_nsec());
            assert_eq!(brief(&inside), brief(&outside), "{name}");
        }
        assert_eq!(fs::read(outside.join("sub/b")).unwrap(), b"b");
        assert_eq!(fs::read_link(outside.join("sub/l")).unwrap(), Path::new("../a"));
        // Again over what is there.
        place.does("cp", &["-r", ":copied", "out"]);
        assert_eq!(fs::read(outside.join("copied/sub/b")).unwrap(), b"b");
        for (args, what) in [
            (&["in", ":x"][..], "in: is a directory"),
            (&["in", "elsewhere"], "both sides are on this machine"),
            (&["-r", ":copied", ":copied/sub"], "into itself"),
            (&[":kept", ":copied", ":dir/file"], "not a directory"),
            (&[":nothing", "x"], "nothing"),
        ] {
            let said = place.says(2, "cp", args);
            assert!(said.contains(what), "{args:?}: {said}");
        }
    });
}

#[test]
fn a_copy_out_runs_as_nobody_else() {
    in_both(|place| {
        fixture::build(&place.host("in"), "program 6755 \"a\"\ndir/file \"b\"");
        fs::set_permissions(place.host("in/dir"), Permissions::from_mode(0o2755)).unwrap();
        place.does("cp", &["-r", "in", ":/copied"]);
        place.does("cp", &["-r", ":copied", "out"]);
        // Again over what is there.
        place.does("cp", &[":copied/program", "out/program"]);
        for (name, mode) in [("program", 0o755), ("dir", 0o755)] {
            let made = place.host("out").join(name).metadata().unwrap();
            assert_eq!(made.permissions().mode() & 0o7777, mode, "{name}");
        }
    });
}

#[test]
fn a_copy_out_does_not_overwrite_what_it_reads() {
    in_both(|place| {
        let (kept, changed) = (place.host("base/kept"), place.host("base/dir/file"));
        let before = fs::read(&kept).unwrap();
        fs::hard_link(&kept, place.host("base/other")).unwrap();
        for args in [[":kept", "base"], [":kept", "base/other"], [":kept", "base/kept"]] {
            let said = place.says(2, "cp", &args);
            assert!(said.contains("are the same file") && said.contains("apply"), "{said}");
            assert_eq!(fs::read(&kept).unwrap(), before, "{args:?}");
        }
        let said = place.says(2, "cp", &[":kept", "s.db"]);
        assert!(said.contains("s.db: is a file of the session"), "{said}");
        // What the session has all of goes where it is told to.
        place.does("cp", &[":kept", ":dir/file"]);
        place.does("cp", &[":dir/file", "base/dir"]);
        assert_eq!(fs::read(&changed).unwrap(), before);
        place.before = HostTree::read(&place.host("base"));
    });
}

#[test]
fn a_copy_out_follows_no_link() {
    in_both(|place| {
        fs::create_dir(place.host("out")).unwrap();
        fs::write(place.host("precious"), "precious").unwrap();
        std::os::unix::fs::symlink("../precious", place.host("out/kept")).unwrap();
        std::os::unix::fs::symlink("..", place.host("out/dir")).unwrap();
        place.says(2, "cp", &[":kept", "out"]);
        place.says(2, "cp", &["-r", ":dir", "out"]);
        assert_eq!(fs::read_to_string(place.host("precious")).unwrap(), "precious");
        assert!(!place.host("file").exists());
    });
}

#[test]
fn changes_are_discarded() {
    in_both(|place| {
        place.does("rm", &["-r", "dir"]);
        place.does("mkdir", &["fresh"]);
        assert!(place.ask_with(b"x", "write", &["kept"]).status.success());
        let said = place.says(0, "discard", &["kept", "-n"]);
        assert_eq!(said, "would discard: /kept\n1 change would be discarded\n");
        assert_eq!(place.cat("kept"), "x");
        let said = place.says(1, "discard", &["kept", "dir/file", "link"]);
        assert_eq!(
            said,
            "discarded: /kept\n1 change discarded\nthe tree before is checkpoint 1: \
             `acetate undo s.db` brings it back\n/dir/file: cannot come back by itself: \
             discard /dir\n/link: nothing to discard\n"
        );
        assert_eq!(place.cat("kept"), "kept");
        let json = place.says(0, "discard", &["/", "--yes", "--json"]);
        let lines: Vec<Value> = json.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!((&lines[0]["path"], &lines[1]["paths"]), (&"/".into(), &1.into()));
        assert_eq!(place.says(0, "diff", &["--all"]), "");
        assert_eq!(place.says(1, "discard", &["/", "-y"]), "/: nothing to discard\n");
        let neither = place.says(2, "discard", &["neither/x"]);
        assert!(neither.starts_with("error: /neither/x: no such file or directory\n"), "{neither}");
        assert_eq!(place.cat("dir/file"), "content");
        assert!(place.says(0, "log", &[]).contains("DISCARD"));
    });
}

#[test]
fn sessions_are_listed_while_they_are_served() {
    let mut place = Place::new(false);
    let runtime_dir = place.host("run");
    fs::create_dir(&runtime_dir).unwrap();
    let ask = |args: &[&str]| {
        let mut command = acetate(place.path(), &[&["sessions"], args].concat());
        command.env("XDG_RUNTIME_DIR", &runtime_dir).output().unwrap()
    };
    let none = ask(&[]);
    assert_eq!(none.status.code(), Some(1));
    assert!(none.stdout.is_empty());
    let serve = || {
        let mut command = acetate(place.path(), &["serve", "s.db", "--listen", "127.0.0.1:0"]);
        let command = command.env("XDG_RUNTIME_DIR", &runtime_dir).stderr(Stdio::null());
        let server = command.spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !place.host("s.db-control").exists() || !ask(&["--json"]).status.success() {
            assert!(Instant::now() < deadline, "not listed");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    };
    // One that was killed, and that nobody noticed, is not listed beside the next one.
    let entries = runtime_dir.join("acetate");
    let mut killed = serve();
    killed.kill().unwrap();
    killed.wait().unwrap();
    fs::remove_file(place.host("s.db-control")).unwrap();
    assert_eq!(fs::read_dir(&entries).unwrap().count(), 1);
    let mut server = serve();
    let listed = ask(&["--json"]);
    let json: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let real = place.path().canonicalize().unwrap();
    assert_eq!(json["session"], real.join("s.db").to_str().unwrap());
    assert_eq!(json["base"], real.join("base").to_str().unwrap());
    assert_eq!(json["pid"], server.id());
    assert!(json["addresses"][0].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(json["mounts"], Value::from([""; 0].as_slice()));
    let status = place.says(0, "status", &["--json"]);
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(
        (&status["addresses"], &status["clients"]),
        (&json["addresses"], &Value::from([0; 0].as_slice()))
    );
    let socket = place.host("s.db-control").metadata().unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    // A server that was killed is not listed, and leaves nothing that stays.
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(ask(&[]).status.code(), Some(1));
    assert_eq!(fs::read_dir(entries).unwrap().count(), 0);
    place.does("rm", &["kept"]);
    fs::remove_file(place.host("s.db-control")).unwrap();
    place.end();
}

#[test]
fn a_long_path_takes_a_socket_too() {
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("d".repeat(120));
    fs::create_dir(&long).unwrap();
    let server = Serving::start(&long, 1, &["s.db"]);
    let made = run(&long, &["mkdir", "s.db", "made"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(run(&long, &["ls", "s.db"]).stdout, b"made\n");
    drop(server);
}

#[test]
fn one_path_that_fails_keeps_no_other_from_being_done() {
    in_both(|place| {
        fixture::build(&place.host("in"), "a \"a\"\nb \"b\"");
        let said = place.says(1, "cp", &["in/a", "in/nosuch", "in/b", ":/dir"]);
        assert!(said.starts_with("error: in/nosuch: No such file"), "{said}");
        assert_eq!((place.cat("dir/a"), place.cat("dir/b")), ("a".into(), "b".into()));
        let said = place.says(1, "rm", &["dir/a", "nosuch", "/neither", "dir/b"]);
        let nosuch = "no such file or directory";
        assert_eq!(said, format!("error: /nosuch: {nosuch}\nerror: /neither: {nosuch}\n"));
        assert_eq!(place.says(0, "ls", &["dir"]), "file\nsub\n");
        let said = place.says(2, "rm", &["nosuch", "neither"]);
        assert_eq!(said, format!("error: /nosuch: {nosuch}\nerror: /neither: {nosuch}\n"));
        let said = place.says(1, "cat", &["dir", "kept", "nosuch"]);
        assert_eq!(said, format!("kepterror: /dir: is a directory\nerror: /nosuch: {nosuch}\n"));
        assert_eq!(place.says(2, "cat", &["link"]), "error: /link: is a symlink\n");
    });
}

#[test]
fn what_is_in_a_directory_is_copied_by_its_dot() {
    in_both(|place| {
        fixture::build(&place.host("in"), "a \"a\"\nsub/b \"b\"");
        place.does("cp", &["-r", "in/.", ":/"]);
        assert_eq!(place.says(0, "ls", &[]), "a\ndir\nkept\nlink\nsub\n");
        place.does("cp", &["-r", ":/dir/.", ":/sub"]);
        assert_eq!(
            place.says(0, "find", &["sub"]),
            "/sub\n/sub/b\n/sub/file\n/sub/sub\n/sub/sub/deep\n"
        );
    });
}

#[test]
fn things_are_moved_and_linked() {
    in_both(|place| {
        place.does("mv", &["kept", "renamed"]);
        assert_eq!(place.cat("renamed"), "kept");
        place.does("mv", &["renamed", "link", "dir/sub"]);
        assert_eq!(place.says(0, "ls", &["dir/sub"]), "deep\nlink\nrenamed\n");
        for (args, what) in [
            (&["dir", "dir/sub"][..], "/dir: cannot be moved into itself"),
            (&["dir/file", "dir/file"], "/dir/file: already exists"),
            (&["dir/file", "nosuch", "dir/sub/deep"], "not a directory, and there are 2 sources"),
            (&["nosuch", "x"], "no such file"),
        ] {
            let said = place.says(2, "mv", args);
            assert!(said.starts_with("error: ") && said.contains(what), "{args:?}: {said}");
        }
        place.does("mv", &["-n", "dir/file", "dir/sub/deep"]);
        assert_eq!(place.cat("dir/sub/deep"), "deep");
        let moved = place.says(0, "mv", &["dir/file", "dir/sub/deep", "--json"]);
        let moved: Value = serde_json::from_str(&moved).unwrap();
        assert_eq!((&moved["type"], &moved["to"]), (&"mv".into(), &"/dir/sub/deep".into()));
        assert_eq!(place.cat("dir/sub/deep"), "content");

        place.does("ln", &["dir/sub/deep", "hard"]);
        let long = place.says(0, "stat", &["hard"]);
        assert!(place.says(0, "stat", &["hard", "--json"]).contains("\"nlink\":2"), "{long}");
        place.does("ln", &["-s", "../x/y", "dir"]);
        assert!(place.says(0, "tree", &["dir"]).contains("y -> ../x/y"));
        let said = place.says(2, "ln", &["-s", "other", "hard"]);
        assert!(said.contains("/hard: file exists"), "{said}");
        place.does("ln", &["-sf", "other", "hard"]);
        assert!(place.says(0, "tree", &[]).contains("hard -> other"));
        assert!(place.says(2, "ln", &["dir", "d2"]).contains("/dir: is a directory"));
    });
}

#[test]
fn permissions_and_times_are_set_and_empty_directories_removed() {
    in_both(|place| {
        place.does("chmod", &["u=rwX,go=", "-R", "dir"]);
        let modes = |path: &str| {
            let said = place.says(0, "stat", &[path, "--json"]);
            serde_json::from_str::<Value>(&said).unwrap()["mode"].clone()
        };
        assert_eq!((modes("dir"), modes("dir/file")), ("0700".into(), "0600".into()));
        let said = place.says(1, "chmod", &["+x", "kept", "nosuch"]);
        assert!(said.contains("/nosuch: no such file"), "{said}");
        assert!(modes("kept").as_str().unwrap().ends_with("55"));
        assert!(place.says(2, "chmod", &["u+q", "kept"]).contains("expected an octal number"));

        place.does("touch", &["-d", "2001-02-03T04:05:06Z", "kept", "new"]);
        for path in ["kept", "new"] {
            let said = place.says(0, "stat", &[path, "--json"]);
            let stat: Value = serde_json::from_str(&said).unwrap();
            assert_eq!(stat["mtime"], "2001-02-03T04:05:06Z", "{path}");
            assert_eq!(stat["atime"], "2001-02-03T04:05:06Z", "{path}");
        }
        place.does("touch", &["-c", "neither"]);
        assert!(!place.says(0, "ls", &[]).contains("neither"));
        assert_eq!(place.cat("kept"), "kept");

        place.does("mkdir", &["-p", "e/f"]);
        let said = place.says(1, "rmdir", &["e", "e/f", "kept"]);
        assert!(
            said.contains("/e: directory not empty") && said.contains("/kept: not a directory")
        );
        let said = place.says(0, "rmdir", &["e", "--json"]);
        assert!(said.contains("\"removed\":1"), "{said}");
    });
}
