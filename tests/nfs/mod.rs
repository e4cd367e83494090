//! The procedures, over a scripted filesystem.

mod golden;
mod handle;
mod lock;
mod mount;
mod procedures;
mod readdir;
mod refusals;
mod status;

use std::sync::Arc;

use acetate::nfs::{CallError, HandleCodec, Handles, Nfs};
use acetate::vfs::{Caller, FileId, Flavor, Locator};
use bytes::Bytes;

use crate::support::hex::hex_with;
use crate::support::scripted_vfs::{ScriptedVfs, found};

/// A file to ask about.
const FILE: Locator = Locator::Delta(FileId(0x77));
/// A directory.
const DIR: Locator = Locator::Delta(FileId(0x44));
/// Another directory.
const DIR2: Locator = Locator::BaseLinked(FileId(0x55));

fn codec() -> HandleCodec {
    HandleCodec::new(*b"0123456789abcdef", 7)
}

fn caller() -> Caller {
    let client = "192.0.2.1:700".parse().unwrap();
    Caller {
        client,
        flavor: Flavor::Sys,
        uid: 1000,
        gid: 1000,
        gids: vec![4, 24],
        call: None,
        is_owner: false,
    }
}

/// The NFS program over a scripted filesystem.
struct Server {
    vfs: Arc<ScriptedVfs>,
    nfs: Nfs<ScriptedVfs>,
}

impl Server {
    fn new(vfs: ScriptedVfs) -> Self {
        let vfs = Arc::new(vfs);
        Self { nfs: Nfs::new(Arc::clone(&vfs), codec()), vfs }
    }

    async fn call(&self, procedure: u32, args: Vec<u8>) -> Result<Vec<u8>, CallError> {
        let reply = self.nfs.call(&caller(), procedure, Bytes::from(args)).await?;
        let claimed = reply.len();
        let bytes = reply.into_segments().concat();
        assert_eq!(claimed, bytes.len());
        Ok(bytes)
    }

    /// Calls with arguments in the words of [`wire`].
    async fn ask(&self, procedure: u32, args: &str) -> Vec<u8> {
        self.call(procedure, wire(args)).await.unwrap()
    }
}

/// Hexadecimal text with names for what recurs: `FATTR` and `WCC` as [`ScriptedVfs`] gives them,
/// and the handles `FILE`, `DIR`, `DIR2` and `FOUND` with their lengths.
fn wire(text: &str) -> Vec<u8> {
    hex_with(text, |word| match word {
        "FATTR" => wire(FATTR),
        "WCC" => wire(WCC),
        "FILE" => handle(&FILE),
        "DIR" => handle(&DIR),
        "DIR2" => handle(&DIR2),
        "FOUND" => handle(&found()),
        _ => panic!("{word} has no meaning"),
    })
}

/// `fattr3`, RFC 1813 §2.6.
const FATTR: &str = "
    00000001                            // type: NF3REG
    000001a4 00000002                   // mode 0644, nlink
    000003e8 000003e9                   // uid, gid
    00000000 00001122 00000000 00002000 // size, used
    00000005 00000006                   // rdev
    00000000 000000f5 00000000 00000077 // fsid, fileid
    00000010 00000001                   // atime
    00000020 00000002                   // mtime
    00000030 00000003                   // ctime
";

/// `wcc_data` with both sides, RFC 1813 §2.6.
const WCC: &str = "
    00000001 00000000 00001111          // before: size
    0000001f 00000009 0000002f 00000008 // mtime, ctime
    00000001 FATTR                      // after
";

/// A handle as `nfs_fh3`: its length is 20 (delta) or 24 (base with two components), so there is
/// no padding.
fn handle(locator: &Locator) -> Vec<u8> {
    let handle = codec().encode(locator).0;
    let mut bytes = (handle.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(&handle);
    assert_eq!(bytes.len() % 4, 0);
    bytes
}
