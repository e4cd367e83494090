//! Checks what a restore or merge would bring, by the guards of the exports that show the session.
//!
//! The content is that of the checkpoint, which does not change. What the restore brings back of it
//! depends on the tree as it is: so the restore is made only if nothing changed since the check.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::control::Refusal;
use crate::delta::{CheckpointId, MergedPath};
use crate::export::{Exports, GuardedView};
use crate::inspect::InspectError;
use crate::inspect::diff::{Difference, DifferenceKind};
use crate::inspect::opened::OpenSession;
use crate::inspect::restore::plan_restore;
use crate::overlay::{ChangeSteps, ContentAfterSteps, Overlay, StepFilter, TreeObject, TreeView};
use crate::validation::{MAX_ARRIVAL_CHECK_TIME, MAX_DRAFT_BYTES, NotAccepted};
use crate::vfs::{Caller, FileKind, FsError};

use super::layers::SessionLayers;

/// The guards of the exports that show a session.
pub struct TreeGuards {
    session: PathBuf,
    base: Option<PathBuf>,
    overlay: Arc<Overlay>,
    exports: Exports,
}

/// What a restore would bring back at guarded paths.
struct GuardedRestore {
    /// The tree at the checkpoint.
    then: OpenSession,
    /// The files, with the index of each view in which they are guarded.
    files: Vec<(MergedPath, usize)>,
    /// The last row of the audit log that was seen.
    seen: i64,
}

impl TreeGuards {
    /// The guards of those of `exports` that show a session.
    pub fn new(layers: &SessionLayers, exports: &Exports) -> Self {
        Self {
            session: layers.session.clone(),
            base: layers.base.clone(),
            overlay: Arc::clone(&layers.overlay),
            exports: exports.clone(),
        }
    }

    /// Checks the content that a restore of a checkpoint would bring back, in the whole tree or at
    /// and below some paths. Returns the last row of
    /// the audit log that it has seen; `None` if there are no guards, or no such checkpoint.
    ///
    /// # Errors
    /// A guard refuses content, or it cannot be checked in [`MAX_ARRIVAL_CHECK_TIME`].
    pub async fn check_restore(
        &self,
        to: CheckpointId,
        paths: Option<Vec<MergedPath>>,
    ) -> Result<Option<i64>, Refusal> {
        let views = self.views().await?;
        if views.is_empty() {
            return Ok(None);
        }
        let (session, base, shared) = (self.session.clone(), self.base.clone(), Arc::clone(&views));
        let paths = paths.map(|paths| paths.into_iter().collect());
        let planned =
            blocking(move || plan((session, base), (to, paths.as_ref()), &shared)).await?;
        let Some(GuardedRestore { mut then, files, seen }) = planned else { return Ok(None) };
        let begun = Instant::now();
        for (path, view) in files {
            let at = path.clone();
            let read = blocking(move || Ok((content(&then, &at), then))).await?;
            then = read.1;
            check(&views[view], (&path, read.0), begun).await?;
        }
        Ok(Some(seen))
    }

    /// Checks what files would have after the steps of a merge that has seen the row `seen` of the
    /// audit log. A later change is no error: the merge is refused then.
    ///
    /// # Errors
    /// As [`Self::check_restore`], or a step cannot be taken.
    pub async fn check_merge(
        &self,
        caller: &Caller,
        seen: i64,
        steps: Box<dyn ChangeSteps>,
    ) -> Result<(), Refusal> {
        let views = self.views().await?;
        if views.is_empty() {
            return Ok(());
        }
        let wanted = Arc::clone(&views);
        let filter = StepFilter {
            is_wanted: Arc::new(move |path| {
                wanted.iter().any(|view| view.is_guarded(path.as_bytes()))
            }),
            max_bytes: MAX_DRAFT_BYTES,
        };
        let contents = self.overlay.contents_after_steps(caller, seen, steps, filter).await;
        let contents = contents.map_err(|error| Refusal::at(&MergedPath::root(), error))?;
        let Some(mut contents) = contents else { return Ok(()) };
        let begun = Instant::now();
        let failed = |error| Refusal::new(format!("the guards cannot be asked: {error}"));
        while let Some(ContentAfterSteps { path, content }) =
            contents.read_next().map_err(failed)?
        {
            let content = content.map(Bytes::from).ok_or(FsError::TooLarge);
            for view in views.iter().filter(|view| view.is_guarded(path.as_bytes())) {
                check(view, (&path, content.clone()), begun).await?;
            }
        }
        Ok(())
    }

    async fn views(&self) -> Result<Arc<Vec<GuardedView>>, Refusal> {
        let views = self.exports.guarded_views(&self.overlay).await;
        Ok(Arc::new(views.map_err(|error| Refusal::at(&MergedPath::root(), error))?))
    }
}

