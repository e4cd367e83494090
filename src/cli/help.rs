//! The program's own help: its commands by what they are for. clap knows no headings for
//! subcommands, so these go where it puts text of ours.

use std::fmt::Write;

use clap::Command;

/// The commands by what they are for.
const GROUPS: &[(&str, &[&str])] = &[
    ("Serve", &["run", "mount", "umount", "serve", "init", "hide", "sessions", "config"]),
    ("What has changed", &["status", "diff", "log", "apply", "discard"]),
    (
        "Files in the tree",
        &["ls", "tree", "cat", "stat", "find", "du", "write", "cp", "mkdir", "rm"],
    ),
    ("What the agent keeps", &["kv", "tool", "ctx"]),
    ("Care for the file", &["check", "migrate", "snapshot", "export", "seal", "compact", "quota"]),
    ("Set up this program", &["completions", "man"]),
];

/// Where the groups go.
const TEMPLATE: &str = "\
{about-with-newline}
{usage-heading} {usage}

{before-help}Options:
{options}{after-help}";

/// Gives the program help by groups: names alone in the short one, and what each command does in
/// the long one.
pub(super) fn grouped(command: Command) -> Command {
    let (mut short, mut long) = ("Commands:\n".to_owned(), String::new());
    let visible = command.get_subcommands().filter(|c| !c.is_hide_set());
    let name_width = visible.map(|c| c.get_name().len()).max().unwrap_or(0);
    let title_width = GROUPS.iter().map(|(title, _)| title.len()).max().unwrap_or(0);
    for (title, names) in GROUPS {
        // Writing to a String cannot fail.
        let _ = writeln!(short, "  {title:title_width$}  {}", names.join(", "));
        let _ = writeln!(long, "{title}:");
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(long, "  {name:name_width$}  {about}");
        }
        long.push('\n');
    }
    short.push_str("\n`acetate --help` says what each does, `acetate COMMAND -h` how.");
    command.help_template(TEMPLATE).before_help(short).before_long_help(long.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::GROUPS;
    use crate::cli::Cli;

    #[test]
    fn each_command_is_in_one_group() {
        let command = Cli::command();
        let visible = command.get_subcommands().filter(|c| !c.is_hide_set());
        let commands: BTreeSet<&str> = visible.map(|c| c.get_name()).collect();
        let named: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        assert_eq!(named.iter().copied().collect::<BTreeSet<_>>(), commands);
        assert_eq!(named.len(), commands.len(), "one is in two groups");
    }
}
