//! Tools on the rows that other implementations leave behind: nothing of them ends a tool.

use std::fs;

use acetate::inspect::check::check;
use acetate::inspect::diff::{DiffOptions, diff};
use acetate::inspect::opened::OpenSession;
use acetate::inspect::seal::{obstacles, plan, seal};

use acetate::delta::sqlite::CheckOptions;

use crate::delta::{FOREIGN, Place};
use crate::support::exported::{dir_of, options, tar_of};
use crate::support::world::World;

const CHECK: CheckOptions = CheckOptions { most: 100, quick: true };

/// More of these, in the root: a file with holes, a file whose chunks go on behind its size, a
/// symbolic link with chunks and one without a target, an inode that nothing leads to, and a
/// whiteout over what is there.
const MORE: &str = "
  INSERT INTO fs_inode (ino, mode, nlink, size, atime, mtime, ctime) VALUES
    (20, 33188, 1, 10000, 1, 1, 1), (21, 33188, 1, 3, 1, 1, 1), (22, 41471, 1, 4, 1, 1, 1),
    (23, 41471, 1, 4, 1, 1, 1), (24, 33188, 1, 4, 1, 1, 1), (25, 33188, 1, 6, 1, 1, 1);
  INSERT INTO fs_dentry (name, parent_ino, ino) VALUES ('holes', 1, 20), ('longer', 1, 21),
    ('link', 1, 22), ('no-target', 1, 23), ('live', 1, 25);
  INSERT INTO fs_data VALUES (20, 1, zeroblob(4095) || 'x'), (21, 0, 'abcdef'), (21, 1, 'more'),
    (22, 0, 'data'), (24, 0, 'lost'), (25, 0, 'hidden');
  INSERT INTO fs_symlink VALUES (22, 'file');
  INSERT INTO fs_whiteout (path, created_at) VALUES ('/live', 5);";

fn place() -> Place {
    let place = Place::new();
    place.sql().execute_batch(FOREIGN).unwrap();
    place.sql().execute_batch(MORE).unwrap();
    fs::create_dir(place.path.with_file_name("base")).unwrap();
    place
}

#[test]
fn they_are_exported_as_far_as_they_mean_something() {
    let place = place();
    let base = place.path.with_file_name("base");
    let opened = OpenSession::open(&place.path, Some(&base)).unwrap();
    let mut count = 0;
    let kept = diff(&opened, &DiffOptions::default(), &mut |_, _| {
        count += 1;
        Ok(std::ops::ControlFlow::Continue(()))
    });
    assert!(kept.is_ok() && count > 8, "{count}");
    let to = place.path.with_file_name("out");
    // What a link leads to, nobody knows.
    let failed = dir_of(&opened, &options("no-target", false), &to).unwrap_err();
    assert_eq!(failed.to_string(), "/no-target: input/output error");
    place.sql().execute("DELETE FROM fs_dentry WHERE name = 'no-target'", []).unwrap();
    fs::remove_dir(&to).unwrap();
    let done = dir_of(&opened, &options("/", false), &to).unwrap();
    assert_eq!(done.left_out, 0);
    let mut names: Vec<_> =
        fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let expected = ["dir", "file", "holes", "link", "live", "longer", "negative", "typeless"];
    for name in expected {
        assert!(names.iter().any(|n| n == name), "{name} is not in {names:?}");
    }
    assert!(names.iter().all(|name| name != "dangling"));
    assert_eq!(fs::read(to.join("holes")).unwrap().len(), 10_000);
    assert_eq!(fs::read_to_string(to.join("longer")).unwrap(), "abc");
    assert_eq!(fs::read_to_string(to.join("live")).unwrap(), "hidden");
    assert!(tar_of(&opened, &options("/", true)).is_ok());
}

#[test]
fn they_do_not_keep_a_session_from_being_sealed() {
    let place = place();
    let base = place.path.with_file_name("base");
    place.sql().execute("DELETE FROM fs_dentry WHERE name = 'no-target'", []).unwrap();
    let todo = plan(&OpenSession::open(&place.path, Some(&base)).unwrap()).unwrap();
    assert!(todo.zero_bytes >= 2 * 4096, "{todo:?}");
    let did = seal(&place.path, Some(&base), true, &mut |_, _| ()).unwrap();
    assert!(did.zero_bytes >= 4096 + 1808, "{did:?}");
    let sql = place.sql();
    let mut chunks = sql
        .prepare("SELECT CAST(data AS BLOB) FROM fs_data WHERE ino = 20 ORDER BY chunk_index")
        .unwrap();
    let content: Vec<u8> = chunks
        .query_map([], |row| row.get::<_, Vec<u8>>(0))
        .unwrap()
        .flat_map(Result::unwrap)
        .collect();
    let mut expected = vec![0; 10_000];
    expected[8191] = b'x';
    assert!(content == expected, "{} bytes", content.len());
    let left = obstacles(&place.path).unwrap();
    assert!(left.first_hidden.contains(&b"/live".to_vec()), "{left:?}");
}

#[test]
fn what_they_delete_leaves_rows_of_ours_that_are_noted_and_then_go() {
    let mut world = World::new("dir/file \"content\"\ndir/other \"other\"");
    world.chmod("dir/file", 0o600).unwrap();
    world.put("sparse", "s");
    world.truncate("sparse", 500_000).unwrap();
    world.close();
    world
        .sql()
        .execute_batch(
            "DELETE FROM fs_inode WHERE ino IN (SELECT ino FROM fs_dentry
               WHERE CAST(name AS TEXT) IN ('file', 'sparse'));
             DELETE FROM fs_data WHERE ino NOT IN (SELECT ino FROM fs_inode);
             DELETE FROM fs_dentry WHERE ino NOT IN (SELECT ino FROM fs_inode);
             INSERT INTO fs_whiteout (path, created_at) VALUES ('/dir/file', 5);
             INSERT INTO fs_inode (ino, mode, nlink, atime, mtime, ctime)
               VALUES (7, 33188, 1, 1, 1, 1);
             INSERT INTO fs_dentry (name, parent_ino, ino) VALUES ('theirs', 1, 7);",
        )
        .unwrap();
    let sound = check(&world.session(), None, &CHECK).unwrap();
    let rules: Vec<_> = sound.broken.iter().map(|broken| broken.rule).collect();
    assert!(sound.is_foreign && sound.is_sound(), "{sound:?}");
    assert!(rules.contains(&"O1") && rules.contains(&"D4"), "{rules:?}");
    world.open_again();
    assert_eq!(world.ls(""), ["dir", "theirs"]);
    assert_eq!(world.ls("dir"), ["other"]);
    // Closing it checks every rule.
    world.reopen();
}
