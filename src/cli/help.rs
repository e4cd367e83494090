//! The help: commands by purpose, `acetate help COMMAND`, examples, hints for unknown commands.
//!
//! clap has no headings for subcommands, so the groups are put where it prints custom text.

use std::ffi::OsString;
use std::fmt::Write;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

use super::error::CliError;
use super::instead::INSTEAD;
use super::output::Out;
use super::{Cli, Ending};

/// The example in the program's own help.
pub(super) const EXAMPLE: &str = "\
Example:
  sudo acetate run work.db --base ~/project -- CMD   changes that CMD makes go to work.db
  acetate serve work.db --base ~/project             the same, to be mounted by hand";

/// Examples of commands, for their long help and their manual pages.
const EXAMPLES: &[(&[&str], &str)] = &[
    (
        &["run"],
        "Examples:
  sudo acetate run work.db --base ~/project -- make test
  sudo acetate run work.db --sandbox --no-network -- sh",
    ),
    (
        &["serve"],
        "Examples:
  acetate serve work.db --base ~/project
  acetate serve work.db --listen 2050
  acetate serve --config exports.toml
  acetate serve work.db --admin 9469         figures at http://127.0.0.1:9469/metrics
  acetate serve work.db --leave-copies       a restart waits for no copy of a large file",
    ),
    (
        &["config", "check"],
        "Examples:
  acetate config check exports.toml
  acetate config check exports.toml --path /chat/u1/c1",
    ),
    (
        &["config", "token"],
        "Example:
  acetate config token exports.toml /chat/u1/c1",
    ),
    (
        &["exports"],
        "Examples:
  acetate exports add exports.toml chat-1 --session chat-1.db --base ~/project
  acetate exports ls exports.toml",
    ),
    (
        &["exports", "add"],
        "Examples:
  acetate exports add exports.toml chat-1 --session chat-1.db --base ~/project
  acetate exports add exports.toml chat-2 --from - < chat-2.toml",
    ),
    (
        &["exports", "rm"],
        "Example:
  acetate exports rm exports.toml chat-1 --delete",
    ),
    (
        &["exports", "ls"],
        "Example:
  acetate exports ls exports.toml --json",
    ),
    (
        &["exports", "keep"],
        "Examples:
  acetate exports keep exports.toml /chat/u1/c1
  acetate exports keep exports.toml /chat/u1/c1 --off",
    ),
    (
        &["mount"],
        "Example:
  sudo acetate mount work.db /mnt/agent --base ~/project",
    ),
    (
        &["init"],
        "Example:
  acetate init work.db --base ~/project",
    ),
    (
        &["hide"],
        "Examples:
  acetate hide work.db                       the patterns
  acetate hide work.db --hide-secrets --hide '*.pem'",
    ),
    (
        &["status"],
        "Example:
  acetate status work.db --json",
    ),
    (
        &["diff"],
        "Examples:
  acetate diff work.db                       what the session changed
  acetate diff work.db --patch | git apply   the same as a patch
  acetate diff work.db --from @-1            what changed since the newest checkpoint",
    ),
    (
        &["log"],
        "Examples:
  acetate log work.db --since '2 hours ago'
  acetate log work.db notes.txt              what happened to one file
  acetate log work.db --summary --since today
  acetate log work.db --by tool",
    ),
    (
        &["log", "prune"],
        "Examples:
  acetate log prune work.db --older-than 30d
  acetate log prune work.db --keep 100000 --archive work-log.jsonl.zst",
    ),
    (
        &["log", "limit"],
        "Examples:
  acetate log limit work.db                  what it is
  acetate log limit work.db 30d              a server of the session deletes older changes",
    ),
    (
        &["apply"],
        "Examples:
  acetate apply work.db --dry-run            what would be written to the base
  acetate apply work.db src                  write what changed below src
  acetate apply --undo work.db               undo the last apply",
    ),
    (
        &["discard"],
        "Examples:
  acetate discard work.db notes.txt          the file shows the base again
  acetate discard work.db --dry-run /",
    ),
    (
        &["restore"],
        "Examples:
  acetate restore work.db before             goes back to that checkpoint
  acetate restore work.db before src/main.rs only this file is as it was then
  acetate restore work.db '10 minutes ago' --dry-run
  acetate restore work.db --tool-call 7      takes back what that call changed",
    ),
    (
        &["undo"],
        "Examples:
  acetate undo work.db                       takes back the last step
  acetate undo work.db --dry-run             shows what that would change",
    ),
    (
        &["checkpoint"],
        "Examples:
  acetate checkpoint create work.db before   keeps this moment
  acetate ls work.db --at before             shows it later",
    ),
    (
        &["checkpoint", "create"],
        "Examples:
  acetate checkpoint create work.db          prints its id
  acetate checkpoint create work.db before-refactoring --label step=12",
    ),
    (
        &["checkpoint", "ls"],
        "Example:
  acetate checkpoint ls work.db",
    ),
    (
        &["checkpoint", "rm"],
        "Example:
  acetate checkpoint rm work.db before-refactoring @-1",
    ),
    (
        &["checkpoint", "prune"],
        "Examples:
  acetate checkpoint prune work.db --keep 100
  acetate checkpoint prune work.db --older-than 7d --dry-run",
    ),
    (
        &["ls"],
        "Example:
  acetate ls work.db -l src",
    ),
    (
        &["tree"],
        "Example:
  acetate tree work.db --changed",
    ),
    (
        &["cat"],
        "Example:
  acetate cat work.db notes.txt",
    ),
    (
        &["stat"],
        "Example:
  acetate stat work.db notes.txt",
    ),
    (
        &["find"],
        "Examples:
  acetate find work.db --name '*.rs' --changed
  acetate find work.db --newer today --larger 1MB",
    ),
    (
        &["du"],
        "Example:
  acetate du work.db src",
    ),
    (
        &["write"],
        "Example:
  echo text | acetate write work.db notes.txt",
    ),
    (
        &["mkdir"],
        "Example:
  acetate mkdir work.db -p docs/new",
    ),
    (
        &["rm"],
        "Example:
  acetate rm work.db -r build notes.txt",
    ),
    (
        &["quota"],
        "Example:
  acetate quota work.db --bytes 2GiB --files 100000",
    ),
    (
        &["kv"],
        "Examples:
  acetate kv ls work.db
  acetate kv get work.db plan",
    ),
    (
        &["tool"],
        "Examples:
  acetate tool run work.db tests -- make test
  acetate tool ls work.db",
    ),
    (
        &["mcp"],
        "Examples:
  acetate mcp work.db                        an agent that only reads
  acetate mcp work.db --allow-changes
  acetate mcp work.db --tools read_file,search,diff",
    ),
    (
        &["kv", "set"],
        "Example:
  acetate kv set work.db plan '{\"step\": 1}'",
    ),
    (
        &["tool", "ls"],
        "Example:
  acetate tool ls work.db --since yesterday",
    ),
    (
        &["check"],
        "Example:
  acetate check work.db",
    ),
    (
        &["fork"],
        "Example:
  acetate fork work.db try-a.db try-b.db",
    ),
    (
        &["merge"],
        "Example:
  acetate merge work.db try-a.db",
    ),
    (
        &["snapshot"],
        "Example:
  acetate snapshot work.db before.db",
    ),
    (
        &["push"],
        "Example:
  acetate push work.db postgres://me@db.example/agents/work",
    ),
    (
        &["pull"],
        "Example:
  acetate pull postgres://me@db.example/agents/work work.db",
    ),
    (
        &["compact"],
        "Example:
  acetate compact work.db",
    ),
    (
        &["export"],
        "Examples:
  acetate export work.db --tar tree.tar
  acetate export work.db --dir ./copy src
  acetate export work.db --delta-only --tar layer.tar",
    ),
    (
        &["completions"],
        "Example:
  source <(acetate completions bash)",
    ),
    (
        &["man"],
        "Example:
  acetate man /usr/local/share/man/man1",
    ),
];

