//! Files of `exports.d` that cannot be read: a start names all of them, and they can be removed.

use std::fs;

use super::{Site, export};
use crate::cli::program::{failure, run};

/// Three files that are broken, and one whose path `/a` is that of the exports file.
fn write_broken(site: &Site) {
    fs::create_dir(site.path("exports.d")).unwrap();
    fs::write(site.path("exports.d/b.toml"), "nonsense").unwrap();
    fs::write(site.path("exports.d/c.toml"), "[[export]]\n").unwrap();
    let good = export("path = \"/d\"", "d.db", "");
    fs::write(site.path("exports.d/d d.toml"), &good).unwrap();
    fs::write(site.path("exports.d/e.toml"), good.replace("/d", "/a")).unwrap();
    fs::write(site.path("exports.d/f.toml"), good.replace("d.db", "f.db")).unwrap();
}

/// All faults, and how to remove the first file.
const FAULTS: [&str; 5] = [
    "exports.d/b.toml:1:9: ",
    "exports.d/c.toml:1:1: this export has no path",
    "exports.d/d d.toml: a name has 1 to 64",
    "exports.d/e.toml:1:1: the path /a is that of the export in exports.toml, line 1",
    "hint: remove each that is broken: `acetate exports rm exports.toml b`",
];

#[test]
fn a_start_names_every_broken_file_and_how_to_remove_it() {
    let mut site = Site::new(&export("path = \"/a\"", "a.db", ""));
    write_broken(&site);
    let serve = ["serve", "--config", "exports.toml", "--listen", "127.0.0.1:0"];
    let said = failure(site.dir.path(), &serve);
    for fault in FAULTS {
        assert!(said.contains(fault), "{fault}: {said}");
    }
    for name in ["e", "d d", "c", "b"] {
        assert_eq!(site.done("rm", &[name]), format!("{name} is removed\n"));
    }
    site.serve(&[]);
    assert_eq!(site.names(), ["a", "f"]);
}

#[test]
fn many_broken_files_are_counted() {
    let site = Site::new("");
    fs::create_dir(site.path("exports.d")).unwrap();
    for index in 10..40 {
        fs::write(site.path(&format!("exports.d/n{index}.toml")), "nonsense").unwrap();
    }
    let said = site.fails("ls", &[]);
    assert!(said.contains("exports.d/n25.toml:1:9: ") && said.contains("; and 14 more"), "{said}");
    assert!(!said.contains("n26"), "{said}");
}

#[test]
fn each_of_several_broken_files_is_removed_beside_a_server() {
    let mut site = Site::start();
    write_broken(&site);
    site.server.as_ref().unwrap().signal("HUP");
    // The server may still have been looking for changes during its start: then it tells of some.
    let server = site.server.as_mut().unwrap();
    let has_all = |line: &String| FAULTS.iter().take(4).all(|fault| line.contains(fault));
    assert!((0..6).map(|_| server.line()).any(|line| has_all(&line)), "not all are named");
    // One that is sound is neither added nor removed before.
    let said = site.fails("rm", &["f"]);
    assert!(said.contains(FAULTS[0]) && said.contains(FAULTS[4]), "{said}");
    let said = site.fails("add", &["g", "--session", "g.db"]);
    assert!(said.contains(FAULTS[1]) && said.contains(FAULTS[4]), "{said}");
    // Its sessions are not known.
    let said = site.fails("rm", &["b", "--delete"]);
    assert!(said.contains(FAULTS[0]) && said.contains("hint: leave --delete out"), "{said}");
    for name in ["b", "c", "d d", "e"] {
        let output = site.exports("rm", &[name, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let is_last = name == "e";
        assert_eq!(json["is_applied"], is_last, "{json} {said}");
        let waits = "warning: the server serves what it did before: ";
        assert_eq!(said.starts_with(waits), !is_last, "{said}");
    }
    assert_eq!(site.names(), ["a", "f"]);
    site.peer("/d");
}

#[test]
fn a_directory_is_not_removed_and_its_name_stays_free() {
    let site = Site::new("");
    fs::create_dir_all(site.path("exports.d/dir.toml")).unwrap();
    let said = site.fails("rm", &["dir"]);
    assert!(said.contains("directory"), "{said}");
    fs::remove_dir(site.path("exports.d/dir.toml")).unwrap();
    assert_eq!(site.added_files(), [""; 0], "nothing is left");
}

#[test]
fn the_token_and_the_keeping_of_a_path_do_without_broken_files() {
    let template = "[[template]]\nname = \"t\"\npath = \"/t/{x}\"\ntoken = \"derived\"\n\
        allow = { x = \"[a-z]+\" }\n[[template.mount]]\nat = \"/\"\nsession = \"t/{x}.db\"\n";
    let site = Site::new(&(export("path = \"/a\"", "a.db", "") + template));
    write_broken(&site);
    let output = run(site.dir.path(), &["config", "token", "exports.toml", "/t/b"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("/t/b/"));
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 4, "{said}");
    for (line, fault) in lines.iter().zip(FAULTS) {
        assert!(line.starts_with("warning: ") && line.contains(fault), "{fault}: {said}");
    }
    let said = site.fails("keep", &["/t/b"]);
    assert!(said.contains(FAULTS[0]) && said.contains("no client has mounted /t/b yet"), "{said}");
}
