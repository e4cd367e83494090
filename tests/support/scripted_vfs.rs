//! A filesystem that does what it is told, and remembers what it was asked.

use std::fmt::Debug;
use std::sync::Mutex;

use acetate::vfs::*;
use bytes::Bytes;
use tokio::sync::Semaphore;

/// The second implementation of [`Vfs`]: fixed answers, recorded calls.
pub struct ScriptedVfs {
    /// What every operation fails with; attributes are given all the same.
    pub fail: Option<FsError>,
    /// What READ gives.
    pub data: Bytes,
    /// What READDIR lists, in ascending cookie order.
    pub entries: Vec<Entry>,
    /// The attributes of everything.
    pub attr: Attr,
    /// What MNT says is taken.
    pub flavors: Vec<Flavor>,
    /// What GETATTR waits for.
    pub gate: Option<Semaphore>,
    /// What was asked, as text.
    pub calls: Mutex<Vec<String>>,
}

/// The object that LOOKUP finds and CREATE makes.
pub fn found() -> Locator {
    let mut digest = [0; PathDigest::MAX_BYTES];
    digest[..2].copy_from_slice(&[0xab, 0xcd]);
    Locator::Base(FileId(0x88), PathDigest { components: 2, digest })
}

/// Attributes of which no two are equal.
pub fn attr() -> Attr {
    Attr {
        kind: FileKind::Regular,
        mode: 0o644,
        nlink: 2,
        uid: 1000,
        gid: 1001,
        size: 0x1122,
        used: 0x2000,
        rdev: Device { major: 5, minor: 6 },
        fsid: 0xf5,
        fileid: FileId(0x77),
        atime: Time { secs: 0x10, nanos: 1 },
        mtime: Time { secs: 0x20, nanos: 2 },
        ctime: Time { secs: 0x30, nanos: 3 },
    }
}

impl Default for ScriptedVfs {
    fn default() -> Self {
        Self {
            fail: None,
            data: Bytes::from_static(b"hello"),
            entries: Vec::new(),
            attr: attr(),
            flavors: vec![Flavor::Sys, Flavor::None],
            gate: None,
            calls: Mutex::default(),
        }
    }
}

impl ScriptedVfs {
    /// Fails every operation.
    pub fn failing(error: FsError) -> Self {
        Self { fail: Some(error), ..Self::default() }
    }

    /// What was asked since the last time.
    pub fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn result<T>(&self, value: T) -> Result<T, FsError> {
        self.fail.map_or(Ok(value), Err)
    }

    fn note(&self, what: &str, args: &[&dyn Debug]) {
        let mut call = what.to_owned();
        for arg in args {
            call.push_str(&format!(" {arg:?}"));
        }
        self.calls.lock().unwrap().push(call);
    }

    fn post_op<T>(&self, value: T) -> Outcome<T, Option<Attr>> {
        Outcome { result: self.result(value), context: Some(self.attr.clone()) }
    }

    fn wcc<T>(&self, value: T) -> Outcome<T, Wcc> {
        Outcome { result: self.result(value), context: self.wcc_data() }
    }

    fn wcc_data(&self) -> Wcc {
        let before = WccAttr {
            size: 0x1111,
            mtime: Time { secs: 0x1f, nanos: 9 },
            ctime: Time { secs: 0x2f, nanos: 8 },
        };
        Wcc { before: Some(before), after: Some(self.attr.clone()) }
    }

    fn created(&self) -> Created {
        Created { object: found(), attr: self.attr.clone() }
    }
}

fn text(name: &[u8]) -> String {
    if name.len() > 64 { format!("{} bytes", name.len()) } else { name.escape_ascii().to_string() }
}

impl Vfs for ScriptedVfs {
    type Object = Locator;

    async fn mount(&self, _: &Caller, path: &[u8]) -> Result<ExportRoot, FsError> {
        self.note("mount", &[&text(path)]);
        if path != b"/" {
            return Err(FsError::NotFound);
        }
        self.result(ExportRoot { object: Locator::ROOT, flavors: self.flavors.clone() })
    }

    fn exports(&self, _: &Caller) -> Vec<Bytes> {
        vec![Bytes::from_static(b"/")]
    }

    fn lock_key(&self, object: &Locator) -> LockKey {
        LockKey { fsid: self.attr.fsid, fileid: object.fileid() }
    }

    async fn getattr(&self, _: &Caller, object: &Locator) -> Result<Attr, FsError> {
        self.note("getattr", &[object]);
        if let Some(gate) = &self.gate {
            gate.acquire().await.unwrap().forget();
        }
        self.result(self.attr.clone())
    }

    async fn setattr(
        &self,
        _: &Caller,
        object: &Locator,
        set: SetAttr,
        guard: Option<Time>,
    ) -> Outcome<(), Wcc> {
        self.note("setattr", &[object, &set, &guard]);
        self.wcc(())
    }

