//! The merged tree, and what the session changed of it, written elsewhere.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use acetate::inspect::InspectError;
use acetate::inspect::export::check_place;
use acetate::inspect::opened::OpenSession;
use acetate::overlay::CopyLimits;
use acetate::vfs::{Device, NewNode, SetAttr, Time};

use crate::support::client::mode;
use crate::support::exported::{
    assert_exports, assert_same, dir_of, extract, merged, on_host, options, tar_of,
};
use crate::support::world::{Setup, World};

const TREE: &str = r#"
    dir/file 640 "content"
    dir/other "other"
    dir/sub/deep "deep"
    dir/sub/linked = dir/other
    gone/a "a"
    gone/b/c "b"
    hard/one "linked"
    hard/two = hard/one
    hard/three = hard/one
    far/off/three = hard/one
    link -> dir/file
    pipe 600 fifo
    kept/ 711
    kept/file "kept"
"#;

fn open(world: &World) -> OpenSession {
    let base = world.base();
    OpenSession::open(&world.session(), base.exists().then_some(&*base)).unwrap()
}

#[track_caller]
fn check(world: &World) {
    assert_exports(&world.session(), &world.base());
}

/// The names in a layer, in their order.
fn layer(world: &World) -> Vec<String> {
    let (archive, _) = tar_of(&open(world), &options("/", true)).unwrap();
    names(&archive)
}

fn names(archive: &[u8]) -> Vec<String> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().unwrap();
    let name = |entry: std::io::Result<tar::Entry<'_, _>>| {
        String::from_utf8_lossy(&entry.unwrap().path_bytes()).into_owned()
    };
    entries.map(name).collect()
}

#[test]
fn an_untouched_session_is_the_base_and_changes_nothing() {
    let world = World::new(TREE);
    check(&world);
    assert_eq!(layer(&world), ["./"]);
}

#[test]
fn all_kinds_of_objects_and_attributes() {
    let world = World::new(TREE);
    world.utimes("dir/file", Time { secs: 5, nanos: 6 }).unwrap();
    world.utimes("dir/other", Time { secs: 1_700_000_000, nanos: 999_999_999 }).unwrap();
    world.chmod("dir/sub", 0o2750).unwrap();
    world.put("program", "#!/bin/sh");
    world.chmod("program", 0o6755).unwrap();
    world.chown("program", 123, 3_000_000).unwrap();
    world.chmod("program", 0o6755).unwrap();
    world.symlink("x".repeat(200), "long-link").unwrap();
    world.make("another-pipe", NewNode::Fifo, mode(0o640)).unwrap();
    world.link("long-link", "dir/long-link").unwrap();
    world.link("program", "dir/program").unwrap();
    world.mkdir("empty").unwrap();
    world.mkdir("locked").unwrap();
    world.put("locked/in", "it");
    world.chmod("locked", 0).unwrap();
    world.put("nothing", "");
    world.put("many", &"0123456789".repeat(300_000));
    if rustix::process::geteuid().is_root() {
        let device = NewNode::Character(Device { major: 1, minor: 3 });
        world.make("device", device, SetAttr::default()).unwrap();
    }
    check(&world);
}

#[test]
fn names_that_are_long_or_no_text() {
    let world = World::new(TREE);
    let long = "l".repeat(255);
    let chain = |top: &str| {
        let mut path = top.to_owned();
        world.mkdir(&path).unwrap();
        for _ in 0..9 {
            path = format!("{path}/{long}");
            world.mkdir(&path).unwrap();
        }
        path
    };
    // Nothing is made at a path as long as this, but directories can be moved there.
    let (upper, lower) = (chain(&long), chain("lower"));
    world.put(format!("{lower}/file"), "far down");
    world.rename("lower", format!("{upper}/lower")).unwrap();
    let path = format!("{upper}/{lower}");
    world.link(format!("{path}/file"), "near").unwrap();
    world.put(&b"not \xff text\n"[..], "odd");
    world.put(&[&b"\xfe"[..], &[b'z'; 200]].concat()[..], "odd and long");
    world.put("\u{e9}\u{4e16}".repeat(30), "text beyond ASCII");
    // GNU tar takes no such long paths at once, so that ours is read by itself here.
    let (archive, _) = tar_of(&open(&world), &options("/", false)).unwrap();
    assert!(names(&archive).contains(&format!("{path}/file")));
    let opened = open(&world);
    let to = world.scratch().join("filled");
    let done = dir_of(&opened, &options("/", false), &to).unwrap();
    assert_eq!((done.links, done.left_out), (5, 0));
    assert_eq!(fs::metadata(to.join("near")).unwrap().nlink(), 2);
    world.rm_rf(&long);
    check(&world);
}

