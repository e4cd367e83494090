//! `/exports`: lists and changes exports, for clients that know the token.
//!
//! A page of a browser cannot use it: a request whose Origin is another one than its Host is
//! refused, and so is a Host that is a name, which DNS could let mean this machine.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::AdminSite;
use super::limits::MAX_EXPORT_BYTES;
use super::token::AdminToken;

/// Content type of all answers.
const JSON: &str = "application/json";

/// Path of the list.
const PATH: &str = "/exports";

/// What `/exports` shows and changes.
pub struct ExportsSite {
    /// Clients must know it.
    pub token: AdminToken,
    /// The exports.
    pub exports: Box<dyn ExportsSource>,
}

/// A request that may be performed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportsCall {
    /// Lists exports.
    List {
        /// Only paths after this one.
        after: Option<String>,
    },
    /// Adds an export, or replaces one.
    Put {
        /// Its name, unchecked.
        name: String,
        /// TOML, at most [`MAX_EXPORT_BYTES`].
        text: String,
    },
    /// Removes an export.
    Remove {
        /// Its name, unchecked.
        name: String,
        /// Whether its sessions are deleted.
        deletes: bool,
    },
}

/// Version of the JSON of errors, as of all JSON that the commands print.
const ERROR_VERSION: u32 = 1;

/// An answer in JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportsReply {
    /// The status of HTTP.
    pub status: u16,
    /// One JSON object.
    pub json: String,
}

impl ExportsReply {
    /// An error: the one shape that all errors of `/exports` have.
    pub fn error(status: u16, what: &str, hint: Option<&str>) -> Self {
        let error = serde_json::json!({
            "v": ERROR_VERSION, "type": "error", "error": what, "hint": hint,
        });
        Self { status, json: error.to_string() }
    }
}

/// A reply that is being made.
pub type Replying<'a> = Pin<Box<dyn Future<Output = ExportsReply> + Send + 'a>>;

/// Exports that can be listed and changed. A call must end within the time of an answer.
pub trait ExportsSource: Send + Sync + 'static {
    /// Performs a call; also to its end if the future is dropped.
    fn perform(&self, call: ExportsCall) -> Replying<'_>;
}

/// Why a request is not performed.
struct HttpRefusal {
    status: StatusCode,
    what: &'static str,
    /// The methods that are allowed, if another one was used.
    allowed: Option<&'static str>,
}

impl HttpRefusal {
    fn new(status: StatusCode, what: &'static str) -> Self {
        Self { status, what, allowed: None }
    }

    fn bad(what: &'static str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, what)
    }

    fn method(allowed: &'static str) -> Self {
        let allowed = Some(allowed);
        Self { allowed, ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed") }
    }
}

/// Whether a path belongs here.
pub(super) fn is_below(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a request to such a path.
pub(super) async fn answer(site: &AdminSite, request: Request<Incoming>) -> Response<String> {
    let (site, call) = match check(site, request.headers()) {
        Ok(exports) => (exports, call(request).await),
        Err(refused) => return refusal(refused),
    };
    match call {
        Ok(call) => response(site.exports.perform(call).await),
        Err(refused) => refusal(refused),
    }
}

/// Whether the client may make requests at all.
fn check<'a>(site: &'a AdminSite, headers: &HeaderMap) -> Result<&'a ExportsSite, HttpRefusal> {
    // Another program on the way may have taken the other one.
    for (name, what) in [
        (header::HOST, "more than one Host"),
        (header::ORIGIN, "more than one Origin"),
        (header::AUTHORIZATION, "more than one Authorization"),
    ] {
        if headers.get_all(name).iter().nth(1).is_some() {
            return Err(HttpRefusal::bad(what));
        }
    }
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let forbidden = |what| Err(HttpRefusal::new(StatusCode::FORBIDDEN, what));
    let Some(host) = text(header::HOST).filter(|host| is_own(host)) else {
        return forbidden("the Host must be an address or localhost");
    };
    if headers.contains_key(header::ORIGIN)
        && text(header::ORIGIN).and_then(|origin| origin.strip_prefix("http://")) != Some(host)
    {
        return forbidden("the Origin is another site");
    }
    let Some(exports) = &site.exports else {
        return forbidden("exports are shown and changed only with --admin-token-file");
    };
    let given = text(header::AUTHORIZATION).and_then(|given| given.strip_prefix("Bearer "));
    match given {
        Some(given) if exports.token.is_equal(given.trim()) => Ok(exports),
        _ => Err(HttpRefusal::new(StatusCode::UNAUTHORIZED, "the token is missing or wrong")),
    }
}

