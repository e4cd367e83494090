//! Copies objects from the merged tree or this machine to either.
//!
//! `reading` reads the sources, `read_ahead` many small files at once; `placing` writes the copies,
//! `bulk` many at once.

mod bulk;
mod placing;
mod read_ahead;
mod reading;

use std::collections::HashSet;
use std::path::PathBuf;

use super::change::{PathResults, SessionChanger};
use super::error::CliError;
use super::output::ProgressLine;
use super::text;
use crate::control::AttrChanges;
use crate::delta::MergedPath;
use crate::inspect::opened::OpenSession;
use crate::vfs::{FileKind, Name};

use bulk::Bulk;
use read_ahead::CopyReadAhead;

/// Skipped objects that are listed; more only show in the exit code.
const MAX_NAMED: usize = 100;

/// A path on either side.
#[derive(Debug, Clone)]
pub(super) enum CopyPath {
    /// A path in the merged tree.
    Tree(MergedPath),
    /// A path on this machine.
    Host(PathBuf),
}

/// A path argument. `is_content` is set for `dir/.`, which cp(1) takes as the directory's content.
#[derive(Debug, Clone)]
pub(super) struct SourceArg {
    pub(super) place: CopyPath,
    pub(super) is_content: bool,
}

/// The counts of a copy.
#[derive(Debug, Default)]
pub(super) struct CopyReport {
    /// The number of files, directories and links.
    pub(super) objects: u64,
    /// Bytes of content.
    pub(super) bytes: u64,
    /// Descriptions of skipped objects.
    pub(super) skipped: Vec<String>,
}

/// An object to copy.
struct CopyObject {
    place: CopyPath,
    kind: FileKind,
    size: u64,
    meta: AttrChanges,
}

/// A copy in progress.
pub(super) struct Copying<'a> {
    opened: &'a OpenSession,
    changer: Option<&'a mut SessionChanger>,
    recursive: bool,
    /// Whether the target has a slash at its end, and no directory is there.
    is_new_dir: bool,
    copied: CopyReport,
    /// The index of the current source.
    source: usize,
    bulk: Bulk,
    ahead: CopyReadAhead,
    /// Sources with an object that could not be created, and the errors not reported yet.
    failed: Vec<(usize, CliError)>,
    /// Sources that were not copied completely.
    lost: HashSet<usize>,
    progress: ProgressLine,
}

impl<'a> Copying<'a> {
    /// Reads the tree of `opened` and changes it through `changer`.
    pub(super) fn new(
        opened: &'a OpenSession,
        changer: Option<&'a mut SessionChanger>,
        recursive: bool,
        progress: ProgressLine,
    ) -> Self {
        Self {
            opened,
            changer,
            recursive,
            is_new_dir: false,
            copied: CopyReport::default(),
            source: 0,
            bulk: Bulk::default(),
            ahead: CopyReadAhead::default(),
            failed: Vec::new(),
            lost: HashSet::new(),
            progress,
        }
    }

    /// Copies each of `from` to or into `to`; returns the result of each. What was copied before a
    /// failure stays. `has_slash` says whether `to` was given with a slash at its end.
    ///
    /// # Errors
    /// A failure after which no source can be copied.
    pub(super) fn all(
        mut self,
        from: &[SourceArg],
        (to, has_slash): (&CopyPath, bool),
    ) -> Result<(CopyReport, PathResults), CliError> {
        let into = self.is_dir(to)?;
        if from.len() > 1 && !into {
            let what = format!("{to}: not a directory, and there are {} sources", from.len());
            return Err(CliError::new(what));
        }
        self.is_new_dir = has_slash && !into;
        let mut several = PathResults::default();
        let copied = self.each(from, to, into, &mut several);
        // Queued objects are written also after a failure.
        let flushed = self.flush();
        self.progress.end();
        copied.and(flushed)?;
        self.tell_failed(&mut several)?;
        several.add_done(from.len().saturating_sub(self.lost.len()));
        Ok((self.copied, several))
    }