#[test]
fn sparse_files_keep_their_holes_in_a_directory() {
    let copy_up = CopyLimits::of(1 << 16, 1 << 16);
    let mut world = World::with(Setup { base: Some(TREE.to_owned()), copy_up, ..Setup::default() });
    let base = world.change_base();
    let file = fs::File::create(base.join("sparse")).unwrap();
    file.set_len(8 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"in the middle", 4 << 20).unwrap();
    fs::copy(base.join("sparse"), base.join("pending")).unwrap();
    let pending = fs::OpenOptions::new().write(true).open(base.join("pending")).unwrap();
    pending.set_len(0).unwrap();
    pending.set_len(8 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&pending, b"below", 6 << 20).unwrap();
    world.put("born", "begin");
    world.truncate("born", 8 << 20).unwrap();
    world.write("born", 5 << 20, b"more").unwrap();
    world.write("pending", 1 << 20, b"above").unwrap();
    let opened = open(&world);
    let to = world.scratch().join("filled");
    dir_of(&opened, &options("/", false), &to).unwrap();
    assert_same(&on_host(&to), &merged(&opened), "the directory");
    for name in ["sparse", "pending", "born"] {
        let used = fs::metadata(to.join(name)).unwrap().blocks() * 512;
        assert!(used < 1 << 19, "{name} takes {used} bytes");
    }
    let (archive, _) = tar_of(&opened, &options("/", false)).unwrap();
    extract(&archive, &world.scratch().join("whole"));
    assert_same(&on_host(&world.scratch().join("whole")), &merged(&opened), "the archive");
}

#[test]
fn what_is_gone_replaced_or_made_anew() {
    let world = World::new(TREE);
    world.remove("dir/file").unwrap();
    world.rm_rf("gone");
    world.mkdir("gone").unwrap();
    world.put("gone/a", "another a");
    world.remove("link").unwrap();
    world.mkdir("link").unwrap();
    world.put("link/in", "it");
    world.rm_rf("kept");
    world.put("kept", "a file");
    check(&world);
    let names = layer(&world);
    for name in ["dir/.wh.file", "gone/.wh..wh..opq", "gone/a", "link/in", "kept"] {
        assert!(names.iter().any(|n| n == name), "{name} is not in {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("hard")), "{names:?}");
    assert!(!names.iter().any(|name| name == "gone/.wh.b"), "{names:?}");
}

#[test]
fn directories_that_moved_are_written_whole() {
    let mut world = World::new(TREE);
    world.rename("dir/sub", "moved").unwrap();
    check(&world);
    world.rename("gone", "dir/sub").unwrap();
    world.put("dir/sub/new", "new");
    world.remove("dir/sub/a").unwrap();
    check(&world);
    world.rm_rf("kept");
    world.rename("hard", "kept").unwrap();
    check(&world);
    world.reopen();
    world.rename("moved", "dir/sub/b/moved").unwrap();
    check(&world);
    // A new directory where one moved away.
    world.mkdir("gone").unwrap();
    world.put("gone/a", "another");
    check(&world);
}

#[test]
fn names_of_one_file_in_the_base_stay_names_of_one() {
    let world = World::new(TREE);
    world.write("hard/one", 0, b"L").unwrap();
    check(&world);
    world.remove("hard/two").unwrap();
    check(&world);
    world.link("far/off/three", "fourth").unwrap();
    check(&world);
    let world = World::new(TREE);
    world.rename("far/off", "away").unwrap();
    check(&world);
    let names = layer(&world);
    assert!(names.iter().any(|name| name == "hard/one"), "with its other names: {names:?}");
}

/// A person's hard link, in a directory that the session has not touched.
#[test]
fn a_name_that_a_copied_up_file_got_in_the_base_is_in_a_layer() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"C").unwrap();
    let base = world.change_base();
    fs::hard_link(base.join("dir/file"), base.join("far/off/new")).unwrap();
    assert_eq!(world.cat("far/off/new"), "Content");
    check(&world);
    let names = layer(&world);
    assert!(names.iter().any(|name| name == "far/off/new"), "{names:?}");
    assert!(!names.iter().any(|name| name == "far/off/three"), "{names:?}");
}

#[test]
fn rows_of_other_implementations_without_directories() {
    let mut world = World::new(TREE);
    world.close();
    let sql = "INSERT INTO fs_whiteout (path, created_at) VALUES ('/dir/sub/deep', 0)";
    world.sql().execute(sql, []).unwrap();
    check(&world);
    assert!(layer(&world).iter().any(|name| name == "dir/sub/.wh.deep"));
    world.open_again();
}

