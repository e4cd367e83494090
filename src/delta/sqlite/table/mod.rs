//! One file per table of the session, and the schema.
//!
//! No policy: these functions run in the caller's transaction; the caller decides when to commit.

pub mod applies_since;
pub mod audit_bound;
pub mod call_bounds;
pub mod checkpoint;
pub mod checkpoint_keep;
pub mod checkpoint_space;
pub mod chunk;
pub mod copy_up;
pub mod dentry;
pub mod dentry_ids;
pub mod hide;
pub mod incomplete;
pub mod inode;
pub mod inode_numbers;
mod later_objects;
pub mod link;
pub mod log_keep;
pub mod meta;
pub mod old_content;
pub mod old_foreign;
pub mod old_pieces;
pub mod old_restore;
mod old_restore_paths;
pub mod old_rows;
pub mod op;
pub mod opaque;
pub mod origin;
pub mod original;
pub mod past;
mod path_branches;
pub mod prune;
pub mod quota;
pub mod redirect;
pub mod removed_checkpoints;
pub mod replica;
pub mod restore_rows;
pub mod schema;
pub mod symlink;
pub mod tree_sum;
pub mod undone_rows;
pub mod value;
pub mod whiteout;
