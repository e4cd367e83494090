//! Serving: what is announced, who is answered, and how it ends.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use tempfile::tempdir;

use super::program::{Serving, run};
use crate::support::fixture;

/// Calls a procedure of MOUNT with AUTH_NONE; the reply without record mark and xid.
pub fn mount_call(to: SocketAddr, procedure: u32, args: &[u8]) -> Vec<u8> {
    let words = [1, 0, 2, 100_005, 3, procedure, 0, 0, 0, 0_u32];
    let mut record: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    record.extend(args);
    let mark = record.len() as u32 | 1 << 31;
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    stream.write_all(&[&mark.to_be_bytes()[..], &record].concat()).unwrap();
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).unwrap();
    reply.split_off(4)
}

/// MNT of `/`.
pub fn mount_root(to: SocketAddr) -> Vec<u8> {
    mount_call(to, 1, b"\0\0\0\x01/\0\0\0")
}

/// MKDIR of `made` in the root, by uid 0: the status (RFC 1813 §3.3.9).
fn mkdir_as_root(to: SocketAddr) -> u32 {
    let mounted = mount_root(to);
    // Behind the header and the status: the length of a handle, and it.
    let handle = &mounted[ACCEPTED.len() + 4..];
    let length = 4 + u32::from_be_bytes(*handle.first_chunk().unwrap()) as usize;
    let auth_sys = [1, 20, 0, 0, 0, 0, 0, 0, 0];
    let head = [&[1, 0, 2, 100_003, 3, 9][..], &auth_sys].concat();
    let mut record: Vec<u8> = head.iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
    record.extend(&handle[..length.next_multiple_of(4)]);
    record.extend([0, 0, 0, 4]);
    record.extend(b"made");
    record.extend([0; 24]);
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    stream.write_all(&(record.len() as u32 | 1 << 31).to_be_bytes()).unwrap();
    stream.write_all(&record).unwrap();
    let mut reply = [0; 4 + 4 + ACCEPTED.len() + 4];
    stream.read_exact(&mut reply).unwrap();
    u32::from_be_bytes(*reply.last_chunk().unwrap())
}

const ACCEPTED: [u8; 20] = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn it_says_what_is_served_and_how_to_mount_it() {
    let dir = tempdir().unwrap();
    let real = dir.path().canonicalize().unwrap();
    fs::create_dir(dir.path().join("base")).unwrap();
    let server = Serving::start(dir.path(), 1, &["s.db", "--base", "base"]);
    let port = server.addresses[0].port();
    assert_ne!(port, 0);
    let real = real.display();
    let common = format!("vers=3,tcp,port={port},mountport={port}");
    let expected = [
        format!("serving {real}/base, never written; changes go to {real}/s.db"),
        format!("created {real}/s.db"),
        format!("  Linux   sudo mount -t nfs -o {common},nolock 127.0.0.1:/ /mnt/agent"),
        format!(
            "  macOS   sudo mount -t nfs -o {common},locallocks,nobrowse,noresvport \
             127.0.0.1:/ /tmp/agent"
        ),
        format!(
            "  Docker  docker volume create --driver local --opt type=nfs \
             --opt o=addr=127.0.0.1,{common},nolock --opt device=:/ agent"
        ),
        format!("listening on 127.0.0.1:{port}"),
    ];
    assert_eq!(server.said, expected);
}

