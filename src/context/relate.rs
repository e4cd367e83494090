//! Adds an edge to a node.

use super::Nodes;
use super::change::{NodeChange, StagedPart, carry_out, settle};
use super::error::Result;
use super::event::Event;
use super::files::Files;
use super::node::{relations, visible};
use super::put::{PutOutcome, pending_bytes};
use super::relation::Relation;
use super::uri::Uri;

impl<F: Files> Nodes<F> {
    /// Adds an edge from a visible node to another one of the same account. Replaces an edge of the
    /// same type to the same node. The node gets the next version.
    ///
    /// # Errors
    /// A node is not visible or belongs to another account, the edge is invalid, or the files fail.
    pub fn relate(&mut self, from: &Uri, relation: &Relation) -> Result<PutOutcome> {
        self.check(from)?;
        self.check_same(from, &relation.to)?;
        settle(&mut self.files, from)?;
        settle(&mut self.files, &relation.to)?;
        let before = visible(&mut self.files, from)?;
        visible(&mut self.files, &relation.to)?;
        let mut edges = relations(&mut self.files, from)?.unwrap_or_default();
        let edge = edges.add(from, relation)?;
        let stamp = self.stamp()?;
        let meta = before.clone().next(&stamp.time());
        let change = NodeChange {
            parts: vec![
                (StagedPart::Pending, pending_bytes(before)),
                (StagedPart::Relations, edges.to_bytes()),
                (StagedPart::Meta, meta.to_bytes()),
            ],
            event: Event::related(&stamp, from, edge),
        };
        carry_out(&mut self.files, from, &change)?;
        Ok(PutOutcome { uri: from.clone(), version: Some(meta.version()), event: change.event })
    }
}
