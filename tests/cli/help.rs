//! Help, version, usage.

use std::path::Path;

use super::program::run;

const SCREEN_LINES: usize = 24;
const SCREEN_COLUMNS: usize = 100;

fn text(args: &[&str]) -> String {
    let output = run(Path::new("."), args);
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_short_help_fits_a_screen() {
    for args in [
        &["-h"][..],
        &["--help"],
        &["serve", "-h"],
        &["init", "-h"],
        &["log", "-h"],
        &["compact", "-h"],
    ] {
        let help = text(args);
        assert!(help.lines().count() <= SCREEN_LINES, "{args:?}:\n{help}");
        assert!(help.lines().all(|line| line.len() <= SCREEN_COLUMNS), "{args:?}:\n{help}");
    }
}

#[test]
fn help_has_an_example_and_every_option() {
    assert!(text(&["--help"]).contains("acetate serve work.db --base"));
    let help = text(&["serve", "--help"]);
    for option in [
        "--base <DIR>",
        "--listen <ADDR:PORT>",
        "--read-only",
        "--durability <",
        "--insecure",
        "--rpcbind",
        "--chunk-size <BYTES>",
        "--log <LEVEL>",
        "127.0.0.1:2049",
    ] {
        assert!(help.contains(option), "{option}");
    }
}

#[test]
fn the_version_is_the_crates() {
    assert_eq!(text(&["--version"]), format!("acetate {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_exits_with_2() {
    for args in [
        &[][..],
        &["bogus"],
        &["serve"],
        &["serve", "x.db", "--durability", "none"],
        &["serve", "x.db", "--listen", "nowhere"],
        &["init", "x.db", "--log", "a=b=c"],
    ] {
        assert_eq!(run(Path::new("."), args).status.code(), Some(2), "{args:?}");
    }
}
