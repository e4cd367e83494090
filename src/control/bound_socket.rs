//! A control socket that is bound.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::socket;

/// A socket beside a session or an exports file; removed on drop.
pub(super) struct BoundSocket {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket: another server may have replaced it.
    file: (u64, u64),
    /// The only uid besides root that may connect.
    owner: u32,
}

impl BoundSocket {
    /// Binds the socket beside `file`. An existing socket is stale and is removed.
    pub(super) fn bind(file: &Path) -> io::Result<Self> {
        let path = socket::path(file);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.file_type().is_socket() => fs::remove_file(&path)?,
            Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => {}
        }
        let socket = UnixListener::from_std(socket::listen(&path)?)?;
        let made = fs::symlink_metadata(&path)?;
        // Not the owner of the socket's path: another user may have put a file there.
        let owner = rustix::process::geteuid().as_raw();
        let file = (made.dev(), made.ino());
        Ok(Self { socket, path, file, owner })
    }

    /// The only uid besides root that may connect.
    pub(super) fn owner(&self) -> u32 {
        self.owner
    }

    /// The next connection, with its permit.
    pub(super) async fn next(
        &self,
        places: &Arc<Semaphore>,
    ) -> (Option<OwnedSemaphorePermit>, UnixStream) {
        // The semaphore is never closed.
        let place = Arc::clone(places).acquire_owned().await.ok();
        loop {
            match self.socket.accept().await {
                Ok((stream, _)) => return (place, stream),
                Err(error) => {
                    tracing::warn!(%error, "control socket");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        let is_ours = |found: fs::Metadata| (found.dev(), found.ino()) == self.file;
        if fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
