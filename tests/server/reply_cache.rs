//! Retransmitted calls.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acetate::server::limits::{Limits, MAX_EQUAL_CALLS, REPLY_CACHE_AGE};
use acetate::server::{CacheLookup, CallKey, ConnectionLiveness, ReplyCache};
use bytes::Bytes;

use super::fake;
use super::peer::{Running, call, success, words};

#[tokio::test]
async fn a_reply_is_replayed_over_a_reconnect() {
    let server = Running::start().await;
    let first = server.connect().await.ask(&call(7, fake::COUNT, b"args")).await;
    let again = server.connect().await.ask(&call(7, fake::COUNT, b"args")).await;
    assert_eq!((first, server.fake.counted()), (again, 1));
}

#[tokio::test]
async fn another_xid_or_other_arguments_are_another_call() {
    let server = Running::start().await;
    let mut peer = server.connect().await;
    for (expected, (xid, args)) in [(7, b"args"), (8, b"args"), (8, b"ARGS")].iter().enumerate() {
        let got = peer.ask(&call(*xid, fake::COUNT, *args)).await;
        assert_eq!(got, success(*xid, &words(&[expected as u32])));
    }
}

#[tokio::test]
async fn what_is_idempotent_is_carried_out_again() {
    let server = Running::start().await;
    let mut peer = server.connect().await;
    peer.ask(&call(7, fake::ECHO, b"")).await;
    peer.ask(&call(7, fake::ECHO, b"")).await;
    server.fake.wait_begun(2).await;
}

#[tokio::test]
async fn calls_that_differ_behind_a_kibibyte_of_arguments_are_others() {
    let server = Running::start().await;
    let mut peer = server.connect().await;
    let mut args = vec![7; 32 << 10];
    peer.ask(&call(7, fake::COUNT, &args)).await;
    for at in [1 << 10, 2000, (32 << 10) - 1] {
        args[at] ^= 1;
        peer.ask(&call(7, fake::COUNT, &args)).await;
    }
    assert_eq!(server.fake.counted(), 4);
}

#[tokio::test]
async fn a_retransmission_in_progress_gets_the_same_reply() {
    let server = Running::start().await;
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    one.send_record(&call(7, fake::WAIT_COUNT, b"")).await;
    server.fake.wait_begun(1).await;
    two.send_record(&call(7, fake::WAIT_COUNT, b"")).await;
    drop(one);
    assert!(two.is_silent().await);
    server.fake.open_gate();
    assert_eq!(two.receive().await, success(7, &words(&[0])));
    assert_eq!(server.fake.counted(), 1);
}

#[tokio::test]
async fn two_programs_at_one_address_with_equal_calls_get_replies_of_their_own() {
    let server = Running::start().await;
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    let equal = call(7, fake::COUNT, b"args");
    let expected = [0, 1].map(|count| success(7, &words(&[count])));
    assert_eq!([one.ask(&equal).await, two.ask(&equal).await], expected);
    // Each gets its own again, over the same connection and, once that has ended, over others.
    assert_eq!([one.ask(&equal).await, two.ask(&equal).await], expected);
    drop(two);
    let mut three = server.connect().await;
    assert_eq!([one.ask(&equal).await, three.ask(&equal).await], expected);
    drop(one);
    assert_eq!(server.connect().await.ask(&equal).await, expected[0]);
    assert_eq!(server.fake.counted(), 2);
}

#[tokio::test]
async fn equal_calls_in_progress_of_two_programs_are_both_carried_out() {
    let server = Running::start().await;
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    for peer in [&mut one, &mut two] {
        peer.send_record(&call(7, fake::WAIT_COUNT, b"")).await;
    }
    server.fake.wait_begun(2).await;
    server.fake.open_gate();
    let mut got = [one.receive().await, two.receive().await];
    got.sort();
    assert_eq!(got, [0, 1].map(|count| success(7, &words(&[count]))));
}

#[tokio::test]
async fn a_call_whose_connection_is_gone_is_finished_and_its_reply_kept() {
    let server = Running::start().await;
    let mut gone = server.connect().await;
    gone.send_record(&call(7, fake::WAIT_COUNT, b"")).await;
    server.fake.wait_begun(1).await;
    drop(gone);
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.fake.open_gate();
    let got = server.connect().await.ask(&call(7, fake::WAIT_COUNT, b"")).await;
    assert_eq!((got, server.fake.counted()), (success(7, &words(&[0])), 1));
}

#[tokio::test]
async fn try_again_later_is_not_kept() {
    let server = Running::start().await;
    let mut peer = server.connect().await;
    peer.ask(&call(7, fake::JUKEBOX, b"")).await;
    peer.ask(&call(7, fake::JUKEBOX, b"")).await;
    assert_eq!(server.fake.counted(), 2);
}

fn key(xid: u32) -> CallKey {
    let client: IpAddr = "192.0.2.1".parse().unwrap();
    CallKey::new(client, xid, 1, b"record", 0)
}

/// A connection from a port, which is open.
fn from(port: u16) -> Arc<ConnectionLiveness> {
    Arc::new(ConnectionLiveness::new(port))
}

fn put(cache: &ReplyCache, xid: u32, bytes: usize, now: Instant) {
    let CacheLookup::New(slot) = cache.enter(key(xid), &from(1), now) else {
        panic!("{xid} is known")
    };
    slot.finish(&vec![Bytes::from(vec![0; bytes])], true, now);
}

fn has(cache: &ReplyCache, xid: u32, now: Instant) -> bool {
    matches!(cache.enter(key(xid), &from(1), now), CacheLookup::Done(_))
}

