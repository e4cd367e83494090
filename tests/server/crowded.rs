//! Where all the room that connections share is taken, each still has some of its own: nobody
//! waits for what others do not take, or do not send.

use acetate::server::limits::{
    Limits, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, MAX_UNPROVEN_REPLY_BYTES, OWN_REPLY_BYTES,
    PROVING_BYTES, READ_BUFFER_BYTES, SMALL_REPLY_BYTES,
};
use acetate::wire::record::MAX_RECORD_BYTES;

use super::fake;
use super::peer::{PATIENCE, Peer, Running, call, fragment_mark, one_fragment, success, words};

const MEGABYTE: usize = 1 << 20;

/// The megabytes of replies that newcomers have room for, one connection's worth.
const HELD: u32 = (MAX_UNPROVEN_REPLY_BYTES / MAX_RECORD_BYTES) as u32;

/// What a reply brings where it has no more room than its connection's own.
const SHORT: usize = OWN_REPLY_BYTES - SMALL_REPLY_BYTES;

/// A server that takes no room back, however long it is held for nothing.
async fn patient() -> Running {
    let limits = Limits {
        record_timeout: PATIENCE * 10,
        reply_timeout: PATIENCE * 10,
        pressure_timeout: PATIENCE * 10,
        ..Limits::default()
    };
    Running::start_with(limits, true).await
}

/// A connection whose replies hold so many megabytes of the room that connections share, until
/// the gate is opened; `begun` counts all of them.
async fn hold(server: &Running, mut peer: Peer, megabytes: u32, begun: &mut u32) -> Peer {
    for xid in 0..megabytes {
        peer.send_record(&ask_for(xid, fake::WAIT_BYTES, MEGABYTE)).await;
    }
    *begun += megabytes;
    server.fake.wait_begun(*begun).await;
    peer
}

/// A connection that has shown that it takes its replies; `begun` counts its calls.
async fn proven(server: &Running, begun: &mut u32) -> Peer {
    let mut peer = server.connect().await;
    for _ in 0..=PROVING_BYTES / MEGABYTE {
        assert_eq!(brought(&mut peer, fake::BYTES, MEGABYTE).await, MEGABYTE);
        *begun += 1;
    }
    peer
}

fn ask_for(xid: u32, procedure: u32, bytes: usize) -> Vec<u8> {
    call(xid, procedure, &words(&[bytes as u32]))
}

/// The bytes that a reply brings when so many are asked for.
async fn brought(peer: &mut Peer, procedure: u32, bytes: usize) -> usize {
    data_bytes(&peer.ask(&ask_for(1, procedure, bytes)).await)
}

fn data_bytes(reply: &[u8]) -> usize {
    reply.len() - success(1, &words(&[0])).len()
}

#[tokio::test]
async fn replies_that_hold_all_room_make_others_shorter_and_not_later() {
    let server = patient().await;
    let mut holder = hold(&server, server.connect().await, HELD, &mut 0).await;
    let mut good = server.connect().await;
    for _ in 0..3 {
        assert_eq!(brought(&mut good, fake::BYTES, MEGABYTE).await, SHORT);
    }
    assert_eq!(brought(&mut good, fake::BYTES, SHORT).await, SHORT, "that is all it asked for");
    server.fake.open_gate();
    for _ in 0..HELD {
        assert_eq!(data_bytes(&holder.receive().await), MEGABYTE);
    }
    // The room comes back, though a moment after the reply.
    while brought(&mut good, fake::BYTES, MEGABYTE).await < MEGABYTE {}
}

#[tokio::test]
async fn calls_of_one_connection_share_its_own_room_one_after_another() {
    let server = patient().await;
    let _holder = hold(&server, server.connect().await, HELD, &mut 0).await;
    let mut good = server.connect().await;
    for xid in 0..20 {
        good.send_record(&ask_for(xid, fake::BYTES, MEGABYTE)).await;
    }
    for _ in 0..20 {
        assert_eq!(data_bytes(&good.receive().await), SHORT);
    }
}

