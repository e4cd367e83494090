//! `-i`: lists the changes in the user's editor.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Verb;
use super::offer::{Offer, choose, differences};
use crate::cli::diff;
use crate::cli::error::CliError;
use crate::inspect::fold::FoldedLine;
use crate::inspect::hunks::{ChosenHunks, whole_id};
use crate::system_error::ending_words;

/// Lets the user edit the list.
pub(super) fn pick(offer: &Offer<'_>) -> Result<ChosenHunks, CliError> {
    let entries = offer.entries()?;
    if entries.is_empty() {
        return Ok(ChosenHunks::new());
    }
    let by_id: BTreeMap<_, _> = entries.iter().map(|entry| (id(entry), entry)).collect();
    let text = edit(&list(&entries, offer.verb))?;
    let mut chosen = ChosenHunks::new();
    for (at, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        let Some(verb) = words.next().filter(|word| !word.starts_with('#')) else { continue };
        let failed = |what: &str| {
            let error = CliError::new(format!("line {} of the list: {what}", at + 1));
            Err(error.with_hint("nothing was done; the lines are `pick ID` and `drop ID`"))
        };
        let entry = words.next().and_then(|id| by_id.get(id));
        match (verb, entry) {
            ("pick" | "p", Some(entry)) => choose(entry, &mut chosen),
            ("drop" | "d", Some(_)) => {}
            ("pick" | "p" | "drop" | "d", None) => return failed("no such change"),
            _ => return failed(&format!("`{verb}` is neither `pick` nor `drop`")),
        }
    }
    Ok(chosen)
}

/// The id of an entry, which is that of its first difference.
fn id(entry: &FoldedLine) -> String {
    differences(entry).first().map(|first| whole_id(first).to_string()).unwrap_or_default()
}

fn list(entries: &[FoldedLine], verb: Verb) -> String {
    let mut text = String::new();
    for entry in entries {
        text.push_str(&format!("pick {} {}\n", id(entry), diff::entry_line(entry)));
    }
    let verb = verb.lower();
    text.push_str(&format!(
        "\n# Commands:\n\
         # p, pick = {verb} this change\n\
         # d, drop = do not {verb} it\n\
         #\n\
         # A line that is removed is as one with `drop`. If all are removed, nothing is done.\n\
         # -p goes through the changes hunk by hunk.\n"
    ));
    text
}

/// The text after the user has edited it.
fn edit(text: &str) -> Result<String, CliError> {
    let file = EditedList::new(text)?;
    let given = |name| env::var_os(name).filter(|value| !value.is_empty());
    let editor = given("VISUAL").or_else(|| given("EDITOR")).unwrap_or_else(|| "vi".into());
    let mut command = OsString::from(&editor);
    command.push(" \"$@\"");
    let status = Command::new("sh").arg("-c").arg(command).arg(&editor).arg(&file.0).status();
    let shown = editor.display();
    let status = status.map_err(|error| CliError::caused(format_args!("{shown}"), &error))?;
    if !status.success() {
        let ending = ending_words(status);
        let error = CliError::new(format!("the editor {shown} ended with {ending}"));
        return Err(error.with_hint("nothing was done; $VISUAL or $EDITOR names another editor"));
    }
    let read = fs::read_to_string(&file.0);
    read.map_err(|error| CliError::caused(file.0.display(), &error))
}

/// A temporary file for the editor; removed on drop.
struct EditedList(PathBuf);

impl EditedList {
    fn new(text: &str) -> Result<Self, CliError> {
        let random = getrandom::u64();
        let random =
            random.map_err(|error| CliError::new(format!("cannot get random bytes: {error}")))?;
        let path = Path::new(&env::temp_dir()).join(format!("acetate-choice-{random:016x}"));
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let mut file = made.map_err(|error| CliError::caused(path.display(), &error))?;
        let list = Self(path);
        let written = file.write_all(text.as_bytes());
        written.map_err(|error| CliError::caused(list.0.display(), &error))?;
        Ok(list)
    }
}

impl Drop for EditedList {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.0);
    }
}
