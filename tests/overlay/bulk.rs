//! Many objects made or removed in one transaction.

use acetate::delta::MergedPath;
use acetate::overlay::{BulkContent, BulkItem, Removal};
use acetate::vfs::{FsError, SetAttr, SetTime, Time};
use bytes::Bytes;

use crate::support::world::World;

const TREE: &str = r#"
    dir/file 640 "content"
    dir/link -> file
    dir/sub/deep "deep"
"#;

fn item(path: &str, content: BulkContent) -> BulkItem {
    let path = MergedPath::from_user(path.as_bytes()).unwrap();
    BulkItem { path, content, set: SetAttr::default() }
}

fn file(path: &str, content: &'static str) -> BulkItem {
    item(path, BulkContent::File(Bytes::from_static(content.as_bytes())))
}

fn make(world: &World, items: Vec<BulkItem>) -> Result<usize, FsError> {
    world.wait(world.overlay.make_all(&world.caller, items))
}

fn audit(world: &World) -> Vec<String> {
    world.sql_list("SELECT concat(procedure, ' ', path) FROM acetate_op ORDER BY id")
}

#[test]
fn what_is_made_is_as_if_it_were_made_one_by_one() {
    let mut world = World::new(TREE);
    let time = Time { secs: 1_000_000_000, nanos: 5 };
    let set = SetAttr { mode: Some(0o750), mtime: SetTime::To(time), ..SetAttr::default() };
    let items = vec![
        item("new", BulkContent::Directory),
        BulkItem { set, ..file("new/a", "a") },
        file("new/empty", ""),
        item("new/link", BulkContent::Link(Bytes::from_static(b"a"))),
        item("dir", BulkContent::Directory),
        file("dir/file", "mine"),
        item("dir/link", BulkContent::Link(Bytes::from_static(b"sub"))),
        file("dir/sub/b", "b"),
        BulkItem { set, ..item("new", BulkContent::Any) },
        file("late", "late"),
    ];
    assert_eq!(make(&world, items), Ok(10));
    for (path, content) in
        [("new/a", "a"), ("new/empty", ""), ("dir/file", "mine"), ("dir/sub/b", "b")]
    {
        assert_eq!(world.cat(path), content, "{path}");
    }
    assert_eq!(world.readlink("new/link").unwrap(), "a");
    assert_eq!(world.readlink("dir/link").unwrap(), "sub");
    for path in ["new", "new/a"] {
        let attr = world.stat(path);
        assert_eq!((attr.mode, attr.mtime), (0o750, time), "{path}");
    }
    assert_eq!(world.stat("dir/file").mode, 0o640);
    assert_eq!(world.stat("new").nlink, 2);
    let of_a = audit(&world).into_iter().filter(|row| row.ends_with(" /new/a"));
    assert_eq!(of_a.collect::<Vec<_>>(), ["CREATE /new/a", "WRITE /new/a", "SETATTR /new/a"]);
    let times = "SELECT count(DISTINCT time || ' ' || time_nsec) FROM acetate_op";
    assert_eq!(world.sql_value::<i64>(times), 1, "one transaction");
    world.reopen();
    assert_eq!(world.cat("dir/file"), "mine");
}

#[test]
fn where_one_cannot_be_made_none_is() {
    let world = World::new(TREE);
    for (wrong, error) in [
        (file("nowhere/x", ""), FsError::NotFound),
        (file("dir/file/x", ""), FsError::NotDirectory),
        (file("dir/sub", ""), FsError::Exists),
        (item("dir/file", BulkContent::Directory), FsError::Exists),
        (item("dir/file", BulkContent::Link(Bytes::from_static(b"x"))), FsError::Exists),
        (item("nothing", BulkContent::Any), FsError::NotFound),
    ] {
        let path = wrong.path.clone();
        let items = vec![file("a", "a"), wrong, file("b", "b")];
        assert_eq!(make(&world, items), Err(error), "{}", path.display());
        assert!(!world.exists("a") && !world.exists("b"));
    }
    assert_eq!(audit(&world), [""; 0]);
}

#[test]
fn large_contents_are_made_in_several_transactions() {
    let world = World::new(TREE);
    let large = Bytes::from(vec![7; 3 << 20]);
    let large = |path: &str| item(path, BulkContent::File(large.clone()));
    assert_eq!(make(&world, vec![large("a"), large("b"), large("c")]), Ok(2));
    assert!(world.exists("b") && !world.exists("c"));
    assert_eq!(make(&world, vec![large("c")]), Ok(1));
}

#[test]
fn names_are_removed_together_or_not_at_all() {
    let mut world = World::new(TREE);
    world.put("dir/new", "new");
    let (dir, sub, root) = (world.at("dir"), world.at("dir/sub"), world.at(""));
    let removal = |dir: &_, name: &'static str, is_dir| Removal {
        dir: Clone::clone(dir),
        name: Bytes::from_static(name.as_bytes()),
        is_dir,
        bytes: 0,
    };
    let names = vec![
        removal(&dir, "file", false),
        removal(&dir, "new", false),
        removal(&dir, "link", false),
        removal(&sub, "deep", false),
        removal(&dir, "sub", true),
    ];
    let remove = |world: &World, names| world.wait(world.overlay.remove_all(&world.caller, names));
    let too_early = [&[removal(&dir, "file", false)][..], &[removal(&root, "dir", true)]].concat();
    assert_eq!(remove(&world, too_early), Err(FsError::NotEmpty));
    assert!(world.exists("dir/file"));
    let all = [names, vec![removal(&root, "dir", true)]].concat();
    assert_eq!(remove(&world, all), Ok(6));
    assert!(!world.exists("dir"));
    assert_eq!(world.whiteouts(), ["/dir"]);
    world.reopen();
    assert!(!world.exists("dir"));
}
