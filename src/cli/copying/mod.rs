//! Copies object by object, from the merged tree or this machine to either.
//!
//! `reading` is where things come from, `placing` where they go.

mod placing;
mod reading;

use std::path::PathBuf;

use super::change::{Changer, Several};
use super::error::CliError;
use super::text;
use crate::control::Meta;
use crate::delta::MergedPath;
use crate::inspect::opened::Opened;
use crate::vfs::{FileKind, Name};

/// Skipped objects that are named; further ones are only counted by the exit code.
const MAX_NAMED: usize = 100;

/// A path on one of the sides.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// In the merged tree.
    Tree(MergedPath),
    /// On this machine.
    Host(PathBuf),
}

/// A path as it was given, and whether it is what is in a directory, as for cp(1): `dir/.`.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) place: Place,
    pub(super) is_content: bool,
}

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Copied {
    /// Files, directories and links.
    pub(super) objects: u64,
    /// Content, in bytes.
    pub(super) bytes: u64,
    /// What was left out, and why.
    pub(super) skipped: Vec<String>,
}

/// An object to be copied.
struct Object {
    place: Place,
    kind: FileKind,
    meta: Meta,
}

/// A copying in progress.
pub(super) struct Copying<'a> {
    opened: &'a Opened,
    changer: Option<&'a mut Changer>,
    recursive: bool,
    copied: Copied,
}

impl<'a> Copying<'a> {
    /// Reads the tree of `opened`, and changes it by `changer`.
    pub(super) fn new(
        opened: &'a Opened,
        changer: Option<&'a mut Changer>,
        recursive: bool,
    ) -> Self {
        Self { opened, changer, recursive, copied: Copied::default() }
    }

    /// Copies all of `from` to, or into, `to`; what came of each. What was copied of one that
    /// fails stays.
    ///
    /// # Errors
    /// None can be copied any more.
    pub(super) fn all(mut self, from: &[Named], to: &Place) -> Result<(Copied, Several), CliError> {
        let into = self.is_dir(to)?;
        if from.len() > 1 && !into {
            let what = format!("{to}: not a directory, and there are {} sources", from.len());
            return Err(CliError::new(what));
        }
        let mut several = Several::default();
        for Named { place, is_content } in from {
            let target = match (into && !is_content, place.name()) {
                (true, Some(name)) => to.join(&name),
                _ => to.clone(),
            };
            let copied = self.one(place, target);
            several.take(copied)?;
        }
        Ok((self.copied, several))
    }

    fn one(&mut self, source: &Place, target: Place) -> Result<(), CliError> {
        let object = self.object(source)?;
        if object.kind == FileKind::Directory {
            self.check_dir(source, &target)?;
        }
        self.tree(object, target)
    }

    /// Leaves out the object at hand.
    fn skip(&mut self, what: String) {
        self.copied.objects -= 1;
        if self.copied.skipped.len() < MAX_NAMED {
            self.copied.skipped.push(what);
        }
    }

    fn check_dir(&self, source: &Place, target: &Place) -> Result<(), CliError> {
        if !self.recursive {
            let what = format!("{source}: is a directory");
            let error = CliError::new(what).with_hint("-r copies it with all that is in it");
            return Err(error.about_path());
        }
        let is_inside = match (source, target) {
            (Place::Tree(source), Place::Tree(target)) => target.is_within(source),
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

    /// Copies an object with all below it. A directory gets its attributes when it is full.
    fn tree(&mut self, object: Object, target: Place) -> Result<(), CliError> {
        let mut open = vec![(object, target)];
        let mut full = Vec::new();
        while let Some((object, target)) = open.pop() {
            self.copied.objects += 1;
            match object.kind {
                FileKind::Directory => {
                    self.place_dir(&target)?;
                    for (name, child) in self.children(&object.place)? {
                        open.push((child, target.join(&name)));
                    }
                    full.push((target, object.meta));
                }
                FileKind::Regular => self.place_file(&object, &target)?,
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

impl Place {
    fn join(&self, name: &Name) -> Self {
        use std::os::unix::ffi::OsStrExt;
        match self {
            Self::Tree(path) => Self::Tree(path.join(name)),
            Self::Host(path) => Self::Host(path.join(std::ffi::OsStr::from_bytes(name.as_bytes()))),
        }
    }

    /// Its name in its directory; `None` for a root, or what ends in dots.
    fn name(&self) -> Option<Name> {
        match self {
            Self::Tree(path) => path.name(),
            Self::Host(path) => Name::new(path.file_name()?.as_encoded_bytes()).ok(),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tree(path) => write!(f, ":{}", text::name(path.as_bytes())),
            Self::Host(path) => write!(f, "{}", text::name(path.as_os_str().as_encoded_bytes())),
        }
    }
}
