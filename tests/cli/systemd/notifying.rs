//! What the server says of its state.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};
use tempfile::tempdir;

use super::manager::{Manager, lines_until};
use crate::cli::program::{Serving, acetate, run};
use crate::cli::serve::mount_root;

const LISTEN: [&str; 2] = ["--listen", "127.0.0.1:0"];

fn monotonic_micros() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}

fn exports(names: &[&str]) -> String {
    let mount = |name: &str| format!("[[export.mount]]\nat = \"/\"\nsession = \"{name}.db\"\n");
    let export = |name: &&str| format!("[[export]]\npath = \"/{name}\"\n{}", mount(name));
    names.iter().map(export).collect()
}

#[test]
fn it_is_ready_once_clients_can_connect_and_says_that_it_stops() {
    let dir = tempdir().unwrap();
    let manager = Manager::new(dir.path());
    let serve = acetate(dir.path(), &["serve"]);
    let mut server = manager.start(serve, &["s.db", "--insecure", LISTEN[0], LISTEN[1]], &[]);
    let ready = manager.until("READY", "1").pop().unwrap();
    let session = dir.path().canonicalize().unwrap().join("s.db");
    assert_eq!(ready.status(), format!("serving {}", session.display()));
    let lines = lines_until(&mut server, "listening on ");
    let address = lines.last().unwrap().strip_prefix("listening on ").unwrap();
    assert_eq!(mount_root(address.parse().unwrap())[20..24], [0; 4]);
    server.signal("TERM");
    let (status, rest) = server.end();
    assert!(status.success(), "{rest:?}");
    let last = manager.rest();
    assert!(last[0].has("STOPPING", "1"), "{last:?}");
    assert!(!last.iter().any(|message| message.has("READY", "1")), "{last:?}");
}

#[test]
fn a_reload_is_announced_with_its_time_and_ends_ready() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let file = dir.join("exports.toml");
    fs::write(&file, exports(&["a"])).unwrap();
    let manager = Manager::new(dir);
    let args = ["--config", "exports.toml", LISTEN[0], LISTEN[1]];
    let server = manager.start(acetate(dir, &["serve"]), &args, &[]);
    assert_eq!(manager.until("READY", "1").pop().unwrap().status(), "serving 1 export");
    for (text, status) in [
        (exports(&["a", "b"]), "serving 2 exports"),
        ("[[export]]\n".to_owned(), "serving 2 exports; the file was not read: "),
        (exports(&["a"]), "serving 1 export"),
    ] {
        fs::write(&file, text).unwrap();
        let before = monotonic_micros();
        server.signal("HUP");
        let reloading = manager.next();
        assert!(reloading.has("RELOADING", "1"), "{reloading:?}");
        // The manager takes a reload that began before its signal for an earlier one.
        let time: i64 = reloading.get("MONOTONIC_USEC").unwrap().parse().unwrap();
        assert!((before..=monotonic_micros()).contains(&time), "{before} {time}");
        let ready = manager.next();
        assert!(ready.has("READY", "1") && ready.status().starts_with(status), "{ready:?}");
    }
    server.signal("TERM");
    assert!(server.end().0.success());
    assert!(manager.next().has("STOPPING", "1"));
}

#[test]
fn exports_that_are_not_served_are_in_the_status() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let broken = exports(&["a", "b"]) + "base = \"none\"\n";
    fs::write(dir.join("exports.toml"), broken).unwrap();
    let manager = Manager::new(dir);
    let args = ["--config", "exports.toml", LISTEN[0], LISTEN[1]];
    let server = manager.start(acetate(dir, &["serve"]), &args, &[]);
    let ready = manager.until("READY", "1").pop().unwrap();
    assert_eq!(ready.status(), "serving 1 export; not served, and tried again: 1");
    // A retry that succeeds is no reload.
    fs::create_dir(dir.join("none")).unwrap();
    let retried = manager.next();
    assert_eq!(retried.0.len(), 1, "{retried:?}");
    assert_eq!(retried.status(), "serving 2 exports");
    server.signal("TERM");
    assert!(server.end().0.success());
}

#[test]
fn a_start_that_fails_says_why() {
    let dir = tempdir().unwrap();
    let manager = Manager::new(dir.path());
    let serve = acetate(dir.path(), &["serve"]);
    let args = ["s.db", "--base", "none", LISTEN[0], LISTEN[1]];
    let server = manager.start(serve, &args, &[]);
    let (status, said) = server.end();
    assert_eq!(status.code(), Some(2));
    let last = manager.rest();
    assert!(!last.iter().any(|message| message.has("READY", "1")), "{last:?}");
    let error = said.iter().find_map(|line| line.strip_prefix("error: ")).unwrap();
    assert_eq!(last.last().unwrap().status(), format!("failed: {error}"));
}

#[test]
fn a_manager_with_an_abstract_socket_is_notified() {
    let dir = tempdir().unwrap();
    let name = format!("acetate-test-{}", std::process::id());
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let mut serve = acetate(dir.path(), &["serve"]);
    serve.env("NOTIFY_SOCKET", format!("@{name}"));
    let _server = Serving::start_as(serve, 1, &["s.db"]);
    socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let mut bytes = [0; 4096];
    loop {
        let length = socket.recv(&mut bytes).unwrap();
        if bytes[..length].starts_with(b"READY=1\n") {
            break;
        }
    }
}

