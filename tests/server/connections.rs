//! Many requests, many connections, and clients that behave badly.

use std::time::Duration;

use acetate::server::limits::{Limits, MAX_REQUEST_BYTES};
use acetate::wire::record::MAX_RECORD_BYTES;
use tokio::io::AsyncWriteExt;

use super::fake;
use super::peer::{Running, call, fragment_mark, one_fragment, success, words};

const SOON: Duration = Duration::from_millis(100);

#[tokio::test]
async fn fragments_reach_the_program_as_one_call() {
    let server = Running::start().await;
    let record = call(1, fake::ECHO, b"some args...");
    let mut peer = server.connect().await;
    for middle in 0..=record.len() {
        let (head, tail) = record.split_at(middle);
        peer.send(&[&fragment_mark(head.len(), false)[..], head].concat()).await;
        peer.send(&[&fragment_mark(tail.len(), true)[..], tail].concat()).await;
        assert_eq!(peer.receive().await, success(1, b"some args..."), "cut at {middle}");
    }
}

#[tokio::test]
async fn requests_in_flight_do_not_wait_for_each_other() {
    let server = Running::start().await;
    let mut peer = server.connect().await;
    peer.send_record(&call(1, fake::WAIT, b"slow")).await;
    let pipelined: Vec<u8> =
        (2..100).flat_map(|xid| one_fragment(&call(xid, fake::ECHO, b"fast"))).collect();
    peer.send(&pipelined).await;
    for xid in 2..100 {
        assert_eq!(peer.receive().await, success(xid, b"fast"));
    }
    server.fake.open_gate();
    assert_eq!(peer.receive().await, success(1, b"slow"));
}

#[tokio::test]
async fn a_full_connection_is_not_read_from_while_others_go_on() {
    let limits = Limits { connection_requests: 2, ..Limits::default() };
    let server = Running::start_with(limits, true).await;
    let mut peer = server.connect().await;
    for xid in 0..3 {
        peer.send_record(&call(xid, fake::WAIT, b"")).await;
    }
    server.fake.wait_begun(2).await;
    let echo = server.connect().await.ask(&call(9, fake::ECHO, b"")).await;
    assert_eq!(echo, success(9, b""));
    assert!(peer.is_silent().await);
    server.fake.open_gate();
    let mut got = vec![peer.receive().await, peer.receive().await, peer.receive().await];
    got.sort();
    assert_eq!(got, [0, 1, 2].map(|xid| success(xid, b"")));
}

#[tokio::test]
async fn a_reply_of_a_megabyte_comes_whole() {
    let server = Running::start().await;
    let mut peer = server.connect().await;
    for xid in 0..4 {
        peer.send_record(&call(xid, fake::BYTES, &words(&[1 << 20]))).await;
    }
    for xid in 0..4 {
        let results = [&(1_u32 << 20).to_be_bytes()[..], &[7; 1 << 20]].concat();
        assert!(peer.receive().await == success(xid, &results), "reply {xid}");
    }
}

#[tokio::test]
async fn the_largest_record_fits_and_a_larger_one_closes_the_connection() {
    let server = Running::start().await;
    let head = call(1, fake::ECHO, b"").len();
    let args = vec![5; MAX_RECORD_BYTES - head];
    let mut peer = server.connect().await;
    assert!(peer.ask(&call(1, fake::ECHO, &args)).await == success(1, &args));

    for claimed in [MAX_RECORD_BYTES + 1, 0x7fff_ffff] {
        for last in [true, false] {
            let mut peer = server.connect().await;
            peer.send(&fragment_mark(claimed, last)).await;
            assert!(peer.is_closed().await, "{claimed} bytes");
        }
    }
}

#[tokio::test]
async fn a_record_that_stays_partial_closes_the_connection() {
    let limits = Limits { record_timeout: SOON, ..Limits::default() };
    let server = Running::start_with(limits, true).await;
    let whole = one_fragment(&call(1, fake::ECHO, b""));
    for length in [1, 4, 20] {
        let mut peer = server.connect().await;
        peer.send(&whole[..length]).await;
        assert!(peer.is_closed().await, "after {length} bytes");
    }
}

