//! Opens the session of the `ctx` commands, for one account or for all.

use std::time::{Duration, Instant};

use crate::cli::change::{SessionChanger, with_session_changer};
use crate::cli::error::CliError;
use crate::cli::hints;
use crate::cli::source::SessionSource;
use crate::context::{AccountName, ContextError, FileError, Files, NodeDirEntry, Nodes, Reads};
use crate::control::{AttrChanges, Reading, Request, WriteHow};
use crate::inspect::opened::OpenSession;
use crate::workspace::SnapshotReader;

/// The environment variable with the caller's account, if there is no option.
const ACCOUNT: &str = "ACETATE_ACCOUNT";

/// How long to wait for a node that is being changed.
const CHANGING: Duration = Duration::from_secs(1);

/// The time between two attempts to read the node.
const PAUSE: Duration = Duration::from_millis(20);

/// A session, and who uses it.
#[derive(Debug, clap::Args)]
pub(super) struct NodeSession {
    #[command(flatten)]
    source: SessionSource,

    /// The caller's account: others are refused [default: ACETATE_ACCOUNT].
    ///
    /// Without, the owner of the session acts as whichever account a URI names.
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<AccountName>,
}

type ContextResult<T> = Result<T, ContextError>;

impl NodeSession {
    fn account(&self) -> Result<Option<AccountName>, CliError> {
        if self.account.is_some() {
            return Ok(self.account.clone());
        }
        let Some(text) = std::env::var_os(ACCOUNT) else { return Ok(None) };
        let account = text.to_string_lossy().parse();
        let named = |error| CliError::new(format_args!("{ACCOUNT}: {error}"));
        account.map(Some).map_err(|error: crate::context::UriError| named(error))
    }

    /// Opens the session for reading.
    pub(super) fn look(&self) -> Result<NodeReader, CliError> {
        Ok(NodeReader { opened: self.source.open()?, account: self.account()? })
    }

    /// Runs `f` on the nodes; until it returns, [`Request::Alone`] makes other such changes wait.
    pub(super) fn change<T>(
        &self,
        f: impl FnOnce(&mut Nodes<Changing<'_>>) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let (account, source) = (self.account()?, &self.source);
        with_session_changer(source, |changer| {
            changer.ask(Request::Alone)?;
            let opened = source.open()?;
            f(&mut Nodes::new(Changing { opened, changer }, account))
        })
    }
}

/// A session that is open for reading.
pub(super) struct NodeReader {
    opened: OpenSession,
    account: Option<AccountName>,
}

impl NodeReader {
    /// Runs `f` on a snapshot of the nodes. If a node is being changed, tries again for up to
    /// [`CHANGING`].
    pub(super) fn at<T>(
        &self,
        f: impl Fn(&mut Nodes<SnapshotReader<'_, '_>>) -> ContextResult<T>,
    ) -> ContextResult<T> {
        let since = Instant::now();
        loop {
            let mut done = None;
            let looked = self.opened.with_tree(|view| {
                done = Some(f(&mut Nodes::new(SnapshotReader(view), self.account.clone())));
                Ok(())
            });
            match done {
                Some(Err(ContextError::NoNode { is_changing: true, .. }))
                    if since.elapsed() < CHANGING =>
                {
                    std::thread::sleep(PAUSE);
                }
                Some(done) => return done,
                None => {
                    let what = looked.err().map(|error| error.to_string()).unwrap_or_default();
                    return Err(FileError { what, hint: None, is_unfit: false }.into());
                }
            }
        }
    }
}

/// A session that is open for changes, made by its server or by this process.
pub(super) struct Changing<'a> {
    opened: OpenSession,
    changer: &'a mut SessionChanger,
}

type FileResult<T> = Result<T, FileError>;

impl Changing<'_> {
    fn look<T>(
        &self,
        f: impl FnOnce(&mut SnapshotReader<'_, '_>) -> FileResult<T>,
    ) -> FileResult<T> {
        let looked = self.opened.with_tree(|view| Ok(f(&mut SnapshotReader(view))));
        looked.map_err(|error| CliError::from(error).into()).and_then(|done| done)
    }

    fn ask(&mut self, request: Request) -> FileResult<()> {
        Ok(self.changer.ask(request).map(drop)?)
    }
}

impl Reads for Changing<'_> {
    fn read(&mut self, path: &str, most: u64) -> FileResult<Option<Vec<u8>>> {
        self.look(|tree| tree.read(path, most))
    }

    fn list(&mut self, path: &str) -> FileResult<Option<Vec<NodeDirEntry>>> {
        self.look(|tree| tree.list(path))
    }
}

impl Files for Changing<'_> {
    fn make_dir(&mut self, path: &str) -> FileResult<()> {
        let path = path.as_bytes().into();
        self.ask(Request::MakeDir { path, meta: AttrChanges::default(), parents: true })
    }

    fn write(&mut self, path: &str, content: &[u8]) -> FileResult<()> {
        let (path, meta) = (path.as_bytes().into(), AttrChanges::default());
        let request = Request::Write { path, how: WriteHow::Replace, meta };
        Ok(self.changer.ask_with(request, Reading::stream(content)).map(drop)?)
    }

    fn rename(&mut self, from: &str, to: &str) -> FileResult<()> {
        self.ask(Request::Rename { from: from.as_bytes().into(), to: to.as_bytes().into() })
    }

    fn remove(&mut self, path: &str) -> FileResult<()> {
        self.ask(Request::Remove {
            path: path.as_bytes().into(),
            recursive: false,
            by_turns: false,
        })
    }

    fn remove_dir(&mut self, path: &str) -> FileResult<()> {
        self.ask(Request::RemoveDir { path: path.as_bytes().into() })
    }

    fn sync(&mut self) -> FileResult<()> {
        self.ask(Request::Sync)
    }
}

impl From<CliError> for FileError {
    fn from(error: CliError) -> Self {
        let hint = error.hint().map(str::to_owned);
        Self { what: error.to_string(), hint, is_unfit: false }
    }
}

impl From<ContextError> for CliError {
    fn from(error: ContextError) -> Self {
        let printed = Self::new(&error);
        match hints::of_context(&error) {
            Some(hint) => printed.with_hint(hint),
            None => printed,
        }
    }
}
