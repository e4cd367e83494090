//! What is answered, and what is refused.

use super::Door;
use crate::support::http::{exchange, get, request};

#[test]
fn the_figures_are_text_that_prometheus_reads() {
    let door = Door::open(1);
    let response = get(door.address, "/metrics?name=value");
    assert_eq!(response.status, 200);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(response.headers["content-type"], kind);
    assert!(response.body.contains("\n# TYPE acetate_sessions gauge\nacetate_sessions 3\n"));
    assert!(response.body.ends_with("# EOF\n"));
}

#[test]
fn a_reason_comes_with_each_state() {
    let door = Door::open(0);
    let states = || {
        ["/healthz", "/readyz"].map(|path| {
            let response = get(door.address, path);
            assert_eq!(response.headers["cache-control"], "no-store");
            (response.status, response.body)
        })
    };
    let ok = || (200, "ok\n".to_owned());
    assert_eq!(states(), [ok(), ok()]);
    *door.state.unready.lock() = Some("draining".to_owned());
    assert_eq!(states(), [ok(), (503, "draining\n".to_owned())]);
    *door.state.fault.lock() = Some("stuck".to_owned());
    assert_eq!(states(), [(503, "stuck\n".to_owned()), (503, "stuck\n".to_owned())]);
}

#[test]
fn only_get_and_head_are_answered() {
    let door = Door::open(0);
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "X"] {
        let response = request(door.address, method, "/healthz");
        assert_eq!(response.status, 405, "{method}");
        assert_eq!(response.headers["allow"], "GET, HEAD", "{method}");
    }
    let head = request(door.address, "HEAD", "/healthz");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(head.headers["content-length"], "3");
}

#[test]
fn there_is_nothing_at_other_paths() {
    let door = Door::open(0);
    for path in ["/", "/metrics/", "//metrics", "/METRICS", "/../metrics", "/%6detrics", "*"] {
        assert_eq!(get(door.address, path).status, 404, "{path}");
    }
}

#[test]
fn a_connection_has_one_request() {
    let door = Door::open(0);
    let twice = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n".repeat(2);
    let response = exchange(door.address, twice.as_bytes()).unwrap();
    assert_eq!((response.status, response.body.as_str()), (200, "ok\n"));
    assert_eq!(response.headers["connection"], "close");
}

#[test]
fn a_body_is_not_wanted() {
    let door = Door::open(0);
    let with = |length: &str, body: &str| {
        let head = format!("GET /healthz HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n{body}");
        exchange(door.address, head.as_bytes()).map(|response| response.status)
    };
    assert_eq!(with("Content-Length: 4", "body"), Some(200));
    assert_eq!(with("Content-Length: 1024", ""), Some(200), "it is not read");
    assert_eq!(with("Content-Length: 1025", ""), Some(413));
    assert_eq!(with("Content-Length: 99999999999", ""), Some(413));
    assert_eq!(with("Content-Length: -1", ""), Some(400));
    assert_eq!(with("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"), Some(200));
    assert_eq!(get(door.address, "/healthz").status, 200);
}

#[test]
fn garbage_ends_its_connection_alone() {
    let door = Door::open(0);
    for garbage in [
        &b"\0\0\0\0\xff\xff\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS client\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nno header\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let status = exchange(door.address, garbage).map(|response| response.status);
        assert!(matches!(status, None | Some(400)), "{status:?}: {}", garbage.escape_ascii());
    }
    assert_eq!(get(door.address, "/healthz").status, 200);
}
