//! What `mount` left behind for `umount`: notes, and servers in the background. Nothing is mounted
//! there any more, as after an umount(8) by hand. With a kernel's client: integration/kernel.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sha1::{Digest, Sha1};

use super::exports::until_refused;
use super::mounting::{Place, detached};
use super::program::run;
use crate::support::skip::skip;

/// Larger than what is copied while a command or two start.
const LARGE_BYTES: usize = 128 << 20;

/// A server as `mount` starts one, for a mount at a directory; killed if it is dropped.
pub struct Left {
    server: Child,
    address: SocketAddr,
}

impl Left {
    pub fn new(place: &Place, session: &str, dir: &str) -> Self {
        let session = place.path(session);
        let (server, said) = detached(place.dir.path(), &["--", session.to_str().unwrap()]);
        let address = said.strip_prefix("listening on ").expect(&said).trim().parse().unwrap();
        let left = Self { server, address };
        left.note(place, &session, dir);
        left
    }

    /// Writes down that the session is mounted there.
    fn note(&self, place: &Place, session: &Path, dir: &str) {
        let dir = place.path(dir);
        write_note(place, &dir, session, self.address, self.server.id(), None);
    }

    /// Writes down that it serves a run, of the process `runner`, at a directory.
    pub fn note_run(&self, place: &Place, session: &Path, dir: &Path, runner: u32) {
        write_note(place, dir, session, self.address, self.server.id(), Some(runner));
    }

    fn signal(&self, name: &str) {
        let pid = self.server.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Its exit code, if it has ended.
    pub fn code(&mut self) -> Option<i32> {
        self.server.try_wait().unwrap().and_then(|status| status.code())
    }
}

/// Writes what `mount` does, or a `run` that is the process `runner`, which started with the
/// system.
pub fn write_note(
    place: &Place,
    dir: &Path,
    session: &Path,
    address: SocketAddr,
    server: u32,
    runner: Option<u32>,
) {
    let (address, pid) = (address.to_string(), server.to_string());
    let fields = [dir.as_os_str(), session.as_os_str(), address.as_ref(), pid.as_ref()];
    let mut note = fields.map(|field| field.as_bytes()).join(&0);
    note.extend_from_slice(b"\0rw");
    let mut key = dir.as_os_str().as_bytes().to_vec();
    if let Some(runner) = runner {
        note.extend_from_slice(format!("\0run {runner} 0 1").as_bytes());
        key.extend_from_slice(format!("\n{runner}").as_bytes());
    }
    let digits: String = Sha1::digest(key).iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(place.path("run").join(digits + ".mount"), note).unwrap();
}

impl Drop for Left {
    fn drop(&mut self) {
        let _killed = self.server.kill();
        let _reaped = self.server.wait();
    }
}

/// A server that copies a large file; the `umount` that waited for it was killed.
fn left_copying(place: &Place) -> Left {
    fs::write(place.path("base/large"), vec![b'x'; LARGE_BYTES]).unwrap();
    assert!(place.run(&["init", "s.db", "--base", "base"]).status.success());
    let left = Left::new(place, "s.db", "at");
    let mut write = place.command(&["write", "s.db", "/large", "--append"]);
    let change = fs::File::open(place.path("bin/mount")).unwrap();
    assert!(write.stdin(change).status().unwrap().success());
    let mut umount = place.command(&["umount", "at"]).stderr(Stdio::null()).spawn().unwrap();
    until_refused(left.address);
    umount.kill().unwrap();
    umount.wait().unwrap();
    left
}

/// What the session holds is counted as `diff` and `run` count it.
#[test]
fn umount_counts_what_differs() {
    let Some(place) = Place::new("exit 0") else { return };
    fs::create_dir(place.path("base/old")).unwrap();
    for file in ["same", "old/a", "old/b"] {
        fs::write(place.path("base").join(file), "content").unwrap();
    }
    let mode = fs::Permissions::from_mode(0o644);
    fs::set_permissions(place.path("base/same"), mode).unwrap();
    assert!(place.run(&["init", "s.db", "--base", "base"]).status.success());
    assert!(place.run(&["rm", "-r", "s.db", "/old"]).status.success());
    assert!(place.run(&["chmod", "s.db", "600", "/same"]).status.success());
    assert!(place.run(&["chmod", "s.db", "644", "/same"]).status.success());
    let _left = Left::new(&place, "s.db", "at");
    let output = place.run(&["umount", "at"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.ends_with("s.db: 3 deleted\n"), "{said}");
}

#[test]
fn umount_waits_for_the_copies_that_another_one_waited_for() {
    let Some(place) = Place::new("exit 0") else { return };
    let mut left = left_copying(&place);
    let second = place.run(&["umount", "at"]);
    let said = String::from_utf8(second.stdout).unwrap();
    assert!(said.contains("at is unmounted; its server has ended\n"), "{said}");
    assert_eq!(left.code(), Some(0));
    let status = run(place.dir.path(), &["status", "s.db", "--json"]);
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.contains("\"pending_files\":0,"), "{status}");
    assert!(!place.path("s.db-lock").exists() && !place.path("s.db-wal").exists());
    assert_eq!(fs::read_dir(place.path("run")).unwrap().count(), 0);
}

#[test]
fn a_server_that_ends_is_not_mounted_but_waited_for() {
    let Some(place) = Place::new("echo \"$4\" >&2; exit 1") else { return };
    let mut left = left_copying(&place);
    let said = place.failure(&["mount", "s.db", "b"]);
    assert_eq!(left.code(), Some(0), "{said}");
    assert!(said.contains(",port=") && !said.contains(&left.address.port().to_string()), "{said}");
}

#[test]
fn umount_says_so_if_the_server_did_not_close_the_session() {
    let Some(place) = Place::new("exit 0") else { return };
    let left = Left::new(&place, "s.db", "at");
    assert!(place.run(&["mkdir", "s.db", "/dir"]).status.success());
    left.signal("STOP");
    let mut umount = place.command(&["umount", "at"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 8];
    umount.stderr.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"waiting ");
    left.signal("KILL");
    let output = umount.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("s.db: the server ended before it had closed the session"), "{said}");
    assert!(said.contains("\nhint: ") && said.contains("s.db.log"), "{said}");
    // It is known, and over.
    assert_eq!(fs::read_dir(place.path("run")).unwrap().count(), 0);
    assert!(run(place.dir.path(), &["check", "s.db"]).status.success());
}

