//! Serving and mounting in one go, for `mount`, `umount` and `run`.
//!
//! `attach` does it and `detach` takes it back. `point` is the directory by descriptor (found by
//! `walk`, or made by `private`), `place` whether it will do, `privilege` whether we may mount.
//! `call` is the system's own mounting (mount(8) through `stage`), `table` what is mounted.
//! `server` starts a server in the background as `user`, `note` remembers which session is mounted
//! where, `busy` who holds on to a mount, and `turn` lets one command at a time do all that.
//! `namespace` is the mount namespace of one `run`, `inside` who works in such a namespace, and
//! `sandbox` what is taken away from a command there.

pub(super) mod attach;
mod busy;
mod call;
pub(super) mod detach;
mod inside;
pub(super) mod itself;
pub(super) mod mount_lock;
#[cfg(target_os = "linux")]
pub(super) mod namespace;
pub(super) mod note;
pub(super) mod place;
pub(super) mod point;
pub(super) mod private;
pub(super) mod privilege;
#[cfg(target_os = "linux")]
pub(super) mod sandbox;
mod served;
mod server;
#[cfg(target_os = "linux")]
mod stage;
pub(super) mod table;
pub(super) mod user;
#[cfg(target_os = "linux")]
mod walk;
