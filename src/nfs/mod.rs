//! The NFSv3, MOUNT and NLM procedures: decode the arguments, call [`Vfs`] once, encode the result.
//!
//! One file per family of procedures. The filesystem decides about files: names, permissions,
//! existence. This module decides only what belongs to the protocol: handles, reply sizes, transfer
//! limits, status codes.
//!
//! This module does not know sockets, RPC headers or the origin of files.

mod attr;
mod create;
mod fsinfo;
mod getattr_setattr;
mod handle;
pub mod lock;
mod lookup;
mod mount;
mod read_write;
mod readdir;
mod remove_rename;
mod status;

use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;

use crate::vfs::{Attr, Caller, FsError, Outcome, Vfs, Wcc};
use crate::wire::nfs3::results::Reply;
use crate::wire::nfs3::{PostOpAttr, Procedure, WccData};
use crate::wire::xdr::{Decode, Decoder, Encode, Encoder, XdrError};

pub use crate::wire::nfs3::FileHandle;
pub use handle::{HandleCodec, Handles};
pub use lock::Nlm;
pub use mount::{MAX_REMEMBERED_MOUNTS, MountProgram};
pub use status::{to_lock_status, to_mount_status, to_status};

/// Why a call has no result; both are RPC errors (RFC 5531 §9, `accept_stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The arguments cannot be decoded (`GARBAGE_ARGS`).
    #[error("arguments cannot be decoded: {0}")]
    GarbageArgs(#[from] XdrError),
    /// The procedure does not exist (`PROC_UNAVAIL`).
    #[error("no such procedure")]
    ProcedureUnavailable,
}

/// The result of a handler: a reply, or an error without attributes from before the `Vfs` call.
type HandlerResult<T, F> = Result<Reply<T, F>, FsError>;

/// The NFS program, version 3.
#[derive(Debug)]
pub struct Nfs<V, H = HandleCodec> {
    vfs: Arc<V>,
    handles: H,
}

impl<V: Vfs, H: Handles<V::Object>> Nfs<V, H> {
    /// Serves `vfs`; `handles` encodes its file handles.
    pub fn new(vfs: Arc<V>, handles: H) -> Self {
        Self { vfs, handles }
    }

    /// Executes a procedure; arguments and results are encoded.
    pub async fn call(
        &self,
        caller: &Caller,
        procedure: u32,
        args: Bytes,
    ) -> Result<Encoder, CallError> {
        let procedure = Procedure::from_number(procedure).ok_or(CallError::ProcedureUnavailable)?;
        Ok(match procedure {
            Procedure::Null => encode(&<()>::decode_all(args)?),
            Procedure::Getattr => answer(self.getattr(caller, decode(args)?).await),
            Procedure::Setattr => answer(self.setattr(caller, decode(args)?).await),
            Procedure::Lookup => answer(self.lookup(caller, decode(args)?).await),
            Procedure::Access => answer(self.access(caller, decode(args)?).await),
            Procedure::Readlink => answer(self.readlink(caller, decode(args)?).await),
            Procedure::Read => answer(self.read(caller, decode(args)?).await),
            Procedure::Write => answer(self.write(caller, decode(args)?).await),
            Procedure::Create => answer(self.create(caller, decode(args)?).await),
            Procedure::Mkdir => answer(self.mkdir(caller, decode(args)?).await),
            Procedure::Symlink => answer(self.symlink(caller, decode(args)?).await),
            Procedure::Mknod => answer(self.mknod(caller, decode(args)?).await),
            Procedure::Remove => answer(self.remove(caller, decode(args)?).await),
            Procedure::Rmdir => answer(self.rmdir(caller, decode(args)?).await),
            Procedure::Rename => answer(self.rename(caller, decode(args)?).await),
            Procedure::Link => answer(self.link(caller, decode(args)?).await),
            Procedure::Readdir => answer(self.readdir(caller, decode(args)?).await),
            Procedure::Readdirplus => answer(self.readdirplus(caller, decode(args)?).await),
            Procedure::Fsstat => answer(self.fsstat(caller, decode(args)?).await),
            Procedure::Fsinfo => answer(self.fsinfo(caller, decode(args)?).await),
            Procedure::Pathconf => answer(self.pathconf(caller, decode(args)?).await),
            Procedure::Commit => answer(self.commit(caller, decode(args)?).await),
        })
    }

    /// Whether the export of the object in these arguments refuses calls without credentials.
    pub fn refuses_anonymous(&self, args: &Bytes) -> bool {
        self.object_of(args).is_some_and(|object| !self.vfs.takes_anonymous(&object))
    }

    /// The [`Vfs::export_number`] of the object in these arguments.
    pub fn export_of(&self, args: &Bytes) -> Option<NonZeroU64> {
        self.object_of(args).map(|object| self.vfs.export_number(&object))
    }

    /// The object whose handle begins the arguments, as in all procedures but NULL.
    fn object_of(&self, args: &Bytes) -> Option<V::Object> {
        let handle = FileHandle::decode(&mut Decoder::new(args.clone())).ok()?;
        self.handles.decode(&handle).ok()
    }

    /// Fails a change with invalid arguments before it starts; returns the object's attributes.
    async fn refuse<T>(
        &self,
        caller: &Caller,
        object: &V::Object,
        error: FsError,
    ) -> HandlerResult<T, WccData> {
        let attr = self.vfs.getattr(caller, object).await.ok();
        Ok(Reply::Fail(to_status(error), attr::wcc(Wcc::unchanged(attr))))
    }
}

fn decode<T: Decode>(args: Bytes) -> Result<T, CallError> {
    Ok(T::decode_all(args)?)
}

fn encode<T: Encode>(value: &T) -> Encoder {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder
}

fn answer<T: Encode, F: Encode + Default>(answer: HandlerResult<T, F>) -> Encoder {
    encode(&answer.unwrap_or_else(|error| Reply::Fail(to_status(error), F::default())))
}

/// Encodes an outcome of the filesystem: `context` converts the attributes, which `value` adds to a
/// success.
fn reply<T, C, R, F>(
    outcome: Outcome<T, C>,
    context: impl FnOnce(C) -> F,
    value: impl FnOnce(T, F) -> R,
) -> Reply<R, F> {
    let context = context(outcome.context);
    match outcome.result {
        Ok(given) => Reply::Ok(value(given, context)),
        Err(error) => Reply::Fail(to_status(error), context),
    }
}

/// [`reply`] if the context is an object's attributes.
fn reply_post_op<T, R>(
    outcome: Outcome<T, Option<Attr>>,
    value: impl FnOnce(T, PostOpAttr) -> R,
) -> Reply<R, PostOpAttr> {
    reply(outcome, attr::post_op, value)
}

/// [`reply`] if the context is wcc data.
fn reply_wcc<T, R>(
    outcome: Outcome<T, Wcc>,
    value: impl FnOnce(T, WccData) -> R,
) -> Reply<R, WccData> {
    reply(outcome, attr::wcc, value)
}