#[test]
fn the_root_can_be_mounted_at_every_address_before_and_after_a_restart() {
    let dir = tempdir().unwrap();
    let server = Serving::start(dir.path(), 2, &["s.db", "--insecure"]);
    let replies: Vec<_> = server.addresses.iter().map(|to| mount_root(*to)).collect();
    assert_eq!(replies[0][..24], [&ACCEPTED[..], &[0; 4]].concat());
    assert_eq!(replies[0], replies[1]);
    server.signal("KILL");
    server.end();
    let server = Serving::start(dir.path(), 1, &["s.db", "--insecure"]);
    assert_eq!(mount_root(server.addresses[0]), replies[0]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_session_that_others_may_read_is_warned_of() {
    let dir = tempdir().unwrap();
    assert!(super::program::run(dir.path(), &["init", "s.db"]).status.success());
    let session = dir.path().join("s.db");
    fs::set_permissions(&session, fs::Permissions::from_mode(0o644)).unwrap();
    let server = Serving::start(dir.path(), 1, &["s.db"]);
    let real = dir.path().canonicalize().unwrap();
    let warned: Vec<_> = server.said.iter().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warned.len(), 1, "{warned:?}");
    // SQLite gives its files beside it the same mode.
    let session = real.join("s.db");
    let hint = format!(": chmod go= {0} {0}-wal", session.display());
    assert!(warned[0].contains(&hint), "{warned:?}");
    server.signal("TERM");
    assert!(server.end().0.success());
    fs::set_permissions(&session, fs::Permissions::from_mode(0o600)).unwrap();
    let server = Serving::start(dir.path(), 1, &["s.db"]);
    assert!(!server.said.iter().any(|line| line.contains("WARN")), "{:?}", server.said);
}

#[test]
fn a_base_can_be_served_read_only_without_a_session() {
    let dir = tempdir().unwrap();
    fs::create_dir(dir.path().join("base")).unwrap();
    let server = Serving::start(dir.path(), 1, &["s.db", "--base", "base", "--read-only"]);
    let made = fs::read(dir.path().join("s.db")).unwrap();
    assert!(made.starts_with(b"SQLite format 3\0"));
    server.signal("TERM");
    assert!(server.end().0.success());
    assert_eq!(fs::read(dir.path().join("s.db")).unwrap(), made, "it is only read");
}

#[test]
fn an_unprivileged_port_is_refused_and_told_of_once() {
    let dir = tempdir().unwrap();
    let mut server = Serving::start(dir.path(), 1, &["s.db"]);
    let to = server.addresses[0];
    assert_eq!(mount_call(to, 0, b""), ACCEPTED);
    for _ in 0..2 {
        let auth_too_weak = [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5];
        assert_eq!(mount_root(to), auth_too_weak);
    }
    let logged = server.line();
    assert!(logged.contains("--insecure") && logged.contains("127.0.0.1"), "{logged}");
    server.signal("TERM");
    let (_, rest) = server.end();
    assert!(!rest.iter().any(|line| line.contains("--insecure")), "{rest:?}");
}

#[test]
fn root_of_clients_is_squashed_where_that_is_said() {
    const ACCES: u32 = 13;
    let dir = tempdir().unwrap();
    for (option, status) in [("--root-squash", ACCES), ("--no-root-squash", 0)] {
        let server = Serving::start(dir.path(), 1, &["s.db", "--insecure", option]);
        assert_eq!(mkdir_as_root(server.addresses[0]), status, "{option}");
        server.signal("TERM");
        server.end();
    }
}

#[test]
fn it_warns_of_clients_that_can_be_any_user() {
    let dir = tempdir().unwrap();
    let said = |args: &[&str]| {
        let server = Serving::start(dir.path(), 1, args);
        server.signal("TERM");
        let warned = server.said.iter().filter(|line| line.starts_with("warning: "));
        let warned: Vec<String> = warned.cloned().collect();
        server.end();
        warned
    };
    assert_eq!(said(&["s.db"]), [""; 0]);
    let insecure = said(&["s.db", "--insecure"]);
    assert_eq!(insecure.len(), 1, "{insecure:?}");
    assert!(insecure[0].contains("--insecure") && insecure[0].contains("root included"));
    let beyond = said(&["s.db", "--listen", "0.0.0.0:0"]);
    assert_eq!(beyond.len(), 1, "{beyond:?}");
    assert!(beyond[0].contains("0.0.0.0:") && beyond[0].contains("but root"), "{beyond:?}");
    let both = said(&["s.db", "--listen", "0.0.0.0:0", "--insecure", "--no-root-squash"]);
    assert_eq!(both.len(), 2, "{both:?}");
    assert!(both.iter().all(|line| line.contains("root included")), "{both:?}");
}

#[test]
fn it_tells_clients_elsewhere_an_address_that_they_reach() {
    let dir = tempdir().unwrap();
    let server = Serving::start(dir.path(), 1, &["s.db", "--listen", "0.0.0.0:0", "--insecure"]);
    server.signal("TERM");
    let mounts: Vec<String> =
        server.said.iter().filter(|line| line.contains("mount -t nfs")).cloned().collect();
    server.end();
    assert!(!mounts.is_empty());
    assert!(mounts.iter().all(|line| !line.contains("0.0.0.0")), "{mounts:?}");
    // Where this machine has a way to other networks, it is not one that only itself reaches.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    if socket.connect("192.0.2.1:9").is_ok() {
        let own = socket.local_addr().unwrap().ip().to_string();
        assert!(mounts.iter().all(|line| line.contains(&format!(" {own}:/"))), "{mounts:?}");
    }
}

