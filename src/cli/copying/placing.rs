//! Writes copies to the tree or to this machine.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;

use super::super::cat::MAX_HOLE_BYTES;
use super::super::error::CliError;
use super::reading::{InTree, failed};
use super::{CopyObject, CopyPath, Copying, SessionChanger};
use crate::control::{Answer, AttrChanges, ItemKind, MakeItem, Request, WriteHow};
use crate::inspect::InspectError;
use crate::inspect::opened::find;
use crate::overlay::{TreeObject, TreeView};
use crate::vfs::{FileKind, FsError};

impl Copying<'_> {
    pub(super) fn changer(&mut self) -> Result<&mut SessionChanger, CliError> {
        self.changer.as_deref_mut().ok_or_else(|| CliError::new("the tree cannot be changed"))
    }

    /// Creates a directory, unless it exists.
    pub(super) fn place_dir(&mut self, at: &CopyPath) -> Result<(), CliError> {
        match at {
            CopyPath::Tree(path) => {
                let (path, kind, meta) = (path.into(), ItemKind::Directory, AttrChanges::default());
                self.put(MakeItem { path, kind, meta }, &[])
            }
            CopyPath::Host(path) => match fs::create_dir(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    // A symbolic link to a directory would redirect the copy.
                    match fs::symlink_metadata(path) {
                        Ok(found) if found.is_dir() => {
                            self.count(1, 0);
                            Ok(())
                        }
                        _ => Err(failed(path, &error)),
                    }
                }
                made => {
                    made.map_err(|error| failed(path, &error))?;
                    self.count(1, 0);
                    Ok(())
                }
            },
        }
    }

    /// Writes a file with its content. `next` is the stack of objects that are copied after it.
    pub(super) fn place_file(
        &mut self,
        file: &CopyObject,
        at: &CopyPath,
        next: &[(CopyObject, CopyPath)],
    ) -> Result<(), CliError> {
        let small = self.small_content(file, next);
        let bytes = match (at, small) {
            (CopyPath::Tree(path), Some(content)) => {
                let kind = ItemKind::File { bytes: content.len() as u64 };
                return self.put(MakeItem { path: path.into(), kind, meta: file.meta }, &content);
            }
            (CopyPath::Tree(path), None) => {
                if matches!(file.place, CopyPath::Tree(_)) && self.has_many_holes(&file.place)? {
                    let what = format!("{}: its holes would be written as zeros", file.place);
                    self.skip(what);
                    return Ok(());
                }
                self.flush()?;
                self.check_source()?;
                let content = Self::content(self.opened, &file.place)?;
                let (path, meta) = (path.into(), file.meta);
                let request = Request::Write { path, how: WriteHow::Replace, meta };
                match self.changer()?.ask_with(request, content)? {
                    Answer::Bytes(bytes) => bytes,
                    _ => 0,
                }
            }
            (CopyPath::Host(path), small) => match self.place_outside(file, path, small)? {
                Some(bytes) => bytes,
                None => return Ok(()),
            },
        };
        self.count(1, bytes);
        Ok(())
    }

    /// Writes a file on this machine, with the content `small` if that is read already. Returns the
    /// number of bytes; `None` if the file was skipped.
    fn place_outside(
        &mut self,
        file: &CopyObject,
        path: &Path,
        small: Option<Vec<u8>>,
    ) -> Result<Option<u64>, CliError> {
        // A terminal or a pipe gets zeros for holes.
        let is_file = |path: &Path| fs::metadata(path).map_or(true, |meta| meta.is_file());
        if small.is_none() && !is_file(path) && self.has_many_holes(&file.place)? {
            let what = format!("{}: its holes would be written as zeros", file.place);
            self.skip(what);
            return Ok(None);
        }
        let (open, is_new) = open(path).map_err(|error| failed(path, &error))?;
        if !is_new {
            self.empty(&open, path, &file.place)?;
        }
        let copied = match small {
            Some(content) => write_all(&open, &content),
            None => self.copy_out(&file.place, &open),
        };
        if copied.is_err() && is_new {
            // An incomplete file is removed; the reason is reported.
            let _removed = fs::remove_file(path);
        }
        match copied {
            Err(CopyOut::TooLarge(bytes)) => {
                let (from, to) = (&file.place, path.display());
                self.skip(format!("{from}: {to} cannot have {bytes} bytes"));
                Ok(None)
            }
            copied => {
                let bytes = copied.map_err(|error| error.at(path))?;
                set_meta(&open, path, &file.meta)?;
                Ok(Some(bytes))
            }
        }
    }

    /// Whether a file has more holes than are written as zeros.
    fn has_many_holes(&self, file: &CopyPath) -> Result<bool, CliError> {
        let CopyPath::Tree(path) = file else { return Ok(false) };
        Ok(self.opened.with_tree(|view| {
            let file = find(view, path)?;
            let data = view.data_bytes(&file).map_err(|source| InspectError::at(path, source))?;
            Ok(file.attr().size.saturating_sub(data) > MAX_HOLE_BYTES)
        })?)
    }

    /// Copies content, with its holes, to an empty host file; returns the number of bytes.
    fn copy_out(&self, from: &CopyPath, to: &File) -> Result<u64, CopyOut> {
        let path = match from {
            CopyPath::Tree(path) if to.metadata()?.is_file() => path,
            CopyPath::Tree(path) => {
                return Ok(io::copy(&mut InTree::new(self.opened, path), &mut &*to)?);
            }
            CopyPath::Host(path) => return Ok(io::copy(&mut File::open(path)?, &mut &*to)?),
        };
        let copied = self.opened.with_tree(|view| {
            let file = find(view, path)?;
            Ok(copy_data(view, &file, to).map_err(|error| match error {
                CopyData::Read(source) => CopyOut::Said(InspectError::at(path, source).into()),
                CopyData::Write(error) if is_too_large(&error) => {
                    CopyOut::TooLarge(file.attr().size)
                }
                CopyData::Write(error) => CopyOut::Write(error),
            }))
        });
        copied.map_err(|error| CopyOut::Said(error.into()))?
    }

    /// Truncates an existing host file; refuses the source of the copy, and files of the session.
    fn empty(&self, target: &File, path: &Path, source: &CopyPath) -> Result<(), CliError> {
        let meta = target.metadata().map_err(|error| failed(path, &error))?;
        if !meta.is_file() {
            return Ok(());
        }
        let number = Some((meta.dev(), meta.ino()));
        if self.host_file(source)? == number {
            let what = format!("{source} and {} are the same file", path.display());
            let hint = "`acetate apply` writes what was changed to the base";
            return Err(CliError::new(what).with_hint(hint));
        }
        let of_session = |file: &PathBuf| {
            fs::metadata(file).is_ok_and(|meta| Some((meta.dev(), meta.ino())) == number)
        };
        if self.opened.session().files().iter().any(of_session) {
            return Err(CliError::new(format!("{}: is a file of the session", path.display())));
        }
        target.set_len(0).map_err(|error| failed(path, &error))
    }

    /// Creates a symbolic link, replacing an existing link.
    pub(super) fn place_link(
        &mut self,
        at: &CopyPath,
        target: &[u8],
        meta: &AttrChanges,
    ) -> Result<(), CliError> {
        match at {
            CopyPath::Tree(path) => {
                let (target, meta) = (target.into(), AttrChanges { mode: None, ..*meta });
                let kind = ItemKind::Link { target };
                self.put(MakeItem { path: path.into(), kind, meta }, &[])
            }
            CopyPath::Host(path) => {
                if fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink()) {
                    fs::remove_file(path).map_err(|error| failed(path, &error))?;
                }
                let made = std::os::unix::fs::symlink(OsStr::from_bytes(target), path);
                made.map_err(|error| failed(path, &error))?;
                self.count(1, 0);
                Ok(())
            }
        }
    }

    /// Sets the attributes of a directory.
    pub(super) fn place_meta(&mut self, at: &CopyPath, meta: &AttrChanges) -> Result<(), CliError> {
        match at {
            CopyPath::Tree(path) => {
                let (path, kind, meta) = (path.into(), ItemKind::Any, *meta);
                self.put(MakeItem { path, kind, meta }, &[])
            }
            CopyPath::Host(path) => {
                let open = File::open(path).map_err(|error| failed(path, &error))?;
                set_meta(&open, path, meta)
            }
        }
    }
}

