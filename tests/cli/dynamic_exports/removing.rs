//! `exports rm`, with the sessions and without.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use serde_json::Value;

use super::{PATIENCE, Site, export};
use crate::cli::program::{Serving, run};

/// The files whose names begin so, in order.
fn files(site: &Site, begin: &str) -> Vec<String> {
    let names = fs::read_dir(site.dir.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with(begin)).collect();
    names.sort();
    names
}

#[test]
fn delete_is_refused_for_what_is_no_session_and_beside_another_exports_file() {
    let site = Site::new("");
    fs::create_dir(site.path("exports.d")).unwrap();
    fs::write(site.path("thesis.db"), "not a session").unwrap();
    fs::write(site.path("exports.d/z.toml"), export("path = \"/z\"", "thesis.db", "")).unwrap();
    let said = site.fails("rm", &["z", "--delete"]);
    assert!(said.contains("thesis.db") && said.contains("nothing is changed"), "{said}");
    assert!(site.path("thesis.db").exists() && site.path("exports.d/z.toml").exists());
    site.done("rm", &["z"]);
    site.done("add", &["s", "--session", "s.db"]);
    assert!(run(site.dir.path(), &["init", "s.db"]).status.success());
    fs::write(site.path("other.toml"), export("path = \"/o\"", "s.db", "")).unwrap();
    let said = site.fails("rm", &["s", "--delete"]);
    assert!(said.contains("as the export o of other.toml may use it too"), "{said}");
    assert!(site.path("s.db").exists() && site.path("exports.d/s.toml").exists());
    // One that has other sessions is no reason, nor is the file that the export was added from.
    fs::write(site.path("other.toml"), export("path = \"/o\"", "o.db", "")).unwrap();
    fs::copy(site.path("exports.d/s.toml"), site.path("source.toml")).unwrap();
    site.done("rm", &["s", "--delete"]);
    assert!(!site.path("s.db").exists());
}

/// A server may have each of them: it read an earlier text, or reads another exports.d beside it.
#[test]
fn delete_is_refused_beside_an_exports_file_that_is_a_link_or_at_fault() {
    let site = Site::new("");
    site.done("add", &["s", "--session", "s.db"]);
    assert!(run(site.dir.path(), &["init", "s.db"]).status.success());
    let other = site.path("other.toml");
    let of = |path: &str| export(&format!("path = \"{path}\""), "s.db", "");
    let shared = "export o of other.toml may use it too";
    let link = |at: &str| {
        fs::create_dir_all(site.path(at)).unwrap();
        fs::write(site.path(at).join("o"), of("/o").replace("s.db", "../s.db")).unwrap();
        symlink(format!("{at}/o"), &other).unwrap();
    };
    let makes: [(&dyn Fn(), &str); 6] = [
        // Its path is also that of an export of exports.d.
        (&|| fs::write(&other, of("/s")).unwrap(), "export s of other.toml may use it too"),
        (&|| fs::write(&other, of("/o") + "no_such_key = 1\n").unwrap(), shared),
        (&|| fs::write(&other, of("/o").replace("s.db", "\\u0073.db")).unwrap(), shared),
        (&|| fs::write(&other, of("/o").replace("s.db", "./exports.d/../s.db")).unwrap(), shared),
        (&|| fs::write(&other, of("/o") + "x = \n").unwrap(), "not known which sessions it has"),
        (&|| link("other"), shared),
    ];
    for (index, (make, words)) in makes.into_iter().enumerate() {
        make();
        let said = site.fails("rm", &["s", "--delete"]);
        assert!(said.contains(words) && said.contains("hint: "), "{index}: {said}");
        assert!(site.path("s.db").exists() && site.path("exports.d/s.toml").exists());
        fs::remove_file(&other).unwrap();
    }
    // A link to nothing, and TOML of another kind.
    symlink("nowhere", &other).unwrap();
    fs::write(site.path("package.toml"), "[template]\nsession = \"s.db\"\n").unwrap();
    fs::write(site.path("text.toml"), "s.db is not an exports file\n").unwrap();
    site.done("rm", &["s", "--delete"]);
    assert!(!site.path("s.db").exists());
}

