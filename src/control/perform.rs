//! Executes requests.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::checkpoint_text::{CheckpointText, RestoreAnswer, RestorePathsText};
use super::content::ContentSource;
use super::copy_to_drop::CopyToDrop;
use super::files::CallerFiles;
use super::limits::{MAX_PATHS, TURN_MS};
use super::listener::MergeCheck;
use super::refusal::{Refusal, RefusalAdvice};
use super::request::{Answer, AppliedObject, Bound, PathText, Request};
use super::step_text::{SharedSteps, SpooledSteps};
use super::usage::UsageReport;
use crate::delta::{
    CheckpointId, Compacted, Ino, MadeCheckpoint, MergedPath, NewCheckpoint, PendingCopies,
    RestorePaths, RestoreRequest,
};
use crate::overlay::{
    AppliedPart, ChangeSteps, CopyStep, DiscardExtent, Idle, Overlay, StepsOutcome, TreeChangeError,
};
use crate::vfs::{Caller, FsError, Locator, Time, Vfs};

/// Executes a request, except [`Request::Status`] and [`Request::Exports`], which only a server can
/// answer.
///
/// # Errors
/// The request failed; changes made before that stay.
pub async fn perform(
    overlay: &Overlay,
    caller: &Caller,
    request: Request,
    content: &mut dyn ContentSource,
) -> Result<Answer, Refusal> {
    let done = execute(overlay, caller, request, content).await;
    done.map_err(|refusal| of_unfinished_apply(overlay, refusal))
}

async fn execute(
    overlay: &Overlay,
    caller: &Caller,
    request: Request,
    content: &mut dyn ContentSource,
) -> Result<Answer, Refusal> {
    let files = CallerFiles { vfs: overlay, caller };
    match request {
        Request::Status | Request::Exports => Err(Refusal::new("no server has the session")),
        Request::MakeDir { path, meta, parents } => {
            files.make_dir(&path.merged()?, &meta, parents).await.map(Answer::Objects)
        }
        Request::Write { path, how, meta } => {
            files.write(&path.merged()?, how, &meta, content).await.map(Answer::Bytes)
        }
        Request::MakeLink { path, target, meta } => {
            files.make_link(&path.merged()?, target.as_bytes(), &meta).await?;
            Ok(Answer::Done)
        }
        Request::SetMeta { path, meta } => {
            files.set_meta(&path.merged()?, &meta).await?;
            Ok(Answer::Done)
        }
        Request::Remove { path, recursive: false, .. } => {
            files.remove(&path.merged()?).await?;
            Ok(Answer::Objects(1))
        }
        Request::Remove { path, recursive: true, by_turns } => {
            remove_tree(&files, &path.merged()?, by_turns).await
        }
        Request::Make { items } => files.make_all(&items, content).await,
        Request::RemoveDir { path } => {
            files.remove_dir(&path.merged()?).await?;
            Ok(Answer::Done)
        }
        Request::Link { from, to } => {
            files.link(&from.merged()?, &to.merged()?).await?;
            Ok(Answer::Done)
        }
        Request::Rename { from, to } => {
            files.rename(&from.merged()?, &to.merged()?).await?;
            Ok(Answer::Done)
        }
        // A process that has the session to itself is always alone.
        Request::Alone => Ok(Answer::Done),
        Request::Sync => sync(overlay, caller).await,
        Request::Discard { paths } => discard(overlay, caller, &paths).await,
        Request::DiscardAttributes { paths } => discard_attributes(overlay, caller, &paths).await,
        Request::DiscardInRemoved { paths } => discard_in_removed(overlay, caller, &paths).await,
        Request::RebasePart { applied, attributes } => {
            let content = files.whole(&applied.path.merged()?, content).await?;
            let part = AppliedPart { content, attributes };
            rebase_part(overlay, caller, &applied, part).await
        }
        Request::Rewrite { path, object, meta } => {
            files.rewrite(&path.merged()?, object, &meta, content).await?;
            Ok(Answer::Done)
        }
        Request::Rebase { applied, is_closing } => {
            rebase(overlay, caller, (&applied, is_closing)).await
        }
        Request::SettleMoves => settle_moves(overlay, caller).await,
        Request::DropUnchanged { copies } => drop_unchanged(overlay, caller, &copies).await,
        Request::Compact => compact(overlay).await,
        Request::CreateCheckpoint(new) => create_checkpoint(overlay, &new).await,
        Request::RemoveCheckpoint(id) => remove_checkpoint(overlay, CheckpointId(id)).await,
        Request::KeepCheckpoint(id) => keep_checkpoint(overlay, CheckpointId(id)).await,
        Request::Restore { to, seen } => restore(overlay, caller, CheckpointId(to), seen).await,
        Request::RestorePaths(restore) => restore_paths(overlay, caller, &restore).await,
        Request::Merge { from, seen } => merge(overlay, caller, (&from, seen), content).await,
        Request::PruneLog { upto } => prune(overlay, upto).await,
        Request::Copy { from } => copy(overlay, Ino(from)).await,
        Request::SetQuota { bytes, files, file_bytes } => {
            set_quota(overlay, [bytes, files, file_bytes]).await
        }
    }
}

