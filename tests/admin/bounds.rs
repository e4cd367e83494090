//! The bounds of the listener: what a client cannot do to others.

use acetate::admin::limits::{MAX_ADMIN_CONNECTIONS, MAX_HEAD_BYTES, MAX_HEADERS};

use super::Door;
use crate::support::http::{HttpClient, exchange, get};

#[test]
fn a_long_head_is_refused() {
    let door = Door::open(0);
    let long = "x".repeat(2 * MAX_HEAD_BYTES);
    let many = "A: b\r\n".repeat(MAX_HEADERS + 1);
    for (head, statuses) in [
        (format!("GET /healthz HTTP/1.1\r\nLong: {long}\r\n\r\n"), [431, 431]),
        (format!("GET /{long} HTTP/1.1\r\n\r\n"), [414, 431]),
        (format!("GET /healthz HTTP/1.1\r\n{many}\r\n"), [431, 431]),
    ] {
        // The rest of a head that is refused may reset the connection before the response is read.
        if let Some(response) = exchange(door.address, head.as_bytes()) {
            assert!(statuses.contains(&response.status), "{}", response.status);
        }
    }
    // What is never complete is refused too.
    let mut endless = HttpClient::connect(door.address);
    endless.send(b"GET /healthz HTTP/1.1\r\n");
    endless.send(long.as_bytes());
    let response = endless.response();
    assert!(response.is_none_or(|response| response.status == 431));
    let fits = format!("GET /healthz HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(MAX_HEAD_BYTES / 2));
    assert_eq!(exchange(door.address, fits.as_bytes()).unwrap().status, 200);
}

#[test]
fn a_slow_head_ends_its_connection() {
    let door = Door::open(0);
    let idle = HttpClient::connect(door.address);
    let mut slow = HttpClient::connect(door.address);
    slow.send(b"GET /healthz HTTP/1.1\r\nHost:");
    // Both are closed, though the client waits on.
    let answered = |client: HttpClient| client.response().map(|response| response.status);
    assert!(matches!(answered(slow), None | Some(408)));
    assert!(matches!(answered(idle), None | Some(408)));
    assert_eq!(get(door.address, "/healthz").status, 200);
}

#[test]
fn idle_connections_keep_no_client_out() {
    let door = Door::open(0);
    let opened = 3 * MAX_ADMIN_CONNECTIONS;
    let idle: Vec<_> = (0..opened).map(|_| HttpClient::connect(door.address)).collect();
    // The listener accepts in order: once this is answered, it has accepted all.
    assert_eq!(get(door.address, "/healthz").status, 200);
    let closed = idle.iter().filter(|client| client.is_closed()).count();
    let first = idle.iter().take_while(|client| client.is_closed()).count();
    assert_eq!(closed, first, "those that were idle for longest");
    // None was idle for long enough to be closed for that, unless the machine stood still.
    assert!(closed > opened - MAX_ADMIN_CONNECTIONS, "{closed} of {opened}");
}

#[test]
fn a_request_that_is_answered_does_not_give_way_to_idle_connections() {
    let door = Door::open(0);
    let mut busy = HttpClient::connect(door.address);
    busy.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    door.await_look();
    let opened = 2 * MAX_ADMIN_CONNECTIONS;
    let idle: Vec<_> = (0..opened).map(|_| HttpClient::connect(door.address)).collect();
    assert_eq!(get(door.address, "/healthz").status, 200);
    assert!(!busy.is_closed());
    door.state.gate.add_permits(1);
    assert_eq!(busy.response().unwrap().status, 200);
    drop(idle);
}

#[test]
fn among_busy_connections_the_oldest_gives_way() {
    let door = Door::open(0);
    let busy: Vec<_> = (0..MAX_ADMIN_CONNECTIONS)
        .map(|_| {
            let mut client = HttpClient::connect(door.address);
            client.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
            door.await_look();
            client
        })
        .collect();
    assert_eq!(get(door.address, "/healthz").status, 200);
    assert!(busy[0].is_closed());
    assert!(busy[1..].iter().all(|client| !client.is_closed()));
}
