//! How a LOCK waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use acetate::nfs::{HandleCodec, Handles, Nlm};
use acetate::server::limits::LOCK_WAIT;
use acetate::server::{LockManager, RpcProgram};
use acetate::vfs::{Caller, FileId, Flavor, Locator};

use super::peer::words;
use crate::support::nlm::{LOCK, UNLOCK, lock_args, unlock_args};
use crate::support::scripted_vfs::ScriptedVfs;

const GRANTED: u32 = 0;
const AGAIN: u32 = 4;

fn codec() -> HandleCodec {
    HandleCodec::new([7; 16], 0)
}

fn manager() -> LockManager<ScriptedVfs> {
    LockManager::new(Nlm::new(Arc::new(ScriptedVfs::default()), codec()))
}

/// Calls as the process `svid`, for the whole of one file; returns the status.
async fn call(manager: &LockManager<ScriptedVfs>, procedure: u32, svid: u32) -> u32 {
    let file = codec().encode(&Locator::Delta(FileId(9))).0;
    let args = match procedure {
        LOCK => lock_args(true, &file, svid, 3),
        _ => unlock_args(&file, svid),
    };
    let client = "192.0.2.1:700".parse().unwrap();
    let caller = Caller {
        client,
        flavor: Flavor::Sys,
        uid: 0,
        gid: 0,
        gids: vec![],
        call: None,
        is_owner: false,
    };
    let reply = manager.call(&caller, procedure, args.into_bytes()).await.unwrap().into_bytes();
    let status = u32::from_be_bytes(reply[4..].try_into().unwrap());
    assert_eq!(reply, words(&[0, status]));
    status
}

#[tokio::test]
async fn a_waiting_lock_is_granted_when_the_other_is_given_up() {
    let manager = manager();
    assert_eq!(call(&manager, LOCK, 1).await, GRANTED);
    let begun = Instant::now();
    let unlock = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        call(&manager, UNLOCK, 1).await
    };
    let both = tokio::join!(call(&manager, LOCK, 2), unlock);
    assert_eq!(both, (GRANTED, GRANTED));
    assert!(begun.elapsed() < LOCK_WAIT / 2, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_lock_that_does_not_come_is_not_waited_for_for_ever() {
    let manager = manager();
    assert_eq!(call(&manager, LOCK, 1).await, GRANTED);
    let begun = Instant::now();
    assert_eq!(call(&manager, LOCK, 2).await, AGAIN);
    assert!(begun.elapsed() >= LOCK_WAIT, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn who_is_gone_does_not_get_the_lock() {
    let manager = manager();
    assert_eq!(call(&manager, LOCK, 1).await, GRANTED);
    let gone = tokio::time::timeout(Duration::from_millis(50), call(&manager, LOCK, 2)).await;
    assert!(gone.is_err(), "it does not wait");
    assert_eq!(call(&manager, UNLOCK, 1).await, GRANTED);
    let begun = Instant::now();
    assert_eq!(call(&manager, LOCK, 3).await, GRANTED);
    assert!(begun.elapsed() < LOCK_WAIT / 2, "{:?}", begun.elapsed());
}

#[test]
fn what_changes_locks_is_replayed() {
    let manager = manager();
    let replayed: Vec<u32> =
        (0..25).filter(|&procedure| manager.is_non_idempotent(procedure)).collect();
    assert_eq!(replayed, [2, 3, 4, 22, 23]);
}
