//! The corpus of escapes: names, handles, paths, links and races that would lead out of the base.
//!
//! Beside each base lies what must not be read: its text is in no reply, whatever is asked, and it
//! stays as it is. What the layers below do about it is in tests/base/escapes.rs, and random
//! calls are in integration/fuzz.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags};

use super::Served;
use super::raw::{GETATTR, LOOKUP, MKDIR, NFS, Raw, opaque, words};
use crate::support::host_tree::HostTree;

const MARKER: &[u8] = b"THE-SECRET-OUTSIDE";
const MOUNT: u32 = 100_005;
const SETATTR: u32 = 2;
const READLINK: u32 = 5;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const SYMLINK: u32 = 10;
const REMOVE: u32 = 12;
const RMDIR: u32 = 13;
const RENAME: u32 = 14;
const LINK: u32 = 15;
const READDIRPLUS: u32 = 17;

const OK: u32 = 0;
const BADHANDLE: u32 = 10_001;

/// How long a race runs.
const RACE: Duration = Duration::from_millis(1500);

/// `sattr3` that sets nothing.
const NO_SATTR: [u32; 6] = [0; 6];

/// A tree with links to what lies beside the base, absolute and not.
const TREE: &str = "\
    d/e/f/g \"deep\"
    d/file \"inside\"
    file \"inside\"
    out -> ../outside
    d/out -> ../../outside
    secret -> ../outside/secret
    up -> ..
    root -> /";

/// A server, and what lies beside its base.
struct Ground {
    served: Served,
    outside: PathBuf,
    before: HostTree,
}

impl Ground {
    async fn new() -> Self {
        let served = Served::start(TREE).await;
        let outside = served.dir.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), MARKER).unwrap();
        std::fs::write(outside.join("THE-SECRET-OUTSIDE-name"), "").unwrap();
        let before = HostTree::read(&outside);
        Self { served, outside, before }
    }

    async fn eye(&self) -> Eye {
        let mut raw = Eye { raw: Raw::connect(self.served.address()).await, xid: 0, root: vec![] };
        raw.root = raw.mount(b"/").await.unwrap();
        raw
    }

    async fn end(mut self) {
        assert_eq!(self.before, HostTree::read(&self.outside), "something outside changed");
        self.served.stop().await;
    }
}

/// A connection that looks at every reply for what lies outside.
struct Eye {
    raw: Raw,
    xid: u32,
    root: Vec<u8>,
}

impl Eye {
    /// The results of a call that RPC takes.
    async fn ask(&mut self, target: [u32; 2], args: &[u8]) -> Vec<u8> {
        self.xid += 1;
        self.raw.send_call(self.xid, [target[0], 3, target[1]], args).await;
        let reply = self.raw.reply().await.expect("a reply");
        assert!(!reply.windows(MARKER.len()).any(|at| at == MARKER), "{target:?} {args:x?}");
        assert_eq!(reply[..4], self.xid.to_be_bytes());
        assert_eq!(reply[20..24], [0; 4], "{target:?} {args:x?}");
        reply[24..].to_vec()
    }

    /// The status, and what comes behind it.
    async fn nfs(&mut self, procedure: u32, args: &[Vec<u8>]) -> (u32, Vec<u8>) {
        let results = self.ask([NFS, procedure], &args.concat()).await;
        let (status, rest) = results.split_first_chunk().unwrap();
        (u32::from_be_bytes(*status), rest.to_vec())
    }

    async fn mount(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        let results = self.ask([MOUNT, 1], &opaque(path)).await;
        (results[..4] == [0; 4]).then(|| first_opaque(&results[4..]))
    }

    async fn lookup(&mut self, dir: &[u8], name: &[u8]) -> Option<Vec<u8>> {
        let (status, rest) = self.nfs(LOOKUP, &[opaque(dir), opaque(name)]).await;
        (status == OK).then(|| first_opaque(&rest))
    }

    async fn at(&mut self, path: &str) -> Option<Vec<u8>> {
        let mut found = self.root.clone();
        for name in path.split('/') {
            found = self.lookup(&found, name.as_bytes()).await?;
        }
        Some(found)
    }

    /// Everything that can be asked of one object.
    async fn look_at(&mut self, object: &[u8]) -> Vec<u32> {
        let object = opaque(object);
        let read = words(&[0, 0, 1 << 16]);
        let list = words(&[0, 0, 0, 0, 1 << 16, 1 << 16]);
        let mut statuses = vec![self.nfs(GETATTR, std::slice::from_ref(&object)).await.0];
        statuses.push(self.nfs(READLINK, std::slice::from_ref(&object)).await.0);
        statuses.push(self.nfs(READ, &[object.clone(), read]).await.0);
        statuses.push(self.nfs(READDIRPLUS, &[object.clone(), list]).await.0);
        statuses.push(self.nfs(LOOKUP, &[object, opaque(b"secret")]).await.0);
        statuses
    }
}

