//! The network lock manager, version 4 (RFC 1813 appendix II; Open Group XNFS chapter 10), as
//! plain data.
//!
//! Only what a server of byte-range locks needs: the synchronous procedures. The asynchronous
//! ones (`*_MSG` and `*_RES`) are not here.

use bytes::Bytes;

use super::nfs3::FileHandle;
use super::xdr::{Decode, Decoder, Encode, Encoder, Result};

/// RPC program number of the lock manager.
pub const PROGRAM: u32 = 100_021;

/// The version that goes with NFSv3.
pub const VERSION: u32 = 4;

/// The longest opaque, in bytes (`MAXNETOBJ_SZ`).
pub const MAX_NETOBJ_BYTES: usize = 1024;

/// The longest name of a client, in bytes (`LM_MAXSTRLEN`).
pub const MAX_NAME_BYTES: usize = 1024;

/// The procedures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NlmProcedure {
    /// Does nothing.
    Null,
    /// Asks who is in the way of a lock.
    Test,
    /// Takes a lock.
    Lock,
    /// Takes a waiting LOCK back.
    Cancel,
    /// Gives a lock up.
    Unlock,
    /// Tells a client that its lock is granted; servers do not get this.
    Granted,
    /// Takes a share reservation, as DOS has them.
    Share,
    /// Gives a share reservation up.
    Unshare,
    /// LOCK by a client that is not monitored.
    NmLock,
    /// Gives all locks of a client up.
    FreeAll,
}

impl NlmProcedure {
    /// Reads a procedure number; `None` for one that does not exist here.
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

/// What became of a request (`nlm4_stats`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum NlmStatus {
    /// Done.
    Granted = 0,
    /// Somebody else's lock is in the way; or there is nothing to cancel.
    Denied = 1,
    /// The server has no room for more locks.
    DeniedNoLocks = 2,
    /// The server will call back.
    Blocked = 3,
    /// Not now: ask again in a few seconds.
    DeniedGracePeriod = 4,
    /// The request would wait for itself.
    Deadlock = 5,
    /// The filesystem is read-only.
    ReadOnly = 6,
    /// The file is gone, or the handle is no handle.
    StaleHandle = 7,
    /// The range goes beyond what a file can have.
    TooLarge = 8,
    /// Anything else.
    Failed = 9,
}

/// Which lock (`nlm4_lock`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// The client's name for itself.
    pub caller_name: Bytes,
    /// The file.
    pub handle: FileHandle,
    /// Who on the client, opaque (`oh`).
    pub owner: Bytes,
    /// Which process on the client.
    pub svid: i32,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; 0 is to the end of the file, wherever that goes.
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
    /// Comes back in the reply.
    pub cookie: Bytes,
    /// Whether nobody else may have a lock there.
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
    /// Comes back in the reply.
    pub cookie: Bytes,
    /// Whether to wait for the lock.
    pub block: bool,
    /// Whether nobody else may have a lock there.
    pub exclusive: bool,
    /// The lock.
    pub lock: Lock,
    /// Whether the client had this lock before the server restarted.
    pub reclaim: bool,
    /// How often the client has restarted, in a way: a new value means that it has.
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

/// Arguments of CANCEL (`nlm4_cancargs`): those of the LOCK that is waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelArgs {
    /// Comes back in the reply.
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
    /// Comes back in the reply.
    pub cookie: Bytes,
    /// What to give up: any part of what is locked.
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
    /// Comes back in the reply.
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
    /// What became of it.
    pub status: NlmStatus,
}

impl Encode for NlmReply {
    fn encode(&self, to: &mut Encoder) {
        to.put_opaque(&self.cookie);
        to.put_u32(self.status as u32);
    }
}

/// A lock that is in the way (`nlm4_holder`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Whether nobody else may have a lock there.
    pub exclusive: bool,
    /// Which process on its client.
    pub svid: i32,
    /// Who on its client.
    pub owner: Bytes,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; 0 is to the end of the file.
    pub length: u64,
}

/// The result of TEST (`nlm4_testres`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestReply {
    /// Somebody's lock is in the way ([`NlmStatus::Denied`]).
    Denied {
        /// From the arguments.
        cookie: Bytes,
        /// Whose.
        holder: Holder,
    },
    /// Anything else: granted, or why nobody can say.
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
        // The sequence number has no meaning over a transport that keeps the order.
        to.put_i32(0);
    }
}

fn netobj(from: &mut Decoder) -> Result<Bytes> {
    from.opaque(MAX_NETOBJ_BYTES)
}
