//! Who may come, and who they are then: what an export's options make of a caller.

use std::borrow::Cow;

use acetate::export::{Admission, Refused, Squash};
use acetate::vfs::{Attr, Caller, Device, FileId, FileKind, Flavor, FsError, SetAttr, Time};

use super::{export, with};

pub fn caller(uid: u32, gid: u32, gids: &[u32]) -> Caller {
    Caller {
        client: "127.0.0.1:700".parse().unwrap(),
        flavor: Flavor::Sys,
        uid,
        gid,
        gids: gids.to_vec(),
        call: None,
        is_owner: false,
    }
}

fn anonymous() -> Caller {
    Caller { flavor: Flavor::None, ..caller(Caller::NOBODY, Caller::NOBODY, &[]) }
}

fn squash(lines: &str) -> Squash {
    Squash::new(&export(&with(lines)))
}

/// Who `caller` becomes.
fn becomes(squash: &Squash, caller: &Caller) -> (u32, u32, Vec<u32>) {
    let here = squash.apply(caller);
    assert_eq!((here.client, here.flavor, here.call), (caller.client, caller.flavor, caller.call));
    (here.uid, here.gid, here.gids.clone())
}

#[test]
fn root_is_squashed_in_each_of_its_numbers() {
    let squash = squash("options = [\"anonuid=7\", \"anongid=8\"]");
    assert_eq!(becomes(&squash, &caller(0, 0, &[0, 4, 0])), (7, 8, vec![8, 4, 8]));
    assert_eq!(becomes(&squash, &caller(1000, 0, &[24])), (1000, 8, vec![24]));
    assert_eq!(becomes(&squash, &caller(0, 1000, &[])), (7, 1000, vec![]));
    assert_eq!(becomes(&squash, &caller(u32::MAX, u32::MAX, &[])), (7, 8, vec![]));
    let user = caller(1000, 1000, &[4, 24]);
    assert!(matches!(squash.apply(&user), Cow::Borrowed(_)), "nothing is copied for nothing");
    assert_eq!(becomes(&squash, &anonymous()), (7, 8, vec![]));
}

#[test]
fn all_or_nobody_may_be_squashed() {
    let all = squash("options = [\"all_squash\"]");
    let nobody = (Caller::NOBODY, Caller::NOBODY, vec![]);
    assert_eq!(becomes(&all, &caller(1000, 1000, &[0, 4])), nobody);
    assert_eq!(becomes(&all, &caller(0, 0, &[])), nobody);
    let none = squash("options = [\"no_root_squash\", \"anonuid=7\"]");
    assert_eq!(becomes(&none, &caller(0, 0, &[0, 4])), (0, 0, vec![0, 4]));
    assert_eq!(becomes(&none, &anonymous()), (7, Caller::NOBODY, vec![]));
}

#[test]
fn the_owner_at_the_command_line_is_never_squashed() {
    let all = squash("options = [\"all_squash\"]");
    let owner = Caller::owner(0, 0);
    assert_eq!(*all.apply(&owner), owner);
}

#[test]
fn ids_are_mapped_before_root_is_squashed() {
    let lines = "options = [\"anonuid=7\"]\n\
        map_uids = [{ client = 0, server = 1000 }, { client = 501, server = 2000, count = 2 }]\n\
        map_gids = [{ client = 20, server = 100 }]";
    let squash = squash(lines);
    // The client's root is an ordinary user here; who is not in the map is nobody.
    assert_eq!(becomes(&squash, &caller(0, 20, &[20, 0, 5])).0, 1000);
    assert_eq!(
        becomes(&squash, &caller(502, 20, &[20, 5])),
        (2001, 100, vec![100, Caller::NOBODY])
    );
    assert_eq!(becomes(&squash, &caller(1000, 0, &[])), (7, Caller::NOBODY, vec![]));
    let root = "options = [\"no_root_squash\"]\nmap_uids = [{ client = 1000, server = 0 }]";
    assert_eq!(becomes(&self::squash(root), &caller(1000, 0, &[])), (0, 0, vec![]));
}

