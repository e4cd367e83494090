//! READDIR's cookies: each entry once, whatever happens between two pages.

use std::collections::{BTreeMap, BTreeSet};

use acetate::vfs::{Entry, FsError, Locator};

use crate::support::world::World;

/// More than a page, in both layers.
fn crowded() -> World {
    let names: String = (0..60).map(|n| format!("dir/base{n}\n")).collect();
    let world = World::new(&names);
    for n in 0..40 {
        world.put(format!("dir/born{n}"), "");
    }
    world.write("dir/base7", 0, b"x").unwrap();
    world.remove("dir/base8").unwrap();
    world
}

/// All pages of `max` entries; `between` runs after each with the page.
#[track_caller]
fn pages(
    world: &World,
    dir: &Locator,
    max: usize,
    mut between: impl FnMut(&[Entry]),
) -> Vec<String> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let (page, eof) = world.page(dir, cookie, max, false).unwrap();
        for entry in &page {
            assert!(entry.cookie.0 > cookie && entry.cookie.0 < 1 << 63, "{entry:?}");
            cookie = entry.cookie.0;
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        }
        if eof {
            return names;
        }
        assert!(!page.is_empty());
        between(&page);
    }
}

#[track_caller]
fn assert_unique(names: &[String]) -> BTreeSet<String> {
    let set: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(set.len(), names.len(), "listed twice");
    set
}

#[test]
fn pages_of_any_size_hold_each_entry_once() {
    let world = crowded();
    let dir = world.at("dir");
    let whole = pages(&world, &dir, usize::MAX, |_| {});
    assert_eq!(assert_unique(&whole).len(), 60 + 40 - 1 + 2);
    assert_eq!(&whole[..2], [".", ".."]);
    for max in [1, 2, 3, 7, 50] {
        assert_eq!(pages(&world, &dir, max, |_| {}), whole);
    }
}

#[test]
fn entries_that_come_and_go_disturb_no_other() {
    let world = crowded();
    let dir = world.at("dir");
    let steady: BTreeSet<String> = (20..60).map(|n| format!("base{n}")).collect();
    let mut round = 0;
    let listed = pages(&world, &dir, 4, |_| {
        round += 1;
        // One of each layer goes, one comes, one moves, one is made again.
        let _ = world.remove(format!("dir/base{}", round % 20));
        let _ = world.remove(format!("dir/born{}", round % 20));
        world.put(format!("dir/new{round}"), "");
        world.rename(format!("dir/born{}", 20 + round % 20), "dir/renamed").unwrap_or(());
        if round == 5 {
            world.remove("dir/born39").unwrap_or(());
            world.put("dir/born39", "again");
        }
    });
    assert!(round > 10);
    let listed = assert_unique(&listed);
    assert!(listed.is_superset(&steady), "{:?}", steady.difference(&listed));
}

#[test]
fn an_entry_that_is_gone_is_not_listed_and_its_cookie_stays_valid() {
    let world = crowded();
    let dir = world.at("dir");
    let whole = pages(&world, &dir, usize::MAX, |_| {});
    let (page, _) = world.page(&dir, 0, 10, false).unwrap();
    let last = page.last().unwrap();
    world.remove([b"dir/", &last.name[..]].concat()).unwrap();
    world.remove(format!("dir/{}", whole[12])).unwrap();
    let (rest, eof) = world.page(&dir, last.cookie.0, usize::MAX, false).unwrap();
    assert!(eof);
    let rest: Vec<_> = rest.iter().map(|e| String::from_utf8(e.name.to_vec()).unwrap()).collect();
    let mut expected = whole[10..].to_vec();
    expected.remove(2);
    assert_eq!(rest, expected);
}

#[test]
fn cookies_stay_over_copy_up_rename_and_restart() {
    let mut world = crowded();
    let cookies = |world: &World| -> BTreeMap<String, u64> {
        let (entries, _) = world.page(&world.at("dir"), 0, usize::MAX, false).unwrap();
        let name = |e: &Entry| String::from_utf8(e.name.to_vec()).unwrap();
        entries.iter().map(|e| (name(e), e.cookie.0)).collect()
    };
    let before = cookies(&world);
    world.write("dir/base9", 0, b"x").unwrap();
    world.chmod("dir", 0o700).unwrap();
    assert_eq!(cookies(&world), before);
    world.rename("dir/base9", "dir/other").unwrap();
    world.rename("dir/other", "dir/base9").unwrap();
    world.reopen();
    assert_eq!(cookies(&world), before);
    let middle = before["base30"];
    let (rest, _) = world.page(&world.at("dir"), middle, usize::MAX, false).unwrap();
    assert_eq!(rest.len(), before.values().filter(|&&cookie| cookie > middle).count());
}

#[test]
fn a_listing_goes_on_after_a_restart_and_beyond_its_end() {
    let mut world = crowded();
    let whole = pages(&world, &world.at("dir"), usize::MAX, |_| {});
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let (page, eof) = world.page(&world.at("dir"), cookie, 30, true).unwrap();
        names.extend(page.iter().map(|e| String::from_utf8(e.name.to_vec()).unwrap()));
        cookie = page.last().map_or(cookie, |e| e.cookie.0);
        if eof {
            break;
        }
        world.reopen();
    }
    assert_eq!(names, whole);
    let (page, eof) = world.page(&world.at("dir"), cookie, 10, false).unwrap();
    assert!(page.is_empty() && eof);
    let (page, eof) = world.page(&world.at("dir"), u64::MAX, 10, false).unwrap();
    assert!(page.is_empty() && eof);
}

