//! Exports whose sessions are in a database.

use std::fs;

use super::{Site, export};
use crate::cli::program::run;
use crate::support::database::server::any;

#[test]
fn an_export_is_added_and_served_and_its_session_stays_when_it_is_removed() {
    let (mut site, url) = (Site::new(""), any().new_url().to_string());
    fs::create_dir(site.path("exports.d")).unwrap();
    site.serve(&["--local", "local"]);
    let options = ["--option", "insecure", "--option", "no_root_squash"];
    let words = |name| [&[name, "--session", &url], &options[..]].concat();
    site.done("add", &words("chat"));
    let written = fs::read_to_string(site.path("exports.d/chat.toml")).unwrap();
    assert!(written.contains(&format!("session = \"{url}\"")), "{written}");
    let mut peer = site.peer("/chat");
    let root = peer.root.clone();
    site.runtime.block_on(peer.put(&root, "file", "kept"));
    let said = site.fails("rm", &["chat", "--delete"]);
    assert!(said.contains("a session in a database; nothing is changed"), "{said}");
    assert!(said.contains("hint: leave --delete out"), "{said}");
    assert!(site.path("exports.d/chat.toml").exists());
    site.done("rm", &["chat"]);
    assert!(!site.path("exports.d/chat.toml").exists());
    site.done("add", &words("again"));
    let mut peer = site.peer("/again");
    let root = peer.root.clone();
    assert_eq!(site.runtime.block_on(peer.ls(&root)), ["file"]);
    site.stop();
}

#[test]
fn one_that_no_database_can_have_is_refused_with_the_reason() {
    let site = Site::new("");
    fs::create_dir(site.path("exports.d")).unwrap();
    let url = any().new_url().to_string();
    let away = url.replacen(&any().address(), "127.0.0.1:1", 1);
    let said = site.fails("add", &["away", "--session", &away]);
    assert!(said.contains("error connecting to server"), "{said}");
    let said = site.fails("add", &["wrong", "--session", "postgres://me:word@h/db/x"]);
    assert!(said.contains("it has a password") && said.contains("PGPASSWORD"), "{said}");
    assert_eq!(site.added_files(), [""; 0]);
}

#[test]
fn check_says_what_the_database_says() {
    let site = Site::new("");
    let url = any().new_url().to_string();
    let check = |session: &str, more: &str| {
        fs::write(site.path("exports.toml"), export("path = \"/x\"", session, more)).unwrap();
        let output = run(site.dir.path(), &["config", "check", "exports.toml"]);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, said) = check(&url, "");
    assert_eq!(code, Some(0), "the first mount makes it: {said}");
    assert!(said.contains(&format!("at       /  {url}")), "{said}");
    let (code, said) = check(&url, "options = [\"ro\"]");
    assert!(said.contains("it does not exist, and a mount that only reads makes none"), "{said}");
    assert_eq!(code, Some(1));
    let (code, said) = check(&url.replacen(&any().address(), "127.0.0.1:1", 1), "");
    assert!(said.contains("exports.toml:4:1: session postgres://"), "{said}");
    assert!(said.contains("error connecting to server"), "{said}");
    assert_eq!(code, Some(1));
}

#[test]
fn the_status_of_a_session_names_its_exports() {
    let url = any().new_url().to_string();
    let mut site = Site::new(&export("path = \"/x\"\nquota = { files = 9 }", &url, ""));
    site.serve(&["--local", "local"]);
    let mut peer = site.peer("/x");
    let root = peer.root.clone();
    site.runtime.block_on(peer.put(&root, "file", "kept"));
    let status = run(site.dir.path(), &["status", &url]);
    let said = String::from_utf8(status.stdout).unwrap();
    assert!(said.contains("export       x: 4 B, no limit; files: 1 of 9"), "{said}");
    site.stop();
}

#[test]
fn clients_of_a_session_in_a_database_repeat_calls_soon_after_a_takeover_and_others_do_not() {
    let url = any().new_url().to_string();
    let exports = [export("path = \"/a\"", "a.db", ""), export("path = \"/b\"", &url, "")].concat();
    let mut site = Site::new(&exports);
    site.serve(&["--local", "local"]);
    let said = &site.server.as_ref().unwrap().said;
    let mounts = |path: &str| {
        said.iter().filter(|line| line.contains(&format!(":{path} "))).collect::<Vec<_>>()
    };
    assert_eq!((mounts("/a").len(), mounts("/b").len()), (3, 3), "{said:?}");
    assert!(mounts("/a").iter().all(|line| !line.contains("timeo=")), "{said:?}");
    assert!(mounts("/b").iter().all(|line| line.contains(",timeo=40,")), "{said:?}");
    site.stop();
}
