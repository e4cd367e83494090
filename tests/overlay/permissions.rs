//! Who may do what: mode bits, as a Linux NFS server checks them.

use acetate::vfs::{Access, CreateHow, FsError, NewNode, SetAttr, SetTime, Time};

use crate::support::client::{Client, mode, owner, size};
use crate::support::world::World;

const ALICE: u32 = 1000;
const BOB: u32 = 1001;
const STAFF: u32 = 50;

/// A directory and a file of alice and the group staff.
fn world() -> World {
    let world = World::new("dir/file \"content\"\ndir/exec 755 \"run\"");
    world.chown("dir", ALICE, STAFF).unwrap();
    world.chown("dir/file", ALICE, STAFF).unwrap();
    world
}

/// Alice, somebody of her group, somebody else, nobody.
fn callers(world: &World) -> [Client; 4] {
    [
        world.user(ALICE, ALICE, &[]),
        world.user(BOB, BOB, &[7, STAFF]),
        world.user(BOB, BOB, &[]),
        world.user(65534, 65534, &[]),
    ]
}

/// What is answered instead of `bits` granted.
fn expect(bits: u32, granted: u32) -> Result<(), FsError> {
    if granted & bits == bits { Ok(()) } else { Err(FsError::Access) }
}

#[test]
fn access_and_the_operations_agree_for_every_mode_and_caller() {
    let world = world();
    let file = world.at("dir/file");
    let dir = world.at("dir");
    for bits in 0..0o1000 {
        world.chmod("dir/file", bits).unwrap();
        world.chmod("dir", bits).unwrap();
        for (n, user) in callers(&world).iter().enumerate() {
            let granted = [bits >> 6, bits >> 3, bits, bits][n] & 0o7;
            let shown = format!("{bits:o} caller {n}");
            let mut expected = 0;
            expected |= if granted & 4 != 0 { Access::READ } else { 0 };
            expected |= if granted & 2 != 0 { Access::MODIFY | Access::EXTEND } else { 0 };
            expected |= if granted & 1 != 0 { Access::EXECUTE } else { 0 };
            assert_eq!(user.access("dir/file", 0x3f), expected, "file {shown}");
            let mut expected = 0;
            expected |= if granted & 4 != 0 { Access::READ } else { 0 };
            expected |= if granted & 1 != 0 { Access::LOOKUP } else { 0 };
            let changes = Access::MODIFY | Access::EXTEND | Access::DELETE;
            expected |= if granted & 3 == 3 { changes } else { 0 };
            assert_eq!(user.access("dir", 0x3f), expected, "directory {shown}");

            // The owner goes on with an open file; who may execute may read.
            let reads = n == 0 || granted & 5 != 0;
            assert_eq!(user.read_at(&file, 0, 1).is_ok(), reads, "READ {shown}");
            let lookup = user.lookup(&dir, "file").map(drop);
            assert_eq!(lookup, expect(1, granted), "LOOKUP {shown}");
            let listed = user.page(&dir, 0, 1, false).map(drop);
            assert_eq!(listed, expect(4, granted), "READDIR {shown}");
        }
    }
}

#[test]
fn changes_need_their_bits() {
    let world = world();
    let file = world.at("dir/file");
    for bits in [0o777, 0o775, 0o755, 0o733, 0o711, 0o722, 0o700, 0o000, 0o070, 0o007] {
        world.chmod("dir/file", bits).unwrap();
        world.chmod("dir", bits).unwrap();
        for (n, user) in callers(&world).iter().enumerate() {
            let granted = [bits >> 6, bits >> 3, bits, bits][n] & 0o7;
            let shown = format!("{bits:o} caller {n}");
            let writes = expect(2, granted).or(if n == 0 { Ok(()) } else { Err(FsError::Access) });
            let stability = acetate::vfs::Stability::Unstable;
            let written = user.write_to(&file, 0, b"x", stability).result.map(drop);
            assert_eq!(written, writes, "WRITE {shown}");
            assert_eq!(user.set(&file, size(3), None).result, writes, "truncate {shown}");
            let changes = expect(3, granted);
            let how = CreateHow::Guarded(SetAttr::default());
            assert_eq!(user.create("dir/new", how).map(drop), changes, "CREATE {shown}");
            let _ = world.remove("dir/new");
            assert_eq!(user.mkdir("dir/new").map(drop), changes, "MKDIR {shown}");
            let _ = world.rmdir("dir/new");
            assert_eq!(user.link("dir/exec", "dir/new"), changes, "LINK {shown}");
            let _ = world.remove("dir/new");
            assert_eq!(user.rename("dir/exec", "dir/moved"), changes, "RENAME {shown}");
            let _ = world.rename("dir/moved", "dir/exec");
            world.put("dir/victim", "");
            assert_eq!(user.remove("dir/victim"), changes, "REMOVE {shown}");
            let _ = world.remove("dir/victim");
        }
    }
}

