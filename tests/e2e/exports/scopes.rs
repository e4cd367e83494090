//! A part of a session is a capability: what is outside does not exist.

use std::collections::HashSet;

use nfs3_client::nfs3_types::nfs3::{nfs_fh3, nfsstat3};
use nfs3_client::nfs3_types::xdr_codec::Opaque;

use super::Site;

/// Two agents' directories of one session, and one with a longer name; and all of it.
const AGENTS: &str = r#"
    [[export]]
    path = "/a1"
    options = ["no_root_squash", "insecure"]
      [[export.mount]]
      at = "/"
      session = "users.db"
      subtree = "/agents/a1"
      base = "base"
    [[export]]
    path = "/a10"
    options = ["no_root_squash", "insecure"]
      [[export.mount]]
      at = "/"
      session = "users.db"
      subtree = "/agents/a10"
    [[export]]
    path = "/all"
    options = ["no_root_squash", "insecure"]
      [[export.mount]]
      at = "/"
      session = "users.db"
"#;

const BASE: &str = r#"
    agents/a1/mine "a1"
    agents/a1/dir/inner "a1"
    agents/a10/other "a10"
    agents/linked = agents/a1/mine
    secret "nobody's"
"#;

#[test]
fn the_root_of_a_subtree_has_nothing_above() {
    let mut site = Site::start(BASE, AGENTS);
    let mut peer = site.peer("/a1");
    site.wait(async {
        let root = peer.root.clone();
        assert_eq!(peer.ls(&root).await, ["dir", "mine"]);
        assert_eq!(peer.lookup(&root, "..").await, Ok(root.clone()));
        let dir = peer.at("dir").await;
        assert_eq!(peer.lookup(&dir, "..").await, Ok(root.clone()));
        let listed = peer.readdirplus(&root, 0, 4096, 8192).await.unwrap().reply;
        let listed = listed.entries.into_inner();
        let up = listed.iter().find(|entry| entry.name.as_ref() == b"..").unwrap();
        assert_eq!(up.name_handle.clone().unwrap(), root);
        for wrong in ["../a10", "a10", "..%2f", "../../secret"] {
            assert!(peer.lookup(&root, wrong).await.is_err(), "{wrong}");
        }
    });
    site.stop();
}

/// A handle with another tag: that of the mount which gave out `tagged`.
fn retagged(handle: &nfs_fh3, tagged: &nfs_fh3) -> nfs_fh3 {
    let mut bytes = handle.data.as_ref().to_vec();
    bytes[2..4].copy_from_slice(&tagged.data.as_ref()[2..4]);
    nfs_fh3 { data: Opaque::owned(bytes) }
}

#[test]
fn a_handle_works_where_it_was_given_out_and_nowhere_else() {
    let mut site = Site::start(BASE, AGENTS);
    let (mut a1, mut all) = (site.peer("/a1"), site.peer("/all"));
    site.wait(async {
        let mine = a1.at("mine").await;
        let same = all.at("agents/a1/mine").await;
        let numbers = (a1.getattr(&mine).await.unwrap(), all.getattr(&same).await.unwrap());
        assert_eq!(numbers.0.fileid, numbers.1.fileid, "one file");
        assert_ne!(mine, same, "two capabilities");
        let secret = all.at("secret").await;
        let forged = retagged(&secret, &mine);
        assert_eq!(a1.getattr(&forged).await.err(), Some(nfsstat3::NFS3ERR_STALE));
        let forged = retagged(&secret, &nfs_fh3 { data: Opaque::owned(vec![1, 0, 0, 0]) });
        assert_eq!(a1.getattr(&forged).await.err(), Some(nfsstat3::NFS3ERR_STALE));
    });
    site.stop();
}

#[test]
fn what_leaves_the_subtree_is_gone_for_it() {
    let mut site = Site::start(BASE, AGENTS);
    let (mut a1, mut a10, mut all) = (site.peer("/a1"), site.peer("/a10"), site.peer("/all"));
    site.wait(async {
        let dir = a1.at("dir").await;
        let inner = a1.at("dir/inner").await;
        let made = a1.put(&dir, "made", "new").await;
        let (from, to) = (all.at("agents/a1").await, all.at("agents/a10").await);
        all.rename((&from, "dir"), (&to, "dir")).await.unwrap();
        let stale = Some(nfsstat3::NFS3ERR_STALE);
        for handle in [&dir, &inner, &made] {
            assert_eq!(a1.getattr(handle).await.err(), stale);
        }
        assert_eq!(a1.read(&inner, 0, 10).await.err(), stale);
        assert_eq!(a1.lookup(&dir, "..").await.err(), stale);
        let root = a1.root.clone();
        assert_eq!(a1.rename((&dir, "made"), (&root, "back")).await.err(), stale);
        assert_eq!(a1.link(&made, &root, "back").await.err(), stale);
        let there = a10.at("dir/made").await;
        assert_eq!(a10.read(&there, 0, 10).await, Ok(b"new".to_vec()));
        // And back.
        all.rename((&to, "dir"), (&from, "dir")).await.unwrap();
        assert_eq!(a1.read(&made, 0, 10).await, Ok(b"new".to_vec()));
        assert_eq!(a1.read(&inner, 0, 10).await, Ok(b"a1".to_vec()));
    });
    site.stop();
}