#[tokio::test]
async fn bytes_that_drip_in_do_not_extend_the_time() {
    let limits = Limits { record_timeout: SOON, ..Limits::default() };
    let server = Running::start_with(limits, true).await;
    let mut peer = server.connect().await;
    let started = std::time::Instant::now();
    for byte in one_fragment(&call(1, fake::ECHO, &[0; 400])) {
        if peer.0.write_all(&[byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(SOON / 10).await;
    }
    assert!(peer.is_closed().await);
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn an_idle_connection_is_closed_but_not_one_with_a_request_in_flight() {
    let limits = Limits { idle_timeout: SOON, ..Limits::default() };
    let server = Running::start_with(limits, true).await;
    let (mut idle, mut busy) = (server.connect().await, server.connect().await);
    busy.send_record(&call(1, fake::WAIT, b"")).await;
    assert!(idle.is_closed().await);
    tokio::time::sleep(SOON * 3).await;
    server.fake.open_gate();
    assert_eq!(busy.receive().await, success(1, b""));
    assert!(busy.is_closed().await);
}

#[tokio::test]
async fn a_client_that_takes_no_replies_is_closed() {
    let limits = Limits { reply_timeout: SOON, ..Limits::default() };
    let server = Running::start_with(limits, true).await;
    let mut peer = server.connect().await;
    for xid in 0..64 {
        let record = one_fragment(&call(xid, fake::BYTES, &words(&[1 << 20])));
        if peer.0.write_all(&record).await.is_err() {
            break;
        }
    }
    tokio::time::sleep(SOON * 5).await;
    // The stream breaks off inside a reply: all that is left of it is less than was asked for.
    let mut rest = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut peer.0, &mut rest);
    let ended = tokio::time::timeout(super::peer::PATIENCE, read).await;
    assert!(ended.is_ok() && rest.len() < 64 << 20);
}

#[tokio::test]
async fn nothing_follows_a_reply_that_broke_off() {
    let late = [0xEE; 4096];
    let reply_timeout = SOON * 8;
    let limits = Limits { reply_timeout, ..Limits::default() };
    let server = Running::start_with(limits, true).await;
    let mut peer = server.connect().await;
    peer.send_record(&call(99, fake::WAIT, &late)).await;
    for xid in 0..32 {
        peer.send_record(&call(xid, fake::BYTES, &words(&[1 << 20]))).await;
    }
    // This reply still has time when the first one's is over.
    tokio::time::sleep(reply_timeout / 2).await;
    server.fake.open_gate();
    tokio::time::sleep(reply_timeout * 3 / 4).await;
    let mut stream = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut peer.0, &mut stream);
    tokio::time::timeout(super::peer::PATIENCE, read).await.expect("an end").unwrap();
    assert!(stream.len() < 32 << 20, "all was sent");
    assert!(!stream.contains(&0xEE), "the client takes it for the rest of another reply");
}

#[tokio::test]
async fn a_client_that_sends_and_closes_its_side_gets_its_replies() {
    let server = Running::start().await;
    let mut peer = server.connect().await;
    peer.send_record(&call(1, fake::WAIT, b"last words..")).await;
    peer.0.shutdown().await.unwrap();
    server.fake.wait_begun(1).await;
    server.fake.open_gate();
    assert_eq!(peer.receive().await, success(1, b"last words.."));
}

#[tokio::test]
async fn a_client_that_closed_its_side_has_its_place_until_its_last_reply_or_another_needs_it() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let server = Running::start_with(limits, true).await;
    let closed = async |xid| {
        let mut peer = server.connect().await;
        peer.ask(&call(xid, fake::ECHO, b"")).await;
        peer.send_record(&call(xid, fake::WAIT, b"")).await;
        peer.0.shutdown().await.unwrap();
        peer
    };
    let (mut first, mut second) = (closed(1).await, closed(2).await);
    server.fake.wait_begun(4).await;
    let mut third = server.connect().await;
    assert_eq!(third.ask(&call(3, fake::ECHO, b"")).await, success(3, b""));
    server.fake.open_gate();
    assert!(first.is_closed().await);
    assert_eq!(second.receive().await, success(2, b""));
}

