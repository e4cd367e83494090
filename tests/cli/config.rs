//! `acetate config check`: what clients mount, and what does not fit.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
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
    assert_eq!(lines[0]["type"], "export_config");
    assert_eq!(lines[0]["mounts"][1]["session"], Value::Null);
    assert_eq!(lines[0]["mounts"][1]["subtree"], "/dir");
    assert_eq!(lines[1]["path"], format!("/secret-{token}"));
    assert_eq!(lines[2]["is_sound"], true);
}

/// All keys that there are, each with a value that is nowhere else.
const WHOLE: &str = r#"
idle_close = "5min"
max_open = 7
ephemeral_expire = "36h"

[[export]]
path = "/mounted"
name = "called"
options = ["insecure", "all_squash", "anonuid=41", "anongid=42", "sec=sys:none"]
clients = ["10.1.0.0/16"]
map_uids = [{ client = 501, server = 1001 }, { client = 600, server = 2000, count = 5 }]
map_gids = [{ client = 20, server = 3001, count = 1 }]
quota = { bytes = "3MiB", files = 77 }
max_file_bytes = "1TiB"
hide = ["*.hidden"]

  [[export.mount]]
  at = "/"
  session = "main.db"
  base = "base"
  chunk_size = 8192
  keep_originals = "5MiB"
  keep_log = { days = 7 }
  checkpoints = "idle"
  keep_checkpoints = { newest = 7, hourly = "12h", bytes = "1GiB" }

  [[export.mount]]
  at = "/below"
  ephemeral = true
  base = "base"
  subtree = "/dir"
  options = ["ro"]

  [[export.guard]]
  path = "/a.lines"
  jsonl = true
  [[export.guard]]
  path = "/b.lines"
  jsonl_schema = "schema.json"
  [[export.guard]]
  path = "/a.json"
  json = true
  [[export.guard]]
  path = "/b.json"
  json_schema = "schema.json"
  [[export.guard]]
  path = "/p"
  program = ["true", "argument"]
  timeout = "1500ms"

[[export]]
name = "hushed"
token = true
  [[export.mount]]
  at = "/"
  session = "other.db"

[[template]]
name = "chats"
path = "/chat/{user}/{chat}"
allow = { user = "[a-z]+", chat = "[0-9]+" }
token = "derived"
create = false
  [[template.mount]]
  at = "/"
  session = "chats/{user}/{chat}.db"
  [[template.mount]]
  at = "/.user"
  session = "users/{user}.db"
  shared = true
"#;

#[test]
fn all_that_the_file_says_is_shown() {
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/EXPORTS.md");
    let reference = fs::read_to_string(reference).unwrap();
    let first_cells = reference.lines().filter(|line| line.starts_with("| `"));
    let cells = first_cells.filter_map(|line| line.split(" | ").next());
    for key in cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
        let is_word = key.contains('=') || ["rw", "ro", "secure"].contains(&key);
        let is_said = WHOLE.contains(&format!("{key} = ")) || WHOLE.contains(&format!("\"{key}\""));
        assert!(is_said || is_word || key.ends_with("root_squash"), "{key} is not in this test");
    }
    let dir = folder();
    let (code, said) = check(dir.path(), WHOLE);
    let expected = "\
/mounted
  name     called
  clients  10.1.0.0/16
  options  rw, insecure, all_squash, anonuid=41, anongid=42, sec=sys:none
  map_uids 501=1001, 600-604=2000-2004
  map_gids 20=3001
  quota    3.0 MiB, 77 files
  max_file_bytes 1.0 TiB
  hide     *.hidden
  at       /       main.db over base, chunks of 8192 bytes, originals up to 5.0 MiB, log of 7 days,\
             \x20checkpoints idle:2, \
             keeps the newest 7, then one an hour for 12 hours, then one a day; \
             at most 1.0 GiB
  at       /below  memory over base, subtree /dir, read-only
  guard    /a.lines  JSON Lines
  guard    /b.lines  JSON Lines of schema.json
  guard    /a.json  JSON
  guard    /b.json  JSON of schema.json
  guard    /p  true argument (1.5 s at most)
