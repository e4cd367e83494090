//! READDIR and READDIRPLUS within the client's limits, to the byte.

use nfs3_client::nfs3_types::nfs3::{READDIR3args, READDIR3resok, cookieverf3, nfs_fh3, nfsstat3};
use nfs3_client::nfs3_types::xdr_codec::Pack;

use super::Served;
use super::peer::{Peer, Result, plain};

/// Names of all lengths, in both layers.
async fn crowded() -> (Served, Peer, nfs_fh3) {
    let name = |n: usize| format!("dir/{}\n", "b".repeat(n));
    let served = Served::start(&(1..40).map(name).collect::<String>()).await;
    let mut peer = served.connect().await;
    let dir = peer.at("dir").await;
    for n in (1..120).step_by(3) {
        peer.put(&dir, &"d".repeat(n), "").await;
    }
    (served, peer, dir)
}

async fn readdir(
    peer: &mut Peer,
    dir: &nfs_fh3,
    cookie: u64,
    count: u32,
) -> Result<READDIR3resok<'static>> {
    let cookieverf = cookieverf3::default();
    let args = READDIR3args { dir: dir.clone(), cookie, cookieverf, count };
    plain(peer.nfs.readdir(&args).await.unwrap())
}

/// The bytes that an entry of READDIR takes: present, fileid, name, cookie.
fn entry_bytes(name: &[u8]) -> usize {
    4 + 8 + 4 + name.len().next_multiple_of(4) + 8
}

#[tokio::test]
async fn readdir_fills_each_page_as_far_as_the_count_allows() {
    let (_served, mut peer, dir) = crowded().await;
    let whole = readdir(&mut peer, &dir, 0, 1 << 20).await.unwrap().reply;
    assert!(whole.eof);
    let whole = whole.entries.into_inner();
    assert_eq!(whole.len(), 39 + 40 + 2);
    for count in [400, 401, 500, 777, 1024, 4000] {
        let (mut listed, mut cookie) = (Vec::new(), 0);
        loop {
            let page = readdir(&mut peer, &dir, cookie, count).await.unwrap();
            let bytes = page.packed_size();
            assert!(bytes <= count as usize, "{bytes} of {count}");
            let eof = page.reply.eof;
            listed.extend(page.reply.entries.into_inner());
            cookie = listed.last().unwrap().cookie;
            if eof {
                break;
            }
            let next = entry_bytes(whole[listed.len()].name.as_ref());
            assert!(bytes + next > count as usize, "room for {next} more of {count}");
        }
        assert_eq!(listed, whole);
    }
}

#[tokio::test]
async fn a_page_that_just_fits_is_given_and_one_byte_less_is_too_small() {
    let (_served, mut peer, dir) = crowded().await;
    let whole = readdir(&mut peer, &dir, 0, 1 << 20).await.unwrap();
    let all = whole.packed_size();
    assert!(readdir(&mut peer, &dir, 0, all as u32).await.unwrap().reply.eof);
    let short = readdir(&mut peer, &dir, 0, all as u32 - 1).await.unwrap().reply;
    assert!(!short.eof);
    let entries = whole.reply.entries.into_inner();
    assert_eq!(short.entries.0.len(), entries.len() - 1);
    let frame = all - entries.iter().map(|e| entry_bytes(e.name.as_ref())).sum::<usize>();
    let first = (frame + entry_bytes(b".")) as u32;
    assert_eq!(readdir(&mut peer, &dir, 0, first).await.unwrap().reply.entries.0.len(), 1);
    for count in [first - 1, 100, 1, 0] {
        let refused = readdir(&mut peer, &dir, 0, count).await;
        assert_eq!(refused.err(), Some(nfsstat3::NFS3ERR_TOOSMALL), "{count}");
    }
}

#[tokio::test]
async fn readdirplus_keeps_to_both_of_its_limits() {
    let (_served, mut peer, dir) = crowded().await;
    let whole = peer.readdirplus(&dir, 0, 1 << 20, 1 << 20).await.unwrap().reply;
    assert!(whole.eof);
    let names: Vec<_> = whole.entries.0.iter().map(|e| e.name.clone_to_owned()).collect();
    for (dircount, maxcount) in [(512, 8192), (8192, 1000), (200, 1 << 20), (1 << 20, 600)] {
        let (mut listed, mut cookie) = (Vec::new(), 0);
        loop {
            let page = peer.readdirplus(&dir, cookie, dircount, maxcount).await.unwrap();
            assert!(page.packed_size() <= maxcount as usize);
            let info = |name: &[u8]| 8 + 4 + name.len().next_multiple_of(4) + 8;
            let infos = page.reply.entries.0.iter().map(|e| info(e.name.as_ref()));
            assert!(infos.sum::<usize>() <= dircount as usize);
            let eof = page.reply.eof;
            for entry in page.reply.entries.into_inner() {
                cookie = entry.cookie;
                assert_eq!(entry.name_attributes.unwrap().fileid, entry.fileid);
                let handle = entry.name_handle.unwrap();
                assert_eq!(peer.getattr(&handle).await.unwrap().fileid, entry.fileid);
                listed.push(entry.name.clone_to_owned());
            }
            if eof {
                break;
            }
        }
        assert_eq!(listed, names, "{dircount} {maxcount}");
    }
}

#[tokio::test]
async fn readdir_and_readdirplus_share_cookies_and_do_not_mind_changes() {
    let (_served, mut peer, dir) = crowded().await;
    let plus = peer.readdirplus(&dir, 0, 1 << 20, 1 << 20).await.unwrap().reply;
    let plus = plus.entries.into_inner();
    let middle = plus[plus.len() / 2].cookie;
    peer.put(&dir, "new", "").await;
    let rest = readdir(&mut peer, &dir, middle, 1 << 20).await.unwrap().reply;
    let old = |name: &[u8]| plus.iter().any(|e| e.name.as_ref() == name);
    let rest = rest.entries.0.iter().filter(|e| old(e.name.as_ref())).count();
    assert_eq!(rest, plus.len() - plus.len() / 2 - 1);
    let cookieverf = cookieverf3([9; 8]);
    let args = READDIR3args { dir: dir.clone(), cookie: middle, cookieverf, count: 4096 };
    assert!(plain(peer.nfs.readdir(&args).await.unwrap()).is_ok(), "no verifier ends a listing");
}
