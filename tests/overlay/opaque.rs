//! Directories made, or moved to, where the base has one: a mark says that they show nothing of
//! it.

use acetate::delta::sqlite::{OpenError, OpenMode, Session};
use acetate::inspect::seal::seal;
use acetate::vfs::FsError;

use super::{assert_spec_reader_agrees, paths};
use crate::support::given_up;
use crate::support::spec_reader;
use crate::support::tree::{assert_same, read_tree};
use crate::support::world::World;

/// Names in the large directory.
const MANY: usize = 2000;

/// A base with a large directory, `big`, and a small one.
fn world() -> World {
    let names: String = (0..MANY).map(|n| format!("big/{n} \"{n}\"\n")).collect();
    let base = names + "big/sub/deep \"deep\"\nsmall/one \"1\"\nother/x \"x\"\n";
    let world = World::new(&base);
    // While the system writes a file back, its used space is not what it is before and after.
    rustix::fs::syncfs(std::fs::File::open(world.base()).unwrap()).unwrap();
    world
}

/// Rows that a change adds, changes or removes in the tables that hide names.
fn rows(world: &World) -> i64 {
    let count = "SELECT (SELECT count(*) FROM fs_whiteout) +
                        (SELECT count(*) FROM acetate_opaque)";
    world.sql_value(count)
}

#[test]
fn a_directory_over_a_large_one_takes_as_many_rows_as_over_a_small_one() {
    let world = world();
    world.rename("big", "old-big").unwrap();
    world.rename("small", "old-small").unwrap();
    let before = rows(&world);
    world.mkdir("small").unwrap();
    let small = rows(&world) - before;
    world.mkdir("big").unwrap();
    assert_eq!(rows(&world) - before, 2 * small, "MKDIR");
    assert_eq!(world.ls("big"), Vec::<String>::new());
    world.put("big/7", "new");
    world.rename("big", "moved").unwrap();
    world.rename("moved", "big").unwrap();
    assert_eq!(rows(&world) - before, 2 * small, "RENAME there and back");
    assert_eq!(world.ls("big"), ["7"]);
    world.remove("big/7").unwrap();
    world.rmdir("big").unwrap();
    world.rmdir("small").unwrap();
    assert_eq!(rows(&world), before, "RMDIR");
    assert_spec_reader_agrees_but_for_redirects(&world);
}

/// What was moved shows its base entries only to us; the rest is the same.
fn assert_spec_reader_agrees_but_for_redirects(world: &World) {
    let ours: Vec<String> = paths(world);
    assert!(ours.iter().any(|path| path == "old-small/one"), "{ours:?}");
    assert!(!ours.iter().any(|path| path == "small"), "{ours:?}");
}

#[test]
fn nothing_of_the_base_shows_through_it_after_any_change() {
    let mut world = world();
    world.rm_rf("small");
    world.mkdir("small").unwrap();
    let base = world.change_base();
    std::fs::write(base.join("small/late"), "came later").unwrap();
    for _ in 0..2 {
        assert_eq!(world.ls("small"), Vec::<String>::new());
        for name in ["one", "late"] {
            assert_eq!(world.find(format!("small/{name}")).err(), Some(FsError::NotFound));
        }
        world.reopen();
    }
    // Over another directory of the base, and in it.
    world.rm_rf("other");
    world.rename("small", "other").unwrap();
    assert_eq!(world.ls("other"), Vec::<String>::new());
    world.mkdir("other/x").unwrap();
    world.mkdir("small").unwrap();
    assert_eq!((world.ls("small"), world.ls("other")), (vec![], vec!["x".to_owned()]));
    world.rmdir("small").unwrap();
    assert_spec_reader_agrees(&world);
    world.reopen();
    assert_spec_reader_agrees(&world);
}

#[test]
fn what_is_moved_into_it_keeps_what_it_brought() {
    let mut world = world();
    world.rename("big/sub", "sub").unwrap();
    world.remove("sub/deep").unwrap();
    world.rename("big", "gone").unwrap();
    world.mkdir("big").unwrap();
    world.rename("sub", "big/sub").unwrap();
    world.rename("other", "big/other").unwrap();
    for _ in 0..2 {
        assert_eq!(world.ls("big"), ["other", "sub"]);
        assert_eq!(world.ls("big/sub"), Vec::<String>::new());
        assert_eq!(world.cat("big/other/x"), "x");
        world.reopen();
    }
    world.rename("big/other", "other").unwrap();
    assert_eq!(world.cat("other/x"), "x");
}

