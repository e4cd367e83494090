//! `--log-format json`: each line on stderr is an object, and lines about calls have a number.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};

use nfs3_client::nfs3_types::nfs3::{createhow3, sattr3, stable_how};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::cli::program::{Serving, acetate, run};
use crate::e2e::peer::Peer;

/// A name that ends a line, clears a terminal, and turns the direction of text.
const HOSTILE: &str = "a\n\u{1b}[2J\u{9b}\u{202e}WARN forged.json";

const EXPORTS: &str = r#"
[[export]]
path = "/x"
options = ["insecure", "no_root_squash"]
  [[export.mount]]
  at = "/"
  session = "x.db"
  [[export.guard]]
  path = "/*.json"
  json = true
"#;

/// A server whose lines are objects.
struct JsonServer {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
}

impl JsonServer {
    fn start(dir: &Path) -> Self {
        fs::write(dir.join("exports.toml"), EXPORTS).unwrap();
        let args = ["serve", "--config", "exports.toml", "--listen", "127.0.0.1:0"];
        let args = [&args[..], &["--log-format", "json", "--log", "debug"]].concat();
        let mut child = acetate(dir, &args).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line; fails if it is no such object.
    fn next(&mut self) -> Option<Value> {
        let line = self.lines.next()?.unwrap();
        assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
        let object: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        let mut keys: Vec<&String> = object.as_object().unwrap().keys().collect();
        keys.sort();
        assert_eq!(keys, ["fields", "level", "message", "target", "time"], "{line}");
        assert!(object["fields"].is_object(), "{line}");
        let levels = ["ERROR", "WARN", "INFO", "DEBUG"];
        assert!(levels.contains(&object["level"].as_str().unwrap()), "{line}");
        let time = object["time"].as_str().unwrap();
        assert!(time.len() == "2026-01-01T00:00:00.000Z".len() && time.ends_with('Z'));
        Some(object)
    }

    /// The next line with this message.
    fn until(&mut self, message: &str) -> Value {
        loop {
            let object = self.next().expect(message);
            if object["message"].as_str().unwrap().starts_with(message) {
                return object;
            }
        }
    }
}

impl Drop for JsonServer {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

async fn refused_write(address: SocketAddr) {
    let mut peer = Peer::mount(address, "/x", 0, 0).await.unwrap();
    let root = peer.root.clone();
    let how = createhow3::UNCHECKED(sattr3::default());
    let file = peer.create(&root, HOSTILE, how).await.unwrap();
    assert!(peer.write(&file, 0, b"{", stable_how::FILE_SYNC).await.is_err());
}

#[test]
fn each_line_is_an_object_and_no_name_forges_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = JsonServer::start(dir.path());
    let serving = server.until("serving 1 export of exports.toml");
    assert_eq!((&serving["level"], &serving["target"]), (&"INFO".into(), &"acetate::cli".into()));
    let listening = server.until("listening on ");
    let address = listening["message"].as_str().unwrap().rsplit(' ').next().unwrap();
    let address: SocketAddr = address.parse().unwrap();
    Runtime::new().unwrap().block_on(refused_write(address));
    let refused = server.until("refused the content of a guarded file");
    assert_eq!(refused["level"], "WARN");
    let fields = &refused["fields"];
    assert!(fields["path"].as_str().unwrap().contains("forged.json"), "{refused}");
    assert_eq!(fields["uid"], 0, "numbers are numbers");
    assert!(fields["request"].as_u64().unwrap() > 0, "{refused}");
    let pid = server.child.id().to_string();
    assert!(
        std::process::Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success()
    );
    server.until("stopping; a second signal stops at once");
    while server.next().is_some() {}
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn in_text_a_name_forges_no_line_either() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("exports.toml"), EXPORTS).unwrap();
    let mut server = Serving::start(dir.path(), 1, &["--config", "exports.toml"]);
    Runtime::new().unwrap().block_on(refused_write(server.addresses[0]));
    let line = server.line();
    assert!(line.contains(" WARN refused the content of a guarded file path="), "{line:?}");
    assert!(line.contains(" request="), "{line:?}");
    assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
    server.signal("TERM");
    let (status, rest) = server.end();
    assert!(status.success());
    assert_eq!(rest, ["stopping; a second signal stops at once"]);
}

#[test]
fn an_error_of_a_command_is_an_object_too() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["status", "none.db", "--log-format", "json"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["level"], "ERROR", "{said}");
    assert!(lines[0]["message"].as_str().unwrap().contains("none.db"), "{said}");
}

#[test]
fn a_line_of_the_writer_thread_is_about_the_call_that_waits_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Serving::start(dir.path(), 1, &["s.db", "--insecure"]);
    let other = rusqlite::Connection::open(dir.path().join("s.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let runtime = Runtime::new().unwrap();
    let address = server.addresses[0];
    // Each waits five seconds for the lock; another thread sees that after two.
    let changes = runtime.spawn(async move {
        let mut peer = Peer::connect(address, 0, 0).await;
        let root = peer.root.clone();
        while peer.mkdir(&root, "made").await.is_err() {}
    });
    let (mut waits, mut fails) = (false, false);
    // A line about work of the server itself, or about a batch that has some, has no number.
    for _ in 0..10 {
        let line = server.line();
        let number =
            line.rsplit_once(" request=").map(|(_, number)| number.parse::<u64>().unwrap());
        let is_numbered = number > Some(0);
        waits |= is_numbered && line.contains(" WARN the writer has been in one operation for 2 s");
        fails |= is_numbered && line.contains(" WARN the session did not take a change step=");
        if waits && fails {
            break;
        }
    }
    other.execute_batch("ROLLBACK").unwrap();
    assert!(waits && fails, "{waits} {fails}");
    runtime.block_on(changes).unwrap();
}