#[tokio::test]
async fn who_takes_its_replies_has_room_that_newcomers_cannot_take() {
    let (server, mut begun) = (patient().await, 0);
    let mut good = proven(&server, &mut begun).await;
    let others = [proven(&server, &mut begun).await, proven(&server, &mut begun).await];
    let _holder = hold(&server, server.connect().await, HELD, &mut begun).await;
    assert_eq!(brought(&mut server.connect().await, fake::BYTES, MEGABYTE).await, SHORT);
    begun += 1;
    assert_eq!(brought(&mut good, fake::BYTES, MEGABYTE).await, MEGABYTE);
    begun += 1;
    // Nor does that of all the others wait, once that is taken too.
    let mut holders = Vec::new();
    let left = (MAX_REPLY_BYTES - MAX_UNPROVEN_REPLY_BYTES) / MAX_RECORD_BYTES;
    for (peer, share) in others.into_iter().zip([left / 2, left - left / 2]) {
        holders.push(hold(&server, peer, share as u32, &mut begun).await);
    }
    assert_eq!(brought(&mut good, fake::BYTES, MEGABYTE).await, SHORT);
}

#[tokio::test]
async fn who_has_some_of_the_common_room_waits_for_that_and_gets_whole_replies() {
    let server = patient().await;
    let mut peer = hold(&server, server.connect().await, HELD, &mut 0).await;
    for xid in 0..4 {
        peer.send_record(&ask_for(xid, fake::BYTES, MEGABYTE)).await;
    }
    assert!(peer.is_silent().await);
    server.fake.open_gate();
    for _ in 0..HELD + 4 {
        assert_eq!(data_bytes(&peer.receive().await), MEGABYTE);
    }
}

#[tokio::test]
async fn a_list_that_cannot_be_shorter_waits_only_if_it_is_long() {
    let server = patient().await;
    let mut holder = hold(&server, server.connect().await, HELD, &mut 0).await;
    let mut good = server.connect().await;
    assert_eq!(brought(&mut good, fake::LIST, SHORT).await, SHORT);
    good.send_record(&ask_for(1, fake::LIST, 2 * SHORT)).await;
    assert!(good.is_silent().await);
    assert_eq!(brought(&mut server.connect().await, fake::BYTES, MEGABYTE).await, SHORT);
    server.fake.open_gate();
    for _ in 0..HELD {
        holder.receive().await;
    }
    assert_eq!(data_bytes(&good.receive().await), 2 * SHORT);
}

#[tokio::test]
async fn claims_of_records_take_no_room() {
    let server = patient().await;
    let mut claims = Vec::new();
    for at in 0..MAX_REQUEST_BYTES / MAX_RECORD_BYTES + 8 {
        let mut peer = server.connect().await;
        peer.ask(&call(7, fake::ECHO, b"")).await;
        peer.send(&fragment_mark(MAX_RECORD_BYTES, at % 2 == 0)).await;
        peer.send(&[0; 4096]).await;
        claims.push(peer);
    }
    let mut good = server.connect().await;
    let args = vec![5; MEGABYTE];
    for xid in 0..3 {
        assert!(good.ask(&call(xid, fake::ECHO, &args)).await == success(xid, &args));
    }
}

#[tokio::test]
async fn a_write_of_32_kib_does_not_wait_for_records_that_never_come() {
    let server = patient().await;
    let mut stalled = Vec::new();
    for _ in 0..MAX_REQUEST_BYTES / MAX_RECORD_BYTES + 8 {
        let mut peer = server.connect().await;
        peer.ask(&call(7, fake::ECHO, b"")).await;
        peer.send(&fragment_mark(MAX_RECORD_BYTES, true)).await;
        peer.send(&[0; READ_BUFFER_BYTES]).await;
        stalled.push(peer);
    }
    // All room is taken once this one has to wait.
    loop {
        let mut peer = server.connect().await;
        let record = one_fragment(&call(7, fake::ECHO, &vec![5; 64 << 10]));
        peer.ask(&call(7, fake::ECHO, b"")).await;
        peer.send(&record).await;
        if peer.is_silent().await {
            break;
        }
    }
    let mut good = server.connect().await;
    let args = vec![5; 32 << 10];
    for xid in 0..8 {
        good.send_record(&call(xid, fake::ECHO, &args)).await;
    }
    for xid in 0..8 {
        assert!(good.receive().await == success(xid, &args));
    }
}

#[tokio::test]
async fn who_has_many_calls_in_flight_goes_on_one_by_one_where_others_take_all() {
    let (server, _greedy) = Running::with_all_requests_taken().await;
    let mut good = server.connect().await;
    for xid in 0..3 {
        good.send_record(&call(xid, fake::WAIT_OTHER, b"")).await;
    }
    server.fake.wait_begun(4).await;
    assert!(good.is_silent().await);
    server.fake.other_gate.add_permits(3);
    for xid in 0..3 {
        assert_eq!(good.receive().await, success(xid, b""));
    }
}
