//! The operands of commands with several sources: the target is a new name, or a directory for all.

use std::ffi::OsString;

use super::error::CliError;
use super::source::SessionSource;
use super::text;
use super::tree_paths::not_a_directory;
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::opened::OpenSession;
use crate::vfs::FileKind;

/// What `cp`, `mv` and `ln` are about.
#[derive(Debug, clap::Args)]
pub(super) struct OperandPaths {
    #[command(flatten)]
    pub(super) source: SessionSource,

    /// The sources, and last the target: a path, or a directory for all of them.
    #[arg(value_name = "PATH", required = true, num_args = 2..)]
    paths: Vec<OsString>,
}

impl OperandPaths {
    /// The target, and the sources.
    pub(super) fn split(&self) -> Result<(&OsString, &[OsString]), CliError> {
        self.paths.split_last().ok_or_else(|| CliError::new("no paths"))
    }
}

/// The target of `mv` and `ln`.
pub(super) struct LastOperand {
    path: MergedPath,
    is_dir: bool,
    /// Whether the path has a slash at its end, and nothing is there.
    is_new_dir: bool,
}

impl LastOperand {
    /// Looks up the target `path` of this number of sources. `has_slash` says whether it was given
    /// with a slash at its end.
    ///
    /// # Errors
    /// There are several sources and `path` is not a directory.
    pub(super) fn of(
        opened: &OpenSession,
        (path, has_slash): (MergedPath, bool),
        sources: usize,
    ) -> Result<Self, CliError> {
        let kind = kind(opened, &path)?;
        let is_dir = kind == Some(FileKind::Directory);
        if sources > 1 && !is_dir {
            let path = text::name(path.as_bytes());
            let what = format!("{path}: not a directory, and there are {sources} sources");
            return Err(CliError::new(what));
        }
        Ok(Self { path, is_dir, is_new_dir: has_slash && !is_dir })
    }

    /// Refuses another source than a directory for a target that is to become a directory.
    pub(super) fn check_kind(
        &self,
        opened: &OpenSession,
        source: &MergedPath,
    ) -> Result<(), CliError> {
        match self.is_new_dir && kind(opened, source)? != Some(FileKind::Directory) {
            true => Err(not_a_directory(&self.path)),
            false => Ok(()),
        }
    }

    /// Refuses a target that is to become a directory, for links.
    pub(super) fn check_link(&self) -> Result<(), CliError> {
        if self.is_new_dir { Err(not_a_directory(&self.path)) } else { Ok(()) }
    }

    /// The path that a source gets.
    pub(super) fn for_source(&self, source: &MergedPath) -> MergedPath {
        match source.name().filter(|_| self.is_dir) {
            Some(name) => self.path.join(&name),
            None => self.path.clone(),
        }
    }

    /// Whether a path exists.
    pub(super) fn is_there(
        &self,
        opened: &OpenSession,
        path: &MergedPath,
    ) -> Result<bool, CliError> {
        Ok(kind(opened, path)?.is_some())
    }
}

/// The type of the object at a path of the merged tree.
pub(super) fn kind(opened: &OpenSession, path: &MergedPath) -> Result<Option<FileKind>, CliError> {
    Ok(opened.with_tree(|view| {
        let found = view.find(path).map_err(|source| InspectError::at(path, source))?;
        Ok(found.map(|found| found.attr().kind))
    })?)
}