#[test]
fn the_server_of_a_hidden_mount_is_stopped_when_it_is_unmounted_again() {
    let Some(place) = Place::new("exit 1") else { return };
    let mut left = Left::new(&place, "one.db", "at");
    left.note(&place, &place.path("one.db"), "b");
    let hidden = place.run(&["umount", "at", "--lazy"]);
    let said = String::from_utf8(hidden.stdout).unwrap();
    assert!(said.contains("continues: programs may still use the mount; once"), "{said}");
    // Neither another mount of the server, nor another session there, takes it from them.
    let other = place.run(&["umount", "b"]);
    let said = String::from_utf8(other.stdout).unwrap();
    assert!(said.contains("continues: the session is mounted elsewhere, too"), "{said}");
    let run = &["run", "s.db", "--no-base", "--at", "at", "--", "true"];
    for args in [&["mount", "s.db", "at"][..], run] {
        let said = place.failure(args);
        assert!(said.contains("one.db was hidden there, and programs may still use it"), "{said}");
        assert!(said.contains("\nhint: ") && said.contains("acetate umount "), "{said}");
    }
    assert_eq!(left.code(), None);
    let again = place.run(&["umount", "at"]);
    let said = String::from_utf8(again.stdout).unwrap();
    assert!(said.contains("at is unmounted; its server has ended\n"), "{said}");
    assert_eq!(left.code(), Some(0));
    assert!(!place.path("one.db-lock").exists());
    assert_eq!(fs::read_dir(place.path("run")).unwrap().count(), 0);
}

#[test]
fn another_session_at_a_directory_leaves_no_server_that_nobody_knows() {
    let Some(place) = Place::new("exit 1") else { return };
    let run = &["run", "s.db", "--no-base", "--at", "at", "--", "true"];
    for args in [&["mount", "s.db", "at"][..], run] {
        let mut left = Left::new(&place, "one.db", "at");
        let said = place.failure(args);
        assert!(said.contains("one.db was mounted there; its server has ended\n"), "{said}");
        assert_eq!(left.code(), Some(0));
        assert!(!place.path("one.db-lock").exists());
        place.assert_nothing_is_left();
    }
}

#[test]
fn a_mount_that_fails_where_one_was_leaves_its_server_known() {
    let Some(place) = Place::new("exit 1") else { return };
    let mut left = Left::new(&place, "s.db", "at");
    place.failure(&["mount", "s.db", "at"]);
    assert_eq!(left.code(), None);
    let umount = place.run(&["umount", "at"]);
    assert!(String::from_utf8(umount.stdout).unwrap().contains("; its server has ended\n"));
    assert_eq!(left.code(), Some(0));
    place.assert_nothing_is_left();
}

