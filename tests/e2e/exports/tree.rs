//! One tree of several mounts.

use std::collections::HashSet;

use nfs3_client::nfs3_types::nfs3::{createhow3, nfsstat3, sattr3, stable_how};

use super::Site;
use crate::e2e::peer::mode;

/// A tree with mounts in its root, in a directory of the base, and in one that is not there.
pub const CHAT: &str = r#"
    [[export]]
    path = "/chat"
    options = ["no_root_squash", "insecure"]
      [[export.mount]]
      at = "/"
      session = "chat.db"
      base = "base"
      [[export.mount]]
      at = "/.user"
      session = "user.db"
      [[export.mount]]
      at = "/docs/api"
      session = "api.db"
      [[export.mount]]
      at = "/skills/onboarding/deep"
      session = "deep.db"
      [[export.mount]]
      at = "/skills/onboarding"
      session = "skill.db"
"#;

const BASE: &str = r#"
    docs/api/covered "nobody sees this"
    docs/readme "text"
    src/main.rs "fn main() {}"
"#;

#[test]
fn mount_points_are_listed_and_crossed_both_ways() {
    let mut site = Site::start(BASE, CHAT);
    let mut peer = site.peer("/chat");
    site.wait(async {
        let root = peer.root.clone();
        assert_eq!(peer.ls(&root).await, [".user", "docs", "skills", "src"]);
        let docs = peer.at("docs").await;
        assert_eq!(peer.ls(&docs).await, ["api", "readme"]);
        let api = peer.at("docs/api").await;
        assert_eq!(peer.ls(&api).await, Vec::<String>::new(), "what is covered does not show");
        assert_eq!(peer.lookup(&api, "..").await, Ok(docs.clone()));
        let deep = peer.at("skills/onboarding/deep").await;
        let skill = peer.lookup(&deep, "..").await.unwrap();
        assert_eq!(peer.at("skills/onboarding").await, skill);
        assert_eq!(peer.lookup(&root, "..").await, Ok(root.clone()), "nothing is above");
        let up = peer.lookup(&skill, "..").await.unwrap();
        assert_eq!(peer.lookup(&up, "..").await, Ok(root));
    });
    // Nothing but the directory that was missing is in the chat's session.
    let made = site.log("chat.db");
    assert_eq!(made, ["MKDIR /skills chat"], "{made:?}");
    site.stop();
}

#[test]
fn a_listing_tells_what_lookups_tell() {
    let mut site = Site::start(BASE, CHAT);
    let mut peer = site.peer("/chat");
    site.wait(async {
        for path in ["", "docs", "docs/api", "skills/onboarding", "skills/onboarding/deep"] {
            let dir = peer.at(path).await;
            let dir_attr = peer.getattr(&dir).await.unwrap();
            // The smallest pages, so that each entry begins one.
            let (mut cookie, mut seen) = (0, HashSet::new());
            loop {
                let page = peer.readdirplus(&dir, cookie, 600, 600).await.unwrap().reply;
                for entry in page.entries.into_inner() {
                    assert!(entry.cookie > cookie, "{path}: cookies ascend");
                    cookie = entry.cookie;
                    let name = String::from_utf8(entry.name.as_ref().to_vec()).unwrap();
                    let found = peer.lookup(&dir, &name).await.unwrap();
                    let attr = peer.getattr(&found).await.unwrap();
                    assert_eq!(entry.fileid, attr.fileid, "{path}/{name}");
                    assert_eq!(attr.fsid, dir_attr.fsid, "{path}/{name}");
                    let handle = entry.name_handle.unwrap();
                    assert_eq!(handle, found, "{path}/{name}");
                    assert!(seen.insert(name), "{path}: twice");
                }
                if page.eof {
                    break;
                }
            }
            assert!(seen.contains(".") && seen.contains(".."), "{path}");
        }
    });
    site.stop();
}

