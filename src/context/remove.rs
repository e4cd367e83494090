//! Removes a node.

use super::Nodes;
use super::change::{NodeChange, StagedPart, carry_out, settle};
use super::error::{ContextError, Result};
use super::event::Event;
use super::files::Files;
use super::limits::CONTENT_BYTES;
use super::meta::NodeStatus;
use super::node::{CONTENT, MetaState, read_meta};
use super::put::{PutOutcome, pending_bytes};
use super::uri::Uri;

impl<F: Files> Nodes<F> {
    /// Removes a node in any status. The directory stays until its events are acknowledged. Other
    /// files in it stay, too.
    ///
    /// # Errors
    /// The node does not exist, or the files fail.
    pub fn remove(&mut self, uri: &Uri) -> Result<PutOutcome> {
        self.check(uri)?;
        settle(&mut self.files, uri)?;
        let before = read_meta(&mut self.files, uri)?;
        if before == MetaState::Nothing {
            let content = format!("{}/{CONTENT}", uri.path());
            let content = self.files.read(&content, CONTENT_BYTES);
            if matches!(content, Ok(None)) {
                return Err(ContextError::NoNode {
                    uri: uri.clone(),
                    status: None,
                    is_changing: false,
                });
            }
        }
        let visible = before.meta().filter(|meta| meta.status() == NodeStatus::Active);
        let pending = visible.map(|meta| (StagedPart::Pending, pending_bytes(meta)));
        let stamp = self.stamp()?;
        let change =
            NodeChange { parts: pending.into_iter().collect(), event: Event::delete(&stamp, uri) };
        carry_out(&mut self.files, uri, &change)?;
        Ok(PutOutcome { uri: uri.clone(), version: None, event: change.event })
    }
}