    async fn lookup(
        &self,
        _: &Caller,
        dir: &Locator,
        name: &[u8],
    ) -> Outcome<LookedUp, Option<Attr>> {
        self.note("lookup", &[dir, &text(name)]);
        self.post_op(LookedUp { object: found(), attr: self.attr.clone() })
    }

    async fn access(
        &self,
        _: &Caller,
        object: &Locator,
        want: Access,
    ) -> Outcome<Access, Option<Attr>> {
        self.note("access", &[object, &want]);
        self.post_op(Access(0xffff_fff1))
    }

    async fn readlink(&self, _: &Caller, object: &Locator) -> Outcome<Bytes, Option<Attr>> {
        self.note("readlink", &[object]);
        self.post_op(Bytes::from_static(b"a/b"))
    }

    async fn read(
        &self,
        _: &Caller,
        object: &Locator,
        offset: u64,
        count: u32,
    ) -> Outcome<ReadData, Option<Attr>> {
        self.note("read", &[object, &offset, &count]);
        self.post_op(ReadData { data: self.data.clone(), eof: true })
    }

    async fn write(
        &self,
        _: &Caller,
        object: &Locator,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Outcome<Written, Wcc> {
        self.note("write", &[object, &offset, &text(&data), &stability]);
        let verifier = WriteVerifier(*b"verifier");
        self.wcc(Written { count: data.len() as u32, committed: Stability::FileSync, verifier })
    }

    async fn create(
        &self,
        _: &Caller,
        dir: &Locator,
        name: &[u8],
        how: CreateHow,
    ) -> Outcome<Created, Wcc> {
        self.note("create", &[dir, &text(name), &how]);
        self.wcc(self.created())
    }

    async fn make_node(
        &self,
        _: &Caller,
        dir: &Locator,
        name: &[u8],
        node: NewNode,
        set: SetAttr,
    ) -> Outcome<Created, Wcc> {
        self.note("make_node", &[dir, &text(name), &node, &set.mode]);
        self.wcc(self.created())
    }

    async fn remove(&self, _: &Caller, dir: &Locator, name: &[u8]) -> Outcome<(), Wcc> {
        self.note("remove", &[dir, &text(name)]);
        self.wcc(())
    }

    async fn rmdir(&self, _: &Caller, dir: &Locator, name: &[u8]) -> Outcome<(), Wcc> {
        self.note("rmdir", &[dir, &text(name)]);
        self.wcc(())
    }

    async fn rename(
        &self,
        _: &Caller,
        from: (&Locator, &[u8]),
        to: (&Locator, &[u8]),
    ) -> Outcome<(), (Wcc, Wcc)> {
        self.note("rename", &[from.0, &text(from.1), to.0, &text(to.1)]);
        let to = Wcc { before: None, after: Some(self.attr.clone()) };
        Outcome { result: self.result(()), context: (self.wcc_data(), to) }
    }

    async fn link(
        &self,
        _: &Caller,
        object: &Locator,
        dir: &Locator,
        name: &[u8],
    ) -> Outcome<(), (Option<Attr>, Wcc)> {
        self.note("link", &[object, dir, &text(name)]);
        let context = (Some(self.attr.clone()), self.wcc_data());
        Outcome { result: self.result(()), context }
    }

    async fn readdir(
        &self,
        _: &Caller,
        dir: &Locator,
        cookie: Cookie,
        with_attrs: bool,
        mut take: impl FnMut(&Entry) -> bool + Send + 'static,
    ) -> Outcome<DirPage, Option<Attr>> {
        self.note("readdir", &[dir, &cookie, &with_attrs]);
        let mut page = DirPage { taken: 0, eof: true };
        for entry in self.entries.iter().filter(|entry| entry.cookie > cookie) {
            let object = entry.object.clone().filter(|_| with_attrs);
            if !take(&Entry { object, ..entry.clone() }) {
                page.eof = false;
                break;
            }
            page.taken += 1;
        }
        self.post_op(page)
    }

    async fn fsstat(&self, _: &Caller, object: &Locator) -> Outcome<FsStat, Option<Attr>> {
        self.note("fsstat", &[object]);
        self.post_op(FsStat {
            total_bytes: 0x61,
            free_bytes: 0x62,
            available_bytes: 0x63,
            total_files: 0x64,
            free_files: 0x65,
            available_files: 0x66,
        })
    }

    async fn fsinfo(&self, _: &Caller, object: &Locator) -> Outcome<FsInfo, Option<Attr>> {
        self.note("fsinfo", &[object]);
        let time_delta = Time { secs: 0, nanos: 1 };
        self.post_op(FsInfo { max_file_bytes: 0x7fff_ffff_ffff, time_delta })
    }

    async fn pathconf(&self, _: &Caller, object: &Locator) -> Outcome<PathConf, Option<Attr>> {
        self.note("pathconf", &[object]);
        self.post_op(PathConf { max_links: 32000, max_name_bytes: 255 })
    }

    async fn commit(&self, _: &Caller, object: &Locator) -> Outcome<WriteVerifier, Wcc> {
        self.note("commit", &[object]);
        self.wcc(WriteVerifier(*b"verifier"))
    }
}
