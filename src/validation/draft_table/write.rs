//! Operations on drafts: WRITE, SETATTR of the size, COMMIT.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::vfs::{
    Attr, Caller, FsError, Locator, Outcome, Stability, Wcc, WccAttr, WriteVerifier, Written,
};

use super::publish::DraftFailure;
use super::{
    Draft, DraftEntry, DraftState, DraftTable, DraftView, OpenDraft, Published, key, lock,
};
use crate::validation::limits::MAX_ATTEMPTS;
use crate::validation::resources::NotAccepted;

impl<P: Published> DraftTable<P> {
    pub(super) async fn write_now(
        self: &Arc<Self>,
        (caller, file): (&Caller, &Locator),
        attr: Option<Attr>,
        (offset, data): (u64, &[u8]),
        stability: Stability,
    ) -> Outcome<Written, Wcc> {
        let refused = |error| Outcome::err(error, Wcc { before: None, after: attr.clone() });
        let Some(entry) = self.entry(key(caller, file)) else {
            return refused(FsError::TryLater);
        };
        let mut state = entry.state.lock().await;
        self.end_outdated(&entry, &mut state).await;
        let is_unstable = stability == Stability::Unstable;
        if let DraftState::Refused { error, at } = &mut *state
            && is_unstable
        {
            *at = Instant::now();
            return refused(*error);
        }
        let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
        for _ in 0..MAX_ATTEMPTS {
            let (mut open, before, begun) = match self.opened(&mut state, caller, file, None).await
            {
                Ok(opened) => opened,
                Err(error) => return refused(error),
            };
            if let Err(failed) = self.put(&mut open, caller, (offset, data), is_unstable).await {
                let error = self.fail_draft(&entry, &mut state, open, failed, is_unstable).await;
                return refused(error);
            }
            if is_unstable {
                let after = self.keep(&entry, &mut state, open, attr);
                let verifier = self.verifier(self.parts.tree.verifier());
                let written = Written { count, committed: Stability::Unstable, verifier };
                return Outcome::ok(written, Wcc { before: Some(before), after });
            }
            let ctime = begun.then_some(before.ctime);
            match self.settle(&mut open, ctime).await {
                Ok((verifier, after)) => {
                    *lock(&entry.shown) = None;
                    let written = Written { count, committed: Stability::FileSync, verifier };
                    return Outcome::ok(written, Wcc { before: Some(before), after });
                }
                // Another draft was just published: the piece is applied to its content.
                Err(DraftFailure::Changed) => {}
                Err(failed) => {
                    let error = self.fail_draft(&entry, &mut state, open, failed, false).await;
                    return refused(error);
                }
            }
        }
        refused(FsError::TryLater)
    }

    pub(super) async fn set_size_now(
        self: &Arc<Self>,
        (caller, file): (&Caller, &Locator),
        attr: Attr,
        size: u64,
    ) -> Outcome<(), Wcc> {
        let refused = |error| Outcome::err(error, Wcc { before: None, after: Some(attr.clone()) });
        let Some(entry) = self.entry(key(caller, file)) else {
            return refused(FsError::TryLater);
        };
        let mut state = entry.state.lock().await;
        self.end_outdated(&entry, &mut state).await;
        if (size, attr.size) == (0, 0) && !matches!(*state, DraftState::Open(_)) {
            *state = DraftState::Nothing;
            return Outcome::ok((), Wcc::unchanged(Some(attr)));
        }
        let opened = self.opened(&mut state, caller, file, Some(size)).await;
        let (mut open, before, begun) = match opened {
            Ok(opened) => opened,
            Err(error) => return refused(error),
        };
        let fits = open.room.resize(size);
        match open.draft.set_size(size) {
            Ok(()) if fits => {}
            outcome => {
                if !begun {
                    *state = DraftState::Open(open);
                }
                return refused(outcome.err().unwrap_or(FsError::TryLater));
            }
        }
        self.stamp(&mut open, caller);
        let after = self.keep(&entry, &mut state, open, Some(attr));
        Outcome::ok((), Wcc { before: Some(before), after })
    }

