//! Whether a session is being served, by whom, and where.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::note::Note;
use super::server::DETACHED;
use crate::cli::change::connect;
use crate::cli::error::CliError;
use crate::control::{Answer, Request, ServerStatus};

/// A server that has a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Served {
    /// Its process.
    pub(super) pid: u32,
    /// Where it listens, as far as that is known.
    pub(super) addresses: Vec<SocketAddr>,
    /// Whether it refuses every change.
    pub(super) is_read_only: bool,
}

/// The server that has `session`: one that was started for a mount, or any other.
pub(super) fn served(session: &Path) -> Result<Option<Served>, CliError> {
    let notes = Note::all().into_iter().filter(|note| note.session == session);
    let mut ours = notes.filter_map(|note| {
        let pid = note.started?;
        let is_read_only = is_read_only(&command_line(pid)?, session)?;
        Some(Served { pid, addresses: vec![note.address], is_read_only })
    });
    if let Some(served) = ours.next() {
        return Ok(Some(served));
    }
    let Some(mut server) = connect(session)? else {
        return Ok(None);
    };
    Ok(match server.ask(&Request::Status) {
        Ok(Answer::Status(ServerStatus { pid, addresses, .. })) => {
            Some(Served { pid, addresses, is_read_only: false })
        }
        // It has ended meanwhile.
        _ => None,
    })
}

/// Whether the command is a server of ours for `session` that only reads it; `None` if it is no
/// server of ours.
fn is_read_only(command: &[u8], session: &Path) -> Option<bool> {
    let words = command.strip_suffix(session.as_os_str().as_bytes())?;
    let has = |word: &str| words.split(|byte| *byte == b' ').any(|each| each == word.as_bytes());
    (has("serve") && has(DETACHED)).then(|| has("--read-only"))
}

/// The words of a process's command, with a space between.
#[cfg(target_os = "linux")]
fn command_line(pid: u32) -> Option<Vec<u8>> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = words.strip_suffix(b"\0")?;
    Some(words.iter().map(|byte| if *byte == 0 { b' ' } else { *byte }).collect())
}

/// The words of a process's command, with a space between.
#[cfg(not(target_os = "linux"))]
fn command_line(pid: u32) -> Option<Vec<u8>> {
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
