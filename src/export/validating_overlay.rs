//! A mount's overlay with drafts: changes of guarded content go to drafts, which are published to
//! the overlay as a whole.
//!
//! Without guards, every call goes straight to the overlay.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::guarding::{GuardedMount, MountPrefix};
use crate::overlay::{Arrival, Overlay};
use crate::validation::{
    DraftTable, MAX_ARRIVAL_CHECK_TIME, MAX_DRAFT_BYTES, NotAccepted, Violation,
};
use crate::vfs::{
    Access, Attr, Caller, Cookie, CreateHow, Created, DirPage, Entry, ExportRoot, FsError, FsInfo,
    FsStat, Locator, LockKey, LookedUp, NewNode, Outcome, PathConf, ReadData, SetAttr, Stability,
    Time, Vfs, Wcc, WriteVerifier, Written,
};

/// Retries of a RENAME whose source changed after it was validated.
const MAX_RENAMES: usize = 5;

/// A mount's overlay, and the drafts of its guarded files.
pub(super) struct ValidatingOverlay {
    pub(super) overlay: Overlay,
    pub(super) drafts: Option<Arc<DraftTable<GuardedMount>>>,
    pub(super) at: MountPrefix,
}

impl Deref for ValidatingOverlay {
    type Target = Overlay;

    fn deref(&self) -> &Overlay {
        &self.overlay
    }
}

impl ValidatingOverlay {
    /// Publishes truncated or extended drafts with valid content, and discards the others.
    pub(super) async fn close(&self) {
        if let Some(drafts) = &self.drafts {
            drafts.close().await;
        }
    }

    fn show(&self, caller: &Caller, mut attr: Attr) -> Attr {
        if let Some(drafts) = &self.drafts {
            drafts.show(caller, &mut attr);
        }
        attr
    }

    fn show_outcome<T>(
        &self,
        caller: &Caller,
        outcome: Outcome<T, Option<Attr>>,
    ) -> Outcome<T, Option<Attr>> {
        let context = outcome.context.map(|attr| self.show(caller, attr));
        Outcome { context, ..outcome }
    }

    /// SETATTR with a size of a guarded file: sets the other attributes, then the draft's size.
    async fn set_draft_size(
        &self,
        drafts: &Arc<DraftTable<GuardedMount>>,
        caller: &Caller,
        object: &Locator,
        (set, size): (SetAttr, u64),
        attr: Option<Attr>,
    ) -> Outcome<(), Wcc> {
        let rest = SetAttr { size: None, ..set };
        let mut attr = attr;
        if rest != SetAttr::default() {
            let others = self.overlay.setattr(caller, object, rest, None).await;
            if others.result.is_err() {
                return others;
            }
            attr = others.context.after;
        }
        match attr {
            Some(attr) => drafts.set_size(caller, object, attr, size).await,
            None => FsError::Stale.into(),
        }
    }

    /// CREATE with a size at a guarded path: creates the file, then sets the draft's size.
    async fn create_draft(
        &self,
        drafts: &Arc<DraftTable<GuardedMount>>,
        caller: &Caller,
        (dir, name): (&Locator, &[u8]),
        how: CreateHow,
    ) -> Outcome<Created, Wcc> {
        let no_size = |set: SetAttr| SetAttr { size: None, ..set };
        let (how, size) = match how {
            CreateHow::Unchecked(set) => (CreateHow::Unchecked(no_size(set)), set.size),
            CreateHow::Guarded(set) => (CreateHow::Guarded(no_size(set)), set.size),
            CreateHow::Exclusive(_) => (how, None),
        };
        let mut created = self.overlay.create(caller, dir, name, how).await;
        if let (Ok(made), Some(size)) = (&mut created.result, size) {
            let cut = drafts.set_size(caller, &made.object, made.attr.clone(), size).await;
            if let Err(error) = cut.result {
                return Outcome::err(error, created.context);
            }
            drafts.show(caller, &mut made.attr);
        }
        created
    }

    /// Validates the files that a RENAME would move to guarded paths.
    async fn validate(
        &self,
        drafts: &Arc<DraftTable<GuardedMount>>,
        caller: &Caller,
        arrivals: &[Arrival],
    ) -> Result<(), FsError> {
        let start = Instant::now();
        for arrival in arrivals {
            let (_, content) = self.overlay.guarded_content(&arrival.file, MAX_DRAFT_BYTES).await?;
            let path = self.at.join(&arrival.path);
            let fault = drafts.validate(&path, &content.into()).await.err();
            if let Some(NotAccepted::Busy) = fault {
                return Err(FsError::TryLater);
            }
            if let Some(NotAccepted::Refused(violation)) = fault {
                let reason = format!("as {}: {}", path.escape_ascii(), violation.reason);
                let violation = Violation { reason, ..violation };
                drafts.refuse(caller, &arrival.file, &violation).await;
                // EPERM: programs take EINVAL for a rename of a directory into itself.
                return Err(FsError::NotPermitted);
            }
            if start.elapsed() > MAX_ARRIVAL_CHECK_TIME {
                let all = "what is moved cannot be checked within";
                let violation = Violation::new(format_args!("{all} {MAX_ARRIVAL_CHECK_TIME:?}"));
                drafts.refuse(caller, &arrival.file, &violation).await;
                return Err(FsError::NotPermitted);
            }
        }
        Ok(())
    }
}