/// Whether a Host is an address or `localhost`, with a port or without.
fn is_own(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    host.parse::<SocketAddr>().is_ok() || bare.parse::<IpAddr>().is_ok() || name == "localhost"
}

/// What a request of a client with the token asks for.
async fn call(request: Request<Incoming>) -> Result<ExportsCall, HttpRefusal> {
    let bad = HttpRefusal::bad;
    let uri = request.uri().clone();
    let query = uri.query().unwrap_or_default();
    let name = uri.path().strip_prefix(PATH).unwrap_or_default();
    let Some(name) = name.strip_prefix('/') else {
        if request.method() != Method::GET {
            return Err(HttpRefusal::method("GET"));
        }
        let after = match query.strip_prefix("after=") {
            Some(after) => Some(decoded(after).ok_or(bad("`after` is not a path"))?),
            None if query.is_empty() => None,
            None => return Err(bad("the query has another name than `after`")),
        };
        return Ok(ExportsCall::List { after });
    };
    if name.is_empty() || name.contains('/') {
        return Err(HttpRefusal::new(StatusCode::NOT_FOUND, "Not Found"));
    }
    let name = decoded(name).ok_or(bad("the name is not text"))?;
    match *request.method() {
        Method::PUT if query.is_empty() => {
            let text = read(request.into_body()).await?;
            Ok(ExportsCall::Put { name, text })
        }
        Method::DELETE => match query {
            "" | "delete=false" => Ok(ExportsCall::Remove { name, deletes: false }),
            "delete=true" => Ok(ExportsCall::Remove { name, deletes: true }),
            _ => Err(bad("the query may be delete=true")),
        },
        Method::PUT => Err(bad("there is no query")),
        _ => Err(HttpRefusal::method("PUT, DELETE")),
    }
}

/// The text of a body.
async fn read(mut body: Incoming) -> Result<String, HttpRefusal> {
    let large = || HttpRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, "Payload Too Large");
    let bad = HttpRefusal::bad;
    if body.size_hint().lower() > MAX_EXPORT_BYTES {
        return Err(large());
    }
    let mut bytes = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(frame) = frame else { return Err(bad("the body is broken")) };
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() as u64 > MAX_EXPORT_BYTES {
            return Err(large());
        }
    }
    String::from_utf8(bytes).map_err(|_| bad("the body is not UTF-8 text"))
}

/// A text of a URI without its percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let digits = part.get(..2).filter(|two| two.bytes().all(|it| it.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

fn refusal(HttpRefusal { status, what, allowed }: HttpRefusal) -> Response<String> {
    let mut response = response(ExportsReply::error(status.as_u16(), what, None));
    if let Some(allowed) = allowed {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    }
    if status == StatusCode::UNAUTHORIZED {
        let bearer = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
    }
    response
}

fn response(ExportsReply { status, json }: ExportsReply) -> Response<String> {
    let mut response = Response::new(json + "\n");
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}

#[cfg(test)]
mod tests {
    use super::{decoded, is_own};

    #[test]
    fn a_percent_sign_begins_two_digits() {
        assert_eq!(decoded("%2Fa%20b%2f%C3%A9").as_deref(), Some("/a b/é"));
        for bad in ["%", "%2", "%zz", "%+1", "a%", "%ff", "%é0"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_host_is_an_address_or_localhost() {
        for own in ["127.0.0.1", "127.0.0.1:9469", "[::1]:9469", "[::1]", "localhost:9469"] {
            assert!(is_own(own), "{own}");
        }
        for foreign in ["", "example.org", "example.org:9469", "127.0.0.1.nip.io", "localhost.x:1"]
        {
            assert!(!is_own(foreign), "{foreign}");
        }
    }
}
