//! `mount`, `umount` and `run` up to the system's own mounting, which a program of ours stands in
//! for. With a kernel's client: integration/kernel.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::{TempDir, tempdir};

use super::program::{Serving, acetate, run};
use super::serve::mount_root;
use crate::support::skip::skip;

/// A place where mounting is a program of the test's own.
pub struct Place {
    pub dir: TempDir,
}

impl Place {
    /// `mount` is a script with this line. `None` where nobody gets as far as that: root alone
    /// may mount.
    pub fn new(line: &str) -> Option<Self> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let admin = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        let admin = u64::from_str_radix(admin.trim(), 16).unwrap() & 1 << 21 != 0;
        let whole = fs::read_to_string("/proc/self/uid_map").unwrap();
        let whole = whole.split_whitespace().eq(["0", "0", "4294967295"]);
        if !admin || !whole || !rustix::process::geteuid().is_root() {
            skip("only root may mount");
            return None;
        }
        let place = Self { dir: tempdir().unwrap() };
        for name in ["bin", "base", "at", "b", "run", "tmp", "xdg"] {
            fs::create_dir(place.path(name)).unwrap();
        }
        fs::set_permissions(place.path("run"), fs::Permissions::from_mode(0o700)).unwrap();
        for name in ["mount", "mount.nfs"] {
            let script = place.path("bin").join(name);
            fs::write(&script, format!("#!/bin/sh\n{line}\n")).unwrap();
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Some(place)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        self.at_home(acetate(self.dir.path(), args))
    }

    /// The same, started by a program with these words.
    pub fn command_by(&self, words: &[&str], args: &[&str]) -> Command {
        let mut command = Command::new(words[0]);
        command.current_dir(self.dir.path()).args(&words[1..]).env_remove("RUST_LOG");
        command.arg(env!("CARGO_BIN_EXE_acetate")).args(args);
        self.at_home(command)
    }

    fn at_home(&self, mut command: Command) -> Command {
        let path = std::env::var_os("PATH").unwrap();
        let paths = [self.path("bin")].into_iter().chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(paths).unwrap());
        command.env("ACETATE_RUNTIME_DIR", self.path("run")).env("TMPDIR", self.path("tmp"));
        // Where servers make themselves known.
        command.env("XDG_RUNTIME_DIR", self.path("xdg"));
        // Where replicas of sessions in databases are.
        command.env("XDG_CACHE_HOME", self.path("cache"));
        command.env_remove("SUDO_UID");
        command
    }

    /// What it says before it fails with 2.
    pub fn failure(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(output.stdout.is_empty());
        said
    }

    /// No server, no note, no directory.
    pub fn assert_nothing_is_left(&self) {
        assert!(!self.path("s.db-lock").exists(), "a server has it");
        assert!(!self.path("s.db-wal").exists());
        let log = fs::read_to_string(self.path("s.db.log"));
        assert!(log.is_err(), "{log:?}");
        for name in ["run", "tmp"] {
            assert_eq!(fs::read_dir(self.path(name)).unwrap().count(), 0, "{name}");
        }
    }
}

#[test]
fn a_mount_that_fails_leaves_nothing_running() {
    for (line, parts) in [
        (
            "echo 'mount.nfs: access denied by server' >&2; exit 32",
            ["/at: mount.nfs: access denied by server", "hint: the kernel or a security module"],
        ),
        ("exit 32", ["/at: mount failed", ""]),
        ("exit 0", ["mount reported success", ""]),
    ] {
        let Some(place) = Place::new(line) else { return };
        let said = place.failure(&["mount", "s.db", "at", "--base", "base"]);
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        place.assert_nothing_is_left();
        assert!(run(place.dir.path(), &["check", "s.db"]).status.success());
        let said = place.failure(&["run", "s.db", "--base", "base", "--", "touch", "ran"]);
        assert!(said.contains("cannot mount") || said.contains("mount reported"), "{said}");
        place.assert_nothing_is_left();
        assert!(!place.path("ran").exists() && !place.path("base/ran").exists());
    }
}