#[test]
fn numbers_are_unique_in_the_tree() {
    let mut site = Site::start(BASE, CHAT);
    let mut peer = site.peer("/chat");
    site.wait(async {
        let mut numbers = HashSet::new();
        for dir in ["", ".user", "docs/api", "skills/onboarding", "skills/onboarding/deep"] {
            let dir = peer.at(dir).await;
            for name in ["a", "b"] {
                let made = peer.put(&dir, name, "content").await;
                numbers.insert(peer.getattr(&made).await.unwrap().fileid);
            }
            numbers.insert(peer.getattr(&dir).await.unwrap().fileid);
        }
        assert_eq!(numbers.len(), 15);
        assert!(numbers.iter().all(|number| *number < 1 << 53));
    });
    site.stop();
}

#[test]
fn a_mount_point_stays_what_it_is() {
    let mut site = Site::start(BASE, CHAT);
    let mut peer = site.peer("/chat");
    site.wait(async {
        let root = peer.root.clone();
        let docs = peer.at("docs").await;
        let skills = peer.at("skills").await;
        let busy = nfsstat3::NFS3ERR_ACCES;
        let exists = nfsstat3::NFS3ERR_EXIST;
        assert_eq!(peer.rmdir(&root, ".user").await, Err(busy));
        assert_eq!(peer.remove(&root, ".user").await, Err(nfsstat3::NFS3ERR_ISDIR));
        assert_eq!(peer.mkdir(&root, ".user").await.err(), Some(exists));
        let create = peer.create(&root, ".user", createhow3::UNCHECKED(mode(0o644))).await;
        assert_eq!(create.err(), Some(exists));
        assert_eq!(peer.symlink(&root, ".user", "x").await.err(), Some(exists));
        assert_eq!(peer.rename((&root, ".user"), (&root, "other")).await, Err(busy));
        let dir = peer.mkdir(&root, "dir").await.unwrap();
        assert_eq!(peer.rename((&root, "dir"), (&root, ".user")).await, Err(busy));
        // What a mount is in stays, too.
        assert_eq!(peer.rename((&root, "docs"), (&root, "moved")).await, Err(busy));
        assert_eq!(peer.rename((&root, "skills"), (&dir, "moved")).await, Err(busy));
        assert_eq!(peer.rmdir(&root, "skills").await, Err(busy));
        assert_eq!(peer.rename((&root, "dir"), (&root, "skills")).await, Err(busy));
        assert_eq!(peer.rmdir(&skills, "onboarding").await, Err(busy));
        // Its attributes are those of what is mounted, and can be changed.
        let user = peer.at(".user").await;
        peer.setattr(&user, mode(0o700)).await.unwrap();
        assert_eq!(peer.getattr(&user).await.unwrap().mode, 0o700);
        assert_eq!(peer.getattr(&docs).await.unwrap().nlink, 3, "api counts");
        assert_eq!(peer.ls(&root).await, [".user", "dir", "docs", "skills", "src"]);
    });
    site.stop();
}

#[test]
fn nothing_moves_or_links_from_mount_to_mount() {
    let mut site = Site::start(BASE, CHAT);
    let mut peer = site.peer("/chat");
    site.wait(async {
        let root = peer.root.clone();
        let user = peer.at(".user").await;
        let file = peer.put(&root, "file", "content").await;
        let cross = nfsstat3::NFS3ERR_XDEV;
        assert_eq!(peer.rename((&root, "file"), (&user, "file")).await, Err(cross));
        assert_eq!(peer.link(&file, &user, "file").await, Err(cross));
        assert_eq!(peer.ls(&user).await, Vec::<String>::new());
        peer.rename((&root, "file"), (&root, "new")).await.unwrap();
        let (sync, size) = (stable_how::FILE_SYNC, sattr3::default());
        assert_eq!(peer.write(&file, 0, b"still there", sync).await.unwrap().count, 11);
        peer.setattr(&file, size).await.unwrap();
    });
    site.stop();
}
