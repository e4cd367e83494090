//! Finds the server of a session, and its addresses.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use super::address;
use super::error::{MountError, ServerAdvice};
use super::note::Note;
use super::server::DETACHED;
use crate::control::{
    Answer, ControlConnection, ControlError, ExportsUsage, Request, ServerStatus,
};
use crate::escape;

/// The timeout of a connection to a server on this machine. A busy server does not refuse it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The port for [`is_local`] (discard, RFC 863); nothing is sent.
const DISCARD_PORT: u16 = 9;

/// The server of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Served {
    /// The pid of the server.
    pub(super) pid: u32,
    /// The addresses at which it listens, as far as they are known.
    pub(super) addresses: Vec<SocketAddr>,
    /// Whether it refuses every change.
    pub(super) is_read_only: bool,
    /// The exports of its exports file; `None` if it serves only the session.
    exports: Option<ExportsUsage>,
    /// Whether it was started for a mount.
    is_ours: bool,
}

impl Served {
    /// Whether the server is shutting down: it refuses connections. Only known for one started for
    /// a mount, because that listens before any other process knows its address.
    pub(super) fn is_ending(&self) -> bool {
        let refuses = |address: &SocketAddr| {
            let reached = address::reached(*address);
            let connected = TcpStream::connect_timeout(&reached, CONNECT_TIMEOUT);
            connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        };
        self.is_ours && self.addresses.iter().all(refuses)
    }

    /// The best address for this machine: a loopback address, otherwise another local one.
    pub(super) fn near(&self) -> Option<SocketAddr> {
        let is_near = |address: &&SocketAddr| address::reachable(address.ip()).is_loopback();
        let local = || self.addresses.iter().find(|address| is_local(address.ip()));
        self.addresses.iter().find(is_near).or_else(local).copied()
    }

    /// Checks that the export `/` of the server is `session`.
    ///
    /// # Errors
    /// The server has an exports file: `/` may be another session or missing, and each export has
    /// its own rules. The error names the exports with `session`.
    pub(super) fn check_root(&self, session: &Path) -> Result<(), MountError> {
        let Some(usage) = &self.exports else {
            return Ok(());
        };
        let (shown, pid) = (session.display(), self.pid);
        let exports = exports_with(usage, session);
        let what = format!("{shown}: process {pid} serves it in exports{exports}");
        let file = usage.file.as_deref().unwrap_or(Path::new("EXPORTS.toml")).to_owned();
        let advice = ServerAdvice::MountExports { file, address: self.near() };
        Err(MountError::new(what).with_advice(advice))
    }
}

/// Whether `ip` belongs to this machine: the source address for a local destination is the
/// destination. Nothing is sent.
pub(super) fn is_local(ip: IpAddr) -> bool {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let from = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((ip, DISCARD_PORT))?;
        socket.local_addr()
    });
    from.is_ok_and(|from| from.ip() == ip)
}

/// A list `: NAME (at /PLACE)` of the exports with `session`.
fn exports_with(usage: &ExportsUsage, session: &Path) -> String {
    let named = usage.exports.iter().filter_map(|export| {
        let mut parts = export.sessions.iter();
        let part = parts.find(|part| part.session.as_deref() == Some(session))?;
        let places: Vec<String> = part.at.iter().map(|at| escape::name(at.as_bytes())).collect();
        Some(format!("{} (at {})", escape::name(export.name.as_bytes()), places.join(" ")))
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) }
}

/// The server of `session`, whether it was started for a mount or not.
pub(super) fn served(session: &Path) -> Result<Option<Served>, MountError> {
    let notes = Note::all().into_iter().filter(|note| note.session == session);
    let mut ours = notes.filter_map(|note| {
        let pid = note.started?;
        let is_read_only = is_read_only(&command_line(pid, session)?, session)?;
        Some(Served {
            pid,
            addresses: vec![note.address],
            is_read_only,
            exports: None,
            is_ours: true,
        })
    });
    if let Some(served) = ours.next() {
        return Ok(Some(served));
    }
    let Some(mut server) = ControlConnection::open(session)? else {
        return Ok(None);
    };
    let Ok(Answer::Status(ServerStatus { pid, addresses, .. })) = server.ask(&Request::Status)
    else {
        // The server has ended.
        return Ok(None);
    };
    let exports = match server.ask(&Request::Exports) {
        Ok(Answer::Exports(usage)) => usage.file.is_some().then_some(usage),
        // The server has exports, but cannot report their usage.
        Err(ControlError::Refused(_)) => Some(ExportsUsage::default()),
        _ => return Ok(None),
    };
    Ok(Some(Served { pid, addresses, is_read_only: false, exports, is_ours: false }))
}

/// Whether a command line is a detached server of `session` that is read-only; `None` if it is not
/// such a server.
fn is_read_only(command: &[u8], session: &Path) -> Option<bool> {
    let words = command.strip_suffix(session.as_os_str().as_bytes())?;
    let has = |word: &str| words.split(|byte| *byte == b' ').any(|each| each == word.as_bytes());
    (has("serve") && has(DETACHED)).then(|| has("--read-only"))
}

/// The command line of a process, separated by spaces; `None` for a process of a user that could
/// imitate the server of `session`.
#[cfg(target_os = "linux")]
fn command_line(pid: u32, session: &Path) -> Option<Vec<u8>> {
    use std::os::unix::fs::MetadataExt;
    let uid_of = |path: &Path| path.metadata().ok().map(|found| found.uid());
    let user = uid_of(Path::new(&format!("/proc/{pid}")))?;
    let ours = rustix::process::geteuid().as_raw();
    (user == 0 || user == ours || Some(user) == uid_of(session)).then_some(())?;
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = words.strip_suffix(b"\0")?;
    Some(words.iter().map(|byte| if *byte == 0 { b' ' } else { *byte }).collect())
}

/// The command line of a process, separated by spaces.
#[cfg(not(target_os = "linux"))]
fn command_line(pid: u32, _session: &Path) -> Option<Vec<u8>> {
    let mut command = std::process::Command::new("ps");
    let output = command.args(["-ww", "-o", "command=", "-p", &pid.to_string()]).output().ok()?;
    output.status.success().then(|| output.stdout.trim_ascii_end().to_vec())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::is_read_only;

    #[test]
    fn a_number_that_another_process_has_by_now_is_no_server() {
        let said = |command: &str| is_read_only(command.as_bytes(), Path::new("/home/a b/s.db"));
        let serve = "/bin/acetate serve --detached --listen 127.0.0.1:0";
        assert_eq!(said(&format!("{serve} -- /home/a b/s.db")), Some(false));
        assert_eq!(said(&format!("{serve} --read-only -- /home/a b/s.db")), Some(true));
        for other in [
            "/bin/acetate serve /home/a b/s.db".to_owned(),
            "vi /home/a b/s.db".to_owned(),
            format!("{serve} -- /home/a b/s.db.db"),
            format!("{serve} -- /home/other.db"),
            String::new(),
        ] {
            assert_eq!(said(&other), None, "{other}");
        }
    }
}
