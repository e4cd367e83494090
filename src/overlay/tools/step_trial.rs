//! What files would have after steps, for those who decide whether the steps are taken: takes the
//! steps, reads the files, and takes all back.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::delta::MergedPath;
use crate::vfs::{Caller, FileKind, FsError};

use super::discard::refuse_during_apply;
use super::steps::{ChangeStep, ChangeSteps, StepState};
use super::tree::TreeView;
use crate::overlay::Overlay;
use crate::overlay::edit::Edit;
use crate::overlay::error::Result;

/// The length of content that is too large.
const TOO_LARGE: u64 = u64::MAX;

/// Which files are read.
#[derive(Clone)]
pub struct StepFilter {
    /// Whether the file at a path is read.
    pub is_wanted: Arc<dyn Fn(&MergedPath) -> bool + Send + Sync>,
    /// The most bytes of a file.
    pub max_bytes: u64,
}

/// The wanted files that steps change, in a temporary file without a name.
pub struct StepContents(BufReader<File>);

/// A file that steps change.
#[derive(Debug)]
pub struct ContentAfterSteps {
    /// Its path after all steps.
    pub path: MergedPath,
    /// Its content; `None` if it has more than [`StepFilter::max_bytes`].
    pub content: Option<Vec<u8>>,
}

impl StepContents {
    /// The next file; `None` at the end.
    ///
    /// # Errors
    /// The temporary file cannot be read.
    pub fn read_next(&mut self) -> io::Result<Option<ContentAfterSteps>> {
        let mut length = [0; 8];
        match self.0.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let path = MergedPath::from_bytes(&self.bytes(u64::from_be_bytes(length))?);
        let path = path.ok_or(io::ErrorKind::InvalidData)?;
        self.0.read_exact(&mut length)?;
        let content = match u64::from_be_bytes(length) {
            TOO_LARGE => None,
            length => Some(self.bytes(length)?),
        };
        Ok(Some(ContentAfterSteps { path, content }))
    }

    fn bytes(&mut self, length: u64) -> io::Result<Vec<u8>> {
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::InvalidData)?;
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl Overlay {
    /// Reads the files that steps change or move, as they would be after all of them. `None` if a
    /// row of the audit log after `seen` changed anything.
    ///
    /// # Errors
    /// As for [`Overlay::take_steps`], or the files cannot be kept.
    pub async fn contents_after_steps(
        &self,
        caller: &Caller,
        seen: i64,
        mut steps: Box<dyn ChangeSteps>,
        filter: StepFilter,
    ) -> std::result::Result<Option<StepContents>, FsError> {
        let file = tempfile::tempfile().map_err(|_| FsError::Io)?;
        let mut kept = file.try_clone().map_err(|_| FsError::Io)?;
        let state = Arc::new(Mutex::new(Trial::Failed));
        let ended = Arc::clone(&state);
        let tried = self.change_synced(caller, move |edit| -> Result<()> {
            *ended.lock() = Trial::Failed;
            refuse_during_apply(edit)?;
            if edit.txn.is_changed_since(seen)? {
                *ended.lock() = Trial::ChangedSince;
                return Err(FsError::Access.into());
            }
            let changed = take_all(edit, &mut *steps)?;
            restart(&mut kept).map_err(|_| FsError::Io)?;
            keep_files(edit, changed, &filter, &mut kept)?;
            *ended.lock() = Trial::Done;
            // An error takes the steps back.
            Err(FsError::Access.into())
        });
        let tried = tried.await;
        let state = *state.lock();
        match (state, tried) {
            (Trial::ChangedSince, _) => Ok(None),
            (Trial::Done, _) => {
                let mut file = file;
                file.rewind().map_err(|_| FsError::Io)?;
                Ok(Some(StepContents(BufReader::new(file))))
            }
            (Trial::Failed, tried) => Err(tried.err().unwrap_or(FsError::Fault)),
        }
    }
}

/// How a trial ended.
#[derive(Debug, Clone, Copy)]
enum Trial {
    Done,
    ChangedSince,
    Failed,
}

/// Takes all steps; returns the paths of files that they wrote, and of what they moved.
fn take_all(edit: &mut Edit<'_>, steps: &mut dyn ChangeSteps) -> Result<Vec<(MergedPath, bool)>> {
    steps.restart().map_err(|_| FsError::Io)?;
    let (mut state, mut changed) = (StepState::default(), Vec::new());
    while let Some(step) = steps.next().map_err(|_| FsError::Io)? {
        state.take(edit, &step)?;
        match step {
            ChangeStep::MakeFile(path)
            | ChangeStep::Write(path, ..)
            | ChangeStep::Link(_, path) => {
                if changed.last().is_none_or(|(last, _)| *last != path) {
                    changed.push((path, false));
                }
            }
            ChangeStep::Set(path, set) if set.size.is_some() => changed.push((path, false)),
            ChangeStep::Rename(_, path) => changed.push((path, true)),
            ChangeStep::MakeNode(..) | ChangeStep::Remove(_) | ChangeStep::Set(..) => {}
        }
    }
    changed.sort();
    changed.dedup();
    Ok(changed)
}

fn restart(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()
}

/// Keeps the wanted files among those that were changed, and those in directories that moved.
fn keep_files(
    edit: &Edit<'_>,
    changed: Vec<(MergedPath, bool)>,
    filter: &StepFilter,
    kept: &mut File,
) -> Result<()> {
    let tree = TreeView { view: edit.view(), knows_base: true };
    for (path, is_moved) in changed {
        let mut left: Vec<_> = tree.find(&path)?.into_iter().collect();
        while let Some(object) = left.pop() {
            match object.attr().kind {
                FileKind::Regular if (filter.is_wanted)(object.path()) => {
                    let mut content = None;
                    if object.attr().size <= filter.max_bytes {
                        let mut bytes = vec![0; object.attr().size as usize];
                        let got = tree.read(&object, 0, &mut bytes)?;
                        bytes.truncate(got);
                        content = Some(bytes);
                    }
                    let written = write_content(kept, object.path(), content.as_deref());
                    written.map_err(|_| FsError::Io)?;
                }
                FileKind::Directory if is_moved => {
                    left.extend(tree.children(&object)?.into_iter().map(|(_, child)| child));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn write_content(out: &mut File, path: &MergedPath, content: Option<&[u8]>) -> io::Result<()> {
    let path = path.as_bytes();
    out.write_all(&(path.len() as u64).to_be_bytes())?;
    out.write_all(path)?;
    let length = content.map_or(TOO_LARGE, |content| content.len() as u64);
    out.write_all(&length.to_be_bytes())?;
    out.write_all(content.unwrap_or_default())
}
