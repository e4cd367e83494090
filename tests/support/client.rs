//! The overlay by paths, for one caller, without `async`.
//!
//! Every mutation is checked for what RFC 1813 §2.6 promises of all of them: a failure changes
//! nothing that its wcc data shows, a success shows both sides, and no ctime ever goes back.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use acetate::delta::{Checkpoint, CheckpointKind, MadeCheckpoint, NewCheckpoint};
use acetate::overlay::Overlay;
use acetate::vfs::{
    Access, Attr, Caller, Cookie, CreateHow, Created, Entry, Flavor, FsError, Locator, LookedUp,
    NewNode, Outcome, SetAttr, SetTime, Stability, Time, Vfs, Wcc, Written,
};
use bytes::Bytes;
use tokio::runtime::Runtime;

/// What an operation gives a test.
pub type Result<T> = std::result::Result<T, FsError>;

/// How much one READ asks for, in bytes.
const READ_BYTES: u32 = 1 << 20;

/// A caller's view of an overlay. Paths are relative to the export's root, `""` is the root.
#[derive(Clone)]
pub struct Client {
    pub overlay: Arc<Overlay>,
    runtime: Arc<Runtime>,
    pub caller: Caller,
}

/// A caller at a made-up address.
pub fn caller(uid: u32, gid: u32, gids: &[u32]) -> Caller {
    let client = SocketAddr::from(([127, 0, 0, 1], 700));
    Caller {
        client,
        flavor: Flavor::Sys,
        uid,
        gid,
        gids: gids.to_vec(),
        call: None,
        is_owner: false,
    }
}

/// Only a mode.
pub fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

/// Only a size, in bytes.
pub fn size(size: u64) -> SetAttr {
    SetAttr { size: Some(size), ..SetAttr::default() }
}

/// Only an owner and a group.
pub fn owner(uid: u32, gid: u32) -> SetAttr {
    SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() }
}

/// Asserts what holds for the wcc data of every operation.
#[track_caller]
pub fn check_wcc<T>(result: &Result<T>, wcc: &Wcc) {
    match (result, &wcc.before, &wcc.after) {
        (Ok(_), Some(before), Some(after)) => {
            assert!(after.ctime >= before.ctime, "ctime went back: {wcc:?}");
        }
        (Ok(_), _, _) => panic!("a success without wcc data: {wcc:?}"),
        (Err(_), before, after) => {
            let after = after.as_ref().map(Into::into);
            assert_eq!(*before, after, "a failure that shows a change");
        }
    }
}

impl Client {
    /// The superuser's view.
    pub fn new(overlay: Arc<Overlay>, runtime: Arc<Runtime>) -> Self {
        Self { overlay, runtime, caller: caller(0, 0, &[]) }
    }

    /// The same overlay for another caller.
    pub fn user(&self, uid: u32, gid: u32, gids: &[u32]) -> Self {
        Self { caller: caller(uid, gid, gids), ..self.clone() }
    }

    /// Waits for an operation.
    pub fn wait<F: Future>(&self, operation: F) -> F::Output {
        self.runtime.block_on(operation)
    }

    /// Makes a checkpoint without a name.
    pub fn make_checkpoint(&self) -> Result<Checkpoint> {
        let new = NewCheckpoint {
            name: None,
            kind: CheckpointKind::Manual,
            labels: BTreeMap::new(),
            time: Time::default(),
            reuses: false,
            needed: None,
        };
        match self.wait(self.overlay.create_checkpoint(new))? {
            MadeCheckpoint::Made(made) => Ok(made),
            other => panic!("{other:?}"),
        }
    }

    /// The same; it must be possible.
    #[track_caller]
    pub fn checkpoint(&self) -> Checkpoint {
        self.make_checkpoint().unwrap()
    }

    // Finding.

    /// What `name` in `dir` is.
    pub fn lookup(&self, dir: &Locator, name: impl AsRef<[u8]>) -> Result<LookedUp> {
        self.wait(self.overlay.lookup(&self.caller, dir, name.as_ref())).result
    }