#[test]
fn the_oldest_replies_make_room() {
    let now = Instant::now();
    let limits = Limits { reply_cache_entries: 3, reply_cache_bytes: 100, ..Limits::default() };
    let cache = ReplyCache::new(&limits);
    for xid in 0..4 {
        put(&cache, xid, 10, now);
    }
    assert_eq!([0, 1, 2, 3].map(|xid| has(&cache, xid, now)), [false, true, true, true]);
    put(&cache, 4, 85, now);
    assert_eq!([1, 2, 3, 4].map(|xid| has(&cache, xid, now)), [false, false, true, true]);
    put(&cache, 5, 101, now);
    assert_eq!([3, 4, 5].map(|xid| has(&cache, xid, now)), [false; 3]);
}

#[test]
fn old_replies_are_forgotten() {
    let now = Instant::now();
    let cache = ReplyCache::new(&Limits::default());
    put(&cache, 1, 10, now);
    assert!(has(&cache, 1, now + REPLY_CACHE_AGE - Duration::from_nanos(1)));
    assert!(!has(&cache, 1, now + REPLY_CACHE_AGE));
}

#[test]
fn a_call_given_up_counts_as_never_seen() {
    let now = Instant::now();
    let cache = ReplyCache::new(&Limits::default());
    let CacheLookup::New(slot) = cache.enter(key(1), &from(1), now) else { panic!() };
    assert!(matches!(cache.enter(key(1), &from(1), now), CacheLookup::InProgress(_)));
    drop(slot);
    assert!(matches!(cache.enter(key(1), &from(1), now), CacheLookup::New(_)));
}

#[test]
fn an_equal_call_over_another_connection_is_the_same_once_the_first_has_ended() {
    let now = Instant::now();
    let cache = ReplyCache::new(&Limits::default());
    let (first, second, third) = (from(1), from(2), from(3));
    let reply = |text: &'static str| vec![Bytes::from_static(text.as_bytes())];
    let CacheLookup::New(slot) = cache.enter(key(1), &first, now) else { panic!("it is known") };
    slot.finish(&reply("one"), true, now);
    assert!(matches!(cache.enter(key(1), &second, now), CacheLookup::MaybeRetransmission(_)));
    let CacheLookup::New(slot) = cache.enter_as_new(key(1), &second, now) else { panic!() };
    assert!(matches!(cache.enter(key(1), &second, now), CacheLookup::InProgress(_)));
    slot.finish(&reply("two"), true, now);
    let replayed = |from: &Arc<ConnectionLiveness>| match cache.enter(key(1), from, now) {
        CacheLookup::Done(reply) => reply,
        _ => panic!("not replayed"),
    };
    assert_eq!([&first, &second].map(replayed), [reply("one"), reply("two")]);
    assert!(matches!(cache.enter(key(1), &third, now), CacheLookup::MaybeRetransmission(_)));
    second.end();
    assert_eq!(replayed(&third), reply("two"));
    // From then on it is the third one's: an equal call of a fourth is another one.
    assert!(matches!(cache.enter(key(1), &from(4), now), CacheLookup::MaybeRetransmission(_)));
    // A port has one connection at a time.
    assert_eq!(replayed(&from(1)), reply("one"));
}

#[test]
fn so_many_equal_calls_are_kept_and_not_more() {
    let now = Instant::now();
    let cache = ReplyCache::new(&Limits::default());
    for port in 0..u16::from(MAX_EQUAL_CALLS) + 3 {
        let CacheLookup::New(slot) = cache.enter_as_new(key(1), &from(port), now) else { panic!() };
        slot.finish(&vec![Bytes::from_static(b"reply")], true, now);
    }
    let kept = (0..u16::from(MAX_EQUAL_CALLS) + 3)
        .filter(|&port| matches!(cache.enter(key(1), &from(port), now), CacheLookup::Done(_)));
    assert_eq!(kept.count(), usize::from(MAX_EQUAL_CALLS));
}

#[test]
fn the_digest_of_a_call_without_data_is_as_before() {
    // What sessions of earlier versions have in their audit log.
    let key = CallKey::new("192.0.2.1".parse().unwrap(), 7, 12, &[3; 700], 44);
    assert_eq!(key.digest().0, 0x1b86_56c0_9bd5_2456);
}

#[tokio::test]
async fn whoever_waits_hears_of_a_reply_that_is_not_kept_and_of_none() {
    let now = Instant::now();
    let cache = ReplyCache::new(&Limits::default());
    let reply = vec![Bytes::from_static(b"later")];
    for finished in [true, false] {
        let CacheLookup::New(slot) = cache.enter(key(1), &from(1), now) else {
            panic!("it is known")
        };
        let waiting = [(); 2].map(|()| match cache.enter(key(1), &from(1), now) {
            CacheLookup::InProgress(waiting) => waiting,
            _ => panic!("it is not in progress"),
        });
        match finished {
            true => slot.finish(&reply, false, now),
            false => drop(slot),
        }
        for waiting in waiting {
            let heard = tokio::time::timeout(Duration::from_secs(30), waiting.reply()).await;
            assert_eq!(heard, Ok(finished.then(|| reply.clone())));
        }
    }
}

#[test]
fn an_ipv4_client_is_the_same_over_an_ipv6_socket() {
    let at = |ip: &str| CallKey::new(ip.parse().unwrap(), 1, 1, b"record", 0);
    assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
    assert_ne!(at("192.0.2.2"), at("192.0.2.1"));
}

#[test]
fn one_record_from_many_addresses_is_in_many_places() {
    let hash = |ip: &str| {
        let key = CallKey::new(ip.parse().unwrap(), 1, 1, b"record", 0);
        BuildHasherDefault::<DefaultHasher>::default().hash_one(key)
    };
    assert_ne!(hash("192.0.2.1"), hash("192.0.2.2"));
    assert_eq!(hash("192.0.2.1"), hash("::ffff:192.0.2.1"));
}
