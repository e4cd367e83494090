//! The sandbox of a command of `run` ([decision 0047]).
//!
//! `tree` makes all mounts of the namespace read-only except the session and named directories.
//! `confine` drops the rights of the process that runs the command; Landlock keeps the command from
//! changing the mounts.
//!
//! [decision 0047]: ../../../docs/decisions/0047-a-mount-namespace-for-run.md

pub(crate) mod confine;
pub(super) mod dev;
pub(super) mod tree;

use std::path::PathBuf;

/// Which directories a sandboxed command can use; the paths are resolved.
#[derive(Debug, Clone, Default)]
pub(crate) struct Confinement {
    /// These can be written to.
    pub(crate) allow_write: Vec<PathBuf>,
    /// These show empty.
    pub(crate) deny_read: Vec<PathBuf>,
}

/// The private temporary directory of a sandbox.
pub(crate) const TMP: &str = "/tmp";
