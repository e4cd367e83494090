//! The NLM program, in bytes (RFC 1813 appendix II).

use std::sync::Arc;

use acetate::nfs::lock::{
    LockAnswer, LockWait, MAX_CLIENT_WAITING, MAX_EXPORT_WAITING, MAX_WAITING,
};
use acetate::nfs::{CallError, Nlm};
use acetate::vfs::{Caller, FsError};
use acetate::wire::nlm4::MAX_NETOBJ_BYTES;
use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::nfs::{caller, codec, wire};
use crate::support::hex::{hex, to_hex};
use crate::support::scripted_vfs::ScriptedVfs;

const TEST: u32 = 1;
const LOCK: u32 = 2;
const CANCEL: u32 = 3;
const UNLOCK: u32 = 4;
const NM_LOCK: u32 = 22;
const FREE_ALL: u32 = 23;

const GRANTED: &str = "00000000";
const DENIED: &str = "00000001";
const AGAIN: &str = "00000004";

/// The name of a client, and of nobody else.
const NAME: &str = "00000003 63617400";

fn nlm(vfs: ScriptedVfs) -> Nlm<ScriptedVfs> {
    Nlm::new(Arc::new(vfs), codec())
}

async fn call(nlm: &Nlm<ScriptedVfs>, procedure: u32, args: &str) -> Result<LockAnswer, CallError> {
    nlm.call(&caller(), procedure, Bytes::from(wire(args))).await
}

/// The reply to what is answered at once.
async fn ask(nlm: &Nlm<ScriptedVfs>, procedure: u32, args: &str) -> String {
    match call(nlm, procedure, args).await {
        Ok(LockAnswer::Reply(reply)) => to_hex(&reply.into_bytes()),
        other => panic!("{procedure}: {other:?}"),
    }
}

/// `nlm4_lock`: on FILE, by the process `svid` of the client `NAME`.
fn lock(svid: u32, offset: u64, length: u64) -> String {
    format!("{NAME} FILE 00000002 {svid:02x}400000 {svid:08x} {offset:016x} {length:016x}")
}

/// Arguments of LOCK: not to be reclaimed, state 3.
fn lock_args(block: bool, exclusive: bool, lock: &str) -> String {
    let (block, exclusive) = (u32::from(block), u32::from(exclusive));
    format!("{COOKIE} {block:08x} {exclusive:08x} {lock} 00000000 00000003")
}

fn cancel_args(lock: &str) -> String {
    format!("{COOKIE} 00000001 00000001 {lock}")
}

fn unlock_args(lock: &str) -> String {
    format!("{COOKIE} {lock}")
}

const COOKIE: &str = "00000004 c00c1e00";

fn status(status: &str) -> String {
    to_hex(&hex(&format!("{COOKIE} {status}")))
}

/// A LOCK of everything by process 2, which waits.
async fn wait(nlm: &Nlm<ScriptedVfs>) -> LockWait {
    match call(nlm, LOCK, &lock_args(true, true, &lock(2, 0, 0))).await {
        Ok(LockAnswer::Wait(waiting)) => waiting,
        other => panic!("does not wait: {other:?}"),
    }
}

/// A lock manager where process 1 has everything.
async fn locked() -> Nlm<ScriptedVfs> {
    let nlm = nlm(ScriptedVfs::default());
    let got = ask(&nlm, LOCK, &lock_args(false, true, &lock(1, 0, 0))).await;
    assert_eq!(got, status(GRANTED));
    nlm
}

fn retried(waiting: &LockWait) -> Option<String> {
    waiting.retry().map(|reply| to_hex(&reply.into_bytes()))
}

