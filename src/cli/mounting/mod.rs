//! Serving and mounting in one go, for `mount`, `umount` and `run`.
//!
//! `attach` does it and `detach` takes it back; `place` is where may be mounted, `privilege`
//! whether we may, `call` the system's own mounting, `table` what is mounted. `server` starts a
//! server in the background as `user`, `note` remembers which session is mounted where,
//! `busy` who holds on to a mount, and `turn` lets one command at a time do all that.

pub(super) mod attach;
mod busy;
mod call;
pub(super) mod detach;
pub(super) mod note;
pub(super) mod place;
pub(super) mod privilege;
mod served;
mod server;
pub(super) mod table;
pub(super) mod turn;
pub(super) mod user;
