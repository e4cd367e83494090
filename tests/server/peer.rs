//! A server under test, and clients that write bytes of their own making.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use acetate::server::limits::Limits;
use acetate::server::{Listeners, Server, ServerOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::fake::{self, Fake};

/// More than any of these tests should need.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub struct Running {
    pub address: SocketAddr,
    pub fake: Fake,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    pub async fn start() -> Self {
        Self::start_with(Limits::default(), true).await
    }

    pub async fn start_with(limits: Limits, insecure: bool) -> Self {
        Self::start_as(ServerOptions { insecure, limits, ..ServerOptions::default() }).await
    }

    pub async fn start_as(options: ServerOptions) -> Self {
        let fake = Fake::default();
        let listeners = Listeners::bind(&["127.0.0.1:0".parse().unwrap()]).await.unwrap();
        let address = listeners.addresses()[0];
        let server = Server::new(listeners, vec![Arc::new(fake.clone())], options);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            let _told = stopped.await;
        }));
        Self { address, fake, stop, task }
    }

    /// A server whose requests in flight are all of one connection, which has more of them waiting.
    pub async fn with_all_requests_taken() -> (Self, Peer) {
        let limits = Limits { requests: 2, ..Limits::default() };
        let server = Self::start_with(limits, true).await;
        let mut greedy = server.connect().await;
        for xid in 0..8 {
            greedy.send_record(&call(xid, fake::WAIT, b"")).await;
        }
        server.fake.wait_begun(3).await;
        (server, greedy)
    }

    pub async fn connect(&self) -> Peer {
        Peer(TcpStream::connect(self.address).await.unwrap())
    }

    /// Connects from another address of this machine, which is another client.
    #[cfg(target_os = "linux")]
    pub async fn connect_from(&self, address: &str) -> Peer {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(address.parse().unwrap(), 0)).unwrap();
        Peer(socket.connect(self.address).await.unwrap())
    }

    /// Tells the server to stop; the task ends when it has.
    pub fn stop(self) -> JoinHandle<()> {
        drop(self.stop);
        self.task
    }
}

pub struct Peer(pub TcpStream);

impl Peer {
    pub async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    pub async fn send_record(&mut self, record: &[u8]) {
        self.send(&one_fragment(record)).await;
    }

    pub async fn receive(&mut self) -> Vec<u8> {
        let read = async {
            let mark = self.0.read_u32().await.unwrap();
            assert_eq!(mark >> 31, 1, "replies are one fragment");
            let mut record = vec![0; (mark & 0x7fff_ffff) as usize];
            self.0.read_exact(&mut record).await.unwrap();
            record
        };
        tokio::time::timeout(PATIENCE, read).await.expect("a reply in time")
    }

    pub async fn ask(&mut self, record: &[u8]) -> Vec<u8> {
        self.send_record(record).await;
        self.receive().await
    }

    /// Whether the server closes the connection without another byte.
    pub async fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        let read = tokio::time::timeout(PATIENCE, self.0.read(&mut byte)).await;
        matches!(read, Ok(Ok(0) | Err(_)))
    }

    /// Whether nothing comes for a while.
    pub async fn is_silent(&mut self) -> bool {
        let mut byte = [0];
        tokio::time::timeout(Duration::from_millis(150), self.0.read(&mut byte)).await.is_err()
    }
}

pub fn one_fragment(record: &[u8]) -> Vec<u8> {
    [&fragment_mark(record.len(), true)[..], record].concat()
}

pub fn fragment_mark(bytes: usize, last: bool) -> [u8; 4] {
    (u32::try_from(bytes).unwrap() | u32::from(last) << 31).to_be_bytes()
}

pub fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// A call of the fake program with AUTH_NONE.
pub fn call(xid: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    call_as(xid, procedure, &[0, 0], args)
}

/// A call of the fake program; `credential` is flavour, length and body in words.
pub fn call_as(xid: u32, procedure: u32, credential: &[u32], args: &[u8]) -> Vec<u8> {
    let head = words(&[xid, 0, 2, fake::PROGRAM, fake::VERSION, procedure]);
    [head, words(credential), words(&[0, 0]), args.to_vec()].concat()
}

/// The reply that accepts a call and is SUCCESS.
pub fn success(xid: u32, results: &[u8]) -> Vec<u8> {
    [words(&[xid, 1, 0, 0, 0, 0]), results.to_vec()].concat()
}
