//! What the commands and the server say of changes.

use std::fs;

use serde_json::Value;

use super::{Site, export};

const TEMPLATES: &str = "idle_close = \"1s\"\n\
    [[template]]\npath = \"/t/{x}\"\nallow = { x = \"[a-z]+\" }\nexpire = \"90min\"\n\
    options = [\"insecure\"]\n[[template.mount]]\nat = \"/\"\nsession = \"t/{x}.db\"\n\
    [[template]]\npath = \"/u/{x}\"\nallow = { x = \"[a-z]+\" }\n\
    options = [\"insecure\"]\n[[template.mount]]\nat = \"/\"\nsession = \"u/{x}.db\"\n";

#[test]
fn what_was_done_is_on_stdout_and_warnings_are_on_stderr() {
    let mut site = Site::start();
    let said = |what: &str, words: &[&str]| {
        let output = site.exports(what, words);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    let add = ["b", "--session", "b.db", "--option", "insecure"];
    assert_eq!(said("add", &add), ["/b is served\n", ""]);
    assert_eq!(said("rm", &["b"]), ["b is no longer served\n", ""]);
    said("add", &add);
    let [done, warned] = said("rm", &["b", "--delete"]);
    assert!(done.starts_with("b is no longer served\ndeleted ") && warned.is_empty(), "{done}");
    let all = ["d", "--session", "d.db", "--client", "*", "--option", "insecure"];
    let [done, warned] = said("add", &all);
    assert_eq!(done, "/d is served\n");
    assert!(warned.starts_with("warning: in the new export: "), "{warned}");
    site.stop();
    let none = "warning: no server of exports.toml answers: the next start ";
    let said = |what: &str, words: &[&str]| {
        let output = site.exports(what, words);
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    assert_eq!(
        said("add", &add),
        ["/b is for the next start\n".into(), format!("{none}takes b\n")]
    );
    assert_eq!(
        said("rm", &["b"]),
        ["b is removed\n".into(), format!("{none}no longer serves b\n")]
    );
}

#[test]
fn an_error_names_what_was_given_and_not_the_file_that_is_not_written() {
    let site = Site::start();
    fs::write(site.path("exports.d.txt"), "").unwrap();
    for (words, error) in [
        (&["--session", "b.db", "--base", "none"][..], "error: in the new export: base "),
        (&["--session", "no/b.db"], "error: in the new export: session "),
        (
            &["--session", "b.db", "--path", "/a"],
            "error: in the new export: the path /a is that of",
        ),
        (&["--session", "b.db", "--client", "x"], "error: in the new export: "),
    ] {
        let said = site.fails("add", &[&["b"], words].concat());
        assert!(said.starts_with(error) && !said.contains("exports.d"), "{said}");
    }
    // The one that is there is not the one at fault.
    site.add("z");
    let said = site.fails("add", &["b", "--session", "b.db", "--path", "/z"]);
    let at = "error: in the new export: the path /z is that of the export in exports.d/z.toml, ";
    assert!(said.starts_with(at), "{said}");
    let output = std::process::Command::new("sh")
        .args(["-c", "echo nonsense | \"$0\" exports add exports.toml b --from -"])
        .args([env!("CARGO_BIN_EXE_acetate")])
        .current_dir(site.dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: in the new export, line 1, column 9: "), "{said}");
}

#[test]
fn the_log_names_what_a_reload_changed() {
    let mut site = Site::new(&export("path = \"/a\"", "a.db", "base = \"base\""));
    site.serve(&[]);
    let server = site.server.as_mut().unwrap();
    let mut reload = |text: &str| {
        fs::write(site.dir.path().join("exports.toml"), text).unwrap();
        server.signal("HUP");
        server.line()
    };
    let of = |name: &str| export(&format!("path = \"/{name}\""), &format!("{name}.db"), "");
    // Lines that moved are no change.
    let same = "\n\n".to_owned() + &export("path = \"/a\"", "a.db", "base = \"base\"");
    assert_eq!(reload(&same), "read exports.toml again: 1 export");
    let more: String = ["b", "c", "d", "e", "f"].map(of).concat();
    let said = reload(&(same.clone() + &more));
    assert_eq!(said, "read exports.toml again: 6 exports; 5 added: /b, /c, /d, ...");
    let other = same.replace("rw", "ro").replace("insecure", "insecure\", \"ro") + &of("f");
    let secret = export("token = true\nname = \"s\"", "s.db", "");
    let said = reload(&(other + &secret));
    let changes = "1 added: s (a secret path); 1 changed: /a; 4 removed: /b, /c, /d, ...";
    assert_eq!(said, format!("read exports.toml again: 3 exports; {changes}"));
}

#[test]
fn a_list_shows_what_is_kept_and_when_the_others_expire() {
    let mut site = Site::new(TEMPLATES);
    fs::create_dir(site.path("t")).unwrap();
    fs::create_dir(site.path("u")).unwrap();
    site.serve(&[]);
    for path in ["/t/one", "/t/two", "/u/three"] {
        site.peer(path);
    }
    let kept = site.done("keep", &["/t/one"]);
    assert_eq!(kept, "/t/one is kept\n");
    let output = site.exports("keep", &["/u/three"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "/u/three is kept\n");
    let warning = "warning: this has no effect now: the template /u/{x} has no `expire`\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), warning);
    let shown = || -> Vec<Value> {
        let lines = site.done("ls", &["--json"]);
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let one = shown().remove(0);
    assert_eq!((&one["is_kept"], &one["expire"]), (&true.into(), &5400.into()), "{one}");
    assert_eq!(one["expires_at"], Value::Null);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while shown()[1]["state"] != "closed" {
        assert!(std::time::Instant::now() < deadline, "{:?}", shown());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let two = shown().remove(1);
    assert_eq!((&two["is_kept"], &two["expire"]), (&false.into(), &5400.into()), "{two}");
    let at: jiff::Timestamp = two["expires_at"].as_str().unwrap().parse().unwrap();
    let left = at.as_second() - jiff::Timestamp::now().as_second();
    assert!((4000..=5400).contains(&left), "{two}: {left}");
    let three = shown().remove(2);
    assert_eq!((&three["is_kept"], &three["expire"]), (&true.into(), &Value::Null), "{three}");
    let text = site.done("ls", &[]);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].ends_with("template /t/{x}  kept"), "{text}");
    let day = &two["expires_at"].as_str().unwrap()[..10];
    assert!(lines[1].contains(&format!("  expires {day}T")), "{text}");
    assert!(lines[2].ends_with("template /u/{x}  kept, without `expire`"), "{text}");
    // A written export neither expires nor is kept.
    site.add("b");
    let written = shown().remove(0);
    assert_eq!((&written["is_kept"], &written["expire"]), (&Value::Null, &Value::Null));
    let checked = crate::cli::program::run(site.dir.path(), &["config", "check", "exports.toml"]);
    let checked = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.contains("\n  expire   90 minutes without a use\n"), "{checked}");
}

#[test]
fn a_want_of_descriptors_is_told_once_for_each_figure() {
    let site = Site::new(&export("path = \"/a\"", "a.db", ""));
    let script = r#"
        ulimit -n 300
        "$0" --log info serve --config exports.toml --listen 127.0.0.1:0 2>log & server=$!
        await() {
            for try in $(seq 900); do [ "$(grep -c "$1" log)" = "$2" ] && return; sleep 0.1; done
            echo "no $2 of $1"; cat log
        }
        await '^listening' 1
        kill -HUP $server; await '^read' 1
        { echo 'max_open = 1000'; cat exports.toml; } >new; mv new exports.toml
        kill -HUP $server; await '^read' 2
        kill -HUP $server; await '^read' 3
        kill $server; wait $server
        grep -c 'fewer sessions may be open' log
    "#;
    let mut command = std::process::Command::new("bash");
    command.args(["-c", script, env!("CARGO_BIN_EXE_acetate")]).current_dir(site.dir.path());
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert_eq!(said, "2\n");
}