#[test]
fn root_is_squashed_beyond_loopback_unless_it_is_said_otherwise() {
    const ACCES: u32 = 13;
    let dir = tempdir().unwrap();
    let loopback = Serving::start(dir.path(), 1, &["s.db", "--insecure"]);
    assert_eq!(mkdir_as_root(loopback.addresses[0]), 0);
    loopback.signal("TERM");
    loopback.end();
    let args = ["other.db", "--insecure", "--listen", "0.0.0.0:0"];
    let beyond = Serving::start(dir.path(), 1, &args);
    assert_eq!(mkdir_as_root(beyond.addresses[0]), ACCES);
}

#[cfg(target_os = "linux")]
#[test]
fn idle_clients_leave_room_for_others() {
    let dir = tempdir().unwrap();
    let server = Serving::start(dir.path(), 1, &["s.db", "--insecure"]);
    let connect = || TcpStream::connect(server.addresses[0]).unwrap();
    // More than a quarter of the descriptors that a process has unless it asks for more.
    let _idle: Vec<_> = (0..600).map(|_| connect()).collect();
    mount_root(server.addresses[0]);
    let bytes = server.resident_bytes();
    assert!(bytes < 100 << 20, "{} MiB", bytes >> 20);
}

/// A record of one fragment: a call of WRITE with a forged handle and a megabyte of data.
#[cfg(target_os = "linux")]
fn forged_write(xid: u32) -> Vec<u8> {
    let head = [xid, 0, 2, 100_003, 3, 7, 0, 0, 0, 0, 4, 0, 0, 0, 1 << 20, 0, 1 << 20];
    let mut record: Vec<u8> = head.iter().flat_map(|word| word.to_be_bytes()).collect();
    record.resize(record.len() + (1 << 20), 7);
    let mark = record.len() as u32 | 1 << 31;
    record.splice(0..0, mark.to_be_bytes());
    record
}

#[cfg(target_os = "linux")]
#[test]
fn connections_that_sent_much_keep_little() {
    let dir = tempdir().unwrap();
    let server = Serving::start(dir.path(), 1, &["s.db", "--insecure"]);
    let mut idle = Vec::new();
    for xid in 0..240 {
        // An equal call would wait: it may be a retransmission.
        let record = forged_write(xid);
        let mut stream = TcpStream::connect(server.addresses[0]).unwrap();
        // What follows has begun, so that the connection is not idle either.
        stream.write_all(&[&record[..], &[0]].concat()).unwrap();
        let mut reply = [0; 4 + 24 + 4];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[28..], 10_001_u32.to_be_bytes(), "not BADHANDLE");
        idle.push(stream);
    }
    let bytes = server.resident_bytes();
    assert!(bytes < 100 << 20, "{} MiB", bytes >> 20);
}

#[test]
fn both_signals_end_it_with_the_session_whole() {
    let dir = tempdir().unwrap();
    for signal in ["TERM", "INT"] {
        let server = Serving::start(dir.path(), 1, &["s.db", "--insecure"]);
        // An idle client is no reason to wait.
        let _idle = TcpStream::connect(server.addresses[0]).unwrap();
        mount_root(server.addresses[0]);
        server.signal(signal);
        let (status, rest) = server.end();
        assert_eq!(status.code(), Some(0), "{rest:?}");
        let log = fs::metadata(dir.path().join("s.db-wal")).map_or(0, |log| log.len());
        assert_eq!(log, 0, "the log is not checkpointed");
    }
}

