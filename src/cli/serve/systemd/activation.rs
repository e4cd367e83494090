//! Sockets that the service manager opened (sd_listen_fds(3)). They stay open while no server runs:
//! clients wait for the next server in the backlog, instead of being refused.

use std::net::TcpListener;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

#[cfg(target_os = "linux")]
use rustix::{
    io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio},
    net::sockopt::{socket_acceptconn, socket_domain, socket_protocol, socket_type},
    net::{AddressFamily, SocketType, ipproto},
};

use crate::cli::error::CliError;
#[cfg(target_os = "linux")]
use crate::system_error::words;

/// The descriptors that the manager passed, as listening TCP sockets in the manager's order. Empty
/// if it passed none to this process.
///
/// Must be called once, before this process opens any descriptor: a number that the manager names
/// and did not pass would be one of this process's own.
///
/// # Errors
/// A descriptor is no listening TCP socket, or has a name that is not known.
#[cfg(target_os = "linux")]
pub(in crate::cli::serve) fn inherited_listeners() -> Result<Vec<TcpListener>, CliError> {
    let passed = sd_listen_fds::get()
        .map_err(|_| CliError::new("LISTEN_PID or LISTEN_FDS is no number").with_hint(HINT))?;
    let mut passed = (FIRST..).zip(passed);
    let mut listeners = Vec::new();
    while let Some((number, (name, socket))) = passed.next() {
        let (name, socket) = (name.unwrap_or_default(), socket.into_std());
        if let Err((what, hint)) = check_name(&name).and_then(|()| check(&socket)) {
            // Dropping a number that is not open would abort, and the process ends anyway.
            std::mem::forget(socket);
            passed.for_each(|(_, (_, other))| std::mem::forget(other));
            let shown = if name.is_empty() { String::new() } else { format!(" `{name}`") };
            let what = format_args!("inherited descriptor {number}{shown}: {what}");
            return Err(CliError::new(what).with_hint(hint));
        }
        listeners.push(TcpListener::from(socket));
    }
    Ok(listeners)
}

/// Only Linux has such a service manager.
#[cfg(not(target_os = "linux"))]
pub(in crate::cli::serve) fn inherited_listeners() -> Result<Vec<TcpListener>, CliError> {
    Ok(Vec::new())
}

/// The number of the first descriptor.
#[cfg(target_os = "linux")]
const FIRST: u32 = 3;

#[cfg(target_os = "linux")]
const HINT: &str = "a socket unit passes listening TCP sockets, with ListenStream=ADDR:PORT";

#[cfg(target_os = "linux")]
const NAMES_HINT: &str = "a socket for clients has FileDescriptorName=nfs, or none";

/// Why a descriptor is refused, and a hint.
#[cfg(target_os = "linux")]
type DescriptorFault = (String, &'static str);

/// Checks that a socket of this name is for clients.
#[cfg(target_os = "linux")]
fn check_name(name: &str) -> Result<(), DescriptorFault> {
    match name {
        // sd_listen_fds(3) has `unknown` for a descriptor without a name.
        "nfs" | "" | "unknown" => Ok(()),
        // systemd.socket(5): without a name, a socket has that of its unit.
        unit if unit.ends_with(".socket") => Ok(()),
        "admin" => Err(("the name is reserved".to_owned(), NAMES_HINT)),
        _ => Err(("the name is not known".to_owned(), NAMES_HINT)),
    }
}

/// Checks that a descriptor is a listening TCP socket, and sets it up: non-blocking, and not
/// inherited by children.
#[cfg(target_os = "linux")]
fn check(socket: &OwnedFd) -> Result<(), DescriptorFault> {
    let refused = |what: &str| Err((what.to_owned(), HINT));
    let failed = |error: Errno| (words(&error.into()), HINT);
    // Fails if the descriptor is not open.
    fcntl_setfd(socket, FdFlags::CLOEXEC).map_err(failed)?;
    let Ok(domain) = socket_domain(socket) else { return refused("not a socket") };
    let is_internet = domain == AddressFamily::INET || domain == AddressFamily::INET6;
    let is_stream = socket_type(socket).map_err(failed)? == SocketType::STREAM;
    let is_tcp = socket_protocol(socket).map_err(failed)? == Some(ipproto::TCP);
    if !(is_internet && is_stream && is_tcp) {
        return refused("not a TCP socket");
    }
    if !socket_acceptconn(socket).map_err(failed)? {
        return refused("the socket does not listen");
    }
    ioctl_fionbio(socket, true).map_err(failed)
}