    /// COMMIT; `None` if there is no draft.
    pub(super) async fn commit_now(
        &self,
        entry: &DraftEntry,
        file: &Locator,
    ) -> Option<Outcome<WriteVerifier, Wcc>> {
        let mut state = entry.state.lock().await;
        self.end_outdated(entry, &mut state).await;
        let error = match std::mem::take(&mut *state) {
            DraftState::Nothing => return None,
            DraftState::Cut(cut) => {
                *state = DraftState::Cut(cut);
                return None;
            }
            DraftState::Refused { error, .. } => {
                *state = DraftState::Refused { error, at: Instant::now() };
                error
            }
            DraftState::Open(mut open) => {
                let before = Some(open.shown.before());
                match self.settle(&mut open, None).await {
                    Ok((verifier, after)) => {
                        *lock(&entry.shown) = None;
                        return Some(Outcome::ok(verifier, Wcc { before, after }));
                    }
                    Err(failed) => self.fail_draft(entry, &mut state, open, failed, false).await,
                }
            }
        };
        let seen = self.parts.tree.look(file).await.ok();
        Some(Outcome::err(error, Wcc { before: None, after: seen.map(|seen| seen.attr) }))
    }

    /// Takes the draft out of `state`, or starts one over the published content. Returns also the
    /// attributes that the writer saw before, and whether the draft is new and not marked as
    /// truncated. A draft that starts empty does not read the old content.
    async fn opened(
        &self,
        state: &mut DraftState,
        caller: &Caller,
        file: &Locator,
        size: Option<u64>,
    ) -> Result<(Box<OpenDraft>, WccAttr, bool), FsError> {
        let is_cut = matches!(state, DraftState::Cut(_));
        // On an error, the mark of a truncated file must stay.
        if !is_cut && let DraftState::Open(open) = std::mem::take(state) {
            let before = open.shown.before();
            return Ok((open, before, false));
        }
        let tree = &self.parts.tree;
        let tree_changes = tree.tree_changes();
        let (seen, content) = match size {
            _ if is_cut => (tree.look(file).await?, Vec::new()),
            Some(0) => (tree.look(file).await?, Vec::new()),
            _ => tree.read(file).await?,
        };
        let room = self.parts.resources.draft(content.len() as u64).ok_or(FsError::TryLater)?;
        let open = OpenDraft {
            draft: Draft::over(content),
            room,
            caller: caller.clone(),
            file: file.clone(),
            validators: self.validators_of(&seen.paths),
            shown: DraftView { size: seen.attr.size, time: seen.attr.ctime.max(seen.attr.mtime) },
            tree_changes,
            changed: Instant::now(),
            has_pieces: false,
            is_tried: false,
        };
        *state = DraftState::Nothing;
        Ok((Box::new(open), (&seen.attr).into(), !is_cut))
    }

    /// Writes a piece to a draft and checks the lines that it completes.
    async fn put(
        &self,
        open: &mut OpenDraft,
        caller: &Caller,
        (offset, data): (u64, &[u8]),
        is_unstable: bool,
    ) -> Result<(), DraftFailure> {
        let size = open.draft.size_after(offset, data.len()).map_err(DraftFailure::Because)?;
        if !open.room.resize(size) {
            return Err(DraftFailure::Because(FsError::TryLater));
        }
        let piece = open.draft.write(offset, data).map_err(DraftFailure::Because)?;
        self.stamp(open, caller);
        open.has_pieces |= is_unstable;
        if open.validators.iter().any(|validator| validator.is_by_line()) {
            self.check_lines(open, &piece).await?;
        }
        Ok(())
    }

    /// Checks the lines that `piece` completed or changed.
    async fn check_lines(
        &self,
        open: &OpenDraft,
        piece: &Range<usize>,
    ) -> Result<(), DraftFailure> {
        let Some(lines) = open.draft.arrived_lines(piece) else { return Ok(()) };
        let content = Bytes::copy_from_slice(lines.bytes());
        let resources = &self.parts.resources;
        for validator in open.validators.iter().filter(|validator| validator.is_by_line()) {
            let checked = resources.check(validator, b"", &content).await;
            checked.map_err(|fault| match fault {
                NotAccepted::Refused(violation) => DraftFailure::Refused(lines.placed(violation)),
                NotAccepted::Busy => DraftFailure::Because(FsError::TryLater),
            })?;
        }
        Ok(())
    }

    /// Updates the times and the last caller of a draft after a change.
    fn stamp(&self, open: &mut OpenDraft, caller: &Caller) {
        let time = (self.parts.clock)().max(open.shown.time.next());
        open.shown = DraftView { size: open.draft.content().len() as u64, time };
        open.caller = caller.clone();
        open.changed = Instant::now();
        open.is_tried = false;
    }

    /// Returns a draft to `state`. Returns `attr` as the draft's writer sees the file.
    fn keep(
        &self,
        entry: &DraftEntry,
        state: &mut DraftState,
        open: Box<OpenDraft>,
        mut attr: Option<Attr>,
    ) -> Option<Attr> {
        if let Some(attr) = &mut attr {
            open.shown.apply(attr);
        }
        *lock(&entry.shown) = open.shown_by_all();
        *state = DraftState::Open(open);
        attr
    }
}