#[test]
fn only_what_is_below_a_path() {
    let world = World::new(TREE);
    world.put("dir/new", "new");
    let opened = open(&world);
    let dir = world.scratch();
    let (archive, _) = tar_of(&opened, &options("dir/sub", false)).unwrap();
    assert_eq!(names(&archive), ["./", "deep", "linked"]);
    let (archive, _) = tar_of(&opened, &options("dir/file", false)).unwrap();
    assert_eq!(names(&archive), ["file"]);
    let (archive, _) = tar_of(&opened, &options("dir", true)).unwrap();
    assert_eq!(names(&archive), ["./", "new"]);
    let (archive, _) = tar_of(&opened, &options("dir/sub", true)).unwrap();
    assert_eq!(names(&archive), [""; 0]);
    dir_of(&opened, &options("dir/file", false), &dir.join("one")).unwrap();
    assert_eq!(fs::read_to_string(dir.join("one/file")).unwrap(), "content");
    let missing = tar_of(&opened, &options("none", false)).unwrap_err();
    assert_eq!(missing.to_string(), "/none: no such file or directory");
}

#[test]
fn a_name_that_a_layer_cannot_tell_is_refused() {
    let world = World::new(TREE);
    world.put("dir/.wh.file", "mine");
    let opened = open(&world);
    let refused = tar_of(&opened, &options("/", true)).unwrap_err().to_string();
    assert!(refused.starts_with("/dir/.wh.file: in a layer"), "{refused}");
    assert!(tar_of(&opened, &options("/", false)).is_ok());
}

#[test]
fn what_cannot_be_read_or_held_is_left_out() {
    let copy_up = CopyLimits::of(700, 512);
    let base = Some(format!("{TREE}\nlarge \"{}\"", "x".repeat(5000)));
    let setup = Setup { base, chunk_bytes: 512, copy_up, ..Setup::default() };
    let mut world = World::with(setup);
    world.make("socket", NewNode::Socket, mode(0o600)).unwrap();
    world.write("large", 0, b"y").unwrap();
    fs::write(world.change_base().join("large"), "changed").unwrap();
    let opened = open(&world);
    let (archive, left_out) = tar_of(&opened, &options("/", false)).unwrap();
    assert_eq!(
        left_out,
        ["/large: input/output error", "/socket: an archive cannot hold a socket"]
    );
    assert!(names(&archive).iter().any(|name| name == "pipe"));
    let to = world.scratch().join("filled");
    let done = dir_of(&opened, &options("/", false), &to).unwrap();
    assert_eq!(done.left_out, 1);
    assert!(to.join("socket").symlink_metadata().is_ok() && !to.join("large").exists());
}

#[test]
fn places_that_must_not_be_written_to() {
    let world = World::new(TREE);
    let opened = open(&world);
    let refused = |path: &Path| check_place(&opened, path).unwrap_err().to_string();
    let base = world.base();
    assert!(refused(&base.join("new.tar")).ends_with("in the base, which is never written to"));
    assert!(refused(&base).ends_with("in the base, which is never written to"));
    let link = world.scratch().join("link");
    std::os::unix::fs::symlink(&base, &link).unwrap();
    assert!(refused(&link.join("out")).contains("in the base"));
    assert!(refused(&world.session()).ends_with("is a file of the session"));
    assert!(check_place(&opened, &world.scratch().join("new.tar")).is_ok());
    let full = world.scratch().join("full");
    fs::create_dir_all(full.join("of")).unwrap();
    let refused = dir_of(&opened, &options("/", false), &full).unwrap_err();
    assert!(matches!(refused, InspectError::Invalid { .. }), "{refused}");
    // An empty directory is taken, with its own permissions in the end.
    let empty = world.scratch().join("empty");
    fs::create_dir(&empty).unwrap();
    dir_of(&opened, &options("/", false), &empty).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&empty), mode(&base));
}

#[test]
fn a_file_that_got_further_names_in_the_base_is_one_file() {
    for (tree, names) in [("", 4), ("c/e = b", 5)] {
        let mut world = World::new(&format!("b \"one\"\nc/ 755\nm/ 755\n{tree}"));
        world.link("b", "m/e").unwrap();
        let base = world.change_base();
        for name in ["dd", "a"] {
            fs::hard_link(base.join("b"), base.join(name)).unwrap();
        }
        world.reopen();
        let to = world.scratch().join("out");
        dir_of(&open(&world), &options("/", false), &to).unwrap();
        assert_eq!(fs::metadata(to.join("m/e")).unwrap().nlink(), names);
    }
}