async fn sync(overlay: &Overlay, caller: &Caller) -> Result<Answer, Refusal> {
    let synced = overlay.commit(caller, &Locator::ROOT).await;
    synced.result.map(|_| Answer::Done).map_err(of_session)
}

async fn compact(overlay: &Overlay) -> Result<Answer, Refusal> {
    let Compacted { before_bytes, after_bytes, is_delayed } =
        overlay.compact().await.map_err(of_session)?;
    Ok(Answer::Compacted { before_bytes, after_bytes, is_delayed })
}

async fn create_checkpoint(overlay: &Overlay, new: &CheckpointText) -> Result<Answer, Refusal> {
    let made = overlay.create_checkpoint(new.to_new()?).await.map_err(of_session)?;
    Ok(match made {
        MadeCheckpoint::Made(made) => Answer::Checkpoint(Some(made.id.0)),
        MadeCheckpoint::Reused(newest) => Answer::CheckpointReused(newest.id.0),
        MadeCheckpoint::NameTaken => Answer::Checkpoint(None),
        MadeCheckpoint::Off => Answer::CheckpointsOff,
    })
}

async fn remove_checkpoint(overlay: &Overlay, id: CheckpointId) -> Result<Answer, Refusal> {
    let removed = overlay.remove_checkpoint(id).await;
    removed.map(|removed| Answer::Objects(removed.into())).map_err(of_session)
}

async fn keep_checkpoint(overlay: &Overlay, id: CheckpointId) -> Result<Answer, Refusal> {
    let kept = overlay.keep_checkpoint(id).await;
    kept.map(|kept| Answer::Objects(kept.into())).map_err(of_session)
}

async fn restore(
    overlay: &Overlay,
    caller: &Caller,
    to: CheckpointId,
    seen: Option<i64>,
) -> Result<Answer, Refusal> {
    let restore = RestoreRequest { to, seen, time: Time::default() };
    let done = overlay.restore(caller, restore).await;
    done.map(|done| Answer::Restored(done.into())).map_err(of_restore)
}

fn of_restore(error: TreeChangeError) -> Refusal {
    if !matches!(error, TreeChangeError::Fs(FsError::NoSpace)) {
        return of_tree_change(error);
    }
    let hint = "make room first: on the disk that holds the session, or by removing checkpoints";
    let what = "no room for what comes back and for what goes: nothing was restored";
    Refusal { hint: Some(hint.to_owned()), is_full: true, ..Refusal::new(what) }
}

async fn restore_paths(
    overlay: &Overlay,
    caller: &Caller,
    restore: &RestorePathsText,
) -> Result<Answer, Refusal> {
    at_most(restore.paths.len().saturating_add(restore.dirs.len()))?;
    let paths: BTreeSet<_> = merged(&restore.paths)?.into_iter().collect();
    let dirs = merged(&restore.dirs)?.into_iter().collect();
    let absent = merged(&restore.absent)?.into_iter().filter(|path| paths.contains(path)).collect();
    let paths = RestorePaths { paths, dirs, absent, ..RestorePaths::default() };
    let (to, seen) = (CheckpointId(restore.to), Some(restore.seen));
    let restore = RestoreRequest { to, seen, time: Time::default() };
    let done = overlay.restore_paths(caller, restore, paths).await;
    done.map(|done| Answer::Restored(done.into())).map_err(of_restore)
}

