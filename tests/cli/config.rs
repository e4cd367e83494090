//! `acetate config check`: what clients mount, and what does not fit.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::{TempDir, tempdir};

use super::program::{failure, run};

const EXPORTS: &str = r#"
[[export]]
path = "/chat"
clients = ["10.0.0.0/8", "::1"]
options = ["all_squash", "anonuid=7"]
quota = { bytes = "2GiB", files = 10 }
hide = [".env"]

  [[export.mount]]
  at = "/"
  session = "chat.db"
  base = "base"

  [[export.mount]]
  at = "/tools/old"
  base = "base"
  subtree = "/dir"
  ephemeral = true
  options = ["ro"]

  [[export.guard]]
  path = "/log"
  jsonl_schema = "schema.json"

[[export]]
name = "secret"
token = true

  [[export.mount]]
  at = "/"
  session = "user.db"
"#;

/// A folder with all that the exports ask for.
fn folder() -> TempDir {
    let dir = tempdir().unwrap();
    fs::create_dir_all(dir.path().join("base/dir")).unwrap();
    fs::write(dir.path().join("base/file"), "x").unwrap();
    fs::write(dir.path().join("schema.json"), "{}").unwrap();
    dir
}

fn check(dir: &Path, exports: &str) -> (Option<i32>, String) {
    fs::write(dir.join("exports.toml"), exports).unwrap();
    let output = run(dir, &["config", "check", "exports.toml"]);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let real = dir.canonicalize().unwrap();
    let said = said
        .replace(&format!("{}/", real.display()), "")
        .replace(&format!("{}/", dir.display()), "");
    (output.status.code(), said)
}

fn listed(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn exports_are_shown_and_nothing_is_made() {
    let dir = folder();
    let (code, said) = check(dir.path(), EXPORTS);
    let expected = "\
/chat
  clients  10.0.0.0/8, ::1/128
  options  rw, secure, all_squash, anonuid=7, sec=sys
  quota    2.0 GiB, 10 files
  hide     .env
  at       /           chat.db over base
  at       /tools/old  memory over base, subtree /dir, read-only
  guard    /log  JSON Lines of schema.json
/secret-TOKEN, with a token that the first start makes
  clients  127.0.0.0/8, ::1/128
  options  rw, secure, root_squash, sec=sys
  at       /  user.db
exports.toml: sound
";
    assert_eq!(said, expected);
    assert_eq!(code, Some(0));
    assert_eq!(listed(dir.path()), ["base", "exports.toml", "schema.json"]);

    let token = "0123456789abcdef0123456789abcdef";
    let tokens = dir.path().join("exports.toml.tokens");
    fs::write(&tokens, format!("\"secret\" = \"{token}\"\n")).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&tokens, private).unwrap();
    let (_, said) = check(dir.path(), EXPORTS);
    assert!(said.contains(&format!("\n/secret-{token}\n")), "{said}");

    let output = run(dir.path(), &["config", "check", "exports.toml", "--json"]);
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["type"], "export");
    assert_eq!(lines[0]["mounts"][1]["session"], Value::Null);
    assert_eq!(lines[0]["mounts"][1]["subtree"], "/dir");
    assert_eq!(lines[1]["path"], format!("/secret-{token}"));
    assert_eq!(lines[2]["is_sound"], true);
}

/// An export with these lines in its root mount.
fn export(path: &str, lines: &str) -> String {
    format!("[[export]]\npath = \"{path}\"\n[[export.mount]]\nat = \"/\"\n{lines}\n")
}

#[test]
fn what_does_not_fit_is_a_finding() {
    let dir = folder();
    let path = dir.path();
    assert!(run(path, &["init", "s.db", "--base", "base"]).status.success());
    assert!(run(path, &["init", "lost.db", "--base", "base/dir"]).status.success());
    fs::remove_dir(path.join("base/dir")).unwrap();
    fs::write(path.join("text.db"), "not a session").unwrap();
    fs::write(path.join("bad.json"), "{").unwrap();
    fs::write(path.join("odd.json"), "{\"type\": 7}").unwrap();
    let before = fs::read(path.join("s.db")).unwrap();
    let inner = "[[export.mount]]\nat = \"/a/b\"\nephemeral = true";
    let guard = |rule: &str| format!("ephemeral = true\n[[export.guard]]\npath = \"/f\"\n{rule}");
    let many = "ephemeral = true\nbase = \"base\"\n";
    let cases = [
        ("session = \"new.db\"\nbase = \"nowhere\"".to_owned(), "base nowhere: No such file"),
        (
            "session = \"new.db\"\nbase = \"base/file\"".to_owned(),
            "base/file: this is no directory",
        ),
        ("session = \"none/new.db\"".to_owned(), "there is no directory none to make it in"),
        ("session = \"text.db\"".to_owned(), "text.db"),
        ("session = \"lost.db\"".to_owned(), "session lost.db: it names a base base/dir: No such"),
        ("session = \"s.db\"\nchunk_size = 512".to_owned(), "chunks of 65536 bytes, not 512"),
        ("session = \"s.db\"\nsubtree = \"/file\"".to_owned(), "/file is no directory"),
        (format!("{many}subtree = \"/file/x\""), "subtree /file/x: /file is no directory"),
        (format!("{many}subtree = \"/x\"\noptions = [\"ro\"]"), "mount at / is read-only"),
        (format!("{many}options = [\"ro\"]\n{inner}"), "the directory above /a/b is not there"),
        (guard("json_schema = \"bad.json\""), "the JSON Schema bad.json: "),
        (guard("json_schema = \"odd.json\""), "the JSON Schema odd.json: is none"),
        (guard("json_schema = \"none.json\""), "the JSON Schema none.json: cannot be read: No"),
        (guard("program = [\"no-such-program-anywhere\"]"), "it is not in PATH"),
        (guard("program = [\"./schema.json\"]"), "program schema.json: nothing to run"),
    ];
    for (lines, finding) in cases {
        let (code, said) = check(path, &export("/a", &lines));
        let found: Vec<&str> =
            said.lines().filter(|line| line.starts_with("exports.toml:")).collect();
        assert_eq!(found.len(), 2, "{lines}: {said}");
        assert!(found[0].contains(finding), "{lines}: {said}");
        assert_eq!((code, found[1]), (Some(1), "exports.toml: 1 finding"), "{lines}: {said}");
    }
    assert_eq!(check(path, &export("/a", &guard("program = [\"sh\"]"))).0, Some(0));
    // A session that names its base is one over it for all, so they hide the same.
    let shared = export("/a", "session = \"s.db\"")
        + &export("/b", "session = \"s.db\"")
            .replace("\n[[export.mount", "\nhide = [\"x\"]\n[[export.mount");
    let (code, said) = check(path, &shared);
    assert!(
        said.contains("exports.toml:9:1: the session s.db has another `hide` in line 1"),
        "{said}"
    );
    assert_eq!(code, Some(1));
    assert!(fs::read(path.join("s.db")).unwrap() == before, "the session has changed");
    assert!(!path.join("new.db").exists());
}

#[test]
fn a_file_that_is_wrong_is_an_error() {
    let dir = folder();
    fs::write(dir.path().join("exports.toml"), "[[export]]\npath = \"/a\"\n").unwrap();
    let said = failure(dir.path(), &["config", "check", "exports.toml"]);
    assert!(said.starts_with("error: exports.toml:1:1: this export has no mount"), "{said}");
    assert!(said.contains("\nhint: "), "{said}");
    assert!(failure(dir.path(), &["config", "check", "none.toml"]).contains("none.toml"));
}