/// What a command says first on stderr, after a second, about whom it waits for.
fn waits(waiting: &mut Child, by: &Child, session: &Path) {
    let mut line = String::new();
    BufReader::new(waiting.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    let (by, session) = (by.id(), session.display());
    let expected = format!("waiting for process {by}, which mounts or unmounts {session}");
    assert!(line.starts_with(&expected), "{line}");
}

#[test]
fn umount_ends_no_server_that_somebody_is_about_to_mount() {
    let line = "touch begun; while [ -e begun ]; do sleep 0.02; done; exit 1";
    let Some(place) = Place::new(line) else { return };
    let mut left = Left::new(&place, "s.db", "at");
    let mut mount = place.command(&["mount", "s.db", "b"]).stderr(Stdio::null()).spawn().unwrap();
    while !place.path("begun").exists() {
        assert!(mount.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut umount = place.command(&["umount", "at"]).stderr(Stdio::piped()).spawn().unwrap();
    waits(&mut umount, &mount, &place.path("s.db"));
    assert_eq!(left.code(), None);
    fs::remove_file(place.path("begun")).unwrap();
    assert_eq!(mount.wait().unwrap().code(), Some(2));
    assert_eq!(umount.wait().unwrap().code(), Some(0));
    assert_eq!(left.code(), Some(0));
    place.assert_nothing_is_left();
}

#[test]
fn mount_waits_for_an_umount_that_ends_the_server() {
    let Some(place) = Place::new("exit 1") else { return };
    let mut left = Left::new(&place, "s.db", "at");
    left.signal("STOP");
    let mut umount = place.command(&["umount", "at"]).stderr(Stdio::piped()).spawn().unwrap();
    umount.stderr.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
    for args in [&["mount", "s.db", "b"][..], &["run", "s.db", "--", "true"]] {
        let mut mount = place.command(args).stderr(Stdio::piped()).spawn().unwrap();
        waits(&mut mount, &umount, &place.path("s.db"));
        // Who waits can be interrupted.
        assert!(Command::new("kill").arg(mount.id().to_string()).status().unwrap().success());
        assert_eq!(mount.wait().unwrap().code(), None);
    }
    left.signal("CONT");
    assert_eq!(umount.wait().unwrap().code(), Some(0));
    assert_eq!(left.code(), Some(0));
    place.assert_nothing_is_left();
}

/// A `mount` that only says so: in the table that its caller reads, which is to be in a mount
/// namespace of its own. It names the directory that it gets, and those that `run` mounts on.
const FEIGN: &str = r#"
table=$(mktemp "${0%/*}/../table.XXXXXX") port=${4#*,port=}
{
    cat "/proc/$PPID/mountinfo"
    for dir in "$6" "${TMPDIR%/tmp}/at" "$TMPDIR"/acetate-????????????????/s; do
        echo "999 1 0:99 / $dir rw - nfs $5 rw,port=${port%%,*},addr=127.0.0.1"
    done
} >"$table"
PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec mount --bind "$table" "/proc/$PPID/mountinfo"
"#;

/// A place where `mount` feigns, and the program in a mount namespace; `None` where there is no
/// such thing.
pub fn feigned(args: &[&str]) -> Option<(Place, Command)> {
    let place = Place::new(FEIGN)?;
    let feigns = Command::new("unshare").args(["--mount", "true"]).output();
    if !feigns.is_ok_and(|output| output.status.success()) {
        skip("no mount namespace here");
        return None;
    }
    let command = place.command_by(&["unshare", "--mount"], args);
    Some((place, command))
}

#[test]
fn run_takes_everything_back_if_its_mount_is_gone_before_the_command_ends() {
    let unmount = "umount -l $PWD; umount /proc/$PPID/mountinfo; exit 3";
    for at in [&[][..], &["--at", "at"]] {
        let args = [&["run", "s.db", "--no-base"], at, &["--", "sh", "-c", unmount]].concat();
        let Some((place, mut command)) = feigned(&args) else { return };
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(!said.contains("error: "), "{said}");
        place.assert_nothing_is_left();
    }
}

#[test]
fn run_in_run_waits_for_nobody() {
    let unmount = "umount -l $PWD; umount /proc/$PPID/mountinfo";
    let inner =
        format!("{} run $ACETATE_SESSION -- sh -c '{unmount}'", env!("CARGO_BIN_EXE_acetate"));
    let args = ["run", "s.db", "--no-base", "--", "sh", "-c", &format!("{inner}; {unmount}")];
    let Some((place, mut command)) = feigned(&args) else { return };
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("error: ") && !said.contains("waiting"), "{said}");
    place.assert_nothing_is_left();
}
