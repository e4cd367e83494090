//! `diff --patch`.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use super::line::whose;
use super::{Args, output};
use crate::cli::output::{self as stderr, Out};
use crate::cli::selecting::{tell_excluded_moves, tell_ignored, tell_unmatched};
use crate::cli::{CliError, Ending, text};
use crate::inspect;
use crate::inspect::diff::DiffOptions;
use crate::inspect::opened::OpenSession;
use crate::inspect::patch::{
    Escape, MAX_FILE_BYTES, MAX_RENAME_CANDIDATES, PatchOmissions, Style, patch_as,
};

/// `git apply` takes no patch that is larger, in bytes (MAX_APPLY_SIZE in its apply.c).
const MAX_APPLIED_BYTES: u64 = 1023 << 20;

/// How many paths are named of those that a patch leaves out.
const NAMED: usize = 10;

/// Writes a patch; returns what it leaves out.
type WritePatch<'w> =
    dyn Fn(&Style, &mut dyn Write) -> inspect::Result<io::Result<PatchOmissions>> + 'w;

/// Prints the patch, and what it cannot hold.
pub(super) fn print(
    args: &Args,
    opened: &OpenSession,
    options: &DiffOptions,
) -> Result<Ending, CliError> {
    print_with(args, opened, options, &|style, out| patch_as(opened, options, style, out))
}

/// The same with `write` to write the patch.
pub(super) fn print_with(
    args: &Args,
    opened: &OpenSession,
    options: &DiffOptions,
    write: &WritePatch<'_>,
) -> Result<Ending, CliError> {
    let has_colour = args.color.is_on();
    let is_for_people = has_colour || io::stdout().is_terminal();
    let escape = is_for_people.then_some(escaped as Escape);
    let style = Style { has_colour, escape, has_binary: !is_for_people, ..args.style() };
    let mut out = CountedStdout { out: output(args), bytes: 0 };
    let written = write(&style, &mut out);
    let written = written.map_err(CliError::from).and_then(|written| {
        let left_out = written.map_err(|error| CliError::stdout(&error))?;
        let bytes = out.bytes;
        out.out.end().map(|()| (left_out, bytes))
    });
    let (left_out, bytes) = written?;
    tell(&left_out);
    tell_unmatched(&options.selection, "change");
    tell_excluded_moves(&options.selection);
    tell_ignored(opened, &options.selection)?;
    if bytes > MAX_APPLIED_BYTES {
        stderr::line(format_args!(
            "the patch has {}, and `git apply` takes {}",
            text::bytes(bytes),
            text::bytes(MAX_APPLIED_BYTES),
        ));
    }
    let is_complete = left_out.unknown.is_empty() && left_out.denied.is_empty();
    if !is_complete || !left_out.blocked.is_empty() {
        return Ok(Ending::Exit(2));
    }
    Ok(if left_out.differences > 0 { Ending::Findings } else { Ending::Done })
}

/// Says on stderr what is not in the patch.
fn tell(left_out: &PatchOmissions) {
    let of_dirs =
        if left_out.empty_dirs == 1 { " without files in it" } else { " without files in them" };
    let counts = [
        (left_out.special, "special file", " (fifos, sockets, devices)"),
        (left_out.empty_dirs, "directory", of_dirs),
    ];
    for (count, what, more) in counts.into_iter().filter(|(count, ..)| *count > 0) {
        stderr::line(format_args!("not in the patch: {}{more}", text::count(count, what)));
    }
    for ((owner, dir), count) in left_out.own.iter().take(NAMED) {
        let (dir, count) = (text::name(dir.as_bytes()), text::count(*count, "file"));
        let whose = whose(*owner);
        stderr::line(format_args!("not in the patch: {dir}: {count}{whose} (--all has them)"));
    }
    if let more @ 1.. = left_out.own.len().saturating_sub(NAMED) {
        stderr::line(format_args!("not in the patch: {more} more such directories"));
    }
    tell_of_renames(left_out);
    for path in left_out.hidden.iter().take(NAMED) {
        let path = text::name(path.as_bytes());
        stderr::line(format_args!("not in the patch: {path}: the session hides this path"));
    }
    if let more @ 1.. = left_out.hidden.len().saturating_sub(NAMED) {
        stderr::line(format_args!("not in the patch: {more} more hidden paths"));
    }
    for path in &left_out.too_large {
        let (path, most) = (text::name(path.as_bytes()), text::bytes(MAX_FILE_BYTES));
        stderr::line(format_args!("not in the patch: {path}: larger than {most}"));
    }
    tell_of_unknown(left_out, "in the patch");
    stderr::tell_of_denied(&left_out.denied, "in the patch");
    for (path, obstacle) in &left_out.blocked {
        let (path, obstacle) = (text::name(path.as_bytes()), text::name(obstacle.as_bytes()));
        stderr::line(format_args!(
            "warning: not in the patch: {path}: the base has {obstacle} there, which `git apply` \
             does not remove"
        ));
    }
    for path in left_out.attributes.iter().take(NAMED) {
        let path = text::name(path.as_bytes());
        stderr::line(format_args!("not in the patch: {path}: its mode or owner"));
    }
    if let more @ 1.. = left_out.attributes.len().saturating_sub(NAMED) {
        stderr::line(format_args!("not in the patch: mode or owner of {more} more"));
    }
}

/// Says on stderr what is not there because its original is not known.
pub(super) fn tell_of_unknown(left_out: &PatchOmissions, there: &str) {
    for path in &left_out.unknown {
        let why = match left_out.deleted_unknown.contains(path) {
            true => {
                "the base changed it since the session deleted it, and the content of deleted \
                 files is not kept"
            }
            false => "what the base had when it was changed is not known",
        };
        let path = text::name(path.as_bytes());
        stderr::line(format_args!("warning: not {there}: {path}: {why}"));
    }
}

/// Says on stderr if there were too many files to look for renames.
pub(super) fn tell_of_renames(left_out: &PatchOmissions) {
    if let Some(files) = left_out.renames_not_looked_for {
        stderr::line(format_args!(
            "no renames of changed files were looked for: there are {files} files, and \
             {MAX_RENAME_CANDIDATES} at most are compared"
        ));
    }
}

/// Content for a person: what could steer the terminal is escaped.
pub(in crate::cli) fn escaped(line: &[u8]) -> Cow<'_, [u8]> {
    let is_plain = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
    if line.iter().all(is_plain) {
        return Cow::Borrowed(line);
    }
    let mut text = String::with_capacity(line.len());
    for chunk in line.utf8_chunks() {
        text.push_str(&text::printable(chunk.valid()));
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    Cow::Owned(text.into_bytes())
}

/// Stdout, and how much went there.
struct CountedStdout {
    out: Out,
    bytes: u64,
}

impl Write for CountedStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
