//! What `mount` left behind for `umount`: notes, and servers in the background. Nothing is mounted
//! there any more, as after an umount(8) by hand. With a kernel's client: integration/kernel.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};

use sha1::{Digest, Sha1};

use super::exports::until_refused;
use super::mounting::{Place, detached};
use super::program::run;

/// Larger than what is copied while a command or two start.
const LARGE_BYTES: usize = 128 << 20;

/// A server as `mount` starts one, for a mount at a directory; killed if it is dropped.
struct Left {
    server: Child,
    address: SocketAddr,
}

impl Left {
    fn new(place: &Place, session: &str, dir: &str) -> Self {
        let session = place.path(session);
        let (server, said) = detached(place.dir.path(), &["--", session.to_str().unwrap()]);
        let address = said.strip_prefix("listening on ").expect(&said).trim().parse().unwrap();
        let left = Self { server, address };
        left.note(place, &session, dir);
        left
    }

    /// Writes down that the session is mounted there.
    fn note(&self, place: &Place, session: &std::path::Path, dir: &str) {
        let dir = place.path(dir);
        let (address, pid) = (self.address.to_string(), self.server.id().to_string());
        let fields = [dir.as_os_str(), session.as_os_str(), address.as_ref(), pid.as_ref()];
        let mut note = fields.map(|field| field.as_bytes()).join(&0);
        note.extend_from_slice(b"\0rw");
        let digest = Sha1::digest(dir.as_os_str().as_bytes());
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(place.path("run").join(digits + ".mount"), note).unwrap();
    }

    /// Its exit code, if it has ended.
    fn code(&mut self) -> Option<i32> {
        self.server.try_wait().unwrap().and_then(|status| status.code())
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let _killed = self.server.kill();
        let _reaped = self.server.wait();
    }
}

/// A session with a large file of the base changed, whose copy takes a while.
fn large(place: &Place) {
    fs::write(place.path("base/large"), vec![b'x'; LARGE_BYTES]).unwrap();
    assert!(place.run(&["init", "s.db", "--base", "base"]).status.success());
}

fn change_large(place: &Place) {
    let mut write = place.command(&["write", "s.db", "/large", "--append"]);
    let change = fs::File::open(place.path("bin/mount")).unwrap();
    assert!(write.stdin(change).status().unwrap().success());
}

#[test]
fn umount_waits_for_the_copies_that_another_one_waited_for() {
    let Some(place) = Place::new("exit 0") else { return };
    large(&place);
    let mut left = Left::new(&place, "s.db", "at");
    change_large(&place);
    let mut first = place.command(&["umount", "at"]).stderr(Stdio::null()).spawn().unwrap();
    until_refused(left.address);
    first.kill().unwrap();
    first.wait().unwrap();
    let second = place.run(&["umount", "at"]);
    let said = String::from_utf8(second.stdout).unwrap();
    assert!(said.contains("at is unmounted; its server has ended\n"), "{said}");
    assert_eq!(left.code(), Some(0));
    let status = run(place.dir.path(), &["status", "s.db", "--json"]);
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.contains("\"pending_files\":0,"), "{status}");
    place.assert_nothing_is_left();
}

#[test]
fn umount_says_so_if_the_server_did_not_close_the_session() {
    let Some(place) = Place::new("exit 0") else { return };
    large(&place);
    let left = Left::new(&place, "s.db", "at");
    change_large(&place);
    let umount = place.command(&["umount", "at"]).stderr(Stdio::piped()).spawn().unwrap();
    until_refused(left.address);
    let pid = left.server.id().to_string();
    assert!(Command::new("kill").args(["-s", "KILL", &pid]).status().unwrap().success());
    let output = umount.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("s.db: the server ended before it had closed the session: 1 file, "));
    assert!(said.contains("\nhint: ") && said.contains("s.db.log"), "{said}");
    // It is known, and over.
    assert_eq!(fs::read_dir(place.path("run")).unwrap().count(), 0);
    assert!(run(place.dir.path(), &["check", "s.db"]).status.success());
}
