//! Sockets that the server gets instead of opening its own.

use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use tempfile::tempdir;

use super::manager::{Manager, held_socket, lines_until, passed, with_sockets, with_variables};
use crate::cli::program::Serving;
use crate::cli::serve::mount_root;

/// The server's lines after a start that fails.
fn refused(dir: &Path, sockets: Vec<OwnedFd>, names: Option<&str>) -> Vec<String> {
    let command = with_sockets(dir, sockets, names);
    let (status, said) = Serving::start_as(command, 0, &["s.db"]).end();
    assert_eq!(status.code(), Some(2), "{said:?}");
    assert!(!dir.join("s.db").exists(), "no session is made");
    said
}

#[test]
fn clients_are_served_at_the_inherited_sockets() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let names = [None, Some("nfs:nfs"), Some("unknown:nfs"), Some("acetate.socket:x.socket")];
    for (at, names) in names.into_iter().enumerate() {
        let (one, two) = (held_socket(), held_socket());
        let command = with_sockets(dir, vec![passed(&one.0), passed(&two.0)], names);
        let manager = Manager::new(&{
            let own = dir.join(at.to_string());
            fs::create_dir(&own).unwrap();
            own
        });
        // An address of its own would be in use.
        let taken = held_socket();
        let listen = taken.1.to_string();
        let args = ["s.db", "--insecure", "--listen", &listen];
        let mut server = manager.start(command, &args, &[]);
        manager.until("READY", "1");
        let said = lines_until(&mut server, &format!("listening on {}", two.1));
        assert!(said.contains(&format!("listening on {}", one.1)), "{said:?}");
        assert!(said[0].starts_with("--listen is not used: "), "{said:?}");
        for address in [one.1, two.1] {
            assert_eq!(mount_root(address)[20..24], [0; 4]);
        }
        server.signal("TERM");
        assert!(server.end().0.success());
        // The sockets outlive the server: a client waits for the next one.
        TcpStream::connect(one.1).unwrap();
    }
}

#[test]
fn a_name_that_is_not_known_is_refused() {
    let dir = tempdir().unwrap();
    for (name, words) in [("admin", "reserved"), ("http", "not known"), ("nfs:http", "not known")] {
        let sockets = name.split(':').map(|_| passed(&held_socket().0)).collect();
        let said = refused(dir.path(), sockets, Some(name));
        let last = name.rsplit(':').next().unwrap();
        let number = 3 + name.matches(':').count();
        let start = format!("error: inherited descriptor {number} `{last}`: ");
        assert!(said[0].starts_with(&start) && said[0].contains(words), "{said:?}");
        assert!(said[1].contains("FileDescriptorName=nfs"), "{said:?}");
    }
}

#[test]
fn a_descriptor_that_is_no_listening_tcp_socket_is_refused() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("file"), "").unwrap();
    let (held, address) = held_socket();
    let connected = TcpStream::connect(address).unwrap();
    drop(held);
    let unix = UnixListener::bind(dir.join("unix")).unwrap();
    let unbound = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    );
    let cases: [(OwnedFd, &str); 5] = [
        (fs::File::open(dir.join("file")).unwrap().into(), "not a socket"),
        (UdpSocket::bind("127.0.0.1:0").unwrap().into(), "not a TCP socket"),
        (unix.into(), "not a TCP socket"),
        (connected.into(), "does not listen"),
        (unbound.unwrap(), "does not listen"),
    ];
    for (descriptor, words) in cases {
        let said = refused(dir, vec![descriptor], Some("nfs"));
        assert!(said[0].starts_with("error: inherited descriptor 3 `nfs`: "), "{said:?}");
        assert!(said[0].contains(words) && said[1].contains("ListenStream="), "{said:?}");
    }
}

#[test]
fn a_number_without_a_descriptor_is_refused() {
    let dir = tempdir().unwrap();
    let sockets = vec![passed(&held_socket().0)];
    let command = with_variables(dir.path(), sockets, "LISTEN_FDS=2 LISTEN_PID=$$");
    let (status, said) = Serving::start_as(command, 0, &["s.db"]).end();
    assert_eq!(status.code(), Some(2), "{said:?}");
    assert!(said[0].starts_with("error: inherited descriptor 4: "), "{said:?}");
}

#[test]
fn sockets_for_another_process_are_left_alone() {
    let dir = tempdir().unwrap();
    let (held, address) = held_socket();
    // As where a program of the service starts a server of its own.
    let variables = "LISTEN_FDS=1 LISTEN_PID=1 LISTEN_FDNAMES=http";
    let command = with_variables(dir.path(), vec![passed(&held)], variables);
    let server = Serving::start_as(command, 1, &["s.db"]);
    assert_ne!(server.addresses, [address]);
}

#[test]
fn the_backlog_of_a_socket_waits_for_the_server() {
    let dir = tempdir().unwrap();
    let (held, address): (TcpListener, _) = held_socket();
    let waiting = std::thread::spawn(move || mount_root(address));
    let manager = Manager::new(dir.path());
    let command = with_sockets(dir.path(), vec![passed(&held)], Some("nfs"));
    let server = manager.start(command, &["s.db", "--insecure"], &[]);
    assert_eq!(waiting.join().unwrap()[20..24], [0; 4]);
    drop(server);
}
