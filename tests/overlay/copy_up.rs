//! Reading leaves the session alone; the first change brings an object up as it is.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

use acetate::vfs::{Attr, FileKind, Time};

use super::assert_spec_reader_agrees;
use crate::support::tree::read_tree;
use crate::support::world::World;

const TREE: &str = r#"
    top/ 750
    top/mid/ 711
    top/mid/file 640 "content"
    top/mid/sibling "sibling"
    top/link -> mid/file
    exec 755 "run"
"#;

/// The bytes of the session file and its log.
fn session_bytes(world: &World) -> (Vec<u8>, Vec<u8>) {
    let wal = world.session().with_extension("db-wal");
    (fs::read(world.session()).unwrap(), fs::read(wal).unwrap_or_default())
}

#[test]
fn reading_leaves_the_session_byte_for_byte_as_it_is() {
    let world = World::new(TREE);
    world.put("delta", "a delta file too");
    world.tick(10);
    let before = session_bytes(&world);
    world.write("top/mid/file", 3, b"").unwrap();
    world.setattr("top/mid/file", Default::default()).unwrap();
    read_tree(&world);
    assert_eq!(world.cat("top/mid/file"), "content");
    assert_eq!(world.cat("delta"), "a delta file too");
    world.readlink("top/link").unwrap();
    world.access("top/mid/file", 0x3f);
    world.mkdir("top").unwrap_err();
    world.remove("missing").unwrap_err();
    assert!(session_bytes(&world) == before, "the session file changed");
}

#[test]
fn a_copied_file_keeps_mode_owner_times_and_content() {
    let mut world = World::new(TREE);
    let before = world.stat("top/mid/file");
    world.tick(5);
    world.chmod("top/mid/file", 0o600).unwrap();
    let after = world.stat("top/mid/file");
    assert_eq!((after.uid, after.gid, after.size), (before.uid, before.gid, before.size));
    assert_eq!((after.atime, after.mtime), (before.atime, before.mtime));
    assert_eq!(after.mode, 0o600);
    assert!(after.ctime > before.ctime);
    assert_eq!(world.cat("top/mid/file"), "content");
    world.reopen();
    assert_eq!(world.stat("top/mid/file").mtime, before.mtime);
    assert_spec_reader_agrees(&world);
}

#[test]
fn missing_parents_come_up_with_the_bases_attributes() {
    let mut world = World::new(TREE);
    // What a directory takes on disk is the host filesystem's affair.
    let stat = |world: &World, path| Attr { used: 0, ..world.stat(path) };
    let before = (stat(&world, "top"), stat(&world, "top/mid"));
    world.write("top/mid/file", 0, b"C").unwrap();
    assert_eq!((stat(&world, "top"), stat(&world, "top/mid")), before);
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM fs_inode"), 4);
    world.reopen();
    assert_eq!((stat(&world, "top"), stat(&world, "top/mid")), before);
    assert_eq!(world.ls("top/mid"), ["file", "sibling"]);
    assert_spec_reader_agrees(&world);
}

#[test]
fn a_directory_keeps_its_size_over_copy_up() {
    // So many names that no filesystem shows the size of an empty directory.
    let tree: String = (0..2_000).map(|i| format!("wide/a-rather-long-name-{i} \"\"\n")).collect();
    let world = World::new(&tree);
    let before = world.stat("wide").size;
    world.chmod("wide", 0o700).unwrap();
    assert_eq!(world.stat("wide").size, before);
    world.put("wide/new", "");
    assert_eq!(world.stat("wide").size, before);
}

#[test]
fn origins_say_what_the_base_object_was() {
    let world = World::new(TREE);
    let host = world.base().join("top/mid/file").metadata().unwrap();
    world.write("top/mid/file", 0, b"C").unwrap();
    let row = world.sql_list(&format!(
        "SELECT concat_ws(' ', CAST(base_path AS TEXT), dev, ino, size, mtime, mtime_nsec, ctime)
         FROM acetate_origin WHERE base_ino = {}",
        host.ino()
    ));
    let (dev, ino, size) = (host.dev(), host.ino(), host.size());
    let times = format!("{} {} {}", host.mtime(), host.mtime_nsec(), host.ctime());
    assert_eq!(row, [format!("top/mid/file {dev} {ino} {size} {times}")]);
    let spec: i64 = world.sql_value(
        "SELECT base_ino FROM fs_origin WHERE delta_ino =
           (SELECT ino FROM fs_dentry WHERE name = 'file')",
    );
    assert_eq!(spec as u64, host.ino());
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM fs_origin"), 3, "its parents too");
}