fn first_opaque(bytes: &[u8]) -> Vec<u8> {
    let (length, rest) = bytes.split_first_chunk().unwrap();
    rest[..u32::from_be_bytes(*length) as usize].to_vec()
}

/// Names that lead somewhere else in some system or other.
fn names() -> Vec<Vec<u8>> {
    let texts = [
        "../outside",
        "../outside/secret",
        "d/../../outside",
        "/etc",
        "out/secret",
        "d/file",
        "./file",
        "../",
        "/",
        "//",
        "..\0",
        "\0",
        "file\0/../x",
        "..\\outside",
        "%2e%2e",
        "....//",
        "~",
        "C:\\",
        "..;/",
    ];
    let mut names: Vec<Vec<u8>> = texts.map(|text| text.as_bytes().to_vec()).into();
    names.extend([vec![b'n'; 255], vec![b'n'; 256], vec![b'/'; 255], b"../".repeat(2000)]);
    names.extend([b"\xff\xfe".to_vec(), b"\xc0\xae\xc0\xae".to_vec(), b"\xc0\xaf".to_vec()]);
    names
}

#[tokio::test]
async fn no_name_leads_out() {
    let ground = Ground::new().await;
    let mut eye = ground.eye().await;
    let (root, file) = (eye.root.clone(), eye.at("file").await.unwrap());
    let dirs = [root.clone(), eye.at("d").await.unwrap(), eye.at("d/e/f").await.unwrap()];
    for dir in &dirs {
        for name in names() {
            assert_eq!(eye.lookup(dir, &name).await, None, "{}", name.escape_ascii());
            let place = [opaque(dir), opaque(&name)].concat();
            let sattr = words(&NO_SATTR);
            let made = [
                eye.nfs(CREATE, &[place.clone(), words(&[1]), sattr.clone()]).await,
                eye.nfs(RMDIR, std::slice::from_ref(&place)).await,
                eye.nfs(REMOVE, std::slice::from_ref(&place)).await,
                eye.nfs(MKDIR, &[place.clone(), sattr.clone()]).await,
                eye.nfs(RMDIR, std::slice::from_ref(&place)).await,
                eye.nfs(SYMLINK, &[place.clone(), sattr, opaque(b"/etc/passwd")]).await,
                eye.nfs(REMOVE, std::slice::from_ref(&place)).await,
                eye.nfs(LINK, &[opaque(&file), place.clone()]).await,
                eye.nfs(REMOVE, std::slice::from_ref(&place)).await,
                eye.nfs(RENAME, &[place.clone(), opaque(dir), opaque(b"moved")]).await,
            ];
            let has_sign = name.contains(&b'/') || name.contains(&0) || name.len() > 255;
            for (n, (status, _)) in made.iter().enumerate() {
                assert!(!has_sign || *status != OK, "{n}: {}", name.escape_ascii());
            }
        }
    }
    // `..` stops at the root, from every depth.
    for path in ["d", "d/e", "d/e/f"] {
        let mut up = eye.at(path).await.unwrap();
        for _ in 0..8 {
            up = eye.lookup(&up, b"..").await.unwrap();
            eye.look_at(&up).await;
        }
        assert_eq!(up, root, "{path}");
    }
    ground.end().await;
}

#[tokio::test]
async fn no_link_and_no_mount_path_leads_out() {
    let ground = Ground::new().await;
    let mut eye = ground.eye().await;
    let root = eye.root.clone();
    // What a client makes is text as well.
    let target = ground.outside.to_str().unwrap().as_bytes();
    let sattr = words(&NO_SATTR);
    let made = eye.nfs(SYMLINK, &[opaque(&root), opaque(b"own"), sattr, opaque(target)]).await;
    assert_eq!(made.0, OK);
    for link in ["out", "d/out", "secret", "up", "root", "own"] {
        let link = eye.at(link).await.unwrap();
        let statuses = eye.look_at(&link).await;
        // Attributes and the text, and nothing behind it.
        assert_eq!(statuses[..2], [OK, OK]);
        assert!(statuses[2..].iter().all(|status| *status != OK), "{statuses:?}");
        for name in [&b"secret"[..], b"..", b".", b"outside"] {
            assert_eq!(eye.lookup(&link, name).await, None);
        }
        let write = [opaque(&link), words(&[0, 0, 4, 2]), opaque(b"evil")];
        assert_ne!(eye.nfs(WRITE, &write).await.0, OK);
        let size = [opaque(&link), words(&[0, 0, 0, 1, 0, 0, 0, 0, 0])];
        assert_ne!(eye.nfs(SETATTR, &size).await.0, OK);
    }
    let real = ground.outside.to_str().unwrap().as_bytes().to_vec();
    let texts = ["/..", "/../outside", "/d/../..", "..", "outside", "", "/d\0", "/\0", "/out"];
    let mut paths: Vec<Vec<u8>> = texts.map(|text| text.as_bytes().to_vec()).into();
    paths.extend([real, b"/..".repeat(300), vec![b'a'; 1025], vec![b'a'; 100_000]]);
    for path in paths {
        assert_eq!(eye.mount(&path).await, None, "{}", path.escape_ascii());
    }
    ground.end().await;
}