/// Show the help of a command.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The command; none for the program itself.
    #[arg(value_name = "COMMAND")]
    words: Vec<String>,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let mut command = super::command();
    command.build();
    let mut found = &mut command;
    for word in &args.words {
        found = found.find_subcommand_mut(word).ok_or_else(|| unknown(&args.words))?;
    }
    let text = found.render_long_help().to_string();
    let mut out = Out::new();
    out.bytes(text.as_bytes())?;
    out.end()?;
    Ok(Ending::Done)
}

/// The error for words that lead to no command.
fn unknown(words: &[String]) -> CliError {
    let given: Vec<_> = ["acetate"].into_iter().chain(words.iter().map(String::as_str)).collect();
    let parsed = super::command().try_get_matches_from(&given);
    let given: Vec<_> = given.iter().map(OsString::from).collect();
    let error = parsed.err().and_then(|error| unknown_command(&error, &given));
    error.unwrap_or_else(|| no_command(&words.join(" "), &[], None))
}

/// The error that says so if a usage error is about an unknown command. The arguments are `given`.
pub(super) fn unknown_command(error: &clap::Error, given: &[OsString]) -> Option<CliError> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        Some(ContextValue::Strings(texts)) => texts.first().map(String::as_str),
        _ => None,
    };
    let name = text(ContextKind::InvalidSubcommand)
        .filter(|_| error.kind() == ErrorKind::InvalidSubcommand)?;
    let command = super::command();
    let (mut above, mut words) = (&command, Vec::new());
    for word in given.iter().skip(1).filter_map(|word| word.to_str()) {
        if let Some(found) = above.find_subcommand(word) {
            above = found;
            words.push(found.get_name());
        } else if word == name {
            break;
        }
    }
    Some(no_command(name, &words, text(ContextKind::SuggestedSubcommand)))
}

