//! Directories that exports need where they are: roots of mounts, and the directories above mount
//! points. A change of the whole tree that would move or remove one is refused.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::delta::MergedPath;
use crate::vfs::{Caller, FsError, Locator};

use crate::overlay::Overlay;
use crate::overlay::edit::Edit;
use crate::overlay::error::Result;
use crate::overlay::resolve::View;

/// A directory that an export needs at its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededDir {
    /// The directory.
    pub dir: Locator,
    /// Name of the export.
    pub export: Arc<str>,
    /// Whether it is the root of a mount; otherwise a mount point is in it or below it.
    pub is_root: bool,
}

/// Why the whole tree was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeChangeError {
    /// The filesystem failed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// An export needs a directory that would be gone or at another path.
    #[error("{}: the export {} needs it there", path.display(), dir.export)]
    Needed {
        /// The path of the directory.
        path: MergedPath,
        /// The directory.
        dir: NeededDir,
    },
}

/// The directories that exports need.
#[derive(Default)]
pub(in crate::overlay) struct NeededDirs(Mutex<Vec<Weak<[NeededDir]>>>);

impl NeededDirs {
    fn add(&self, dirs: &Arc<[NeededDir]>) {
        let mut all = self.0.lock();
        all.retain(|dirs| dirs.strong_count() > 0);
        all.push(Arc::downgrade(dirs));
    }

    fn all(&self) -> Vec<NeededDir> {
        let all = self.0.lock().iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        all.iter().flat_map(|dirs| dirs.iter().cloned()).collect()
    }
}

impl Overlay {
    /// Refuses changes of the whole tree that would move or remove these directories, for as long
    /// as the caller has what this returns.
    #[must_use]
    pub fn need_dirs(&self, dirs: Vec<NeededDir>) -> Arc<[NeededDir]> {
        let dirs: Arc<[NeededDir]> = dirs.into();
        if !dirs.is_empty() {
            self.core.needed_dirs.add(&dirs);
        }
        dirs
    }

    /// Makes a change of the whole tree, synced before this returns, unless a needed directory
    /// would be gone or at another path. `is_made` says whether `f` changed the tree: then recorded
    /// atimes are of objects before it, and what is half written to guarded files is given up.
    pub(super) async fn change_tree<T: Send + 'static>(
        &self,
        caller: &Caller,
        is_made: fn(&T) -> bool,
        mut f: impl FnMut(&mut Edit<'_>) -> Result<T> + Send + 'static,
    ) -> std::result::Result<T, TreeChangeError> {
        let moved = Arc::new(Mutex::new(None));
        let found = Arc::clone(&moved);
        let change = move |edit: &mut Edit<'_>| {
            let before = needed_paths(edit)?;
            let done = f(edit)?;
            *found.lock() = first_moved(&edit.view(), before)?;
            if found.lock().is_some() {
                // An error takes the change back.
                return Err(FsError::Access.into());
            }
            if is_made(&done) {
                edit.core.atimes.forget_all();
                edit.core.tree_changes.fetch_add(1, Ordering::AcqRel);
            }
            Ok(done)
        };
        let done = self.change_synced(caller, change).await;
        let moved = moved.lock().take();
        match (done, moved) {
            (Err(_), Some((path, dir))) => Err(TreeChangeError::Needed { path, dir }),
            (done, _) => Ok(done?),
        }
    }
}

/// The needed directories that are there, with their paths.
fn needed_paths(edit: &Edit<'_>) -> Result<Vec<(MergedPath, NeededDir)>> {
    let view = edit.view();
    let mut all = Vec::new();
    for dir in edit.core.needed_dirs.all() {
        if let Some(path) = path_of(&view, &dir.dir)? {
            all.push((path, dir));
        }
    }
    Ok(all)
}

fn first_moved(
    view: &View<'_>,
    before: Vec<(MergedPath, NeededDir)>,
) -> Result<Option<(MergedPath, NeededDir)>> {
    for (path, dir) in before {
        if path_of(view, &dir.dir)?.as_ref() != Some(&path) {
            return Ok(Some((path, dir)));
        }
    }
    Ok(None)
}

/// The path of a directory; `None` if it is not there.
fn path_of(view: &View<'_>, dir: &Locator) -> Result<Option<MergedPath>> {
    let Some(node) = view.found(dir)?.filter(|node| node.is_dir()) else { return Ok(None) };
    Ok(Some(view.place(&node)?.merged.clone()))
}