#[test]
fn mount_is_told_how() {
    let Some(place) = Place::new("echo \"$@\" >&2; exit 1") else { return };
    let args = ["mount", "s.db", "at", "--read-only", "-o", "noac", "--listen", "[::1]:0"];
    // Where there is no IPv6, the address is another.
    let said = place.failure(&args);
    let expected = ["proto=tcp6,port=", ",nolock,nosuid,nodev,ro,noac [::1]:/ ", "/at"];
    let has_ipv6 = !said.contains("cannot listen");
    assert!(!has_ipv6 || expected.iter().all(|part| said.contains(part)), "{said}");
    let said = place.failure(&["mount", "s.db", "at"]);
    assert!(said.contains("-t nfs -o vers=3,tcp,port="), "{said}");
    assert!(said.contains(",nolock,nosuid,nodev 127.0.0.1:/ "), "{said}");
    place.assert_nothing_is_left();
}

#[test]
fn a_directory_that_will_not_do_is_refused_before_anything_is_begun() {
    let Some(place) = Place::new("exit 0") else { return };
    fs::create_dir(place.path("base/in")).unwrap();
    fs::write(place.path("file"), "").unwrap();
    std::os::unix::fs::symlink("base/in", place.path("link")).unwrap();
    std::os::unix::fs::symlink("round", place.path("round")).unwrap();
    for (dir, part, hint) in [
        ("none", "none: No such file", "mkdir -p"),
        ("file", "file: not a directory", "an empty directory"),
        ("round", "too many levels of symbolic links", ""),
        ("base", "is the base itself", "/mnt/agent"),
        ("base/in", "is in the base", "/mnt/agent"),
        ("link", "base/in: is in the base", "/mnt/agent"),
        (".", "has the base", "/mnt/agent"),
        ("/proc", "something is mounted there", ""),
    ] {
        for args in [
            &["mount", "s.db", dir, "--base", "base"][..],
            &["run", "s.db", "--at", dir, "--base", "base", "--", "true"],
        ] {
            let said = place.failure(args);
            let part = if args[0] == "mount" {
                part.replace("something", "proc (proc)")
            } else {
                part.to_owned()
            };
            assert!(said.contains(&part) && said.contains(hint), "{args:?}: {said}");
        }
    }
    let said = place.failure(&["mount", "none/s.db", "at"]);
    assert!(said.contains("none/s.db: No such file") && said.contains("hint: "), "{said}");
    assert!(!place.path("s.db").exists());
    let said = place.failure(&["mount", "at/s.db", "at", "--base", "base"]);
    assert!(said.contains("has the session"), "{said}");
    let said = place.failure(&["mount", "s.db", "at", "--base", "none"]);
    assert!(said.contains("base none: No such file"), "{said}");
    place.assert_nothing_is_left();
}

#[test]
fn what_the_server_refuses_is_said_in_its_words() {
    let Some(place) = Place::new("exit 0") else { return };
    fs::write(place.path("s.db"), "no database, but long enough to be one".repeat(40)).unwrap();
    let said = place.failure(&["mount", "s.db", "at"]);
    assert!(said.starts_with("error: ") && said.contains("not a SQLite database"), "{said}");
    fs::remove_file(place.path("s.db")).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = place.failure(&["mount", "s.db", "at", "--listen", &address]);
    assert!(said.contains("cannot listen") && said.contains("hint: "), "{said}");
    place.assert_nothing_is_left();
}

/// Sessions by themselves at `/` and below it, in an export that names a part, and under a token.
const EXPORTS: &str = r#"
[[export]]
name = "all"
path = "/"
  [[export.mount]]
  at = "/"
  session = "a.db"
  [[export.mount]]
  at = "/.user"
  session = "u.db"

[[export]]
name = "hush"
token = true
  [[export.mount]]
  at = "/"
  session = "u.db"
"#;

#[test]
fn what_an_exports_server_has_at_its_root_is_no_session_that_was_asked_for() {
    let Some(place) = Place::new("echo \"$@\" >&2; exit 1") else { return };
    fs::write(place.path("exports.toml"), EXPORTS).unwrap();
    let server = Serving::start_as(place.command(&["serve"]), 1, &["--config", "exports.toml"]);
    let port = server.addresses[0].port();
    let check = format!("acetate config check {}", place.path("exports.toml").display());
    let mount =
        format!("mount -t nfs -o vers=3,tcp,port={port},mountport={port},nolock 127.0.0.1:");
    for (session, exports) in [("u.db", "all (at /.user), hush (at /)"), ("a.db", "all (at /)")] {
        for args in [&["mount", session, "at"][..], &["run", session, "--", "true"]] {
            let said = place.failure(args);
            assert!(said.contains(&format!("exports: {exports}\n")), "{said}");
            assert!(said.contains(&check) && said.contains(&mount), "{said}");
        }
    }
    assert_eq!(fs::read_dir(place.path("run")).unwrap().count(), 0);
    server.signal("TERM");
    assert!(server.end().0.success());
}

