//! `acetate man`: writes manual pages.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command, CommandFactory};
use clap_mangen::Man;

use super::error::CliError;
use super::{Cli, Ending, help, output};

/// The exit codes of all commands except `run` and `tool run`.
const EXIT_STATUS: &str = "\
.SH \"EXIT STATUS\"
.TP
.B 0
The command did what it was asked for.
.TP
.B 1
There are findings: differences, nothing found, or something that was left out. Some of several
paths failed: each is named on standard error.
.TP
.B 2
The command failed, or was used wrongly: standard error has a line
.B error:
and where something can be done about it a line
.B hint:
";

/// Write a manual page for each command into a directory.
///
/// `man -l DIR/acetate.1` shows one; where all find them is /usr/local/share/man/man1.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory; it is made if need be, and pages in it are replaced.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Writes the pages.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let failed = |error: std::io::Error| CliError::caused(args.dir.display(), &error);
    std::fs::create_dir_all(&args.dir).map_err(failed)?;
    let mut command = with_all_texts(Cli::command());
    command.build();
    write(&command, &[], &args.dir).map_err(failed)?;
    output::line(format_args!("wrote the manual pages to {}", args.dir.display()));
    Ok(Ending::Done)
}

/// Lets each option show its text. `clap_mangen` takes the long text of an option that the short
/// help leaves out, and prints none if it has only a short one.
fn with_all_texts(command: Command) -> Command {
    command.mut_args(|arg| arg.hide_short_help(false)).mut_subcommands(with_all_texts)
}

/// Writes the page of the command at this path, and the pages of its subcommands.
fn write(command: &Command, words: &[&str], dir: &Path) -> std::io::Result<()> {
    let name = page_name(words);
    let examples = help::examples(words).or(words.is_empty().then_some(help::EXAMPLE));
    let plain = command.clone().after_help(None::<&str>).after_long_help(None::<&str>);
    let man = Man::new(plain);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    page.extend(synopsis(command).bytes());
    man.render_description_section(&mut page)?;
    if command.get_arguments().next().is_some() {
        man.render_options_section(&mut page)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(examples) = examples {
        page.extend(b".SH EXAMPLES\n.nf\n");
        for line in examples.lines().skip(1) {
            let line = line.trim_start().replace('\\', "\\e").replace('-', "\\-");
            // roff treats a line that begins with a quote or a dot as a request.
            page.extend(format!("\\&{line}\n").bytes());
        }
        page.extend(b".fi\n");
    }
    page.extend(EXIT_STATUS.bytes());
    page.extend(see_also(command, words).bytes());
    if words.is_empty() {
        man.render_version_section(&mut page)?;
    }
    std::fs::write(dir.join(format!("{name}.1")), page)?;
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write(inner, &[words, &[inner.get_name()]].concat(), dir)?;
    }
    Ok(())
}

/// The synopsis with the values of options, which `clap_mangen` leaves out.
fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut parts = vec![bold(name)];
    let shown = |arg: &&Arg| !arg.is_hide_set();
    let options = command.get_arguments().filter(|arg| !arg.is_positional());
    parts.extend(options.filter(shown).map(option));
    parts.extend(command.get_positionals().filter(shown).map(positional));
    if command.has_subcommands() {
        let inner = italic("COMMAND");
        parts.push(match command.is_subcommand_required_set() {
            true => inner,
            false => format!("[{inner}]"),
        });
    }
    format!(".SH SYNOPSIS\n{}\n", parts.join(" "))
}

/// An option in a synopsis: `[-n|--name VALUE]`.
fn option(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| bold(&format!("-{short}")));
    let long = arg.get_long().map(|long| bold(&format!("--{long}")));
    let mut text = short.into_iter().chain(long).collect::<Vec<_>>().join("|");
    if arg.get_action().takes_values() {
        let values = values(arg);
        let is_optional = arg.get_num_args().is_some_and(|range| range.min_values() == 0);
        text.push_str(&match (arg.is_require_equals_set(), is_optional) {
            (true, true) => format!("[={values}]"),
            (true, false) => format!("={values}"),
            (false, true) => format!(" [{values}]"),
            (false, false) => format!(" {values}"),
        });
    }
    let text = if arg.is_required_set() { text } else { format!("[{text}]") };
    let is_repeatable = matches!(arg.get_action(), ArgAction::Append | ArgAction::Count);
    if is_repeatable { format!("{text}...") } else { text }
}

/// An argument without a name in a synopsis: `[PATH...]`.
fn positional(arg: &Arg) -> String {
    let mut text = values(arg);
    if matches!(arg.get_action(), ArgAction::Append) {
        text.push_str("...");
    }
    if arg.is_required_set() { text } else { format!("[{text}]") }
}

fn values(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    match names.is_empty() {
        true => italic(&arg.get_id().as_str().to_uppercase()),
        false => names.iter().map(|name| italic(name)).collect::<Vec<_>>().join(" "),
    }
}

fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", text.replace('-', "\\-"))
}

fn italic(text: &str) -> String {
    format!("\\fI{}\\fR", text.replace('-', "\\-"))
}

/// References to the parent command, the subcommands, and the other commands of the group.
fn see_also(command: &Command, words: &[&str]) -> String {
    let mut names: Vec<String> = Vec::new();
    if let Some((_, above)) = words.split_last() {
        names.push(page_name(above));
    }
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    names.extend(inner.map(|inner| page_name(&[words, &[inner.get_name()]].concat())));
    if let [name] = words {
        names.extend(help::other_in_group(name).map(|other| page_name(&[other])));
    }
    let names = names.iter().map(|name| format!("\\fB{}\\fR(1)", name.replace('-', "\\-")));
    format!(".SH \"SEE ALSO\"\n{}\n", names.collect::<Vec<_>>().join(",\n"))
}

fn page_name(words: &[&str]) -> String {
    [&["acetate"], words].concat().join("-")
}
