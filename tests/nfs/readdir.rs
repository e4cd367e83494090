//! Pages of a listing, against an independent decoder.

use acetate::nfs::Handles;
use acetate::vfs::{Cookie, Entry, FileId};
use nfs3_client::nfs3_types::nfs3::{
    Nfs3Option, Nfs3Result, READDIR3res, READDIRPLUS3res, nfsstat3,
};
use nfs3_client::nfs3_types::xdr_codec::Unpack;

use super::{Server, wire};
use crate::support::scripted_vfs::{ScriptedVfs, attr, found};

const ENTRIES: usize = 12;

/// Names of every length modulo four; every third has no attributes.
fn server() -> Server {
    let entry = |index: usize| Entry {
        name: vec![b'a' + index as u8; index + 1].into(),
        fileid: FileId(100 + index as u64),
        cookie: Cookie(1000 + index as u64),
        object: (!index.is_multiple_of(3)).then(|| (found(), attr())),
    };
    Server::new(ScriptedVfs { entries: (0..ENTRIES).map(entry).collect(), ..Default::default() })
}

/// Fileid, name and cookie of entry `index`, by RFC 1813 §3.3.17: 8 + (4 + name + padding) + 8.
fn info_bytes(index: usize) -> usize {
    8 + 4 + (index + 1).next_multiple_of(4) + 8
}

/// `entry3` with the boolean in front.
fn entry_bytes(index: usize) -> usize {
    4 + info_bytes(index)
}

/// `entryplus3` with the boolean in front: attributes (84) and handle (4 + 24), if any.
fn entry_plus_bytes(index: usize) -> usize {
    entry_bytes(index) + 4 + 4 + if index.is_multiple_of(3) { 0 } else { 84 + 28 }
}

/// Attributes (4 + 84), verifier, end of the list, end of the directory.
const FRAME_BYTES: usize = 88 + 8 + 4 + 4;

/// How many entries from `first` on fit into `room` bytes.
fn fitting(first: usize, room: usize, bytes: impl Fn(usize) -> usize) -> usize {
    let mut used = 0;
    let fits = |index: &usize| {
        used += bytes(*index);
        used <= room
    };
    (first..ENTRIES).take_while(fits).count()
}

/// The page (cookies, end), or `None` for `NFS3ERR_TOOSMALL`; and the size of the success.
async fn readdir(server: &Server, cookie: u64, count: usize) -> (Option<(Vec<u64>, bool)>, usize) {
    let reply = server.ask(16, &format!("DIR {cookie:016x} 0000000000000000 {count:08x}")).await;
    let (result, used) = READDIR3res::unpack(&mut reply.as_slice()).unwrap();
    assert_eq!(used, reply.len());
    let page = match result {
        Nfs3Result::Ok(ok) => {
            assert!(ok.dir_attributes.is_some());
            assert_eq!(ok.cookieverf.0, [0; 8]);
            let entries = ok.reply.entries.into_inner();
            Some((entries.iter().map(|entry| entry.cookie).collect(), ok.reply.eof))
        }
        Nfs3Result::Err((status, fail)) => {
            assert_eq!(status, nfsstat3::NFS3ERR_TOOSMALL);
            assert!(fail.dir_attributes.is_some());
            None
        }
    };
    (page, reply.len() - 4)
}

async fn readdirplus(
    server: &Server,
    cookie: u64,
    dircount: usize,
    maxcount: usize,
) -> (Option<(Vec<u64>, bool)>, usize) {
    let args = format!("DIR {cookie:016x} 0000000000000000 {dircount:08x} {maxcount:08x}");
    let reply = server.ask(17, &args).await;
    let (result, used) = READDIRPLUS3res::unpack(&mut reply.as_slice()).unwrap();
    assert_eq!(used, reply.len());
    let page = match result {
        Nfs3Result::Ok(ok) => {
            let entries = ok.reply.entries.into_inner();
            for entry in &entries {
                let has_object = !(entry.cookie - 1000).is_multiple_of(3);
                assert_eq!(entry.name_attributes.is_some(), has_object);
                match &entry.name_handle {
                    Nfs3Option::Some(fh) => {
                        assert_eq!(fh.data.as_ref(), super::codec().encode(&found()).0.as_ref())
                    }
                    Nfs3Option::None => assert!(!has_object),
                }
            }
            Some((entries.iter().map(|entry| entry.cookie).collect(), ok.reply.eof))
        }
        Nfs3Result::Err((status, fail)) => {
            assert_eq!(status, nfsstat3::NFS3ERR_TOOSMALL);
            assert!(fail.dir_attributes.is_some());
            None
        }
    };
    (page, reply.len() - 4)
}

