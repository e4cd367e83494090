//! Whether a session is being served, by whom, and where.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use super::note::Note;
use super::server::DETACHED;
use crate::cli::change::connect;
use crate::cli::error::CliError;
use crate::cli::{mount_help, text};
use crate::control::{Answer, ControlError, ExportsUsage, Request, ServerStatus};

/// A server that is there answers sooner; one that is busy does not refuse.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The port that [`is_local`] names (discard, RFC 863).
const DISCARD_PORT: u16 = 9;

/// A server that has a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Served {
    /// Its process.
    pub(super) pid: u32,
    /// Where it listens, as far as that is known.
    pub(super) addresses: Vec<SocketAddr>,
    /// Whether it refuses every change.
    pub(super) is_read_only: bool,
    /// What an exports file says that it serves; `None` where the session is all that it has.
    exports: Option<ExportsUsage>,
    /// Whether it was started for a mount.
    is_ours: bool,
}

impl Served {
    /// Whether it was told to end, and is at that: nobody hears clients any more. Only of one that
    /// was started for a mount, which listens before that is known to anybody.
    pub(super) fn is_ending(&self) -> bool {
        let refuses = |address: &SocketAddr| {
            let reached = mount_help::reached(*address);
            let connected = TcpStream::connect_timeout(&reached, CONNECT_TIMEOUT);
            connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        };
        self.is_ours && self.addresses.iter().all(refuses)
    }

    /// Where this machine reaches it best: at an address of this machine, whatever the server says.
    pub(super) fn near(&self) -> Option<SocketAddr> {
        let is_near = |address: &&SocketAddr| mount_help::reachable(address.ip()).is_loopback();
        let local = || self.addresses.iter().find(|address| is_local(address.ip()));
        self.addresses.iter().find(is_near).or_else(local).copied()
    }

    /// Sees to it that its `/` is `session`.
    ///
    /// # Errors
    /// It serves what an exports file says: `/` may be another session there, or nothing, and
    /// each export has its own rules. The error says how to mount those that have `session`.
    pub(super) fn check_root(&self, session: &Path) -> Result<(), CliError> {
        let Some(usage) = &self.exports else {
            return Ok(());
        };
        let (shown, pid) = (session.display(), self.pid);
        let exports = exports_with(usage, session);
        let what = format!("{shown}: process {pid} serves it in exports{exports}");
        let file = usage.file.as_deref().unwrap_or(Path::new("EXPORTS.toml")).display();
        let how = self.near().map(|near| {
            let (options, host) = (mount_help::options(near), mount_help::host(near));
            format!("; then: mount -t nfs -o {options} {host}:PATH DIR")
        });
        Err(CliError::new(what).with_hint(format_args!(
            "`acetate config check {file}` shows the PATH of each export{}",
            how.unwrap_or_default()
        )))
    }
}

/// Whether `ip` is an address of this machine: what is sent there, the system sends from the same
/// address. Nothing is sent.
fn is_local(ip: IpAddr) -> bool {
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

/// `: NAME (at /PLACE)` of each export that has `session`.
fn exports_with(usage: &ExportsUsage, session: &Path) -> String {
    let named = usage.exports.iter().filter_map(|export| {
        let mut parts = export.sessions.iter();
        let part = parts.find(|part| part.session.as_deref() == Some(session))?;
        let places: Vec<String> = part.at.iter().map(|at| text::name(at.as_bytes())).collect();
        Some(format!("{} (at {})", text::name(export.name.as_bytes()), places.join(" ")))
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) }
}

/// The server that has `session`: one that was started for a mount, or any other.
pub(super) fn served(session: &Path) -> Result<Option<Served>, CliError> {
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
    let Some(mut server) = connect(session)? else {
        return Ok(None);
    };
    let Ok(Answer::Status(ServerStatus { pid, addresses, .. })) = server.ask(&Request::Status)
    else {
        // It has ended meanwhile.
        return Ok(None);
    };
    let exports = match server.ask(&Request::Exports) {
        Ok(Answer::Exports(usage)) => usage.file.is_some().then_some(usage),
        // One that has exports, and cannot say what they take.
        Err(ControlError::Refused(_)) => Some(ExportsUsage::default()),
        _ => return Ok(None),
    };
    Ok(Some(Served { pid, addresses, is_read_only: false, exports, is_ours: false }))
}

/// Whether the command is a server of ours for `session` that only reads it; `None` if it is no
/// server of ours.
fn is_read_only(command: &[u8], session: &Path) -> Option<bool> {
    let words = command.strip_suffix(session.as_os_str().as_bytes())?;
    let has = |word: &str| words.split(|byte| *byte == b' ').any(|each| each == word.as_bytes());
    (has("serve") && has(DETACHED)).then(|| has("--read-only"))
}

/// The words of a process's command, with a space between; `None` of a process whose user could
/// only pretend to be the server of `session`.
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

/// The words of a process's command, with a space between.
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