#[test]
fn holes_stay_holes() {
    let mut world = World::new("dir/");
    let base = world.change_base();
    let file = fs::File::create(base.join("dir/sparse")).unwrap();
    file.write_all_at(b"head", 0).unwrap();
    file.write_all_at(b"tail", 40 << 20).unwrap();
    drop(file);
    world.write("dir/sparse", 20 << 20, b"middle").unwrap();
    let content = world.read("dir/sparse").unwrap();
    assert_eq!(content.len(), (40 << 20) + 4);
    assert_eq!(&content[..4], b"head");
    assert_eq!(&content[20 << 20..(20 << 20) + 6], b"middle");
    assert_eq!(&content[40 << 20..], b"tail");
    assert_eq!(content.iter().filter(|&&b| b != 0).count(), 14);
    world.finish_copies();
    assert!(world.read("dir/sparse").unwrap() == content);
    let stored: i64 = world.sql_value("SELECT count(*) FROM fs_data");
    assert!(stored < 20, "{stored} chunks for three pieces");
    assert!(world.stat("dir/sparse").used < 4 << 20);
    world.reopen();
    assert!(world.read("dir/sparse").unwrap() == content);
}

#[test]
fn a_cut_copies_no_more_than_what_is_left() {
    let mut world = World::new("");
    let base = world.change_base();
    fs::write(base.join("big"), vec![7; 3 << 20]).unwrap();
    world.truncate("big", 10).unwrap();
    assert_eq!(world.read("big").unwrap(), [7; 10]);
    assert_eq!(world.sql_value::<i64>("SELECT sum(length(data)) FROM fs_data"), 10);
    world.truncate("big", 100).unwrap();
    let content = world.read("big").unwrap();
    assert_eq!(content, [&[7; 10][..], &[0; 90][..]].concat());
}

#[test]
fn symbolic_links_and_pipes_come_up_as_what_they_are() {
    let mut world = World::new("link -> t\u{e4}rget\npipe 640 fifo");
    let time = Time { secs: 1_500_000_000, nanos: 5 };
    world.utimes("link", time).unwrap();
    world.utimes("pipe", time).unwrap();
    world.reopen();
    assert_eq!(&world.readlink("link").unwrap()[..], "t\u{e4}rget".as_bytes());
    assert_eq!((world.stat("link").kind, world.stat("link").mtime), (FileKind::Symlink, time));
    assert_eq!((world.stat("pipe").kind, world.stat("pipe").mode), (FileKind::Fifo, 0o640));
    assert_spec_reader_agrees(&world);
}

#[test]
fn a_rename_or_a_link_changes_no_content_time() {
    let world = World::new(TREE);
    let before = world.stat("exec");
    world.link("exec", "again").unwrap();
    world.rename("exec", "top/exec").unwrap();
    let after = world.stat("top/exec");
    assert_eq!((after.mtime, after.atime, after.mode), (before.mtime, before.atime, before.mode));
    assert_eq!(after.nlink, 2);
}

#[test]
fn the_root_is_counted_once() {
    let world = World::new("a/f \"1\"\nb/f \"2\"\nc/f \"3\"\nfile \"f\"");
    let subdirs = "SELECT subdirs FROM acetate_inode WHERE ino = 1";
    assert_eq!(world.stat("").nlink, 5);
    world.write("a/f", 0, b"x").unwrap();
    // Copied up with what leads there, though no entry of the root has changed.
    assert_eq!(world.sql_value::<i64>(subdirs), 3);
    assert_eq!(world.stat("").nlink, 5);
    world.mkdir("d").unwrap();
    world.rm_rf("a");
    assert_eq!((world.stat("").nlink, world.sql_value::<i64>(subdirs)), (5, 3));
}
