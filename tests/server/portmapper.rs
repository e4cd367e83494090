//! The port mapper, as bytes.

use std::net::SocketAddr;
use std::sync::Arc;

use acetate::server::limits::MAX_REGISTRATIONS;
use acetate::server::rpcbind::Registration;
use acetate::server::{Portmapper, Registry, RpcProgram, Service};
use acetate::vfs::{Caller, Flavor};
use acetate::wire::portmap::{parse_universal_address, universal_address};
use tokio::net::{TcpStream, UdpSocket};

use super::peer::{Peer, success, words};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

fn services(addresses: &[&str]) -> Vec<Service> {
    let service = |program| {
        move |address: &&str| Service { program, version: 3, address: address.parse().unwrap() }
    };
    let nfs = addresses.iter().map(service(NFS));
    nfs.chain(addresses.iter().map(service(MOUNT))).collect()
}

/// A port mapper in all versions, and a caller of it.
struct Mapper {
    registry: Arc<Registry>,
    client: SocketAddr,
}

impl Mapper {
    fn new(addresses: &[&str]) -> Self {
        let registry = Arc::new(Registry::new(&services(addresses)));
        Self { registry, client: "127.0.0.1:999".parse().unwrap() }
    }

    fn called_from(self, client: &str) -> Self {
        Self { client: client.parse().unwrap(), ..self }
    }

    async fn ask(&self, version: u32, procedure: u32, args: Vec<u8>) -> Vec<u8> {
        let mapper = Portmapper::new(version, Arc::clone(&self.registry));
        let caller = Caller {
            client: self.client,
            flavor: Flavor::None,
            uid: 0,
            gid: 0,
            gids: vec![],
            call: None,
            is_owner: false,
        };
        let results = mapper.call(&caller, procedure, args.into()).await;
        results.map(|results| results.into_bytes().to_vec()).unwrap_or_else(|_| b"refused".to_vec())
    }
}

async fn ask(addresses: &[&str], version: u32, procedure: u32, args: Vec<u8>) -> Vec<u8> {
    Mapper::new(addresses).ask(version, procedure, args).await
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let padding = vec![0; bytes.len().wrapping_neg() % 4];
    [&words(&[bytes.len() as u32]), bytes, &padding].concat()
}

fn rpcb(program: u32, version: u32, netid: &str, address: &str) -> Vec<u8> {
    let strings = [netid, address, ""].map(|text| opaque(text.as_bytes())).concat();
    [words(&[program, version]), strings].concat()
}

const HERE: &[&str] = &["127.0.0.1:2049"];

#[tokio::test]
async fn getport_knows_tcp_and_itself() {
    for (mapping, port) in [
        ([NFS, 3, 6, 0], 2049),
        ([MOUNT, 3, 6, 0], 2049),
        // The program refuses other versions itself, and names those that it has.
        ([MOUNT, 1, 6, 0], 2049),
        ([NFS, 3, 17, 0], 0),
        ([100_021, 4, 6, 0], 0),
        ([100_000, 2, 17, 0], 111),
    ] {
        let got = ask(HERE, 2, 3, words(&mapping)).await;
        assert_eq!(got, words(&[port]), "{mapping:?}");
    }
}

#[tokio::test]
async fn dump_lists_what_is_here() {
    let own = |version| [1, 100_000, version, 6, 111, 1, 100_000, version, 17, 111];
    let mut expected = [own(4), own(3), own(2)].concat();
    expected.extend([1, NFS, 3, 6, 2049, 1, MOUNT, 3, 6, 2049, 0]);
    assert_eq!(ask(HERE, 2, 4, vec![]).await, words(&expected));
    let own = |version| {
        let entry = |(netid, wildcard): (&str, &str)| {
            let strings = [netid, &format!("{wildcard}.0.111"), "superuser"];
            let strings = strings.map(|text| opaque(text.as_bytes())).concat();
            [words(&[1, 100_000, version]), strings].concat()
        };
        [("tcp", "0.0.0.0"), ("udp", "0.0.0.0"), ("tcp6", "::"), ("udp6", "::")].map(entry).concat()
    };
    let tail = [opaque(b"tcp"), opaque(b"127.0.0.1.8.1"), opaque(b"superuser")].concat();
    let entry = |program| [words(&[1, program, 3]), tail.clone()].concat();
    let expected = [own(4), own(3), own(2), entry(NFS), entry(MOUNT), words(&[0])].concat();
    assert_eq!(ask(HERE, 3, 4, vec![]).await, expected);
}