#[test]
fn giving_up_a_name_in_it_shows_that_name_alone() {
    let mut world = world();
    let before = read_tree(&world);
    world.rm_rf("small");
    world.rm_rf("other");
    world.mkdir("small").unwrap();
    world.mkdir("small/new").unwrap();
    let base = world.change_base();
    std::fs::write(base.join("small/two"), "2").unwrap();
    given_up::assert_given_up(&world, b"small/one");
    assert_eq!(world.ls("small"), ["new", "one"]);
    world.reopen();
    assert_eq!(world.ls("small"), ["new", "one"]);
    std::fs::remove_file(base.join("small/two")).unwrap();
    given_up::assert_given_up(&world, b"/");
    assert_same(&read_tree(&world), &before, "nothing is left");
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM acetate_opaque"), 0);
}

#[test]
fn sealing_says_it_with_whiteouts() {
    let mut world = world();
    world.rm_rf("small");
    world.rm_rf("other");
    world.mkdir("small").unwrap();
    world.mkdir("other").unwrap();
    world.mkdir("other/x").unwrap();
    let ours = read_tree(&world);
    world.close();
    let sealed = seal(&world.session(), None, false, &mut |_, _| ()).unwrap();
    assert_eq!(sealed.opaque, 2);
    let theirs = spec_reader::read_tree(&world.session(), &world.base());
    assert_same(&theirs, &ours, "as the specification reads it");
    world.open_again();
    assert_same(&read_tree(&world), &ours, "as we do");
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM acetate_opaque"), 0);
    assert_eq!(world.whiteouts(), ["/small/one"]);
}

#[test]
fn a_program_that_does_not_know_marks_is_told_so_by_the_format() {
    let world = world();
    let format = "SELECT value FROM acetate_meta WHERE key = 'format_version'";
    assert_eq!(world.sql_value::<i64>(format), 1, "every version reads a session without");
    world.rm_rf("small");
    assert_eq!(world.sql_value::<i64>(format), 1);
    world.mkdir("small").unwrap();
    assert_eq!(world.sql_value::<i64>(format), 2);
}

#[test]
fn a_newer_format_than_ours_is_refused() {
    let mut world = world();
    world.close();
    let set = |version: i64| {
        let conn = rusqlite::Connection::open(world.session()).unwrap();
        let sql = "UPDATE acetate_meta SET value = ?1 WHERE key = 'format_version'";
        conn.execute(sql, [version]).unwrap();
    };
    set(3);
    let host = acetate::delta::sqlite::Host::current().unwrap();
    let opened = Session::open(&world.session(), OpenMode::Serve, &host);
    assert!(matches!(opened, Err(OpenError::Newer { found: 3, known: 2, .. })));
    set(1);
}

#[test]
fn a_session_with_masks_of_an_earlier_version_works() {
    let mut world = world();
    world.rm_rf("small");
    world.mkdir("small").unwrap();
    world.close();
    // As versions before the marks left it.
    let conn = rusqlite::Connection::open(world.session()).unwrap();
    conn.execute_batch(
        "DROP TABLE acetate_opaque;
         UPDATE acetate_meta SET value = 1 WHERE key = 'format_version';
         INSERT INTO fs_whiteout VALUES ('/small/one', '/small', 5);",
    )
    .unwrap();
    drop(conn);
    let opened = acetate::inspect::opened::OpenSession::open(&world.session(), Some(&world.base()));
    drop(opened.unwrap());
    world.open_again();
    assert_eq!(world.ls("small"), Vec::<String>::new());
    world.rename("small", "away").unwrap();
    assert_eq!(world.ls("away"), Vec::<String>::new());
    world.rename("away", "small").unwrap();
    world.rm_rf("other");
    world.rename("small", "other").unwrap();
    assert_eq!(world.ls("other"), Vec::<String>::new());
    world.rmdir("other").unwrap();
    assert_eq!(world.whiteouts(), ["/other", "/small"]);
    assert_spec_reader_agrees(&world);
}

#[test]
fn a_directory_that_shows_something_is_known_not_to_be_empty_by_counts() {
    let world = world();
    world.remove("big/1").unwrap();
    assert_eq!(world.rmdir("big"), Err(FsError::NotEmpty));
    world.rm_rf("big");
    assert_eq!(world.find("big").err(), Some(FsError::NotFound));
}
