//! The network lock manager, version 4 (RFC 1813 appendix II; Open Group XNFS chapter 10), as plain
//! data.
//!
//! Contains the synchronous procedures that a server of byte-range locks needs, and not the
//! asynchronous ones (`*_MSG` and `*_RES`).

use bytes::Bytes;

use super::nfs3::FileHandle;
use super::xdr::{Decode, Decoder, Encode, Encoder, Result};

/// RPC program number of the lock manager.
pub const PROGRAM: u32 = 100_021;

/// The NLM version for NFSv3.
pub const VERSION: u32 = 4;

/// The longest opaque, in bytes (`MAXNETOBJ_SZ`).
pub const MAX_NETOBJ_BYTES: usize = 1024;

/// The longest name of a client, in bytes (`LM_MAXSTRLEN`).
pub const MAX_NAME_BYTES: usize = 1024;

/// The synchronous procedures of NLM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NlmProcedure {
    /// Does nothing.
    Null,
    /// Returns the holder of a conflicting lock.
    Test,
    /// Takes a lock.
    Lock,
    /// Withdraws a waiting LOCK.
    Cancel,
    /// Releases a lock.
    Unlock,
    /// Tells a client that its lock is granted; not sent to servers.
    Granted,
    /// Takes a share reservation (DOS).
    Share,
    /// Releases a share reservation.
    Unshare,
    /// LOCK by an unmonitored client.
    NmLock,
    /// Releases all locks of a client.
    FreeAll,
}

impl NlmProcedure {
    /// Decodes a procedure number; `None` for an unsupported one.
    pub fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Null,
            1 => Self::Test,
            2 => Self::Lock,
            3 => Self::Cancel,
            4 => Self::Unlock,
            5 => Self::Granted,
            20 => Self::Share,
            21 => Self::Unshare,
            22 => Self::NmLock,
            23 => Self::FreeAll,
            _ => return None,
        })
    }
}

/// The outcome of a request (`nlm4_stats`). The server has no use for BLOCKED and DEADLCK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum NlmStatus {
    /// Success.
    Granted = 0,
    /// Another owner's lock conflicts, or there is no LOCK to cancel.
    Denied = 1,
    /// The limit on locks is reached.
    DeniedNoLocks = 2,
    /// The client should retry in a few seconds.
    DeniedGracePeriod = 4,
    /// The filesystem is read-only.
    ReadOnly = 6,
    /// The file is gone, or the handle is invalid.
    StaleHandle = 7,
    /// The range exceeds the highest offset of a file.
    TooLarge = 8,
    /// Any other error.
    Failed = 9,
}

/// Identifies a lock (`nlm4_lock`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// The client's name for itself.
    pub caller_name: Bytes,
    /// The file.
    pub handle: FileHandle,
    /// The owner on the client, opaque (`oh`).
    pub owner: Bytes,
    /// The process on the client.
    pub svid: i32,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; 0 means to the end of the file, however it grows.
    pub length: u64,
}

impl Decode for Lock {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self {
            caller_name: from.opaque(MAX_NAME_BYTES)?,
            handle: FileHandle::decode(from)?,
            owner: netobj(from)?,
            svid: from.i32()?,
            offset: from.u64()?,
            length: from.u64()?,
        })
    }
}

/// Arguments of TEST and GRANTED (`nlm4_testargs`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestArgs {
    /// Repeated in the reply.
    pub cookie: Bytes,
    /// Whether the lock excludes all locks of other owners.
    pub exclusive: bool,
    /// The lock.
    pub lock: Lock,
}

impl Decode for TestArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self { cookie: netobj(from)?, exclusive: from.bool()?, lock: Lock::decode(from)? })
    }
}

/// Arguments of LOCK and NM_LOCK (`nlm4_lockargs`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockArgs {
    /// Repeated in the reply.
    pub cookie: Bytes,
    /// Whether the client waits for the lock.
    pub block: bool,
    /// Whether the lock excludes all locks of other owners.
    pub exclusive: bool,
    /// The lock.
    pub lock: Lock,
    /// Whether the client reclaims a lock from before the server's restart.
    pub reclaim: bool,
    /// The client's state number, which changes when the client restarts.
    pub state: i32,
}

