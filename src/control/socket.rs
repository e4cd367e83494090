//! Path and creation of a session's control socket.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::delta::sqlite::CONTROL_SUFFIX;

/// Portable length of a socket path, in bytes (`sun_path` of macOS without its NUL).
const MAX_ADDRESS_BYTES: usize = 103;

/// The path of the socket of a session, or of an exports file.
pub fn path(session: &Path) -> PathBuf {
    let mut name: OsString = session.as_os_str().to_owned();
    name.push(CONTROL_SUFFIX);
    name.into()
}

/// Calls `f` with a path to `socket` that is short enough for a socket address.
pub(super) fn with_address<T>(
    socket: &Path,
    f: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    if socket.as_os_str().len() <= MAX_ADDRESS_BYTES {
        return f(socket);
    }
    let (Some(dir), Some(name)) = (socket.parent(), socket.file_name()) else {
        return f(socket);
    };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let open = File::open(dir)?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&open);
    let short = Path::new("/proc/self/fd").join(fd.to_string()).join(name);
    if !cfg!(target_os = "linux") || short.as_os_str().len() > MAX_ADDRESS_BYTES {
        let what = "the session's path is too long for a socket beside it";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    f(&short)
}

/// Listens at `socket`, which must not exist, with mode 0600.
#[cfg(target_os = "linux")]
pub(super) fn listen(socket: &Path) -> io::Result<UnixListener> {
    use rustix::fs::{Mode, fchmod};
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let open = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // On Linux, bind(2) gives the file the mode of the socket. A chmod(2) by path could follow a
    // symbolic link of another user.
    fchmod(&open, Mode::RUSR | Mode::WUSR)?;
    with_address(socket, |path| Ok(rustix::net::bind(&open, &SocketAddrUnix::new(path)?)?))?;
    rustix::net::listen(&open, BACKLOG)?;
    Ok(open.into())
}

/// Backlog of listen(2).
#[cfg(target_os = "linux")]
const BACKLOG: i32 = 128;

/// Listens at `socket`, which must not exist, with mode 0600.
#[cfg(not(target_os = "linux"))]
pub(super) fn listen(socket: &Path) -> io::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt;
    let listener = with_address(socket, |path| UnixListener::bind(path))?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
