//! Context nodes in a workspace, or in a read-only view of a session.

use crate::context::{AccountName, FileError, Files, NodeDirEntry, Nodes, Reads};
use crate::control::{PathText, Reading, Request, WriteHow};
use crate::delta::MergedPath;
use crate::overlay::{TreeObject, TreeView};
use crate::vfs::{FileKind, FsError};

use super::error::Error;
use super::{AttrChanges, Workspace};

type Result<T> = std::result::Result<T, FileError>;

impl Workspace {
    /// Context nodes as an account sees them; `None` is the session's owner, who sees all.
    ///
    /// ```
    /// use acetate::workspace::{NodePut, Workspace};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let mut work = Workspace::create(&dir.path().join("work.db"), None)?;
    /// let uri = "ctx://acme/users/alice/memories/preferences/coffee".parse()?;
    /// let content = b"# Coffee\n\nBlack, no sugar.\n".to_vec();
    /// let mut nodes = work.nodes(Some("acme".parse()?));
    /// nodes.put(&uri, &NodePut { content, ..NodePut::default() })?;
    /// assert_eq!(nodes.get(&uri)?.abstract_text, "Coffee");
    /// assert_eq!(nodes.events(None, false)?.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn nodes(&mut self, account: Option<AccountName>) -> Nodes<&mut Self> {
        Nodes::new(self, account)
    }
}

/// A snapshot of the merged tree, to read context nodes from.
pub struct SnapshotReader<'a, 'b>(pub &'a TreeView<'b>);

impl SnapshotReader<'_, '_> {
    fn find(&self, path: &str) -> Result<Option<TreeObject>> {
        self.0.find(&merged(path)?).map_err(|error| failed(path, error))
    }
}

impl Reads for SnapshotReader<'_, '_> {
    fn read(&mut self, path: &str, most: u64) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.find(path)? else { return Ok(None) };
        let size = file.attr().size;
        if file.attr().kind != FileKind::Regular {
            return Err(unfit(format!("{path}: is not a regular file")));
        }
        if size > most {
            return Err(unfit(format!("{path}: has {size} bytes, and {most} are the most")));
        }
        let mut content = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        let got = self.0.read(&file, 0, &mut content).map_err(|error| failed(path, error))?;
        content.truncate(got);
        Ok(Some(content))
    }

    fn list(&mut self, path: &str) -> Result<Option<Vec<NodeDirEntry>>> {
        let Some(dir) = self.find(path)? else { return Ok(None) };
        if dir.attr().kind != FileKind::Directory {
            return Err(unfit(format!("{path}: is not a directory")));
        }
        let children = self.0.children(&dir).map_err(|error| failed(path, error))?;
        let entry = |(name, object): (crate::vfs::Name, TreeObject)| NodeDirEntry {
            name: String::from_utf8_lossy(name.as_bytes()).into_owned(),
            is_dir: object.attr().kind == FileKind::Directory,
        };
        Ok(Some(children.into_iter().map(entry).collect()))
    }
}

impl Reads for Workspace {
    fn read(&mut self, path: &str, most: u64) -> Result<Option<Vec<u8>>> {
        self.opened
            .with_tree(|view| Ok(SnapshotReader(view).read(path, most)))
            .map_err(Error::from)?
    }

    fn list(&mut self, path: &str) -> Result<Option<Vec<NodeDirEntry>>> {
        self.opened.with_tree(|view| Ok(SnapshotReader(view).list(path))).map_err(Error::from)?
    }
}

impl Files for Workspace {
    fn make_dir(&mut self, path: &str) -> Result<()> {
        let path = PathText::from(path.as_bytes());
        let request = Request::MakeDir { path, meta: AttrChanges::default(), parents: true };
        Ok(self.perform(request).map(drop)?)
    }

    fn write(&mut self, path: &str, content: &[u8]) -> Result<()> {
        let path = PathText::from(path.as_bytes());
        let request = Request::Write { path, how: WriteHow::Replace, meta: AttrChanges::default() };
        Ok(self.perform_with(request, Reading::stream(content)).map(drop)?)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (from.as_bytes().into(), to.as_bytes().into());
        Ok(self.perform(Request::Rename { from, to }).map(drop)?)
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        let request =
            Request::Remove { path: path.as_bytes().into(), recursive: false, by_turns: false };
        Ok(self.perform(request).map(drop)?)
    }

    fn remove_dir(&mut self, path: &str) -> Result<()> {
        let request = Request::RemoveDir { path: path.as_bytes().into() };
        Ok(self.perform(request).map(drop)?)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.perform(Request::Sync).map(drop)?)
    }
}

impl From<Error> for FileError {
    fn from(error: Error) -> Self {
        let hint = match &error {
            Error::Refused(refusal) => refusal.hint.clone(),
            Error::Inspect(error) => error.hint().map(str::to_owned),
            _ => None,
        };
        Self { what: error.to_string(), hint, is_unfit: false }
    }
}

fn merged(path: &str) -> Result<MergedPath> {
    MergedPath::from_bytes(path.as_bytes()).ok_or_else(|| unfit(format!("{path}: not a path")))
}

fn failed(path: &str, error: FsError) -> FileError {
    FileError { what: format!("{path}: {error}"), hint: None, is_unfit: false }
}

fn unfit(what: String) -> FileError {
    FileError { what, hint: None, is_unfit: true }
}
