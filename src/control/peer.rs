//! Checks which user listens at a session's socket.
//!
//! In a directory that others may write to, another user can create the socket before the server
//! does.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::geteuid;

/// Checks that the listening process could change the session anyway: it belongs to root, to the
/// session's owner or to this user.
///
/// # Errors
/// It belongs to another user.
pub(super) fn check(stream: &UnixStream, socket: &Path, session: &Path) -> io::Result<()> {
    let listens = user_of(stream, socket)?;
    let owner = fs::metadata(session).ok().map(|found| found.uid());
    if listens == 0 || listens == geteuid().as_raw() || Some(listens) == owner {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "a process of user {listens} listens at {}, which is neither root nor the session's owner",
        socket.display()
    )))
}

/// The uid of the listening process (SO_PEERCRED, unix(7): as of its listen(2)).
#[cfg(target_os = "linux")]
fn user_of(stream: &UnixStream, _socket: &Path) -> io::Result<u32> {
    match rustix::net::sockopt::socket_peercred(stream) {
        Ok(found) => Ok(found.uid.as_raw()),
        // A process in another PID namespace has pid 0 here, which rustix cannot represent.
        Err(errno) if errno.raw_os_error() == 0 => user_of_unnumbered(stream),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(target_os = "linux")]
fn user_of_unnumbered(stream: &UnixStream) -> io::Result<u32> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    // The duplicate shares this flag with the stream.
    stream.set_nonblocking(true)?;
    let found = tokio::net::UnixStream::from_std(stream.try_clone()?)?.peer_cred();
    stream.set_nonblocking(false)?;
    Ok(found?.uid())
}

/// The owner of the socket file.
#[cfg(not(target_os = "linux"))]
fn user_of(_stream: &UnixStream, socket: &Path) -> io::Result<u32> {
    Ok(fs::symlink_metadata(socket)?.uid())
}
