//! Help, version, usage, completions, manual pages.

use std::path::Path;

use acetate::cli::command;
use clap::Command;
use tempfile::tempdir;

use super::program::{failure, run};

const SCREEN_LINES: usize = 24;
const SCREEN_COLUMNS: usize = 100;

fn text(args: &[&str]) -> String {
    let output = run(Path::new("."), args);
    assert_eq!(output.status.code(), Some(0), "{args:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The words that lead to each command: none, to the program itself.
fn all_commands() -> Vec<Vec<String>> {
    fn add(command: &Command, words: &[String], all: &mut Vec<Vec<String>>) {
        all.push(words.to_vec());
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            add(inner, &[words, &[inner.get_name().to_owned()]].concat(), all);
        }
    }
    let mut all = Vec::new();
    add(&command(), &[], &mut all);
    assert!(all.len() > 10, "the commands are not where this test looks for them");
    all
}

#[test]
fn every_short_help_fits_a_screen() {
    for words in all_commands() {
        let mut args: Vec<&str> = words.iter().map(String::as_str).collect();
        args.push("-h");
        let help = text(&args);
        assert!(help.lines().count() <= SCREEN_LINES, "{args:?}:\n{help}");
        assert!(help.lines().all(|line| line.len() <= SCREEN_COLUMNS), "{args:?}:\n{help}");
    }
}

#[test]
fn the_programs_help_names_every_command() {
    let (short, long) = (text(&["-h"]), text(&["--help"]));
    for inner in command().get_subcommands().filter(|inner| !inner.is_hide_set()) {
        let name = inner.get_name();
        let mut words = short.split(|c: char| !c.is_alphanumeric() && c != '-');
        assert!(words.any(|word| word == name), "{name}:\n{short}");
        let about = inner.get_about().expect("what it does").to_string();
        let line = |line: &str| {
            line.trim()
                .split_once(' ')
                .is_some_and(|(word, rest)| word == name && rest.trim() == about)
        };
        assert!(long.lines().any(line), "{name}:\n{long}");
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
        &["completions", "tcsh"],
    ] {
        assert_eq!(run(Path::new("."), args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn there_is_a_script_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&["completions", shell]);
        assert!(script.contains("ACETATE_COMPLETE") && script.contains("acetate"), "{script}");
    }
    // bash reads it, where there is one.
    let dir = tempdir().unwrap();
    let script = dir.path().join("completions");
    std::fs::write(&script, text(&["completions", "bash"])).unwrap();
    if let Ok(read) = std::process::Command::new("bash").arg("-n").arg(&script).status() {
        assert!(read.success());
    }
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let dir = tempdir().unwrap();
    for _ in ["made", "replaced"] {
        assert!(run(dir.path(), &["man", "made/man1"]).status.success());
        for words in all_commands() {
            let name = [&["acetate".to_owned()], &words[..]].concat().join("-");
            let page = std::fs::read_to_string(dir.path().join(format!("made/man1/{name}.1")));
            assert!(page.unwrap().contains(".SH SYNOPSIS"), "{name}");
        }
    }
    std::fs::write(dir.path().join("file"), "").unwrap();
    let said = failure(dir.path(), &["man", "file"]);
    assert!(said.starts_with("error: file: "), "{said}");
}

#[test]
fn the_long_help_of_each_command_has_an_example() {
    for words in all_commands().iter().filter(|words| words.len() == 1) {
        let is_group = ["ctx", "config", "exports"].contains(&words[0].as_str());
        let help = text(&[words[0].as_str(), "--help"]);
        let has_example = help.contains("\nExample:\n") || help.contains("\nExamples:\n");
        let without = ["umount", "sessions", "migrate", "seal", "help"];
        assert!(
            has_example || is_group || without.contains(&words[0].as_str()),
            "{words:?}:\n{help}"
        );
    }
}

#[test]
fn each_option_of_a_manual_page_has_a_text() {
    let dir = tempdir().unwrap();
    assert!(run(dir.path(), &["man", "."]).status.success());
    for words in all_commands() {
        let name = [&["acetate".to_owned()], &words[..]].concat().join("-");
        let page = std::fs::read_to_string(dir.path().join(format!("{name}.1"))).unwrap();
        let Some((_, options)) = page.split_once(".SH OPTIONS\n") else { continue };
        let options = options.split("\n.SH ").next().unwrap();
        for option in options.split(".TP\n").skip(1) {
            let (title, text) = option.split_once('\n').unwrap_or((option, ""));
            assert!(!text.trim().is_empty(), "{name}: {title}");
        }
    }
}

#[test]
fn help_is_a_command_too() {
    let help = |args: &[&str]| text(&[&["help"], args].concat());
    assert_eq!(help(&[]), text(&["--help"]));
    assert!(help(&["log", "prune"]).contains("--archive"));
    assert!(help(&["tool", "run"]).contains("Usage: acetate tool run"));
    let said = failure(Path::new("."), &["help", "nosuch"]);
    assert!(said.starts_with("error: there is no command `nosuch`\nhint: "), "{said}");
}

#[test]
fn unknown_commands_are_told_alike() {
    let hint = "there is `acetate diff`; `acetate --help` names all commands";
    let difff = format!("error: there is no command `difff`\nhint: {hint}\n");
    for args in [&["difff"][..], &["--log", "warn", "difff", "s.db"], &["help", "difff"]] {
        assert_eq!(failure(Path::new("."), args), difff, "{args:?}");
    }
    let zzz =
        "error: there is no command `ctx zzz`\nhint: `acetate ctx --help` names all commands\n";
    for args in [&["ctx", "zzz"][..], &["help", "ctx", "zzz"]] {
        assert_eq!(failure(Path::new("."), args), zzz, "{args:?}");
    }
}

#[test]
fn commands_of_other_programs_lead_to_ours() {
    for (name, ours) in [("rewind", "acetate undo"), ("reset", "discard"), ("rename", "acetate mv")]
    {
        let said = failure(Path::new("."), &[name, "s.db"]);
        assert!(
            said.starts_with(&format!("error: there is no command `{name}`\nhint: ")),
            "{said}"
        );
        assert!(said.contains(ours), "{said}");
    }
}

#[test]
fn manual_pages_have_examples_codes_and_other_pages() {
    let dir = tempdir().unwrap();
    assert!(run(dir.path(), &["man", "."]).status.success());
    let page = |name: &str| std::fs::read_to_string(dir.path().join(format!("{name}.1"))).unwrap();
    let prune = page("acetate-log-prune");
    for part in
        [".SH EXAMPLES", "acetate log prune work.db", ".SH \"EXIT STATUS\"", "acetate\\-log"]
    {
        assert!(prune.contains(part), "{part}:\n{prune}");
    }
    assert!(page("acetate-mv").contains("acetate\\-ln\\fR(1)"));
    let synopsis = |name: &str| {
        let page = page(name).replace("\\fB", "").replace("\\fI", "").replace("\\fR", "");
        let (_, rest) = page.split_once(".SH SYNOPSIS\n").unwrap();
        rest.lines().next().unwrap().replace("\\-", "-")
    };
    let apply = synopsis("acetate-apply");
    for part in [
        "acetate apply ",
        " [--take SIDE PATH]...",
        " [--to DIR]",
        " [-y|--yes]",
        " [--keep-limit SIZE]",
        " SESSION.db [PATH...]",
    ] {
        assert!(apply.contains(part), "{part}: {apply}");
    }
    assert!(synopsis("acetate-diff").contains(" [-M|--find-renames[=PERCENT]]"));
    assert!(synopsis("acetate-ctx").ends_with(" COMMAND"), "{}", synopsis("acetate-ctx"));
}
