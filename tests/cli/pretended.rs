//! What listens where a session's server would, and is none.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::process::{Uid, geteuid};
use tempfile::tempdir;

use super::mounting::Place;
use super::program::{failure, run};
use crate::support::skip::skip;

/// A user that is neither root nor the session's owner.
const OTHER: u32 = 65533;

/// Where such a server says that it listens.
const STATUS: &[u8] = br#"{"Ok":{"Status":{"pid":4242,"version":"0.1.0",
"addresses":["203.0.113.9:2049"],"base":null,"exports":null,"uptime":1,"peers":[]}}}"#;

/// Listens beside `s.db` as `user`, and answers every request as the server of a session at an
/// address of another machine.
fn pretend(dir: &Path, user: u32) {
    let socket = dir.join("s.db-control");
    fs::set_permissions(dir, Permissions::from_mode(0o777)).unwrap();
    let listener = std::thread::spawn(move || {
        // To Linux, a thread has a user: the whole process stays who it is.
        let uid = Uid::from_raw(user);
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
        listener
    });
    let listener = listener.join().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut header = [0; 5];
            while stream.read_exact(&mut header).is_ok() {
                let length = u32::from_be_bytes(header[..4].try_into().unwrap());
                let mut request = vec![0; length as usize];
                stream.read_exact(&mut request).unwrap();
                let answer: &[u8] = if request.starts_with(b"\"Status\"") {
                    STATUS
                } else {
                    br#"{"Err":{"what":"refused","hint":null}}"#
                };
                let mut message = u32::try_from(answer.len()).unwrap().to_be_bytes().to_vec();
                message.push(b'J');
                message.extend_from_slice(answer);
                stream.write_all(&message).unwrap();
            }
        }
    });
}

/// Whether another user's process can be made.
fn is_root() -> bool {
    geteuid().is_root()
}

#[test]
fn a_server_of_another_user_is_not_believed() {
    if !is_root() {
        skip("only root makes a process of another user");
        return;
    }
    let dir = tempdir().unwrap();
    assert!(run(dir.path(), &["init", "s.db"]).status.success());
    pretend(dir.path(), OTHER);
    for args in [&["mkdir", "s.db", "/dir"][..], &["compact", "s.db"], &["rm", "s.db", "/dir"]] {
        let said = failure(dir.path(), args);
        assert!(said.contains("a process of user 65533 listens at"), "{args:?}: {said}");
    }
    let status = run(dir.path(), &["status", "s.db", "--json"]);
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(!status.contains("4242") && !status.contains("203.0.113.9"), "{status}");
}

#[test]
fn a_server_of_the_sessions_owner_is_believed() {
    if !is_root() {
        skip("only root makes a process of another user");
        return;
    }
    let dir = tempdir().unwrap();
    assert!(run(dir.path(), &["init", "s.db"]).status.success());
    chown(dir.path().join("s.db"), Some(OTHER), None).unwrap();
    pretend(dir.path(), OTHER);
    assert_eq!(failure(dir.path(), &["mkdir", "s.db", "/dir"]), "error: refused\n");
}

#[test]
fn mount_goes_to_no_other_machine_because_a_socket_says_so() {
    let Some(place) = Place::new("echo \"$@\" >&2; exit 1") else { return };
    assert!(place.run(&["init", "s.db"]).status.success());
    // The owner's own, which `mount` may ask.
    pretend(place.dir.path(), geteuid().as_raw());
    let said = place.failure(&["mount", "s.db", "at"]);
    assert!(!said.contains("203.0.113.9"), "{said}");
}

#[test]
fn a_lock_file_of_another_user_is_not_written_to() {
    if !is_root() {
        skip("only root makes a file of another user");
        return;
    }
    let dir = tempdir().unwrap();
    assert!(run(dir.path(), &["init", "s.db"]).status.success());
    let (lock, other) = (dir.path().join("s.db-lock"), dir.path().join("other"));
    fs::write(&lock, "kept").unwrap();
    chown(&lock, Some(OTHER), None).unwrap();
    let said = failure(dir.path(), &["mkdir", "s.db", "/dir"]);
    assert!(said.contains("not a lock file of the session's owner"), "{said}");
    assert_eq!(fs::read(&lock).unwrap(), b"kept");
    // A further name of a file of our own.
    fs::remove_file(&lock).unwrap();
    fs::write(&other, "kept").unwrap();
    fs::hard_link(&other, &lock).unwrap();
    let said = failure(dir.path(), &["mkdir", "s.db", "/dir"]);
    assert!(said.contains("not a lock file of the session's owner"), "{said}");
    assert_eq!(fs::read(&other).unwrap(), b"kept");
}

#[test]
fn the_registry_of_servers_is_in_no_directory_of_another_user() {
    let Some(place) = Place::new("exit 1") else { return };
    chown(place.path("xdg"), Some(OTHER), None).unwrap();
    let server = super::program::Serving::start_as(place.command(&["serve", "s.db"]), 1, &[]);
    assert_eq!(fs::read_dir(place.path("xdg")).unwrap().count(), 0);
    let sessions = place.run(&["sessions"]);
    let sessions = String::from_utf8(sessions.stdout).unwrap();
    assert!(sessions.contains("s.db"), "{sessions}");
    server.signal("TERM");
    assert!(server.end().0.success());
}

#[test]
fn the_registry_follows_no_link() {
    let Some(place) = Place::new("exit 1") else { return };
    fs::create_dir(place.path("xdg/acetate")).unwrap();
    fs::set_permissions(place.path("xdg/acetate"), Permissions::from_mode(0o700)).unwrap();
    let server = super::program::Serving::start_as(place.command(&["serve", "s.db"]), 1, &[]);
    let name = fs::read_dir(place.path("xdg/acetate")).unwrap().next().unwrap().unwrap().path();
    server.signal("TERM");
    assert!(server.end().0.success());
    fs::write(place.path("victim"), "kept").unwrap();
    std::os::unix::fs::symlink(place.path("victim"), &name).unwrap();
    let server = super::program::Serving::start_as(place.command(&["serve", "s.db"]), 1, &[]);
    assert_eq!(fs::read(place.path("victim")).unwrap(), b"kept");
    server.signal("TERM");
    assert!(server.end().0.success());
}
