//! Closes cached descriptors on a thread of their filesystem.
//!
//! close(2) may block as long as the filesystem hangs: FUSE asks the process that serves it
//! (FUSE_FLUSH). So the threads that close many sessions, one after the other, must not wait for
//! it. A filesystem that hangs keeps one thread, and the descriptors that are to be closed on it;
//! with many of these, bases on it had better [stay open](is_full).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Time to wait for descriptors that are closed: a filesystem that answers takes less, so they are
/// closed when the caller continues. Beyond that, the filesystem counts as stuck.
const CLOSE_WAIT: Duration = Duration::from_millis(100);

/// Descriptors of a stuck filesystem that may wait to be closed before idle bases on it stay open:
/// each base that is closed and opened again adds as many as it has cached.
const MAX_WAITING_FDS: usize = 256;

/// The filesystems, by device number, whose descriptors are being closed.
static CLOSING: Mutex<BTreeMap<u64, CloseQueue>> = Mutex::new(BTreeMap::new());

/// Descriptors that wait for the thread of their filesystem.
struct CloseQueue {
    waiting: Vec<Box<dyn Send>>,
    /// The descriptors that wait, and those that are closed now.
    fds: usize,
    /// Whether it was logged that there are many.
    is_logged: bool,
    /// When the thread began to close what it closes now.
    began: Instant,
}

impl CloseQueue {
    fn new(fds: usize, waiting: Box<dyn Send>) -> Self {
        Self { waiting: vec![waiting], fds, is_logged: false, began: Instant::now() }
    }

    fn is_stuck(&self) -> bool {
        self.began.elapsed() >= CLOSE_WAIT
    }
}

/// Whether closing descriptors of the filesystem `dev` takes long now.
pub(super) fn is_stuck(dev: u64) -> bool {
    CLOSING.lock().get(&dev).is_some_and(CloseQueue::is_stuck)
}

/// Whether closing descriptors of the filesystem `dev` takes long now, and many wait for it.
pub(super) fn is_full(dev: u64) -> bool {
    let mut closing = CLOSING.lock();
    let queue = closing.get_mut(&dev).filter(|it| it.is_stuck() && it.fds >= MAX_WAITING_FDS);
    let Some(queue) = queue else { return false };
    if !std::mem::replace(&mut queue.is_logged, true) {
        let waiting = queue.fds;
        let what = "closing files of a filesystem hangs: exports with bases on it stay open";
        tracing::warn!(dev, waiting, "{what}");
    }
    true
}

/// Closes `count` descriptors of the filesystem `dev` by dropping `fds`. Waits [`CLOSE_WAIT`] at
/// most, and not at all if the filesystem is stuck.
pub(super) fn close(dev: u64, count: usize, fds: impl Send + 'static) {
    let (closed, is_closed) = channel::<()>();
    // Dropped in this order: the sender says that the descriptors are closed.
    let fds: Box<dyn Send> = Box::new((fds, closed));
    let mut closing = CLOSING.lock();
    let (begins, is_stuck) = match closing.entry(dev) {
        Entry::Occupied(mut queue) => {
            let queue = queue.get_mut();
            queue.waiting.push(fds);
            queue.fds += count;
            (false, queue.is_stuck())
        }
        Entry::Vacant(none) => {
            none.insert(CloseQueue::new(count, fds));
            (true, false)
        }
    };
    drop(closing);
    if begins {
        let named = thread::Builder::new().name("close-base".to_owned());
        if let Err(error) = named.spawn(move || close_all(dev)) {
            tracing::warn!(%error, "no thread to close files of a base");
            close_all(dev);
        }
    }
    if !is_stuck {
        // Nothing is ever sent.
        let _closed_or_late = is_closed.recv_timeout(CLOSE_WAIT);
    }
}

