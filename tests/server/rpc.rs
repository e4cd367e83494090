//! Headers, credentials, and every way in which RPC says no.

use super::fake;
use super::peer::{Running, call, call_as, success, words};
use acetate::server::ServerOptions;
use acetate::server::limits::Limits;
use acetate::vfs::Caller;

const ACCEPTED: [u32; 4] = [1, 0, 0, 0];
const DENIED_AUTH: [u32; 3] = [1, 1, 1];

fn accepted(xid: u32, status: &[u32]) -> Vec<u8> {
    words(&[&[xid], &ACCEPTED[..], status].concat())
}

fn auth_error(xid: u32, why: u32) -> Vec<u8> {
    words(&[&[xid], &DENIED_AUTH[..], &[why]].concat())
}

/// AUTH_SYS with machine name `host`, uid 501, gid 20 and `gids`.
fn auth_sys(gids: &[u32]) -> Vec<u32> {
    let body = [&[7, 4, u32::from_be_bytes(*b"host"), 501, 20, gids.len() as u32], gids].concat();
    [&[1, body.len() as u32 * 4], &body[..]].concat()
}

async fn answer(record: Vec<u8>) -> Vec<u8> {
    let server = Running::start().await;
    server.connect().await.ask(&record).await
}

#[tokio::test]
async fn null_is_answered() {
    assert_eq!(answer(call(5, 0, b"")).await, success(5, b""));
}

#[tokio::test]
async fn credentials_reach_the_program() {
    let sys = call_as(1, fake::WHO, &auth_sys(&[12, 61]), b"");
    assert_eq!(answer(sys).await, success(1, &words(&[501, 20, 12, 61])));
    let none = call(1, fake::WHO, b"");
    assert_eq!(answer(none).await, success(1, &words(&[Caller::NOBODY, Caller::NOBODY])));
}

#[tokio::test]
async fn root_is_nobody_where_it_is_squashed() {
    let options = ServerOptions { insecure: true, squash_root: true, ..ServerOptions::default() };
    let server = Running::start_as(options).await;
    let mut peer = server.connect().await;
    let nobody = Caller::NOBODY;
    for (asked, shown) in [
        ([0, 0, 0], [nobody; 3]),
        ([0, 20, 12], [nobody, 20, 12]),
        ([501, 0, 0], [501, nobody, nobody]),
        ([u32::MAX, u32::MAX, 61], [nobody, nobody, 61]),
        ([501, 20, 12], [501, 20, 12]),
    ] {
        let credential = [1, 24, 0, 0, asked[0], asked[1], 1, asked[2]];
        let got = peer.ask(&call_as(1, fake::WHO, &credential, b"")).await;
        assert_eq!(got, success(1, &words(&shown)), "{asked:?}");
    }
}

#[tokio::test]
async fn sixteen_groups_are_the_most() {
    let most: Vec<u32> = (0..16).collect();
    let ids = [&[501, 20], &most[..]].concat();
    let fits = call_as(1, fake::WHO, &auth_sys(&most), b"");
    assert_eq!(answer(fits).await, success(1, &words(&ids)));
    let over: Vec<u32> = (0..17).collect();
    assert_eq!(answer(call_as(1, fake::WHO, &auth_sys(&over), b"")).await, auth_error(1, 1));
}

#[tokio::test]
async fn malformed_credentials_are_bad_ones() {
    let long_name = [&[1, 8 + 256 + 12, 0, 256][..], &[0; 64], &[0, 0, 0]].concat();
    let trailing = [&[1, 28, 7, 0, 501, 20, 0, 9, 9][..]].concat();
    let body_in_none = vec![0, 4, 1];
    let over_400 = [&[1, 404][..], &[0; 101]].concat();
    for credential in [long_name, trailing, body_in_none, over_400, vec![1, 0]] {
        let got = answer(call_as(3, 0, &credential, b"")).await;
        assert_eq!(got, auth_error(3, 1), "{credential:?}");
    }
}

