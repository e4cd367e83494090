//! What is served: a base that must not change, with links to what must not be read, and a
//! session for each run.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use acetate::delta::sqlite::CheckOptions;
use acetate::inspect::check::check;
use acetate::server::ServerOptions;
use acetate::workspace::{Serving, Workspace};
use tempfile::TempDir;

/// What the file outside the base holds.
pub const OUTSIDE: &[u8] = b"OUTSIDE-THE-BASE";

/// Where sessions live in memory, if there is such a place.
const MEMORY: &str = "/dev/shm";

pub struct World {
    dir: TempDir,
    before: BTreeMap<Vec<u8>, (Vec<u64>, Vec<u8>)>,
}

/// A session that is served.
pub struct Session {
    world: &'static World,
    path: PathBuf,
    open: Option<(Workspace, Serving)>,
}

impl World {
    pub fn new() -> Self {
        let memory = Path::new(MEMORY);
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let dir = dir.unwrap();
        let base = dir.path().join("base");
        fs::create_dir_all(base.join("dir/sub/deep")).unwrap();
        fs::write(dir.path().join("outside"), OUTSIDE).unwrap();
        fs::write(base.join("file"), "content\n").unwrap();
        fs::write(base.join("dir/file"), vec![b'x'; 10_000]).unwrap();
        fs::hard_link(base.join("file"), base.join("dir/again")).unwrap();
        symlink("file", base.join("link")).unwrap();
        symlink(dir.path().join("outside"), base.join("out")).unwrap();
        symlink("..", base.join("up")).unwrap();
        Workspace::create(&dir.path().join("template.db"), Some(&base)).unwrap().close().unwrap();
        let mut world = Self { dir, before: BTreeMap::new() };
        world.before = world.outside();
        world
    }

    /// All that no run may change: the base, and what lies beside it.
    fn outside(&self) -> BTreeMap<Vec<u8>, (Vec<u64>, Vec<u8>)> {
        let mut all = BTreeMap::new();
        let mut todo = vec![self.dir.path().join("base"), self.dir.path().join("outside")];
        while let Some(path) = todo.pop() {
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_dir() {
                todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                Vec::new()
            } else if meta.is_symlink() {
                fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
            } else {
                fs::read(&path).unwrap()
            };
            let times = [meta.mtime() as u64, meta.mtime_nsec() as u64, meta.ctime_nsec() as u64];
            let owner = u64::from(meta.uid()) << 32 | u64::from(meta.gid());
            let facts = [meta.mode().into(), meta.ino(), meta.nlink(), owner, meta.size()];
            let facts = facts.into_iter().chain(times).collect();
            all.insert(path.as_os_str().as_bytes().to_vec(), (facts, content));
        }
        all
    }

    /// A new session over the base.
    pub fn session(&'static self) -> Session {
        let path = self.dir.path().join("session.db");
        fs::copy(self.dir.path().join("template.db"), &path).unwrap();
        let mut session = Session { world: self, path, open: None };
        session.open();
        session
    }
}

impl Session {
    fn open(&mut self) {
        let workspace = Workspace::open(&self.path, None).unwrap();
        let options = ServerOptions { insecure: true, ..ServerOptions::default() };
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let serving = workspace.serve_with(address, options).unwrap();
        self.open = Some((workspace, serving));
    }

    pub fn address(&self) -> SocketAddr {
        self.open.as_ref().expect("it is open").1.address()
    }

    /// Stops the server, and checks what it left.
    fn close(&mut self) {
        let Some((workspace, serving)) = self.open.take() else { return };
        serving.stop();
        workspace.close().unwrap();
        let sound = check(&self.path, None, &CheckOptions { most: 3, quick: true }).unwrap();
        assert!(sound.is_sound(), "{sound:#?}");
        assert_eq!(self.world.before, self.world.outside(), "the base changed");
    }

    /// Another server for the same session.
    pub fn reopen(&mut self) {
        self.close();
        self.open();
    }

    /// The last of it.
    pub fn end(mut self) {
        self.close();
        for suffix in ["", "-wal", "-shm"] {
            let _gone = fs::remove_file(format!("{}{suffix}", self.path.display()));
        }
    }
}