impl Vfs for ValidatingOverlay {
    type Object = Locator;

    async fn mount(&self, caller: &Caller, path: &[u8]) -> Result<ExportRoot, FsError> {
        self.overlay.mount(caller, path).await
    }

    fn exports(&self, caller: &Caller) -> Vec<Bytes> {
        self.overlay.exports(caller)
    }

    fn lock_key(&self, object: &Locator) -> LockKey {
        self.overlay.lock_key(object)
    }

    async fn getattr(&self, caller: &Caller, object: &Locator) -> Result<Attr, FsError> {
        self.overlay.getattr(caller, object).await.map(|attr| self.show(caller, attr))
    }

    async fn setattr(
        &self,
        caller: &Caller,
        object: &Locator,
        set: SetAttr,
        guard: Option<Time>,
    ) -> Outcome<(), Wcc> {
        let Some(drafts) = &self.drafts else {
            return self.overlay.setattr(caller, object, set, guard).await;
        };
        let mut guard = guard;
        if let Some(ctime) = guard
            && let Ok(attr) = self.overlay.getattr(caller, object).await
            && self.show(caller, attr.clone()).ctime == ctime
        {
            // The client may compare with its draft's ctime, which it was shown.
            guard = Some(attr.ctime);
        }
        let mut outcome = self.overlay.setattr(caller, object, set, guard).await;
        match (set.size, &outcome.result) {
            (Some(size), Err(FsError::Guarded)) => {
                let attr = outcome.context.after;
                return self.set_draft_size(drafts, caller, object, (set, size), attr).await;
            }
            (Some(_), Ok(())) => drafts.abandon(caller, object).await,
            _ => {}
        }
        outcome.context = self.show_wcc(caller, outcome.context);
        outcome
    }

    async fn lookup(
        &self,
        caller: &Caller,
        dir: &Locator,
        name: &[u8],
    ) -> Outcome<LookedUp, Option<Attr>> {
        let mut outcome = self.overlay.lookup(caller, dir, name).await;
        if let (Ok(found), Some(drafts)) = (&mut outcome.result, &self.drafts) {
            drafts.show(caller, &mut found.attr);
        }
        outcome
    }

    async fn access(
        &self,
        caller: &Caller,
        object: &Locator,
        want: Access,
    ) -> Outcome<Access, Option<Attr>> {
        let outcome = self.overlay.access(caller, object, want).await;
        self.show_outcome(caller, outcome)
    }

    async fn readlink(&self, caller: &Caller, object: &Locator) -> Outcome<Bytes, Option<Attr>> {
        self.overlay.readlink(caller, object).await
    }

    async fn read(
        &self,
        caller: &Caller,
        object: &Locator,
        offset: u64,
        count: u32,
    ) -> Outcome<ReadData, Option<Attr>> {
        let outcome = self.overlay.read(caller, object, offset, count).await;
        self.show_outcome(caller, outcome)
    }

