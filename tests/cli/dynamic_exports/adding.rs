//! What is added is served at once, and by each start.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nfs3_client::nfs3_types::nfs3::nfsstat3;
use serde_json::Value;

use super::{PATIENCE, Site, end, export};
use crate::cli::program::{Serving, acetate};

#[test]
fn an_export_comes_and_goes_while_others_are_used() {
    let mut site = Site::start();
    let mut a = site.peer("/a");
    let root = a.root.clone();
    let held = site.runtime.block_on(a.put(&root, "held", "content"));
    assert_eq!(site.add("b"), "/b is served\n");
    assert_eq!(site.added_files(), ["b.toml"]);
    let mut b = site.peer("/b");
    let new = b.root.clone();
    site.runtime.block_on(async {
        assert_eq!(b.ls(&new).await, ["file"]);
        b.put(&new, "own", "content").await;
        assert_eq!(a.read(&held, 0, 100).await, Ok(b"content".to_vec()));
    });
    let open = Value::from("open");
    let own = ("a".to_owned(), open.clone(), "exports.toml".to_owned());
    let added = ("b".to_owned(), open, "exports.d/b.toml".to_owned());
    assert_eq!(site.listed(), [own, added]);
    // A restart has it, and its handles.
    site.stop();
    site.serve(&[]);
    let mut b = site.peer("/b");
    site.runtime.block_on(async { assert_eq!(b.ls(&new).await, ["file", "own"]) });
    site.done("rm", &["b"]);
    assert_eq!((site.names(), site.added_files()), (vec!["a".to_owned()], Vec::new()));
    let stale = site.runtime.block_on(b.getattr(&new)).err();
    assert_eq!(stale, Some(nfsstat3::NFS3ERR_STALE));
    assert!(site.mount("/b").is_none());
    assert!(site.path("b.db").exists(), "its session stays");
    site.stop();
    site.serve(&[]);
    assert!(site.mount("/b").is_none());
    site.peer("/a");
}

#[test]
fn without_a_server_a_change_is_for_the_next_start() {
    let mut site = Site::new("");
    let output = site.exports("add", &["b", "--session", "b.db", "--option", "insecure"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "warning: no server of exports.toml answers: the next start takes b\n");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "/b is for the next start\n");
    assert!(!site.path("b.db").exists());
    let listed = ("b".to_owned(), Value::Null, "exports.d/b.toml".to_owned());
    assert_eq!(site.listed(), [listed]);
    site.serve(&[]);
    site.peer("/b");
    // A server may have no export at all: the directory says that others come.
    site.done("rm", &["b"]);
    site.stop();
    site.done("add", &["d", "--session", "d.db"]);
    let said = String::from_utf8(site.exports("rm", &["d"]).stderr).unwrap();
    let next = "warning: no server of exports.toml answers: the next start no longer serves d\n";
    assert!(said.ends_with(next), "{said}");
    site.serve(&[]);
    assert_eq!(site.names(), [""; 0]);
    site.add("c");
    site.peer("/c");
}

#[test]
fn an_export_is_taken_from_a_file_or_from_standard_input() {
    let site = Site::start();
    fs::create_dir(site.path("elsewhere")).unwrap();
    // Relative paths begin at the exports file.
    let toml = export("path = \"/from/file\"", "b.db", "base = \"base\"");
    fs::write(site.path("elsewhere/new.toml"), &toml).unwrap();
    site.done("add", &["b", "--from", "elsewhere/new.toml"]);
    assert_eq!(fs::read_to_string(site.path("exports.d/b.toml")).unwrap(), toml);
    site.peer("/from/file");
    let mut command = acetate(site.dir.path(), &["exports", "add", "exports.toml", "c"]);
    let mut child = command.args(["--from", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let secret = export("token = true", "c.db", "");
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), secret.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let lines = site.done("ls", &["--json"]);
    let listed: Value = serde_json::from_str(lines.lines().nth(1).unwrap()).unwrap();
    let path = listed["path"].as_str().unwrap();
    assert_eq!((listed["name"].as_str(), path.len()), (Some("c"), "/c-".len() + 32), "{listed}");
    site.peer(path);
}

#[test]
fn an_export_is_replaced_only_when_that_is_asked_for() {
    let site = Site::start();
    site.add("b");
    let said = site.fails("add", &["b", "--session", "other.db"]);
    assert!(said.contains("there is an export b in exports.d") && said.contains("--replace"));
    let words = ["b", "--session", "other.db", "--path", "/other", "--option", "insecure"];
    let json = site.done("add", &[&words[..], &["--replace", "--json"]].concat());
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["path"], &json["is_replaced"]), (&"/other".into(), &true.into()), "{json}");
    assert!(site.mount("/b").is_none());
    site.peer("/other");
}