#[tokio::test]
async fn locks_are_taken_tested_and_given_up() {
    let nlm = nlm(ScriptedVfs::default());
    let exclusive = lock_args(false, true, &lock(1, 0x10, 0x20));
    assert_eq!(ask(&nlm, LOCK, &exclusive).await, status(GRANTED));
    assert_eq!(ask(&nlm, LOCK, &exclusive).await, status(GRANTED), "again");
    let test = |svid, offset| {
        let lock = lock(svid, offset, 4);
        format!("{COOKIE} 00000000 {lock}")
    };
    let holder = "
        00000001                            // status: NLM4_DENIED
        00000001 00000001 00000002 01400000 // exclusive, svid, oh
        00000000 00000010 00000000 00000020 // offset, length
    ";
    assert_eq!(ask(&nlm, TEST, &test(2, 0x2f)).await, status(holder));
    assert_eq!(ask(&nlm, TEST, &test(2, 0x30)).await, status(GRANTED));
    assert_eq!(ask(&nlm, TEST, &test(1, 0x2f)).await, status(GRANTED), "its own");
    let other = lock_args(false, false, &lock(2, 0, 0));
    assert_eq!(ask(&nlm, LOCK, &other).await, status(DENIED));
    assert_eq!(ask(&nlm, NM_LOCK, &other).await, status(DENIED));
    assert_eq!(ask(&nlm, UNLOCK, &unlock_args(&lock(2, 0, 0))).await, status(GRANTED));
    assert_eq!(ask(&nlm, LOCK, &other).await, status(DENIED), "that was not his");
    assert_eq!(ask(&nlm, UNLOCK, &unlock_args(&lock(1, 0, 0))).await, status(GRANTED));
    assert_eq!(ask(&nlm, NM_LOCK, &other).await, status(GRANTED));
    let shared = lock_args(false, false, &lock(1, 0, 0));
    assert_eq!(ask(&nlm, LOCK, &shared).await, status(GRANTED));
    assert_eq!(ask(&nlm, LOCK, &exclusive).await, status(DENIED));
}

#[tokio::test]
async fn a_lock_is_waited_for() {
    let nlm = locked().await;
    let waiting = wait(&nlm).await;
    assert_eq!(retried(&waiting), None);
    ask(&nlm, UNLOCK, &unlock_args(&lock(1, 0, 0))).await;
    assert_eq!(retried(&waiting), Some(status(GRANTED)));
    drop(waiting);
    let back = lock_args(false, true, &lock(1, 0, 0));
    assert_eq!(
        ask(&nlm, LOCK, &back).await,
        status(DENIED),
        "it stays when it has been waited for"
    );
}

#[tokio::test]
async fn who_waited_too_long_asks_again() {
    let nlm = locked().await;
    let reply = wait(&nlm).await.give_up();
    assert_eq!(to_hex(&reply.into_bytes()), status(AGAIN));
}

#[tokio::test]
async fn what_is_cancelled_is_not_granted() {
    for (procedure, args) in
        [(CANCEL, cancel_args(&lock(2, 0, 0))), (UNLOCK, unlock_args(&lock(2, 5, 1)))]
    {
        let nlm = locked().await;
        let waiting = wait(&nlm).await;
        assert_eq!(ask(&nlm, procedure, &args).await, status(GRANTED));
        ask(&nlm, UNLOCK, &unlock_args(&lock(1, 0, 0))).await;
        assert_eq!(retried(&waiting), Some(status(DENIED)), "{procedure}");
        let third = lock_args(false, true, &lock(3, 0, 0));
        assert_eq!(ask(&nlm, LOCK, &third).await, status(GRANTED));
    }
}

#[tokio::test]
async fn what_overtakes_a_lock_takes_it_back() {
    let back = lock(1, 0, 0);
    let all = format!("{NAME} 00000005");
    for (procedure, args, answer) in [
        (CANCEL, cancel_args(&back), status(GRANTED)),
        (UNLOCK, unlock_args(&back), status(GRANTED)),
        (FREE_ALL, all, String::new()),
    ] {
        for block in [false, true] {
            // The LOCK's file is being looked for.
            let gate = Semaphore::new(0);
            let vfs = Arc::new(ScriptedVfs { gate: Some(gate), ..ScriptedVfs::default() });
            let nlm = Nlm::new(Arc::clone(&vfs), codec());
            let args_of_lock = lock_args(block, true, &back);
            let overtaken = ask(&nlm, LOCK, &args_of_lock);
            let overtaking = async {
                assert_eq!(ask(&nlm, procedure, &args).await, answer);
                vfs.gate.as_ref().unwrap().add_permits(100);
            };
            let (overtaken, ()) = tokio::join!(biased; overtaken, overtaking);
            assert_eq!(overtaken, status(DENIED), "{procedure}");
            let other = lock_args(false, true, &lock(2, 0, 0));
            assert_eq!(ask(&nlm, LOCK, &other).await, status(GRANTED), "{procedure}: a lock stays");
        }
    }
}

