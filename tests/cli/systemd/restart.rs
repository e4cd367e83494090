//! Restarts under load, with the socket held by the service manager: clients wait, and see no
//! error.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tempfile::tempdir;

use super::manager::{Manager, held_socket, passed, with_sockets};
use crate::cli::program::{Serving, run};
use crate::cli::serve::mount_root;

const CLIENTS: u32 = 4;
const RESTARTS: usize = 2;
/// The loops of each client before a restart, and after the last one.
const LOOPS: u64 = 50;
/// How long an answer may take: no measure, only an end of waiting.
const DEADLINE: Duration = Duration::from_secs(60);

const GETATTR: u32 = 1;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const COMMIT: u32 = 21;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = words(&[bytes.len() as u32]);
    encoded.extend_from_slice(bytes);
    encoded.resize(encoded.len().next_multiple_of(4), 0);
    encoded
}

/// A client that sends a call again at a new connection, if the old one ends without the answer.
struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
    xid: u32,
    reconnects: u64,
    longest: Duration,
}

impl Client {
    fn new(address: SocketAddr, number: u32) -> Self {
        let (stream, xid, reconnects, longest) = (None, number << 24, 0, Duration::ZERO);
        Self { address, stream, xid, reconnects, longest }
    }

    /// Calls a procedure of NFS as root; what follows the status in the result, which is success.
    fn call(&mut self, procedure: u32, args: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let head = [self.xid, 0, 2, 100_003, 3, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0];
        let record = [&words(&head)[..], args].concat();
        let record = [&words(&[record.len() as u32 | 1 << 31])[..], &record].concat();
        let begun = Instant::now();
        let reply = loop {
            match self.once(&record) {
                Ok(reply) => break reply,
                Err(error) => {
                    assert!(begun.elapsed() < DEADLINE, "procedure {procedure}: {error}");
                    self.stream = None;
                }
            }
        };
        self.longest = self.longest.max(begun.elapsed());
        assert_eq!(reply[..4], self.xid.to_be_bytes());
        // Accepted, no verifier, executed, and done.
        assert_eq!(reply[4..28], words(&[1, 0, 0, 0, 0, 0]), "procedure {procedure}");
        reply[28..].to_vec()
    }

    fn once(&mut self, record: &[u8]) -> std::io::Result<Vec<u8>> {
        if self.stream.is_none() {
            // The socket always listens: a refusal is an error.
            let stream = TcpStream::connect(self.address).expect("a connection");
            stream.set_read_timeout(Some(DEADLINE))?;
            self.stream = Some(stream);
            self.reconnects += 1;
        }
        let stream = self.stream.as_mut().unwrap();
        stream.write_all(record)?;
        let mut mark = [0; 4];
        stream.read_exact(&mut mark)?;
        let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        stream.read_exact(&mut reply)?;
        Ok(reply)
    }

    /// Makes, writes, commits and looks at a new file.
    fn make(&mut self, root: &[u8], name: &str) {
        // GUARDED: a second run of the call would fail. No attributes are set.
        let create = [&opaque(root)[..], &opaque(name.as_bytes()), &words(&[1, 0, 0, 0, 0, 0, 0])];
        let made = self.call(CREATE, &create.concat());
        let length = u32::from_be_bytes(made[4..8].try_into().unwrap()) as usize;
        let handle = opaque(&made[8..8 + length]);
        let data = opaque(name.as_bytes());
        let count = name.len() as u32;
        self.call(WRITE, &[&handle[..], &words(&[0, 0, count, 0]), &data].concat());
        self.call(COMMIT, &[&handle[..], &words(&[0, 0, 0])].concat());
        let attributes = self.call(GETATTR, &handle);
        assert_eq!(attributes[20..28], u64::from(count).to_be_bytes());
    }
}

fn start(manager: &Manager, dir: &Path, socket: &TcpListener) -> Serving {
    let command = with_sockets(dir, vec![passed(socket)], Some("nfs"));
    let server = manager.start(command, &["s.db", "--insecure"], &[]);
    manager.until("READY", "1");
    server
}

#[test]
fn restarts_under_load_give_no_error() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let manager = Manager::new(dir);
    let (socket, address) = held_socket();
    let mut server = start(&manager, dir, &socket);
    let mounted = mount_root(address);
    let length = u32::from_be_bytes(mounted[24..28].try_into().unwrap()) as usize;
    let root = mounted[28..28 + length].to_vec();
    let stop = Arc::new(AtomicBool::new(false));
    let counts: Vec<_> = (0..CLIENTS).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let clients = (1..).zip(&counts).map(|(number, count)| {
        let (root, stop, count) = (root.clone(), Arc::clone(&stop), Arc::clone(count));
        std::thread::spawn(move || {
            let mut client = Client::new(address, number);
            while !stop.load(Ordering::Relaxed) {
                let made = count.load(Ordering::Relaxed);
                client.make(&root, &format!("file-{number}-{made}"));
                count.store(made + 1, Ordering::Relaxed);
            }
            (client.longest, client.reconnects)
        })
    });
    let clients: Vec<_> = clients.collect();
    // Until each client has made so many more files. An error of a client ends it.
    let more = || {
        let wanted: Vec<u64> = counts.iter().map(|c| c.load(Ordering::Relaxed) + LOOPS).collect();
        let is_behind = || {
            counts
                .iter()
                .zip(&wanted)
                .any(|(count, wanted)| count.load(Ordering::Relaxed) < *wanted)
        };
        while is_behind() && !clients.iter().any(|client| client.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    for _ in 0..RESTARTS {
        more();
        server.signal("TERM");
        let (status, said) = server.end();
        assert!(status.success(), "{said:?}");
        server = start(&manager, dir, &socket);
    }
    more();
    stop.store(true, Ordering::Relaxed);
    let mut longest = Duration::ZERO;
    for client in clients {
        let (stall, connections) = client.join().expect("a client without errors");
        assert!(connections > RESTARTS as u64, "{connections} connections");
        longest = longest.max(stall);
    }
    server.signal("TERM");
    assert!(server.end().0.success());
    assert!(run(dir, &["check", "s.db"]).status.success());
    let made: u64 = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    let listed = String::from_utf8(run(dir, &["ls", "s.db", "/"]).stdout).unwrap();
    assert_eq!(listed.lines().count() as u64, made);
    println!("{made} files, {RESTARTS} restarts, longest stall {} ms", longest.as_millis());
}