#[tokio::test]
async fn no_handle_but_our_own_is_taken() {
    let ground = Ground::new().await;
    std::fs::hard_link(ground.served.base().join("file"), ground.served.base().join("d/again"))
        .unwrap();
    let mut ground = ground;
    ground.served.before = HostTree::read(&ground.served.base());
    let other = Ground::new().await;
    let (mut eye, mut elsewhere) = (ground.eye().await, other.eye().await);
    let root = eye.root.clone();
    let new = [opaque(&root), opaque(b"new"), words(&[1]), words(&NO_SATTR)];
    assert_eq!(eye.nfs(CREATE, &new).await.0, OK);
    // Of the session, of the base at some depth, and with several names.
    for path in ["new", "d", "d/e/f/g", "file"] {
        let handle = eye.at(path).await.unwrap();
        let mut forged: Vec<Vec<u8>> = Vec::new();
        for bit in 0..handle.len() * 8 {
            let mut flipped = handle.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            forged.push(flipped);
        }
        forged.extend((0..handle.len()).map(|length| handle[..length].to_vec()));
        forged.extend((handle.len() + 1..=64).map(|length| {
            let mut longer = handle.clone();
            longer.resize(length, 0);
            longer
        }));
        for forged in forged {
            let (status, _) = eye.nfs(GETATTR, &[opaque(&forged)]).await;
            assert_eq!(status, BADHANDLE, "{path}: {forged:x?}");
        }
        assert_eq!(elsewhere.look_at(&handle).await, [BADHANDLE; 5], "{path}");
        assert_eq!(eye.nfs(GETATTR, &[opaque(&handle)]).await.0, OK);
    }
    other.end().await;
    ground.end().await;
}

/// Walks through what is swapped, in every way, until the time is over; how often what was there
/// was found, and how often not.
async fn walk(eye: &mut Eye, old: &[(&str, Vec<u8>)], until: Instant) -> (u32, u32) {
    let (mut found, mut missed) = (0, 0);
    while Instant::now() < until {
        for (path, handle) in old {
            match eye.at(path).await {
                Some(now) => {
                    eye.look_at(&now).await;
                    // Also what would be there if it were what it is swapped with.
                    for name in [&b"THE-SECRET-OUTSIDE-name"[..], b"..", b"secret"] {
                        let Some(below) = eye.lookup(&now, name).await else { continue };
                        eye.look_at(&below).await;
                        if let Some(outside) = eye.lookup(&below, b"outside").await {
                            eye.look_at(&outside).await;
                        }
                    }
                    found += 1;
                }
                None => missed += 1,
            }
            eye.look_at(handle).await;
        }
    }
    (found, missed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_race_in_the_base_leads_out() {
    let mut ground = Ground::new().await;
    let base = ground.served.base();
    symlink(&ground.outside, base.join("link")).unwrap();
    symlink(ground.outside.join("secret"), base.join("d/link")).unwrap();
    std::fs::write(base.join("d/secret"), "inside").unwrap();
    rustix::fs::mknodat(CWD, base.join("fifo"), rustix::fs::FileType::Fifo, 0o644.into(), 0)
        .unwrap();
    // Where a directory of the base goes to for a moment: its `..` is then beside the secret.
    std::fs::create_dir_all(base.join("../beside/f")).unwrap();
    // A directory with a link, a file with a link, a file with a FIFO; and a directory that is
    // moved out of the base and back.
    let swaps = [("d", "link"), ("d/file", "d/link"), ("file", "fifo"), ("d/e", "../beside")];
    let swaps = swaps.map(|(a, b)| (base.join(a), base.join(b)));
    let mut eye = ground.eye().await;
    let mut old = Vec::new();
    for path in ["d", "d/secret", "d/file", "file", "d/e/f", "d/e/f/g"] {
        old.push((path, eye.at(path).await.unwrap()));
    }
    // A change by the client must not take the wrong file for the base's.
    let write = [opaque(&old[3].1), words(&[0, 100, 4, 0]), opaque(b"more")];
    for (a, b) in swaps {
        let stop = AtomicBool::new(false);
        let (found, missed) = std::thread::scope(|scope| {
            scope.spawn(|| {
                // An even number: all is back in the end.
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..2 {
                        let _busy =
                            rustix::fs::renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE);
                    }
                }
            });
            let until = Instant::now() + RACE / 2;
            let walked = tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(walk(&mut eye, &old, until))
            });
            stop.store(true, Ordering::Relaxed);
            walked
        });
        assert!(found > 0, "{a:?}: nothing was ever found ({missed} misses)");
    }
    eye.nfs(WRITE, &write).await;
    eye.look_at(&old[3].1).await;
    assert_eq!(std::fs::read(ground.outside.join("secret")).unwrap(), MARKER);
    // Renames change ctimes; nothing else did.
    ground.served.before = HostTree::read(&base);
    ground.before = HostTree::read(&ground.outside);
    ground.end().await;
}