#[test]
fn delete_leaves_what_is_no_session_or_is_mounted_read_only() {
    let site = Site::new("");
    fs::create_dir(site.path("exports.d")).unwrap();
    let other = rusqlite::Connection::open(site.path("places.db")).unwrap();
    other.execute_batch("CREATE TABLE t (x)").unwrap();
    drop(other);
    fs::write(site.path("empty.db"), "").unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(site.path("pipe.db")).status().unwrap();
    assert!(pipe.success());
    for name in ["places", "empty", "pipe"] {
        let file = format!("{name}.db");
        fs::write(site.path(&format!("exports.d/{name}.toml")), export("path = \"/x\"", &file, ""))
            .unwrap();
        let said = site.fails("rm", &[name, "--delete"]);
        assert!(said.contains("no session; nothing is changed"), "{said}");
        assert!(site.path(&file).exists());
        site.done("rm", &[name]);
    }
    assert!(run(site.dir.path(), &["init", "agent.db"]).status.success());
    let text = export("path = \"/a\"", "agent.db", "options = [\"ro\"]");
    fs::write(site.path("exports.d/a.toml"), text).unwrap();
    site.done("rm", &["a", "--delete"]);
    assert!(site.path("agent.db").exists());
}

#[test]
fn sessions_are_deleted_with_all_that_is_beside_them() {
    let mut site = Site::start();
    for is_served in [true, false] {
        site.add("b");
        if is_served {
            let mut b = site.peer("/b");
            let root = b.root.clone();
            site.runtime.block_on(b.put(&root, "own", "content"));
        } else {
            assert!(run(site.dir.path(), &["init", "b.db"]).status.success());
        }
        fs::create_dir(site.path("b.db-undo")).unwrap();
        fs::write(site.path("b.db-undo/kept"), "x").unwrap();
        fs::write(site.path("b.db-wal"), "x").unwrap_or_default();
        if is_served {
            fs::remove_file(site.path("b.db-wal")).unwrap();
        }
        fs::write(site.path("b.db.log"), "x").unwrap();
        fs::write(site.path("b.dbx"), "of another").unwrap();
        let removed: Value =
            serde_json::from_str(&site.done("rm", &["b", "--delete", "--json"])).unwrap();
        let session = site.dir.path().canonicalize().unwrap().join("b.db");
        assert_eq!(removed["deleted"], serde_json::json!([session]), "{removed}");
        assert_eq!(removed["is_applied"], is_served);
        assert_eq!(files(&site, "b."), ["b.dbx"]);
        assert_eq!(site.added_files(), [""; 0]);
        if is_served {
            site.stop();
        }
    }
    assert!(site.path("base/file").exists());
}

#[test]
fn a_session_that_others_may_use_is_not_deleted() {
    let template = "[[template]]\npath = \"/t/{x}\"\nallow = { x = \"[a-z]+\" }\n\
        [[template.mount]]\nat = \"/\"\nsession = \"t/{x}.db\"\n";
    let mut site = Site::new(&(export("path = \"/a\"", "a.db", "") + template));
    fs::create_dir(site.path("t")).unwrap();
    site.serve(&[]);
    for (name, session, words) in [
        ("b", "a.db", "as the export a may use it too"),
        ("c", "./t/../a.db", "as the export a may use it too"),
        ("d", "t/d.db", "as the template /t/{x} may use it too"),
    ] {
        assert!(
            site.add_text(
                name,
                &export("", session, "").replace("]]\n\n", &format!("]]\npath = \"/{name}\"\n"))
            )
            .status
            .success()
        );
        let said = site.fails("rm", &[name, "--delete"]);
        assert!(said.contains(words) && said.contains("hint: leave --delete out"), "{said}");
        site.peer(&format!("/{name}"));
        site.done("rm", &[name]);
        assert!(site.path(session).exists());
    }
    site.peer("/a");
}

