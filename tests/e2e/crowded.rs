//! Beside connections that ask for megabytes and read none: READ and listings are short, and lose
//! nothing.

use std::time::Duration;

use acetate::server::limits::{Limits, MAX_UNPROVEN_REPLY_BYTES, OWN_REPLY_BYTES};
use nfs3_client::nfs3_types::nfs3::{READ3args, READ3resok, nfs_fh3, stable_how};

use super::Served;
use super::peer::{Peer, plain};
use super::raw::{NFS, Raw, opaque, words};

const READ: u32 = 6;
const MEGABYTE: u32 = 1 << 20;
/// Entries with names so long that they fill several short pages.
const ENTRIES: usize = 300;

async fn read(peer: &mut Peer, file: &nfs_fh3, offset: u64) -> READ3resok<'static> {
    let args = READ3args { file: file.clone(), offset, count: MEGABYTE };
    plain(peer.nfs.read(&args).await.unwrap()).unwrap()
}

/// Connections that take all room for replies that newcomers share, and keep it.
async fn crowd(served: &Served, file: &nfs_fh3) -> Vec<Raw> {
    let args = [opaque(file.data.as_ref()), words(&[0, 0, MEGABYTE])].concat();
    let mut deaf = Vec::new();
    for _ in 0..2 * MAX_UNPROVEN_REPLY_BYTES / MEGABYTE as usize {
        let mut raw = Raw::connect(served.address()).await;
        for xid in 0..16 {
            raw.send_call(xid, [NFS, 3, READ], &args).await;
        }
        deaf.push(raw);
    }
    // The system's buffers take some replies first.
    while read(&mut served.connect().await, file, 0).await.count == MEGABYTE {}
    deaf
}

#[tokio::test]
async fn short_replies_lose_nothing() {
    let long = Duration::from_secs(3600);
    let limits = Limits { pressure_timeout: long, reply_timeout: long, ..Limits::default() };
    let name = |n: usize| format!("{n:0>250}");
    let listed: String = (0..ENTRIES).map(|n| format!("dir/{}\n", name(n))).collect();
    let served = Served::start_with(&listed, limits).await;
    let mut peer = served.connect().await;
    let root = peer.root.clone();
    let file = peer.put(&root, "file", "").await;
    let content: Vec<u8> = (0..MEGABYTE).map(|at| (at % 251) as u8).collect();
    peer.write(&file, 0, &content, stable_how::UNSTABLE).await.unwrap();
    let _deaf = crowd(&served, &file).await;

    let mut got = Vec::new();
    loop {
        let piece = read(&mut peer, &file, got.len() as u64).await;
        assert!(piece.count > 0 && piece.count as usize <= OWN_REPLY_BYTES);
        got.extend_from_slice(piece.data.as_ref());
        if piece.eof {
            break;
        }
    }
    assert!(got == content);

    let dir = peer.at("dir").await;
    let (mut names, mut cookie, mut pages) = (Vec::new(), 0, 0);
    loop {
        let page = peer.readdirplus(&dir, cookie, MEGABYTE, MEGABYTE).await.unwrap().reply;
        pages += 1;
        for entry in page.entries.into_inner() {
            cookie = entry.cookie;
            names.push(String::from_utf8(entry.name.as_ref().to_vec()).unwrap());
        }
        if page.eof {
            break;
        }
    }
    assert!(pages > 2, "they would fit into one page of a megabyte");
    names.retain(|name| name != "." && name != "..");
    names.sort();
    assert!(names == (0..ENTRIES).map(name).collect::<Vec<_>>());
}