/hushed-TOKEN, with a token that the first start makes
  clients  127.0.0.0/8, ::1/128
  options  rw, secure, root_squash, sec=sys
  at       /  other.db
template /chat/{user}/{chat}/TOKEN
  clients  127.0.0.0/8, ::1/128
  options  rw, secure, root_squash, sec=sys
  at       /       chats/{user}/{chat}.db
  at       /.user  users/{user}.db, shared
  allow    user = [a-z]+
  allow    chat = [0-9]+
  create   no: its sessions exist
server
  idle_close 5 minutes
  max_open 7
  ephemeral_expire 36 hours
exports.toml: sound
";
    assert_eq!(said, expected);
    assert_eq!(code, Some(0));

    let output = run(dir.path(), &["config", "token", "exports.toml", "/chat/u/1"]);
    let mounted = String::from_utf8(output.stdout).unwrap();
    let token = mounted.trim().strip_prefix("/chat/u/1/").unwrap();
    assert_eq!(token.len(), 32);
    for path in ["/chat/u/1", mounted.trim()] {
        let output = run(dir.path(), &["config", "check", "exports.toml", "--path", path]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.starts_with(&mounted) && said.contains("chats/u/1.db"), "{said}");
        assert!(!said.contains("template") && !said.contains("/mounted"), "{said}");
        let does = "chats/u/1.db does not exist: a mount fails (create = false)";
        assert!(said.contains(does) && output.status.code() == Some(1), "{said}");
        assert!(said.contains("chats/u/1.db: the directory "), "{said}");
        let output =
            run(dir.path(), &["config", "check", "exports.toml", "--path", path, "--json"]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("the directory ") && output.status.code() == Some(1), "{said}");
    }
    for there in ["chats/u", "users"] {
        std::fs::create_dir_all(dir.path().join(there)).unwrap();
    }
    let output = run(dir.path(), &["config", "check", "exports.toml", "--path", "/chat/u/1"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("a mount fails") && output.status.code() == Some(0), "{said}");
    std::fs::remove_dir_all(dir.path().join("chats")).unwrap();
    let toml = std::fs::read_to_string(dir.path().join("exports.toml")).unwrap();
    std::fs::write(dir.path().join("makes.toml"), toml.replace("create = false", "create = true"))
        .unwrap();
    let output = run(dir.path(), &["config", "token", "makes.toml", "/chat/u/1"]);
    assert!(output.status.success(), "{output:?}");
    let output = run(dir.path(), &["config", "check", "makes.toml", "--path", "/chat/u/1"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("chats/u/1.db does not exist: a mount makes it"), "{said}");
    assert!(said.ends_with("makes.toml: sound\n"), "{said}");
    std::fs::write(dir.path().join("chats"), "no directory").unwrap();
    for file in ["makes.toml", "exports.toml"] {
        let output = run(dir.path(), &["config", "check", file, "--path", "/chat/u/1"]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("chats is not a directory"), "{said}");
        assert_eq!(output.status.code(), Some(1), "{said}");
    }
    let check = ["config", "check", "exports.toml", "--path", "/chat/u/x"];
    let error = failure(dir.path(), &check);
    assert!(error.contains("no export has the path /chat/u/x, and no template"), "{error}");

    let output = run(dir.path(), &["config", "check", "exports.toml", "--json"]);
    let first = output.stdout.split(|byte| *byte == b'\n').next().unwrap();
    let shown: Value = serde_json::from_slice(first).unwrap();
    assert_eq!(shown["name"], "called");
    assert_eq!(shown["map_uids"][1], json!({ "client": 600, "server": 2000, "count": 5 }));
    assert_eq!(shown["map_gids"], json!([{ "client": 20, "server": 3001, "count": 1 }]));
    let mounts = (&shown["mounts"][0]["chunk_size"], &shown["mounts"][1]["chunk_size"]);
    assert_eq!(mounts, (&json!(8192), &Value::Null));
    assert_eq!(shown["mounts"][0]["keep_originals"], 5 << 20);
    let keep_log = (&shown["mounts"][0]["keep_log_changes"], &shown["mounts"][0]["keep_log_days"]);
    assert_eq!(keep_log, (&Value::Null, &json!(7)));
    assert_eq!(shown["mounts"][0]["checkpoints"], "idle:2");
    let keep =
        json!({ "newest": 7, "hourly_secs": 43_200, "daily_secs": null, "max_bytes": 1 << 30 });
    assert_eq!(shown["mounts"][0]["keep_checkpoints"], keep);
    assert_eq!(shown["guards"][4]["rule"], "true argument (1.5 s at most)");
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
    let tree = r##"{"anyOf": [{"items": {"$ref": "#"}}, {"type": "string"}]}"##;
    fs::write(path.join("tree.json"), tree).unwrap();
    let before = fs::read(path.join("s.db")).unwrap();
    let inner = "[[export.mount]]\nat = \"/a/b\"\nephemeral = true";
    let guard = |rule: &str| format!("ephemeral = true\n[[export.guard]]\npath = \"/f\"\n{rule}");
    let many = "ephemeral = true\nbase = \"base\"\n";
    let cases = [
        ("session = \"new.db\"\nbase = \"nowhere\"".to_owned(), "base nowhere: No such file"),
        ("session = \"new.db\"\nbase = \"base/file\"".to_owned(), "base/file: not a directory"),
        ("session = \"none/new.db\"".to_owned(), "the directory none does not exist"),
        ("session = \"text.db\"".to_owned(), "text.db"),
        ("session = \"lost.db\"".to_owned(), "session lost.db: it names a base base/dir: No such"),
        ("session = \"s.db\"\nchunk_size = 512".to_owned(), "chunks of 65536 bytes, not 512"),
        ("session = \"s.db\"\nsubtree = \"/file\"".to_owned(), "/file is not a directory"),
        (format!("{many}subtree = \"/file/x\""), "subtree /file/x: /file is not a directory"),
        (format!("{many}subtree = \"/x\"\noptions = [\"ro\"]"), "mount at / is read-only"),
        (format!("{many}options = [\"ro\"]\n{inner}"), "the directory above /a/b does not exist"),
        (guard("json_schema = \"bad.json\""), "the JSON Schema bad.json: "),
        (guard("json_schema = \"odd.json\""), "the JSON Schema odd.json: is none"),
        (guard("jsonl_schema = \"tree.json\""), "tree.json recurses through `anyOf` at #: deeply"),
        (guard("json_schema = \"none.json\""), "the JSON Schema none.json: cannot be read: No"),
        (guard("program = [\"no-such-program-anywhere\"]"), "not in PATH"),
        (
            guard("program = [\"./schema.json\"]"),
            "program schema.json: not found, or not executable",
        ),
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
    // Exports that share a session hide what all of them hide.
    let shared = export("/a", "session = \"s.db\"")
        + &export("/b", "session = \"s.db\"")
            .replace("\n[[export.mount", "\nhide = [\"x\"]\n[[export.mount");
    assert_eq!(check(path, &shared).0, Some(0));
    assert!(fs::read(path.join("s.db")).unwrap() == before, "the session has changed");
    assert!(!path.join("new.db").exists());
}

/// A template with this expression for its parameter, and these lines in its root mount.
fn template(allow: &str, lines: &str) -> String {
    format!(
        "[[template]]\npath = \"/c/{{c}}\"\nallow = {{ c = '{allow}' }}\n\
         [[template.mount]]\nat = \"/\"\nsession = \"s/{{c}}.db\"\n{lines}\n"
    )
}

#[test]
fn a_template_that_is_hardly_meant_is_a_finding() {
    let dir = folder();
    let wide = "allow of {c}: every name matches it";
    let none = "allow of {c}: no name matches it";
    let cases = [
        (template(".*", ""), 1, wide),
        (template(".{1,64}", ""), 1, wide),
        (template("[^/]+", ""), 1, wide),
        (template("[a&&b]", ""), 1, none),
        (template("x[a&&b]y|", ""), 1, none),
        (template("[a-z]{256,}", ""), 1, none),
        (template("[a-z]+", "base = \"nowhere/{c}\""), 4, "base nowhere: No such file"),
        (template("[a-z]+", "base = \"base/file\""), 4, "base/file: not a directory"),
        (export("/c/{c}", "ephemeral = true"), 1, "/c/{c}: an [[export]] has this path as it is"),
    ];
    for (exports, line, finding) in cases {
        let (code, said) = check(dir.path(), &exports);
        let found: Vec<&str> =
            said.lines().filter(|line| line.starts_with("exports.toml:")).collect();
        assert_eq!((code, found.len()), (Some(1), 2), "{exports}: {said}");
        assert!(found[0].contains(finding), "{exports}: {said}");
        assert!(found[0].starts_with(&format!("exports.toml:{line}:")), "{exports}: {said}");
    }
    for exports in [
        template("[a-z0-9-]{1,64}", "base = \"base/{c}\""),
        template("[^ ]+", ""),
        template("a", "base = \"base\""),
    ] {
        let (code, said) = check(dir.path(), &exports);
        assert_eq!(code, Some(0), "{exports}: {said}");
    }
}

#[test]
fn what_stands_below_another_table_than_is_meant_is_an_error_with_a_hint() {
    let dir = folder();
    let one = export("/a", "ephemeral = true");
    let of_template = template("[a-z]+", "");
    let cases = [
        (
            format!("{one}{of_template}[[export.mount]]\nat = \"/x\"\nephemeral = true\n"),
            "exports.toml:13:1: [[export.mount]] is a part of the [[export]] in line 1\n\
             hint: the parts of a template are [[template.mount]]",
        ),
        (
            format!("{one}{of_template}[[export.guard]]\npath = \"/x\"\njson = true\n"),
            "exports.toml:13:1: [[export.guard]] is a part of the [[export]] in line 1\n\
             hint: the parts of a template are [[template.guard]]",
        ),
        (
            format!("[[export]]\nidle_close = \"1s\"\n{one}"),
            "hint: `idle_close` is of the server: write it before the first [[export]]",
        ),
        (
            format!("[[export]]\nephemeral_expire = \"1h\"\n{one}"),
            "hint: `ephemeral_expire` is of the server: write it before the first [[export]]",
        ),
        (
            format!("{one}max_open = 7\n"),
            "hint: `max_open` is of the server: write it before the first [[export]]",
        ),
    ];
    for (exports, expected) in cases {
        fs::write(dir.path().join("exports.toml"), &exports).unwrap();
        let said = failure(dir.path(), &["config", "check", "exports.toml"]);
        assert!(said.contains(expected), "{exports}: {said}");
    }
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

#[test]
fn an_export_where_everybody_can_be_any_user_is_a_finding() {
    let dir = folder();
    let head = |more: &str| {
        export("/a", "session = \"s.db\"").replace("\n[[export.m", &format!("\n{more}\n[[export.m"))
    };
    for (options, word) in [("insecure", "any user but root"), ("no_root_squash", "root included")]
    {
        let open = head(&format!("clients = [\"*\"]\noptions = [\"{options}\"]"));
        let (code, said) = check(dir.path(), &open);
        let found: Vec<&str> = said.lines().filter(|line| line.contains(".toml:1:1: ")).collect();
        assert_eq!((code, found.len()), (Some(1), 1), "{said}");
        assert!(found[0].contains(&format!("`{options}`")) && found[0].contains(word), "{said}");
    }
    for sound in [
        "clients = [\"*\"]",
        "clients = [\"*\"]\noptions = [\"insecure\", \"all_squash\"]",
        "clients = [\"10.0.0.0/8\"]\noptions = [\"insecure\"]",
        "options = [\"insecure\", \"no_root_squash\"]",
    ] {
        assert_eq!(check(dir.path(), &head(sound)).0, Some(0), "{sound}");
    }
}
