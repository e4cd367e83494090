//! A session and its base, opened in the calling program: the entry point of the library.
//!
//! A [`Workspace`] locks its session, as a server does. It reads and changes the merged tree by
//! path, and can serve the tree to NFS clients at the same time. All changes are recorded in the
//! audit log, and the base is never written.
//! ```
//! use acetate::workspace::Workspace;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let base = dir.path().join("base");
//! std::fs::create_dir(&base)?;
//! std::fs::write(base.join("notes.txt"), "from the base\n")?;
//!
//! let mut work = Workspace::create(&dir.path().join("work.db"), Some(&base))?;
//! work.write("notes.txt", "changed\n".as_bytes())?;
//! work.make_dir("docs")?;
//! assert_eq!(work.read("notes.txt")?, b"changed\n");
//! assert_eq!(work.list("/")?, ["docs", "notes.txt"]);
//!
//! // The base is what it was; the difference is in the session.
//! assert_eq!(std::fs::read(base.join("notes.txt"))?, b"from the base\n");
//! let changed: Vec<_> = work.diff()?.iter().map(|d| d.path.display().to_string()).collect();
//! assert_eq!(changed, ["/docs", "/notes.txt"]);
//!
//! work.discard(&["notes.txt"])?;
//! assert_eq!(work.read("notes.txt")?, b"from the base\n");
//! work.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! The agent's keys and tool calls are in the same file and need no workspace: see
//! [`Workspace::keys`] and [`Workspace::tool_calls`]. Tools that only read, also while another
//! process serves the session, are in [`crate::inspect`].

mod error;
mod leased_program;
mod log_bound;
mod memory;
mod moved_base;
mod nodes;
mod opening;
mod quotas;
mod serving;
mod session_file;
mod standby;

#[cfg(feature = "internals")]
pub mod accounts;
#[cfg(not(feature = "internals"))]
pub(crate) mod accounts;
#[cfg(feature = "internals")]
pub mod at_rest;
#[cfg(not(feature = "internals"))]
pub(crate) mod at_rest;
#[cfg(feature = "internals")]
pub mod checkpoints;
#[cfg(not(feature = "internals"))]
pub(crate) mod checkpoints;
#[cfg(feature = "internals")]
pub mod database;
#[cfg(not(feature = "internals"))]
pub(crate) mod database;
#[cfg(feature = "internals")]
pub mod exports;
#[cfg(not(feature = "internals"))]
pub(crate) mod exports;
#[cfg(feature = "internals")]
pub mod figures;
#[cfg(not(feature = "internals"))]
pub(crate) mod figures;
#[cfg(feature = "internals")]
pub mod guards;
#[cfg(not(feature = "internals"))]
pub(crate) mod guards;
#[cfg(feature = "internals")]
pub mod layers;
#[cfg(not(feature = "internals"))]
pub(crate) mod layers;
#[cfg(feature = "internals")]
pub mod old_replicas;
#[cfg(not(feature = "internals"))]
pub(crate) mod old_replicas;
#[cfg(feature = "internals")]
pub mod replicas;
#[cfg(not(feature = "internals"))]
pub(crate) mod replicas;
#[cfg(feature = "internals")]
pub mod running;
#[cfg(not(feature = "internals"))]
pub(crate) mod running;
#[cfg(feature = "internals")]
pub mod transfer;
#[cfg(not(feature = "internals"))]
pub(crate) mod transfer;
#[cfg(feature = "internals")]
pub mod tree_guards;
#[cfg(not(feature = "internals"))]
pub(crate) mod tree_guards;

use std::ffi::OsString;
use std::io::Read;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use tokio::runtime::{self, Runtime};

use crate::control::{Answer, Nothing, PathText, Reading, Request, perform};
use crate::delta::MergedPath;
use crate::delta::sqlite::AgentAccess;
use crate::inspect::InspectError;
use crate::inspect::diff::{DiffOptions, Difference, diff};
use crate::inspect::kv::KeyValues;
use crate::inspect::opened::{OpenSession, find, merged_path};
use crate::inspect::tool::ToolCalls;
use crate::pattern::PatternSet;
use crate::vfs::Caller;

pub use crate::base::BaseError;
pub use crate::context::{
    AccountName, ContextError, ContextNode, Event, EventFailure, EventStamp, EventType, FileError,
    Files, ListedNode, NodeDirEntry, NodeFault, NodeMeta, NodePut, NodeStatus, Nodes, NodesReport,
    PutOutcome, Reads, Relation, Relations, RepairFinding, Uri, UriError, UriPrefix, WaitingEvent,
};
pub use crate::control::{AttrChanges, Refusal, RefusalAdvice, WriteHow};
pub use crate::delta::sqlite::OpenError;
pub use crate::delta::{Limits, StoreError, StoreErrorKind, Usage};
pub use crate::export::AssemblyError;
pub use crate::inspect::quota::QuotaReport;
pub use crate::pattern::PatternError;
pub use crate::server::{BindError, ServerOptions};
pub use crate::validation::{NoValidatorCommand, SchemaError};
pub use crate::vfs::{Attr, FileKind, FsError, Time};
pub use crate::worker::WorkError;
pub use error::{Error, Result};
pub use guards::GuardError;
pub use nodes::SnapshotReader;
pub use serving::Serving;

