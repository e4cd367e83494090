//! Announces the server's port to clients: through the rpcbind of this machine, or with a built-in
//! port mapper if none runs.

mod builtin;
mod nlm_registration;
mod portmapper;
mod rpc_client;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use builtin::BuiltinRpcbind;
use nlm_registration::{LOOK_INTERVAL, NlmRegistration, WatchedProgram};
pub use portmapper::Portmapper;
use rpc_client::RpcClient;

use super::{BindError, RpcProgram, Service};
use crate::wire::nlm4;
use crate::wire::portmap::{self, PROC_DUMP, PROC_SET, PROC_UNSET, Rpcb, VERSION_4};
use crate::wire::rpc::PROC_NULL;
use crate::wire::xdr::{Decode, Decoder, Encode, Encoder};

/// Sockets on which rpcbind accepts registrations from any local user. Over TCP it requires a
/// privileged source port.
const LOCAL_SOCKETS: [&str; 3] =
    ["/run/rpcbind.sock", "/var/run/rpcbind.sock", "/var/run/portmap.socket"];
/// Privileged source ports at which no service is expected.
const PRIVILEGED_PORTS: std::ops::RangeInclusive<u16> = 665..=1023;
/// Timeout for connecting to a server on this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Most registrations accepted from rpcbind; a longer list is an error.
const MAX_MAPPINGS: usize = 4096;

/// Why clients cannot find the server.
#[derive(Debug, thiserror::Error)]
pub enum RpcbindError {
    /// No rpcbind runs, and its port cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The server at the rpcbind port does not answer as rpcbind does.
    #[error("cannot talk to the rpcbind at port {port}")]
    Talk {
        /// The port.
        port: u16,
        /// The error of the connection.
        source: io::Error,
    },
    /// A running server is registered for the program already.
    #[error("program {program} is registered already, with the running server at {address}")]
    Taken {
        /// Program number.
        program: u32,
        /// Address of that server.
        address: SocketAddr,
    },
    /// The rpcbind refused the registration.
    #[error("rpcbind does not let us register program {program}")]
    Refused {
        /// Program number.
        program: u32,
    },
}

/// An announcement of services. [`Registration::end`] withdraws it.
pub struct Registration(RegistrationKind);

enum RegistrationKind {
    /// Registered with the rpcbind of this machine.
    Registered {
        entries: Vec<Rpcb>,
        port: u16,
        locks: Arc<NlmRegistration>,
        looking: JoinHandle<()>,
    },
    /// The built-in port mapper runs instead of rpcbind.
    BuiltinRpcbind(BuiltinRpcbind),
}

impl Registration {
    /// Announces `services` at the port mapper's port `port` ([`portmap::PORT`]).
    pub async fn begin(services: &[Service], port: u16) -> Result<Self, RpcbindError> {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let runs = timeout(CONNECT_TIMEOUT, TcpStream::connect(local)).await;
        let inner = match runs {
            Ok(Ok(_)) => register(services, port).await?,
            _ => RegistrationKind::BuiltinRpcbind(BuiltinRpcbind::begin(services, port).await?),
        };
        Ok(Self(inner))
    }

    /// Whether the built-in port mapper answers, because no rpcbind runs on this machine.
    pub fn is_builtin(&self) -> bool {
        matches!(self.0, RegistrationKind::BuiltinRpcbind(_))
    }

    /// Wraps `program` so that NFS mounts renew the registration of the lock manager.
    pub fn watch(&self, program: Arc<dyn RpcProgram>) -> Arc<dyn RpcProgram> {
        match &self.0 {
            RegistrationKind::Registered { locks, .. } => {
                Arc::new(WatchedProgram { program, locks: Arc::clone(locks) })
            }
            RegistrationKind::BuiltinRpcbind(_) => program,
        }
    }

    /// Withdraws the announcement. Failures are only logged: the server is shutting down.
    pub async fn end(self) {
        match self.0 {
            RegistrationKind::Registered { entries, port, locks, looking } => {
                looking.abort();
                if let Err(error) = locks.give_back().await {
                    tracing::warn!(%error, "cannot unregister the lock manager from rpcbind");
                }
                if let Err(error) = unregister(&entries, port).await {
                    tracing::warn!(%error, "cannot unregister from rpcbind");
                }
            }
            RegistrationKind::BuiltinRpcbind(builtin_rpcbind) => builtin_rpcbind.end().await,
        }
    }
}