#[tokio::test]
async fn other_flavours_are_too_weak_and_other_verifiers_bad() {
    // AUTH_SHORT, AUTH_DH, RPCSEC_GSS, pseudo-flavours of it, and what nobody has heard of.
    for flavour in [2, 3, 6, 390_003, u32::MAX] {
        for credential in [vec![flavour, 0], vec![flavour, 8, 1, 2]] {
            let got = answer(call_as(3, 0, &credential, b"")).await;
            assert_eq!(got, auth_error(3, 5), "{credential:?}");
        }
    }
    let mut verifier = call(3, 0, b"");
    let at = verifier.len() - 5;
    verifier[at] = 1;
    assert_eq!(answer(verifier).await, auth_error(3, 3));
}

#[tokio::test]
async fn other_versions_and_programs_are_refused_by_name() {
    let with = |program: u32, version: u32| words(&[9, 0, 2, program, version, 0, 0, 0, 0, 0]);
    for version in [1, 2, 4, u32::MAX] {
        let got = answer(with(fake::PROGRAM, version)).await;
        assert_eq!(got, accepted(9, &[2, 3, 3]), "version {version}");
    }
    assert_eq!(answer(with(100_227, 3)).await, accepted(9, &[1]));
    let rpc_3 = words(&[9, 0, 3, fake::PROGRAM, 3, 0, 0, 0, 0, 0]);
    assert_eq!(answer(rpc_3).await, words(&[9, 1, 1, 0, 2, 2]));
}

#[tokio::test]
async fn procedures_and_arguments_are_refused_by_name() {
    assert_eq!(answer(call(2, 99, b"")).await, accepted(2, &[3]));
    assert_eq!(answer(call(2, fake::NUMBER, b"\0\0")).await, accepted(2, &[4]));
    assert_eq!(answer(call(2, fake::NUMBER, &[0; 8])).await, accepted(2, &[4]));
}

#[tokio::test]
async fn a_header_that_ends_early_is_garbage_wherever_it_ends() {
    let whole = call_as(8, 0, &auth_sys(&[1]), b"");
    for length in (8..whole.len()).step_by(4) {
        let got = answer(whole[..length].to_vec()).await;
        assert_eq!(got, accepted(8, &[4]), "{length} bytes");
    }
}

#[tokio::test]
async fn what_is_no_message_closes_the_connection() {
    let server = Running::start().await;
    for garbage in [&b""[..], b"abc", b"GET / HTTP/1.1\r\n\r\n", &words(&[1, 2, 3])] {
        let mut peer = server.connect().await;
        peer.send_record(garbage).await;
        assert!(peer.is_closed().await, "{garbage:?}");
    }
}

#[tokio::test]
async fn a_reply_is_nobodys_call() {
    let server = Running::start().await;
    let mut peer = server.connect().await;
    peer.send_record(&success(1, b"")).await;
    assert_eq!(peer.ask(&call(2, 0, b"")).await, success(2, b""));
}

#[tokio::test]
async fn a_panic_is_a_system_error_and_the_connection_goes_on() {
    let server = Running::start().await;
    let mut peer = server.connect().await;
    assert_eq!(peer.ask(&call(1, fake::PANIC, b"")).await, accepted(1, &[5]));
    assert_eq!(peer.ask(&call(2, fake::ECHO, b"more")).await, success(2, b"more"));
}

#[test]
fn ports_from_1024_are_refused_unless_insecure() {
    let from = |port: u16| std::net::SocketAddr::from(([127, 0, 0, 1], port));
    assert!(!acetate::server::refuses_port(from(1023), false));
    assert!(acetate::server::refuses_port(from(1024), false));
    assert!(!acetate::server::refuses_port(from(1024), true));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_unprivileged_port_may_ping_but_no_more() {
    let server = Running::start_with(Limits::default(), false).await;
    let mut peer = server.connect().await;
    assert_eq!(peer.ask(&call(1, 0, b"")).await, success(1, b""));
    assert_eq!(peer.ask(&call(2, fake::COUNT, b"")).await, auth_error(2, 5));
    assert_eq!(server.fake.counted(), 0);
}

#[cfg(not(target_os = "linux"))]
#[tokio::test]
async fn an_unprivileged_port_is_as_good_as_any() {
    let server = Running::start_with(Limits::default(), false).await;
    let got = server.connect().await.ask(&call(1, fake::ECHO, b"")).await;
    assert_eq!(got, success(1, b""));
}