use layers::{LayerOptions, SessionLayers};

/// Largest file that [`Workspace::read`] reads into memory, in bytes.
const MAX_READ_BYTES: u64 = 4 << 30;

/// A session, locked by this process, with its base.
///
/// A drop without [`Workspace::close`] has the effect of a killed server: changes before the last
/// [`Workspace::sync`] are safe.
pub struct Workspace {
    opened: OpenSession,
    layers: SessionLayers,
    runtime: Runtime,
    caller: Caller,
}

impl Workspace {
    /// Creates a session over `base`, or without one.
    ///
    /// # Errors
    /// The file exists, or the base cannot be used.
    pub fn create(session: &Path, base: Option<&Path>) -> Result<Self> {
        layers::close(&layers::create(session, base, None, &PatternSet::default())?)?;
        Self::open(session, None)
    }

    /// Opens a session over `base`, or over the base that the session records.
    ///
    /// # Errors
    /// The file is not a session, another process has it open ([`Error::Open`]), or the base cannot
    /// be used.
    pub fn open(session: &Path, base: Option<&Path>) -> Result<Self> {
        // Fails if the file is not a session, instead of creating one.
        drop(crate::inspect::opened::open_session(session)?);
        let wanted = LayerOptions::new(session, base);
        let runtime = runtime::Builder::new_multi_thread()
            .enable_all()
            .worker_threads(layers::network_threads())
            .thread_name("acetate-net")
            .build()
            .map_err(Error::Threads)?;
        let layers = layers::open(&wanted, &layers::pool(runtime.handle()))?;
        let opened = OpenSession::open(&layers.session, layers.base.as_deref());
        let opened = opened.inspect_err(|_| {
            // The error of the opening is the one to report.
            let _ = runtime.block_on(layers.worker.shut_down());
        })?;
        Ok(Self { opened, layers, runtime, caller: this_user() })
    }

