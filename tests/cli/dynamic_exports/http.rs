//! `/exports` of `serve --admin`.

use std::fs;
use std::net::{Shutdown, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::{Site, end, export};
use crate::cli::program::acetate;
use crate::support::http::{HttpClient, HttpResponse, exchange, get};

pub(super) const TOKEN: &str = "0123456789abcdef-secret";

/// A site with a server of `/a`, and the address of its `--admin`.
pub(super) struct Api {
    pub(super) site: Site,
    pub(super) address: SocketAddr,
}

impl Api {
    fn start(more: &[&str]) -> Self {
        let mut site = Site::new(&export("path = \"/a\"", "a.db", "base = \"base\""));
        fs::write(site.path("token"), format!("{TOKEN}\n")).unwrap();
        fs::set_permissions(site.path("token"), PermissionsExt::from_mode(0o600)).unwrap();
        site.serve(&[&["--admin", "127.0.0.1:0"], more].concat());
        let said = &site.server.as_ref().unwrap().said;
        let line = said.iter().find_map(|line| line.strip_prefix("figures at http://"));
        let address = line.unwrap().strip_suffix("/metrics").unwrap().parse().unwrap();
        Self { site, address }
    }

    pub(super) fn with_token() -> Self {
        Self::start(&["--admin-token-file", "token"])
    }

    /// The response to a request with the token.
    pub(super) fn ask(&self, what: &str, body: &str) -> HttpResponse {
        self.ask_with(what, &format!("Authorization: Bearer {TOKEN}\r\n"), body)
    }

    fn ask_with(&self, what: &str, headers: &str, body: &str) -> HttpResponse {
        ask(self.address, what, headers, body)
    }

    /// The names of the exports that are listed.
    pub(super) fn names(&self) -> Vec<String> {
        let response = self.ask("GET /exports", "");
        let list: Value = serde_json::from_str(&response.body).unwrap();
        let name = |export: &Value| export["name"].as_str().unwrap().to_owned();
        list["exports"].as_array().unwrap().iter().map(name).collect()
    }
}

pub(super) fn ask(to: SocketAddr, what: &str, headers: &str, body: &str) -> HttpResponse {
    let length = body.len();
    let fixed = format!("Host: {to}\r\nContent-Length: {length}\r\n");
    let request = format!("{what} HTTP/1.1\r\n{fixed}{headers}\r\n{body}");
    exchange(to, request.as_bytes()).unwrap()
}

fn json(response: &HttpResponse) -> Value {
    assert_eq!(response.headers["content-type"], "application/json");
    serde_json::from_str(&response.body).unwrap()
}

#[test]
fn exports_are_put_listed_and_deleted() {
    let api = Api::with_token();
    let toml = export("path = \"/b\"", "b.db", "base = \"base\"");
    let made = api.ask("PUT /exports/b", &toml);
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(json(&made)["path"], "/b");
    assert_eq!(fs::read_to_string(api.site.path("exports.d/b.toml")).unwrap(), toml);
    api.site.peer("/b");
    let again = api.ask("PUT /exports/b", &toml.replace("/b\"", "/b2\""));
    assert_eq!((again.status, &json(&again)["path"]), (200, &"/b2".into()));
    let listed = json(&api.ask("GET /exports", ""));
    assert_eq!((&listed["exports"][1]["path"], &listed["is_more"]), (&"/b2".into(), &false.into()));
    let after = json(&api.ask("GET /exports?after=%2Fa", ""));
    assert_eq!(after["exports"].as_array().unwrap().len(), 1, "{after}");
    // What commands do, they do beside it.
    api.site.add("c");
    assert_eq!(api.names(), ["a", "b", "c"]);
    let kept = api.ask("DELETE /exports/b", "");
    assert_eq!((kept.status, &json(&kept)["deleted"]), (200, &Value::Array(Vec::new())));
    assert!(api.site.path("b.db").exists() && api.site.mount("/b2").is_none());
    let deleted = api.ask("DELETE /exports/c?delete=true", "");
    assert_eq!(deleted.status, 200, "{deleted:?}");
    assert!(!api.site.path("c.db").exists());
    assert_eq!(api.names(), ["a"]);
}

#[test]
fn what_is_wrong_has_its_status_and_changes_nothing() {
    let api = Api::with_token();
    let good = export("path = \"/b\"", "b.db", "");
    let clash = export("path = \"/a\"", "b.db", "");
    for (what, body, status) in [
        ("PUT /exports/b", "nonsense", 422),
        ("PUT /exports/b", clash.as_str(), 422),
        ("PUT /exports/.b", good.as_str(), 422),
        ("PUT /exports/a", good.as_str(), 422),
        ("PUT /exports/%2e%2e%2fb", good.as_str(), 422),
        ("PUT /exports/b%ff", good.as_str(), 400),
        ("PUT /exports/b?x=y", good.as_str(), 400),
        ("PUT /exports/b/c", good.as_str(), 404),
        ("PUT /exports/", good.as_str(), 404),
        ("DELETE /exports/b", "", 404),
        ("DELETE /exports/a", "", 404),
        ("DELETE /exports/b?delete=yes", "", 400),
        ("GET /exports?before=x", "", 400),
    ] {
        assert_eq!(api.ask(what, body).status, status, "{what}");
    }
    for (method, path, allowed) in [
        ("POST", "/exports", "GET"),
        ("PUT", "/exports", "GET"),
        ("HEAD", "/exports", "GET"),
        ("GET", "/exports/a", "PUT, DELETE"),
        ("PATCH", "/exports/a", "PUT, DELETE"),
    ] {
        let response = api.ask(&format!("{method} {path}"), "");
        assert_eq!(
            (response.status, &*response.headers["allow"]),
            (405, allowed),
            "{method} {path}"
        );
    }
    let refused = api.ask("PUT /exports/b", "nonsense");
    let error = json(&refused)["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("in the new export, line 1, column 9: "), "{error}");
    assert_eq!((api.names(), api.site.added_files()), (vec!["a".to_owned()], Vec::new()));
    assert_eq!(get(api.address, "/healthz").status, 200);
}

#[test]
fn a_large_body_is_refused() {
    let api = Api::with_token();
    let large = "x".repeat((256 << 10) + 1);
    let head = format!(
        "PUT /exports/b HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\n",
        api.address
    );
    for length in ["Content-Length: 262145\r\n\r\n", "Content-Length: 999999999999\r\n\r\n"] {
        assert_eq!(exchange(api.address, (head.clone() + length).as_bytes()).unwrap().status, 413);
    }
    // The server may close the connection before all has been sent.
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n40001\r\n{large}\r\n0\r\n\r\n");
    let response = exchange(api.address, chunked.as_bytes());
    assert!(response.is_none_or(|response| response.status == 413));
    // A body that does not come holds up no other request.
    let mut slow = HttpClient::connect(api.address);
    slow.send((head + "Content-Length: 100\r\n\r\nnot all").as_bytes());
    assert_eq!(api.names(), ["a"]);
    assert_eq!(get(api.address, "/metrics").status, 200);
    // Nor is it waited for, once the client ends it.
    slow.0.shutdown(Shutdown::Write).unwrap();
    assert!(slow.response().is_none_or(|response| response.status == 400));
    assert_eq!(api.site.added_files(), [""; 0]);
}

/// Two proxies may take different ones.
#[test]
fn a_header_that_decides_is_given_once() {
    let api = Api::with_token();
    let (own, foreign) = (api.address.to_string(), "example.org".to_owned());
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let origin = |host: &str| format!("Origin: http://{host}");
    for lines in [
        vec![format!("Host: {own}"), format!("Host: {foreign}"), bearer.clone()],
        vec![format!("Host: {own}"), format!("Host: {own}"), bearer.clone()],
        vec![format!("Host: {own}"), origin(&own), origin(&foreign), bearer.clone()],
        vec![format!("Host: {own}"), bearer.clone(), "Authorization: Bearer x".to_owned()],
    ] {
        let head = lines.join("\r\n");
        for what in ["GET /exports", "PUT /exports/b", "DELETE /exports/a"] {
            let request = format!("{what} HTTP/1.1\r\n{head}\r\nContent-Length: 0\r\n\r\n");
            let response = exchange(api.address, request.as_bytes()).unwrap();
            assert_eq!(response.status, 400, "{request}");
            assert!(json(&response)["error"].as_str().unwrap().contains("more than one"));
        }
    }
    assert_eq!(api.names(), ["a"]);
}

#[test]
fn all_errors_have_one_shape() {
    let api = Api::with_token();
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    for (what, headers, body, status) in [
        ("GET /exports", "", "", 401),
        ("GET /exports", "Origin: null\r\n", "", 403),
        ("POST /exports", &bearer, "", 405),
        ("GET /exports/", &bearer, "", 404),
        ("GET /exports?x=y", &bearer, "", 400),
        ("DELETE /exports/none", &bearer, "", 404),
        ("PUT /exports/b", &bearer, "nonsense", 422),
        ("PUT /exports/b", &bearer, &"x".repeat((256 << 10) + 1), 413),
    ] {
        let response = api.ask_with(what, headers, body);
        let error = json(&response);
        assert_eq!(response.status, status, "{error}");
        let keys: Vec<_> = error.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["error", "hint", "type", "v"], "{what}");
        let of = (&error["v"], &error["type"], error["error"].is_string());
        assert_eq!(of, (&1.into(), &"error".into(), true), "{error}");
        assert!(error["hint"].is_string() || error["hint"].is_null(), "{error}");
    }
}

#[test]
fn without_the_token_nothing_is_told() {
    let api = Api::with_token();
    let bearer = format!("Authorization: Bearer {TOKEN}");
    for headers in [
        String::new(),
        "Authorization: Bearer wrong\r\n".to_owned(),
        format!("{bearer}x\r\n"),
        format!("Authorization: Basic {TOKEN}\r\n"),
        format!("Authorization: {TOKEN}\r\n"),
    ] {
        for what in ["GET /exports", "PUT /exports/b", "DELETE /exports/a", "GET /exports/x/y"] {
            let response = api.ask_with(what, &headers, "");
            assert_eq!(response.status, 401, "{what} {headers}");
            assert_eq!(response.headers["www-authenticate"], "Bearer");
        }
    }
    for headers in ["Origin: http://example.org\r\n", "Origin: null\r\n"] {
        let response = api.ask_with("GET /exports", &format!("{bearer}\r\n{headers}"), "");
        assert_eq!(response.status, 403, "{headers}");
    }
    let own = format!("{bearer}\r\nOrigin: http://{}\r\n", api.address);
    assert_eq!(api.ask_with("GET /exports", &own, "").status, 200);
    for host in ["Host: example.org\r\n", ""] {
        let request = format!("GET /exports HTTP/1.1\r\n{host}{bearer}\r\n\r\n");
        assert_eq!(exchange(api.address, request.as_bytes()).unwrap().status, 403, "{host}");
    }
    assert_eq!(api.site.added_files(), [""; 0]);
}

#[test]
fn without_a_token_file_exports_are_not_shown() {
    let api = Api::start(&[]);
    let response = api.ask("GET /exports", "");
    assert_eq!(response.status, 403);
    assert!(response.body.contains("--admin-token-file"), "{response:?}");
    assert_eq!(get(api.address, "/metrics").status, 200);
}

#[test]
fn the_file_of_the_token_is_a_secret() {
    let site = Site::new(&export("path = \"/a\"", "a.db", ""));
    let serve = ["serve", "--config", "exports.toml", "--listen", "127.0.0.1:0"];
    let admin = ["--admin", "127.0.0.1:0", "--admin-token-file", "token"];
    let serve = [&serve[..], &admin].concat();
    // A server that starts would run until it is killed.
    let refused = |args: &[&str]| {
        let mut command = acetate(site.dir.path(), args);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = end(command.spawn().unwrap());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let file = site.path("token");
    assert!(refused(&serve).contains("--admin-token-file token: "));
    // Without an exports file, it would guard nothing.
    let alone = [&["serve", "s.db", "--listen", "127.0.0.1:0"][..], &admin].concat();
    assert!(refused(&alone).contains("cannot be used with"));
    for (text, mode, words) in [
        (TOKEN, 0o644, "other users than its owner"),
        (TOKEN, 0o620, "other users than its owner"),
        ("short", 0o600, "16 to 4096 visible"),
        ("0123456789 abcdef", 0o600, "16 to 4096 visible"),
    ] {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        let said = refused(&serve);
        assert!(said.contains(words) && said.contains("hint: make one"), "{said}");
    }
    assert!(!site.path("a.db").exists());
}

#[test]
fn figures_are_given_while_exports_change() {
    let api = Api::with_token();
    let toml = |index: usize| export(&format!("path = \"/n{index}\""), &format!("n{index}.db"), "");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (address, is_done) = (api.address, &is_done);
        let looking = scope.spawn(move || {
            let mut looks = 0;
            while !is_done.load(Ordering::Relaxed) {
                assert_eq!(get(address, "/metrics").status, 200);
                looks += 1;
            }
            looks
        });
        let putting: Vec<_> = (0..4)
            .map(|index| {
                let text = toml(index);
                let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
                let what = format!("PUT /exports/n{index}");
                scope.spawn(move || ask(address, &what, &bearer, &text).status)
            })
            .collect();
        let statuses: Vec<u16> = putting.into_iter().map(|it| it.join().unwrap()).collect();
        is_done.store(true, Ordering::Relaxed);
        assert!(looking.join().unwrap() > 0);
        assert_eq!(statuses, [201; 4]);
    });
    assert_eq!(api.names(), ["a", "n0", "n1", "n2", "n3"]);
}
