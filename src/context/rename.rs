//! Moves a node to another URI of its account.

use super::Nodes;
use super::change::{NodeChange, Recovery, StagedPart, carry_out, settle};
use super::error::{ContextError, Result};
use super::event::Event;
use super::files::Files;
use super::node::{MetaState, OUTBOX, read_meta, relations, visible};
use super::outbox::clear;
use super::put::{PutOutcome, pending_bytes};
use super::uri::Uri;

impl<F: Files> Nodes<F> {
    /// Moves a visible node with its outbox, which gets the event of the move last. The node gets
    /// the next version. Edges of other nodes that point to the old URI stay unchanged.
    ///
    /// # Errors
    /// The node is not visible, the target exists or belongs to another account, or the files fail.
    pub fn rename(&mut self, from: &Uri, to: &Uri) -> Result<PutOutcome> {
        self.check(from)?;
        self.check_same(from, to)?;
        if to == from {
            return Err(in_the_way(to, "is the same node"));
        }
        settle(&mut self.files, from)?;
        settle(&mut self.files, to)?;
        let before = visible(&mut self.files, from)?;
        self.check_free(from, to)?;
        let mut edges = relations(&mut self.files, from)?.unwrap_or_default();
        edges.set_from(to);
        let stamp = self.stamp()?;
        let mut meta = before.clone().next(&stamp.time());
        meta.set_uri(to);
        let change = NodeChange {
            parts: vec![
                (StagedPart::Pending, pending_bytes(before)),
                (StagedPart::Relations, edges.to_bytes()),
                (StagedPart::Meta, meta.to_bytes()),
            ],
            event: Event::moved(&stamp, from, to),
        };
        if carry_out(&mut self.files, from, &change)? == Recovery::RolledBack {
            // A client created something at the target in between.
            self.repair_node(from)?;
            return Err(in_the_way(to, "is taken"));
        }
        Ok(PutOutcome { uri: to.clone(), version: Some(meta.version()), event: change.event })
    }

    /// Refuses two URIs of different accounts.
    pub(super) fn check_same(&self, from: &Uri, to: &Uri) -> Result<()> {
        match from.account() == to.account() {
            true => Ok(()),
            false => Err(ContextError::Account {
                uri: to.to_string(),
                account: from.account().to_owned(),
            }),
        }
    }

    /// Refuses a node with directories below it, and a target that is taken.
    fn check_free(&mut self, from: &Uri, to: &Uri) -> Result<()> {
        let (source, target) = (from.path(), to.path());
        if target.starts_with(&format!("{source}/")) {
            return Err(in_the_way(to, "is below the node itself"));
        }
        let own = self.files.list(&source)?.unwrap_or_default();
        if own.iter().any(|entry| entry.is_dir && entry.name != OUTBOX) {
            return Err(in_the_way(from, "has directories below it, which would move along"));
        }
        clear(&mut self.files, to)?;
        let there = self.files.list(&target)?.unwrap_or_default();
        if read_meta(&mut self.files, to)? != MetaState::Nothing {
            return Err(in_the_way(to, "there is a node already"));
        }
        match &there[..] {
            [] => Ok(()),
            [outbox] if outbox.name == OUTBOX => {
                Err(ContextError::Unacknowledged { uri: to.clone() })
            }
            _ => Err(in_the_way(to, "there is something already")),
        }
    }
}

fn in_the_way(uri: &Uri, what: &'static str) -> ContextError {
    ContextError::InTheWay { uri: uri.clone(), what }
}
