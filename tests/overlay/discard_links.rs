//! Giving up changes of files with several names.

use super::discard::{BASE, applied, discard, rebase};
use crate::support::world::World;

#[test]
fn a_file_with_several_names_goes_back_at_all_of_them() {
    let world = World::new(BASE);
    world.write("one", 0, b"LINKED").unwrap();
    assert_eq!(world.cat("two"), "LINKED");
    discard(&world, &["two"]).unwrap();
    assert_eq!((world.cat("one"), world.cat("two")), ("LINKED".into(), "linked".into()));
    assert_eq!((world.stat("one").nlink, world.stat("two").nlink), (1, 1));
    discard(&world, &["one"]).unwrap();
    assert_eq!((world.cat("one"), world.stat("one").nlink), ("linked".into(), 2));
}

/// The name at which the session has its entry is given up.
#[test]
fn the_other_names_of_a_file_keep_what_was_written() {
    for further in [false, true] {
        let mut world = World::new(BASE);
        world.write("one", 0, b"LINKED").unwrap();
        if further {
            world.link("one", "more").unwrap();
        }
        discard(&world, &["one"]).unwrap();
        assert_eq!((world.cat("one"), world.cat("two")), ("linked".into(), "LINKED".into()));
        assert_eq!((world.stat("one").nlink, world.stat("two").nlink), (1, 1 + further as u32));
        world.reopen();
        assert_eq!(world.cat("two"), "LINKED");
        discard(&world, &["two"]).unwrap();
        assert_eq!((world.cat("two"), world.stat("two").nlink), ("linked".into(), 2));
    }
}

#[test]
fn a_further_name_keeps_what_was_written() {
    let world = World::new(BASE);
    world.write("kept", 0, b"KEPT").unwrap();
    world.link("kept", "more").unwrap();
    discard(&world, &["kept"]).unwrap();
    assert_eq!((world.cat("kept"), world.cat("more")), ("kept".into(), "KEPT".into()));
    assert_ne!(world.stat("kept").fileid, world.stat("more").fileid);
}

#[test]
fn removed_names_of_a_file_count_again() {
    let world = World::new(BASE);
    world.remove("one").unwrap();
    assert_eq!(world.stat("two").nlink, 1);
    discard(&world, &["one"]).unwrap();
    assert_eq!((world.stat("one").nlink, world.stat("two").nlink), (2, 2));
}

/// Somebody gave a file a further name, by applying that or on the host.
#[test]
fn a_further_name_in_the_base_keeps_what_is_written() {
    for is_applied in [true, false] {
        let mut world = World::new(BASE);
        let inode = world.stat("kept").fileid;
        match is_applied {
            true => world.link("kept", "more").unwrap(),
            false => world.write("kept", 0, b"old").map(|_| ()).unwrap(),
        }
        let base = world.change_base();
        std::fs::hard_link(base.join("kept"), base.join("more")).unwrap();
        if is_applied {
            rebase(&world, &["more"]);
            assert_eq!((world.stat("kept").nlink, world.stat("more").nlink), (2, 2));
        }
        let handle = world.at("kept");
        world.write("more", 0, b"NEW!").unwrap();
        assert_eq!(world.cat("kept"), "NEW!");
        world.remove("kept").unwrap();
        assert_eq!(world.getattr(&handle).unwrap().nlink, 1);
        world.reopen();
        assert_eq!(world.cat("more"), "NEW!");
        assert_eq!((world.stat("more").fileid, world.stat("more").nlink), (inode, 1));
        assert_eq!(world.sql_value::<i64>("SELECT sum(hidden) FROM acetate_link"), 2);
        assert!(!world.exists("kept"));
        world.remove("more").unwrap();
        assert!(!world.exists("more"));
        discard(&world, &["kept", "more"]).unwrap();
        assert_eq!((world.cat("kept"), world.stat("more").nlink), ("kept".into(), 2));
    }
}

/// So many are let go of at a time, and a file's names may be among several of these.
#[test]
fn the_names_of_one_file_are_let_go_of_one_by_one() {
    let mut world = World::new(BASE);
    world.put("first", "new");
    world.link("first", "second").unwrap();
    world.write("one", 0, b"LINKED").unwrap();
    let all = applied(&world, &["first", "second", "one", "two"]);
    let base = world.change_base();
    for (file, link, content) in [("first", "second", "new"), ("one", "two", "LINKED")] {
        std::fs::write(base.join("made"), content).unwrap();
        std::fs::rename(base.join("made"), base.join(file)).unwrap();
        std::fs::hard_link(base.join(file), base.join("made")).unwrap();
        std::fs::rename(base.join("made"), base.join(link)).unwrap();
    }
    for one in all {
        world.wait(world.overlay.rebase(&world.caller, vec![one])).unwrap();
    }
    assert_eq!(world.sql_list("SELECT CAST(name AS TEXT) FROM fs_dentry"), [""; 0]);
}