async fn register(services: &[Service], port: u16) -> Result<RegistrationKind, RpcbindError> {
    let talk = |source| RpcbindError::Talk { port, source };
    let mut client = connect(port).await.map_err(talk)?;
    let all = services.iter().flat_map(Service::entries);
    let (ours, entries): (Vec<Rpcb>, Vec<Rpcb>) =
        all.partition(|entry| entry.program == nlm4::PROGRAM);
    for (done, entry) in entries.iter().enumerate() {
        let Err(error) = announce(&mut client, entry, services, port).await else { continue };
        for entry in &entries[..done] {
            // Ignored: the first failure is reported.
            let _undone = change(&mut client, PROC_UNSET, entry).await;
        }
        return Err(error);
    }
    let locks = Arc::new(NlmRegistration::new(ours, port));
    locks.claim().await;
    let looking = tokio::spawn(look(Arc::clone(&locks)));
    Ok(RegistrationKind::Registered { entries, port, locks, looking })
}

/// Renews the lock manager's registration periodically; never returns.
async fn look(locks: Arc<NlmRegistration>) {
    loop {
        sleep(LOOK_INTERVAL).await;
        locks.claim().await;
    }
}

/// Registers one entry, and replaces an entry whose server does not run any more.
async fn announce(
    client: &mut RpcClient,
    entry: &Rpcb,
    services: &[Service],
    port: u16,
) -> Result<(), RpcbindError> {
    let talk = |source| RpcbindError::Talk { port, source };
    let present = dump(client).await.map_err(talk)?;
    for other in present.iter().filter(|other| is_same_service(other, entry)) {
        // A killed server leaves its entry behind; a running server must not be displaced. An entry
        // with one of our ports is from an earlier run of this server.
        let at = portmap::parse_universal_address(&other.address);
        let own = at.is_some_and(|at| services.iter().any(|s| s.address.port() == at.port()));
        if let Some(at) = at.filter(|_| !own)
            && answers(at).await
        {
            return Err(RpcbindError::Taken { program: entry.program, address: at });
        }
        change(client, PROC_UNSET, other).await.map_err(talk)?;
    }
    match change(client, PROC_SET, entry).await.map_err(talk)? {
        true => Ok(()),
        false => Err(RpcbindError::Refused { program: entry.program }),
    }
}

async fn unregister(entries: &[Rpcb], port: u16) -> io::Result<()> {
    let mut client = connect(port).await?;
    for entry in entries {
        change(&mut client, PROC_UNSET, entry).await?;
    }
    Ok(())
}

/// Calls SET or UNSET; returns whether rpcbind did it.
async fn change(client: &mut RpcClient, procedure: u32, entry: &Rpcb) -> io::Result<bool> {
    let mut args = Encoder::new();
    entry.encode(&mut args);
    let results = client.call(procedure, args).await?;
    Decoder::new(results).bool().map_err(io::Error::other)
}

/// Connects to rpcbind over a transport on which it accepts registrations.
async fn connect(port: u16) -> io::Result<RpcClient> {
    if port == portmap::PORT {
        for path in LOCAL_SOCKETS {
            if let Ok(stream) = UnixStream::connect(path).await {
                return Ok(RpcClient::new(Box::new(stream), portmap::PROGRAM, VERSION_4));
            }
        }
    }
    let stream = connect_privileged(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
    let mut client = RpcClient::new(Box::new(stream), portmap::PROGRAM, VERSION_4);
    client.call(PROC_NULL, Encoder::new()).await?;
    Ok(client)
}

async fn connect_privileged(to: SocketAddr) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for from in PRIVILEGED_PORTS.rev() {
        let socket = TcpSocket::new_v4()?;
        let connecting = match socket.bind((Ipv4Addr::LOCALHOST, from).into()) {
            Ok(()) => timeout(CONNECT_TIMEOUT, socket.connect(to)).await?,
            Err(error) => Err(error),
        };
        match connecting {
            Ok(stream) => return Ok(stream),
            Err(error) if is_taken(&error) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable)
}

fn is_same_service(a: &Rpcb, b: &Rpcb) -> bool {
    (a.program, a.version, &a.netid) == (b.program, b.version, &b.netid)
}

/// Whether a server accepts connections at an address of this machine.
pub(super) async fn answers(at: SocketAddr) -> bool {
    matches!(timeout(CONNECT_TIMEOUT, TcpStream::connect(at)).await, Ok(Ok(_)))
}

/// All registrations of rpcbind.
async fn dump(client: &mut RpcClient) -> io::Result<Vec<Rpcb>> {
    decode_list(client.call(PROC_DUMP, Encoder::new()).await?)
}

fn decode_list(results: Bytes) -> io::Result<Vec<Rpcb>> {
    let mut decoder = Decoder::new(results);
    let mut entries = Vec::new();
    while let Some(entry) = Option::<Rpcb>::decode(&mut decoder).map_err(io::Error::other)? {
        if entries.len() == MAX_MAPPINGS {
            return Err(io::Error::other("too many mappings"));
        }
        entries.push(entry);
    }
    Ok(entries)
}
