//! Clients that take what others need: the server takes it back.

use std::time::{Duration, Instant};

use acetate::server::limits::{
    FREE_BAD_CALLS, Limits, MAX_UNPROVEN_REPLY_BYTES, MAX_UNVALIDATED_REQUEST_BYTES,
    READ_BUFFER_BYTES, RECORD_TIMEOUT,
};
use acetate::wire::record::MAX_RECORD_BYTES;

use super::fake;
use super::peer::{PATIENCE, Peer, Running, call, fragment_mark, success, words};

const SOON: Duration = Duration::from_millis(100);

/// A connection that had a sound call answered.
async fn known(server: &Running) -> Peer {
    let mut peer = server.connect().await;
    assert_eq!(peer.ask(&call(7, fake::ECHO, b"")).await, success(7, b""));
    peer
}

/// What is refused in every way: no such procedure, arguments that are none, a credential that
/// is none, no such program; then a reply, which is not answered.
fn nonsense(xid: u32) -> Vec<u8> {
    match xid % 5 {
        0 => call(xid, 99, b""),
        1 => call(xid, fake::NUMBER, b""),
        2 => words(&[xid, 0, 2, fake::PROGRAM, 3, 0, 77, 0, 0, 0]),
        3 => words(&[xid, 0, 2, 5, 3, 0, 0, 0, 0, 0]),
        _ => words(&[xid, 1, 0]),
    }
}

#[tokio::test]
async fn whose_calls_make_no_sense_is_read_from_slowly() {
    let server = Running::start_with(Limits::default(), true).await;
    let mut peer = server.connect().await;
    for xid in 0..FREE_BAD_CALLS {
        peer.send_record(&nonsense(xid)).await;
        if xid % 5 != 4 {
            peer.receive().await;
        }
    }
    let begun = Instant::now();
    assert_eq!(peer.ask(&call(1, fake::ECHO, b"")).await, success(1, b""));
    assert!(begun.elapsed() < Limits::default().refusal_pause, "this one had nothing to wait for");
    // That made up for one: it takes two more.
    for xid in 0..2 {
        peer.ask(&nonsense(5 * xid)).await;
    }
    let begun = Instant::now();
    assert_eq!(peer.ask(&call(2, fake::ECHO, b"")).await, success(2, b""));
    assert!(begun.elapsed() > Limits::default().refusal_pause / 2);
    // Others do not wait for it.
    known(&server).await;
}

#[tokio::test]
async fn calls_from_ports_that_are_refused_count_as_nonsense() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let server = Running::start_with(Limits::default(), false).await;
    let mut peer = server.connect().await;
    for xid in 0..=FREE_BAD_CALLS {
        // NULL is answered, but is no way to keep the server busy.
        peer.ask(&call(xid, 0, b"")).await;
    }
    let begun = Instant::now();
    peer.ask(&call(99, 0, b"")).await;
    assert!(begun.elapsed() > Limits::default().refusal_pause / 2);
}

#[tokio::test]
async fn who_never_asked_anything_makes_room_for_others() {
    let limits = Limits { connections: 3, ..Limits::default() };
    let server = Running::start_with(limits, true).await;
    let mut first = known(&server).await;
    let mut silent = server.connect().await;
    let mut nonsensical = server.connect().await;
    nonsensical.ask(&nonsense(0)).await;
    // Twice as many as there are places.
    let mut second = known(&server).await;
    assert!(silent.is_closed().await, "the older one goes first");
    let mut third = known(&server).await;
    assert!(nonsensical.is_closed().await);
    for peer in [&mut first, &mut second, &mut third] {
        assert_eq!(peer.ask(&call(8, fake::ECHO, b"")).await, success(8, b""));
    }
}

#[tokio::test]
async fn where_all_are_known_the_idle_one_makes_room() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let server = Running::start_with(limits, true).await;
    let mut idle = known(&server).await;
    tokio::time::sleep(SOON * 2).await;
    let mut busy = known(&server).await;
    known(&server).await;
    assert!(idle.is_closed().await);
    assert_eq!(busy.ask(&call(8, fake::ECHO, b"")).await, success(8, b""));
}

#[tokio::test]
async fn large_records_that_never_come_do_not_keep_large_ones_waiting() {
    let limits = Limits { pressure_timeout: SOON, ..Limits::default() };
    let server = Running::start_with(limits, true).await;
    let mut good = known(&server).await;
    let mut stalled = Vec::new();
    for at in 0..2 * MAX_UNVALIDATED_REQUEST_BYTES / MAX_RECORD_BYTES {
        let mut peer = server.connect().await;
        peer.send(&fragment_mark(MAX_RECORD_BYTES, at % 2 == 0)).await;
        // It takes no room with its claim, but with this.
        peer.send(&[0; READ_BUFFER_BYTES]).await;
        stalled.push(peer);
    }
    let args = vec![5; 1 << 20];
    let begun = Instant::now();
    assert!(good.ask(&call(1, fake::ECHO, &args)).await == success(1, &args));
    assert!(begun.elapsed() < RECORD_TIMEOUT / 10);
    // A stranger gets its turn, too: those before it have a moment, and not a minute.
    let mut late = server.connect().await;
    assert!(late.ask(&call(1, fake::ECHO, &args)).await == success(1, &args));
    assert!(stalled[0].is_closed().await);
    assert!(begun.elapsed() < RECORD_TIMEOUT / 10);
}

#[tokio::test]
async fn replies_that_nobody_takes_give_their_room_back_once_others_lack_it() {
    let limits = Limits { pressure_timeout: SOON, ..Limits::default() };
    let server = Running::start_with(limits, true).await;
    let mut stuck = Vec::new();
    for _ in 0..MAX_UNPROVEN_REPLY_BYTES / (8 << 20) + 1 {
        let mut peer = known(&server).await;
        // More than the system's buffers take, too.
        for xid in 0..32 {
            peer.send_record(&call(xid, fake::BYTES, &words(&[1 << 20]))).await;
        }
        stuck.push(peer);
    }
    tokio::time::sleep(SOON).await;
    let begun = Instant::now();
    // None of these waits for those that are stuck, and in the end nothing is short.
    let whole = success(1, &[0; (1 << 20) + 4]).len();
    loop {
        let mut good = known(&server).await;
        let reply = good.ask(&call(1, fake::BYTES, &words(&[1 << 20]))).await;
        if reply.len() == whole {
            break;
        }
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(SOON / 4).await;
    }
}

#[tokio::test]
async fn a_record_is_as_long_as_the_server_says() {
    let limits = Limits { record_bytes: 4096, ..Limits::default() };
    let server = Running::start_with(limits, true).await;
    let head = call(1, fake::ECHO, b"").len();
    let args = vec![5; 4096 - head];
    let mut peer = server.connect().await;
    assert_eq!(peer.ask(&call(1, fake::ECHO, &args)).await, success(1, &args));
    peer.send(&fragment_mark(4097, true)).await;
    assert!(peer.is_closed().await);
}
