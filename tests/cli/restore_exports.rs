//! `restore`, `undo` and `merge` of a session that exports show.

use std::fs;
use std::path::Path;

use tempfile::{TempDir, tempdir};

use super::program::{Serving, run};

/// A directory with a base, a session with the checkpoint `before`, and a server of `exports`.
struct Exported {
    dir: TempDir,
    server: Option<Serving>,
}

impl Exported {
    /// Runs the commands of `before` first, while no server has the session.
    fn new(before: &[&str]) -> Self {
        let dir = tempdir().unwrap();
        fs::create_dir_all(dir.path().join("base/agents/a1")).unwrap();
        fs::write(dir.path().join("base/agents/a1/note"), "base").unwrap();
        let exported = Self { dir, server: None };
        exported.says(0, "init s.db --base base");
        for words in before {
            exported.says(0, words);
        }
        exported
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn serve(&mut self, exports: &str) {
        fs::write(self.path().join("exports.toml"), exports).unwrap();
        self.server = Some(Serving::start(self.path(), 1, &["--config", "exports.toml"]));
    }

    /// What a command prints, which is to exit with `code`.
    #[track_caller]
    fn says(&self, code: i32, words: &str) -> String {
        let words: Vec<&str> = words.split(' ').collect();
        let done = run(self.path(), &words);
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert_eq!(done.status.code(), Some(code), "{words:?}: {said}");
        said
    }

    #[track_caller]
    fn end(mut self) {
        if let Some(server) = self.server.take() {
            server.signal("TERM");
            assert!(server.end().0.success());
        }
        assert!(self.says(0, "check s.db").ends_with(": sound\n"));
    }
}

/// Two exports of one session: a subtree, and the whole with a mount point two directories down.
const SHARED: &str = r#"
[[export]]
path = "/sub"
[[export.mount]]
at = "/"
session = "s.db"
base = "base"
subtree = "/agents/a2"

[[export]]
path = "/whole"
[[export.mount]]
at = "/"
session = "s.db"
[[export.mount]]
at = "/deep/er/point"
session = "other.db"
"#;

#[test]
fn a_directory_that_an_export_needs_stays() {
    let mut exported = Exported::new(&["checkpoint create s.db before"]);
    // The server makes these directories.
    exported.serve(SHARED);
    exported.says(0, "checkpoint create s.db made");
    exported.says(0, "mkdir s.db more");
    let log = exported.says(0, "log s.db");
    let refused = exported.says(2, "restore s.db before --yes");
    assert!(
        refused.contains("error: /agents/a2: the export sub shows it")
            && refused.contains("nothing was changed")
            && refused.contains("hint: "),
        "{refused}"
    );
    let refused = exported.says(2, "restore s.db before agents/a2 --yes");
    assert!(refused.contains("error: /agents/a2: the export sub shows it"), "{refused}");
    assert_eq!(exported.says(0, "log s.db"), log, "the tree was changed");
    exported.says(0, "restore s.db before more --yes");
    assert_eq!(exported.says(0, "ls s.db"), "agents\ndeep\n");
    exported.says(0, "mkdir s.db more");
    exported.says(0, "restore s.db made --yes");
    assert_eq!(exported.says(0, "ls s.db"), "agents\ndeep\n");
    exported.end();
}

#[test]
fn a_directory_above_a_mount_point_stays() {
    let mut exported = Exported::new(&["mkdir s.db -p agents/a2", "checkpoint create s.db before"]);
    exported.serve(SHARED);
    let refused = exported.says(2, "undo s.db --yes");
    assert!(refused.contains("/deep: the export whole has a mount point below it"), "{refused}");
    assert_eq!(exported.says(0, "ls s.db"), "agents\ndeep\n");
    // Without the export, it may go.
    let only_sub = SHARED.split("\n\n").next().unwrap();
    fs::write(exported.path().join("exports.toml"), only_sub).unwrap();
    let server = exported.server.as_mut().unwrap();
    server.signal("HUP");
    assert_eq!(server.line(), "read exports.toml again: 1 export; 1 removed: /whole");
    exported.says(0, "undo s.db --yes");
    assert_eq!(exported.says(0, "ls s.db"), "agents\n");
    exported.end();
}

#[test]
fn a_directory_that_an_export_needs_is_not_moved() {
    let mut exported = Exported::new(&[
        "mkdir s.db -p agents/a2",
        "mkdir s.db -p deep/er",
        "checkpoint create s.db before",
        "mv s.db agents others",
        "mkdir s.db agents",
        "mv s.db others/a2 agents/a2",
    ]);
    exported.serve(SHARED);
    // The same object is at its path before and after: only what is above it moves.
    exported.says(0, "restore s.db before --yes");
    assert_eq!(exported.says(0, "ls s.db agents"), "a1\na2\n");
    exported.end();
    let mut exported = Exported::new(&[
        "mkdir s.db -p agents/old",
        "mkdir s.db -p deep/er",
        "checkpoint create s.db before",
        "mv s.db agents/old agents/a2",
    ]);
    exported.serve(SHARED);
    let refused = exported.says(2, "restore s.db before --yes");
    assert!(refused.contains("/agents/a2: the export sub shows it"), "{refused}");
    assert_eq!(exported.says(0, "ls s.db agents"), "a1\na2\n");
    exported.end();
}

#[test]
fn a_merge_leaves_what_an_export_needs() {
    let mut exported = Exported::new(&[
        "mkdir s.db -p agents/a2",
        "mkdir s.db -p deep/er",
        "fork s.db f.db",
        "mv f.db agents elsewhere",
    ]);
    exported.serve(SHARED);
    let refused = exported.says(2, "merge s.db f.db --yes");
    assert!(refused.contains("/agents/a2: the export sub shows it"), "{refused}");
    assert_eq!(exported.says(0, "ls s.db"), "agents\ndeep\n");
    exported.end();
}

/// One export of the session; the guard accepts what has the word `good`.
const GUARDED: &str = r#"
[[export]]
path = "/g"
[[export.mount]]
at = "/"
session = "s.db"
base = "base"
subtree = "/work"
[[export.guard]]
path = "/checked/**"
program = ["sh", "-c", "grep good || { echo no good >&2; exit 1; }"]
"#;

/// Writes `text` at `path`, while no server has the session.
fn put(exported: &Exported, session: &str, path: &str, text: &str) {
    let from = exported.path().join("text");
    fs::write(&from, text).unwrap();
    exported.says(0, &format!("cp {session} text :{path}"));
}

#[test]
fn content_that_a_guard_refuses_does_not_come_back() {
    let mut exported = Exported::new(&["mkdir s.db -p work/checked/dir"]);
    put(&exported, "s.db", "/work/checked/dir/a", "bad");
    put(&exported, "s.db", "/work/checked/always", "bad as well");
    put(&exported, "s.db", "/work/free", "bad");
    exported.says(0, "checkpoint create s.db bad");
    put(&exported, "s.db", "/work/checked/dir/a", "good");
    put(&exported, "s.db", "/work/free", "good");
    exported.says(0, "checkpoint create s.db good");
    put(&exported, "s.db", "/work/checked/dir/a", "good, too");
    exported.serve(GUARDED);
    let log = exported.says(0, "log s.db");
    for words in [
        "restore s.db bad --yes",
        "restore s.db 1 --yes --json",
        "restore s.db bad work/checked/dir --yes",
    ] {
        let refused = exported.says(2, words);
        assert!(
            refused.contains("/work/checked/dir/a: refused by a guard of the export g: no good")
                && refused.contains("nothing was changed")
                && refused.contains("hint: "),
            "{refused}"
        );
    }
    assert_eq!(exported.says(0, "log s.db"), log, "the tree was changed");
    // Content that does not change is not checked, nor is that at other paths.
    exported.says(0, "restore s.db bad work/free --yes");
    assert_eq!(exported.says(0, "cat s.db work/free"), "bad");
    exported.says(0, "restore s.db good --yes");
    assert_eq!(exported.says(0, "cat s.db work/checked/dir/a"), "good");
    // Also what comes back in a moved directory.
    exported.says(0, "mv s.db work/checked work/moved");
    let refused = exported.says(2, "undo s.db --yes");
    assert!(refused.contains("/work/checked/always: refused by a guard"), "{refused}");
    exported.says(0, "rm s.db work/moved/always");
    exported.says(0, "mv s.db work/moved work/checked");
    // No guard is known at rest.
    let server = exported.server.take().unwrap();
    server.signal("TERM");
    assert!(server.end().0.success());
    exported.says(0, "restore s.db bad --yes");
    assert_eq!(exported.says(0, "cat s.db work/checked/dir/a"), "bad");
    exported.end();
}

#[test]
fn content_that_a_guard_cannot_read_does_not_come_back() {
    let mut exported = Exported::new(&["mkdir s.db -p work/checked"]);
    put(&exported, "s.db", "/work/checked/large", &"good".repeat((4 << 20) / 4 + 1));
    exported.says(0, "checkpoint create s.db large");
    put(&exported, "s.db", "/work/checked/large", "good");
    exported.serve(GUARDED);
    let refused = exported.says(2, "restore s.db large --yes");
    assert!(refused.contains("/work/checked/large: refused by a guard of the export g: "));
    assert_eq!(exported.says(0, "cat s.db work/checked/large"), "good");
    exported.end();
}

#[test]
fn content_that_a_guard_refuses_is_not_merged() {
    let mut exported = Exported::new(&["mkdir s.db -p work/checked", "mkdir s.db -p work/free"]);
    put(&exported, "s.db", "/work/checked/always", "bad as well");
    put(&exported, "s.db", "/work/free/a", "bad");
    exported.says(0, "fork s.db wrong.db moved.db right.db");
    put(&exported, "wrong.db", "/work/checked/a", "bad");
    exported.says(0, "mv moved.db work/free work/checked/dir");
    put(&exported, "right.db", "/work/checked/b", "good");
    put(&exported, "right.db", "/work/free/c", "bad");
    exported.serve(GUARDED);
    let log = exported.says(0, "log s.db");
    for (fork, path) in [("wrong.db", "a"), ("moved.db", "dir/a")] {
        let refused = exported.says(2, &format!("merge s.db {fork} --yes"));
        let why = "refused by a guard of the export g: no good";
        assert!(refused.contains(&format!("/work/checked/{path}: {why}")), "{refused}");
    }
    assert_eq!(exported.says(0, "log s.db"), log, "the tree was changed");
    // Content that does not change is not checked.
    exported.says(0, "merge s.db right.db --yes");
    assert_eq!(exported.says(0, "cat s.db work/checked/b"), "good");
    exported.end();
}
