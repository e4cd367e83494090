//! What tools and commands need of a session, and no client: the merged tree as a whole, the
//! differences from the base, giving changes up, and sealing.
//!
//! | File | Purpose |
//! |---|---|
//! | `tree`, `lineage` | the merged tree by path; detection of cycles |
//! | `layer`, `data` | the layer over the base alone; content without holes |
//! | `changes`, `originals` | the differences from the base; comparisons with originals |
//! | `discard`, `discard_extent` | give up changes, and what that takes |
//! | `rebase`, `rebase_part`, `rebase_unchanged` | drop rows that the base has |
//! | `rebase_closed` | drops modes that close a directory |
//! | `rebase_links` | what these rows linked elsewhere |
//! | `rebase_moves`, `rebase_originals` | paths of moved objects; originals of applied ones |
//! | `path_rows` | the session's rows for one path |
//! | `prune` | shortens the audit log |
//! | `steps`, `step_trial` | many changes by path in one transaction; what files would have then |
//! | `checkpoint`, `automatic` | make and remove checkpoints; those that the server makes |
//! | `checkpoint_space` | frees what removed checkpoints leave, and bounds them |
//! | `restore`, `restore_paths` | goes back to one, whole or at paths |
//! | `needed_dirs` | directories that exports need where they are |
//! | `seal` | folds our own tables into those of the specification |

pub(super) mod automatic;
pub(super) mod changes;
mod checkpoint;
pub(super) mod checkpoint_space;
pub(super) mod data;
mod discard;
pub(super) mod discard_extent;
mod discard_in_removed;
pub(super) mod layer;
mod lineage;
pub(super) mod needed_dirs;
mod originals;
pub(super) mod path_rows;
mod prune;
pub(super) mod rebase;
mod rebase_closed;
mod rebase_links;
mod rebase_moves;
mod rebase_originals;
pub(super) mod rebase_part;
pub(super) mod rebase_unchanged;
mod restore;
mod restore_paths;
mod row_paths;
pub(super) mod seal;
pub(super) mod step_trial;
pub(super) mod steps;
pub(super) mod tree;