/// Why content was not copied to a host file.
enum CopyOut {
    /// The filesystem does not support a file of this size in bytes.
    TooLarge(u64),
    /// The host file cannot be written.
    Write(io::Error),
    /// Any other error.
    Said(CliError),
}

impl CopyOut {
    fn at(self, path: &Path) -> CliError {
        match self {
            Self::TooLarge(_) => failed(path, &io::ErrorKind::FileTooLarge.into()),
            Self::Write(error) => failed(path, &error),
            Self::Said(error) => error,
        }
    }
}

impl From<io::Error> for CopyOut {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

fn write_all(mut file: &File, content: &[u8]) -> Result<u64, CopyOut> {
    match file.write_all(content) {
        Err(error) if is_too_large(&error) => Err(CopyOut::TooLarge(content.len() as u64)),
        written => Ok(written.map(|()| content.len() as u64)?),
    }
}

/// The side that failed.
enum CopyData {
    Read(FsError),
    Write(io::Error),
}

/// Copies the data of a file and sets the size of the copy; returns the size.
fn copy_data(view: &TreeView<'_>, file: &TreeObject, to: &File) -> Result<u64, CopyData> {
    if file.attr().kind != FileKind::Regular {
        return Err(CopyData::Read(FsError::Invalid));
    }
    let size = file.attr().size;
    to.set_len(size).map_err(CopyData::Write)?;
    let mut reader = view.data_reader(file);
    while let Some(piece) = reader.next_piece().map_err(CopyData::Read)? {
        to.write_all_at(piece.bytes, piece.offset).map_err(CopyData::Write)?;
    }
    Ok(size)
}

/// Whether the filesystem does not support a file of the requested size (ftruncate(2)).
fn is_too_large(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput)
}

/// The setuid and setgid bits. A copy belongs to the user who copies: with these bits, a client's
/// file would become a program that runs as that user.
const SET_ID: u32 = 0o6000;

/// Opens a file for writing, without truncation; returns whether it was created.
fn open(path: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    // A symbolic link at the path would redirect the content.
    options.write(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Ok((options.open(path)?, false))
        }
        made => Ok((made?, true)),
    }
}

fn set_meta(file: &File, path: &Path, meta: &AttrChanges) -> Result<(), CliError> {
    let at = |error| failed(path, &error);
    if let Some(mode) = meta.mode {
        file.set_permissions(Permissions::from_mode(mode & !SET_ID)).map_err(at)?;
    }
    if let Some((secs, nanos)) = meta.mtime {
        let since = Duration::new(secs.unsigned_abs(), 0);
        let whole = match secs < 0 {
            true => SystemTime::UNIX_EPOCH.checked_sub(since),
            false => SystemTime::UNIX_EPOCH.checked_add(since),
        };
        if let Some(time) = whole.and_then(|t| t.checked_add(Duration::from_nanos(nanos.into()))) {
            file.set_modified(time).map_err(at)?;
        }
    }
    Ok(())
}
