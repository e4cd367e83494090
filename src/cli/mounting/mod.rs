//! Serves and mounts in one step, for `mount`, `umount` and `run`.
//!
//! `attach` mounts and `detach` unmounts. `point` is the directory by its descriptor (found by
//! `walk`, or created by `private`). `place` checks the directory, `privilege` the right to mount.
//! `call` mounts by the system's means (mount(8) through `stage`), `table` reads the mount table.
//! `server` starts a server in the background as `user`. `note` records which session is mounted
//! where, `busy` finds the users of a mount, and `mount_lock` serializes commands. `namespace` is
//! the mount namespace of one `run`, `inside` finds its processes, `sandbox` restricts them.

pub(super) mod address;
pub(super) mod attach;
mod call;
pub(super) mod detach;
pub(super) mod mount_lock;
mod mount_users;
#[cfg(target_os = "linux")]
pub(super) mod namespace;
mod namespace_processes;
pub(super) mod note;
pub(super) mod place;
pub(super) mod point;
pub(super) mod private;
pub(super) mod privilege;
#[cfg(target_os = "linux")]
pub(super) mod sandbox;
pub(super) mod self_mount;
mod served;
mod server;
#[cfg(target_os = "linux")]
mod stage;
pub(super) mod table;
pub(super) mod user;
#[cfg(target_os = "linux")]
mod walk;