#[test]
fn a_session_that_a_command_uses_is_not_deleted() {
    let mut site = Site::start();
    site.add("b");
    let command = UnixStream::connect(site.path("b.db-control")).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let said = loop {
        assert!(Instant::now() < deadline, "the connection does not count");
        // Until the server has accepted the connection.
        let output = site.exports("rm", &["b", "--delete"]);
        let said = String::from_utf8(output.stderr).unwrap();
        if output.status.code() == Some(2) {
            break said;
        }
        site.add("b");
    };
    assert!(said.contains("b.db: in use; nothing is changed"), "{said}");
    assert_eq!(site.names(), ["a", "b"]);
    drop(command);
    site.stop();
    let other = Serving::start(site.dir.path(), 1, &["b.db"]);
    let said = site.fails("rm", &["b", "--delete"]);
    assert!(said.contains("b.db: in use; nothing is changed"), "{said}");
    assert!(site.path("b.db").exists());
    assert_eq!(site.added_files(), ["b.toml"]);
    drop(other);
    site.done("rm", &["b", "--delete"]);
    assert_eq!(files(&site, "b."), [""; 0]);
}

#[test]
fn an_interrupted_deletion_is_finished() {
    let site = Site::start();
    site.add("b");
    site.done("rm", &["b"]);
    let toml = export("path = \"/b\"", "b.db", "");
    fs::write(site.path("exports.d/.b.removed"), toml).unwrap();
    assert!(site.path("b.db").exists());
    assert!(site.fails("rm", &["b"]).contains("there is no export b in exports.d"));
    site.done("rm", &["b", "--delete"]);
    assert_eq!(files(&site, "b."), [""; 0]);
    assert_eq!(site.added_files(), [""; 0]);
}

#[test]
fn an_interrupted_deletion_is_finished_beside_a_new_export_of_its_path() {
    let site = Site::start();
    let begun = |path: &str, session: &str| {
        let toml = export(&format!("path = \"{path}\""), session, "");
        fs::write(site.path("exports.d/.b.removed"), toml).unwrap();
    };
    site.add("b");
    site.done("rm", &["b"]);
    begun("/b", "b.db");
    site.done("add", &["new", "--path", "/b", "--session", "new.db", "--option", "insecure"]);
    site.done("rm", &["b", "--delete"]);
    assert_eq!(files(&site, "b."), [""; 0]);
    assert_eq!(site.added_files(), ["new.toml"]);
    site.peer("/b");
    // Its session stays, if that is of the new one.
    begun("/old", "new.db");
    let said = site.fails("rm", &["b", "--delete"]);
    assert!(said.contains("as the export new may use it too"), "{said}");
    site.peer("/b");
    // A new export of its name ends it, and says which sessions stay.
    begun("/old", "old.db");
    fs::write(site.path("old.db"), "").unwrap();
    let output = site.exports("add", &["b", "--path", "/b2", "--session", "b2.db"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let session = site.dir.path().join("old.db");
    let stays = "stays: an earlier `exports rm --delete` of b was interrupted\n";
    assert_eq!(said, format!("warning: {} {stays}", session.display()));
    assert!(session.exists() && site.added_files() == ["b.toml", "new.toml"]);
}

#[test]
fn only_exports_of_the_directory_are_removed() {
    let site = Site::start();
    let said = site.fails("rm", &["a"]);
    assert!(said.contains("there is no export a in exports.d"), "{said}");
    assert!(said.contains("hint: exports.toml has it"), "{said}");
    assert!(site.fails("rm", &["b"]).contains("hint: `acetate exports ls`"));
    assert_eq!(site.names(), ["a"]);
}
