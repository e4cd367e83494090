//! Guarded files over the wire: what clients write, and what others see meanwhile.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use nfs3_client::Nfs3ConnectionBuilder;
use nfs3_client::net::Connector;
use nfs3_client::nfs3_types::nfs3::{
    COMMIT3args, Nfs3Option, createhow3, nfs_fh3, nfsstat3, sattr3, stable_how,
};
use nfs3_client::nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_client::tokio::TokioIo;
use tempfile::TempDir;
use tokio::net::{TcpSocket, TcpStream};

use super::Site;
use crate::e2e::peer::{Peer, Result, mode, plain};

const SCHEMA: &str = r#"{"type": "object", "required": ["kind"]}"#;

pub(super) const OLD: &str = "{\"kind\": \"old\"}\n";
pub(super) const OLD_BYTES: u64 = OLD.len() as u64;

const BASE: &str = r#"
    agent/plain "text"
    checked/a "good"
    dir/b "text"
"#;

/// A server with guards, and the folder of the schema.
pub(super) struct Guarded {
    pub(super) site: Site,
    _schema: TempDir,
}

pub(super) fn guarded() -> Guarded {
    let schema = tempfile::tempdir().unwrap();
    let file = schema.path().join("a.schema.json");
    fs::write(&file, SCHEMA).unwrap();
    let exports = EXPORTS.replace("SCHEMA", file.to_str().unwrap());
    Guarded { site: Site::start(BASE, &exports), _schema: schema }
}

const EXPORTS: &str = r#"
    [[export]]
    path = "/g"
    options = ["no_root_squash", "insecure"]
      [[export.mount]]
      at = "/"
      session = "g.db"
      base = "base"
      [[export.mount]]
      at = "/inner"
      session = "i.db"
      subtree = "/deep/down"
      [[export.guard]]
      path = "/agent/f.jsonl"
      jsonl_schema = "SCHEMA"
      [[export.guard]]
      path = "**/*.json"
      json = true
      [[export.guard]]
      path = "/inner/f.jsonl"
      jsonl = true
      [[export.guard]]
      path = "/checked/*"
      program = ["grep", "-q", "good"]
"#;

/// Connects from another address of this machine.
struct From(u8);

impl Connector for From {
    type Connection = TokioIo<TcpStream>;

    async fn connect(&self, addr: SocketAddr) -> io::Result<Self::Connection> {
        self.connect_with_port(addr, 0).await
    }

    async fn connect_with_port(&self, addr: SocketAddr, port: u16) -> io::Result<Self::Connection> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from(([127, 0, 0, self.0], port)))?;
        Ok(TokioIo::new(socket.connect(addr).await?))
    }
}

impl Guarded {
    /// The superuser's mount, from `127.0.0.<host>`.
    async fn from(&self, host: u8) -> Peer {
        let address = self.site.running.as_ref().unwrap().address;
        let builder = Nfs3ConnectionBuilder::new(From(host), "127.0.0.1", "/g");
        let nfs = builder
            .connect_from_privileged_port(false)
            .mount_port(address.port())
            .nfs3_port(address.port())
            .credential(opaque_auth::auth_unix(&auth_unix::default()))
            .mount()
            .await
            .unwrap();
        let root = nfs.root_nfs_fh3();
        Peer { nfs, root }
    }

    /// Two clients, and a file with valid content.
    pub(super) async fn with_file(&self) -> (Peer, Peer, nfs_fh3) {
        let (mut one, two) = (self.from(1).await, self.from(2).await);
        let dir = one.at("agent").await;
        let file = new(&mut one, &dir, "f.jsonl").await;
        stable(&mut one, &file, 0, OLD).await.unwrap();
        (one, two, file)
    }
}

async fn new(peer: &mut Peer, dir: &nfs_fh3, name: &str) -> nfs_fh3 {
    peer.create(dir, name, createhow3::UNCHECKED(mode(0o644))).await.unwrap()
}

pub(super) async fn stable(
    peer: &mut Peer,
    file: &nfs_fh3,
    offset: u64,
    data: &str,
) -> Result<[u8; 8]> {
    let written = peer.write(file, offset, data.as_bytes(), stable_how::FILE_SYNC).await?;
    assert_eq!(written.committed, stable_how::FILE_SYNC);
    Ok(written.verf.0)
}

pub(super) async fn piece(
    peer: &mut Peer,
    file: &nfs_fh3,
    offset: u64,
    data: &str,
) -> Result<[u8; 8]> {
    let written = peer.write(file, offset, data.as_bytes(), stable_how::UNSTABLE).await?;
    Ok(written.verf.0)
}