#[test]
fn the_superuser_passes_but_executes_only_what_somebody_may() {
    let world = world();
    world.chmod("dir/file", 0).unwrap();
    world.chmod("dir", 0).unwrap();
    assert_eq!(world.cat("dir/file"), "content");
    assert_eq!(world.access("dir/file", 0x3f), Access::READ | Access::MODIFY | Access::EXTEND);
    assert_eq!(world.access("dir", 0x3f), 0x3f & !Access::EXECUTE);
    world.chmod("dir/file", 0o001).unwrap();
    assert_eq!(world.access("dir/file", Access::EXECUTE), Access::EXECUTE);
}

#[test]
fn only_the_owner_changes_attributes() {
    let world = world();
    world.chmod("dir", 0o777).unwrap();
    world.chmod("dir/file", 0o666).unwrap();
    let [alice, staff, bob, _] = callers(&world);
    let time = SetTime::To(Time { secs: 5, nanos: 5 });
    let to = SetAttr { mtime: time, ..SetAttr::default() };
    let now = SetAttr { mtime: SetTime::ServerNow, ..SetAttr::default() };
    for other in [&staff, &bob] {
        for set in [mode(0o600), to, owner(BOB, BOB), owner(ALICE, STAFF)] {
            assert_eq!(other.setattr("dir/file", set), Err(FsError::NotPermitted), "{set:?}");
        }
        assert_eq!(other.setattr("dir/file", now), Ok(()), "who may write may touch");
    }
    world.chmod("dir/file", 0o644).unwrap();
    assert_eq!(bob.setattr("dir/file", now), Err(FsError::Access));
    alice.setattr("dir/file", to).unwrap();
    alice.chmod("dir/file", 0o640).unwrap();
    assert_eq!(alice.chown("dir/file", BOB, STAFF), Err(FsError::NotPermitted));
    let group = |gid| SetAttr { gid: Some(gid), ..SetAttr::default() };
    assert_eq!(alice.setattr("dir/file", group(7)), Err(FsError::NotPermitted), "a foreign group");
    world.user(ALICE, ALICE, &[7]).setattr("dir/file", group(7)).unwrap();
    assert_eq!(world.stat("dir/file").gid, 7);
}

#[test]
fn privileges_go_when_owner_or_content_change() {
    let world = world();
    let [alice, ..] = callers(&world);
    world.chmod("dir/file", 0o6777).unwrap();
    alice.write("dir/file", 0, b"x").unwrap();
    assert_eq!(world.stat("dir/file").mode, 0o777);
    world.chmod("dir/file", 0o6767).unwrap();
    alice.truncate("dir/file", 1).unwrap();
    assert_eq!(world.stat("dir/file").mode, 0o2767, "setgid without x is another thing");
    world.chmod("dir/file", 0o6755).unwrap();
    world.chown("dir/file", BOB, STAFF).unwrap();
    assert_eq!(world.stat("dir/file").mode, 0o755);
    world.chmod("dir/file", 0o6755).unwrap();
    world.write("dir/file", 0, b"x").unwrap();
    assert_eq!(world.stat("dir/file").mode, 0o6755, "the superuser's writes leave it");
    let bob = world.user(BOB, BOB, &[]);
    bob.chmod("dir/file", 0o2755).unwrap();
    assert_eq!(world.stat("dir/file").mode, 0o755, "setgid is for members");
}

