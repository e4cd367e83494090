//! What a sandboxed command of `run` may reach ([decision 0047]).
//!
//! `tree` makes the mounts of the command's namespace: all read-only but the session and what is
//! named. `confine` takes rights away from the process that runs the command, with Landlock first,
//! so that no command can change the mounts again.
//!
//! [decision 0047]: ../../../../docs/decisions/0047-a-mount-namespace-for-run.md

pub(in crate::cli) mod confine;
pub(super) mod dev;
pub(super) mod tree;

/// The directory that a sandbox has for itself.
pub(in crate::cli) const TMP: &str = "/tmp";
