//! Walks and lists nodes.

use super::Nodes;
use super::error::{ContextError, Result};
use super::files::Reads;
use super::limits::{LISTED, OVERVIEW_BYTES};
use super::meta::{NodeMeta, NodeStatus};
use super::node::{ABSTRACT, MetaState, read_meta, text};
use super::uri::{Uri, UriPrefix};

/// A node in a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedNode {
    /// URI of the node.
    pub uri: Uri,
    /// Status; BROKEN if `.meta.json` is invalid.
    pub status: NodeStatus,
    /// The metadata; `None` if `.meta.json` is invalid.
    pub meta: Option<NodeMeta>,
    /// L0, if the node is visible.
    pub abstract_text: Option<String>,
}

impl<R: Reads> Nodes<R> {
    /// The visible nodes below a prefix, ordered by path. With `all`, all nodes that have a status.
    ///
    /// # Errors
    /// The prefix is not in the caller's account, there are more than [`LISTED`] nodes, or they
    /// cannot be read.
    pub fn list(&mut self, prefix: &UriPrefix, all: bool) -> Result<Vec<ListedNode>> {
        self.check_prefix(prefix)?;
        let mut listed = Vec::new();
        walk(&mut self.files, prefix, &mut |files, uri| {
            let (status, meta) = match read_meta(files, uri)? {
                MetaState::Nothing => return Ok(()),
                MetaState::Invalid(_) => (NodeStatus::Broken, None),
                MetaState::Meta(meta) => (meta.status(), Some(meta)),
            };
            let is_visible = status == NodeStatus::Active;
            if !is_visible && !all {
                return Ok(());
            }
            let abstract_text = match is_visible {
                true => text(files, &uri.path(), ABSTRACT, OVERVIEW_BYTES).unwrap_or_default(),
                false => None,
            };
            listed.push(ListedNode { uri: uri.clone(), status, meta, abstract_text });
            at_most(listed.len(), prefix)
        })?;
        Ok(listed)
    }
}

/// Refuses a listing of more than [`LISTED`] entries.
pub(super) fn at_most(listed: usize, prefix: &UriPrefix) -> Result<()> {
    match listed {
        ..=LISTED => Ok(()),
        _ => Err(ContextError::Invalid {
            what: format!("{prefix}: more than {LISTED} to list"),
            hint: Some("ask for less at a time, with a longer prefix"),
        }),
    }
}

/// A visitor of [`walk`].
type Visit<'a, R> = &'a mut dyn FnMut(&mut R, &Uri) -> Result<()>;

/// Calls `visit` for each directory below a prefix that can be a node's.
pub(super) fn walk<R: Reads>(files: &mut R, at: &UriPrefix, visit: Visit<'_, R>) -> Result<()> {
    if let Some(uri) = at.node() {
        visit(files, &uri)?;
    }
    // Only `profile` can have nodes below it.
    if at.node().is_some() && at.join("_").is_none() {
        return Ok(());
    }
    let mut entries = files.list(&at.path())?.unwrap_or_default();
    entries.retain(|entry| entry.is_dir);
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    for entry in entries {
        if let Some(below) = at.join(&entry.name) {
            walk(files, &below, visit)?;
        }
    }
    Ok(())
}