#[tokio::test]
async fn getaddr_answers_for_the_family_that_is_asked_for() {
    let both = &["127.0.0.1:2049", "[::1]:2050"];
    for (addresses, netid, expected) in [
        (&both[..], "tcp", "127.0.0.1.8.1"),
        (both, "tcp6", "::1.8.2"),
        (both, "udp", ""),
        (HERE, "tcp6", ""),
        (&["[::]:2049"], "tcp6", "::1.8.1"),
    ] {
        let hint = if netid == "tcp6" { "::1.0.111" } else { "127.0.0.1.0.111" };
        for version in [3, 4] {
            let got = ask(addresses, version, 3, rpcb(NFS, 3, netid, hint)).await;
            assert_eq!(got, opaque(expected.as_bytes()), "{addresses:?} {netid}");
        }
    }
}

#[tokio::test]
async fn getaddr_knows_the_port_mapper_itself() {
    let got = ask(HERE, 4, 3, rpcb(100_000, 2, "udp", "127.0.0.1.0.111")).await;
    assert_eq!(got, opaque(b"127.0.0.1.0.111"));
    assert_eq!(ask(HERE, 4, 9, rpcb(100_000, 5, "udp", "")).await, opaque(b""));
}

#[tokio::test]
async fn only_getversaddr_insists_on_the_version() {
    let asked = || rpcb(NFS, 4, "tcp", "");
    assert_eq!(ask(HERE, 4, 3, asked()).await, opaque(b"127.0.0.1.8.1"));
    assert_eq!(ask(HERE, 4, 9, asked()).await, opaque(b""));
    assert_eq!(ask(HERE, 3, 9, asked()).await, b"refused");
}

#[tokio::test]
async fn this_machine_registers_and_unregisters() {
    let mapper = Mapper::new(HERE);
    let port = |version, protocol| words(&[100_021, version, protocol, 0]);
    assert_eq!(mapper.ask(2, 1, words(&[100_021, 4, 17, 700])).await, words(&[1]));
    assert_eq!(mapper.ask(4, 1, rpcb(100_021, 4, "tcp", "0.0.0.0.2.189")).await, words(&[1]));
    assert_eq!(mapper.ask(4, 1, rpcb(100_021, 4, "tcp6", "::.2.190")).await, words(&[1]));
    assert_eq!(mapper.ask(2, 3, port(4, 17)).await, words(&[700]));
    assert_eq!(mapper.ask(2, 3, port(4, 6)).await, words(&[701]));
    let tcp6 = mapper.ask(3, 3, rpcb(100_021, 4, "tcp6", "::1.0.111")).await;
    assert_eq!(tcp6, opaque(b"::1.2.190"));

    // The same again is fine, another address is not; a version goes with all its transports.
    assert_eq!(mapper.ask(2, 1, words(&[100_021, 4, 17, 700])).await, words(&[1]));
    assert_eq!(mapper.ask(2, 1, words(&[100_021, 4, 17, 702])).await, words(&[0]));
    assert_eq!(mapper.ask(3, 2, rpcb(100_021, 4, "", "")).await, words(&[1]));
    assert_eq!(mapper.ask(3, 2, rpcb(100_021, 4, "", "")).await, words(&[0]));
    assert_eq!(mapper.ask(2, 3, port(4, 6)).await, words(&[0]));
}

#[tokio::test]
async fn what_we_serve_stays() {
    let mapper = Mapper::new(HERE);
    assert_eq!(mapper.ask(2, 2, words(&[NFS, 3, 0, 0])).await, words(&[0]));
    assert_eq!(mapper.ask(2, 1, words(&[NFS, 3, 6, 99])).await, words(&[0]));
    assert_eq!(mapper.ask(2, 3, words(&[NFS, 3, 6, 0])).await, words(&[2049]));
}

#[tokio::test]
async fn the_lock_manager_of_a_kernel_may_register_and_is_not_found() {
    let address = "127.0.0.1:2049".parse().unwrap();
    let ours = Service { program: 100_021, version: 4, address };
    let mapper = Mapper { registry: Arc::new(Registry::new(&[ours])), ..Mapper::new(HERE) };
    let ask_port = || mapper.ask(2, 3, words(&[100_021, 4, 6, 0]));
    assert_eq!(mapper.ask(3, 2, rpcb(100_021, 4, "", "")).await, words(&[0]));
    assert_eq!(mapper.ask(4, 1, rpcb(100_021, 4, "tcp", "0.0.0.0.2.189")).await, words(&[1]));
    assert_eq!(mapper.ask(4, 1, rpcb(100_021, 4, "tcp", "0.0.0.0.2.190")).await, words(&[0]));
    assert_eq!(ask_port().await, words(&[2049]));
    assert_eq!(mapper.ask(3, 2, rpcb(100_021, 4, "", "")).await, words(&[1]));
    assert_eq!(ask_port().await, words(&[2049]));
}

