//! Stopping.

use std::time::Duration;

use acetate::server::ServerOptions;
use acetate::server::limits::Limits;
use tokio::net::TcpStream;

use super::fake;
use super::peer::{PATIENCE, Running, call, success};

#[tokio::test]
async fn what_is_running_is_finished_and_answered() {
    let server = Running::start().await;
    let (address, fake) = (server.address, server.fake.clone());
    let mut peer = server.connect().await;
    peer.send_record(&call(1, fake::WAIT, b"done")).await;
    fake.wait_begun(1).await;
    let stopped = server.stop();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!stopped.is_finished());
    assert!(TcpStream::connect(address).await.is_err(), "still accepts");
    fake.open_gate();
    assert_eq!(peer.receive().await, success(1, b"done"));
    tokio::time::timeout(PATIENCE, stopped).await.unwrap().unwrap();
    assert!(peer.is_closed().await);
}

#[tokio::test]
async fn nothing_is_begun_any_more() {
    let server = Running::start().await;
    let fake = server.fake.clone();
    let mut peer = server.connect().await;
    peer.ask(&call(1, 0, b"")).await;
    tokio::time::timeout(PATIENCE, server.stop()).await.unwrap().unwrap();
    let _sent = tokio::io::AsyncWriteExt::write_all(&mut peer.0, &call(2, fake::COUNT, b"")).await;
    assert!(peer.is_closed().await);
    assert_eq!(fake.counted(), 0);
}

#[tokio::test]
async fn what_never_ends_is_given_up() {
    let limits = Limits { drain_timeout: Duration::from_millis(100), ..Limits::default() };
    let server = Running::start_with(limits, true).await;
    let fake = server.fake.clone();
    let mut peer = server.connect().await;
    peer.send_record(&call(1, fake::WAIT, b"")).await;
    fake.wait_begun(1).await;
    tokio::time::timeout(PATIENCE, server.stop()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_stop_sends_what_is_left_and_resets_nothing() {
    let options = ServerOptions { insecure: true, resets: true, ..ServerOptions::default() };
    let server = Running::start_as(options).await;
    let mut peer = server.connect().await;
    peer.ask(&call(1, fake::ECHO, b"")).await;
    server.stop().await.unwrap();
    let read = tokio::io::AsyncReadExt::read(&mut peer.0, &mut [0; 1]).await;
    assert_eq!(read.unwrap(), 0);
}
