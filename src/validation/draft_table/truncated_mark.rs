//! Marks of files that were truncated to zero long before any content arrives. A shell truncates
//! the target of a redirection, and the program may write much later.
//!
//! If empty content is invalid, the old content stays visible until then. New content must not be
//! mixed with it, so the mark remains when the draft is discarded. A mark does not count as a
//! draft, and is evicted before a new draft is refused.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::validation::violation::Violation;
use crate::vfs::{Caller, Locator};

use super::{DraftEntry, DraftKey, DraftState, DraftTable, OpenDraft, Published};

/// The mark of a file that was truncated to zero.
pub(super) struct TruncatedMark {
    /// The caller that truncated the file.
    caller: Caller,
    file: Locator,
    pub(super) since: Instant,
}

impl TruncatedMark {
    /// The mark that replaces an idle draft, if the draft only truncated the file to zero.
    pub(super) fn of(open: &OpenDraft) -> Option<Self> {
        // If the client is shown an empty file, the empty content was valid, so publishing failed
        // otherwise.
        let is_cut = open.is_emptied() && open.shown_by_all().is_none();
        let (caller, file) = (open.caller.clone(), open.file.clone());
        is_cut.then_some(Self { caller, file, since: open.changed })
    }
}

impl<P: Published> DraftTable<P> {
    /// Logs that the truncation was dropped and the old content stays.
    pub(super) async fn give_up(&self, cut: &TruncatedMark) {
        let what = Violation::new("given up: cut to nothing, and no content came");
        self.refuse(&cut.caller, &cut.file, &what).await;
    }

    /// Evicts the oldest mark to make space for an entry of a client; returns whether there was
    /// one.
    pub(super) fn make_room(
        self: &Arc<Self>,
        entries: &mut HashMap<DraftKey, Arc<DraftEntry>>,
        client: IpAddr,
    ) -> bool {
        let is_own = self.has_many(entries, client);
        let all = entries.iter().filter(|(key, _)| !is_own || key.client == client);
        let cut = all.filter_map(|(key, entry)| Some((*key, cut_since(entry)?)));
        let Some((first, _)) = cut.min_by_key(|(_, since)| *since) else { return false };
        if let Some(entry) = entries.remove(&first) {
            let desk = Arc::clone(self);
            tokio::spawn(async move {
                if let DraftState::Cut(cut) = &*entry.state.lock().await {
                    desk.give_up(cut).await;
                }
            });
        }
        true
    }
}

/// When the file was truncated, if the entry is only a mark and is not in use.
fn cut_since(entry: &Arc<DraftEntry>) -> Option<Instant> {
    let state = entry.state.try_lock().ok()?;
    match &*state {
        DraftState::Cut(cut) if Arc::strong_count(entry) == 1 => Some(cut.since),
        _ => None,
    }
}