#[tokio::test]
async fn nobody_else_registers() {
    for client in ["192.0.2.1:999", "127.0.0.1:1024", "[2001:db8::1]:999"] {
        let mapper = Mapper::new(HERE).called_from(client);
        let set = mapper.ask(2, 1, words(&[100_021, 4, 17, 700])).await;
        assert_eq!(set, words(&[0]), "{client}");
    }
    let mapped = Mapper::new(HERE).called_from("[::ffff:127.0.0.1]:999");
    assert_eq!(mapped.ask(2, 1, words(&[100_021, 4, 17, 700])).await, words(&[1]));
}

#[tokio::test]
async fn registrations_are_bounded_and_sound() {
    let mapper = Mapper::new(HERE);
    for program in 0..MAX_REGISTRATIONS as u32 {
        assert_eq!(mapper.ask(2, 1, words(&[program, 1, 6, 700])).await, words(&[1]));
    }
    assert_eq!(mapper.ask(2, 1, words(&[999, 1, 6, 700])).await, words(&[0]));
    let mapper = Mapper::new(HERE);
    assert_eq!(mapper.ask(2, 1, words(&[999, 1, 6, 65536])).await, words(&[0]));
    assert_eq!(mapper.ask(2, 1, words(&[999, 1, 7, 700])).await, words(&[0]));
    assert_eq!(mapper.ask(4, 1, rpcb(999, 1, "local", "/run/x")).await, words(&[0]));
    assert_eq!(mapper.ask(4, 1, rpcb(999, 1, "tcp", "nowhere")).await, words(&[0]));
}

#[tokio::test]
async fn garbage_is_refused() {
    assert_eq!(ask(HERE, 2, 3, words(&[NFS, 3])).await, b"refused");
    // CALLIT would let others call from here.
    assert_eq!(ask(HERE, 2, 5, vec![]).await, b"refused");
    assert_eq!(ask(HERE, 4, 5, vec![]).await, b"refused");
}

#[test]
fn universal_addresses_go_both_ways() {
    for text in ["127.0.0.1:2049", "[::1]:65535", "0.0.0.0:0"] {
        let address: SocketAddr = text.parse().unwrap();
        assert_eq!(parse_universal_address(universal_address(address).as_bytes()), Some(address));
    }
    for text in ["", "1.2", "127.0.0.1", "127.0.0.1.8.256", "host.8.1", "127.0.0.1.8."] {
        assert_eq!(parse_universal_address(text.as_bytes()), None, "{text}");
    }
}

/// A port that is free for TCP and UDP.
async fn free_port() -> u16 {
    loop {
        let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        if UdpSocket::bind(address).await.is_ok() {
            return address.port();
        }
    }
}

#[tokio::test]
async fn where_no_rpcbind_runs_we_answer_over_tcp_and_udp() {
    let port = free_port().await;
    let registration = Registration::begin(&services(HERE), port).await.unwrap();
    assert!(registration.is_builtin());
    let ask = words(&[1, 0, 2, 100_000, 2, 3, 0, 0, 0, 0, NFS, 3, 6, 0]);
    let expected = success(1, &words(&[2049]));

    let mut tcp = Peer(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    assert_eq!(tcp.ask(&ask).await, expected);

    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    udp.send_to(b"garbage", ("127.0.0.1", port)).await.unwrap();
    udp.send_to(&ask, ("127.0.0.1", port)).await.unwrap();
    let mut buffer = [0; 100];
    let length = udp.recv(&mut buffer).await.unwrap();
    assert_eq!(buffer[..length], expected);

    let rpcb_1 = words(&[2, 0, 2, 100_000, 1, 0, 0, 0, 0, 0]);
    assert_eq!(tcp.ask(&rpcb_1).await, words(&[2, 1, 0, 0, 0, 2, 2, 4]));

    registration.end().await;
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err());
    UdpSocket::bind(("127.0.0.1", port)).await.unwrap();
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let taken = udp.local_addr().unwrap();
    let error = Registration::begin(&services(HERE), taken.port()).await.err().unwrap();
    assert_eq!(error.to_string(), format!("cannot listen at {taken}"));
}