/// Checks the content of one file; all are checked since `begun`.
async fn check(
    view: &GuardedView,
    (path, content): (&MergedPath, Result<Bytes, FsError>),
    begun: Instant,
) -> Result<(), Refusal> {
    let checked = match content {
        Ok(content) => view.check(path.as_bytes(), &content).await,
        Err(error) => {
            return Err(refused(path, view, &format!("it cannot be checked: {error}")));
        }
    };
    match checked {
        Ok(()) if begun.elapsed() <= MAX_ARRIVAL_CHECK_TIME => Ok(()),
        Ok(()) => {
            let most = MAX_ARRIVAL_CHECK_TIME.as_secs();
            let what = format!("what comes back cannot be checked within {most} s");
            Err(refused(path, view, &what))
        }
        Err(NotAccepted::Refused(violation)) => Err(refused(path, view, &violation.to_string())),
        Err(NotAccepted::Busy) => Err(refused(path, view, "the guards are busy; try again")),
    }
}

fn refused(path: &MergedPath, view: &GuardedView, why: &str) -> Refusal {
    let (path, export) = (path.display(), view.export());
    let hint = "stop serving that export first: without a server, no guard is known; or keep \
                other content there";
    Refusal {
        hint: Some(hint.to_owned()),
        ..Refusal::new(format!(
            "{path}: refused by a guard of the export {export}: {why}: nothing was changed"
        ))
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, InspectError> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    let failed = |what: String| Refusal::new(format!("the guards cannot be asked: {what}"));
    done.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
}

/// Finds the guarded files that the restore of a checkpoint would change or bring back.
fn plan(
    (session, base): (PathBuf, Option<PathBuf>),
    (to, paths): (CheckpointId, Option<&BTreeSet<MergedPath>>),
    views: &[GuardedView],
) -> Result<Option<GuardedRestore>, InspectError> {
    let now = OpenSession::open(&session, base.as_deref())?;
    let found = now.session().checkpoint(to);
    let found = found.map_err(|source| InspectError::Store { session: session.clone(), source })?;
    let Some(to) = found else { return Ok(None) };
    let plan = plan_restore(&now, base.as_deref(), &to)?;
    let then = OpenSession::open_at(&session, base.as_deref(), &to)?;
    let mut files = Vec::new();
    then.with_tree(|view| {
        let is_restored = |difference: &&Difference| {
            paths.is_none_or(|paths| difference.path.is_within_any(paths))
        };
        for difference in plan.differences.iter().filter(is_restored) {
            add_files(view, difference, views, &mut files)?;
        }
        Ok(())
    })?;
    files.sort();
    files.dedup();
    Ok(Some(GuardedRestore { then, files, seen: plan.seen }))
}

/// Adds the guarded files of a difference: a file with other content or at another path, and the
/// files in a directory that moves.
fn add_files(
    view: &TreeView<'_>,
    difference: &Difference,
    views: &[GuardedView],
    files: &mut Vec<(MergedPath, usize)>,
) -> Result<(), InspectError> {
    let is_moved = match difference.kind {
        DifferenceKind::Deleted => return Ok(()),
        DifferenceKind::Modified if !difference.differs.content => return Ok(()),
        DifferenceKind::Added | DifferenceKind::Modified | DifferenceKind::Retyped => false,
        DifferenceKind::Renamed => true,
    };
    let failed = |path: &MergedPath, source| InspectError::Path { path: path.clone(), source };
    let found = view.find(&difference.path);
    let found = found.map_err(|source| failed(&difference.path, source))?;
    let mut left: Vec<TreeObject> = found.into_iter().collect();
    while let Some(object) = left.pop() {
        match object.attr().kind {
            FileKind::Regular => {
                let all = views.iter().enumerate();
                let guarded = all.filter(|(_, view)| view.is_guarded(object.path().as_bytes()));
                files.extend(guarded.map(|(at, _)| (object.path().clone(), at)));
            }
            FileKind::Directory if is_moved => {
                let children = view.children(&object);
                let children = children.map_err(|source| failed(object.path(), source))?;
                left.extend(children.into_iter().map(|(_, child)| child));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The content of a file of at most [`MAX_DRAFT_BYTES`].
fn content(then: &OpenSession, path: &MergedPath) -> Result<Bytes, FsError> {
    let read = then.with_tree(|view| {
        Ok(view.find(path).and_then(|file| {
            let file = file.ok_or(FsError::NotFound)?;
            if file.attr().size > MAX_DRAFT_BYTES {
                return Err(FsError::TooLarge);
            }
            let mut content = vec![0; usize::try_from(file.attr().size).unwrap_or(usize::MAX)];
            let got = view.read(&file, 0, &mut content)?;
            content.truncate(got);
            Ok(content.into())
        }))
    });
    read.unwrap_or(Err(FsError::Io))
}