pub(super) async fn commit(peer: &mut Peer, file: &nfs_fh3) -> Result<[u8; 8]> {
    let args = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
    plain(peer.nfs.commit(&args).await.unwrap()).map(|committed| committed.verf.0)
}

pub(super) async fn content(peer: &mut Peer, file: &nfs_fh3) -> String {
    String::from_utf8(peer.read(file, 0, 1 << 20).await.unwrap()).unwrap()
}

pub(super) async fn size(peer: &mut Peer, file: &nfs_fh3) -> u64 {
    peer.getattr(file).await.unwrap().size
}

pub(super) fn sized(size: u64) -> sattr3 {
    sattr3 { size: Nfs3Option::Some(size), ..sattr3::default() }
}

pub(super) const INVAL: nfsstat3 = nfsstat3::NFS3ERR_INVAL;
/// What RENAME says: INVAL would mean that a directory goes into itself.
const PERM: nfsstat3 = nfsstat3::NFS3ERR_PERM;

/// The refusals in the audit log.
fn refusals(site: &Site) -> Vec<(String, String)> {
    let conn = rusqlite::Connection::open(site.path("g.db")).unwrap();
    let mut rows = conn
        .prepare("SELECT CAST(path AS TEXT), note FROM acetate_op WHERE procedure = 'REFUSE'")
        .unwrap();
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(std::result::Result::unwrap).collect()
}

#[test]
fn a_small_file_is_published_or_refused_as_a_whole() {
    let mut guarded = guarded();
    guarded.site.wait(async {
        let (mut one, mut two, file) = guarded.with_file().await;
        assert_eq!(content(&mut two, &file).await, OLD);
        // As a shell does with `>`: cut, then written.
        one.setattr(&file, sized(0)).await.unwrap();
        assert_eq!((size(&mut one, &file).await, size(&mut two, &file).await), (0, OLD_BYTES));
        let bad = "{\"kind\": 1}\n{\"kin\": 2}\n";
        assert_eq!(stable(&mut one, &file, 0, bad).await, Err(INVAL));
        assert_eq!(
            (size(&mut one, &file).await, size(&mut two, &file).await),
            (OLD_BYTES, OLD_BYTES)
        );
        assert_eq!(content(&mut two, &file).await, OLD);
        one.setattr(&file, sized(0)).await.unwrap();
        stable(&mut one, &file, 0, "{\"kind\": \"new\"}\n").await.unwrap();
        assert_eq!(content(&mut two, &file).await, "{\"kind\": \"new\"}\n");
        assert_eq!(stable(&mut one, &file, 16, "no\n").await, Err(INVAL));
    });
    let refusals = refusals(&guarded.site);
    assert_eq!(refusals[0].0, "/agent/f.jsonl");
    assert_eq!(refusals[0].1, r#"line 2: required: "kind" is a required property: {"kin":2}"#);
    assert!(refusals[1].1.starts_with("line 2: not JSON"), "{refusals:?}");
    let log = guarded.site.log("g.db");
    assert!(log.contains(&"PUBLISH /agent/f.jsonl g".to_owned()), "{log:?}");
    assert!(log.contains(&"REFUSE /agent/f.jsonl g".to_owned()), "{log:?}");
    guarded.site.stop();
}

#[test]
fn a_large_file_comes_in_pieces_and_shows_at_once() {
    let mut guarded = guarded();
    guarded.site.wait(async {
        let (mut one, mut two, file) = guarded.with_file().await;
        let line = "{\"kind\": \"piece\", \"n\": 123456789}\n";
        let all = line.repeat(20_000);
        let (first, second) = all.split_at(400_000);
        one.setattr(&file, sized(0)).await.unwrap();
        let verifier = piece(&mut one, &file, first.len() as u64, second).await.unwrap();
        assert_eq!(content(&mut two, &file).await, OLD);
        assert_eq!(piece(&mut one, &file, 0, first).await, Ok(verifier));
        for reader in [&mut one, &mut two] {
            assert_eq!(
                (&*content(reader, &file).await, size(reader, &file).await),
                (OLD, OLD_BYTES)
            );
        }
        assert_eq!(commit(&mut one, &file).await, Ok(verifier));
        assert_eq!(content(&mut two, &file).await, all);
        assert_eq!(commit(&mut one, &file).await, Ok(verifier));
        // A bad line in the middle, with another piece under way behind it.
        one.setattr(&file, sized(0)).await.unwrap();
        piece(&mut one, &file, 0, first).await.unwrap();
        assert_eq!(piece(&mut one, &file, first.len() as u64, "]\n[]\n").await, Err(INVAL));
        assert_eq!(piece(&mut one, &file, 500_000, line).await, Err(INVAL));
        assert_eq!(commit(&mut one, &file).await, Err(INVAL));
        assert_eq!(content(&mut two, &file).await, all);
    });
    guarded.site.stop();
}

#[test]
fn what_is_only_cut_shows_after_a_second() {
    let mut guarded = guarded();
    guarded.site.wait(async {
        let (mut one, mut two, file) = guarded.with_file().await;
        one.setattr(&file, sized(0)).await.unwrap();
        assert_eq!(content(&mut two, &file).await, OLD);
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if size(&mut two, &file).await == 0 {
                break;
            }
        }
        assert_eq!(content(&mut two, &file).await, "");
    });
    guarded.site.stop();
}

