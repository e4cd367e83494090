//! Answers one request.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::AdminSite;
use super::exports;
use super::limits::MAX_BODY_BYTES;
use super::samples::Samples;

/// Content type of figures.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Content type of everything else.
const PLAIN: &str = "text/plain; charset=utf-8";

/// Answers `request`. Bodies are read for changes of exports alone.
pub(super) async fn answer(
    site: Arc<AdminSite>,
    request: Request<Incoming>,
) -> Result<Response<String>, Infallible> {
    let is_of_exports = exports::is_below(request.uri().path());
    let mut response = match check(&request) {
        _ if is_of_exports => exports::answer(&site, request).await,
        Ok(()) => by_path(&site, request.uri().path()).await,
        Err(status) => text(status, reason(status)),
    };
    if response.status() == StatusCode::METHOD_NOT_ALLOWED && !is_of_exports {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    // What a browser must not guess, and no proxy keep.
    let set = [
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    response.headers_mut().extend(set);
    Ok(response)
}

/// Whether the method is one that only reads, and the body is small.
fn check(request: &Request<Incoming>) -> Result<(), StatusCode> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    match request.body().size_hint().upper() {
        Some(bytes) if bytes > MAX_BODY_BYTES => Err(StatusCode::PAYLOAD_TOO_LARGE),
        _ => Ok(()),
    }
}

async fn by_path(site: &AdminSite, path: &str) -> Response<String> {
    match path {
        "/metrics" => {
            let mut samples = Samples::default();
            site.figures.collect(&mut samples).await;
            match samples.encode() {
                Ok(figures) => response(StatusCode::OK, OPEN_METRICS, figures),
                Err(error) => {
                    tracing::error!(%error, "cannot write figures");
                    let status = StatusCode::INTERNAL_SERVER_ERROR;
                    text(status, reason(status))
                }
            }
        }
        "/healthz" => state(site.health.fault()),
        "/readyz" => state(site.health.fault().or_else(|| site.health.unready())),
        _ => text(StatusCode::NOT_FOUND, reason(StatusCode::NOT_FOUND)),
    }
}

/// 200, or 503 with what is wrong.
fn state(wrong: Option<String>) -> Response<String> {
    match wrong {
        None => text(StatusCode::OK, "ok"),
        Some(wrong) => text(StatusCode::SERVICE_UNAVAILABLE, &wrong),
    }
}

fn reason(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or_default()
}

/// A response of one line.
fn text(status: StatusCode, line: &str) -> Response<String> {
    response(status, PLAIN, format!("{line}\n"))
}

fn response(status: StatusCode, kind: &'static str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