#[test]
fn in_a_sticky_directory_entries_belong_to_their_owners() {
    let world = world();
    world.chown("dir", 0, 0).unwrap();
    world.chmod("dir", 0o1777).unwrap();
    let [alice, _, bob, _] = callers(&world);
    bob.put("dir/bobs", "");
    alice.put("dir/alices", "");
    assert_eq!(bob.remove("dir/alices"), Err(FsError::NotPermitted));
    assert_eq!(bob.rename("dir/alices", "dir/x"), Err(FsError::NotPermitted));
    assert_eq!(bob.rename("dir/bobs", "dir/alices"), Err(FsError::NotPermitted));
    bob.mkdir("dir/bobdir").unwrap();
    assert_eq!(alice.rmdir("dir/bobdir"), Err(FsError::NotPermitted));
    bob.rename("dir/bobs", "dir/bob2").unwrap();
    bob.remove("dir/bob2").unwrap();
    alice.remove("dir/file").unwrap();
    world.chown("dir", BOB, 0).unwrap();
    bob.remove("dir/alices").unwrap();
    world.rmdir("dir/bobdir").unwrap();
}

#[test]
fn new_objects_are_the_callers_or_take_the_group_of_a_setgid_directory() {
    let mut world = world();
    world.chmod("dir", 0o777).unwrap();
    let bob = world.user(BOB, BOB, &[]);
    let made = bob.create("dir/plain", CreateHow::Guarded(mode(0o666))).unwrap().attr;
    assert_eq!((made.uid, made.gid, made.mode), (BOB, BOB, 0o666));
    world.chmod("dir", 0o2777).unwrap();
    let made = bob.create("dir/setgid", CreateHow::Guarded(mode(0o2755))).unwrap().attr;
    assert_eq!((made.uid, made.gid, made.mode), (BOB, STAFF, 0o755), "no member of staff");
    let made = bob.mkdir("dir/sub").unwrap().attr;
    assert_eq!((made.uid, made.gid, made.mode), (BOB, STAFF, 0o2755));
    let made = bob.symlink("x", "dir/link").unwrap().attr;
    assert_eq!((made.uid, made.gid, made.mode), (BOB, STAFF, 0o777));
    drop(bob);
    world.reopen();
    assert_eq!(world.stat("dir/sub").mode, 0o2755);
}

/// As macOS sends it with all that it makes: an owner, and the group of the directory.
#[test]
fn an_owner_that_is_not_the_callers_to_give_is_left_out() {
    let world = world();
    world.chmod("dir", 0o777).unwrap();
    let set =
        SetAttr { uid: Some(ALICE), gid: Some(STAFF), mode: Some(0o640), ..SetAttr::default() };
    let made = |user: &Client, name: &str| {
        let file = user.create(format!("dir/{name}"), CreateHow::Unchecked(set)).unwrap().attr;
        let node = user.make(format!("dir/{name}.fifo"), NewNode::Fifo, set).unwrap().attr;
        assert_eq!((file.uid, file.gid, file.mode), (node.uid, node.gid, node.mode));
        (file.uid, file.gid)
    };
    assert_eq!(made(&world.user(BOB, BOB, &[]), "stranger"), (BOB, BOB));
    assert_eq!(made(&world.user(BOB, BOB, &[STAFF]), "member"), (BOB, STAFF));
    assert_eq!(made(&world.user(0, 0, &[]), "root"), (ALICE, STAFF));
}

#[test]
fn devices_are_for_the_superuser() {
    let world = world();
    world.chmod("dir", 0o777).unwrap();
    let device = acetate::vfs::Device { major: 1, minor: 3 };
    let [_, _, bob, _] = callers(&world);
    for node in [NewNode::Character(device), NewNode::Block(device)] {
        let made = bob.make("dir/dev", node.clone(), mode(0o600));
        assert_eq!(made.err(), Some(FsError::NotPermitted));
        let made = world.make("dir/dev", node, mode(0o600)).unwrap();
        assert_eq!(made.attr.rdev, device);
        world.remove("dir/dev").unwrap();
    }
    bob.make("dir/pipe", NewNode::Fifo, mode(0o600)).unwrap();
    bob.make("dir/sock", NewNode::Socket, mode(0o600)).unwrap();
}

#[test]
fn moving_a_directory_needs_write_permission_on_it() {
    let world = world();
    world.chmod("dir", 0o777).unwrap();
    world.mkdir("dir/locked").unwrap();
    world.mkdir("dir/there").unwrap();
    world.chmod("dir/there", 0o777).unwrap();
    let [_, _, bob, _] = callers(&world);
    bob.rename("dir/locked", "dir/renamed").unwrap();
    assert_eq!(bob.rename("dir/renamed", "dir/there/x"), Err(FsError::Access));
    world.chmod("dir/renamed", 0o777).unwrap();
    bob.rename("dir/renamed", "dir/there/x").unwrap();
}
