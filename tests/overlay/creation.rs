//! CREATE in its three ways, special files, symbolic links as data, and names.

use acetate::vfs::{CreateHow, CreateVerifier, Device, FileKind, FsError, NewNode, SetAttr, Vfs};

use super::paths;
use crate::support::client::{mode, size};
use crate::support::world::World;

const ONE: CreateHow = CreateHow::Exclusive(CreateVerifier(*b"verifier"));
const OTHER: CreateHow = CreateHow::Exclusive(CreateVerifier(*b"VERIFIER"));

#[test]
fn an_exclusive_create_happens_once_over_a_restart_too() {
    let mut world = World::new("file \"base\"");
    let made = world.create("new", ONE).unwrap();
    assert_eq!(made.attr.size, 0);
    world.reopen();
    let again = world.create("new", ONE).unwrap();
    assert_eq!(again.object, made.object);
    assert_eq!(world.create("new", OTHER).err(), Some(FsError::Exists));
    assert_eq!(world.create("file", ONE).err(), Some(FsError::Exists));
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM acetate_op"), 1);
    // Once its attributes are set the file is like any other.
    world.chmod("new", 0o644).unwrap();
    assert_eq!(world.create("new", ONE).err(), Some(FsError::Exists));
}

#[test]
fn an_unchecked_create_takes_what_is_there() {
    let world = World::new("file 600 \"base\"\ndir/\nlink -> file");
    let file = world.at("file");
    let taken = world.create("file", CreateHow::Unchecked(mode(0o777))).unwrap();
    assert_eq!((taken.object, taken.attr.mode), (file.clone(), 0o600));
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM acetate_op"), 0, "nothing changed");
    let cut = world.create("file", CreateHow::Unchecked(size(2))).unwrap();
    assert_eq!((cut.object, cut.attr.size), (file, 2));
    assert_eq!(world.cat("file"), "ba");
    for path in ["dir", "link"] {
        let made = world.create(path, CreateHow::Unchecked(size(0)));
        assert_eq!(made.err(), Some(FsError::Exists), "{path}");
    }
}

#[test]
fn a_guarded_create_wants_the_name_free() {
    let world = World::new("file \"base\"\ndir/");
    let how = CreateHow::Guarded(SetAttr { size: Some(5), ..mode(0o4751) });
    let made = world.create("new", how).unwrap();
    assert_eq!((made.attr.mode, made.attr.size), (0o4751, 5));
    assert_eq!(world.read("new").unwrap(), [0; 5]);
    for path in ["file", "dir", "new"] {
        assert_eq!(world.create(path, how).err(), Some(FsError::Exists));
        assert_eq!(world.mkdir(path).err(), Some(FsError::Exists));
        assert_eq!(world.symlink("x", path).err(), Some(FsError::Exists));
        assert_eq!(world.make(path, NewNode::Fifo, mode(0o600)).err(), Some(FsError::Exists));
    }
}

#[test]
fn special_files_are_rows_and_nothing_else() {
    let mut world = World::new("pipe 600 fifo");
    let device = Device { major: 4095, minor: 1_048_575 };
    let nodes = [
        ("char", NewNode::Character(device), FileKind::Character),
        ("block", NewNode::Block(device), FileKind::Block),
        ("fifo", NewNode::Fifo, FileKind::Fifo),
        ("sock", NewNode::Socket, FileKind::Socket),
    ];
    for (path, node, kind) in &nodes {
        let made = world.make(path, node.clone(), mode(0o640)).unwrap();
        assert_eq!((made.attr.kind, made.attr.mode, made.attr.size), (*kind, 0o640, 0));
    }
    world.reopen();
    for (path, _, kind) in &nodes {
        let attr = world.stat(path);
        let is_device = matches!(kind, FileKind::Character | FileKind::Block);
        let rdev = if is_device { device } else { Device::default() };
        assert_eq!((attr.kind, attr.rdev), (*kind, rdev), "{path}");
    }
    // Whatever is a pipe, in whichever layer, blocks nobody.
    for path in ["fifo", "pipe", "char"] {
        assert_eq!(world.read(path).err(), Some(FsError::Invalid));
        assert_eq!(world.write(path, 0, b"x"), Err(FsError::Invalid));
        assert_eq!(world.truncate(path, 0), Err(FsError::Invalid));
        assert_eq!(world.readlink(path).err(), Some(FsError::Invalid));
    }
}

#[test]
fn symbolic_links_are_data() {
    let world = World::new("out -> /etc/passwd\nup -> ../../x\nloop -> loop\ndir/");
    assert_eq!(&world.readlink("out").unwrap()[..], b"/etc/passwd");
    assert_eq!(&world.readlink("loop").unwrap()[..], b"loop");
    for target in ["", "nul\0byte"] {
        assert_eq!(world.symlink(target, "bad").err(), Some(FsError::Invalid));
    }
    assert_eq!(world.symlink("x".repeat(4097), "bad").err(), Some(FsError::NameTooLong));
    let long = "x".repeat(4096);
    world.symlink(&long, "long").unwrap();
    assert_eq!(world.readlink("long").unwrap(), long.as_bytes());
    world.symlink(b"\xff\xfe", "bytes").unwrap();
    assert_eq!(&world.readlink("bytes").unwrap()[..], b"\xff\xfe");
    for link in ["out", "up", "loop", "long"] {
        assert_eq!(world.find(format!("{link}/x")).err(), Some(FsError::NotDirectory));
        assert_eq!(world.read(link).err(), Some(FsError::Invalid));
    }
    assert_eq!(world.stat("out").size, 11);
    assert_eq!(world.readlink("dir").err(), Some(FsError::Invalid));
}

