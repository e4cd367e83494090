//! What client addresses and tenants share: who has most gives way. Linux has all of 127.0.0.0/8,
//! each a client of its own.

use acetate::server::limits::{Limits, MAX_REPLY_BYTES, PROVING_BYTES};

use super::fake;
use super::peer::{PATIENCE, Peer, Running, call, success, words};

const GOOD: &str = "127.0.0.1";
const GREEDY: &str = "127.0.0.2";

/// A server with so few places.
async fn small() -> Running {
    Running::start_with(Limits { connections: 8, ..Limits::default() }, true).await
}

/// A connection that had a call for `tenant` answered.
async fn known(server: &Running, address: &str, tenant: u32) -> Peer {
    let mut peer = server.connect_from(address).await;
    ask(&mut peer, tenant).await;
    peer
}

async fn ask(peer: &mut Peer, tenant: u32) {
    let asked = peer.ask(&call(7, fake::FOR_TENANT, &words(&[tenant]))).await;
    assert_eq!(asked, success(7, b""));
}

#[tokio::test]
async fn one_address_has_all_places_until_another_comes() {
    let server = small().await;
    let mut greedy = Vec::new();
    for _ in 0..8 {
        greedy.push(known(&server, GREEDY, 1).await);
    }
    for peer in &mut greedy {
        ask(peer, 1).await;
    }
    // All are busy.
    let mut good = known(&server, GOOD, 1).await;
    assert!(greedy[0].is_closed().await, "the one that is idle for longest gives way");
    for peer in &mut greedy[1..] {
        ask(peer, 1).await;
    }
    // However often the greedy address comes again, it takes places of its own.
    for _ in 0..20 {
        greedy.push(known(&server, GREEDY, 1).await);
    }
    ask(&mut good, 1).await;
    let mut second = known(&server, GOOD, 1).await;
    ask(&mut good, 1).await;
    ask(&mut second, 1).await;
}

#[tokio::test]
async fn each_address_that_has_none_gets_a_place() {
    let server = small().await;
    let mut greedy = Vec::new();
    for at in 0..8 {
        greedy.push(known(&server, [GREEDY, "127.0.0.3"][at % 2], 1).await);
    }
    let mut good = Vec::new();
    for last in 10..14 {
        good.push(known(&server, &format!("127.0.0.{last}"), 1).await);
    }
    for peer in &mut good {
        ask(peer, 1).await;
    }
}

#[tokio::test]
async fn behind_one_address_a_tenant_keeps_its_place_beside_one_that_takes_all() {
    let server = small().await;
    let mut greedy = Vec::new();
    for _ in 0..8 {
        greedy.push(known(&server, GOOD, 1).await);
    }
    let mut good = known(&server, GOOD, 2).await;
    for _ in 0..20 {
        greedy.push(known(&server, GOOD, 1).await);
        let open = greedy.len() - 7;
        for peer in &mut greedy[open..] {
            // They call more often than the other one.
            ask(peer, 1).await;
        }
    }
    ask(&mut good, 2).await;
}

#[tokio::test]
async fn connections_that_say_nothing_take_no_place_from_one_that_does() {
    let server = small().await;
    let mut good = known(&server, GOOD, 1).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(server.connect_from(GREEDY).await);
        silent.push(server.connect_from(GOOD).await);
    }
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    ask(&mut good, 1).await;
    known(&server, "127.0.0.3", 1).await;
}

#[tokio::test]
async fn what_gives_way_does_not_wait_for_its_calls() {
    let server = small().await;
    let mut greedy = Vec::new();
    for _ in 0..8 {
        let mut peer = known(&server, GREEDY, 1).await;
        peer.send_record(&call(8, fake::WAIT_COUNT, b"")).await;
        greedy.push(peer);
    }
    server.fake.wait_begun(16).await;
    tokio::time::timeout(PATIENCE / 4, known(&server, GOOD, 1)).await.expect("a place");
    assert!(greedy[0].is_closed().await);
    // What was begun is finished, and a client that comes again gets the reply.
    server.fake.open_gate();
    let mut again = server.connect_from(GREEDY).await;
    let reply = again.ask(&call(8, fake::WAIT_COUNT, b"")).await;
    assert_eq!(reply.len(), success(8, &words(&[0])).len());
    for peer in &mut greedy[2..] {
        peer.receive().await;
    }
    assert_eq!(server.fake.counted(), 8, "no call was carried out twice");
}

/// A connection that has shown that it takes its replies.
async fn proven(server: &Running, address: &str) -> Peer {
    let mut peer = server.connect_from(address).await;
    for _ in 0..=PROVING_BYTES >> 20 {
        assert_eq!(brought(&mut peer).await, 1 << 20);
    }
    peer
}

/// The bytes that a reply brings of a megabyte.
async fn brought(peer: &mut Peer) -> usize {
    let reply = peer.ask(&call(1, fake::BYTES, &words(&[1 << 20]))).await;
    reply.len() - success(1, &words(&[0])).len()
}

#[tokio::test]
async fn replies_of_one_address_leave_room_to_those_of_another() {
    let limits = Limits {
        reply_timeout: PATIENCE * 10,
        pressure_timeout: PATIENCE * 10,
        ..Limits::default()
    };
    let server = Running::start_with(limits, true).await;
    let mut greedy = Vec::new();
    for _ in 0..4 {
        greedy.push(proven(&server, GREEDY).await);
    }
    let mut good = proven(&server, GOOD).await;
    for peer in &mut greedy {
        for xid in 0..MAX_REPLY_BYTES as u32 >> 22 {
            peer.send_record(&call(xid, fake::WAIT_BYTES, &words(&[1 << 20]))).await;
        }
    }
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    for _ in 0..4 {
        assert_eq!(brought(&mut good).await, 1 << 20);
    }
    server.fake.open_gate();
    for peer in &mut greedy {
        peer.receive().await;
    }
}
