//! What every life begins with: a base, and a session over it that nothing happened to.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use acetate::base::{HostDir, HostDirOptions};
use acetate::delta::sqlite::{ChunkSize, CreateOptions, Host, OpenError, OpenMode, Session};
use acetate::overlay::{AutomaticCheckpoints, CopyLimits};
use acetate::vfs::Time;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::disk::{Medium, scratch};
use crate::random::Random;
use crate::reference::Reference;
use crate::support::fixture::{self, FEW_NAMES};
use crate::support::host_tree::HostTree;
use crate::support::served::{Served, Serving, runtime};
use crate::support::tree::read_tree;
use crate::support::world::START_SECS;

/// The session's name.
pub const SESSION: &str = "session.db";

/// The names in [`FEW_NAMES`] that are one object.
const LINKED: &[&[&str]] = &[&["a/a", "a/e", "b/e"], &["c", "d/a"]];

/// A file of the base with many chunks.
pub const LARGE: &str = "large";

/// Its size, in bytes.
pub const LARGE_BYTES: usize = 300_000;

/// How it is copied up: most of it in the background.
const COPY_LIMITS: CopyLimits = CopyLimits::of(32_768, 16_384);

/// Chunk size of the session, in bytes.
const CHUNK_BYTES: u64 = 4096;

/// A base, and the files of a new session over it.
pub struct Ground {
    base: TempDir,
    before: HostTree,
    /// The new session's files.
    pub files: BTreeMap<String, Vec<u8>>,
    /// What its tree must be.
    pub reference: Reference,
}

/// A machine in boot `boot`.
pub fn host(boot: u64) -> Host {
    let boot_id = Some(format!("boot {boot}"));
    Host { now: Time { secs: START_SECS, nanos: 0 }, seed: [7; 32], boot_id }
}

impl Ground {
    pub fn new() -> Self {
        let base = scratch();
        fixture::build(base.path(), FEW_NAMES);
        let mut random = Random::new(1);
        let large: Vec<u8> = (0..LARGE_BYTES).map(|_| random.next() as u8).collect();
        std::fs::write(base.path().join(LARGE), large).unwrap();
        let before = HostTree::read(base.path());

        let new = Medium::new([]);
        let options = CreateOptions {
            chunk_size: ChunkSize::new(CHUNK_BYTES).unwrap(),
            base_path: Some(base.path().to_owned()),
            hidden: Default::default(),
            root: None,
        };
        drop(Session::create(&new.path(SESSION), &options, &host(0)).unwrap());
        // The medium knows names by what SQLite does, and the new session was renamed.
        let medium = Medium::new(&new.files());
        let path = medium.path(SESSION);
        let mut ground =
            Self { base, before, files: medium.files(), reference: Reference::default() };
        let served = ground.serve(&path, 0, false, &runtime()).unwrap().1;
        ground.reference = Reference::new(read_tree(&served.root), LINKED);
        served.stop().unwrap();
        ground
    }

    /// Serves the session at `path` in boot `boot`; says which epoch it is in.
    pub fn serve(
        &self,
        path: &Path,
        boot: u64,
        strict: bool,
        runtime: &Arc<Runtime>,
    ) -> Result<(u64, Served), OpenError> {
        let session = Session::open(path, OpenMode::Serve, &host(boot))?;
        let epoch = acetate::delta::Store::epoch(&session);
        let base = HostDir::open(self.base.path(), HostDirOptions::default()).unwrap();
        let how = Serving {
            clock: Arc::new(AtomicI64::new(START_SECS + boot as i64)),
            runtime: Arc::clone(runtime),
            strict,
            read_only: false,
            copy_up: COPY_LIMITS,
            group: None,
            checkpoints: AutomaticCheckpoints::default(),
        };
        Ok((epoch, Served::start(Arc::new(session), Arc::new(base), how)))
    }

    /// Asserts that the base is what it was.
    pub fn assert_base_untouched(&self) {
        assert_eq!(self.before, HostTree::read(self.base.path()), "the base changed");
    }
}
