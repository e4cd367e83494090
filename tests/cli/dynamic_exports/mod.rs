//! `acetate exports`, and `exports.d`.

mod adding;
mod broken;
mod databases;
mod failing;
mod files;
mod hanging;
mod http;
mod removing;
mod telling;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::program::{Serving, acetate};
use crate::e2e::peer::Peer;

/// The options of all exports here, for clients with high ports.
const OPTIONS: &str = "options = [\"insecure\", \"no_root_squash\"]";

/// An export at `path` over `base`.
fn export(path: &str, session: &str, more: &str) -> String {
    format!(
        "[[export]]\n{path}\n{OPTIONS}\n[[export.mount]]\nat = \"/\"\nsession = \"{session}\"\n\
         {more}\n"
    )
}

/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// The result of a command that says less than a pipe holds; killed if it hangs.
#[track_caller]
fn end(mut child: Child) -> Output {
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it hangs: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().unwrap()
}

/// A directory with `base/file` and an exports file, and the server of it while one runs.
struct Site {
    dir: TempDir,
    server: Option<Serving>,
    runtime: Runtime,
}

impl Site {
    /// With these exports; no server runs.
    fn new(exports: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("base")).unwrap();
        fs::write(dir.path().join("base/file"), "of the base").unwrap();
        fs::write(dir.path().join("exports.toml"), exports).unwrap();
        Self { dir, server: None, runtime: Runtime::new().unwrap() }
    }

    /// The same with a server of the export `/a`.
    fn start() -> Self {
        let mut site = Self::new(&export("path = \"/a\"", "a.db", "base = \"base\""));
        site.serve(&[]);
        site
    }

    fn serve(&mut self, more: &[&str]) {
        let args = [&["--config", "exports.toml"], more].concat();
        self.server = Some(Serving::start(self.dir.path(), 1, &args));
    }

    /// Stops the server in an orderly way.
    fn stop(&mut self) {
        let server = self.server.take().unwrap();
        server.signal("TERM");
        let (status, rest) = server.end();
        assert!(status.success(), "{rest:?}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `acetate exports` with these words after the exports file.
    fn exports(&self, what: &str, words: &[&str]) -> Output {
        end(self.begin(what, words))
    }

    /// Starts the same.
    fn begin(&self, what: &str, words: &[&str]) -> Child {
        let args = [&["exports", what, "exports.toml"], words].concat();
        let mut command = acetate(self.dir.path(), &args);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The same; what it prints.
    #[track_caller]
    fn done(&self, what: &str, words: &[&str]) -> String {
        let output = self.exports(what, words);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same; what it says on stderr as it fails.
    #[track_caller]
    fn fails(&self, what: &str, words: &[&str]) -> String {
        let output = self.exports(what, words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{said}");
        said
    }

    /// Adds an export over `base`.
    #[track_caller]
    fn add(&self, name: &str) -> String {
        let session = format!("{name}.db");
        let words = [name, "--session", &session, "--base", "base", "--option", "insecure"];
        self.done("add", &[&words[..], &["--option", "no_root_squash"]].concat())
    }

    /// Adds the export of a text; the result.
    fn add_text(&self, name: &str, text: &str) -> Output {
        fs::write(self.path("new.toml"), text).unwrap();
        self.exports("add", &[name, "--from", "new.toml"])
    }

    /// Name, state and source of each export that is listed.
    fn listed(&self) -> Vec<(String, Value, String)> {
        let lines = self.done("ls", &["--json"]);
        let value = |line| serde_json::from_str::<Value>(line).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let shown = |it: Value| (text(&it["name"]), it["state"].clone(), text(&it["file"]));
        lines.lines().map(value).map(shown).collect()
    }

    /// The names of the exports that are listed.
    fn names(&self) -> Vec<String> {
        self.listed().into_iter().map(|(name, ..)| name).collect()
    }

    /// All files of `exports.d`, in order, without the lock file.
    fn added_files(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path("exports.d")) else { return Vec::new() };
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != ".lock");
        names.sort();
        names
    }

    /// The superuser's mount of an export; `None` if it does not mount.
    fn mount(&self, path: &str) -> Option<Peer> {
        let address = self.server.as_ref().unwrap().addresses[0];
        let mounting = async { timeout(PATIENCE, Peer::mount(address, path, 0, 0)).await };
        self.runtime.block_on(mounting).expect("an answer")
    }

    #[track_caller]
    fn peer(&self, path: &str) -> Peer {
        self.mount(path).unwrap_or_else(|| panic!("{path} does not mount"))
    }
}
