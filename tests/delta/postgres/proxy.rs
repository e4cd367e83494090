//! A proxy before the database that loses an answer, or keeps a request back.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// What happens to the next batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The database has it; its answer is lost with the connection.
    Answer,
    /// The connection ends; the database gets the batch when the test says so.
    Request,
}

/// The proxy.
pub struct Proxy {
    pub port: u16,
    next: Arc<Mutex<Option<Cut>>>,
    held: Receiver<Held>,
}

/// A batch that was kept back.
struct Held {
    server: TcpStream,
    request: Vec<u8>,
    /// Each answer of the server.
    answers: Receiver<()>,
}

/// Marks what a client sends for a batch: the message Bind of the protocol.
const BIND: u8 = b'B';

impl Proxy {
    pub fn start(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let next = Arc::new(Mutex::new(None));
        let (keep, held) = channel();
        let plan = Arc::clone(&next);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let Ok(server) = TcpStream::connect(&server) else { continue };
                serve(client, server, Arc::clone(&plan), keep.clone());
            }
        });
        Self { port, next, held }
    }

    /// Cuts the next batch.
    pub fn cut(&self, what: Cut) {
        *self.next.lock().unwrap() = Some(what);
    }

    /// Whether the cut was made.
    pub fn is_cut(&self) -> bool {
        self.next.lock().unwrap().is_none()
    }

    /// Sends what was kept back, and returns when the database has answered it.
    pub fn send_held(&self) {
        let Held { mut server, request, answers } = self.held.recv().unwrap();
        while answers.try_recv().is_ok() {}
        server.write_all(&request).unwrap();
        answers.recv().unwrap();
    }
}

fn serve(client: TcpStream, server: TcpStream, next: Arc<Mutex<Option<Cut>>>, keep: Sender<Held>) {
    let (mut from_client, mut to_server) =
        (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (answered, answers) = channel();
    let (mut from_server, mut to_client) = (server, client);
    let is_lost = Arc::new(Mutex::new(false));
    let loses = Arc::clone(&is_lost);
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while let Ok(count @ 1..) = from_client.read(&mut buffer) {
            let is_batch = buffer[0] == BIND;
            let cut = if is_batch { next.lock().unwrap().take() } else { None };
            match cut {
                Some(Cut::Request) => {
                    let _ = from_client.shutdown(Shutdown::Both);
                    let request = buffer[..count].to_vec();
                    // The test may have ended without it.
                    let _ = keep.send(Held { server: to_server, request, answers });
                    return;
                }
                Some(Cut::Answer) => *loses.lock().unwrap() = true,
                None => {}
            }
            if to_server.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to_server.shutdown(Shutdown::Both);
    });
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while let Ok(count @ 1..) = from_server.read(&mut buffer) {
            let _ = answered.send(());
            if *is_lost.lock().unwrap() || to_client.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
}