async fn merge(
    overlay: &Overlay,
    caller: &Caller,
    (from, seen): (&str, i64),
    content: &mut dyn ContentSource,
) -> Result<Answer, Refusal> {
    let steps = Box::new(SpooledSteps::read(content).await?);
    take_steps(overlay, caller, (from, seen), steps).await
}

/// Takes the steps of a merge.
async fn take_steps(
    overlay: &Overlay,
    caller: &Caller,
    (from, seen): (&str, i64),
    steps: Box<dyn ChangeSteps>,
) -> Result<Answer, Refusal> {
    let safety = NewCheckpoint::before(format!("merge {from}"));
    let done = overlay.take_steps(caller, (seen, safety), steps).await;
    let done = done.map_err(of_tree_change)?;
    Ok(Answer::Restored(match done {
        StepsOutcome::Done { before, steps } => {
            RestoreAnswer::Done { before: before.0, objects: steps }
        }
        StepsOutcome::ChangedSince => RestoreAnswer::ChangedSince,
    }))
}

/// As [`perform`] for [`Request::Merge`], if the guards accept what files would have then.
pub(super) async fn merge_guarded(
    overlay: &Overlay,
    caller: &Caller,
    (from, seen): (&str, i64),
    content: &mut dyn ContentSource,
    check: impl FnOnce(Box<dyn ChangeSteps>) -> MergeCheck,
) -> Result<Answer, Refusal> {
    let steps = SharedSteps::read(content).await?;
    let checked = check(Box::new(steps.clone())).await;
    let done = match checked {
        Ok(()) => take_steps(overlay, caller, (from, seen), Box::new(steps)).await,
        Err(refusal) => Err(refusal),
    };
    done.map_err(|refusal| of_unfinished_apply(overlay, refusal))
}

async fn discard(
    overlay: &Overlay,
    caller: &Caller,
    paths: &[PathText],
) -> Result<Answer, Refusal> {
    let extent = overlay.discard(caller, merged(paths)?).await;
    extent.map(discarded).map_err(|error| of_discard(overlay, error))
}

async fn discard_attributes(
    overlay: &Overlay,
    caller: &Caller,
    paths: &[PathText],
) -> Result<Answer, Refusal> {
    let done = overlay.discard_attributes(caller, merged(paths)?).await;
    done.map(|()| Answer::Done).map_err(|error| of_discard(overlay, error))
}

async fn discard_in_removed(
    overlay: &Overlay,
    caller: &Caller,
    paths: &[PathText],
) -> Result<Answer, Refusal> {
    let done = overlay.discard_in_removed(caller, merged(paths)?).await;
    done.map(|()| Answer::Done).map_err(|error| of_discard(overlay, error))
}

async fn set_quota(overlay: &Overlay, bounds: [Bound; 3]) -> Result<Answer, Refusal> {
    let set = overlay.set_limits(move |limits| Bound::apply(limits, bounds));
    let (usage, limits) = set.await.map_err(of_session)?;
    Ok(Answer::Quota(UsageReport::new(usage, limits)))
}

async fn rebase(
    overlay: &Overlay,
    caller: &Caller,
    (applied, is_closing): (&[AppliedObject], bool),
) -> Result<Answer, Refusal> {
    at_most(applied.len())?;
    let applied = applied.iter().map(AppliedObject::to_rebase_item).collect::<Result<_, _>>()?;
    let kept = match is_closing {
        true => overlay.rebase_closed(caller, applied).await.map(|()| Vec::new()),
        false => overlay.rebase(caller, applied).await,
    };
    let kept = kept.map_err(of_session)?;
    Ok(Answer::Rebased { kept: kept.iter().map(PathText::from).collect() })
}

async fn settle_moves(overlay: &Overlay, caller: &Caller) -> Result<Answer, Refusal> {
    overlay.settle_moves(caller).await.map(|()| Answer::Done).map_err(of_session)
}

