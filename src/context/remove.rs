//! Removing a node.

use super::Nodes;
use super::change::{Change, Part, carry_out, settle};
use super::error::{ContextError, Result};
use super::event::Event;
use super::files::Files;
use super::limits::CONTENT_BYTES;
use super::meta::Status;
use super::node::{CONTENT, Known, known};
use super::put::{Changed, pending_bytes};
use super::uri::Uri;

impl<F: Files> Nodes<F> {
    /// Removes a node, in whatever status it is. Its directory stays with the outbox until its
    /// events are acknowledged; what is in it besides stays too.
    ///
    /// # Errors
    /// There is none, or the files fail.
    pub fn remove(&mut self, uri: &Uri) -> Result<Changed> {
        self.check(uri)?;
        settle(&mut self.files, uri)?;
        let before = known(&mut self.files, uri)?;
        if before == Known::Nothing {
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
        let visible = before.meta().filter(|meta| meta.status() == Status::Active);
        let pending = visible.map(|meta| (Part::Pending, pending_bytes(meta)));
        let stamp = self.stamp()?;
        let change =
            Change { parts: pending.into_iter().collect(), event: Event::delete(&stamp, uri) };
        carry_out(&mut self.files, uri, &change)?;
        Ok(Changed { uri: uri.clone(), version: None, event: change.event })
    }
}
