//! Keeps the lock manager registered with rpcbind on a machine that mounts its own exports.
//!
//! The kernel of an NFS client runs a lock manager too, for callbacks. It registers with the first
//! mount and replaces any other registration. Clients on this machine would then send their locks
//! to the kernel, which never answers. So the server registers again before each mount completes
//! (the client sends FSINFO) and every [`LOOK_INTERVAL`]. The kernel loses only callbacks from
//! other servers, and polls those every 30 seconds instead.

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{answers, change, connect, dump, is_same_service};
use crate::server::call_names::CallNames;
use crate::server::program::{CallFuture, RpcProgram};
use crate::vfs::Caller;
use crate::wire::nfs3::{self, Procedure};
use crate::wire::portmap::{self, PROC_SET, PROC_UNSET, Rpcb};

/// Interval of the check of the registration.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// Timeout of one check.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// The rpcbind registration of our lock manager.
pub(super) struct NlmRegistration {
    ours: Vec<Rpcb>,
    port: u16,
    /// Replaced registrations of other lock managers.
    displaced: Mutex<Vec<Rpcb>>,
}

impl NlmRegistration {
    /// Registers nothing yet. `port` is the port of rpcbind.
    pub(super) fn new(ours: Vec<Rpcb>, port: u16) -> Self {
        Self { ours, port, displaced: Mutex::default() }
    }

    /// Registers our lock manager if it is not registered. Failures are only logged: NFS works
    /// without locks.
    pub(super) async fn claim(&self) {
        let claimed = timeout(LOOK_TIMEOUT, self.try_claim()).await;
        if let Err(error) = claimed.unwrap_or_else(|elapsed| Err(elapsed.into())) {
            tracing::warn!(%error, "cannot register the lock manager; clients need `nolock`");
        }
    }

    async fn try_claim(&self) -> io::Result<()> {
        let mut displaced = self.displaced.lock().await;
        let mut client = connect(self.port).await?;
        let present = dump(&mut client).await?;
        for entry in &self.ours {
            let other = present.iter().find(|other| is_same_service(other, entry));
            if other.is_some_and(|other| other.address == entry.address) {
                continue;
            }
            if let Some(other) = other {
                change(&mut client, PROC_UNSET, other).await?;
                displaced.retain(|old| !is_same_service(old, other));
                displaced.push(other.clone());
                tracing::debug!("took the place of another lock manager at rpcbind");
            }
            if !change(&mut client, PROC_SET, entry).await? {
                return Err(io::Error::other("rpcbind refuses it"));
            }
        }
        Ok(())
    }

    /// Unregisters, and restores a replaced registration if its server still runs.
    pub(super) async fn give_back(&self) -> io::Result<()> {
        let mut displaced = self.displaced.lock().await;
        let mut client = connect(self.port).await?;
        let present = dump(&mut client).await?;
        for entry in &self.ours {
            let is_ours =
                |other: &Rpcb| is_same_service(other, entry) && other.address == entry.address;
            if !present.iter().any(is_ours) {
                continue;
            }
            change(&mut client, PROC_UNSET, entry).await?;
            let Some(at) = displaced.iter().position(|old| is_same_service(old, entry)) else {
                continue;
            };
            let old = displaced.swap_remove(at);
            let address = portmap::parse_universal_address(&old.address);
            if let Some(address) = address
                && answers(address).await
            {
                change(&mut client, PROC_SET, &old).await?;
            }
        }
        Ok(())
    }
}

/// A wrapper that renews the registration at each FSINFO if the program is NFS.
pub(super) struct WatchedProgram {
    pub(super) program: Arc<dyn RpcProgram>,
    pub(super) locks: Arc<NlmRegistration>,
}

impl RpcProgram for WatchedProgram {
    fn number(&self) -> u32 {
        self.program.number()
    }

    fn version(&self) -> u32 {
        self.program.version()
    }

    fn names(&self) -> CallNames {
        self.program.names()
    }

    fn tenant(&self, procedure: u32, args: &Bytes) -> Option<NonZeroU64> {
        self.program.tenant(procedure, args)
    }

    fn call<'a>(&'a self, caller: &'a Caller, procedure: u32, args: Bytes) -> CallFuture<'a> {
        let is_fsinfo = Procedure::from_number(procedure) == Some(Procedure::Fsinfo);
        if self.program.number() != nfs3::PROGRAM || !is_fsinfo {
            return self.program.call(caller, procedure, args);
        }
        Box::pin(async move {
            self.locks.claim().await;
            self.program.call(caller, procedure, args).await
        })
    }

    fn is_non_idempotent(&self, procedure: u32) -> bool {
        self.program.is_non_idempotent(procedure)
    }

    fn is_too_weak(&self, caller: &Caller, procedure: u32, args: &Bytes) -> bool {
        self.program.is_too_weak(caller, procedure, args)
    }

    fn reply_bytes(&self, procedure: u32, args: &Bytes) -> usize {
        self.program.reply_bytes(procedure, args)
    }

    fn may_be_short(&self, procedure: u32) -> bool {
        self.program.may_be_short(procedure)
    }

    fn shorten(&self, procedure: u32, args: Bytes, bytes: usize) -> Bytes {
        self.program.shorten(procedure, args, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::limits::SMALL_REPLY_BYTES;
    use crate::wire::xdr::Encoder;

    /// A program that overrides every default of the trait.
    struct Unusual;

    impl RpcProgram for Unusual {
        fn number(&self) -> u32 {
            7
        }

        fn version(&self) -> u32 {
            8
        }

        fn names(&self) -> CallNames {
            CallNames { program: "unusual", ..CallNames::OTHER }
        }

        fn tenant(&self, _: u32, _: &Bytes) -> Option<NonZeroU64> {
            NonZeroU64::new(9)
        }

        fn call<'a>(&'a self, _: &'a Caller, _: u32, _: Bytes) -> CallFuture<'a> {
            Box::pin(async { Ok(Encoder::new()) })
        }

        fn is_non_idempotent(&self, _: u32) -> bool {
            true
        }

        fn is_too_weak(&self, _: &Caller, _: u32, _: &Bytes) -> bool {
            true
        }

        fn reply_bytes(&self, _: u32, _: &Bytes) -> usize {
            SMALL_REPLY_BYTES + 1
        }

        fn may_be_short(&self, _: u32) -> bool {
            true
        }

        fn shorten(&self, _: u32, _: Bytes, _: usize) -> Bytes {
            Bytes::from_static(b"less")
        }
    }

    #[test]
    fn a_watched_program_says_all_that_it_says_itself() {
        let locks = Arc::new(NlmRegistration::new(Vec::new(), 0));
        let watched = WatchedProgram { program: Arc::new(Unusual), locks };
        let (caller, args) = (Caller::owner(0, 0), Bytes::new());
        assert_eq!((watched.number(), watched.version()), (7, 8));
        assert_eq!(watched.tenant(0, &args), NonZeroU64::new(9));
        assert!(watched.is_non_idempotent(0) && watched.may_be_short(0));
        assert!(watched.is_too_weak(&caller, 0, &args));
        assert_eq!(watched.reply_bytes(0, &args), SMALL_REPLY_BYTES + 1);
        assert_eq!(watched.shorten(0, args, 0), "less");
    }
}
