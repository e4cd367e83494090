//! `exports.d`, written by hand.

use std::fs;

use super::{Site, export};
use crate::cli::program::run;

#[test]
fn what_is_there_is_read_at_each_start_and_hang_up() {
    let mut site = Site::new(&export("path = \"/a\"", "a.db", ""));
    fs::create_dir(site.path("exports.d")).unwrap();
    fs::write(site.path("exports.d/b.toml"), export("path = \"/b\"", "b.db", "")).unwrap();
    // No exports.
    for name in ["README", ".c.toml", "c.toml~", ".c.new", "c.toml.old"] {
        fs::write(site.path(&format!("exports.d/{name}")), "nonsense").unwrap();
    }
    site.serve(&[]);
    assert_eq!(site.names(), ["a", "b"]);
    let text = export("path = \"/c\"", "c.db", "");
    fs::write(site.path("exports.d/c.toml"), &text).unwrap();
    let server = site.server.as_mut().unwrap();
    server.signal("HUP");
    assert_eq!(server.line(), "read exports.toml again: 3 exports; 1 added: /c");
    site.peer("/c");
    for (name, text, words) in [
        ("d.toml", "nonsense", "exports.d/d.toml:1:9: "),
        ("c c.toml", text.as_str(), "exports.d/c c.toml: a name has 1 to 64"),
    ] {
        let file = site.path(&format!("exports.d/{name}"));
        fs::write(&file, text).unwrap();
        let server = site.server.as_mut().unwrap();
        server.signal("HUP");
        let said = server.line();
        assert!(said.starts_with("error: ") && said.contains(words), "{said}");
        let hint = server.line();
        assert!(hint.starts_with("hint: remove each that is broken: "), "{hint}");
        // Each command says so too.
        let checked = run(site.dir.path(), &["config", "check", "exports.toml"]);
        assert!(String::from_utf8(checked.stderr).unwrap().contains(words));
        fs::remove_file(&file).unwrap();
    }
    site.peer("/c");
}

/// The server's keys and templates are of the exports file itself.
#[test]
fn a_file_has_no_keys_of_the_server_and_a_plain_name() {
    let site = Site::start();
    let export = export("path = \"/b\"", "b.db", "");
    for (head, key) in [
        ("idle_close = \"1s\"", "idle_close"),
        ("ephemeral_expire = \"1h\"", "ephemeral_expire"),
        ("max_open = 7", "max_open"),
    ] {
        let refused = site.add_text("b", &format!("{head}\n{export}"));
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains(&format!("{key} is for the exports file itself")), "{said}");
    }
    let said = String::from_utf8(site.add_text("b.toml", &export).stderr).unwrap();
    assert!(said.contains("the name of an export is without .toml"), "{said}");
    assert_eq!(site.names(), ["a"]);
}

#[test]
fn a_broken_file_can_be_removed() {
    let site = Site::start();
    fs::create_dir(site.path("exports.d")).unwrap();
    fs::write(site.path("exports.d/b.toml"), "nonsense").unwrap();
    site.done("rm", &["b"]);
    assert_eq!(site.names(), ["a"]);
}

#[test]
fn other_commands_read_the_directory() {
    let site = Site::new("");
    fs::create_dir(site.path("exports.d")).unwrap();
    let quota = "path = \"/b\"\nquota = { files = 7 }";
    let text = export(quota, "b.db", "base = \"none\"");
    fs::write(site.path("exports.d/b.toml"), &text).unwrap();
    let said = |args: &[&str], code| {
        let output = run(site.dir.path(), args);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let checked = said(&["config", "check", "exports.toml"], 1);
    assert!(checked.starts_with("/b\n"), "{checked}");
    assert!(checked.contains("\nexports.d/b.toml:5:1: base "), "{checked}");
    fs::write(site.path("exports.d/b.toml"), text.replace("none", "base")).unwrap();
    assert_eq!(said(&["config", "token", "exports.toml", "/b"], 0), "/b\n");
    let quota = said(&["quota", "--config", "exports.toml"], 0);
    assert!(quota.starts_with("b: ") && quota.contains(" 7"), "{quota}");
}

#[test]
fn no_base_shows_the_directory() {
    let template = "[[template]]\npath = \"/t/{x}\"\nallow = { x = \"[a-z.]+\" }\n\
        options = [\"insecure\"]\n\
        [[template.mount]]\nat = \"/\"\nsession = \"s/{x}.db\"\nbase = \"{x}\"\n";
    let mut site = Site::new(&(export("path = \"/a\"", "a.db", "base = \".\"") + template));
    site.serve(&[]);
    // Also if it comes later, by whatever way.
    site.add("b");
    let mut a = site.peer("/a");
    let root = a.root.clone();
    let shown = site.runtime.block_on(a.ls(&root));
    assert_eq!(shown, ["base"]);
    assert!(site.mount("/t/exports.d").is_none());
    site.peer("/t/base");
    fs::create_dir(site.path("exports.d/inner")).unwrap();
    let inner = export("path = \"/c\"", "c.db", "base = \"exports.d/inner\"");
    assert_eq!(site.add_text("c", &inner).status.code(), Some(2));
}