impl Decode for LockArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self {
            cookie: netobj(from)?,
            block: from.bool()?,
            exclusive: from.bool()?,
            lock: Lock::decode(from)?,
            reclaim: from.bool()?,
            state: from.i32()?,
        })
    }
}

/// Arguments of CANCEL (`nlm4_cancargs`): those of the waiting LOCK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelArgs {
    /// Repeated in the reply.
    pub cookie: Bytes,
    /// As in the LOCK.
    pub block: bool,
    /// As in the LOCK.
    pub exclusive: bool,
    /// As in the LOCK.
    pub lock: Lock,
}

impl Decode for CancelArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self {
            cookie: netobj(from)?,
            block: from.bool()?,
            exclusive: from.bool()?,
            lock: Lock::decode(from)?,
        })
    }
}

/// Arguments of UNLOCK (`nlm4_unlockargs`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnlockArgs {
    /// Repeated in the reply.
    pub cookie: Bytes,
    /// The range to release: any part of the locked bytes.
    pub lock: Lock,
}

impl Decode for UnlockArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self { cookie: netobj(from)?, lock: Lock::decode(from)? })
    }
}

/// Arguments of SHARE and UNSHARE (`nlm4_shareargs`), without the reservation itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareArgs {
    /// Repeated in the reply.
    pub cookie: Bytes,
}

impl Decode for ShareArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        let cookie = netobj(from)?;
        let _caller_name = from.opaque(MAX_NAME_BYTES)?;
        let _handle = FileHandle::decode(from)?;
        let _owner = netobj(from)?;
        let (_mode, _access) = (from.u32()?, from.u32()?);
        let _reclaim = from.bool()?;
        Ok(Self { cookie })
    }
}

/// Arguments of FREE_ALL (`nlm4_notify`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeAllArgs {
    /// The client's name for itself.
    pub caller_name: Bytes,
    /// As in [`LockArgs::state`].
    pub state: i32,
}

impl Decode for FreeAllArgs {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self { caller_name: from.opaque(MAX_NAME_BYTES)?, state: from.i32()? })
    }
}

/// The result of LOCK, CANCEL, UNLOCK and GRANTED (`nlm4_res`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NlmReply {
    /// From the arguments.
    pub cookie: Bytes,
    /// The outcome.
    pub status: NlmStatus,
}

impl Encode for NlmReply {
    fn encode(&self, to: &mut Encoder) {
        to.put_opaque(&self.cookie);
        to.put_u32(self.status as u32);
    }
}

/// A conflicting lock (`nlm4_holder`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Whether the lock excludes all locks of other owners.
    pub exclusive: bool,
    /// The process on its client.
    pub svid: i32,
    /// The owner on its client, opaque.
    pub owner: Bytes,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; 0 means to the end of the file.
    pub length: u64,
}

/// The result of TEST (`nlm4_testres`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestReply {
    /// Another owner's lock conflicts ([`NlmStatus::Denied`]).
    Denied {
        /// From the arguments.
        cookie: Bytes,
        /// The conflicting lock.
        holder: Holder,
    },
    /// Any other status: granted, or an error.
    Other(NlmReply),
}

impl Encode for TestReply {
    fn encode(&self, to: &mut Encoder) {
        match self {
            Self::Denied { cookie, holder } => {
                to.put_opaque(cookie);
                to.put_u32(NlmStatus::Denied as u32);
                to.put_bool(holder.exclusive);
                to.put_i32(holder.svid);
                to.put_opaque(&holder.owner);
                to.put_u64(holder.offset);
                to.put_u64(holder.length);
            }
            Self::Other(reply) => reply.encode(to),
        }
    }
}

/// The result of SHARE and UNSHARE (`nlm4_shareres`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareReply(pub NlmReply);

impl Encode for ShareReply {
    fn encode(&self, to: &mut Encoder) {
        self.0.encode(to);
        // The sequence number is unused over an ordered transport.
        to.put_i32(0);
    }
}

fn netobj(from: &mut Decoder) -> Result<Bytes> {
    from.opaque(MAX_NETOBJ_BYTES)
}