/// The error for a command that is not among those of `above`; one of these is `similar`.
fn no_command(name: &str, above: &[&str], similar: Option<&str>) -> CliError {
    let instead = INSTEAD.iter().find(|(names, _)| above.is_empty() && names.contains(&name));
    let below = |name: &str| [above, &[name][..]].concat().join(" ");
    let error = CliError::new(format!("there is no command `{}`", below(name)));
    let all = below("--help");
    match (instead, similar) {
        (Some((_, instead)), _) => error.with_hint(instead),
        (None, Some(similar)) => error.with_hint(format!(
            "there is `acetate {}`; `acetate {all}` names all commands",
            below(similar)
        )),
        (None, None) => error.with_hint(format!("`acetate {all}` names all commands")),
    }
}

/// The examples of the command with this path; the first line is a heading.
pub(super) fn examples(words: &[&str]) -> Option<&'static str> {
    let own = EXAMPLES.iter().find(|(of, _)| *of == words).map(|(_, text)| *text);
    own.or_else(|| {
        // Examples that the short help has as well.
        let command = Cli::command();
        let found = words.iter().try_fold(&command, |above, word| above.find_subcommand(word))?;
        let text = found.get_after_help()?.to_string();
        (!words.is_empty()).then(|| &*text.leak())
    })
}

/// The other commands in the group of a command.
pub(super) fn other_in_group(name: &str) -> impl Iterator<Item = &'static str> {
    let group = GROUPS.iter().find(|(_, names)| names.contains(&name));
    let names = group.map(|(_, names)| *names).unwrap_or_default();
    names.iter().copied().filter(move |other| *other != name)
}

/// Adds the examples to the long help of each command.
fn with_examples(command: Command) -> Command {
    EXAMPLES.iter().fold(command, |command, (words, text)| add_example(command, words, text))
}

fn add_example(command: Command, words: &[&'static str], text: &'static str) -> Command {
    match words {
        [] => command.after_long_help(text),
        // `mut_subcommand` would move it to the end.
        [first, rest @ ..] => command.mut_subcommands(|inner| match inner.get_name() == *first {
            true => add_example(inner, rest, text),
            false => inner,
        }),
    }
}

/// The commands by purpose.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Serve",
        &["run", "mount", "umount", "serve", "init", "hide", "sessions", "config", "exports"],
    ),
    (
        "What has changed",
        &[
            "status",
            "diff",
            "log",
            "apply",
            "discard",
            "checkpoint",
            "restore",
            "undo",
            "fork",
            "merge",
        ],
    ),
    ("Files in the tree", &["ls", "tree", "cat", "stat", "find", "du"]),
    ("Change the tree", &["write", "cp", "mv", "ln", "mkdir", "touch", "chmod", "rm", "rmdir"]),
    ("For the agent", &["mcp", "kv", "tool", "ctx"]),
    ("Care for the file", &["check", "migrate", "snapshot", "export", "seal", "compact", "quota"]),
    ("Sessions in a database", &["push", "pull"]),
    ("Set up this program", &["completions", "man", "help"]),
];

/// The template of the program's help.
const TEMPLATE: &str = "\
{about-with-newline}
{usage-heading} {usage}

{before-help}Options:
{options}{after-help}";

/// Adds the groups to the program's help: only names in the short help, descriptions in the long
/// one.
pub(super) fn grouped(command: Command) -> Command {
    let (mut short, mut long) = ("Commands:\n".to_owned(), String::new());
    let visible = command.get_subcommands().filter(|c| !c.is_hide_set());
    let name_width = visible.map(|c| c.get_name().len()).max().unwrap_or(0);
    let title_width = GROUPS.iter().map(|(title, _)| title.len()).max().unwrap_or(0);
    for (title, names) in GROUPS {
        // Writing to a `String` cannot fail.
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
    let command = with_examples(command);
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
