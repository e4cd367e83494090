//! A mount of an export that cannot be opened at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use acetate::export::{Admission, ExportEntry, Exports, OpenExport, OpenFuture, OpenPurpose};
use acetate::vfs::{FsError, Vfs};
use bytes::Bytes;

use super::credentials::caller;
use super::{export, with};

/// An export that is replaced whenever it is to be opened.
#[derive(Default)]
struct Replaced {
    openings: AtomicUsize,
}

impl OpenExport for Replaced {
    fn open(&self, _: OpenPurpose) -> OpenFuture<'_> {
        self.openings.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Err(FsError::Stale) })
    }
}

#[tokio::test]
async fn what_a_reload_or_a_stop_replaces_is_not_a_missing_export() {
    let (exports, opener) = (Exports::default(), Arc::new(Replaced::default()));
    let admission = Admission::new(&export(&with("options = [\"insecure\"]")));
    let path = Bytes::from_static(b"/a");
    let entry =
        ExportEntry::new((path, false), admission, None, Arc::default(), Arc::clone(&opener) as _);
    exports.put(Arc::new(entry));
    let caller = caller(1000, 1000, &[]);
    assert_eq!(exports.mount(&caller, b"/a").await.err(), Some(FsError::Fault));
    assert!(opener.openings.load(Ordering::Relaxed) > 2, "a new one may be there");
    assert_eq!(exports.mount(&caller, b"/b").await.err(), Some(FsError::NotFound));
}