fn expected(first: usize, entries: usize) -> Option<(Vec<u64>, bool)> {
    let cookies: Vec<u64> = (first..first + entries).map(|index| 1000 + index as u64).collect();
    (entries > 0).then_some((cookies, first + entries == ENTRIES))
}

#[tokio::test]
async fn readdir_respects_every_count() {
    let server = server();
    for first in [0, 5, ENTRIES - 1] {
        let cookie = if first == 0 { 0 } else { 999 + first as u64 };
        for count in 0..700 {
            let room = count_room(count);
            let fit = room.map_or(0, |room| fitting(first, room, entry_bytes));
            let (page, bytes) = readdir(&server, cookie, count).await;
            assert_eq!(page, expected(first, fit), "count {count} from {first}");
            assert!(page.is_none() || bytes <= count);
        }
    }
}

#[tokio::test]
async fn readdirplus_respects_every_maxcount() {
    let server = server();
    for maxcount in 0..2000 {
        let room = count_room(maxcount);
        let fit = room.map_or(0, |room| fitting(0, room, entry_plus_bytes));
        let (page, bytes) = readdirplus(&server, 0, 1 << 20, maxcount).await;
        assert_eq!(page, expected(0, fit), "maxcount {maxcount}");
        assert!(page.is_none() || bytes <= maxcount);
    }
}

#[tokio::test]
async fn readdirplus_respects_every_dircount() {
    let server = server();
    for dircount in 0..400 {
        let fit = fitting(3, dircount, info_bytes);
        let (page, _) = readdirplus(&server, 1002, dircount, 1 << 20).await;
        assert_eq!(page, expected(3, fit), "dircount {dircount}");
    }
}

fn count_room(count: usize) -> Option<usize> {
    count.checked_sub(FRAME_BYTES)
}

#[tokio::test]
async fn the_end_needs_room_for_no_entry() {
    let server = server();
    let (page, bytes) = readdir(&server, 5000, FRAME_BYTES).await;
    assert_eq!((page, bytes), (Some((vec![], true)), FRAME_BYTES));
    assert_eq!(readdir(&server, 5000, FRAME_BYTES - 1).await.0, None);
    assert_eq!(readdirplus(&server, 5000, 0, FRAME_BYTES).await.0, Some((vec![], true)));
}

#[tokio::test]
async fn huge_counts_are_cut_to_the_transfer_limit() {
    let entries = (0..5000u64).map(|index| Entry {
        name: vec![b'n'; 255].into(),
        fileid: FileId(index),
        cookie: Cookie(index + 1),
        object: None,
    });
    let vfs = ScriptedVfs { entries: entries.collect(), ..Default::default() };
    let (page, bytes) = readdir(&Server::new(vfs), 0, u32::MAX as usize).await;
    let entry_bytes = 4 + 8 + 4 + 256 + 8;
    let (cookies, eof) = page.unwrap();
    assert_eq!(cookies.len(), ((1 << 20) - FRAME_BYTES) / entry_bytes);
    assert!(!eof && bytes <= 1 << 20);
}

#[tokio::test]
async fn any_cookie_verifier_is_taken() {
    let server = server();
    let reply = server.call(16, wire("DIR 00000000000003e8 0123456789abcdef 00001000")).await;
    assert_eq!(reply.unwrap()[..4], [0; 4]);
}
