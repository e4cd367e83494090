//! Reads the sources of copies.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::super::error::CliError;
use super::{CopyObject, CopyPath, Copying};
use crate::control::{AttrChanges, Reading};
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::opened::{OpenSession, find};
use crate::overlay::TreeObject;
use crate::vfs::{FileKind, FsError, Name};

/// Bytes of a file of the tree that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

impl Copying<'_> {
    /// The object at a path.
    pub(super) fn object(&self, place: &CopyPath) -> Result<CopyObject, CliError> {
        match place {
            CopyPath::Tree(path) => self
                .opened
                .with_tree(|view| find(view, path))
                .map_or_else(|error| Err(error.into()), |object| Ok(in_tree(&object))),
            CopyPath::Host(path) => {
                let meta = fs::symlink_metadata(path).map_err(|error| failed(path, &error))?;
                Ok(on_host(path, &meta))
            }
        }
    }

    /// Whether a path is an existing directory.
    pub(super) fn is_dir(&self, place: &CopyPath) -> Result<bool, CliError> {
        match place {
            CopyPath::Tree(path) => {
                let found = self.opened.with_tree(|view| {
                    let found = view.find(path);
                    found.map_err(|source| InspectError::at(path, source))
                })?;
                Ok(found.is_some_and(|found| found.attr().kind == FileKind::Directory))
            }
            CopyPath::Host(path) => Ok(path.is_dir()),
        }
    }

    /// The entries of a directory.
    pub(super) fn children(&self, dir: &CopyPath) -> Result<Vec<(Name, CopyObject)>, CliError> {
        match dir {
            CopyPath::Tree(path) => Ok(self.opened.with_tree(|view| {
                let dir = find(view, path)?;
                let children =
                    view.children(&dir).map_err(|source| InspectError::at(path, source))?;
                Ok(children.iter().map(|(name, child)| (name.clone(), in_tree(child))).collect())
            })?),
            CopyPath::Host(path) => {
                let at = |error| failed(path, &error);
                let mut children = Vec::new();
                for entry in fs::read_dir(path).map_err(at)? {
                    let entry = entry.map_err(at)?;
                    let meta = entry.metadata().map_err(|error| failed(&entry.path(), &error))?;
                    let name = Name::new(entry.file_name().as_encoded_bytes());
                    let name = name.map_err(|_| at(io::ErrorKind::InvalidFilename.into()))?;
                    children.push((name, on_host(&entry.path(), &meta)));
                }
                Ok(children)
            }
        }
    }

    /// The target of a symbolic link.
    pub(super) fn target(&self, link: &CopyPath) -> Result<Vec<u8>, CliError> {
        match link {
            CopyPath::Tree(path) => Ok(self.opened.with_tree(|view| {
                let link = find(view, path)?;
                let target = view.target(&link).map_err(|source| InspectError::at(path, source))?;
                Ok(target.to_vec())
            })?),
            CopyPath::Host(path) => {
                let target = fs::read_link(path).map_err(|error| failed(path, &error))?;
                Ok(target.into_os_string().into_vec())
            }
        }
    }

    /// Device and inode number of the host file that holds the content, or pending chunks of it;
    /// `None` if the session holds all of the content.
    pub(super) fn host_file(&self, file: &CopyPath) -> Result<Option<(u64, u64)>, CliError> {
        match file {
            CopyPath::Tree(path) => {
                let found = self.opened.with_tree(|view| find(view, path))?;
                let is_pending = found.row().is_some_and(|row| row.copy_up.is_some());
                let origin = found.origin().filter(|_| is_pending).map(|origin| &origin.path);
                // A missing file cannot be overwritten.
                let stat = |path| self.opened.base().stat(path).ok();
                let attr = found.base_path().or(origin).and_then(stat);
                Ok(attr.map(|attr| (attr.dev, attr.ino)))
            }
            CopyPath::Host(path) => {
                let meta = fs::metadata(path).map_err(|error| failed(path, &error))?;
                Ok(Some((meta.dev(), meta.ino())))
            }
        }
    }

    /// The content of a file.
    pub(super) fn content<'a>(
        opened: &'a OpenSession,
        file: &CopyPath,
    ) -> Result<Reading<'a>, CliError>
    where
        OpenSession: Sync,
    {
        match file {
            CopyPath::Tree(path) => Ok(Reading::stream(InTree::new(opened, path))),
            CopyPath::Host(path) => {
                let open = File::open(path).and_then(Reading::file);
                open.map_err(|error| failed(path, &error))
            }
        }
    }
}

fn in_tree(object: &TreeObject) -> CopyObject {
    let attr = object.attr();
    CopyObject {
        place: CopyPath::Tree(object.path().clone()),
        kind: attr.kind,
        size: attr.size,
        meta: AttrChanges {
            mode: Some(attr.mode),
            mtime: Some((attr.mtime.secs, attr.mtime.nanos)),
            ..AttrChanges::default()
        },
    }
}

fn on_host(path: &Path, meta: &Metadata) -> CopyObject {
    let kind = meta.file_type();
    let kind = match () {
        () if kind.is_dir() => FileKind::Directory,
        () if kind.is_symlink() => FileKind::Symlink,
        () if kind.is_fifo() => FileKind::Fifo,
        () if kind.is_socket() => FileKind::Socket,
        () if kind.is_char_device() => FileKind::Character,
        () if kind.is_block_device() => FileKind::Block,
        () => FileKind::Regular,
    };
    let nanos = u32::try_from(meta.mtime_nsec()).unwrap_or(0);
    CopyObject {
        place: CopyPath::Host(path.to_owned()),
        kind,
        size: meta.len(),
        meta: AttrChanges {
            mode: Some(meta.mode() & 0o7777),
            mtime: Some((meta.mtime(), nanos)),
            ..AttrChanges::default()
        },
    }
}

/// Reads a file of the tree; holes are read as zeros.
pub(super) struct InTree<'a> {
    opened: &'a OpenSession,
    path: MergedPath,
    offset: u64,
}

impl<'a> InTree<'a> {
    pub(super) fn new(opened: &'a OpenSession, path: &MergedPath) -> Self {
        Self { opened, path: path.clone(), offset: 0 }
    }
}

impl Read for InTree<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(PIECE_BYTES);
        let got = self.opened.with_tree(|view| {
            let file = find(view, &self.path)?;
            let got = match file.attr().kind {
                FileKind::Regular => view.read(&file, self.offset, &mut buffer[..length]),
                _ => Err(FsError::Invalid),
            };
            got.map_err(|source| InspectError::at(&self.path, source))
        });
        let got = got.map_err(io::Error::other)?;
        self.offset += got as u64;
        Ok(got)
    }
}

pub(super) fn failed(path: &Path, error: &io::Error) -> CliError {
    CliError::caused(path.display(), error).about_path()
}
