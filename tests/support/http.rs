//! HTTP byte by byte, and the text of metrics.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Far longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A response.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: u16,
    /// Values by name in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

/// A connection to an HTTP server.
pub struct HttpClient(pub TcpStream);

impl HttpClient {
    pub fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// Sends bytes; the server may have closed the connection.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    /// All that comes until the server closes the connection.
    pub fn rest(mut self) -> Vec<u8> {
        let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            match self.0.read(&mut buffer) {
                Ok(0) => return all,
                Ok(read) => all.extend(&buffer[..read]),
                // A server that closes before it has read everything resets the connection.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return all,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Whether the server has closed the connection, as far as is known now.
    pub fn is_closed(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let closed = match self.0.peek(&mut [0]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        };
        self.0.set_nonblocking(false).unwrap();
        closed
    }

    /// The response to what was sent; `None` without one.
    pub fn response(self) -> Option<HttpResponse> {
        let text = String::from_utf8(self.rest()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n")?;
        let mut lines = head.lines();
        let status = lines.next()?.split(' ').nth(1)?.parse().unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_lowercase(), value.to_owned())
        };
        Some(HttpResponse { status, headers: lines.map(header).collect(), body: body.to_owned() })
    }
}

/// The response to these bytes.
pub fn exchange(to: SocketAddr, request: &[u8]) -> Option<HttpResponse> {
    let mut client = HttpClient::connect(to);
    client.send(request);
    client.response()
}

/// The response to a request without a body.
pub fn request(to: SocketAddr, method: &str, path: &str) -> HttpResponse {
    exchange(to, format!("{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap()
}

pub fn get(to: SocketAddr, path: &str) -> HttpResponse {
    request(to, "GET", path)
}

/// Samples of `/metrics` by name with labels, as they are written.
pub struct Scraped(pub BTreeMap<String, f64>);

impl Scraped {
    pub fn of(to: SocketAddr) -> Self {
        let response = get(to, "/metrics");
        assert_eq!(response.status, 200, "{response:?}");
        Self::parse(&response.body)
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        };
        Self(lines.map(sample).collect())
    }

    /// The sample of this name and these labels; 0 without one.
    pub fn value(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// The samples of this metric, by labels.
    pub fn all(&self, name: &str) -> BTreeMap<&str, f64> {
        let found = self.0.iter().filter_map(|(sample, value)| {
            let labels = sample.strip_prefix(name)?.strip_prefix('{')?.strip_suffix('}')?;
            Some((labels, *value))
        });
        found.collect()
    }
}
