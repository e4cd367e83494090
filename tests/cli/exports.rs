//! `serve --config`: what is announced, what is read anew, and commands on the sessions.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use tempfile::{TempDir, tempdir};

use super::program::{HalfWritten, Serving, acetate, failure, run};
use crate::support::check::assert_consistent;

fn export(path: &str, session: &str, more: &str) -> String {
    format!("[[export]]\n{path}\n[[export.mount]]\nat = \"/\"\nsession = \"{session}\"\n{more}\n")
}

fn start(exports: &str) -> (TempDir, Serving) {
    let dir = tempdir().unwrap();
    fs::create_dir(dir.path().join("base")).unwrap();
    fs::write(dir.path().join("exports.toml"), exports).unwrap();
    let server = Serving::start(dir.path(), 1, &["--config", "exports.toml"]);
    (dir, server)
}

fn write(dir: &Path, session: &str) -> Output {
    let mut command = acetate(dir, &["write", session, "/file"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"content").unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn exports_are_announced_and_secrets_are_not() {
    let all = export("path = \"/b\"", "b.db", "")
        + &export("path = \"/a\"", "a.db", "base = \"base\"")
        + &export("name = \"hush\"\ntoken = true", "c.db", "");
    let (dir, server) = start(&all);
    let port = server.addresses[0].port();
    let said = server.said.join("\n");
    assert!(said.starts_with("serving 3 exports of exports.toml\n/a\n  Linux "), "{said}");
    let order =
        ["127.0.0.1:/a /mnt", "device=:/a", "\n/b\n", "127.0.0.1:/b /mnt", "\n1 with a sec"];
    let places: Vec<usize> = order.iter().map(|part| said.find(part).expect(part)).collect();
    assert!(places.is_sorted(), "{said}");
    assert!(said.ends_with(&format!("\nlistening on 127.0.0.1:{port}")), "{said}");
    assert!(!said.contains("hush"), "{said}");
    let token = fs::read_to_string(dir.path().join("exports.toml.tokens")).unwrap();
    let token = token.lines().last().unwrap().split('"').nth(3).unwrap().to_owned();
    assert_eq!(token.len(), 32);
    // The owner is told.
    let shown = run(dir.path(), &["config", "check", "exports.toml"]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    assert!(String::from_utf8(shown.stdout).unwrap().contains(&format!("/hush-{token}\n")));
    server.signal("TERM");
    let (status, rest) = server.end();
    assert!(status.success(), "{rest:?}");
    for session in ["a.db", "b.db", "c.db"] {
        let log =
            fs::metadata(dir.path().join(format!("{session}-wal"))).map_or(0, |log| log.len());
        assert_eq!(log, 0, "{session}: the log is not checkpointed");
        assert_consistent(&dir.path().join(session));
    }
}

#[test]
fn a_hang_up_reads_the_file_anew() {
    let (a, b) = (export("path = \"/a\"", "a.db", ""), export("path = \"/b\"", "b.db", ""));
    let (dir, mut server) = start(&(a.clone() + &b));
    let dir = dir.path();
    assert!(write(dir, "b.db").status.success());
    for (bad, words) in [
        ("[[export]]\npath = \"/a\"\n".to_owned(), "this export has no mount at '/'"),
        (export("path = \"/a\"", "a.db", "base = \"none\""), "base"),
    ] {
        fs::write(dir.join("exports.toml"), bad).unwrap();
        server.signal("HUP");
        let said = server.line();
        assert!(said.starts_with("error: ") && said.contains(words), "{said}");
        assert!(said.ends_with("; all is served as before"), "{said}");
        assert!(server.line().starts_with("hint: "));
        assert!(write(dir, "b.db").status.success());
    }
    fs::write(dir.join("exports.toml"), a + &export("path = \"/c\"", "c.db", "")).unwrap();
    server.signal("HUP");
    assert_eq!(server.line(), "read exports.toml again: 2 exports; 1 added: /c; 1 removed: /b");
    // A command has the session that is not served any more, and a server those that are.
    let own = Serving::start(dir, 1, &["b.db"]);
    drop(own);
    assert!(write(dir, "b.db").status.success());
    assert!(write(dir, "c.db").status.success());
    let listed = run(dir, &["sessions"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    let real = dir.canonicalize().unwrap();
    let has = |name: &str| listed.contains(&real.join(name).display().to_string());
    assert_eq!(["a.db", "b.db", "c.db"].map(has), [true, false, true], "{listed}");
    server.signal("TERM");
    let (status, rest) = server.end();
    assert!(status.success(), "{rest:?}");
}

/// The other end of the pipe `file`, once it is being read.
fn once_read(file: &Path) -> fs::File {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut options = fs::OpenOptions::new();
    // Without a reader it cannot be opened so.
    options.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    loop {
        if let Ok(writing) = options.open(file) {
            return writing;
        }
        assert!(Instant::now() < deadline, "nobody reads it");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns once nobody listens there any more.
pub(super) fn until_refused(address: SocketAddr) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < deadline, "it still listens");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Tells a server to read its file anew, which takes until what is returned is dropped; and to
/// stop, which it begins meanwhile.
fn stop_while_reading(server: &Serving, file: &Path) -> fs::File {
    fs::remove_file(file).unwrap();
    assert!(Command::new("mkfifo").arg(file).status().unwrap().success());
    server.signal("HUP");
    let writing = once_read(file);
    server.signal("TERM");
    until_refused(server.addresses[0]);
    writing
}

#[test]
fn a_server_that_reads_the_file_anew_can_be_stopped() {
    let (dir, server) = start(&export("path = \"/a\"", "a.db", ""));
    let file = dir.path().join("exports.toml");
    let writing = stop_while_reading(&server, &file);
    server.signal("TERM");
    let (status, rest) = server.end();
    assert_eq!(status.code(), Some(2), "{rest:?}");
    drop(writing);

    fs::remove_file(&file).unwrap();
    fs::write(&file, export("path = \"/a\"", "a.db", "")).unwrap();
    let server = Serving::start(dir.path(), 1, &["--config", "exports.toml"]);
    let writing = stop_while_reading(&server, &file);
    drop(writing);
    let (status, rest) = server.end();
    assert!(status.success(), "{rest:?}");
    assert_consistent(&dir.path().join("a.db"));
}

#[test]
fn what_is_half_written_to_a_session_that_is_served_no_more_is_taken_back() {
    let a = export("path = \"/a\"", "a.db", "");
    let (dir, server) = start(&(a.clone() + &export("path = \"/b\"", "b.db", "")));
    let writing = HalfWritten::begin(dir.path(), "b.db", "file");
    let deadline = Instant::now() + Duration::from_secs(20);
    let wait = || {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(20));
    };
    while !run(dir.path(), &["ls", "b.db"]).stdout.starts_with(b".acetate-write-") {
        wait();
    }
    fs::write(dir.path().join("exports.toml"), a).unwrap();
    server.signal("HUP");
    while dir.path().join("b.db-control").exists() {
        wait();
    }
    writing.assert_told_to_stop();
    while dir.path().join("b.db-lock").exists() {
        wait();
    }
    assert_eq!(run(dir.path(), &["ls", "b.db"]).stdout, b"");
    assert_consistent(&dir.path().join("b.db"));
    server.signal("TERM");
    assert!(server.end().0.success());
}

#[test]
fn what_is_served_to_be_read_is_not_written() {
    let dir = tempdir().unwrap();
    assert!(run(dir.path(), &["init", "s.db"]).status.success());
    let made = fs::read(dir.path().join("s.db")).unwrap();
    let exports = export("path = \"/a\"\noptions = [\"ro\"]", "s.db", "");
    fs::write(dir.path().join("exports.toml"), exports).unwrap();
    let server = Serving::start(dir.path(), 1, &["--config", "exports.toml"]);
    assert_eq!(server.said[0], "serving 1 export of exports.toml");
    let refused = write(dir.path(), "s.db");
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("\nhint: "), "{said}");
    assert!(fs::read(dir.path().join("s.db")).unwrap() == made);
    server.signal("TERM");
    assert!(server.end().0.success());
}

#[test]
fn exports_where_other_machines_can_be_any_user_are_warned_of() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let all = export("path = \"/a\"\nclients = [\"*\"]\noptions = [\"insecure\"]", "a.db", "")
        + &export("path = \"/b\"\nclients = [\"*\"]", "b.db", "")
        + &export("path = \"/c\"\noptions = [\"insecure\", \"no_root_squash\"]", "c.db", "")
        + &export(
            "name = \"hush\"\ntoken = true\nclients = [\"10.0.0.0/8\"]\n\
             options = [\"no_root_squash\"]",
            "d.db",
            "",
        );
    fs::write(dir.join("exports.toml"), &all).unwrap();
    let warned = |server: &Serving| -> Vec<String> {
        let words = ["warning: ", "hint: "];
        let lines = server.said.iter().filter(|line| words.iter().any(|it| line.starts_with(it)));
        lines.cloned().collect()
    };
    let server = Serving::start(dir, 1, &["--config", "exports.toml"]);
    assert_eq!(warned(&server), [""; 0]);
    server.signal("TERM");
    server.end();
    let server = Serving::start(dir, 1, &["--config", "exports.toml", "--listen", "0.0.0.0:0"]);
    let said = warned(&server);
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(said[0].starts_with("warning: exports.toml:1:1: ") && said[0].contains("but root"));
    assert!(said[0].contains("`insecure`") && !said[0].contains("no_root_squash"), "{said:?}");
    assert!(said[2].starts_with("warning: exports.toml:") && said[2].contains("root included"));
    assert!(said[2].contains("`no_root_squash`"), "{said:?}");
    assert!(said[1].starts_with("hint: ") && said[3].starts_with("hint: "), "{said:?}");
    assert!(!said.concat().contains("hush"), "{said:?}");
    server.signal("TERM");
    server.end();
}

#[test]
fn what_an_export_says_is_no_option() {
    let dir = tempdir().unwrap();
    for other in [&["s.db"][..], &["--base", "."], &["--read-only"], &["--insecure"]] {
        let said = failure(dir.path(), &[&["serve", "--config", "exports.toml"], other].concat());
        assert!(said.contains("cannot be used with"), "{other:?}: {said}");
    }
    let said = failure(dir.path(), &["serve"]);
    assert!(said.contains("SESSION.db"), "{said}");
    let free = ["serve", "--listen", "127.0.0.1:0", "--config", "none.toml"];
    assert!(failure(dir.path(), &free).starts_with("error: none.toml: "));
}

#[test]
fn hidden_files_are_hidden_from_clients_and_not_from_the_owner() {
    let hiding = export("path = \"/a\"\nhide = [\".env\"]", "a.db", "base = \"base\"");
    let dir = tempdir().unwrap();
    let dir = dir.path();
    for name in ["conf", "other"] {
        fs::create_dir_all(dir.join("base").join(name)).unwrap();
        fs::write(dir.join("base").join(name).join(".env"), "secret").unwrap();
    }
    fs::write(dir.join("exports.toml"), hiding).unwrap();
    let server = Serving::start(dir, 1, &["--config", "exports.toml"]);
    // As a client would: the directories look empty.
    assert!(run(dir, &["rm", "a.db", "-r", "conf"]).status.success());
    assert!(run(dir, &["mkdir", "a.db", "other/.env"]).status.success());
    server.signal("TERM");
    assert!(server.end().0.success());
    assert_eq!(fs::read(dir.join("base/conf/.env")).unwrap(), b"secret");
    let diff = String::from_utf8(run(dir, &["diff", "a.db"]).stdout).unwrap();
    assert!(diff.starts_with("D /conf/ (1 file, 6 B)\n") && diff.contains("/other/.env"), "{diff}");
}

#[test]
#[cfg(target_os = "linux")]
fn content_is_checked_in_a_child_that_ends_with_the_server() {
    use crate::e2e::peer::{Peer, mode};
    use nfs3_client::nfs3_types::nfs3::{createhow3, nfsstat3, stable_how};

    let dir = tempdir().unwrap();
    fs::write(dir.path().join("object.json"), r#"{"type": "object"}"#).unwrap();
    let guard = "[[export.guard]]\npath = \"/f\"\njson_schema = \"object.json\"";
    let head = "path = \"/a\"\noptions = [\"insecure\", \"no_root_squash\"]";
    fs::write(dir.path().join("exports.toml"), export(head, "a.db", guard)).unwrap();
    let server = Serving::start(dir.path(), 1, &["--config", "exports.toml"]);
    assert_eq!(server.children(), [""; 0], "nothing was to be checked");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut peer = Peer::mount(server.addresses[0], "/a", 0, 0).await.unwrap();
        let how = createhow3::UNCHECKED(mode(0o644));
        let file = peer.create(&peer.root.clone(), "f", how).await.unwrap();
        peer.write(&file, 0, b"{}", stable_how::FILE_SYNC).await.unwrap();
        let bad = peer.write(&file, 0, b"[]", stable_how::FILE_SYNC).await;
        assert_eq!(bad.map(drop), Err(nfsstat3::NFS3ERR_INVAL));
    });
    let children = server.children();
    assert_eq!(children.len(), 1);
    server.signal("KILL");
    server.end();
    let start = Instant::now();
    while Path::new("/proc").join(&children[0]).join("exe").exists() {
        assert!(start.elapsed() < Duration::from_secs(20), "it goes on without its server");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_template_is_announced_and_its_instances_are_known_by_their_sessions() {
    let template = "idle_close = \"1s\"\n[[template]]\npath = \"/chat/{id}\"\n\
        allow = { id = \"[a-z0-9]+\" }\n[[template.mount]]\nat = \"/\"\n\
        session = \"chats/{id}.db\"\n";
    let (dir, server) = start(template);
    let said = server.said.join("\n");
    assert!(said.contains("serving 0 exports of exports.toml\ntemplate /chat/{id}: "), "{said}");
    assert!(!dir.path().join("chats").exists(), "nothing is made before a mount");
    assert!(dir.path().join("exports.toml.instances").exists());
    server.signal("TERM");
    let (status, _) = server.end();
    assert!(status.success());
}