    /// What a path leads to, component by component.
    pub fn find(&self, path: impl AsRef<[u8]>) -> Result<LookedUp> {
        let object = self.overlay.root();
        let attr = self.wait(self.overlay.getattr(&self.caller, &object))?;
        let mut found = LookedUp { object, attr };
        for name in path.as_ref().split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            found = self.lookup(&found.object, name)?;
        }
        Ok(found)
    }

    /// The handle of what is at a path, whoever asks.
    #[track_caller]
    pub fn at(&self, path: impl AsRef<[u8]>) -> Locator {
        let path = path.as_ref();
        match self.user(0, 0, &[]).find(path) {
            Ok(found) => found.object,
            Err(error) => panic!("{}: {error}", path.escape_ascii()),
        }
    }

    /// The handle of a path's directory, and the name in it.
    #[track_caller]
    pub fn split<'a>(&self, path: &'a (impl AsRef<[u8]> + ?Sized)) -> (Locator, &'a [u8]) {
        let path = path.as_ref();
        match path.iter().rposition(|&b| b == b'/') {
            Some(at) => (self.at(&path[..at]), &path[at + 1..]),
            None => (Locator::ROOT, path),
        }
    }

    /// The attributes of what is at a path.
    #[track_caller]
    pub fn stat(&self, path: impl AsRef<[u8]>) -> Attr {
        let object = self.at(path);
        self.getattr(&object).unwrap()
    }

    /// An object's attributes.
    pub fn getattr(&self, object: &Locator) -> Result<Attr> {
        self.wait(self.overlay.getattr(&self.caller, object))
    }

    /// Whether a path leads to anything.
    pub fn exists(&self, path: impl AsRef<[u8]>) -> bool {
        self.find(path).is_ok()
    }

    /// What ACCESS grants of `want`.
    pub fn access(&self, path: impl AsRef<[u8]>, want: u32) -> u32 {
        let object = self.at(path);
        self.wait(self.overlay.access(&self.caller, &object, Access(want))).result.unwrap().0
    }

    // Reading.

    /// One READ by handle.
    pub fn read_at(&self, object: &Locator, offset: u64, count: u32) -> Result<(Vec<u8>, bool)> {
        let read = self.wait(self.overlay.read(&self.caller, object, offset, count));
        read.result.map(|read| (read.data.to_vec(), read.eof))
    }

    /// A file's whole content.
    pub fn read(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.read_all(&self.at(path))
    }

    /// The same by handle.
    pub fn read_all(&self, object: &Locator) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        loop {
            let (data, eof) = self.read_at(object, content.len() as u64, READ_BYTES)?;
            content.extend_from_slice(&data);
            if eof || data.is_empty() {
                return Ok(content);
            }
        }
    }

    /// The same as text.
    #[track_caller]
    pub fn cat(&self, path: impl AsRef<[u8]>) -> String {
        String::from_utf8(self.read(path).unwrap()).unwrap()
    }

    /// A symbolic link's target.
    pub fn readlink(&self, path: impl AsRef<[u8]>) -> Result<Bytes> {
        let object = self.at(path);
        self.wait(self.overlay.readlink(&self.caller, &object)).result
    }

    /// One page of at most `max` entries after `cookie`, and whether it is the last.
    pub fn page(
        &self,
        dir: &Locator,
        cookie: u64,
        max: usize,
        with_attrs: bool,
    ) -> Result<(Vec<Entry>, bool)> {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let filled = taken.clone();
        let take = move |entry: &Entry| {
            let mut taken = filled.lock().unwrap();
            let fits = taken.len() < max;
            if fits {
                taken.push(entry.clone());
            }
            fits
        };
        let page = self.overlay.readdir(&self.caller, dir, Cookie(cookie), with_attrs, take);
        let page = self.wait(page).result?;
        let taken = std::mem::take(&mut *taken.lock().unwrap());
        assert_eq!(page.taken, taken.len());
        Ok((taken, page.eof))
    }

    /// The names in a directory, in order, without `.` and `..`.
    #[track_caller]
    pub fn ls(&self, path: impl AsRef<[u8]>) -> Vec<String> {
        let (entries, eof) = self.page(&self.at(path), 0, usize::MAX, false).unwrap();
        assert!(eof);
        let names = entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned());
        let mut names: Vec<String> = names.filter(|name| name != "." && name != "..").collect();
        names.sort();
        names
    }

    // Changing.

    /// Sets attributes by handle.
    pub fn set(&self, object: &Locator, set: SetAttr, guard: Option<Time>) -> Outcome<(), Wcc> {
        let outcome = self.wait(self.overlay.setattr(&self.caller, object, set, guard));
        check_wcc(&outcome.result, &outcome.context);
        outcome
    }

    /// Sets attributes.
    pub fn setattr(&self, path: impl AsRef<[u8]>, attr: SetAttr) -> Result<()> {
        self.set(&self.at(path), attr, None).result
    }

    /// Sets the permission bits.
    pub fn chmod(&self, path: impl AsRef<[u8]>, bits: u32) -> Result<()> {
        self.setattr(path, mode(bits))
    }

    /// Sets the owner.
    pub fn chown(&self, path: impl AsRef<[u8]>, uid: u32, gid: u32) -> Result<()> {
        self.setattr(path, owner(uid, gid))
    }

    /// Sets the size.
    pub fn truncate(&self, path: impl AsRef<[u8]>, bytes: u64) -> Result<()> {
        self.setattr(path, size(bytes))
    }

    /// Sets mtime and atime.
    pub fn utimes(&self, path: impl AsRef<[u8]>, time: Time) -> Result<()> {
        let (atime, mtime) = (SetTime::To(time), SetTime::To(time));
        self.setattr(path, SetAttr { atime, mtime, ..SetAttr::default() })
    }

    /// One WRITE by handle.
    pub fn write_to(
        &self,
        object: &Locator,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Outcome<Written, Wcc> {
        let data = Bytes::copy_from_slice(data);
        let outcome =
            self.wait(self.overlay.write(&self.caller, object, offset, data.clone(), stability));
        check_wcc(&outcome.result, &outcome.context);
        if let Ok(written) = &outcome.result {
            assert_eq!(written.count as usize, data.len());
            assert!(written.committed >= stability);
        }
        outcome
    }

    /// One WRITE.
    pub fn write(&self, path: impl AsRef<[u8]>, offset: u64, data: &[u8]) -> Result<()> {
        self.write_to(&self.at(path), offset, data, Stability::Unstable).result.map(|_| ())
    }

    /// Makes a file with this content, or gives it to the one that is there.
    #[track_caller]
    pub fn put(&self, path: impl AsRef<[u8]>, content: &str) {
        let made = self.create(path.as_ref(), CreateHow::Unchecked(size(0))).unwrap();
        let written = self.write_to(&made.object, 0, content.as_bytes(), Stability::Unstable);
        written.result.unwrap();
    }

    /// CREATE.
    pub fn create(&self, path: impl AsRef<[u8]>, how: CreateHow) -> Result<Created> {
        let (dir, name) = self.split(&path);
        self.create_in(&dir, name, how).result
    }

    /// The same by handle.
    pub fn create_in(&self, dir: &Locator, name: &[u8], how: CreateHow) -> Outcome<Created, Wcc> {
        let outcome = self.wait(self.overlay.create(&self.caller, dir, name, how));
        check_wcc(&outcome.result, &outcome.context);
        outcome
    }

    /// MKDIR, SYMLINK, MKNOD.
    pub fn make(&self, path: impl AsRef<[u8]>, node: NewNode, set: SetAttr) -> Result<Created> {
        let (dir, name) = self.split(&path);
        let outcome = self.wait(self.overlay.make_node(&self.caller, &dir, name, node, set));
        check_wcc(&outcome.result, &outcome.context);
        outcome.result
    }

    /// MKDIR.
    pub fn mkdir(&self, path: impl AsRef<[u8]>) -> Result<Created> {
        self.make(path, NewNode::Directory, mode(0o755))
    }

    /// SYMLINK.
    pub fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<Created> {
        let target = Bytes::copy_from_slice(target.as_ref());
        self.make(path, NewNode::Symlink(target), SetAttr::default())
    }

    /// REMOVE.
    pub fn remove(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let (dir, name) = self.split(&path);
        let outcome = self.wait(self.overlay.remove(&self.caller, &dir, name));
        check_wcc(&outcome.result, &outcome.context);
        outcome.result
    }

    /// RMDIR.
    pub fn rmdir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let (dir, name) = self.split(&path);
        let outcome = self.wait(self.overlay.rmdir(&self.caller, &dir, name));
        check_wcc(&outcome.result, &outcome.context);
        outcome.result
    }

    /// RENAME.
    pub fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        let (from_dir, old) = self.split(&from);
        let (to_dir, new) = self.split(&to);
        let renamed = self.overlay.rename(&self.caller, (&from_dir, old), (&to_dir, new));
        let outcome = self.wait(renamed);
        check_wcc(&outcome.result, &outcome.context.0);
        check_wcc(&outcome.result, &outcome.context.1);
        outcome.result
    }

    /// LINK.
    pub fn link(&self, object: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<()> {
        let object = self.at(object);
        let (dir, name) = self.split(&path);
        let outcome = self.wait(self.overlay.link(&self.caller, &object, &dir, name));
        check_wcc(&outcome.result, &outcome.context.1);
        outcome.result
    }

    /// Removes a whole tree, as `rm -rf` does.
    #[track_caller]
    pub fn rm_rf(&self, path: &str) {
        for name in self.ls(path) {
            let below = format!("{path}/{name}");
            if self.stat(&below).kind == acetate::vfs::FileKind::Directory {
                self.rm_rf(&below);
            } else {
                self.remove(&below).unwrap();
            }
        }
        self.rmdir(path).unwrap();
    }
}
