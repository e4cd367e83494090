//! Accepts connections, within the bounds of [`limits`](super::limits).
//!
//! A connection has one request: a client that holds it open afterwards uses nothing.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::AdminSite;
use super::answer::answer;
use super::limits::{
    ADMIN_ACCEPT_PAUSE, ANSWER_TIMEOUT, HEAD_TIMEOUT, MAX_ADMIN_CONNECTIONS, MAX_HEAD_BYTES,
    MAX_HEADERS,
};

/// The bound socket, before anything is served there.
#[derive(Debug)]
pub struct AdminDoor {
    listener: TcpListener,
    address: SocketAddr,
}

/// An open connection. The list of them is in the order of opening.
struct OpenConnection {
    task: JoinHandle<()>,
    /// Whether its request is complete.
    is_answered: Arc<AtomicBool>,
}

impl AdminDoor {
    /// Binds `address`; for port 0 the system chooses a port.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { address: listener.local_addr()?, listener })
    }

    /// The bound address, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves `site` until the future is dropped; connections then end on their own.
    pub async fn serve(self, site: Arc<AdminSite>) {
        let mut open: Vec<OpenConnection> = Vec::with_capacity(MAX_ADMIN_CONNECTIONS);
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection to --admin");
                    sleep(ADMIN_ACCEPT_PAUSE).await;
                    continue;
                }
            };
            open.retain(|connection| !connection.task.is_finished());
            if open.len() >= MAX_ADMIN_CONNECTIONS {
                make_room(&mut open).await;
            }
            let is_answered = Arc::new(AtomicBool::new(false));
            let serving = serve_connection(stream, Arc::clone(&site), Arc::clone(&is_answered));
            open.push(OpenConnection { task: tokio::spawn(serving), is_answered });
        }
    }
}

/// Closes the connection that has waited longest for its request to be complete, or else the
/// oldest one.
async fn make_room(open: &mut Vec<OpenConnection>) {
    let is_idle = |connection: &OpenConnection| !connection.is_answered.load(Ordering::Relaxed);
    let oldest = open.iter().position(is_idle).unwrap_or(0);
    let closed = open.remove(oldest);
    closed.task.abort();
    // The socket is closed with the task.
    let _ended = closed.task.await;
}

/// Reads one request and answers it.
async fn serve_connection(stream: TcpStream, site: Arc<AdminSite>, is_answered: Arc<AtomicBool>) {
    let service = service_fn(|request: Request<Incoming>| {
        is_answered.store(true, Ordering::Relaxed);
        answer(Arc::clone(&site), request)
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // A client that sends garbage, or no longer reads, is no fault of the server.
    let _done = timeout(HEAD_TIMEOUT + ANSWER_TIMEOUT, serving).await;
}
