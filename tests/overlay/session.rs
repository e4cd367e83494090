//! What the session file says of what happened, and who else may use it meanwhile.

use acetate::base::DELTA_IDS;
use acetate::vfs::{CreateHow, FileId, FsError, Locator, NewNode, Stability};

use crate::support::client::{mode, size};
use crate::support::world::{START_SECS, World};

const TREE: &str = "dir/file \"file\"\ndir/sub/leaf \"leaf\"\nlink -> x";

/// The audit log, one line a row: procedure, paths, offset and length.
fn log(world: &World) -> Vec<String> {
    world.sql_list(
        "SELECT concat_ws(' ', procedure, CAST(path AS TEXT), CAST(path2 AS TEXT), offset, length)
         FROM acetate_op ORDER BY id",
    )
}

#[test]
fn every_change_leaves_one_row_with_its_paths_as_they_were() {
    let mut world = World::new(TREE);
    world.create("dir/new", CreateHow::Guarded(mode(0o644))).unwrap();
    world.write("dir/new", 5, b"0123456789").unwrap();
    world.mkdir("dir/made").unwrap();
    world.symlink("t", "dir/sym").unwrap();
    world.make("dir/pipe", NewNode::Fifo, mode(0o600)).unwrap();
    world.rename("dir", "moved").unwrap();
    world.chmod("moved/file", 0o600).unwrap();
    world.truncate("moved/sub/leaf", 2).unwrap();
    world.link("moved/new", "again").unwrap();
    world.rename("moved/sub", "sub").unwrap();
    world.write("sub/leaf", 0, b"L").unwrap();
    world.remove("again").unwrap();
    world.rmdir("moved/made").unwrap();
    let expected = [
        "CREATE /dir/new",
        "WRITE /dir/new 5 10",
        "MKDIR /dir/made",
        "SYMLINK /dir/sym",
        "MKNOD /dir/pipe",
        "RENAME /dir /moved",
        "SETATTR /moved/file",
        "SETATTR /moved/sub/leaf 2",
        "LINK /moved/new /again",
        "RENAME /moved/sub /sub",
        "WRITE /sub/leaf 0 1",
        "REMOVE /again",
        "RMDIR /moved/made",
    ];
    assert_eq!(log(&world), expected);
    world.reopen();
    assert_eq!(log(&world), expected);
}

#[test]
fn rows_tell_who_when_and_which_object() {
    let world = World::new(TREE);
    world.chmod("", 0o777).unwrap();
    world.tick(7);
    let user = world.user(1000, 100, &[5]);
    let made = user.mkdir("theirs").unwrap();
    let rows = world.sql_list(
        "SELECT concat_ws(' ', time, time_nsec, client, uid, gid, fileid) FROM acetate_op
         WHERE procedure = 'MKDIR'",
    );
    let (time, id) = (START_SECS + 7, made.attr.fileid.0);
    assert_eq!(rows, [format!("{time} 0 127.0.0.1:700 1000 100 {id}")]);
    world.write("dir/file", 0, b"F").unwrap();
    let id: i64 = world.sql_value("SELECT fileid FROM acetate_op WHERE procedure = 'WRITE'");
    assert_eq!(id as u64, world.stat("dir/file").fileid.0, "the number that the export shows");
}

#[test]
fn what_changes_nothing_or_fails_leaves_no_row() {
    let world = World::new(TREE);
    world.mkdir("dir").unwrap_err();
    world.remove("missing").unwrap_err();
    world.rmdir("dir").unwrap_err();
    world.rename("dir", "dir/sub/x").unwrap_err();
    world.rename("dir", "dir").unwrap();
    world.write("dir/file", 0, b"").unwrap();
    world.setattr("dir/file", Default::default()).unwrap();
    world.create("dir/file", CreateHow::Unchecked(mode(0))).unwrap();
    world.truncate("dir/file", u64::MAX).unwrap_err();
    world.user(9, 9, &[]).chmod("dir/file", 0).unwrap_err();
    assert_eq!(log(&world), Vec::<String>::new());
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM fs_inode"), 1);
}

#[test]
fn a_failed_operation_leaves_nothing_half_done() {
    let world = World::new(TREE);
    // Copies the parents up, then fails at the size.
    let made = world.create("dir/sub/new", CreateHow::Guarded(size(u64::MAX)));
    assert_eq!(made.err(), Some(FsError::TooLarge));
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM fs_inode"), 1);
    assert_eq!(world.ls("dir/sub"), ["leaf"]);
    world.put("dir/sub/new", "");
    assert_eq!(world.ls("dir/sub"), ["leaf", "new"]);
}

