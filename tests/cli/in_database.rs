//! Commands on sessions in a database.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::{TempDir, tempdir};

use super::program::{Serving, acetate, said};
use crate::support::database::server::any;

/// A session in the database over a base with one file.
pub struct Kept {
    dir: TempDir,
    pub url: String,
}

impl Kept {
    pub fn new() -> Self {
        let dir = tempdir().unwrap();
        fs::create_dir(dir.path().join("base")).unwrap();
        fs::write(dir.path().join("base/a"), "from the base\n").unwrap();
        let url = any().new_url().to_string();
        let kept = Self { dir, url };
        let (_, told) = kept.try_on("init", &["--base", "base"], 0);
        assert!(told.starts_with("created postgres://"), "{told}");
        kept
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = acetate(self.path(), args);
        command.env("XDG_CACHE_HOME", self.path());
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command on the session, which succeeds; returns what it prints.
    #[track_caller]
    pub fn on(&self, command: &str, args: &[&str]) -> String {
        self.try_on(command, args, 0).0
    }

    /// The same, with an exit code; returns what it prints on both.
    #[track_caller]
    pub fn try_on(&self, command: &str, args: &[&str], code: i32) -> (String, String) {
        let all: Vec<&str> = [&[command, &self.url], args].concat();
        said(&self.run(&all), code)
    }

    /// What differs from the base.
    #[track_caller]
    pub fn diff(&self, session: &str) -> String {
        let output = self.run(&["diff", session]);
        let code = i32::from(!output.stdout.is_empty());
        said(&output, code).0
    }

    #[track_caller]
    pub fn write(&self, path: &str, content: &str) {
        use std::io::Write;
        let mut command = self.command(&["write", &self.url, path]);
        let mut writing = command.stdin(Stdio::piped()).spawn().unwrap();
        writing.stdin.take().unwrap().write_all(content.as_bytes()).unwrap();
        assert!(writing.wait().unwrap().success());
    }

    /// Serves it, with a directory for its replica.
    pub fn serve(&self, local: &str, args: &[&str]) -> Serving {
        let fixed = [&self.url, "--local", local, "--insecure"];
        Serving::start_as(self.command(&["serve"]), 1, &[&fixed, args].concat())
    }

    pub fn listed(&self) -> Value {
        let (database, _) = self.url.rsplit_once('/').unwrap();
        let (_, schema) = self.url.split_once('?').unwrap();
        let name = self.url.rsplit_once('/').unwrap().1.split('?').next().unwrap();
        let output = self.run(&["sessions", "--json", &format!("{database}?{schema}")]);
        let (lines, _) = said(&output, 0);
        let mut all = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.find(|session| session["session"] == name).unwrap()
    }
}

#[test]
fn commands_read_and_change_a_session_that_no_server_has() {
    let kept = Kept::new();
    assert_eq!(kept.on("ls", &["/"]), "a\n");
    kept.write("/n", "new\n");
    kept.on("mkdir", &["/d"]);
    kept.on("cp", &[":/n", ":/d/copy"]);
    kept.on("mv", &["/d/copy", "/d/moved"]);
    kept.on("chmod", &["600", "/n"]);
    kept.on("rm", &["/a"]);
    assert_eq!(kept.on("cat", &["/d/moved"]), "new\n");
    assert_eq!(kept.diff(&kept.url), "D /a\nA /d/ (1 file, 4 B)\nA /n\n");
    assert!(kept.on("log", &[]).contains("REMOVE"));
    assert!(kept.on("check", &[]).contains("sound"));
    assert!(kept.on("status", &[]).contains("not on this machine"));
    kept.on("du", &[]);
}

#[test]
fn clients_repeat_a_call_soon_after_another_machine_has_taken_the_session() {
    let kept = Kept::new();
    let server = kept.serve("local", &[]);
    let mounts: Vec<_> = server.said.iter().filter(|line| line.contains("mountport=")).collect();
    assert_eq!(mounts.len(), 3);
    // The lease, and a second more.
    assert!(mounts.iter().all(|line| line.contains(",timeo=40,")), "{mounts:?}");
}

#[test]
fn a_session_goes_back_to_a_checkpoint_in_the_database() {
    let kept = Kept::new();
    kept.write("/n", "one");
    let (made, _) = said(&kept.run(&["checkpoint", "create", &kept.url, "first"]), 0);
    assert_eq!(made, "1\n");
    kept.write("/n", "two");
    kept.on("restore", &["first", "--yes"]);
    assert_eq!(kept.on("cat", &["/n"]), "one");
    kept.on("undo", &["--yes"]);
    assert_eq!(kept.on("cat", &["/n"]), "two");
    assert!(kept.on("check", &[]).contains("sound"));
}

#[test]
fn what_is_applied_is_in_the_base() {
    let kept = Kept::new();
    kept.write("/n", "new\n");
    let (_, told) = kept.try_on("apply", &["--yes"], 0);
    assert!(told.contains(&format!("`acetate apply --undo '{}'`", kept.url)), "{told}");
    assert_eq!(fs::read_to_string(kept.path().join("base/n")).unwrap(), "new\n");
    assert_eq!(kept.diff(&kept.url), "");
    kept.write("/a", "changed\n");
    kept.on("discard", &["/", "--yes"]);
    assert_eq!(kept.on("cat", &["/a"]), "from the base\n");
}

#[test]
fn a_server_of_this_machine_makes_the_change_and_one_elsewhere_is_named() {
    let kept = Kept::new();
    let server = kept.serve("served", &[]);
    kept.write("/n", "new\n");
    assert_eq!(kept.diff(&kept.url), "A /n\n");
    let listed = kept.listed();
    assert!(listed["holder"].as_str().unwrap().contains("process"), "{listed}");
    assert!(listed["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{listed}");
    // Without the registry of this user's servers, it is as if it were elsewhere.
    let mut far = kept.command(&["mkdir", &kept.url, "/d"]);
    let far = far.env("XDG_RUNTIME_DIR", kept.path()).output().unwrap();
    let (_, error) = said(&far, 2);
    assert!(error.contains("the session is served by") && error.contains("--standby"), "{error}");
    server.signal("TERM");
    let (ended, lines) = server.end();
    assert!(ended.success(), "{lines:?}");
    assert_eq!(kept.listed()["holder"], Value::Null);
    assert_eq!(kept.on("cat", &["/n"]), "new\n");
}

#[test]
fn a_second_server_is_refused_and_a_standby_takes_over_from_a_killed_one() {
    let kept = Kept::new();
    let first = kept.serve("first", &["--base", "base"]);
    kept.write("/n", "kept\n");
    let second = ["serve", &kept.url, "--local", "second", "--listen", "127.0.0.1:0"];
    let (_, error) = said(&kept.run(&second), 2);
    assert!(error.contains("the session is served by"), "{error}");
    first.signal("KILL");
    let killed = Instant::now();
    let standby = kept.serve("second", &["--standby", "--base", "base"]);
    // Not before the other server's lease has ended, which was renewed at most 750 ms before.
    assert!(killed.elapsed() >= Duration::from_millis(1_500), "{:?}", killed.elapsed());
    assert_eq!(kept.on("cat", &["/n"]), "kept\n");
    assert_eq!(kept.listed()["epoch"], 2, "the first, and the standby");
    standby.signal("TERM");
    assert!(standby.end().0.success());
}

#[test]
fn a_session_moves_into_the_database_and_out_with_what_the_agent_keeps() {
    let kept = Kept::new();
    let file = |args: &[&str]| said(&kept.run(args), 0).0;
    let told = |args: &[&str]| said(&kept.run(args), 0).1;
    file(&["init", "s.db"]);
    file(&["kv", "set", "s.db", "plan", "7"]);
    file(&["tool", "run", "s.db", "step", "--", "true"]);
    file(&["mkdir", "s.db", "/d"]);
    let url = any().new_url().to_string();
    assert!(told(&["push", "s.db", &url]).contains("moved to postgres://"));
    file(&["push", "s.db", &url]);
    let (_, error) = said(&kept.run(&["mkdir", "s.db", "/e"]), 2);
    assert!(error.contains("the session was moved to postgres://"), "{error}");
    let (_, error) = said(&kept.run(&["push", "s.db", &kept.url]), 2);
    assert!(error.contains("the session was moved to"), "{error}");
    assert_eq!(kept.diff("s.db"), "A /d/\n", "it can be looked at");
    file(&["mkdir", &url, "/e"]);
    file(&["snapshot", &url, "copy.db"]);
    assert!(told(&["pull", &url, "back.db"]).contains("moved to back.db"));
    let (_, error) = said(&kept.run(&["diff", &url]), 2);
    assert!(error.contains("the session was moved to") && error.contains("back.db"), "{error}");
    let (_, error) = said(&kept.run(&["push", "s.db", &url]), 2);
    assert!(error.contains("back.db"), "an old copy does not come back: {error}");
    for of in ["copy.db", "back.db"] {
        assert_eq!(kept.diff(of), "A /d/\nA /e/\n");
        assert_eq!(file(&["kv", "get", of, "plan"]), "7\n");
        assert!(file(&["tool", "ls", of]).contains("step"));
        assert!(file(&["check", of]).contains("sound"));
    }
    let id = |path: &str| {
        let conn = rusqlite::Connection::open(kept.path().join(path)).unwrap();
        let sql = "SELECT value FROM acetate_meta WHERE key = 'session_id'";
        conn.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap()
    };
    assert_eq!(id("s.db"), id("back.db"));
    assert_ne!(id("s.db"), id("copy.db"));
    file(&["push", "back.db", &url]);
    assert_eq!(kept.diff(&url), "A /d/\nA /e/\n");
    // A copy in the database is a session of its own.
    let third = any().new_url().to_string();
    file(&["snapshot", "copy.db", &third]);
    file(&["rmdir", &third, "/e"]);
    assert_eq!(kept.diff(&url), "A /d/\nA /e/\n");
}

#[test]
fn a_replica_is_changed_through_the_database_alone() {
    let kept = Kept::new();
    kept.write("/n", "new\n");
    let files = fs::read_dir(kept.path().join("acetate")).unwrap();
    let names = files.map(|entry| entry.unwrap().path());
    let replica = names.into_iter().find(|path| path.extension().is_some_and(|it| it == "db"));
    let replica = replica.unwrap().display().to_string();
    let (_, error) = said(&kept.run(&["mkdir", &replica, "/d"]), 2);
    assert!(error.contains("a copy of the session postgres://"), "{error}");
    assert_eq!(kept.diff(&replica), "A /n\n");
}

#[test]
fn what_cannot_be_is_said() {
    let kept = Kept::new();
    let (_, error) = kept.try_on("init", &[], 2);
    assert!(error.contains("there is a session"), "{error}");
    for command in ["compact", "migrate", "seal"] {
        let (_, error) = kept.try_on(command, &[], 2);
        let what = format!("`acetate {command}` does not take a session in a database");
        assert!(error.contains(&what) && error.contains("hint: "), "{error}");
    }
    let missing = any().new_url().to_string();
    for args in [&["diff", &missing][..], &["serve", &missing, "--existing"]] {
        let (_, error) = said(&kept.run(args), 2);
        assert!(error.contains("there is no session"), "{error}");
    }
    let (_, error) = said(&kept.run(&["diff", "postgres://localhost"]), 2);
    assert!(error.contains("it names no session"), "{error}");
    let (_, error) = said(&kept.run(&["diff", "postgres://me:word@localhost/a/b"]), 2);
    assert!(error.contains("it has a password"), "{error}");
    let (_, error) = said(&kept.run(&["diff", "postgres://127.0.0.1:1/a/b"]), 2);
    assert!(error.contains("refused") && error.contains("hint: check the host"), "{error}");
    let (_, error) = said(&kept.run(&["serve", "s.db", "--standby"]), 2);
    assert!(error.contains("are for sessions in a database"), "{error}");
    let (_, error) = kept.try_on("serve", &["--read-only"], 2);
    assert!(error.contains("--read-only"), "{error}");
    // A base that is a copy has other inodes.
    drop(kept.serve("first", &["--base", "base"]));
    fs::create_dir(kept.path().join("copy")).unwrap();
    let (_, error) = kept.try_on("serve", &["--base", "copy", "--local", "first"], 2);
    assert!(error.contains("is not the base of the session"), "{error}");
}