    async fn write(
        &self,
        caller: &Caller,
        object: &Locator,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Outcome<Written, Wcc> {
        let Some(drafts) = &self.drafts else {
            return self.overlay.write(caller, object, offset, data, stability).await;
        };
        let outcome = self.overlay.write(caller, object, offset, data.clone(), stability).await;
        match outcome.result {
            Err(FsError::Guarded) if data.is_empty() => {
                let (count, verifier) = (0, drafts.verifier(self.overlay.verifier()));
                let written = Written { count, committed: Stability::FileSync, verifier };
                Outcome::ok(written, self.show_wcc(caller, outcome.context))
            }
            Err(FsError::Guarded) => {
                let attr = outcome.context.after;
                drafts.write(caller, object, attr, (offset, data), stability).await
            }
            Ok(written) => {
                drafts.abandon(caller, object).await;
                let written = Written { verifier: drafts.verifier(written.verifier), ..written };
                Outcome::ok(written, outcome.context)
            }
            Err(_) => {
                let context = self.show_wcc(caller, outcome.context);
                Outcome { context, ..outcome }
            }
        }
    }

    async fn create(
        &self,
        caller: &Caller,
        dir: &Locator,
        name: &[u8],
        how: CreateHow,
    ) -> Outcome<Created, Wcc> {
        let mut outcome = self.overlay.create(caller, dir, name, how).await;
        if let Some(drafts) = &self.drafts {
            if matches!(outcome.result, Err(FsError::Guarded)) {
                return self.create_draft(drafts, caller, (dir, name), how).await;
            }
            if let Ok(made) = &mut outcome.result {
                drafts.show(caller, &mut made.attr);
            }
        }
        outcome
    }

    async fn make_node(
        &self,
        caller: &Caller,
        dir: &Locator,
        name: &[u8],
        node: NewNode,
        set: SetAttr,
    ) -> Outcome<Created, Wcc> {
        self.overlay.make_node(caller, dir, name, node, set).await
    }

    async fn remove(&self, caller: &Caller, dir: &Locator, name: &[u8]) -> Outcome<(), Wcc> {
        self.overlay.remove(caller, dir, name).await
    }

    async fn rmdir(&self, caller: &Caller, dir: &Locator, name: &[u8]) -> Outcome<(), Wcc> {
        self.overlay.rmdir(caller, dir, name).await
    }

    async fn rename(
        &self,
        caller: &Caller,
        from: (&Locator, &[u8]),
        to: (&Locator, &[u8]),
    ) -> Outcome<(), (Wcc, Wcc)> {
        let mut outcome = self.overlay.rename(caller, from, to).await;
        let Some(drafts) = &self.drafts else { return outcome };
        for _ in 0..MAX_RENAMES {
            if !matches!(outcome.result, Err(FsError::Guarded)) {
                return outcome;
            }
            let arrivals = match self.overlay.arrivals(from, to).await {
                Ok(arrivals) => arrivals,
                Err(error) => return Outcome { result: Err(error), ..outcome },
            };
            // The ctimes are older than the contents read below, so the RENAME detects later
            // changes.
            if let Err(error) = self.validate(drafts, caller, &arrivals).await {
                return Outcome { result: Err(error), ..outcome };
            }
            outcome = self.overlay.rename_validated(caller, from, to, arrivals).await;
        }
        match outcome.result {
            Err(FsError::Guarded) => Outcome { result: Err(FsError::TryLater), ..outcome },
            _ => outcome,
        }
    }

    async fn link(
        &self,
        caller: &Caller,
        object: &Locator,
        dir: &Locator,
        name: &[u8],
    ) -> Outcome<(), (Option<Attr>, Wcc)> {
        let Outcome { result, context } = self.overlay.link(caller, object, dir, name).await;
        let attr = context.0.map(|attr| self.show(caller, attr));
        Outcome { result, context: (attr, context.1) }
    }

    async fn readdir(
        &self,
        caller: &Caller,
        dir: &Locator,
        cookie: Cookie,
        with_attrs: bool,
        mut take: impl FnMut(&Entry) -> bool + Send + 'static,
    ) -> Outcome<DirPage, Option<Attr>> {
        let Some(drafts) = self.drafts.as_ref().filter(|drafts| !drafts.is_idle() && with_attrs)
        else {
            return self.overlay.readdir(caller, dir, cookie, with_attrs, take).await;
        };
        let (drafts, asking) = (Arc::clone(drafts), caller.clone());
        let take = move |entry: &Entry| {
            let mut entry = entry.clone();
            if let Some((_, attr)) = &mut entry.object {
                drafts.show(&asking, attr);
            }
            take(&entry)
        };
        self.overlay.readdir(caller, dir, cookie, with_attrs, take).await
    }

    async fn fsstat(&self, caller: &Caller, object: &Locator) -> Outcome<FsStat, Option<Attr>> {
        let outcome = self.overlay.fsstat(caller, object).await;
        self.show_outcome(caller, outcome)
    }

    async fn fsinfo(&self, caller: &Caller, object: &Locator) -> Outcome<FsInfo, Option<Attr>> {
        let outcome = self.overlay.fsinfo(caller, object).await;
        self.show_outcome(caller, outcome)
    }

    async fn pathconf(&self, caller: &Caller, object: &Locator) -> Outcome<PathConf, Option<Attr>> {
        let outcome = self.overlay.pathconf(caller, object).await;
        self.show_outcome(caller, outcome)
    }

    async fn commit(&self, caller: &Caller, object: &Locator) -> Outcome<WriteVerifier, Wcc> {
        let Some(drafts) = &self.drafts else { return self.overlay.commit(caller, object).await };
        if let Some(outcome) = drafts.commit(caller, object).await {
            return outcome;
        }
        let Outcome { result, context } = self.overlay.commit(caller, object).await;
        Outcome { result: result.map(|verifier| drafts.verifier(verifier)), context }
    }
}

impl ValidatingOverlay {
    /// Wcc data as the client of a draft sees it.
    fn show_wcc(&self, caller: &Caller, wcc: Wcc) -> Wcc {
        let Some(attr) = wcc.after else { return wcc };
        let shown = self.show(caller, attr.clone());
        // The client's cached attributes are those of its draft.
        let before = if shown == attr { wcc.before } else { None };
        Wcc { before, after: Some(shown) }
    }
}