#[test]
fn a_page_without_room_is_empty_and_not_the_end() {
    let world = crowded();
    let (page, eof) = world.page(&world.at("dir"), 0, 0, true).unwrap();
    assert!(page.is_empty() && !eof);
    // The last page ends exactly with the last entry.
    let (page, eof) = world.page(&world.at("dir"), 0, 101, false).unwrap();
    assert_eq!((page.len(), eof), (101, true));
}

#[test]
fn dot_and_dot_dot_tell_where_one_is() {
    let mut world = World::new("a/b/c/\nz/");
    let dots = |world: &World, path: &str| {
        let (page, _) = world.page(&world.at(path), 0, 2, true).unwrap();
        let numbers: Vec<_> = page.iter().map(|e| e.fileid).collect();
        let objects: Vec<_> = page.iter().map(|e| e.object.clone().unwrap().0.fileid()).collect();
        assert_eq!(numbers, objects);
        (numbers[0], numbers[1])
    };
    let id = |world: &World, path: &str| world.stat(path).fileid;
    assert_eq!(dots(&world, ""), (id(&world, ""), id(&world, "")));
    assert_eq!(dots(&world, "a/b"), (id(&world, "a/b"), id(&world, "a")));
    world.rename("a/b", "z/b").unwrap();
    for _ in 0..2 {
        assert_eq!(dots(&world, "z/b"), (id(&world, "z/b"), id(&world, "z")));
        assert_eq!(dots(&world, "z/b/c"), (id(&world, "z/b/c"), id(&world, "z/b")));
        assert_eq!(world.at("z/b/.."), world.at("z"));
        assert_eq!(world.at("../.."), Locator::ROOT);
        world.reopen();
    }
}

#[test]
fn a_large_directory_lists_in_small_pages() {
    let world = World::new("dir/");
    let base = world.base().join("dir");
    std::fs::create_dir_all(&base).unwrap();
    let mut world = world;
    let base = world.change_base().join("dir");
    for n in 0..8_000 {
        std::fs::write(base.join(format!("file-{n}")), "").unwrap();
    }
    world.put("dir/born", "");
    let start = std::time::Instant::now();
    let names = pages(&world, &world.at("dir"), 50, |_| {});
    assert_eq!(assert_unique(&names).len(), 8_003);
    assert!(start.elapsed().as_secs() < 20, "161 pages took {:?}", start.elapsed());
}

/// All entries with attributes are what LOOKUP and GETATTR say.
#[track_caller]
fn assert_right(world: &World, dir: &str) {
    let (page, eof) = world.page(&world.at(dir), 0, usize::MAX, true).unwrap();
    assert!(eof);
    for entry in page.iter().filter(|entry| !entry.name.starts_with(b".")) {
        let (object, attr) = entry.object.as_ref().unwrap();
        assert_eq!(*object, world.at([dir.as_bytes(), b"/", &entry.name].concat()), "{entry:?}");
        assert_eq!((attr, entry.fileid), (&world.getattr(object).unwrap(), attr.fileid));
    }
    assert_eq!(page.len(), world.ls(dir).len() + 2);
}

#[test]
fn attributes_are_those_of_now_whatever_happened_since_the_last_listing() {
    let world = crowded();
    assert_right(&world, "dir");
    // The directory's times do not move by this.
    world.write("dir/base9", 0, b"longer than before").unwrap();
    assert_right(&world, "dir");
    world.write("dir/born9", 0, b"longer").unwrap();
    world.chmod("dir/base10", 0o600).unwrap();
    assert_right(&world, "dir");
    world.remove("dir/base9").unwrap();
    world.put("dir/base9", "born again");
    world.link("dir/base11", "dir/linked").unwrap();
    world.rename("dir/base12", "dir/base13").unwrap();
    world.rename("dir/born12", "dir/base14").unwrap();
    assert_right(&world, "dir");
    world.write("dir/linked", 0, b"by another name").unwrap();
    assert_right(&world, "dir");
}

#[test]
fn entries_of_the_delta_need_one_row_each() {
    let world = World::new("dir/base\n");
    for n in 0..50 {
        world.put(format!("dir/born{n}"), "");
    }
    let rows = || ["dentry", "is_whited_out", "inode"].map(|method| world.faults.calls(method));
    let page = || world.page(&world.at("dir"), 0, usize::MAX, true).unwrap().0.len();
    assert_eq!(page(), 53);
    let before = rows();
    assert_eq!(page(), 53);
    let after = rows();
    assert!(after[0] - before[0] < 5 && after[1] - before[1] < 5, "{before:?} {after:?}");
    assert!(after[2] - before[2] < 60, "{before:?} {after:?}");
}

#[test]
fn only_directories_are_listed() {
    let world = World::new("file\nlink -> dir\ndir/");
    for path in ["file", "link"] {
        let listed = world.page(&world.at(path), 0, 10, false);
        assert_eq!(listed.err(), Some(FsError::NotDirectory));
        assert_eq!(world.lookup(&world.at(path), "x").err(), Some(FsError::NotDirectory));
    }
    let gone = world.at("dir");
    world.rmdir("dir").unwrap();
    assert_eq!(world.page(&gone, 0, 10, false).err(), Some(FsError::Stale));
}
