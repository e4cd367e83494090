//! A tree of one file, for drafts.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use acetate::pattern::Pattern;
use acetate::validation::{
    DraftTable, DraftTableParts, GuardLimits, GuardResources, Guards, Periods, Published,
    Validator, Violation,
};
use acetate::vfs::{
    Attr, Caller, Device, FileId, FileKind, FsError, GuardedFile, Locator, Outcome,
    PublishPreconditions, Stability, Time, Wcc, WriteVerifier, Written,
};
use bytes::Bytes;

pub const FILE: Locator = Locator::Delta(FileId(7));

/// What there is of the file.
#[derive(Clone)]
pub struct File {
    pub path: &'static str,
    pub content: Vec<u8>,
    pub ctime: i64,
    pub published: usize,
    pub refusals: Vec<String>,
    /// What happens to it between the next looks and what follows them.
    pub meanwhile: Vec<fn(&mut File)>,
    /// What publishing fails with.
    pub fails: Option<FsError>,
    /// How often the whole tree was changed.
    pub tree_changes: u64,
}

pub struct Tree(pub Arc<Mutex<File>>);

fn attr(file: &File) -> Attr {
    let time = Time { secs: file.ctime, nanos: 0 };
    Attr {
        kind: FileKind::Regular,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: file.content.len() as u64,
        used: 0,
        rdev: Device::default(),
        fsid: 0,
        fileid: FileId(7),
        atime: time,
        mtime: time,
        ctime: time,
    }
}

impl Published for Tree {
    async fn look(&self, _: &Locator) -> Result<GuardedFile, FsError> {
        Ok(self.read(&FILE).await?.0)
    }

    async fn read(&self, _: &Locator) -> Result<(GuardedFile, Vec<u8>), FsError> {
        let mut file = self.0.lock().unwrap();
        let seen = GuardedFile { paths: vec![file.path.into()], attr: attr(&file) };
        let content = file.content.clone();
        if !file.meanwhile.is_empty() {
            let happens = file.meanwhile.remove(0);
            happens(&mut file);
        }
        Ok((seen, content))
    }

    async fn publish(
        &self,
        _: &Caller,
        _: &Locator,
        content: Bytes,
        expected: PublishPreconditions,
    ) -> Outcome<WriteVerifier, Wcc> {
        let mut file = self.0.lock().unwrap();
        let error = if let Some(error) = file.fails {
            Some(error)
        } else if expected.tree_changes != file.tree_changes {
            Some(FsError::Invalid)
        } else if expected.paths != [file.path.as_bytes()] {
            Some(FsError::Guarded)
        } else {
            let is_changed = expected.ctime.is_some_and(|ctime| ctime.secs != file.ctime);
            is_changed.then_some(FsError::NotSync)
        };
        if let Some(error) = error {
            return error.into();
        }
        file.content = content.to_vec();
        file.ctime += 1;
        file.published += 1;
        Outcome::ok(self.verifier(), Wcc { before: None, after: Some(attr(&file)) })
    }

    fn tree_changes(&self) -> u64 {
        self.0.lock().unwrap().tree_changes
    }

    fn verifier(&self) -> WriteVerifier {
        WriteVerifier([1; 8])
    }

    async fn note_refusal(&self, _: &Caller, _: &Locator, violation: &Violation) {
        self.0.lock().unwrap().refusals.push(violation.to_string());
    }
}

/// Drafts over the tree.
pub struct Setup {
    pub file: Arc<Mutex<File>>,
    pub desk: Arc<DraftTable<Tree>>,
}

/// Nothing happens by itself, as far as a test can wait.
pub const NEVER: Periods = Periods {
    quiet: Duration::from_secs(3600),
    refused: Duration::from_secs(3600),
    idle: Duration::from_secs(3600),
    cut: Duration::from_secs(3600),
    tick: Duration::from_millis(10),
};

/// The client at `127.0.0.<host>`.
pub fn client(host: u8) -> Caller {
    let client = SocketAddr::from(([127, 0, 0, host], 700));
    Caller { client, ..Caller::owner(1, 1) }
}

pub fn setup(content: &str) -> Setup {
    setup_with(content, NEVER, GuardLimits::default())
}

/// `/a.jsonl` with this content is guarded as JSON Lines, `/a.json` as JSON.
pub fn setup_with(content: &str, periods: Periods, limits: GuardLimits) -> Setup {
    setup_in(content, periods, &GuardResources::new(limits, None))
}

/// The same in an export of its own, of those that share these resources.
pub fn setup_in(content: &str, periods: Periods, all: &Arc<GuardResources>) -> Setup {
    let file = Arc::new(Mutex::new(File {
        path: "/a.jsonl",
        content: content.into(),
        ctime: 100,
        published: 0,
        refusals: Vec::new(),
        meanwhile: Vec::new(),
        fails: None,
        tree_changes: 0,
    }));
    let rules = [
        (Pattern::new("/a.jsonl").unwrap(), Validator::jsonl()),
        (Pattern::new("/a.json").unwrap(), Validator::json()),
    ];
    let guards = Guards::new(rules).unwrap();
    let resources = all.export(&guards).unwrap();
    let clock = AtomicI64::new(1000);
    let desk = DraftTable::new(DraftTableParts {
        tree: Tree(Arc::clone(&file)),
        guards,
        resources,
        clock: Arc::new(move || Time { secs: clock.fetch_add(1, Ordering::SeqCst), nanos: 0 }),
        boot: 1,
        periods,
    });
    Setup { file, desk }
}

impl Setup {
    pub fn at(self, path: &'static str) -> Self {
        self.file.lock().unwrap().path = path;
        self
    }

    pub fn content(&self) -> String {
        String::from_utf8(self.file.lock().unwrap().content.clone()).unwrap()
    }

    pub fn published(&self) -> usize {
        self.file.lock().unwrap().published
    }

    pub fn refusals(&self) -> Vec<String> {
        self.file.lock().unwrap().refusals.clone()
    }

    /// The attributes as a client is shown them.
    pub fn shown(&self, host: u8) -> Attr {
        let mut shown = attr(&self.file.lock().unwrap());
        self.desk.show(&client(host), &mut shown);
        shown
    }

    pub async fn write(
        &self,
        host: u8,
        offset: u64,
        data: impl AsRef<[u8]>,
        stability: Stability,
    ) -> Outcome<Written, Wcc> {
        let published = attr(&self.file.lock().unwrap());
        let data = Bytes::copy_from_slice(data.as_ref());
        self.desk.write(&client(host), &FILE, Some(published), (offset, data), stability).await
    }

    /// An UNSTABLE piece.
    pub async fn piece(&self, offset: u64, data: impl AsRef<[u8]>) -> Result<(), FsError> {
        self.write(1, offset, data, Stability::Unstable).await.result.map(|_| ())
    }

    pub async fn stable(&self, offset: u64, data: impl AsRef<[u8]>) -> Result<(), FsError> {
        self.write(1, offset, data, Stability::FileSync).await.result.map(|_| ())
    }

    pub async fn set_size(&self, host: u8, size: u64) -> Result<(), FsError> {
        let published = attr(&self.file.lock().unwrap());
        self.desk.set_size(&client(host), &FILE, published, size).await.result
    }

    /// `None` if there was nothing to commit.
    pub async fn commit(&self, host: u8) -> Option<Result<(), FsError>> {
        let outcome = self.desk.commit(&client(host), &FILE).await?;
        Some(outcome.result.map(|_| ()))
    }

    pub fn verifier(&self) -> WriteVerifier {
        self.desk.verifier(WriteVerifier([1; 8]))
    }
}
