//! The connections of one client, over which calls are repeated until they succeed.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::calls::status;
use super::instance::Instance;
use super::nfs::{Client, Handle, mount_connection_over, mount_over};
use super::rpc::{Connection, Error, Result};

/// Pause before a call is sent again, or a server that is gone is looked for.
pub const RETRY: Duration = Duration::from_millis(20);

/// Time after which a call that is always answered with "later" has failed.
const PATIENCE: Duration = Duration::from_secs(90);

/// NFS3ERR_JUKEBOX and MNT3ERR_SERVERFAULT (RFC 1813 §2.6, §5.1.4).
const LATER: [u32; 2] = [10008, 10006];

/// A client.
pub struct Caller {
    server: SocketAddr,
    /// The address that the server sees: it tells clients apart by that.
    from: Ipv4Addr,
    index: usize,
    client: Option<Client>,
    mounts: Option<Connection>,
    /// Answers of "later".
    pub later: u64,
    /// The longest time that a call took, with all its repetitions.
    pub longest: Duration,
}

impl Caller {
    /// A client that calls `server` from one of this machine's addresses; `index` tells apart
    /// those that do so at one time.
    pub fn new(server: SocketAddr, from: Ipv4Addr, index: usize) -> Self {
        let (client, mounts, longest) = (None, None, Duration::ZERO);
        Self { server, from, index, client, mounts, later: 0, longest }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((self.from, 0)).into())?;
        socket.connect(&self.server.into())?;
        Ok(socket.into())
    }

    /// Mounts the export `path`.
    pub fn mount(&mut self, path: &str) -> Result<Handle> {
        self.again(path, |caller| {
            let mut connection = match caller.mounts.take() {
                Some(connection) => connection,
                None => mount_connection_over(caller.connect()?)?,
            };
            let handle = mount_over(&mut connection, path);
            if handle.as_ref().err().is_none_or(|error| status(error).is_some()) {
                caller.mounts = Some(connection);
            }
            handle
        })
    }

    /// Makes calls to an export until they succeed.
    pub fn call<T>(
        &mut self,
        instance: &mut Instance,
        mut work: impl FnMut(&mut Instance, &mut Client) -> Result<T>,
    ) -> Result<T> {
        let path = instance.path.clone();
        self.again(&path, |caller| {
            let mut client = match caller.client.take() {
                Some(client) => client,
                None => Client::over(caller.connect()?, caller.index as u32)?,
            };
            let done = work(instance, &mut client);
            // After any other failure, nothing is known of the connection.
            if done.as_ref().err().is_none_or(|error| status(error).is_some()) {
                caller.client = Some(client);
            }
            done
        })
    }

    /// Closes the connections, without UMNT.
    pub fn disconnect(&mut self) {
        self.client = None;
        self.mounts = None;
    }

    /// Repeats what fails because the server is gone, or because it says "later".
    fn again<T>(&mut self, path: &str, mut work: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        let start = Instant::now();
        loop {
            let answer = work(self);
            self.longest = self.longest.max(start.elapsed());
            let error = match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let is_later = status(&error).is_some_and(|status| LATER.contains(&status));
            self.later += u64::from(is_later);
            if !(is_later || is_gone(&error)) || start.elapsed() > PATIENCE {
                let waited = start.elapsed();
                return Err(format!("{path}, after {waited:.1?}: {error}").into());
            }
            thread::sleep(RETRY);
        }
    }
}

/// Whether there is no server; not whether it only kept silent.
fn is_gone(error: &Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, UnexpectedEof};
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind.is_some_and(|kind| {
        matches!(kind, BrokenPipe | ConnectionRefused | ConnectionReset | UnexpectedEof)
    })
}
