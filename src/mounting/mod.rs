//! Serves and mounts in one step, for `mount`, `umount` and `run`. Returns data and events, and
//! never prints.
//!
//! `attach` mounts and `detach` unmounts. `point` is the directory by its descriptor (found by
//! `walk`, or created by `private`). `place` checks the directory, `privilege` the right to mount.
//! `call` mounts by the system's means (mount(8) through `stage`), `table` reads the mount table.
//! `server` starts a server in the background as `user`, `served` finds the server of a session,
//! and `address` says how this machine reaches it. `note` records which session is mounted where,
//! `mount_users` finds the processes that use a mount, and `mount_lock` serializes commands.
//! `namespace` is the mount namespace of one `run`, `namespace_processes` finds its processes,
//! `sandbox` restricts them. `client_sync` syncs the mounts of a session.
//! `self_mount` detects a base that shows its own session.

pub(crate) mod address;
pub(crate) mod attach;
mod call;
#[cfg(target_os = "linux")]
pub(crate) mod client_sync;
pub(crate) mod detach;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod mount_lock;
pub(crate) mod mount_users;
#[cfg(target_os = "linux")]
pub(crate) mod namespace;
mod namespace_processes;
pub(crate) mod note;
pub(crate) mod place;
pub(crate) mod point;
pub(crate) mod private;
pub(crate) mod privilege;
#[cfg(target_os = "linux")]
pub(crate) mod sandbox;
pub(crate) mod self_mount;
mod served;
pub(crate) mod server;
#[cfg(target_os = "linux")]
mod stage;
pub(crate) mod table;
pub(crate) mod user;
#[cfg(target_os = "linux")]
mod walk;