#[tokio::test]
async fn a_client_that_closed_its_side_and_takes_no_replies_makes_room() {
    let limits = Limits { connections: 1, ..Limits::default() };
    let server = Running::start_with(limits, true).await;
    let mut first = server.connect().await;
    for xid in 0..32 {
        first.send_record(&call(xid, fake::BYTES, &words(&[1 << 20]))).await;
    }
    first.0.shutdown().await.unwrap();
    let mut second = server.connect().await;
    assert_eq!(second.ask(&call(3, fake::ECHO, b"")).await, success(3, b""));
    let mut stream = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut first.0, &mut stream);
    // The end may be a reset: what it sent last was not read.
    let _ended = tokio::time::timeout(super::peer::PATIENCE, read).await.expect("an end");
    assert!(stream.len() < 32 << 20, "all was sent");
}

#[tokio::test]
async fn clients_that_are_slow_to_send_do_not_stop_the_others() {
    let server = Running::start().await;
    let mut slow = Vec::new();
    for _ in 0..64 {
        let mut peer = server.connect().await;
        peer.send(&fragment_mark(MAX_RECORD_BYTES, true)).await;
        slow.push(peer);
    }
    tokio::time::sleep(SOON).await;
    let echo = server.connect().await.ask(&call(9, fake::ECHO, b"")).await;
    assert_eq!(echo, success(9, b""));
}

#[tokio::test]
async fn clients_that_are_slow_to_receive_do_not_stop_the_others() {
    let server = Running::start().await;
    let mut slow = Vec::new();
    for _ in 0..8 {
        let mut peer = server.connect().await;
        for xid in 0..16 {
            peer.send_record(&call(xid, fake::BYTES, &words(&[1 << 20]))).await;
        }
        slow.push(peer);
    }
    tokio::time::sleep(SOON * 3).await;
    let echo = server.connect().await.ask(&call(9, fake::ECHO, b"")).await;
    assert_eq!(echo, success(9, b""));
}

#[tokio::test]
async fn a_connection_over_the_limit_takes_the_place_of_another() {
    let limits = Limits { connections: 1, ..Limits::default() };
    let server = Running::start_with(limits, true).await;
    let mut first = server.connect().await;
    first.ask(&call(1, fake::ECHO, b"")).await;
    let mut second = server.connect().await;
    assert_eq!(second.ask(&call(2, 0, b"")).await, success(2, b""));
    assert!(first.is_closed().await);
}

#[tokio::test]
async fn large_records_that_never_come_do_not_keep_small_ones_waiting() {
    let server = Running::start().await;
    let mut stalled = Vec::new();
    for _ in 0..MAX_REQUEST_BYTES / MAX_RECORD_BYTES + 8 {
        let mut peer = server.connect().await;
        peer.send(&fragment_mark(MAX_RECORD_BYTES, true)).await;
        stalled.push(peer);
    }
    let mut peer = server.connect().await;
    for xid in 0..3 {
        assert_eq!(peer.ask(&call(xid, fake::ECHO, b"tiny")).await, success(xid, b"tiny"));
    }
}

#[tokio::test]
async fn clients_that_take_all_there_is_leave_others_their_first_request() {
    let (server, mut greedy) = Running::with_all_requests_taken().await;
    let mut peer = server.connect().await;
    for xid in 0..3 {
        assert_eq!(peer.ask(&call(xid, fake::ECHO, b"")).await, success(xid, b""));
    }
    server.fake.open_gate();
    for _ in 0..8 {
        greedy.receive().await;
    }
}
