//! The same overlay behind stock nfsserve 0.11, the usual crate for an NFS server in Rust.
//!
//! Its trait knows objects by their number alone, so the locators of all that it has shown are
//! kept here; and it answers every WRITE as FILE_SYNC, so every WRITE is one.

mod convert;
mod filesystem;

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use acetate::base::{Base, BasePath, HostDir, HostDirOptions};
use acetate::delta::sqlite::{CreateOptions, Host, RootAttr, Session};
use acetate::overlay::{Overlay, OverlayParts};
use acetate::vfs::Time;
use acetate::worker::{Worker, WorkerOptions};
use nfsserve::tcp::{NFSTcp, NFSTcpListener};

use crate::rpc::Result;
use filesystem::Stock;

/// As many readers as `acetate serve` has on a machine of two cores.
const READERS: usize = 2;

/// Serves a new session over `base` until the process is killed.
pub fn serve(session: &Path, base: &Path, address: &str) -> Result<()> {
    let overlay = overlay(session, base)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = NFSTcpListener::bind(address, Stock::new(overlay)).await?;
        listener.handle_forever().await?;
        Ok(())
    })
}

/// What `acetate serve` puts together.
fn overlay(session: &Path, base: &Path) -> Result<Overlay> {
    let dir: Arc<dyn Base> = Arc::new(HostDir::open(base, HostDirOptions::default())?);
    let attr = dir.stat(&BasePath::root())?;
    let root = RootAttr {
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: attr.ctime,
    };
    let options = CreateOptions {
        base_path: Some(base.canonicalize()?),
        root: Some(root),
        ..CreateOptions::default()
    };
    let store = Arc::new(Session::create(session, &options, &Host::current()?)?);
    let options = WorkerOptions { strict: false, readers: READERS, callers: 0 };
    let worker = Arc::new(Worker::start(store.clone(), options)?);
    Ok(Overlay::new(OverlayParts {
        store,
        worker,
        base: dir,
        clock: Arc::new(now),
        fsid: 1,
        cookie_key: 1,
        read_only: false,
        copy_up: acetate::overlay::CopyLimits::default(),
        checkpoints: acetate::overlay::AutomaticCheckpoints::default(),
    }))
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
}
