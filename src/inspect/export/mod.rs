//! The merged tree, or what the session makes different in it, as an archive or a directory.
//!
//! `walk` decides what is written; an [`ExportSink`] writes it: [`Tar`] or [`OutputDir`]. What is
//! different is a layer of an OCI image (image-spec, layer.md): laid over the base, it makes the
//! merged tree.

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
use super::opened::Opened;
use super::selection::Selection;
use crate::delta::MergedPath;
use crate::overlay::{TreeObject, TreeView};
use crate::vfs::FileKind;

/// How much of a file is in memory at a time, in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// Begins the name of what stands for a name that is gone, in a layer.
const WHITEOUT: &[u8] = b".wh.";

/// Stands, in a layer, for everything that the base has in the same directory.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// What to export.
#[derive(Debug, Clone)]
pub struct CopyOutOptions {
    /// Where it begins; a directory stands for what is in it.
    pub path: MergedPath,
    /// Only what is chosen of that, and the directories that lead there.
    pub selection: Selection,
    /// Only what differs from the base, as a layer over it.
    pub delta_only: bool,
}

/// What was exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exported {
    /// Directories.
    pub directories: u64,
    /// Regular files.
    pub files: u64,
    /// Symbolic links, named pipes, sockets and devices.
    pub others: u64,
    /// Further names of files.
    pub links: u64,
    /// Names that are gone, and directories whose base does not show.
    pub whiteouts: u64,
    /// Bytes of the files' sizes.
    pub bytes: u64,
    /// What could not be exported.
    pub left_out: u64,
}

impl Exported {
    /// All that was written.
    pub fn objects(&self) -> u64 {
        self.directories + self.files + self.others + self.links + self.whiteouts
    }
}

/// What hears of the export while it goes on.
pub trait ExportWatch {
    /// So much is written, every now and then.
    fn progress(&self, objects: u64, bytes: u64);

    /// Something is left out, and why.
    fn left_out(&self, path: &MergedPath, why: &str);
}

/// An object on its way.
pub struct ExportItem<'a> {
    view: &'a TreeView<'a>,
    object: &'a TreeObject,
    /// Where it goes, relative to where the export begins: empty for that itself.
    path: &'a [u8],
    flow: &'a Flow<'a>,
}

/// How much went through, for whoever watches.
struct Flow<'a> {
    watch: &'a dyn ExportWatch,
    /// Whether what is written is a layer.
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

/// Whether an object was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemOutcome {
    /// It was.
    Written,
    /// It was not, for this reason, and the rest can be.
    LeftOut(String),
}

/// What objects are written to. A directory comes before what is in it.
pub trait ExportSink {
    /// Writes a directory: what follows is in it until [`ExportSink::leave`].
    ///
    /// # Errors
    /// It cannot be written; so with all methods here.
    fn enter(&mut self, dir: &ExportItem<'_>) -> Result<()>;

    /// Goes back to the directory above.
    fn leave(&mut self) -> Result<()>;

    /// Writes anything but a directory.
    fn put(&mut self, item: &ExportItem<'_>) -> Result<ItemOutcome>;

    /// Writes one more name of what was put at the path `first`.
    fn link(&mut self, item: &ExportItem<'_>, first: &[u8]) -> Result<()>;

    /// Writes an empty file that stands for something that is gone.
    fn whiteout(&mut self, path: &[u8]) -> Result<()>;
}

/// Writes what was asked for to `sink`; `done` says what is written, after a failure too.
///
/// # Errors
/// Something cannot be read or written, or a name cannot be in a layer.
pub fn export(
    opened: &Opened,
    options: &CopyOutOptions,
    sink: &mut dyn ExportSink,
    watch: &dyn ExportWatch,
    done: &mut Exported,
) -> Result<()> {
    opened.look(|view| walk::export(view, options, sink, watch, done))
}

/// Refuses to write into the base or over the session's files.
///
/// # Errors
/// `path` is one of them, or below the base.
pub fn check_place(opened: &Opened, path: &Path) -> Result<()> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new(".")).canonicalize();
    let above = above.map_err(|source| write_error(path, source))?;
    let whole = path.file_name().map_or_else(|| above.clone(), |name| above.join(name));
    // A link may lead elsewhere than its name says.
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

    /// The name in the directory that it goes to.
    fn name(&self) -> &[u8] {
        last_name(self.path)
    }

    /// Why the file's content cannot be had, if that shows at its beginning or end.
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
