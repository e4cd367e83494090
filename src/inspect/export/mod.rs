//! Exports the merged tree, or the session's differences, as an archive or a directory.
//!
//! `walk` decides what is written; an [`ExportSink`] writes it: [`Tar`] or [`OutputDir`]. The
//! differences are a layer of an OCI image (image-spec, layer.md): the layer over the base gives
//! the merged tree.

mod dir;
mod sparse;
mod tar;
mod walk;

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

pub use dir::{Keep, OutputDir};
pub use tar::Tar;

use super::error::{InspectError, Result};
use super::opened::OpenSession;
use super::selection::Selection;
use crate::delta::MergedPath;
use crate::overlay::{TreeObject, TreeView};
use crate::vfs::FileKind;

/// Bytes of a file that are in memory at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The prefix of a whiteout's name in a layer.
const WHITEOUT: &[u8] = b".wh.";

/// The name in a layer that hides everything that the base has in the same directory.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Options of [`export`].
#[derive(Debug, Clone)]
pub struct CopyOutOptions {
    /// Where the export starts. Of a directory, its entries are exported.
    pub path: MergedPath,
    /// Only selected objects, and the directories that lead to them.
    pub selection: Selection,
    /// Only differences from the base, as a layer over it.
    pub delta_only: bool,
}

/// The counts of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exported {
    /// Directories.
    pub directories: u64,
    /// Regular files.
    pub files: u64,
    /// Symbolic links, named pipes, sockets and devices.
    pub others: u64,
    /// Hard links to a file that was already written.
    pub links: u64,
    /// Whiteouts, and marks of opaque directories.
    pub whiteouts: u64,
    /// The sum of the files' sizes.
    pub bytes: u64,
    /// Objects that could not be exported.
    pub left_out: u64,
}

impl Exported {
    /// The number of objects written.
    pub fn objects(&self) -> u64 {
        self.directories + self.files + self.others + self.links + self.whiteouts
    }
}

/// Callbacks of an export.
pub trait ExportWatch {
    /// Called at intervals with what is written so far.
    fn progress(&self, objects: u64, bytes: u64);

    /// Called for each object that is left out.
    fn left_out(&self, path: &MergedPath, why: &str);
}

/// An object that is being exported.
pub struct ExportItem<'a> {
    view: &'a TreeView<'a>,
    object: &'a TreeObject,
    /// The destination, relative to the start of the export; empty for the start itself.
    path: &'a [u8],
    flow: &'a Flow<'a>,
}

/// Counts for [`ExportWatch`].
struct Flow<'a> {
    watch: &'a dyn ExportWatch,
    /// Whether the output is a layer.
    is_layer: bool,
    objects: Cell<u64>,
    bytes: Cell<u64>,
}

impl Flow<'_> {
    fn add(&self, objects: u64, bytes: u64) {
        self.objects.set(self.objects.get() + objects);
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        self.watch.progress(self.objects.get(), self.bytes.get());
    }
}

/// Whether a sink wrote an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemOutcome {
    /// The object was written.
    Written,
    /// The object was left out for this reason; the export continues.
    LeftOut(String),
}

/// The destination of an export. A directory comes before its entries.
pub trait ExportSink {
    /// Writes a directory; the following objects are its entries until [`ExportSink::leave`].
    ///
    /// # Errors
    /// The object cannot be written. The same holds for all methods of this trait.
    fn enter(&mut self, dir: &ExportItem<'_>) -> Result<()>;

    /// Ends the current directory.
    fn leave(&mut self) -> Result<()>;

    /// Writes an object that is not a directory.
    fn put(&mut self, item: &ExportItem<'_>) -> Result<ItemOutcome>;

    /// Writes another hard link of the file at the path `first`.
    fn link(&mut self, item: &ExportItem<'_>, first: &[u8]) -> Result<()>;

    /// Writes an empty file as a whiteout.
    fn whiteout(&mut self, path: &[u8]) -> Result<()>;
}

/// Exports to `sink`. `done` has the counts, also after an error.
///
/// # Errors
/// An object cannot be read or written, or a layer cannot represent a name.
pub fn export(
    opened: &OpenSession,
    options: &CopyOutOptions,
    sink: &mut dyn ExportSink,
    watch: &dyn ExportWatch,
    done: &mut Exported,
) -> Result<()> {
    opened.with_tree(|view| walk::export(view, options, sink, watch, done))
}

/// Refuses an output path in the base or at a file of the session.
///
/// # Errors
/// `path` is a file of the session, or is in the base.
pub fn check_place(opened: &OpenSession, path: &Path) -> Result<()> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new(".")).canonicalize();
    let above = above.map_err(|source| write_error(path, source))?;
    let whole = path.file_name().map_or_else(|| above.clone(), |name| above.join(name));
    // The last component may be a symbolic link.
    let real = whole.canonicalize().unwrap_or(whole);
    let base = opened.base_path().and_then(|base| base.canonicalize().ok());
    if base.is_some_and(|base| real.starts_with(base)) {
        let what = format!("{}: is in the base, which is never written to", path.display());
        return Err(InspectError::Invalid { what });
    }
    if opened.session().files().contains(&real) {
        let what = format!("{}: is a file of the session", path.display());
        return Err(InspectError::Invalid { what });
    }
    Ok(())
}

impl ExportItem<'_> {
    fn kind(&self) -> FileKind {
        self.object.attr().kind
    }

    /// The last component of the destination.
    fn name(&self) -> &[u8] {
        last_name(self.path)
    }

    /// The reason why the content cannot be read, if its first or last byte shows it.
    fn unreadable(&self) -> Option<String> {
        let size = self.object.attr().size;
        let ends = [0, size.saturating_sub(1)];
        let failed = ends
            .iter()
            .filter(|_| size > 0)
            .find_map(|at| self.view.read(self.object, *at, &mut [0]).err());
        failed.map(|error| error.to_string())
    }

    /// Fills `buffer` with the file's content from byte `offset`.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let failed = |source| InspectError::Path { path: self.object.path().clone(), source };
        let got = self.view.read(self.object, offset, buffer).map_err(failed)?;
        if got < buffer.len() {
            let what = format!("{}: changed while it was read", self.object.path().display());
            return Err(InspectError::Invalid { what });
        }
        self.flow.add(0, got as u64);
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
        let failed = |source| InspectError::Path { path: self.object.path().clone(), source };
        self.view.next_data(self.object, offset).map_err(failed)
    }

    fn target(&self) -> Result<bytes::Bytes> {
        let failed = |source| InspectError::Path { path: self.object.path().clone(), source };
        self.view.target(self.object).map_err(failed)
    }
}

/// The last component of a path.
fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

fn write_error(path: impl Into<PathBuf>, source: impl Into<io::Error>) -> InspectError {
    InspectError::Write { path: path.into(), source: source.into() }
}