#[test]
fn owners_are_set_and_shown_by_the_same_map() {
    let squash = squash("map_uids = [{ client = 501, server = 2000 }]");
    let set = |uid, gid| SetAttr { uid, gid, mode: Some(0o600), ..SetAttr::default() };
    assert_eq!(squash.set(set(Some(501), Some(9))), Ok(set(Some(2000), Some(9))));
    assert_eq!(squash.set(set(None, None)), Ok(set(None, None)));
    assert_eq!(squash.set(set(Some(2000), None)), Err(FsError::Invalid));
    assert_eq!(squash.set_new(set(Some(2000), None)), set(None, None));
    let attr = |uid, gid| Attr {
        kind: FileKind::Regular,
        mode: 0o644,
        nlink: 1,
        uid,
        gid,
        size: 3,
        used: 512,
        rdev: Device::default(),
        fsid: 1,
        fileid: FileId(9),
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
    };
    assert_eq!(squash.show(attr(2000, 2000)), attr(501, 2000));
    assert_eq!(squash.show(attr(0, 0)), attr(Caller::NOBODY, 0));
    assert_eq!(self::squash("").show(attr(0, 5)), attr(0, 5));
}

#[test]
fn strangers_learn_only_that_they_are_strangers() {
    let admission = |lines: &str| Admission::new(&export(&with(lines)));
    let at = |client: &str| Caller { client: client.parse().unwrap(), ..caller(1000, 1000, &[]) };
    let local = admission("");
    assert_eq!(local.admit(&at("127.0.0.1:700")), Ok(()));
    assert_eq!(local.admit(&at("[::ffff:127.0.0.1]:700")), Ok(()));
    assert_eq!(local.admit(&at("10.0.0.1:700")), Err(Refused::Address));
    assert_eq!(local.admit(&at("10.0.0.1:7000")), Err(Refused::Address));
    assert_eq!(local.admit(&Caller::owner(0, 0)), Ok(()));
    let net = admission("clients = [\"10.0.0.0/24\"]");
    assert_eq!(net.admit(&at("10.0.0.255:700")), Ok(()));
    assert_eq!(net.admit(&at("127.0.0.1:700")), Err(Refused::Address));
}

#[test]
fn an_export_takes_the_flavors_that_it_names() {
    let admission = |word: &str| Admission::new(&export(&with(&format!("options = [\"{word}\"]"))));
    let sys = caller(1000, 1000, &[]);
    assert_eq!(admission("rw").admit(&sys), Ok(()));
    assert_eq!(admission("rw").admit(&anonymous()), Err(Refused::Flavor));
    assert_eq!(admission("sec=none").admit(&anonymous()), Ok(()));
    assert_eq!(admission("sec=none").admit(&sys), Err(Refused::Flavor));
    assert_eq!(admission("sec=none").flavors(), [Flavor::None]);
    assert_eq!(admission("sec=sys:none").flavors(), [Flavor::Sys, Flavor::None]);
    assert_eq!(admission("sec=sys:none").admit(&anonymous()), Ok(()));
    assert_eq!(admission("sec=sys:none").admit(&sys), Ok(()));
}

#[cfg(target_os = "linux")]
#[test]
fn a_secure_export_wants_a_privileged_port() {
    let admission = |word: &str| Admission::new(&export(&with(&format!("options = [\"{word}\"]"))));
    let from = |port: u16| {
        let client = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        Caller { client, ..caller(1000, 1000, &[]) }
    };
    assert_eq!(admission("secure").admit(&from(1023)), Ok(()));
    assert_eq!(admission("secure").admit(&from(1024)), Err(Refused::Port));
    assert_eq!(admission("insecure").admit(&from(1024)), Ok(()));
}
