//! `acetate man`: writes manual pages.

use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
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
    let mut command = Cli::command();
    command.build();
    write(&command, &[], &args.dir).map_err(failed)?;
    output::line(format_args!("wrote the manual pages to {}", args.dir.display()));
    Ok(Ending::Done)
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
    man.render_synopsis_section(&mut page)?;
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
