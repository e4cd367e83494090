//! What people ask of a session besides NFS: changes by path, and who is connected.
//!
//! One request is performed in one of two places, by the same function ([`perform`]): in the
//! server that has the session, which is asked over a Unix socket beside the session file
//! ([`Listener`], [`ControlConnection`]), or in this process, if no server has the session. So
//! clients of a server see such a change as any other, and two writers never meet.
//!
//! The socket is for the session's owner alone (mode 0600, and both ends check the other's user);
//! its messages are JSON between programs of one version, and no interface for others.

mod bulk;
mod client;
mod content;
mod files;
mod frame;
pub mod limits;
mod listener;
mod peer;
mod perform;
mod registry;
mod request;
mod socket;
mod usage;
mod writing;

pub use client::{ControlConnection, ControlError};
pub use content::{ContentPart, ContentSource, Nothing, Reading};
pub use listener::{About, Listener, StopListener};
pub use perform::perform;
pub use registry::{Registered, RegistryEntry, entries};
pub use request::{
    Answer, AppliedObject, AttrChanges, Bound, ControlPeer, ItemKind, MakeItem, PathText, Refusal,
    Request, ServerStatus, WriteHow,
};
pub use usage::{ExportUsage, ExportsUsage, SessionUsage, UsageReport};
