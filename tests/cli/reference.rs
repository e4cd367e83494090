//! docs/cli.md is what the program says of itself. `ACETATE_BLESS=1 cargo test reference` writes
//! it anew.

use std::fmt::Write;
use std::path::Path;

use acetate::cli::command;
use clap::{Arg, Command};

const HEAD: &str = "\
# Commands

Written by a test from the program's help: `ACETATE_BLESS=1 cargo test --test acetate reference`.
Data goes to stdout, all else to stderr.
Exit codes: 0 done, 1 there are findings (differences, or nothing found), 2 failed, with \
`error:` and `hint:` on stderr.
With `--json` each line is an object with its version `v` and its `type`; fields may be added, \
and none changes.
[json-schema.json](json-schema.json) describes these objects.
";

/// Text on one line, as Markdown: what is not code is escaped, and it ends with a full stop.
fn plain(text: &str) -> String {
    let mut line = String::new();
    for (at, part) in text.split('`').enumerate() {
        let is_code = at % 2 == 1;
        line.push_str(if at > 0 { "`" } else { "" });
        line.push_str(&if is_code { part.to_owned() } else { part.replace('*', "\\*") });
    }
    line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    if !line.ends_with(['.', ':']) {
        line.push('.');
    }
    line
}

/// Text with a sentence on each line.
fn sentences(text: &str) -> String {
    let mut lines = String::new();
    for paragraph in text.split("\n\n") {
        let paragraph = plain(paragraph);
        writeln!(lines, "{}\n", paragraph.replace(". ", ".\n").replace(".) ", ".)\n")).unwrap();
    }
    lines
}

/// What the argument looks like, and what it means.
fn row(arg: &Arg) -> String {
    let mut spelled = Vec::new();
    spelled.extend(arg.get_short().map(|short| format!("-{short}")));
    spelled.extend(arg.get_long().map(|long| format!("--{long}")));
    let mut shown = spelled.join(", ");
    if arg.get_action().takes_values() {
        let names = arg.get_value_names().unwrap_or_default();
        let values: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        shown = format!("{shown} {}", values.join(" ")).trim().to_owned();
    }
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut meaning = plain(&help).replace('|', "\\|");
    let values: Vec<_> = arg.get_possible_values();
    let values: Vec<&str> =
        values.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name()).collect();
    if arg.get_action().takes_values() && !values.is_empty() {
        write!(meaning, " One of `{}`.", values.join("`, `")).unwrap();
    }
    let defaults = arg.get_default_values();
    if arg.get_action().takes_values() && !defaults.is_empty() {
        let defaults: Vec<_> = defaults.iter().map(|value| value.to_string_lossy()).collect();
        write!(meaning, " Default: `{}`.", defaults.join("`, `")).unwrap();
    }
    format!("| `{}` | {meaning} |\n", shown.replace('|', "\\|"))
}

/// A command and those in it, `depth` words behind the program's name.
fn section(command: &mut Command, depth: usize, page: &mut String) {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    write!(page, "\n{} {name}\n\n", "#".repeat(depth.max(1) + 1)).unwrap();
    let about = command.get_long_about().or(command.get_about());
    page.push_str(&sentences(&about.map(ToString::to_string).unwrap_or_default()));
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    write!(page, "```text\n{usage}\n```\n").unwrap();
    let is_own = |arg: &&Arg| {
        !arg.is_hide_set()
            && !["help", "version"].contains(&arg.get_id().as_str())
            && (depth == 0 || !arg.is_global_set())
    };
    let rows: String = command.get_arguments().filter(is_own).map(row).collect();
    if !rows.is_empty() {
        write!(page, "\n| Argument | Meaning |\n|---|---|\n{rows}").unwrap();
    }
    let inner: Vec<_> = command.get_subcommands_mut().filter(|c| !c.is_hide_set()).collect();
    for inner in inner {
        section(inner, depth + 1, page);
    }
}

fn reference() -> String {
    let mut command = command();
    command.build();
    let mut page = HEAD.to_owned();
    section(&mut command, 0, &mut page);
    page
}

#[test]
fn the_reference_says_what_the_program_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    let page = reference();
    if std::env::var_os("ACETATE_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = written.lines().zip(page.lines()).find(|(old, new)| old != new);
    assert!(
        written == page,
        "docs/cli.md is not what the program says, from {differs:?} on; \
         write it anew: ACETATE_BLESS=1 cargo test --test acetate reference"
    );
}