#[test]
fn another_program_writes_keys_while_the_tree_is_served() {
    let world = World::new(TREE);
    let other = world.sql();
    for n in 0..50 {
        let sql = "INSERT INTO kv_store (key, value, updated_at) VALUES (?, '1', unixepoch())
                   ON CONFLICT(key) DO UPDATE SET value = excluded.value";
        other.execute(sql, [format!("key{n}")]).unwrap();
        world.put(format!("dir/file{n}"), "content");
        let seen: i64 = other
            .query_row("SELECT count(*) FROM fs_dentry WHERE name LIKE 'file_%'", [], |r| r.get(0))
            .unwrap();
        assert_eq!(seen, n + 1);
    }
    drop(other);
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM kv_store"), 50);
}

#[test]
fn a_copy_of_the_files_of_a_killed_server_holds_all_that_was_answered() {
    let world = World::new(TREE);
    for n in 0..20 {
        world.put(format!("dir/new{n}"), &format!("content {n}"));
    }
    let file = world.at("dir/new3");
    world.write_to(&file, 0, b"CONTENT", Stability::FileSync).result.unwrap();
    let copy = world.scratch().join("copy.db");
    for suffix in ["", "-wal"] {
        let from = format!("{}{suffix}", world.session().display());
        std::fs::copy(from, format!("{}{suffix}", copy.display())).unwrap();
    }
    crate::support::check::assert_consistent(&copy);
    let tree = crate::support::spec_reader::read_tree(&copy, &world.base());
    assert_eq!(tree, crate::support::tree::read_tree(&world));
}

/// A chain of `depth` directories that another implementation made, and the handle of the last.
fn deep_chain(world: &mut World, depth: i64) -> Locator {
    world.close();
    let sql = format!(
        "BEGIN;
         WITH RECURSIVE n(ino) AS (SELECT 2 UNION ALL SELECT ino + 1 FROM n WHERE ino <= {depth})
         INSERT INTO fs_inode (ino, mode, nlink, atime, mtime, ctime)
           SELECT ino, 16877, 1, 1, 1, 1 FROM n;
         INSERT INTO fs_dentry (name, parent_ino, ino)
           SELECT 'd', ino - 1, ino FROM fs_inode WHERE ino > 1;
         COMMIT;"
    );
    world.sql().execute_batch(&sql).unwrap();
    world.open_again();
    Locator::Delta(FileId(DELTA_IDS + depth as u64 + 1))
}

#[test]
fn directories_too_deep_are_an_error_and_nothing_worse() {
    let mut world = World::plain();
    let last = deep_chain(&mut world, 4200);
    assert_eq!(world.getattr(&last).err(), Some(FsError::NameTooLong));
    let how = CreateHow::Guarded(mode(0o644));
    assert_eq!(world.create_in(&last, b"x", how).result.err(), Some(FsError::NameTooLong));
    // What is there is served; what is made there has a path that is too long.
    let near = Locator::Delta(FileId(DELTA_IDS + 4000));
    world.getattr(&near).unwrap();
    assert_eq!(world.create_in(&near, b"x", how).result.err(), Some(FsError::NameTooLong));
    let near = Locator::Delta(FileId(DELTA_IDS + 2000));
    world.create_in(&near, b"x", how).result.unwrap();
    assert_eq!(world.lookup(&near, "x").unwrap().attr.kind, acetate::vfs::FileKind::Regular);
    let path: String = world.sql_value("SELECT CAST(path AS TEXT) FROM acetate_op");
    assert_eq!(path.len(), 2 * 1999 + 2);
    world.put("shallow", "still served");
    assert_eq!(world.cat("shallow"), "still served");
}

#[test]
fn a_cycle_in_the_rows_ends() {
    let mut world = World::plain();
    world.mkdir("a").unwrap();
    world.mkdir("a/b").unwrap();
    let (a, b) = (world.at("a"), world.at("a/b"));
    let damage =
        format!("UPDATE fs_dentry SET parent_ino = {} WHERE ino = {}", b.fileid().0, a.fileid().0);
    world.close();
    world.sql().execute(&damage, []).unwrap();
    world.open_again();
    for handle in [&a, &b] {
        assert!(world.lookup(handle, "x").is_err());
        assert!(world.create_in(handle, b"x", CreateHow::Guarded(mode(0))).result.is_err());
    }
    world.put("other", "still served");
    assert_eq!(world.cat("other"), "still served");
    // The rows are broken on purpose: mend them for the last look.
    let mend = format!("UPDATE fs_dentry SET parent_ino = 1 WHERE ino = {}", a.fileid().0);
    world.sql().execute(&mend, []).unwrap();
}