#[tokio::test]
async fn a_lock_whose_file_is_looked_for_takes_no_place() {
    let vfs = ScriptedVfs { gate: Some(Semaphore::new(1)), ..ScriptedVfs::default() };
    let vfs = Arc::new(vfs);
    let nlm = Nlm::new(Arc::clone(&vfs), codec());
    let held = lock_args(false, true, &lock(1, 0, 0));
    assert_eq!(ask(&nlm, LOCK, &held).await, status(GRANTED));
    let nlm = Arc::new(nlm);
    let mut asking = JoinSet::new();
    let last = 1 + u32::try_from(MAX_WAITING).unwrap();
    for svid in 2..=last {
        let nlm = Arc::clone(&nlm);
        let args = lock_args(true, true, &lock(svid, 0, 0));
        asking.spawn(async move { call(&nlm, LOCK, &args).await });
    }
    // One after the other finds its file, while all behind it are there.
    while vfs.calls.lock().unwrap().len() < MAX_WAITING {
        tokio::task::yield_now().await;
    }
    vfs.gate.as_ref().unwrap().add_permits(1);
    let first = asking.join_next().await.unwrap().unwrap();
    assert!(matches!(first, Ok(LockAnswer::Wait(_))), "{first:?}");
}

#[tokio::test]
async fn only_what_waits_can_be_cancelled() {
    let nlm = locked().await;
    let waiting = wait(&nlm).await;
    for other in [lock(1, 0, 0), lock(3, 0, 0)] {
        assert_eq!(ask(&nlm, CANCEL, &cancel_args(&other)).await, status(DENIED));
    }
    assert_eq!(retried(&waiting), None);
    drop(waiting);
    assert_eq!(ask(&nlm, CANCEL, &cancel_args(&lock(2, 0, 0))).await, status(DENIED));
}

#[tokio::test]
async fn so_many_wait_and_not_more() {
    let nlm = locked().await;
    let args = wire(&lock_args(true, true, &lock(2, 0, 0)));
    let ask = async |host: usize| {
        let client = format!("192.0.2.{host}:700").parse().unwrap();
        nlm.call(&Caller { client, ..caller() }, LOCK, args.clone().into()).await.unwrap()
    };
    let mut waiting = Vec::new();
    for host in 0..MAX_EXPORT_WAITING / MAX_CLIENT_WAITING {
        for _ in 0..MAX_CLIENT_WAITING {
            let LockAnswer::Wait(one) = ask(host).await else { panic!("does not wait") };
            waiting.push(one);
        }
        let LockAnswer::Reply(reply) = ask(host).await else {
            panic!("one address has all places")
        };
        assert_eq!(to_hex(&reply.into_bytes()), status(AGAIN));
    }
    assert!(matches!(ask(200).await, LockAnswer::Reply(_)), "more wait than may");
    waiting.pop();
    assert!(matches!(ask(200).await, LockAnswer::Wait(_)));
}

#[tokio::test]
async fn only_what_gives_a_lock_up_wakes_those_who_wait() {
    let nlm = locked().await;
    let _waiting = wait(&nlm).await;
    let before = nlm.changes();
    ask(&nlm, UNLOCK, &unlock_args(&lock(3, 0, 0))).await;
    ask(&nlm, LOCK, &lock_args(false, true, &lock(3, 0, 0))).await;
    ask(&nlm, CANCEL, &cancel_args(&lock(3, 0, 0))).await;
    assert_eq!(nlm.changes(), before, "nothing was given up");
    ask(&nlm, CANCEL, &cancel_args(&lock(2, 0, 0))).await;
    let cancelled = nlm.changes();
    assert_ne!(cancelled, before);
    ask(&nlm, UNLOCK, &unlock_args(&lock(1, 0, 4))).await;
    assert_ne!(nlm.changes(), cancelled);
}

#[tokio::test]
async fn a_client_gives_everything_up() {
    let nlm = locked().await;
    let waiting = wait(&nlm).await;
    assert_eq!(ask(&nlm, FREE_ALL, "00000003 646f6700 00000005").await, "");
    assert_eq!(retried(&waiting), None, "another client");
    assert_eq!(ask(&nlm, FREE_ALL, &format!("{NAME} 00000005")).await, "");
    assert_eq!(retried(&waiting), Some(status(DENIED)));
    let third = lock_args(false, true, &lock(3, 0, 0));
    assert_eq!(ask(&nlm, LOCK, &third).await, status(GRANTED));
}