    fn each(
        &mut self,
        from: &[SourceArg],
        to: &CopyPath,
        into: bool,
        several: &mut PathResults,
    ) -> Result<(), CliError> {
        for (at, SourceArg { place, is_content }) in from.iter().enumerate() {
            self.source = at;
            let target = match (into && !is_content, place.name()) {
                (true, Some(name)) => to.join(&name),
                _ => to.clone(),
            };
            let mut copied = self.one(place, target);
            if copied.is_ok() && matches!(place, CopyPath::Tree(_)) {
                // The next source may be the target of this one.
                copied = self.flush();
            }
            if let Err(error) = copied {
                self.failed.push((at, error));
            }
            self.tell_failed(several)?;
        }
        Ok(())
    }

    /// Reports the failures since the last call.
    fn tell_failed(&mut self, several: &mut PathResults) -> Result<(), CliError> {
        for (source, error) in std::mem::take(&mut self.failed) {
            self.lost.insert(source);
            self.progress.end();
            several.take::<()>(Err(error))?;
        }
        Ok(())
    }

    /// Adds to the counts, and shows them.
    fn count(&mut self, objects: u64, bytes: u64) {
        self.copied.objects += objects;
        self.copied.bytes += bytes;
        let CopyReport { objects, bytes, .. } = self.copied;
        let so_far = || format!("{}, {}", text::count(objects, "object"), text::bytes(bytes));
        self.progress.say(so_far);
    }

    fn one(&mut self, source: &CopyPath, target: CopyPath) -> Result<(), CliError> {
        let object = self.object(source)?;
        if object.kind == FileKind::Directory {
            self.check_dir(source, &target)?;
        } else if self.is_new_dir {
            return Err(CliError::new(format!("{target}: not a directory")).about_path());
        }
        self.tree(object, target)
    }

    /// Skips the current object.
    fn skip(&mut self, what: String) {
        if self.copied.skipped.len() < MAX_NAMED {
            self.copied.skipped.push(what);
        }
    }

    fn check_dir(&self, source: &CopyPath, target: &CopyPath) -> Result<(), CliError> {
        if !self.recursive {
            let what = format!("{source}: is a directory");
            let error = CliError::new(what).with_hint("-r copies it with all that is in it");
            return Err(error.about_path());
        }
        let is_inside = match (source, target) {
            (CopyPath::Tree(source), CopyPath::Tree(target)) => target.is_within(source),
            _ => false,
        };
        match is_inside {
            true => {
                let what = format!("{source}: cannot be copied into itself");
                Err(CliError::new(what).about_path())
            }
            false => Ok(()),
        }
    }

    /// Copies an object with everything below it. Directories get their attributes last.
    fn tree(&mut self, object: CopyObject, target: CopyPath) -> Result<(), CliError> {
        let mut open = vec![(object, target)];
        let mut full = Vec::new();
        while let Some((object, target)) = open.pop() {
            match object.kind {
                FileKind::Directory => {
                    self.place_dir(&target)?;
                    for (name, child) in self.children(&object.place)? {
                        open.push((child, target.join(&name)));
                    }
                    full.push((target, object.meta));
                }
                FileKind::Regular => self.place_file(&object, &target, &open)?,
                FileKind::Symlink => {
                    let link = self.target(&object.place)?;
                    self.place_link(&target, &link, &object.meta)?;
                }
                kind => {
                    let what = format!("{}: is a {}", object.place, text::kind(kind));
                    self.skip(what);
                }
            }
        }
        while let Some((target, meta)) = full.pop() {
            self.place_meta(&target, &meta)?;
        }
        Ok(())
    }
}

impl CopyPath {
    fn join(&self, name: &Name) -> Self {
        use std::os::unix::ffi::OsStrExt;
        match self {
            Self::Tree(path) => Self::Tree(path.join(name)),
            Self::Host(path) => Self::Host(path.join(std::ffi::OsStr::from_bytes(name.as_bytes()))),
        }
    }

    /// The last component; `None` for a root, or for a path that ends in `..`.
    fn name(&self) -> Option<Name> {
        match self {
            Self::Tree(path) => path.name(),
            Self::Host(path) => Name::new(path.file_name()?.as_encoded_bytes()).ok(),
        }
    }
}

impl std::fmt::Display for CopyPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tree(path) => write!(f, ":{}", text::name(path.as_bytes())),
            Self::Host(path) => write!(f, "{}", text::name(path.as_os_str().as_encoded_bytes())),
        }
    }
}
