//! Files and symbolic links as git stores them: the content, and whether a file is executable.

use super::super::diff::{base_error, base_target, read_base};
use super::super::error::{InspectError, Result};
use super::super::opened::OpenSession;
use super::limits::{MAX_TEXT_BYTES, PIECE_BYTES, PROBE_BYTES};
use crate::base::{BaseError, BasePath};
use crate::delta::MergedPath;
use crate::overlay::{BlobDigest, TreeObject, TreeView};
use crate::vfs::FileKind;

/// A file or symbolic link. Its content is read on demand.
pub struct Blob<'a> {
    mode: &'static str,
    size: u64,
    content: BlobContent<'a>,
}

enum BlobContent<'a> {
    Bytes(Vec<u8>),
    /// Fills a buffer from a byte offset; returns the number of bytes read.
    Read(Box<ReadAt<'a>>),
}

type ReadAt<'a> = dyn Fn(u64, &mut [u8]) -> Result<usize> + 'a;

impl<'a> Blob<'a> {
    /// A file of `size` bytes with these permission bits; `read` fills a buffer from an offset.
    pub fn file(
        (size, bits): (u64, u32),
        read: impl Fn(u64, &mut [u8]) -> Result<usize> + 'a,
    ) -> Self {
        let mode = if bits & 0o100 != 0 { "100755" } else { "100644" };
        Self { mode, size, content: BlobContent::Read(Box::new(read)) }
    }

    /// A file with this content and these permission bits.
    pub fn loaded(content: Vec<u8>, bits: u32) -> Self {
        let size = content.len() as u64;
        let empty = Self::file((size, bits), |_, _| Ok(0));
        Self { content: BlobContent::Bytes(content), ..empty }
    }

    /// A symbolic link.
    pub fn link(target: Vec<u8>) -> Self {
        Self { mode: "120000", size: target.len() as u64, content: BlobContent::Bytes(target) }
    }

    /// The same without content.
    pub fn without_content(&self) -> Self {
        Self { mode: self.mode, size: 0, content: BlobContent::Bytes(Vec::new()) }
    }

    /// The mode that git stores, in octal digits.
    pub fn mode(&self) -> &'static str {
        self.mode
    }

    /// The size of the content in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the blob is a symbolic link.
    pub fn is_link(&self) -> bool {
        self.mode == "120000"
    }

    /// Reads the content into memory, if it has at most 16 MiB.
    pub fn load(&mut self) -> Result<()> {
        if let BlobContent::Read(read) = &self.content
            && self.size <= MAX_TEXT_BYTES
        {
            let mut bytes = vec![0; usize::try_from(self.size).unwrap_or(usize::MAX)];
            let mut at = 0;
            while at < bytes.len() {
                match read(at as u64, &mut bytes[at..])? {
                    0 => break,
                    got => at += got,
                }
            }
            bytes.truncate(at);
            self.size = at as u64;
            self.content = BlobContent::Bytes(bytes);
        }
        Ok(())
    }

    /// The content, if it is in memory.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.content {
            BlobContent::Bytes(bytes) => Some(bytes),
            BlobContent::Read(_) => None,
        }
    }

    /// Calls `each` for the content, piece by piece. A file that was truncated is padded with
    /// zeros, because its size may be written already.
    pub fn pieces<E: From<InspectError>>(
        &self,
        each: &mut dyn FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let read = match &self.content {
            BlobContent::Bytes(bytes) => return each(bytes),
            BlobContent::Read(read) => read,
        };
        let (mut buffer, mut at) = (vec![0; PIECE_BYTES], 0);
        while at < self.size {
            let left = usize::try_from(self.size - at).unwrap_or(usize::MAX);
            let piece = &mut buffer[..left.min(PIECE_BYTES)];
            let mut got = read(at, piece)?;
            if got == 0 {
                piece.fill(0);
                got = piece.len();
            }
            each(&piece[..got])?;
            at += got as u64;
        }
        Ok(())
    }

    /// Whether git treats the content as binary: it has a NUL near the start, or is too large.
    pub fn is_binary(&self) -> bool {
        self.bytes().is_none_or(has_nul)
    }

    /// The id of the content as a git blob.
    pub fn digest(&self) -> Result<String> {
        let mut hash = BlobDigest::new(self.size);
        self.pieces::<InspectError>(&mut |piece| {
            hash.update(piece);
            Ok(())
        })?;
        Ok(hash.finish().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Whether git treats content as binary: it has a NUL in its first 8000 bytes.
pub fn has_nul(content: &[u8]) -> bool {
    content[..content.len().min(PROBE_BYTES)].contains(&0)
}

/// Whether git stores content for objects of this kind.
pub(in crate::inspect) fn has_blob(kind: FileKind) -> bool {
    matches!(kind, FileKind::Regular | FileKind::Symlink)
}

/// The base object at a path as a blob; `None` if it is free or neither a file nor a link.
pub(super) fn base_blob<'a>(
    opened: &'a OpenSession,
    path: &MergedPath,
) -> Result<Option<Blob<'a>>> {
    let Some(base) = BasePath::from_bytes(&path.as_bytes()[1..]) else { return Ok(None) };
    let attr = match opened.base().stat(&base) {
        Ok(attr) => attr,
        Err(BaseError::NotFound) => return Ok(None),
        Err(source) => return Err(base_error(opened, &base, source)),
    };
    match attr.kind {
        FileKind::Symlink => Ok(Some(Blob::link(base_target(opened, &base)?))),
        FileKind::Regular => Ok(Some(Blob::file((attr.size, attr.mode), move |offset, buffer| {
            read_base(opened, &base, &attr, offset, buffer)
        }))),
        _ => Ok(None),
    }
}

/// An object of the merged tree as a blob.
pub(in crate::inspect) fn blob<'a>(
    view: &'a TreeView<'_>,
    object: &'a TreeObject,
) -> Result<Blob<'a>> {
    let (path, attr) = (object.path(), object.attr());
    let failed = |source| InspectError::Path { path: path.clone(), source };
    if attr.kind == FileKind::Symlink {
        return Ok(Blob::link(view.target(object).map_err(failed)?.to_vec()));
    }
    Ok(Blob::file((attr.size, attr.mode), move |offset, buffer| {
        view.read(object, offset, buffer)
            .map_err(|source| InspectError::Path { path: path.clone(), source })
    }))
}