#[test]
fn names_are_any_bytes_up_to_255() {
    let mut world = World::new("dir/");
    let longest = vec![b'n'; 255];
    let names: [&[u8]; 7] =
        [b"\xff\xfe", "\u{e4}\u{f6}".as_bytes(), b"a\xcc\x88", b" ", b"a\nb", b"...", &longest];
    for name in names {
        world.mkdir([b"dir/", name].concat()).unwrap();
        world.put([b"dir/", name, b"/x"].concat(), "x");
    }
    world.reopen();
    for name in names {
        assert_eq!(world.cat([b"dir/", name, b"/x"].concat()), "x");
        world.rename([b"dir/", name].concat(), b"moved").unwrap();
        world.rename(b"moved", [b"dir/", name].concat()).unwrap();
    }
    assert_eq!(world.ls("dir").len(), names.len());
    let text: i64 = world
        .sql_value("SELECT count(*) FROM fs_dentry WHERE typeof(name) = 'blob' AND name <> 'x'");
    assert_eq!(text, 1, "only what is no UTF-8 is stored as bytes");
}

#[test]
fn bad_names_are_refused_by_every_procedure_that_takes_one() {
    let world = World::new("file \"x\"\ndir/sub/");
    let (dir, file) = (world.at("dir"), world.at("file"));
    let (overlay, caller) = (&world.overlay, &world.caller);
    let long = vec![b'n'; 256];
    let bad: [(&[u8], FsError); 6] = [
        (b"", FsError::Invalid),
        (b"a/b", FsError::Invalid),
        (b"/", FsError::Invalid),
        (b"nul\0", FsError::Invalid),
        (&long, FsError::NameTooLong),
        (&[b'/'; 300], FsError::NameTooLong),
    ];
    let dots: [(&[u8], FsError); 2] = [(b".", FsError::Invalid), (b"..", FsError::Invalid)];
    let before = paths(&world);
    for (name, error) in bad.into_iter().chain(dots) {
        let how = CreateHow::Unchecked(SetAttr::default());
        let fifo = NewNode::Fifo;
        let results = [
            world.wait(overlay.create(caller, &dir, name, how)).result.map(drop),
            world.wait(overlay.create(caller, &dir, name, ONE)).result.map(drop),
            world.wait(overlay.make_node(caller, &dir, name, fifo, mode(0))).result.map(drop),
            world
                .wait(overlay.make_node(caller, &dir, name, NewNode::Directory, mode(0)))
                .result
                .map(drop),
            world.wait(overlay.remove(caller, &dir, name)).result,
            world.wait(overlay.rmdir(caller, &dir, name)).result,
            world.wait(overlay.rename(caller, (&dir, name), (&dir, b"x"))).result,
            world.wait(overlay.rename(caller, (&dir, b"sub"), (&dir, name))).result,
            world.wait(overlay.link(caller, &file, &dir, name)).result,
        ];
        for (n, result) in results.into_iter().enumerate() {
            assert_eq!(result, Err(error), "{n}: {}", name.escape_ascii());
        }
        let looked_up = world.lookup(&dir, name).map(|found| found.object);
        match name {
            b"." => assert_eq!(looked_up, Ok(dir.clone())),
            b".." => assert_eq!(looked_up, Ok(world.at(""))),
            _ => assert_eq!(looked_up, Err(error), "LOOKUP {}", name.escape_ascii()),
        }
    }
    assert_eq!(paths(&world), before);
}

#[test]
fn a_read_only_export_refuses_every_change() {
    let mut world = World::new("file \"x\"\ndir/sub/");
    world.put("born", "born");
    world.reopen_read_only();
    let refused = Err(FsError::ReadOnly);
    assert_eq!(world.write("file", 0, b"y"), refused);
    assert_eq!(world.write("born", 0, b"y"), refused);
    assert_eq!(world.chmod("dir", 0o700), refused);
    assert_eq!(world.truncate("born", 0), refused);
    assert_eq!(world.create("new", ONE).map(drop), refused);
    assert_eq!(world.mkdir("new").map(drop), refused);
    assert_eq!(world.symlink("x", "new").map(drop), refused);
    assert_eq!(world.make("new", NewNode::Fifo, mode(0o600)).map(drop), refused);
    assert_eq!(world.remove("file"), refused);
    assert_eq!(world.rmdir("dir/sub"), refused);
    assert_eq!(world.rename("file", "dir/x"), refused);
    assert_eq!(world.link("file", "new"), refused);
    assert_eq!(world.cat("born"), "born");
    let granted = world.access("dir", 0x3f) | world.access("file", 0x3f);
    assert_eq!(granted & 0x1c, 0, "no change is promised");
}
