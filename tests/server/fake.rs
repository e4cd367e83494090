//! A program whose procedures show what the server does with a call.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use acetate::nfs::CallError;
use acetate::server::limits::SMALL_REPLY_BYTES;
use acetate::server::{CallFuture, RpcProgram};
use acetate::vfs::Caller;
use acetate::wire::xdr::{Decoder, Encoder};
use bytes::Bytes;
use tokio::sync::Semaphore;

/// NFS's own number, so that version mismatches look as they do there.
pub const PROGRAM: u32 = 100_003;
pub const VERSION: u32 = 3;

/// Answers its arguments.
pub const ECHO: u32 = 1;
/// Counts its calls; replayed.
pub const COUNT: u32 = 2;
/// Waits for [`Fake::gate`], then answers its arguments.
pub const WAIT: u32 = 3;
/// Panics.
pub const PANIC: u32 = 4;
/// Answers uid, gid and gids.
pub const WHO: u32 = 5;
/// Waits for [`Fake::gate`], then counts; replayed.
pub const WAIT_COUNT: u32 = 6;
/// Answers as many bytes as the argument says.
pub const BYTES: u32 = 7;
/// Counts its calls, and answers NFS3ERR_JUKEBOX; replayed.
pub const JUKEBOX: u32 = 8;
/// Asks for room for a megabyte, and answers nothing.
pub const GREEDY: u32 = 10;
/// Decodes one number.
pub const NUMBER: u32 = 9;
/// Asks for room for as many bytes as the argument says, waits for [`Fake::gate`], and answers
/// them all.
pub const WAIT_BYTES: u32 = 11;
/// The same without waiting: a list that cannot be shorter.
pub const LIST: u32 = 12;
/// Waits for [`Fake::other_gate`].
pub const WAIT_OTHER: u32 = 13;
/// For the tenant that the argument says.
pub const FOR_TENANT: u32 = 14;

#[derive(Clone)]
pub struct Fake {
    pub gate: Arc<Semaphore>,
    pub other_gate: Arc<Semaphore>,
    pub begun: Arc<AtomicU32>,
    pub counted: Arc<AtomicU32>,
}

impl Default for Fake {
    fn default() -> Self {
        let number = || Arc::new(AtomicU32::new(0));
        let gate = || Arc::new(Semaphore::new(0));
        Self { gate: gate(), other_gate: gate(), begun: number(), counted: number() }
    }
}

impl Fake {
    pub fn open_gate(&self) {
        self.gate.add_permits(1000);
    }

    pub fn counted(&self) -> u32 {
        self.counted.load(Ordering::SeqCst)
    }

    /// Returns once `count` calls were begun.
    pub async fn wait_begun(&self, count: u32) {
        while self.begun.load(Ordering::SeqCst) < count {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }

    async fn run(
        &self,
        caller: &Caller,
        procedure: u32,
        args: Bytes,
    ) -> Result<Encoder, CallError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let mut results = Encoder::new();
        match procedure {
            0 | GREEDY | FOR_TENANT => {}
            ECHO => results.put_fixed(&args),
            COUNT => results.put_u32(self.counted.fetch_add(1, Ordering::SeqCst)),
            WAIT => {
                self.gate.acquire().await.unwrap().forget();
                results.put_fixed(&args);
            }
            PANIC => panic!("asked for"),
            WHO => {
                for number in [caller.uid, caller.gid].iter().chain(&caller.gids) {
                    results.put_u32(*number);
                }
            }
            WAIT_COUNT => {
                self.gate.acquire().await.unwrap().forget();
                results.put_u32(self.counted.fetch_add(1, Ordering::SeqCst));
            }
            WAIT_OTHER => self.other_gate.acquire().await.unwrap().forget(),
            BYTES | LIST | WAIT_BYTES => {
                if procedure == WAIT_BYTES {
                    self.gate.acquire().await.unwrap().forget();
                }
                let length = Decoder::new(args).u32()? as usize;
                results.put_shared(Bytes::from(vec![7; length]));
            }
            JUKEBOX => {
                results.put_u32(10_008);
                results.put_u32(self.counted.fetch_add(1, Ordering::SeqCst));
            }
            NUMBER => {
                let mut decoder = Decoder::new(args);
                results.put_u32(decoder.u32()?);
                decoder.finish()?;
            }
            _ => return Err(CallError::ProcedureUnavailable),
        }
        Ok(results)
    }
}

impl RpcProgram for Fake {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn call<'a>(&'a self, caller: &'a Caller, procedure: u32, args: Bytes) -> CallFuture<'a> {
        Box::pin(self.run(caller, procedure, args))
    }

    fn tenant(&self, procedure: u32, args: &Bytes) -> Option<NonZeroU64> {
        let tenant = args.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        NonZeroU64::new(tenant.into()).filter(|_| procedure == FOR_TENANT)
    }

    fn reply_bytes(&self, procedure: u32, args: &Bytes) -> usize {
        match procedure {
            BYTES | LIST | WAIT_BYTES => {
                Decoder::new(args.clone()).u32().unwrap() as usize + SMALL_REPLY_BYTES
            }
            GREEDY => 1 << 20,
            _ => args.len() + 64,
        }
    }

    fn may_be_short(&self, procedure: u32) -> bool {
        procedure == BYTES
    }

    fn shorten(&self, _procedure: u32, _args: Bytes, bytes: usize) -> Bytes {
        ((bytes - SMALL_REPLY_BYTES) as u32).to_be_bytes().to_vec().into()
    }

    fn is_non_idempotent(&self, procedure: u32) -> bool {
        matches!(procedure, COUNT | WAIT_COUNT | JUKEBOX)
    }
}