#[test]
fn a_create_that_cuts_waits_for_the_content() {
    let mut guarded = guarded();
    guarded.site.wait(async {
        let (mut one, mut two, file) = guarded.with_file().await;
        let dir = one.at("agent").await;
        let again = one.create(&dir, "f.jsonl", createhow3::UNCHECKED(sized(0))).await.unwrap();
        assert_eq!((again, size(&mut one, &file).await), (file.clone(), 0));
        assert_eq!(content(&mut two, &file).await, OLD);
        stable(&mut one, &file, 0, "{\"kind\": 2}").await.unwrap();
        assert_eq!(content(&mut two, &file).await, "{\"kind\": 2}");
        // A new one has no content of zeros either.
        let sized_new = one.create(&dir, "x.json", createhow3::GUARDED(sized(9))).await.unwrap();
        assert_eq!((size(&mut one, &sized_new).await, size(&mut two, &sized_new).await), (0, 0));
        assert_eq!(commit(&mut one, &sized_new).await, Err(INVAL));
        // Other attributes are set all the same.
        let both = sattr3 { mode: Nfs3Option::Some(0o600), ..sized(3) };
        one.setattr(&file, both).await.unwrap();
        let attr = two.getattr(&file).await.unwrap();
        assert_eq!((attr.mode & 0o777, attr.size), (0o600, 11));
    });
    guarded.site.stop();
}

#[test]
fn a_rename_brings_only_what_is_valid() {
    let mut guarded = guarded();
    guarded.site.wait(async {
        let (mut one, mut two, file) = guarded.with_file().await;
        let dir = one.at("agent").await;
        let temp = one.put(&dir, "temp", "{\"kind\": 1}\n[]\n").await;
        let bad = one.rename((&dir, "temp"), (&dir, "f.jsonl")).await;
        assert_eq!(bad, Err(PERM));
        assert_eq!(content(&mut two, &file).await, OLD);
        one.setattr(&temp, sized(12)).await.unwrap();
        one.rename((&dir, "temp"), (&dir, "f.jsonl")).await.unwrap();
        assert_eq!(content(&mut two, &temp).await, "{\"kind\": 1}\n");
        assert_eq!(stable(&mut one, &temp, 0, "x").await, Err(INVAL), "it is guarded now");
        // Away, it is not any more.
        one.rename((&dir, "f.jsonl"), (&dir, "free")).await.unwrap();
        stable(&mut one, &temp, 0, "x").await.unwrap();
        // From the base.
        let base = one.rename((&dir, "plain"), (&dir, "f.jsonl")).await;
        assert_eq!(base, Err(PERM));
    });
    let refusals = refusals(&guarded.site);
    let (path, note) = &refusals[0];
    assert_eq!(path, "/agent/temp");
    let expected = r#"line 2: as /agent/f.jsonl: type: value is not of type "object": []"#;
    assert_eq!(note, expected);
    guarded.site.stop();
}

#[test]
fn a_directory_brings_only_what_is_valid() {
    let mut guarded = guarded();
    guarded.site.wait(async {
        let mut one = guarded.from(1).await;
        let root = one.root.clone();
        let other = one.mkdir(&root, "other").await.unwrap();
        one.put(&other, "f.jsonl", "no\n").await;
        one.rmdir_all("agent").await;
        let bad = one.rename((&root, "other"), (&root, "agent")).await;
        assert_eq!(bad, Err(PERM));
        let file = one.at("other/f.jsonl").await;
        one.setattr(&file, sized(0)).await.unwrap();
        one.rename((&root, "other"), (&root, "agent")).await.unwrap();
        assert_eq!(stable(&mut one, &file, 0, "no").await, Err(INVAL));
        // Not even through a link.
        one.rename((&root, "agent"), (&root, "away")).await.unwrap();
        let link = one.symlink(&root, "agent", "dir").await;
        assert_eq!(link, Err(nfsstat3::NFS3ERR_PERM));
        one.symlink(&root, "free", "dir").await.unwrap();
        let link = one.rename((&root, "free"), (&root, "agent")).await;
        assert_eq!(link, Err(nfsstat3::NFS3ERR_PERM));
    });
    guarded.site.stop();
}