    /// Reads a file of at most 4 GiB.
    ///
    /// # Errors
    /// The file does not exist, cannot be read, or is larger.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = tree_path(path.as_ref())?;
        Ok(self.opened.with_tree(|view| {
            let file = find(view, &path)?;
            if file.attr().size > MAX_READ_BYTES {
                return Err(InspectError::at(&path, FsError::TooLarge));
            }
            let mut content = vec![0; usize::try_from(file.attr().size).unwrap_or(usize::MAX)];
            let got = view.read(&file, 0, &mut content);
            content.truncate(got.map_err(|source| InspectError::at(&path, source))?);
            Ok(content)
        })?)
    }

    /// The names in a directory, ordered by their bytes.
    ///
    /// # Errors
    /// The path is not a directory, or cannot be read.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let path = tree_path(path.as_ref())?;
        Ok(self.opened.with_tree(|view| {
            let dir = find(view, &path)?;
            let children = view.children(&dir);
            let children = children.map_err(|source| InspectError::at(&path, source))?;
            let name = |name: &crate::vfs::Name| OsString::from_vec(name.as_bytes().to_vec());
            Ok(children.iter().map(|(child, _)| name(child)).collect())
        })?)
    }

    /// The attributes of an object, as clients see them; `None` if it does not exist.
    ///
    /// # Errors
    /// The tree cannot be read.
    pub fn stat(&self, path: impl AsRef<Path>) -> Result<Option<Attr>> {
        let path = tree_path(path.as_ref())?;
        Ok(self.opened.with_tree(|view| {
            let found = view.find(&path).map_err(|source| InspectError::at(&path, source))?;
            Ok(found.map(|found| found.attr().clone()))
        })?)
    }

    /// Creates a file or replaces its content; returns the number of bytes.
    ///
    /// # Errors
    /// The path is not a regular file, `content` cannot be read, or the session is full. The old
    /// content then stays, except for a hard-linked file of more than 8 MiB.
    pub fn write(&mut self, path: impl AsRef<Path>, content: impl Read + Send) -> Result<u64> {
        let path = (&tree_path(path.as_ref())?).into();
        let request = Request::Write { path, how: WriteHow::Replace, meta: AttrChanges::default() };
        match self.perform_with(request, Reading::stream(content))? {
            Answer::Bytes(bytes) => Ok(bytes),
            _ => Ok(0),
        }
    }

    /// Creates a directory with its ancestors; it may exist already.
    ///
    /// # Errors
    /// The path, or an ancestor, is not a directory.
    pub fn make_dir(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = (&tree_path(path.as_ref())?).into();
        let meta = AttrChanges::default();
        self.perform(Request::MakeDir { path, meta, parents: true }).map(drop)
    }

    /// Removes an object; a directory with everything in it.
    ///
    /// # Errors
    /// The path does not exist.
    pub fn remove(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = (&tree_path(path.as_ref())?).into();
        self.perform(Request::Remove { path, recursive: true, by_turns: false }).map(drop)
    }

    /// Renames an object. Replaces an existing file; a directory replaces an empty directory.
    ///
    /// # Errors
    /// The source or the new parent does not exist, or the target cannot be replaced.
    pub fn rename(&mut self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let from = (&tree_path(from.as_ref())?).into();
        let to = (&tree_path(to.as_ref())?).into();
        self.perform(Request::Rename { from, to }).map(drop)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The path is not a directory, or is not empty.
    pub fn remove_dir(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = (&tree_path(path.as_ref())?).into();
        self.perform(Request::RemoveDir { path }).map(drop)
    }

    /// Discards the session's changes at paths, so that the base shows there again.
    ///
    /// # Errors
    /// The session or the base cannot be read, or an apply to the base has not ended; nothing was
    /// changed.
    pub fn discard(&mut self, paths: &[impl AsRef<Path>]) -> Result<()> {
        let path = |path| Ok(PathText::from(&tree_path(path)?));
        let paths = paths.iter().map(|p| path(p.as_ref())).collect::<Result<_>>()?;
        self.perform(Request::Discard { paths }).map(drop)
    }

    /// The differences between the session and the base: see [`crate::inspect::diff`].
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn diff(&self) -> Result<Vec<Difference>> {
        let mut all = Vec::new();
        diff(&self.opened, &DiffOptions::default(), &mut |_, difference| {
            all.push(difference);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(all)
    }

    /// The agent's key-value store in this session.
    ///
    /// ```
    /// # use acetate::workspace::Workspace;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let session = dir.path().join("work.db");
    /// let work = Workspace::create(&session, None)?;
    /// let keys = work.keys()?;
    /// keys.set("plan", r#"{"step": 1}"#, 1_700_000_000)?;
    /// assert_eq!(keys.get(b"plan")?.map(|row| row.value), Some(br#"{"step": 1}"#.to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The session cannot be opened a second time.
    pub fn keys(&self) -> Result<KeyValues> {
        Ok(KeyValues::open(&self.layers.session, AgentAccess::Write)?)
    }

    /// The recorded tool calls of the agent.
    ///
    /// # Errors
    /// The session cannot be opened a second time.
    pub fn tool_calls(&self) -> Result<ToolCalls> {
        Ok(ToolCalls::open(&self.layers.session, AgentAccess::Write)?)
    }

    /// Syncs all changes to disk.
    ///
    /// # Errors
    /// The sync failed.
    pub fn sync(&mut self) -> Result<()> {
        self.perform(Request::Sync).map(drop)
    }

    /// Copies pending content, syncs, and closes the session.
    ///
    /// # Errors
    /// The session was not closed cleanly.
    pub fn close(self) -> Result<()> {
        let Self { opened, layers, runtime, .. } = self;
        drop(opened);
        runtime.block_on(layers.overlay.keep_all_removed());
        let finished = runtime.block_on(layers.overlay.finish_copies(|_| {}));
        if let Err(error) = runtime.block_on(layers.overlay.bound_checkpoints()) {
            tracing::warn!(%error, "what removed checkpoints leave is not freed");
        }
        runtime.block_on(layers.worker.shut_down())?;
        match finished {
            Ok(_) | Err(FsError::ReadOnly) => Ok(()),
            Err(error) => Err(crate::control::Refusal::at(&MergedPath::root(), error).into()),
        }
    }

    /// Performs a request without content.
    pub(crate) fn perform(&mut self, request: Request) -> Result<Answer> {
        let mut content = Nothing;
        let work = perform(&self.layers.overlay, &self.caller, request, &mut content);
        Ok(self.runtime.block_on(work)?)
    }

    /// Performs a request with content.
    pub(crate) fn perform_with(
        &mut self,
        request: Request,
        mut content: Reading<'_>,
    ) -> Result<Answer> {
        let work = perform(&self.layers.overlay, &self.caller, request, &mut content);
        Ok(self.runtime.block_on(work)?)
    }
}

/// The user of this process, as the session's owner.
fn this_user() -> Caller {
    Caller::owner(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

fn tree_path(path: &Path) -> Result<MergedPath> {
    Ok(merged_path(path.as_os_str())?)
}