/// The last program that closes a database removes its WAL.
#[test]
fn what_is_acknowledged_is_kept_though_another_program_reads_the_file_before_a_kill() {
    let dir = tempdir().unwrap();
    let server = Serving::start(dir.path(), 1, &["s.db", "--insecure"]);
    for name in ["one", "two"] {
        let written = run(dir.path(), &["mkdir", "s.db", name]);
        assert!(written.status.success(), "{written:?}");
        let other = rusqlite::Connection::open(dir.path().join("s.db")).unwrap();
        let seen: i64 =
            other.query_row("SELECT count(*) FROM fs_dentry", [], |r| r.get(0)).unwrap();
        assert!(seen > 0);
        other.close().unwrap();
    }
    server.signal("KILL");
    server.end();
    let listed = run(dir.path(), &["ls", "s.db", "/"]);
    assert_eq!(String::from_utf8(listed.stdout).unwrap(), "one\ntwo\n");
}

#[test]
fn one_in_the_background_of_a_script_can_be_stopped() {
    let dir = tempdir().unwrap();
    // What a shell does for `&` where it has no job control.
    let line = format!("trap '' INT QUIT; exec {} serve \"$@\"", env!("CARGO_BIN_EXE_acetate"));
    let mut command = Command::new("sh");
    command.args(["-c", &line, "sh"]).current_dir(dir.path());
    let server = Serving::start_as(command, 1, &["s.db"]);
    server.signal("TERM");
    let (status, rest) = server.end();
    assert_eq!(status.code(), Some(0), "{rest:?}");
}

#[test]
fn a_session_remembers_its_base_and_another_one_is_told_of() {
    let dir = tempdir().unwrap();
    for base in ["one", "two"] {
        fs::create_dir(dir.path().join(base)).unwrap();
    }
    let said = |args: &[&str]| {
        let server = Serving::start(dir.path(), 1, args);
        server.signal("TERM");
        let said = server.said.clone();
        assert!(server.end().0.success());
        said
    };
    said(&["s.db", "--base", "one"]);
    assert!(said(&["s.db"])[0].contains("/one, never written"));
    let lines = said(&["s.db", "--base", "two"]);
    assert!(lines[0].contains("another base"), "{lines:?}");
    assert!(lines[1].contains("/two, never written"), "{lines:?}");
    assert!(said(&["s.db"])[0].contains("/two, never written"));
}

#[test]
fn a_log_that_nobody_takes_ends_nothing() {
    let dir = tempdir().unwrap();
    let args = ["s.db", "--insecure", "--log", "debug"];
    let mut server = Serving::start(dir.path(), 1, &args);
    server.close_stderr();
    for _ in 0..3 {
        // Each connection is told of in the log.
        assert_eq!(mount_root(server.addresses[0])[..20], ACCEPTED);
    }
    server.signal("TERM");
    assert_eq!(server.end().0.code(), Some(0));
}

#[test]
fn originals_are_kept_up_to_the_size_that_is_given() {
    let dir = tempfile::tempdir().unwrap();
    fixture::build(&dir.path().join("base"), "small \"small\"\nlarger \"larger\"");
    let kept = |size: &str, session: &str| {
        let args = [session, "--base", "base", "--keep-originals", size];
        let server = Serving::start(dir.path(), 1, &args);
        for file in ["small", "larger"] {
            let set = run(dir.path(), &["chmod", session, "600", file]);
            assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
        }
        server.signal("TERM");
        assert!(server.end().0.success());
        let status = run(dir.path(), &["status", session, "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        (json["originals"].as_u64().unwrap(), json["original_bytes"].as_u64().unwrap())
    };
    // Of a larger file, only a digest or its size and times are kept, and not counted.
    assert_eq!(kept("5", "a.db"), (1, 5));
    assert_eq!(kept("1kB", "b.db"), (2, 11));
    assert_eq!(kept("0", "c.db"), (0, 0));
    let too_much = run(dir.path(), &["serve", "d.db", "--keep-originals", "17MiB"]);
    assert_eq!(too_much.status.code(), Some(2));
    let said = String::from_utf8_lossy(&too_much.stderr);
    assert!(said.contains("expected bytes up to 16MiB"), "{said}");
}