#[test]
fn many_are_added_at_once() {
    let site = Site::start();
    let children: Vec<_> = (0..8)
        .map(|index| {
            let (name, session) = (format!("n{index}"), format!("n{index}.db"));
            let args = ["exports", "add", "exports.toml", &name, "--session", &session];
            acetate(site.dir.path(), &args).stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(site.names(), ["a", "n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"]);
    assert_eq!(site.added_files().len(), 8);
}

/// Each is checked with what the others wrote: one path has one export.
#[test]
fn of_many_with_one_path_one_is_added() {
    let site = Site::new(&export("path = \"/a\"", "a.db", ""));
    let children: Vec<_> = (0..8)
        .map(|index| {
            let (name, session) = (format!("n{index}"), format!("n{index}.db"));
            let args = ["exports", "add", "exports.toml", &name, "--path", "/same"];
            let args = [&args[..], &["--session", &session]].concat();
            let mut command = acetate(site.dir.path(), &args);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let done = children.into_iter().map(|mut child| child.wait().unwrap().success());
    assert_eq!(done.filter(|done| *done).count(), 1);
    assert_eq!(site.added_files().len(), 1);
}

/// The first 64 exports of a file are opened when it is loaded, and what is added later too.
#[test]
fn of_many_exports_one_that_cannot_be_opened_is_not_added() {
    let mut site = Site::new("");
    fs::create_dir(site.path("exports.d")).unwrap();
    for index in 0..64 {
        let (name, session) = (format!("a{index:02}"), format!("a{index:02}.db"));
        let text = export(&format!("path = \"/{name}\""), &session, "");
        fs::write(site.path(&format!("exports.d/{name}.toml")), text).unwrap();
    }
    site.serve(&[]);
    let other = Serving::start(site.dir.path(), 1, &["z.db"]);
    let said = site.fails("add", &["z", "--session", "z.db"]);
    assert!(said.contains("the server refused it, and nothing is changed: "), "{said}");
    assert!(said.contains("z.db"), "{said}");
    assert_eq!((site.names().len(), site.added_files().len()), (64, 64));
    // One that is replaced is served as before.
    site.add("y");
    let mut y = site.peer("/y");
    let root = y.root.clone();
    let replace = ["y", "--session", "z.db", "--replace"];
    assert!(site.fails("add", &replace).contains("nothing is changed"));
    site.runtime.block_on(async { assert_eq!(y.ls(&root).await, ["file"]) });
    // What a user wrote is opened too.
    let text = export("path = \"/z\"", "z.db", "");
    fs::write(site.path("exports.d/z.toml"), text).unwrap();
    let server = site.server.as_mut().unwrap();
    server.signal("HUP");
    // After the lines of the commands before.
    assert!((0..20).any(|_| server.line().ends_with(" exports; 1 added: /z")));
    let (_, state, _) = site.listed().into_iter().find(|(name, ..)| name == "z").unwrap();
    assert_eq!(state, "unavailable");
    drop(other);
}

/// Another command may have written it since the addition was checked.
#[test]
fn what_is_added_while_a_change_waits_is_looked_up_too() {
    let site = Site::new("");
    for dir in ["exports.d", "base2", "real"] {
        fs::create_dir(site.path(dir)).unwrap();
    }
    symlink("real", site.path("alias")).unwrap();
    let lock = fs::File::create_new(site.path("exports.d/.lock")).unwrap();
    lock.lock().unwrap();
    let adding = site.begin("add", &["b", "--session", "real/s.db", "--base", "base"]);
    let deadline = Instant::now() + PATIENCE;
    let has_checked = || {
        let files = fs::read_dir(format!("/proc/{}/fd", adding.id())).unwrap().flatten();
        let mut files = files.filter_map(|it| fs::read_link(it.path()).ok());
        files.any(|it| it.ends_with("exports.d/.lock"))
    };
    while !has_checked() {
        assert!(Instant::now() < deadline, "it does not wait");
        std::thread::sleep(Duration::from_millis(5));
    }
    let other = export("path = \"/c\"", "alias/s.db", "base = \"base2\"");
    fs::write(site.path("exports.d/c.toml"), other).unwrap();
    drop(lock);
    let output = end(adding);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("has a different `base` in"), "{said}");
    assert_eq!(site.added_files(), ["c.toml"]);
}