#[test]
fn a_file_with_a_name_inside_is_inside() {
    let mut site = Site::start(BASE, AGENTS);
    let (mut a1, mut all) = (site.peer("/a1"), site.peer("/all"));
    site.wait(async {
        // A base file with a name outside, and one of the session.
        let mine = a1.at("mine").await;
        let agents = all.at("agents").await;
        let linked = all.at("agents/linked").await;
        all.setattr(&linked, crate::e2e::peer::mode(0o600)).await.unwrap();
        assert_eq!(a1.getattr(&mine).await.unwrap().mode, 0o600);
        let root = a1.root.clone();
        let own = a1.put(&root, "own", "x").await;
        let file = all.at("agents/a1/own").await;
        all.link(&file, &agents, "own").await.unwrap();
        assert_eq!(a1.getattr(&own).await.unwrap().nlink, 2);
        let dir = all.at("agents/a1").await;
        all.remove(&dir, "own").await.unwrap();
        assert_eq!(a1.getattr(&own).await.err(), Some(nfsstat3::NFS3ERR_STALE), "one outside");
        all.remove(&dir, "mine").await.unwrap();
        assert_eq!(a1.getattr(&mine).await.err(), Some(nfsstat3::NFS3ERR_STALE));
        assert_eq!(all.getattr(&linked).await.unwrap().mode, 0o600);
    });
    site.stop();
}

#[test]
fn one_session_in_two_exports_is_coherent() {
    let mut site = Site::start(BASE, AGENTS);
    let (mut a1, mut all) = (site.peer("/a1"), site.peer("/all"));
    site.wait(async {
        let root = a1.root.clone();
        for round in 0..20 {
            let text = format!("round {round}");
            let file = a1.put(&root, "shared", &text).await;
            let seen = all.at("agents/a1/shared").await;
            assert_eq!(all.read(&seen, 0, 100).await.unwrap(), text.as_bytes());
            let dir = all.at("agents/a1").await;
            all.rename((&dir, "shared"), (&dir, "taken")).await.unwrap();
            assert_eq!(a1.lookup(&root, "shared").await.err(), Some(nfsstat3::NFS3ERR_NOENT));
            a1.remove(&root, "taken").await.unwrap();
            assert_eq!(all.getattr(&seen).await.err(), Some(nfsstat3::NFS3ERR_STALE));
            assert_eq!(a1.getattr(&file).await.err(), Some(nfsstat3::NFS3ERR_STALE));
        }
    });
    site.stop();
}

/// Exports of one session, each with one of its own inside.
const CHATS: &str = r#"
    [[export]]
    path = "/one"
    options = ["no_root_squash", "insecure"]
      [[export.mount]]
      at = "/"
      session = "shared.db"
      base = "base"
      [[export.mount]]
      at = "/.user"
      session = "one.db"
    [[export]]
    path = "/two"
    options = ["no_root_squash", "insecure"]
      [[export.mount]]
      at = "/"
      session = "shared.db"
      [[export.mount]]
      at = "/.user"
      session = "two.db"
"#;

/// Whoever mounts both tells files apart by these, as `cp` and `diff` do.
#[test]
fn no_two_files_of_two_exports_have_one_fsid_and_fileid() {
    let mut site = Site::start(BASE, CHATS);
    let (mut one, mut two) = (site.peer("/one"), site.peer("/two"));
    site.wait(async {
        let mut seen = HashSet::new();
        for peer in [&mut one, &mut two] {
            let user = peer.at(".user").await;
            for dir in [peer.root.clone(), user] {
                let made = peer.put(&dir, "made", "content").await;
                for object in [dir, made] {
                    let attr = peer.getattr(&object).await.unwrap();
                    assert!(seen.insert((attr.fsid, attr.fileid)), "{attr:?}");
                }
            }
        }
    });
    site.stop();
}