impl Peer {
    /// Removes a directory with the files in it.
    async fn rmdir_all(&mut self, name: &str) {
        let (root, dir) = (self.root.clone(), self.at(name).await);
        for entry in self.ls(&dir).await {
            self.remove(&dir, &entry).await.unwrap();
        }
        self.rmdir(&root, name).await.unwrap();
    }
}

#[test]
fn there_is_no_other_name_for_a_guarded_file() {
    let mut guarded = guarded();
    guarded.site.wait(async {
        let (mut one, _, file) = guarded.with_file().await;
        let dir = one.at("agent").await;
        let perm = Err(nfsstat3::NFS3ERR_PERM);
        assert_eq!(one.link(&file, &dir, "other").await, perm);
        let plain = one.at("agent/plain").await;
        one.remove(&dir, "f.jsonl").await.unwrap();
        assert_eq!(one.link(&plain, &dir, "f.jsonl").await, perm);
        assert_eq!(one.symlink(&dir, "f.jsonl", "plain").await.map(drop), perm);
        one.link(&plain, &dir, "other").await.unwrap();
    });
    guarded.site.stop();
}

#[test]
fn a_restart_loses_drafts_and_says_so() {
    let mut guarded = guarded();
    let verifier = guarded.site.wait(async {
        let (mut one, _, file) = guarded.with_file().await;
        let plain = one.at("agent/plain").await;
        assert_eq!(piece(&mut one, &plain, 0, "x").await, commit(&mut one, &plain).await);
        piece(&mut one, &file, OLD.len() as u64, OLD).await.unwrap()
    });
    guarded.site.stop();
    guarded.site.run();
    guarded.site.wait(async {
        let mut one = guarded.from(1).await;
        let file = one.at("agent/f.jsonl").await;
        assert_eq!(content(&mut one, &file).await, OLD);
        let now = commit(&mut one, &file).await.unwrap();
        assert_ne!(now, verifier, "the client has to send it again");
        assert_eq!(piece(&mut one, &file, OLD.len() as u64, OLD).await, Ok(now));
        assert_eq!(commit(&mut one, &file).await, Ok(now));
        assert_eq!(content(&mut one, &file).await, OLD.repeat(2));
    });
    guarded.site.stop();
}

#[test]
fn paths_are_those_of_the_export_and_programs_decide_too() {
    let mut guarded = guarded();
    guarded.site.wait(async {
        let mut one = guarded.from(1).await;
        let inner = one.at("inner").await;
        let file = new(&mut one, &inner, "f.jsonl").await;
        assert_eq!(stable(&mut one, &file, 0, "no").await, Err(INVAL));
        stable(&mut one, &file, 0, "{}\n").await.unwrap();
        assert_eq!(content(&mut one, &file).await, "{}\n");
        let checked = one.at("checked/a").await;
        assert_eq!(stable(&mut one, &checked, 0, "bad!").await, Err(INVAL));
        assert_eq!(content(&mut one, &checked).await, "good");
        stable(&mut one, &checked, 4, " again").await.unwrap();
        assert_eq!(content(&mut one, &checked).await, "good again");
    });
    assert_eq!(refusals(&guarded.site)[0].1, "`grep` exited with 1");
    guarded.site.stop();
}

#[test]
fn a_new_list_of_guards_holds_at_once() {
    let mut guarded = guarded();
    let (mut one, file) = guarded.site.wait(async {
        let (mut one, _, file) = guarded.with_file().await;
        one.setattr(&file, sized(0)).await.unwrap();
        (one, file)
    });
    let exports = fs::read_to_string(guarded.site.path("exports.toml")).unwrap();
    let (before, _) = exports.split_once("[[export.guard]]").unwrap();
    guarded.site.say(before);
    guarded.site.reload().unwrap();
    guarded.site.wait(async {
        assert_eq!(content(&mut one, &file).await, "", "what was cut is published");
        stable(&mut one, &file, 0, "anything").await.unwrap();
    });
    guarded.site.say(&exports.replace("a.schema.json", "gone.json"));
    let error = guarded.site.reload().unwrap_err();
    assert!(error.contains("gone.json: cannot be read: No such file"), "{error}");
    guarded.site.say(&exports);
    guarded.site.reload().unwrap();
    guarded.site.wait(async {
        assert_eq!(stable(&mut one, &file, 0, "any").await, Err(INVAL));
        assert_eq!(content(&mut one, &file).await, "anything");
    });
    guarded.site.stop();
}