/// Closes what waits for the filesystem `dev`, until nothing does.
fn close_all(dev: u64) {
    let mut closed = 0;
    loop {
        let mut closing = CLOSING.lock();
        let Some(queue) = closing.get_mut(&dev) else { return };
        queue.fds -= closed;
        closed = queue.fds;
        let fds = std::mem::take(&mut queue.waiting);
        if fds.is_empty() {
            closing.remove(&dev);
            return;
        }
        queue.began = Instant::now();
        drop(closing);
        drop(fds);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::dir_fds::OpenDir;
    use super::super::file_fds::OpenFile;
    use super::super::{HostDir, HostDirOptions};
    use super::*;
    use crate::base::{Base, BasePath};

    /// How long the kernel waits for the other end of a connection that is closed.
    const LINGER: Duration = Duration::from_secs(20);

    /// A descriptor whose close(2) blocks until the other end has read all, and the other end.
    fn hanging() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Less than what this end keeps to send.
        socket2::SockRef::from(&listener).set_recv_buffer_size(4 << 10).unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        socket2::SockRef::from(&stream).set_linger(Some(LINGER)).unwrap();
        stream.set_nonblocking(true).unwrap();
        let full = loop {
            if let Err(error) = stream.write(&[0; 1 << 16]) {
                break error.kind();
            }
        };
        assert_eq!(full, ErrorKind::WouldBlock);
        stream.set_nonblocking(false).unwrap();
        (stream.into(), other)
    }

    /// A base with a file, on a filesystem of its own as far as closing goes.
    fn base() -> (tempfile::TempDir, HostDir, BasePath) {
        static DEVICES: AtomicU64 = AtomicU64::new(1 << 60);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "content").unwrap();
        let mut base = HostDir::open(dir.path(), HostDirOptions::default()).unwrap();
        base.root_dev = DEVICES.fetch_add(1, Ordering::Relaxed);
        (dir, base, BasePath::from_bytes(b"file").unwrap())
    }

    /// Has the other ends read all, in the order of closing; returns once everything is closed.
    fn release(dev: u64, others: Vec<TcpStream>) {
        for mut other in others {
            other.read_to_end(&mut Vec::new()).unwrap();
        }
        while CLOSING.lock().contains_key(&dev) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Descriptors are being closed, and that takes long.
    #[track_caller]
    fn assert_stuck(dev: u64) {
        while !is_stuck(dev) {
            assert!(CLOSING.lock().contains_key(&dev), "everything is closed");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_close_that_hangs_holds_up_neither_rest_nor_the_calls_of_the_base() {
        let (_dir, base, path) = base();
        let attr = base.stat(&path).unwrap();
        let other_path = BasePath::from_bytes(b"other").unwrap();
        let ((file, one), (dir, two)) = (hanging(), hanging());
        base.descriptors.put(&other_path, Arc::new(OpenFile::new(file, &attr)));
        base.dir_fds.put(other_path, Arc::new(OpenDir::new(dir, &attr, true)));
        base.rest();
        assert_stuck(base.root_dev);
        let mut buffer = [0; 10];
        assert_eq!(base.read(&path, attr.fileid, 0, &mut buffer).unwrap().0, 7);
        assert_eq!(base.descriptors.len(), 1);
        base.rest();
        assert_eq!(base.descriptors.len(), 1, "no more wait to be closed");
        release(base.root_dev, vec![two, one]);
        base.rest();
        assert_eq!(base.descriptors.len(), 0);
    }

    #[test]
    fn a_base_whose_files_cannot_be_closed_is_dropped_without_them() {
        let (_dir, base, path) = base();
        let (attr, dev) = (base.stat(&path).unwrap(), base.root_dev);
        let (file, other) = hanging();
        base.descriptors.put(&path, Arc::new(OpenFile::new(file, &attr)));
        drop(base);
        assert_stuck(dev);
        // Another base of that filesystem does not wait, and one of another filesystem is closed.
        let (one, is_closed) = channel::<()>();
        close(dev, 1, one);
        assert!(is_closed.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty));
        assert!(!is_full(dev));
        let (many, _many_closed) = channel::<()>();
        close(dev, MAX_WAITING_FDS, many);
        assert!(is_full(dev) && !is_full(dev - (1 << 59)));
        let (one, is_closed_elsewhere) = channel::<()>();
        close(dev - (1 << 59), 1, one);
        assert!(is_closed_elsewhere.recv().is_err());
        release(dev, vec![other]);
        assert!(is_closed.recv().is_err());
        assert!(!is_full(dev));
    }
}
