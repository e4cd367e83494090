//! Sessions that another implementation wrote into: small numbers, and only the specification's
//! tables.

use acetate::base::DELTA_IDS;
use acetate::vfs::FsError;

use super::{assert_spec_reader_agrees, paths};
use crate::support::spec_reader;
use crate::support::tree::{assert_same, read_tree};
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "file"
    dir/sub/leaf "leaf"
    dir/sub/other "other"
    gone/x "x"
    keep "keep"
"#;

/// A copy of /dir and /dir/sub with a changed leaf, a new directory, and a deletion.
const FOREIGN: &str = "
    INSERT INTO fs_inode (ino, mode, nlink, size, atime, mtime, ctime) VALUES
      (2, 16877, 1, 0, 5, 5, 5), (3, 16877, 1, 0, 5, 5, 5), (4, 33188, 1, 7, 5, 5, 5),
      (5, 16877, 1, 0, 5, 5, 5);
    INSERT INTO fs_dentry (name, parent_ino, ino) VALUES
      ('dir', 1, 2), ('sub', 2, 3), ('leaf', 3, 4), ('born', 1, 5);
    INSERT INTO fs_data (ino, chunk_index, data) VALUES (4, 0, CAST('changed' AS BLOB));
    INSERT INTO fs_origin (delta_ino, base_ino) VALUES (2, 3), (3, 4), (4, 5);
    INSERT INTO fs_whiteout (path, created_at) VALUES ('/dir/sub/other', 5), ('/gone/x', 5);
";

fn world() -> World {
    let mut world = World::new(TREE);
    world.close();
    world.sql().execute_batch(FOREIGN).unwrap();
    world.open_again();
    world
}

#[test]
fn what_it_made_is_shown_and_its_numbers_are_nobody_elses() {
    let mut world = world();
    assert_eq!(
        paths(&world),
        ["born", "dir", "dir/file", "dir/sub", "dir/sub/leaf", "gone", "keep"]
    );
    assert_eq!(world.cat("dir/sub/leaf"), "changed");
    assert_eq!(world.stat("dir/sub/leaf").fileid.0, DELTA_IDS + 4);
    assert_spec_reader_agrees(&world);
    let before = ["born", "dir", "dir/file", "dir/sub", "dir/sub/leaf"].map(|p| world.at(p));
    world.write("dir/file", 0, b"F").unwrap();
    world.chmod("dir/sub", 0o700).unwrap();
    world.put("born/new", "new");
    world.reopen();
    let after = ["born", "dir", "dir/file", "dir/sub", "dir/sub/leaf"].map(|p| world.at(p));
    assert_eq!(after, before);
}

#[test]
fn its_copies_of_base_directories_move_whole() {
    for touched in [false, true] {
        let mut world = world();
        if touched {
            world.put("dir/new", "new");
            world.put("dir/sub/new", "new");
        }
        let tree = read_tree(&world);
        world.rename("dir", "moved").unwrap();
        assert_eq!(world.cat("moved/file"), "file");
        assert_eq!(world.cat("moved/sub/leaf"), "changed");
        assert_eq!(world.find("moved/sub/other").err(), Some(FsError::NotFound));
        world.rename("moved/sub", "sub").unwrap();
        world.reopen();
        assert_eq!(world.cat("sub/leaf"), "changed");
        assert_eq!(world.find("sub/other").err(), Some(FsError::NotFound));
        world.rename("sub", "moved/sub").unwrap();
        world.rename("moved", "dir").unwrap();
        world.reopen();
        assert_same(&read_tree(&world), &tree, "back again");
        let theirs = spec_reader::read_tree(&world.session(), &world.base());
        assert_same(&theirs, &tree, "as the specification reads it");
        world.rename("dir", "again").unwrap();
        assert_eq!(world.cat("again/file"), "file");
        assert_eq!(world.cat("again/sub/leaf"), "changed");
    }
}

#[test]
fn its_new_directory_hides_a_base_one_that_it_moves_over() {
    let mut world = world();
    world.rmdir("gone").unwrap();
    world.rename("born", "gone").unwrap();
    assert_eq!(world.ls("gone"), Vec::<String>::new());
    world.put("gone/y", "y");
    world.reopen();
    assert_eq!(world.ls("gone"), ["y"]);
    world.rm_rf("dir");
    world.rename("gone", "dir").unwrap();
    assert_eq!(paths(&world), ["dir", "dir/y", "keep"]);
    assert_spec_reader_agrees(&world);
}

#[test]
fn its_deletions_are_undone_only_by_name() {
    let mut world = world();
    world.put("dir/sub/other", "mine");
    world.mkdir("gone/x").unwrap();
    world.reopen();
    assert_eq!(world.cat("dir/sub/other"), "mine");
    assert_eq!(world.ls("gone/x"), Vec::<String>::new());
    world.rm_rf("gone");
    assert_eq!(world.whiteouts(), ["/gone"]);
}

#[test]
fn its_directory_at_the_old_place_of_one_that_moved_works_like_any_other() {
    for rename in [false, true] {
        let mut world = World::new(TREE);
        world.rename("dir", "moved").unwrap();
        world.close();
        world.sql().execute_batch(FOREIGN).unwrap();
        world.sql().execute("DELETE FROM fs_whiteout WHERE path = '/dir'", []).unwrap();
        world.open_again();
        if !rename {
            world.put("dir/new", "new");
            world.put("dir/sub/new", "new");
        }
        world.rename("dir", "elsewhere").unwrap();
        world.put("elsewhere/newer", "newer");
        world.reopen();
        assert_eq!(world.cat("elsewhere/sub/leaf"), "changed");
        assert_eq!(world.cat("moved/file"), "file");
        assert_eq!(world.cat("moved/sub/leaf"), "leaf");
        read_tree(&world);
    }
}

/// What a file from elsewhere brings along must not run with the server's rights.
#[test]
fn a_trigger_in_its_schema_does_not_run() {
    let mut world = World::new(TREE);
    world.close();
    let trigger = "CREATE TABLE fired (n INTEGER);
        CREATE TRIGGER fires AFTER INSERT ON fs_dentry BEGIN INSERT INTO fired VALUES (1); END;
        CREATE TRIGGER fires_too AFTER INSERT ON fs_inode BEGIN INSERT INTO fired VALUES (2); END;";
    world.sql().execute_batch(trigger).unwrap();
    world.open_again();
    world.put("new", "new");
    assert_eq!(world.cat("new"), "new");
    world.close();
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM fired"), 0);
    // Another program runs it; undone, as its row belongs to nothing.
    let insert = "BEGIN; INSERT INTO fs_inode (mode, nlink, atime, mtime, ctime)
        VALUES (33188, 0, 5, 5, 5)";
    let conn = world.sql();
    conn.execute_batch(insert).unwrap();
    let fired: i64 = conn.query_row("SELECT count(*) FROM fired", [], |row| row.get(0)).unwrap();
    conn.execute_batch("ROLLBACK").unwrap();
    assert_eq!(fired, 1);
}
