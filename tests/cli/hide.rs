//! `--hide`: what a session never shows of its base.

use std::fs;
use std::path::Path;

use tempfile::{TempDir, tempdir};

use super::program::{Serving, failure, run};

/// A base with secrets, in a directory.
fn world() -> TempDir {
    let dir = tempdir().unwrap();
    for (path, content) in [
        ("file", "file"),
        (".env", "secret"),
        ("conf/.env.local", "secret"),
        ("conf/public", "public"),
        ("keys/id_rsa", "secret"),
        ("keys/sub/file", "file"),
    ] {
        let path = dir.path().join("base").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

/// What a command prints; it must end with this code.
#[track_caller]
fn said(dir: &Path, code: i32, args: &[&str]) -> String {
    let output = run(dir, args);
    let (out, error) = (output.stdout, String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
    String::from_utf8(out).unwrap() + &error
}

#[test]
fn what_is_hidden_is_in_no_tool_and_the_session_remembers_it() {
    let dir = world();
    let dir = dir.path();
    let real = dir.canonicalize().unwrap();
    let hides = ["--hide", ".env*", "--hide", "/keys/id_*"];
    let made = said(dir, 0, &[&["init", "s.db", "--base", "base"][..], &hides].concat());
    let expected =
        format!("created {0}/s.db over {0}/base; hides .env*, /keys/id_*\n", real.display());
    assert_eq!(made, expected);
    assert_eq!(said(dir, 0, &["hide", "s.db"]), ".env*\n/keys/id_*\n");
    let first = said(dir, 0, &["status", "s.db"]);
    let first = first.lines().next().unwrap();
    assert_eq!(first, format!("session      {}/s.db; hides .env*, /keys/id_*", real.display()));
    // Also what comes later.
    fs::write(dir.join("base/conf/.env"), "secret").unwrap();
    assert_eq!(
        said(dir, 0, &["find", "s.db"]).lines().collect::<Vec<_>>(),
        ["/", "/conf", "/conf/public", "/file", "/keys", "/keys/sub", "/keys/sub/file"]
    );
    for path in ["/.env", "/conf/.env", "/keys/id_rsa"] {
        assert!(said(dir, 2, &["cat", "s.db", path]).contains("no such file"), "{path}");
    }
    said(dir, 0, &["export", "s.db", "--dir", "out"]);
    assert!(dir.join("out/keys/sub/file").exists() && !dir.join("out/keys/id_rsa").exists());
    said(dir, 0, &["snapshot", "s.db", "copy.db"]);
    assert!(said(dir, 2, &["cat", "copy.db", "/.env"]).contains("no such file"));
    let format = "SELECT value FROM acetate_meta WHERE key = 'format_version'";
    for session in ["s.db", "copy.db"] {
        let sql = rusqlite::Connection::open(dir.join(session)).unwrap();
        assert_eq!(sql.query_row(format, [], |row| row.get::<_, i64>(0)).unwrap(), 2);
        said(dir, 0, &["check", session]);
    }
}

#[test]
fn a_server_hides_it_and_says_so_in_its_first_line() {
    let dir = world();
    let dir = dir.path();
    let real = dir.canonicalize().unwrap().display().to_string();
    let server = Serving::start(dir, 1, &["s.db", "--base", "base", "--hide-secrets"]);
    let first = &server.said[0];
    let expected = format!(
        "serving {real}/base, never written; changes go to {real}/s.db; hides the 17 patterns of \
         --hide-secrets (`acetate status` lists them)"
    );
    assert_eq!(*first, expected);
    let status = said(dir, 0, &["status", "s.db"]);
    assert!(status.contains("; hides .env*, .ssh, ") && status.contains("id_rsa"), "{status}");
    // Through the server, as a client sees it.
    said(dir, 0, &["mkdir", "s.db", "keys/id_rsa"]);
    assert!(failure(dir, &["hide", "s.db", "--hide", "x"]).contains("in use by another server"));
    server.signal("TERM");
    assert!(server.end().0.success());
    // More is added to what it remembers.
    let server = Serving::start(dir, 1, &["s.db", "--hide", "sub"]);
    let more = "; hides sub, and the 17 patterns of --hide-secrets (`acetate status` lists them)";
    assert!(server.said[0].ends_with(more), "{:?}", server.said);
    server.signal("TERM");
    server.end();
    assert!(said(dir, 0, &["hide", "s.db"]).ends_with("\nsub\n"));
}

#[test]
fn what_is_hidden_stays_as_it_is_in_the_base_whatever_is_applied() {
    let dir = world();
    let dir = dir.path();
    said(dir, 0, &["init", "s.db", "--base", "base", "--hide", ".env*", "--hide", "/keys/id_*"]);
    // In a later second, so that nothing counts as changed with it. As clients that do not see the
    // hidden paths would.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    said(dir, 0, &["rm", "s.db", "-r", "conf"]);
    fs::write(dir.join("mine"), "mine").unwrap();
    said(dir, 0, &["cp", "s.db", "mine", ":/.env"]);
    said(dir, 0, &["cp", "s.db", "mine", ":/mine"]);
    let mut moved = acetate::workspace::Workspace::open(&dir.join("s.db"), None).unwrap();
    moved.rename("keys", "moved").unwrap();
    moved.close().unwrap();
    // Newer than all that the session did: drift that --force overwrites.
    fs::write(dir.join("base/conf/.env.new"), "secret").unwrap();
    let plan = said(dir, 1, &["apply", "s.db", "--yes", "--force"]);
    for line in [
        "/.env: the session hides this path: what the base has there stays as it is",
        "/conf: holds /conf/.env",
        "/moved: what the session hides in it would show at the new path",
    ] {
        assert!(plan.contains(line), "{plan}");
    }
    for (path, content) in [
        (".env", "secret"),
        ("conf/.env.local", "secret"),
        ("conf/.env.new", "secret"),
        ("keys/id_rsa", "secret"),
        ("mine", "mine"),
    ] {
        assert_eq!(fs::read_to_string(dir.join("base").join(path)).unwrap(), content, "{path}");
    }
    // Named, it stays too.
    said(dir, 1, &["apply", "s.db", "--yes", "--force", "/conf"]);
    assert!(dir.join("base/conf/.env.local").exists());
    // Shown again, it may go; named, as by the log no client removed it.
    said(dir, 0, &["hide", "s.db", "--remove", ".env*", "--remove", "/keys/id_*"]);
    said(dir, 0, &["apply", "s.db", "--yes", "--force", "/conf"]);
    said(dir, 0, &["apply", "s.db", "--yes", "--force"]);
    assert!(!dir.join("base/conf").exists() && dir.join("base/moved/id_rsa").exists());
    assert_eq!(fs::read_to_string(dir.join("base/.env")).unwrap(), "mine");
}

#[test]
fn a_patch_leaves_out_what_comes_to_hidden_paths_and_git_takes_the_rest() {
    let dir = world();
    let dir = dir.path();
    said(dir, 0, &["init", "s.db", "--base", "base", "--hide", ".env*", "--hide", "/keys/id_*"]);
    fs::write(dir.join("mine"), "mine").unwrap();
    for path in [":/.env", ":/mine", ":/conf/.env.local"] {
        said(dir, 0, &["cp", "s.db", "mine", path]);
    }
    said(dir, 0, &["mkdir", "s.db", "keys/id_rsa"]);
    said(dir, 0, &["cp", "s.db", "mine", ":/keys/id_rsa/x"]);
    // Moved there: the base keeps it.
    said(dir, 0, &["mv", "s.db", "file", ".env.file"]);
    let output = run(dir, &["diff", "s.db", "-p"]);
    let (patch, notes) = (output.stdout, String::from_utf8(output.stderr).unwrap());
    let expected: String = ["/.env", "/.env.file", "/conf/.env.local", "/keys/id_rsa"]
        .map(|path| format!("not in the patch: {path}: the session hides this path\n"))
        .concat();
    assert_eq!(notes, expected);
    fs::write(dir.join("patch"), &patch).unwrap();
    let mut git = std::process::Command::new("git");
    let git = git.current_dir(dir.join("base")).args(["apply", "../patch"]).output().unwrap();
    assert!(git.status.success(), "{}", String::from_utf8_lossy(&git.stderr));
    for (path, content) in [(".env", "secret"), ("mine", "mine"), ("file", "file")] {
        assert_eq!(fs::read_to_string(dir.join("base").join(path)).unwrap(), content, "{path}");
    }
}

#[test]
fn what_depends_on_a_move_that_is_left_out_is_left_out_with_it() {
    let dir = world();
    let dir = dir.path();
    fs::create_dir_all(dir.join("base/a")).unwrap();
    fs::write(dir.join("base/a/file"), "a").unwrap();
    said(dir, 0, &["init", "s.db", "--base", "base", "--hide", "/conf/.env.local"]);
    fs::write(dir.join("mine"), "mine").unwrap();
    said(dir, 0, &["mv", "s.db", "conf", "conf2"]);
    said(dir, 0, &["cp", "s.db", "mine", ":/conf2/public"]);
    said(dir, 0, &["cp", "s.db", "mine", ":/conf2/new"]);
    // Moved to where that was, with something in it; and something else to where it was.
    said(dir, 0, &["mv", "s.db", "a", "conf"]);
    for path in [":/conf/.env.local", ":/conf/more", ":/a", ":/other"] {
        said(dir, 0, &["cp", "s.db", "mine", path]);
    }
    let shown = said(dir, 1, &["apply", "s.db", "--yes"]);
    for line in [
        "- /conf2: what the session hides in it would show at the new path",
        "- /conf2/new: in /conf2, whose move is left out",
        "- /conf2/public: in /conf2, whose move is left out",
        "- /conf: its path is not free: the move from there to /conf2 is left out",
        "- /conf/more: in /conf, which is left out",
        "- /a: its path is not free: the move from there to /conf is left out",
    ] {
        assert!(shown.lines().any(|said| said == line), "{line}: {shown}");
    }
    let read = |path: &str| fs::read_to_string(dir.join("base").join(path)).unwrap();
    assert_eq!((read("other").as_str(), read("a/file").as_str()), ("mine", "a"));
    assert_eq!(
        (read("conf/public").as_str(), read("conf/.env.local").as_str()),
        ("public", "secret")
    );
    assert_eq!(fs::read_dir(dir.join("base/conf")).unwrap().count(), 2);
    // The session keeps what was left out.
    for (path, content) in [("conf2/public", "mine"), ("conf/file", "a"), ("a", "mine")] {
        assert_eq!(said(dir, 0, &["cat", "s.db", path]), content, "{path}");
    }
    said(dir, 0, &["hide", "s.db", "--remove", "/conf/.env.local"]);
    said(dir, 0, &["apply", "s.db", "--yes"]);
    assert_eq!((read("conf2/public").as_str(), read("conf/more").as_str()), ("mine", "mine"));
}

#[test]
fn what_the_session_changed_is_named_when_it_is_hidden() {
    let dir = world();
    let dir = dir.path();
    said(dir, 0, &["init", "s.db", "--base", "base", "--hide", "/file"]);
    said(dir, 0, &["mkdir", "s.db", "made"]);
    said(dir, 0, &["chmod", "s.db", "600", "conf/public"]);
    let hidden = said(dir, 0, &["hide", "s.db", "--hide", "public", "--hide", "keys"]);
    assert!(hidden.starts_with("/file\npublic\nkeys\n/conf/public: changed in the session, "));
    assert!(hidden.contains("hint: `acetate discard s.db PATH`"), "{hidden}");
    assert_eq!(hidden.lines().count(), 5, "{hidden}");
    assert_eq!(said(dir, 0, &["hide", "s.db"]), "/file\npublic\nkeys\n");
    assert_eq!(said(dir, 0, &["cat", "s.db", "conf/public"]), "public");
    said(dir, 0, &["discard", "s.db", "conf/public"]);
    said(dir, 2, &["cat", "s.db", "conf/public"]);
}

#[test]
fn patterns_are_checked_and_forgotten_by_name() {
    let dir = world();
    let dir = dir.path();
    said(dir, 0, &["init", "s.db", "--base", "base", "--hide", "a", "--hide", "b"]);
    for wrong in ["a/", "!x", "[a", ""] {
        failure(dir, &["hide", "s.db", "--hide", wrong]);
    }
    let error = failure(dir, &["hide", "s.db", "--remove", "c"]);
    assert!(error.contains("does not hide c\nhint: `acetate hide s.db`"), "{error}");
    assert_eq!(said(dir, 0, &["hide", "s.db", "--remove", "a", "--hide", "c"]), "b\nc\n");
    let json = said(dir, 0, &["hide", "s.db", "--json"]);
    assert!(json.contains(r#""hide":["b","c"]"#), "{json}");
    let nothing = said(dir, 0, &["hide", "s.db", "--remove", "b", "--remove", "c"]);
    assert_eq!(nothing, "s.db: hides nothing\n");
}

#[test]
fn a_pattern_that_is_none_hides_nothing_less_until_it_is_repaired() {
    let dir = world();
    let dir = dir.path();
    said(dir, 0, &["init", "s.db", "--base", "base", "--hide", ".env*"]);
    let sql = rusqlite::Connection::open(dir.join("s.db")).unwrap();
    let damage = "UPDATE acetate_meta SET value = '.env*' || char(10) || 'x/' WHERE key = 'hide'";
    sql.execute(damage, []).unwrap();
    drop(sql);
    assert!(failure(dir, &["ls", "s.db"]).contains("acetate_meta.hide: a pattern does not end"));
    assert!(said(dir, 1, &["check", "s.db"]).contains("M7"));
    said(dir, 0, &["check", "s.db", "--repair"]);
    assert_eq!(said(dir, 0, &["hide", "s.db"]), ".env*\n");
}

#[test]
fn a_server_of_exports_says_what_each_hides() {
    let dir = world();
    let dir = dir.path();
    said(dir, 0, &["init", "s.db", "--base", "base", "--hide", "id_*"]);
    let export = |head: &str, session: &str| {
        format!("[[export]]\n{head}\n[[export.mount]]\nat = \"/\"\nsession = \"{session}\"\n")
    };
    let exports = export("path = \"/a\"\nhide = [\".env*\"]", "s.db")
        + &export("path = \"/b\"", "b.db")
        + &export("name = \"hush\"\ntoken = true\nhide = [\"*.key\"]", "c.db");
    fs::write(dir.join("exports.toml"), exports).unwrap();
    let server = Serving::start(dir, 1, &["--config", "exports.toml"]);
    let lines = &server.said;
    assert_eq!(lines[1], "/a; hides .env*, id_*", "{lines:?}");
    for line in ["/b", "  one with a secret path; hides *.key"] {
        assert!(lines.iter().any(|said| said == line), "{lines:?}");
    }
}
