//! The built-in port mapper: answers in place of rpcbind, over TCP and UDP.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::server::dispatch::{Dispatcher, Disposition, RecordOrigin};
use crate::server::limits::{Limits, MAX_DATAGRAM_BYTES, MAX_DATAGRAM_REPLY_BYTES};
use crate::server::{
    BindError, Listeners, Portmapper, Registry, ReplyCache, RpcProgram, Server, ServerOptions,
    Service,
};
use crate::wire::portmap::{VERSION_2, VERSION_4};

/// Pause after recvfrom(2) fails.
const RECEIVE_PAUSE: Duration = Duration::from_millis(10);

/// Open connections to the built-in port mapper. Callers send one query and leave, so few suffice;
/// descriptors and memory remain for NFS.
const MAX_BUILTIN_CONNECTIONS: usize = 16;
/// A connection without a query for this time is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The tasks of the running port mapper.
pub(super) struct BuiltinRpcbind {
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
    datagrams: Vec<JoinHandle<()>>,
}

impl BuiltinRpcbind {
    /// Answers at `port` of every address of `services`.
    pub(super) async fn begin(services: &[Service], port: u16) -> Result<Self, BindError> {
        let addresses = addresses(services, port);
        let listeners = Listeners::bind(&addresses).await?;
        let mut sockets = Vec::new();
        for &address in &addresses {
            let socket = UdpSocket::bind(address).await;
            sockets.push(socket.map_err(|source| BindError { address, source })?);
        }
        let programs = programs(services);
        let limits = Limits {
            connections: MAX_BUILTIN_CONNECTIONS,
            record_bytes: MAX_DATAGRAM_BYTES,
            idle_timeout: IDLE_TIMEOUT,
            ..Limits::default()
        };
        let dispatcher = Arc::new(Dispatcher::new(programs.clone(), ReplyCache::new(&limits)));
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::new(
            listeners,
            programs,
            ServerOptions { insecure: true, limits, ..ServerOptions::default() },
        );
        let server = tokio::spawn(server.run(async {
            let _told = stopped.await;
        }));
        let answer = |socket| tokio::spawn(answer_datagrams(socket, Arc::clone(&dispatcher)));
        let datagrams = sockets.into_iter().map(answer).collect();
        Ok(Self { stop, server, datagrams })
    }

    /// Stops the tasks, which closes the sockets.
    pub(super) async fn end(self) {
        for task in self.datagrams {
            task.abort();
        }
        drop(self.stop);
        let _ended = self.server.await;
    }
}

fn addresses(services: &[Service], port: u16) -> Vec<SocketAddr> {
    let mut ips: Vec<IpAddr> = services.iter().map(|service| service.address.ip()).collect();
    ips.sort_unstable();
    ips.dedup();
    ips.into_iter().map(|ip| (ip, port).into()).collect()
}

fn programs(services: &[Service]) -> Vec<Arc<dyn RpcProgram>> {
    let registry = Arc::new(Registry::new(services));
    let version = |version| -> Arc<dyn RpcProgram> {
        Arc::new(Portmapper::new(version, Arc::clone(&registry)))
    };
    (VERSION_2..=VERSION_4).map(version).collect()
}

async fn answer_datagrams(socket: UdpSocket, dispatcher: Arc<Dispatcher>) {
    let mut buffer = vec![0; MAX_DATAGRAM_BYTES];
    loop {
        let (length, peer) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(%error, "cannot receive a datagram");
                tokio::time::sleep(RECEIVE_PAUSE).await;
                continue;
            }
        };
        let record = Bytes::copy_from_slice(&buffer[..length]);
        let origin = RecordOrigin::of_datagram(peer);
        let reply = match dispatcher.prepare(&origin, record, Instant::now()) {
            Disposition::Run(prepared) => {
                dispatcher.run(&origin, prepared).await.map(|answered| answered.reply)
            }
            Disposition::Reply(reply) | Disposition::RefusePort(reply) => Some(reply),
            Disposition::Ignore | Disposition::HangUp => None,
        };
        if let Some(reply) = reply.map(|reply| reply.concat())
            && may_send(&reply, peer)
        {
            // Clients retransmit over UDP, so a failure is ignored.
            let _sent = socket.send_to(&reply, peer).await;
        }
    }
}

/// Whether a reply may be sent as a datagram. Source addresses over UDP can be spoofed, so only
/// this machine gets long lists; other machines get them over TCP.
fn may_send(reply: &[u8], to: SocketAddr) -> bool {
    reply.len() <= MAX_DATAGRAM_REPLY_BYTES || to.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_datagram_to_another_machine_is_short() {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        let mapped = SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), 9));
        let there = SocketAddr::from(([192, 0, 2, 1], 9));
        let long = vec![0; MAX_DATAGRAM_REPLY_BYTES + 1];
        assert!(may_send(&long, here) && may_send(&long, mapped) && !may_send(&long, there));
        assert!(may_send(&long[1..], there));
    }
}