#[test]
fn a_server_that_another_command_started_is_silent() {
    let dir = tempdir().unwrap();
    let manager = Manager::new(dir.path());
    let serve = acetate(dir.path(), &["serve"]);
    let args = ["s.db", "--detached", LISTEN[0], LISTEN[1]];
    let mut server = manager.start(serve, &args, &[]);
    lines_until(&mut server, "listening on ");
    server.signal("TERM");
    assert!(server.end().0.success());
    assert_eq!(manager.rest(), []);
}

/// A guard's program that keeps its environment.
#[test]
fn programs_do_not_get_the_managers_variables() {
    use nfs3_client::nfs3_types::nfs3::{createhow3, stable_how};

    use crate::e2e::peer::{Peer, mode};

    let dir = tempdir().unwrap();
    let dir = dir.path();
    let head = "[[export]]\npath = \"/a\"\noptions = [\"insecure\", \"no_root_squash\"]\n\
                [[export.mount]]\nat = \"/\"\nsession = \"a.db\"\n\
                [[export.guard]]\npath = \"/f\"\n";
    let program = "program = [\"sh\", \"-c\", \"env >environment\"]\n";
    fs::write(dir.join("exports.toml"), format!("{head}{program}")).unwrap();
    let manager = Manager::new(dir);
    let socket = super::manager::held_socket();
    let passed = vec![super::manager::passed(&socket.0)];
    let serve = super::manager::with_sockets(dir, passed, Some("nfs"));
    let more = [("WATCHDOG_USEC", "60000000"), ("KEPT", "yes")];
    let server = manager.start(serve, &["--config", "exports.toml"], &more);
    manager.until("READY", "1");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut peer = Peer::mount(socket.1, "/a", 0, 0).await.unwrap();
        let how = createhow3::UNCHECKED(mode(0o644));
        let file = peer.create(&peer.root.clone(), "f", how).await.unwrap();
        peer.write(&file, 0, b"x", stable_how::FILE_SYNC).await.unwrap();
    });
    let environment = fs::read_to_string(dir.join("environment")).unwrap();
    assert!(environment.contains("KEPT=yes\n"), "{environment}");
    for name in ["NOTIFY_", "WATCHDOG_", "LISTEN_"] {
        assert!(!environment.contains(&format!("\n{name}")), "{environment}");
    }
    drop(server);
}

/// The rest of a large copy: asked for more time for, or left to the next start.
#[test]
fn a_stop_with_a_large_copy_asks_for_time_or_leaves_the_copy() {
    const BYTES: u32 = 256 << 20;
    let dir = tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("base")).unwrap();
    let content: Vec<u8> = (0..BYTES / 4).flat_map(u32::to_le_bytes).collect();
    fs::write(dir.join("base/large"), &content).unwrap();
    let pending = || {
        let session = rusqlite::Connection::open(dir.join("s.db")).unwrap();
        let sql = "SELECT count(*) FROM acetate_copy_up";
        session.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let export = exports(&["s"]) + "base = \"base\"\n";
    fs::write(dir.join("exports.toml"), export).unwrap();
    let manager = Manager::new(dir);
    for served in [&["s.db", "--base", "base"][..], &["--config", "exports.toml"]] {
        let stopped = |more: &[&str], is_changed: bool| {
            let args = [served, &LISTEN, more].concat();
            let server = manager.start(acetate(dir, &["serve"]), &args, &[]);
            manager.until("READY", "1");
            if is_changed {
                assert!(run(dir, &["chmod", "s.db", "0600", "large"]).status.success());
            }
            server.signal("TERM");
            let (status, said) = server.end();
            assert!(status.success(), "{said:?}");
            said.into_iter().filter(|line| line.contains(" of 1 file, ")).collect::<Vec<_>>()
        };
        let said = stopped(&["--leave-copies"], true);
        let is_left = |line: &String| line.starts_with("left to the next start: the copy of 1 ");
        assert!(said.iter().all(is_left), "{said:?}");
        assert_eq!(said.len(), usize::from(served[0] == "s.db"), "{said:?}");
        assert!(!dir.join("s.db-wal").exists(), "it is closed cleanly");
        assert_eq!(pending(), 1);
        assert!(run(dir, &["check", "s.db"]).status.success());
        assert!(manager.rest()[0].has("STOPPING", "1"));
        // The next server continues, and finishes at its stop.
        let said = stopped(&[], false);
        let is_progress = |line: &String| line.starts_with("finishing the copy of 1 file, ");
        assert!(said.iter().all(is_progress), "{said:?}");
        assert_eq!(pending(), 0);
        let asked = manager.rest();
        let for_time = asked.iter().filter(|it| it.get("EXTEND_TIMEOUT_USEC").is_some());
        let for_time: Vec<_> = for_time.map(|message| message.status().to_owned()).collect();
        assert_eq!(for_time, said);
        assert!(run(dir, &["cat", "s.db", "large"]).stdout == content, "the content");
        fs::remove_file(dir.join("s.db")).unwrap();
    }
}
