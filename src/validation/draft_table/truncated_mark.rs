//! Files that were cut to nothing, long before content comes: a shell cuts what it redirects to,
//! and the program may take its time.
//!
//! Where nothing is no valid content, the old content stays until then. What comes must not be
//! mixed with it, so it is kept that the file was cut, after its draft was given up. That takes no
//! room of drafts, and goes before a draft is refused.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::validation::violation::Violation;
use crate::vfs::{Caller, Locator};

use super::{DraftEntry, DraftKey, DraftState, DraftTable, OpenDraft, Published};

/// That a file was cut to nothing.
pub(super) struct TruncatedMark {
    /// Who did that.
    caller: Caller,
    file: Locator,
    pub(super) since: Instant,
}

impl TruncatedMark {
    /// What is left of a draft when it is given up, if it is no more than a file that was cut.
    pub(super) fn of(open: &OpenDraft) -> Option<Self> {
        // What its client is shown as empty could have been published, and was not.
        let is_cut = open.is_emptied() && open.shown_by_all().is_none();
        let (caller, file) = (open.caller.clone(), open.file.clone());
        is_cut.then_some(Self { caller, file, since: open.changed })
    }
}

impl<P: Published> DraftTable<P> {
    /// Says that what was cut stays as it was.
    pub(super) async fn give_up(&self, cut: &TruncatedMark) {
        let what = Violation::new("given up: cut to nothing, and no content came");
        self.refuse(&cut.caller, &cut.file, &what).await;
    }

    /// Makes room for one more entry of a client where there is none: by the file that was cut
    /// first. Returns whether there is room now.
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

/// Since when there is no more in an entry than that its file was cut; not where somebody has it.
fn cut_since(entry: &Arc<DraftEntry>) -> Option<Instant> {
    let state = entry.state.try_lock().ok()?;
    match &*state {
        DraftState::Cut(cut) if Arc::strong_count(entry) == 1 => Some(cut.since),
        _ => None,
    }
}
