//! The options that select a part of a tree: paths, pathspecs and exclusions.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::CliError;
use super::tree_paths::current;
use super::{output, text};
use crate::inspect::ignored_changes::ignored_changes;
use crate::inspect::opened::OpenSession;
use crate::inspect::selection::{MAX_NOTED, Selection, SelectionText};

/// The most paths that a note names.
const NAMED: usize = 3;

/// The options that exclude paths.
#[derive(Debug, Default, clap::Args)]
pub(super) struct LeaveOut {
    /// Leave out what this glob matches.
    ///
    /// What is below a match is left out too: `target`, `*.log`, `/web/dist`. Repeatable.
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,

    /// Leave out what git ignores.
    ///
    /// Reads the .gitignore files of the merged tree, .git/info/exclude, and core.excludesFile.
    /// Unlike git, it leaves out tracked files too; `diff` and `apply` name changed ones that the
    /// base has.
    #[arg(long, hide_short_help = true)]
    gitignore: bool,
}

impl LeaveOut {
    /// The selection as text. Relative paths start from the current directory if that is in the
    /// base or in a mount of the session, otherwise from the root.
    pub(super) fn asked(
        &self,
        paths: &[OsString],
        session: &Path,
        base: Option<&Path>,
    ) -> SelectionText {
        SelectionText {
            paths: paths.to_vec(),
            exclude: self.exclude.clone(),
            gitignore: self.gitignore.then(user_rules),
            current: current(session, base),
        }
    }

    /// The selection by these options and `paths`.
    pub(super) fn read(
        &self,
        opened: &OpenSession,
        paths: &[OsString],
    ) -> Result<Selection, CliError> {
        let asked = self.asked(paths, opened.session().path(), opened.base_path());
        Ok(Selection::read(opened, &asked)?)
    }

    /// The options that are given.
    pub(super) fn given(&self) -> Vec<&str> {
        let exclude = (!self.exclude.is_empty()).then_some("--exclude");
        exclude.into_iter().chain(self.gitignore.then_some("--gitignore")).collect()
    }

    /// Whether any of these options is given.
    pub(super) fn is_given(&self) -> bool {
        self.gitignore || !self.exclude.is_empty()
    }
}

/// Reports globs that matched no `what`. Call it after everything has been examined.
pub(super) fn tell_unmatched(selection: &Selection, what: &str) {
    for pattern in selection.unmatched() {
        output::line(format_args!("note: no {what} matches {pattern}"));
    }
}

/// Names moves that are left out because one of their paths is excluded. Call it after everything
/// has been examined.
pub(super) fn tell_excluded_moves(selection: &Selection) {
    let moves = selection.excluded_moves();
    for (path, excluded) in moves.iter().take(NAMED) {
        let (path, excluded) = (text::name(path.as_bytes()), text::name(excluded.as_bytes()));
        output::line(format_args!(
            "note: {path} is left out: it was moved, and {excluded} is excluded"
        ));
    }
    if let more @ 1.. = moves.len().saturating_sub(NAMED) {
        let more = text::count(more, "move");
        output::line(format_args!("note: {more} more left out: one of the two paths is excluded"));
    }
}

/// Names base files whose changes are left out by the ignore rules alone: git applies these to
/// untracked files only. Call it after everything has been examined.
pub(super) fn tell_ignored(opened: &OpenSession, selection: &Selection) -> Result<(), CliError> {
    let changed = ignored_changes(opened, selection)?;
    if changed.is_empty() {
        return Ok(());
    }
    let named: Vec<_> =
        changed.iter().take(NAMED).map(|path| text::name(path.as_bytes())).collect();
    let more = if changed.len() > NAMED { ", ..." } else { "" };
    let or_more = if changed.len() < MAX_NOTED { "" } else { " or more" };
    let files = match changed.len() {
        1 => "1 changed file".to_owned(),
        all => format!("{all}{or_more} changed files"),
    };
    output::line(format_args!(
        "note: --gitignore leaves out {files} that the base has: {}{more}",
        named.join(", "),
    ));
    Ok(())
}

/// The content of the user's core.excludesFile; empty if there is none.
fn user_rules() -> Vec<u8> {
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".config"));
    let config = env::var_os("XDG_CONFIG_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let usual = || Some(config.or_else(home)?.join("git/ignore"));
    let path = git_config("core.excludesFile").map(PathBuf::from).or_else(usual);
    path.and_then(|path| fs::read(path).ok()).unwrap_or_default()
}

/// A setting of git for the user or the machine. Those of repositories are ignored, because a
/// command in a session could have written them.
pub(super) fn git_config(key: &str) -> Option<OsString> {
    use std::os::unix::ffi::OsStringExt;
    let mut git = Command::new("git");
    let is_path = key.ends_with("File");
    git.args(["-C", "/", "config"]).args(is_path.then_some("--type=path")).args(["--get", key]);
    git.env_remove("GIT_DIR").stdin(Stdio::null()).stderr(Stdio::null());
    let output = git.output().ok().filter(|output| output.status.success())?;
    let value = output.stdout.strip_suffix(b"\n").unwrap_or(&output.stdout);
    (!value.is_empty()).then(|| OsString::from_vec(value.to_vec()))
}
