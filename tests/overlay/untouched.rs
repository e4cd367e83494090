//! What the session has not touched is shown without asking it.

use acetate::vfs::{FsError, Locator};

use crate::support::world::World;

const TREE: &str = r#"
    dir/file "file"
    dir/sub/leaf "leaf"
    dir/sub/twig "twig"
    touched/x "x"
"#;

/// The methods that read a row.
const METHODS: [&str; 12] = [
    "inode",
    "dentry",
    "dentries",
    "has_dentries",
    "name_of",
    "read_data",
    "symlink",
    "is_whited_out",
    "whiteouts_in",
    "copied_up",
    "redirect",
    "redirected_to",
];

fn rows_read(world: &World) -> u32 {
    METHODS.into_iter().map(|method| world.faults.calls(method)).sum()
}

fn look_around(world: &World, objects: &[&Locator; 3]) {
    let [dir, file, leaf] = objects;
    assert_eq!(world.lookup(dir, "file").unwrap().object, **file);
    assert_eq!(world.lookup(dir, "absent").err(), Some(FsError::NotFound));
    assert_eq!(world.getattr(file).unwrap().size, 4);
    assert_eq!(world.read_all(file).unwrap(), b"file");
    assert_eq!(world.getattr(leaf).unwrap().size, 4);
}

#[test]
fn what_is_known_to_be_untouched_needs_no_row() {
    let world = World::new(TREE);
    world.put("touched/born", "born");
    let (dir, file, leaf) = (world.at("dir"), world.at("dir/file"), world.at("dir/sub/leaf"));
    let objects = [&dir, &file, &leaf];
    look_around(&world, &objects);
    let before = rows_read(&world);
    look_around(&world, &objects);
    assert_eq!(rows_read(&world), before);
    // Any change may concern them; afterwards it is known again that it did not.
    world.put("touched/born", "again");
    look_around(&world, &objects);
    let after = rows_read(&world);
    assert!(after > before);
    look_around(&world, &objects);
    assert_eq!(rows_read(&world), after);
    world.write("dir/file", 0, b"F").unwrap();
    assert_eq!(world.read_all(&file).unwrap(), b"File");
    world.remove("dir/sub/leaf").unwrap();
    assert_eq!(world.getattr(&leaf).err(), Some(FsError::Stale));
    assert_eq!(world.ls("dir/sub"), ["twig"]);
}

#[test]
fn a_handle_from_a_listing_leads_to_its_object_without_a_lookup() {
    let mut world = World::new(TREE);
    let dir = world.at("dir/sub");
    world.reopen();
    let (page, _) = world.page(&dir, 0, usize::MAX, true).unwrap();
    for entry in &page {
        let (object, attr) = entry.object.as_ref().unwrap();
        assert_eq!(world.getattr(object).unwrap(), *attr, "{entry:?}");
    }
    assert_eq!(page.len(), 4);
    let leaf = world.at("dir/sub/leaf");
    assert!(page.iter().any(|entry| entry.object.as_ref().unwrap().0 == leaf));
}

#[test]
fn an_untouched_directory_lists_without_a_row_for_each_entry() {
    let names: String = (0..200).map(|n| format!("wide/f{n}\n")).collect();
    let world = World::new(&names);
    let dir = world.at("wide");
    let page = || world.page(&dir, 0, usize::MAX, true).unwrap().0.len();
    assert_eq!(page(), 202);
    let before = rows_read(&world);
    assert_eq!(page(), 202);
    assert!(rows_read(&world) - before < 20);
}
