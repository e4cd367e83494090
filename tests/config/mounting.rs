//! A mount of an export that cannot be opened at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use acetate::export::{
    Admission, ExportEntry, Exports, OpenExport, OpenFuture, OpenPurpose, PauseFuture,
};
use acetate::vfs::{FsError, Vfs};
use bytes::Bytes;

use super::credentials::caller;
use super::{export, with};

/// Mounts that may wait at once.
const MAX_WAITING: usize = 64;

/// An export that fails with one error so often, and with another one after that.
struct Failing {
    first: (FsError, usize),
    then: FsError,
    openings: AtomicUsize,
}

impl OpenExport for Failing {
    fn open(&self, _: OpenPurpose) -> OpenFuture<'_> {
        let is_first = self.openings.fetch_add(1, Ordering::Relaxed) < self.first.1;
        let error = if is_first { self.first.0 } else { self.then };
        Box::pin(async move { Err(error) })
    }

    fn pause(&self, time: Duration) -> PauseFuture<'_> {
        Box::pin(tokio::time::sleep(time))
    }
}

/// Exports with one at `/a`, and what opens it.
fn failing(error: FsError, times: usize, then: FsError) -> (Exports, Arc<Failing>) {
    let openings = AtomicUsize::new(0);
    let (exports, opener) =
        (Exports::default(), Arc::new(Failing { first: (error, times), then, openings }));
    let admission = Admission::new(&export(&with("options = [\"insecure\"]")));
    let path = Bytes::from_static(b"/a");
    let entry =
        ExportEntry::new((path, false), admission, None, Arc::default(), Arc::clone(&opener) as _);
    exports.put(Arc::new(entry));
    (exports, opener)
}

#[tokio::test]
async fn what_a_reload_or_a_stop_replaces_is_not_a_missing_export() {
    for error in [FsError::Stale, FsError::TryLater] {
        let (exports, opener) = failing(error, usize::MAX, error);
        let caller = caller(1000, 1000, &[]);
        assert_eq!(exports.mount(&caller, b"/a").await.err(), Some(FsError::Fault));
        assert!(opener.openings.load(Ordering::Relaxed) > 1, "a new one may be there");
        assert_eq!(exports.mount(&caller, b"/b").await.err(), Some(FsError::NotFound));
    }
}

#[tokio::test]
async fn a_mount_waits_while_reloads_replace_its_export_or_have_its_session() {
    for (error, times) in [(FsError::Stale, 10), (FsError::TryLater, 3)] {
        // Not a fault: that is also the answer if it gives up.
        let (exports, opener) = failing(error, times, FsError::Access);
        let mounted = exports.mount(&caller(1000, 1000, &[]), b"/a").await.err();
        assert_eq!(mounted, Some(FsError::Access), "{error:?}");
        assert_eq!(opener.openings.load(Ordering::Relaxed), times + 1);
    }
}

#[tokio::test]
async fn not_more_mounts_wait_than_may() {
    let (exports, opener) = failing(FsError::TryLater, usize::MAX, FsError::TryLater);
    let caller = caller(1000, 1000, &[]);
    let mut context = Context::from_waker(Waker::noop());
    let mut begun: Vec<_> =
        (0..MAX_WAITING + 2).map(|_| exports.mount(&caller, b"/a")).map(Box::pin).collect();
    let polled = begun.iter_mut().map(|mount| mount.as_mut().poll(&mut context));
    let polled: Vec<Poll<_>> = polled.collect();
    let waiting = polled.iter().filter(|polled| polled.is_pending()).count();
    assert_eq!(waiting, MAX_WAITING);
    for polled in &polled[MAX_WAITING..] {
        assert!(matches!(polled, Poll::Ready(Err(FsError::Fault))));
    }
    assert_eq!(opener.openings.load(Ordering::Relaxed), MAX_WAITING + 2, "once each");
    // One that its client gave up makes room.
    drop((polled, begun));
    let mut mount = Box::pin(exports.mount(&caller, b"/a"));
    assert!(mount.as_mut().poll(&mut context).is_pending());
}