async fn drop_unchanged(
    overlay: &Overlay,
    caller: &Caller,
    copies: &[CopyToDrop],
) -> Result<Answer, Refusal> {
    at_most(copies.len())?;
    let copies = copies.iter().map(CopyToDrop::to_unchanged_copy).collect::<Result<_, _>>()?;
    overlay.drop_unchanged(caller, copies).await.map(|()| Answer::Done).map_err(of_session)
}

async fn rebase_part(
    overlay: &Overlay,
    caller: &Caller,
    applied: &AppliedObject,
    part: AppliedPart,
) -> Result<Answer, Refusal> {
    let done = overlay.rebase_part(caller, applied.to_rebase_item()?, part).await;
    done.map(|()| Answer::Done).map_err(of_session)
}

async fn remove_tree(
    files: &CallerFiles<'_>,
    path: &MergedPath,
    by_turns: bool,
) -> Result<Answer, Refusal> {
    let until = by_turns.then(|| Instant::now() + Duration::from_millis(TURN_MS));
    Ok(match files.remove_tree(path, until).await? {
        (objects, true) => Answer::Objects(objects),
        (objects, false) => Answer::SomeObjects(objects),
    })
}

fn discarded(extent: DiscardExtent) -> Answer {
    let idle = |idle: &Idle| ((&idle.path).into(), idle.gone_with.as_ref().map(Into::into));
    Answer::Undone {
        paths: extent.paths.iter().map(PathText::from).collect(),
        changes: extent.changes,
        idle: extent.idle.iter().map(idle).collect(),
    }
}

async fn prune(overlay: &Overlay, upto: i64) -> Result<Answer, Refusal> {
    overlay.prune_audit(upto).await.map(Answer::Objects).map_err(of_session)
}

async fn copy(overlay: &Overlay, from: Ino) -> Result<Answer, Refusal> {
    let turn = overlay.copy_for(from, Duration::from_millis(TURN_MS)).await;
    let CopyStep { next, has_copied, left } = turn.map_err(of_session)?;
    let PendingCopies { files, bytes } = left;
    Ok(Answer::Copied { next: next.map(|ino| ino.0), has_copied, files, bytes })
}

pub(super) fn merged(paths: &[PathText]) -> Result<Vec<MergedPath>, Refusal> {
    at_most(paths.len())?;
    paths.iter().map(PathText::merged).collect()
}

fn at_most(paths: usize) -> Result<(), Refusal> {
    match paths {
        ..=MAX_PATHS => Ok(()),
        more => Err(Refusal::new(format!("{more} paths at once, and {MAX_PATHS} is the most"))),
    }
}

/// Adds the apply that delays a request.
fn of_unfinished_apply(overlay: &Overlay, refusal: Refusal) -> Refusal {
    if !refusal.is_delayed || refusal.hint.is_some() || !overlay.has_unfinished_apply() {
        return refusal;
    }
    let what = format!("{}: an apply to the base has not ended", refusal.what);
    Refusal { what, advice: Some(RefusalAdvice::FinishApply), ..refusal }
}

fn of_discard(overlay: &Overlay, error: FsError) -> Refusal {
    match error {
        FsError::TryLater if overlay.has_unfinished_apply() => Refusal {
            advice: Some(RefusalAdvice::FinishApply),
            ..Refusal::new("an apply to the base has not ended: nothing was discarded")
        },
        error => of_session(error),
    }
}

fn of_tree_change(error: TreeChangeError) -> Refusal {
    let (path, dir) = match error {
        TreeChangeError::Fs(error) => return of_session(error),
        TreeChangeError::Needed { path, dir } => (path, dir),
    };
    let why = if dir.is_root { "shows it" } else { "has a mount point below it" };
    let (path, export) = (path.display(), dir.export);
    Refusal {
        hint: Some(
            "stop serving that export first, or name a checkpoint that has the directory there"
                .to_owned(),
        ),
        ..Refusal::new(format!(
            "{path}: the export {export} {why}, and it would be gone or elsewhere: nothing was \
             changed"
        ))
    }
}

fn of_session(error: FsError) -> Refusal {
    Refusal { what: format!("session: {error}"), ..Refusal::at(&MergedPath::root(), error) }
}