#[tokio::test]
async fn a_client_that_restarted_has_lost_its_locks() {
    let nlm = locked().await;
    let state = |state| {
        let lock = lock(2, 0, 0);
        format!("{COOKIE} 00000000 00000001 {lock} 00000000 {state:08x}")
    };
    assert_eq!(ask(&nlm, LOCK, &state(3)).await, status(DENIED));
    assert_eq!(ask(&nlm, NM_LOCK, &state(5)).await, status(DENIED), "says nothing of its state");
    assert_eq!(ask(&nlm, LOCK, &state(5)).await, status(GRANTED));
}

#[tokio::test]
async fn other_clients_are_others() {
    let nlm = locked().await;
    let client = "192.0.2.9:700".parse().unwrap();
    let elsewhere = Caller { client, ..caller() };
    let args = wire(&lock_args(false, true, &lock(1, 0, 0)));
    let Ok(LockAnswer::Reply(reply)) = nlm.call(&elsewhere, LOCK, args.into()).await else {
        panic!("no reply");
    };
    assert_eq!(to_hex(&reply.into_bytes()), status(DENIED));
}

#[tokio::test]
async fn bad_files_and_ranges_have_their_status() {
    let gone = nlm(ScriptedVfs::failing(FsError::Stale));
    let test = |lock: &str| format!("{COOKIE} 00000001 {lock}");
    let stale = status("00000007");
    assert_eq!(ask(&gone, LOCK, &lock_args(true, true, &lock(1, 0, 0))).await, stale);
    assert_eq!(ask(&gone, TEST, &test(&lock(1, 0, 0))).await, stale);
    // Locks on a file that is gone must not stay.
    assert_eq!(ask(&gone, UNLOCK, &unlock_args(&lock(1, 0, 0))).await, status(GRANTED));

    let there = nlm(ScriptedVfs::default());
    let forged = format!("{NAME} 00000004 01020304 00000000 00000001 {:032x}", 0);
    assert_eq!(ask(&there, LOCK, &lock_args(true, true, &forged)).await, stale);
    assert_eq!(ask(&there, UNLOCK, &unlock_args(&forged)).await, stale);
    assert_eq!(ask(&there, CANCEL, &cancel_args(&forged)).await, stale);
    let beyond = lock(1, u64::MAX, 1);
    let large = status("00000008");
    assert_eq!(ask(&there, LOCK, &lock_args(true, true, &beyond)).await, large);
    assert_eq!(ask(&there, TEST, &test(&beyond)).await, large);
    assert_eq!(ask(&there, UNLOCK, &unlock_args(&beyond)).await, large);
}

#[tokio::test]
async fn what_nobody_needs_is_refused() {
    let nlm = nlm(ScriptedVfs::default());
    assert_eq!(ask(&nlm, 0, "").await, "");
    let granted = format!("{COOKIE} 00000001 {}", lock(1, 0, 0));
    assert_eq!(ask(&nlm, 5, &granted).await, status(DENIED));
    let share = format!("{COOKIE} {NAME} FILE 00000001 aa000000 00000000 00000001 00000000");
    assert_eq!(ask(&nlm, 20, &share).await, status("00000002 00000000"));
    assert_eq!(ask(&nlm, 21, &share).await, status("00000000 00000000"));
    for procedure in (6..20).chain([24, u32::MAX]) {
        let result = call(&nlm, procedure, "").await;
        assert!(matches!(result, Err(CallError::ProcedureUnavailable)), "{procedure}");
    }
}

#[tokio::test]
async fn garbage_is_refused() {
    let nlm = nlm(ScriptedVfs::default());
    let long = format!("{:08x} {}", MAX_NETOBJ_BYTES + 4, "00".repeat(MAX_NETOBJ_BYTES + 4));
    let whole = lock_args(false, true, &lock(1, 0, 0));
    for (procedure, args) in [
        (0, "00000000".to_owned()),
        (TEST, String::new()),
        (LOCK, whole.replacen(COOKIE, &long, 1)),
        (LOCK, format!("{whole} 00000000")),
        (LOCK, whole.replacen("00000000 00000001", "00000002 00000001", 1)),
        (CANCEL, unlock_args(&lock(1, 0, 0))),
        (UNLOCK, COOKIE.to_owned()),
        (20, COOKIE.to_owned()),
        (FREE_ALL, NAME.to_owned()),
    ] {
        let result = call(&nlm, procedure, &args).await;
        assert!(matches!(result, Err(CallError::GarbageArgs(_))), "{procedure}: {args}");
    }
}
