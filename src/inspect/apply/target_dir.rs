//! The directory that an apply writes to: the base itself, or a copy of it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::advice::ApplyAdvice;
use super::locked_dirs;
use super::plan::{attrs_of, directory};
use super::record::Record;
use crate::base::{Base, BaseAttr, BaseError, BasePath, HostDir, HostDirOptions, own_paths};
use crate::inspect::InspectError;
use crate::inspect::error::Result;
use crate::inspect::opened::{OpenSession, below};
use crate::system_error::words;
use crate::writeback::{Attrs, Target, Xattrs};

/// The target, and the paths in it that must not be written.
pub(super) struct ApplyTarget<'a> {
    pub dir: Target,
    opened: &'a OpenSession,
    /// The top before the first step.
    pub top: BaseAttr,
    /// Its attributes with the mode that the host reports.
    pub host_top: Attrs,
    /// Reads the copy; `None` if the target is the base.
    copy: Option<HostDir>,
    /// The base, if the target is a copy: for its ACLs.
    base: Option<Target>,
    /// Paths of the session's files, and acetate's own paths.
    reserved: Vec<BasePath>,
}

impl<'a> ApplyTarget<'a> {
    /// Opens the base, or the directory `to`.
    ///
    /// # Errors
    /// It does not exist, or `to` is the base, in it, or above it.
    pub fn open(opened: &'a OpenSession, to: Option<&Path>) -> Result<Self> {
        let given = directory(opened, to)?;
        let real = match (fs::canonicalize(&given), to) {
            (Ok(real), _) => real,
            (Err(error), Some(_)) => {
                let what = format!("{}: {}", given.display(), words(&error));
                return Err(InspectError::Refused { what, advice: ApplyAdvice::MakeCopy });
            }
            (Err(error), None) => return Err(base_error(&given, error.into())),
        };
        let mut reserved = below(&opened.session().files(), &real);
        let (mut copy, mut other) = (None, None);
        if to.is_some() {
            if let Some(base) = opened.base_path() {
                check_apart(&real, &self::real(base)?, &given)?;
                other = Some(Target::open(base)?);
            }
            let options = HostDirOptions { hidden: reserved.clone() };
            let read =
                HostDir::open(&real, options).map_err(|source| base_error(&given, source))?;
            copy = Some(read);
        }
        reserved.extend(own_paths());
        let dir = Target::open(&real)?;
        let reader = copy.as_ref().map_or(opened.whole_base(), |copy| copy as &dyn Base);
        let top = match reader.stat(&BasePath::root()) {
            Ok(top) => top,
            Err(source) => return Err(base_error(&given, source)),
        };
        let host_top = match dir.object(&BasePath::root()) {
            Err(error) if error.source.kind() == ErrorKind::PermissionDenied => {
                locked_dirs::check_top_is_open(&real, &attrs_of(&top))?;
                return Err(error.into());
            }
            found => found?.map(|object| object.attrs),
        };
        let host_top = host_top.unwrap_or_else(|| attrs_of(&top));
        Ok(Self { dir, opened, top, host_top, copy, base: other, reserved })
    }

    /// The undo directory.
    pub fn undo_dir(&self) -> PathBuf {
        self.opened.session().undo_dir()
    }

    /// Extended attributes of the object at a path, for its replacement. If a copy has no ACL and
    /// the base has one, the base's is used: the session's mode comes from that.
    pub fn xattrs(&self, path: &BasePath) -> Result<Xattrs> {
        if self.dir.look(path)?.is_none() {
            return Ok(Xattrs::default());
        }
        let mut found = self.dir.xattrs(path)?;
        if let Some(base) = &self.base
            && base.look(path)?.is_some()
        {
            found.adopt_access_acl(&base.xattrs(path)?);
        }
        Ok(found)
    }

    /// The device and inode number of the directory.
    pub fn id(&self) -> (u64, u64) {
        (self.top.dev, self.top.ino)
    }

    /// Whether a record is of this directory, which may have been moved since.
    pub fn is_of(&self, record: &Record) -> bool {
        record.target == self.dir.path() || record.top == Some(self.id())
    }

    /// Whether it is a copy of the base.
    pub fn is_copy(&self) -> bool {
        self.copy.is_some()
    }

    /// Reads the target, including paths that the session hides.
    pub fn reader(&self) -> &dyn Base {
        match &self.copy {
            Some(copy) => copy,
            None => self.opened.whole_base(),
        }
    }

    /// Current attributes of the object at a path.
    pub fn stat(&self, path: &BasePath) -> Result<Option<BaseAttr>> {
        stat_in(self.reader(), path).map_err(|source| base_error(&self.shown(path), source))
    }

    /// The path on the host, for messages.
    pub fn shown(&self, path: &BasePath) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        self.dir.path().join(std::ffi::OsStr::from_bytes(path.as_bytes()))
    }

    /// Refuses to write at or below a reserved path.
    pub fn check_free(&self, path: &BasePath) -> Result<()> {
        match self.reserved.iter().any(|reserved| is_within(path, reserved)) {
            true => Err(self.is_reserved(path)),
            false => Ok(()),
        }
    }

    /// Refuses to remove or move a reserved path; also a directory above one, unless it `stays`.
    pub fn check_may_go(&self, path: &BasePath, stays: bool) -> Result<()> {
        let holds = !stays && self.reserved.iter().any(|reserved| is_within(reserved, path));
        if holds { Err(self.is_reserved(path)) } else { self.check_free(path) }
    }

    fn is_reserved(&self, path: &BasePath) -> InspectError {
        InspectError::Refused {
            what: format!("{}: holds the session, or is acetate's own", self.shown(path).display()),
            advice: ApplyAdvice::LeavePathOut,
        }
    }
}

/// Attributes of the object at a path; `None` if there is none.
pub(super) fn stat_in(
    tree: &dyn Base,
    path: &BasePath,
) -> std::result::Result<Option<BaseAttr>, BaseError> {
    match tree.stat(path) {
        Ok(attr) => Ok(Some(attr)),
        Err(BaseError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The error of a failed read of the target.
pub(super) fn base_error(path: &Path, source: BaseError) -> InspectError {
    InspectError::Base { path: path.to_owned(), is_recorded: false, source }
}

fn real(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).map_err(|source| base_error(path, source.into()))
}

/// Refuses a copy that is the base, in it, or above it.
fn check_apart(copy: &Path, base: &Path, given: &Path) -> Result<()> {
    // A bind mount of the base has another path.
    let id = |path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    let is_base = copy == base || id(copy).is_some_and(|copy| Some(copy) == id(base));
    let (what, advice) = if is_base {
        ("is the base", ApplyAdvice::NameNoCopy)
    } else if copy.starts_with(base) || base.starts_with(copy) {
        ("is not apart from the base", ApplyAdvice::NameOtherCopy)
    } else {
        return Ok(());
    };
    Err(InspectError::Refused { what: format!("{}: {what}", given.display()), advice })
}

/// Whether `path` is `dir` or below it.
pub(super) fn is_within(path: &BasePath, dir: &BasePath) -> bool {
    let rest = path.as_bytes().strip_prefix(dir.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}
