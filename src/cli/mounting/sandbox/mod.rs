//! The sandbox of a command of `run` ([decision 0047]).
//!
//! `tree` makes all mounts of the namespace read-only except the session and named directories.
//! `confine` drops the rights of the process that runs the command; Landlock keeps the command from
//! changing the mounts.
//!
//! [decision 0047]: ../../../../docs/decisions/0047-a-mount-namespace-for-run.md

pub(in crate::cli) mod confine;
pub(super) mod dev;
pub(super) mod tree;

/// The private temporary directory of a sandbox.
pub(in crate::cli) const TMP: &str = "/tmp";