#[test]
fn notes_of_others_are_not_trusted() {
    let Some(place) = Place::new("exit 0") else { return };
    fs::set_permissions(place.path("run"), fs::Permissions::from_mode(0o777)).unwrap();
    let said = place.failure(&["mount", "s.db", "at"]);
    assert!(said.contains("not a directory of ours alone"), "{said}");
    place.assert_nothing_is_left();
}

#[test]
fn nothing_can_be_unmounted_where_nothing_is() {
    let Some(place) = Place::new("exit 0") else { return };
    let said = place.failure(&["umount", "at"]);
    assert!(said.contains("at: nothing is mounted there") && said.contains("hint: "), "{said}");
    let said = place.failure(&["umount", "/proc"]);
    assert!(said.contains("/proc: proc (proc) is mounted there"), "{said}");
}

/// A server in the background, and what it said until it closed its stderr.
pub fn detached(dir: &Path, args: &[&str]) -> (Child, String) {
    let mut command = acetate(dir, &["serve", "--detached", "--listen", "127.0.0.1:0"]);
    let mut child = command.args(args).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child, said)
}

#[test]
fn a_server_in_the_background_ends_if_nobody_waits_for_it() {
    let dir = tempdir().unwrap();
    let mut command = acetate(dir.path(), &["serve", "--detached", "--listen", "127.0.0.1:0"]);
    let mut child = command.arg("s.db").stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    let deadline = Instant::now() + Duration::from_secs(20);
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ended = child.kill();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(dir.path().join("s.db").exists() && !dir.path().join("s.db-wal").exists());
}

fn terminate(mut child: Child) -> Option<i32> {
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    child.wait().unwrap().code()
}

#[test]
fn a_server_in_the_background_says_when_it_listens() {
    let dir = tempdir().unwrap();
    let (child, said) = detached(dir.path(), &["s.db"]);
    let address: std::net::SocketAddr =
        said.strip_prefix("listening on ").expect(&said).trim().parse().unwrap();
    TcpStream::connect(address).unwrap();
    let log = dir.path().join("s.db.log");
    assert!(log.exists());
    assert_eq!(terminate(child), Some(0));
    assert!(!log.exists(), "there is nothing in it");

    let (child, said) = detached(dir.path(), &["s.db", "--base", "none"]);
    assert!(said.starts_with("error: base none: ") && said.contains("\nhint: "), "{said}");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(2));
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_in_the_background_has_no_terminal_and_a_log() {
    let dir = tempdir().unwrap();
    let log = dir.path().join("s.db.log");
    fs::write(&log, "x".repeat((1 << 20) + 1)).unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o600)).unwrap();
    let (child, said) = detached(dir.path(), &["s.db"]);
    assert!(dir.path().join("s.db.log.old").exists(), "the long one is put aside");
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    assert_eq!(fields[3], child.id().to_string(), "a session of its own");
    mount_root(said.strip_prefix("listening on ").unwrap().trim().parse().unwrap());
    let logged = fs::read_to_string(&log).unwrap();
    assert!(logged.contains("--insecure"), "{logged}");
    assert_eq!(terminate(child), Some(0));
    assert!(log.exists(), "there is something in it");
}

#[test]
fn a_log_that_cannot_be_written_keeps_nobody_from_serving() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("mine"), "").unwrap();
    std::os::unix::fs::symlink("mine", dir.path().join("s.db.log")).unwrap();
    let (child, said) = detached(dir.path(), &["s.db"]);
    assert!(said.contains("listening on ") && said.contains("no log: "), "{said}");
    assert_eq!(terminate(child), Some(0));
    assert_eq!(fs::read(dir.path().join("mine")).unwrap(), b"", "no link is followed");
}
