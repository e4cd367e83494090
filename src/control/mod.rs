//! Requests to a session besides NFS: changes by path, and the state of its server.
//!
//! One function, [`perform`], executes a request in one of two places: in the server that has the
//! session, which is reached over a Unix socket beside the session file ([`Listener`],
//! [`ControlConnection`]), or in this process if no server has it. So NFS clients see such a change
//! like any other, and a session never has two writers.
//!
//! The socket is restricted to the session's owner: mode 0600, and both ends check the other's uid.
//! The server of an exports file has a socket beside that file too, for its table of exports
//! ([`ExportsListener`], [`ExportsConnection`]).
//!
//! Messages are JSON between programs of one version, not a public interface.

mod bound_socket;
mod bulk;
mod checkpoint_text;
mod client;
mod connection;
mod content;
mod copy_to_drop;
mod exports_listener;
mod exports_request;
mod files;
mod frame;
pub mod limits;
mod listener;
mod peer;
mod perform;
mod refusal;
mod registry;
mod request;
mod server_status;
mod socket;
mod step_text;
mod usage;
mod writing;

pub use checkpoint_text::{CheckpointText, RestoreAnswer, RestorePathsText};
pub use client::{ConnectError, ControlConnection, ControlError};
pub use connection::StopListener;
pub use content::{ContentPart, ContentSource, Nothing, Reading};
pub use copy_to_drop::{CopyToDrop, SeenBase};
pub use exports_listener::{Answering, ExportsConnection, ExportsControl, ExportsListener};
pub use exports_request::{
    ExpiryText, ExportText, ExportsAnswer, ExportsRequest, MAX_LISTED_EXPORTS, SessionUse,
};
pub use listener::{About, CheckMerge, ConnectionCount, Listener, MergeCheck, RestoreCheck};
pub use perform::perform;
pub use refusal::{Refusal, RefusalAdvice};
pub use registry::{Registered, RegistryEntry, entries};
pub use request::{
    Answer, AppliedObject, AttrChanges, Bound, ItemKind, MakeItem, PathText, Request, WriteHow,
};
pub use server_status::{ControlPeer, ServerStatus};
pub use socket::path as control_socket;
pub use step_text::{MAX_STEP_BYTES, write_step};
pub use usage::{ExportUsage, ExportsUsage, SessionUsage, UsageReport};
