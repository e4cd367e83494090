//! A base that changes under us: only the object that changed suffers.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use acetate::inspect::apply::ApplyOptions;
use acetate::inspect::opened::OpenSession;
use acetate::vfs::{CreateHow, FileKind, FsError, SetAttr, SetTime, Time};

use crate::support::applied;
use crate::support::client::mode;
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "file"
    dir/sub/leaf "leaf"
    keep "keep"
    one "linked"
    two = one
"#;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Whether this is an answer that tells the client that its handle leads nowhere.
fn is_lost<T: std::fmt::Debug>(result: Result<T, FsError>) -> bool {
    matches!(result, Err(FsError::Stale | FsError::Io))
}

#[test]
fn a_replaced_file_is_another_file() {
    let mut world = World::new(TREE);
    let old = world.at("dir/file");
    let base = world.change_base();
    fs::write(base.join("dir/new"), "replaced").unwrap();
    fs::rename(base.join("dir/new"), base.join("dir/file")).unwrap();
    assert!(is_lost(world.getattr(&old)));
    assert!(is_lost(world.read_all(&old)));
    assert!(is_lost(world.set(&old, mode(0o600), None).result));
    assert_ne!(world.at("dir/file"), old);
    assert_eq!(world.cat("dir/file"), "replaced");
    assert_eq!(world.cat("keep"), "keep");
    world.reopen();
    assert!(is_lost(world.getattr(&old)));
    assert_eq!(world.cat("dir/file"), "replaced");
}

#[test]
fn a_removed_file_and_a_removed_directory_are_gone() {
    let mut world = World::new(TREE);
    let (file, leaf, sub) = (world.at("dir/file"), world.at("dir/sub/leaf"), world.at("dir/sub"));
    world.ls("dir/sub");
    let base = world.change_base();
    fs::remove_file(base.join("dir/file")).unwrap();
    fs::remove_dir_all(base.join("dir/sub")).unwrap();
    for handle in [&file, &leaf, &sub] {
        assert!(is_lost(world.getattr(handle)));
    }
    assert_eq!(world.find("dir/file").err(), Some(FsError::NotFound));
    assert_eq!(world.ls("dir"), Vec::<String>::new());
    assert!(is_lost(world.page(&sub, 0, 9, true)));
    assert_eq!(world.remove("dir/file"), Err(FsError::NotFound));
    assert_eq!(world.cat("keep"), "keep");
}

#[test]
fn what_was_copied_up_needs_no_base() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"F").unwrap();
    world.write("two", 0, b"L").unwrap();
    world.put("dir/born", "born");
    let base = world.change_base();
    fs::remove_dir_all(base.join("dir")).unwrap();
    fs::remove_file(base.join("one")).unwrap();
    assert_eq!(world.cat("dir/file"), "File");
    assert_eq!(world.ls("dir"), ["born", "file"]);
    assert_eq!(world.cat("two"), "Linked");
    world.reopen();
    assert_eq!(world.cat("dir/file"), "File");
    assert_eq!(world.ls("dir"), ["born", "file"]);
    world.rename("dir", "moved").unwrap();
    assert_eq!(world.cat("moved/file"), "File");
    world.rm_rf("moved");
    assert!(!world.exists("dir") && !world.exists("moved"));
}

#[test]
fn what_was_made_in_a_directory_that_became_something_else_stays() {
    for becomes in ["a file", "a link"] {
        let mut world = World::new(TREE);
        world.put("dir/born", "born");
        assert_eq!(world.ls("dir"), ["born", "file", "sub"]);
        let base = world.change_base();
        fs::rename(base.join("dir"), base.join("gone")).unwrap();
        match becomes {
            "a file" => fs::write(base.join("dir"), "").unwrap(),
            _ => std::os::unix::fs::symlink("gone", base.join("dir")).unwrap(),
        }
        assert_eq!(world.ls("dir"), ["born"], "{becomes}");
        world.rename("dir", "moved").unwrap();
        assert_eq!(world.ls("moved"), ["born"], "{becomes}");
        world.reopen();
        assert_eq!(world.ls("moved"), ["born"], "{becomes}");
        world.remove("moved/born").unwrap();
        world.rmdir("moved").unwrap();
    }
}

#[test]
fn a_directory_that_became_a_file_and_the_other_way_round() {
    let mut world = World::new(TREE);
    let (sub, keep) = (world.at("dir/sub"), world.at("keep"));
    world.ls("dir/sub");
    let base = world.change_base();
    // Made first, so that the host cannot give them the old objects' numbers.
    fs::write(base.join("file"), "a file").unwrap();
    fs::create_dir(base.join("new")).unwrap();
    fs::write(base.join("new/x"), "x").unwrap();
    fs::remove_dir_all(base.join("dir/sub")).unwrap();
    fs::remove_file(base.join("keep")).unwrap();
    fs::rename(base.join("file"), base.join("dir/sub")).unwrap();
    fs::rename(base.join("new"), base.join("keep")).unwrap();
    assert!(is_lost(world.page(&sub, 0, 9, false)));
    assert!(is_lost(world.read_all(&keep)));
    assert_eq!(world.stat("dir/sub").kind, FileKind::Regular);
    assert_eq!(world.cat("keep/x"), "x");
}

#[test]
fn new_base_objects_show_unless_the_delta_hides_them() {
    let mut world = World::new(TREE);
    world.remove("keep").unwrap();
    world.put("dir/born", "born");
    world.ls("dir");
    let base = world.change_base();
    fs::write(base.join("dir/late"), "late").unwrap();
    fs::write(base.join("dir/born"), "hidden").unwrap();
    fs::remove_file(base.join("keep")).unwrap();
    fs::write(base.join("keep"), "back").unwrap();
    assert_eq!(world.ls("dir"), ["born", "file", "late", "sub"]);
    assert_eq!(world.cat("dir/late"), "late");
    assert_eq!(world.cat("dir/born"), "born");
    assert!(!world.exists("keep"));
}

#[test]
fn a_directory_of_both_layers_looks_changed_when_its_base_half_does() {
    let mut world = World::new(TREE);
    // As far back as the base's clock, or further.
    world.tick(-1_000_000_000);
    // The root is the session's from the start, the other is copied up.
    world.put("dir/born", "born");
    for (dir, new) in [("", "late"), ("dir", "dir/late")] {
        let before = world.stat(dir);
        // The base's clock counts in ticks of milliseconds.
        std::thread::sleep(Duration::from_millis(30));
        fs::write(world.change_base().join(new), "late").unwrap();
        let late = world.stat(dir);
        assert!(late.ctime > before.ctime && late.mtime > before.mtime, "{dir:?}");
        assert_eq!(world.stat(dir), late, "{dir:?}");
        // What the session does to it comes after that, and is told to come after that.
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
        world.tick(now + 2 - world.now());
        let (at, how) = (world.at(dir), CreateHow::Guarded(mode(0o600)));
        let wcc = world.create_in(&at, b"next", how).context;
        assert_eq!(wcc.before.unwrap().ctime, late.ctime, "{dir:?}");
        let next = world.stat(dir);
        assert_eq!(wcc.after.unwrap(), next, "{dir:?}");
        assert!(next.ctime > late.ctime && next.mtime == next.ctime, "{dir:?}");
        // A time that is set is the one that shows.
        let mtime = Time { secs: 5, nanos: 6 };
        let set = SetAttr { mtime: SetTime::To(mtime), ..SetAttr::default() };
        world.set(&at, set, Some(next.ctime)).result.unwrap();
        assert_eq!(world.stat(dir).mtime, mtime, "{dir:?}");
        world.reopen();
        assert_eq!(world.stat(dir).mtime, mtime, "{dir:?}");
    }
}

/// Gives `path` of the base the number that `of` had there, as a host does that gives the numbers
/// of what it removed to what it makes; both are replaced.
fn give_number(base: &Path, of: &str, path: &str) {
    let number = |path: &Path| fs::symlink_metadata(path).unwrap().ino();
    let (old, new) = (base.join(of), base.join(path));
    let wanted = number(&old);
    let is_dir = old.is_dir();
    // What held it moves to the other's place.
    if is_dir {
        fs::remove_dir_all(&new).unwrap();
    }
    fs::rename(&old, &new).unwrap();
    assert_eq!(number(&new), wanted);
    if is_dir {
        fs::create_dir(&old).unwrap();
        for entry in fs::read_dir(&new).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    } else {
        fs::write(&old, "another").unwrap();
    }
    // Where a directory was may be remembered for so long: docs/SEMANTICS.md.
    std::thread::sleep(Duration::from_millis(30));
}

#[test]
fn a_number_that_is_given_out_again_is_of_two_files() {
    let mut world = World::new("a \"a\"\nfile \"file\"\nfile2 \"file2\"\ngone \"gone\"");
    world.write("a", 0, b"A").unwrap();
    world.write("gone", 0, b"G").unwrap();
    let base = world.change_base();
    give_number(&base, "a", "file");
    give_number(&base, "gone", "file2");
    fs::write(base.join("file"), "of the number").unwrap();
    let (one, other) = (world.at("a"), world.at("file"));
    assert_eq!(world.stat("a").fileid, world.stat("file").fileid);
    assert_ne!(one, other);
    world.write("file", 0, b"OF").unwrap();
    assert_eq!(world.read_all(&other).unwrap(), b"OF the number");
    assert_eq!(world.read_all(&one).unwrap(), b"A");
    assert_eq!(world.at("file"), other);
    world.reopen();
    assert_eq!(world.read_all(&other).unwrap(), b"OF the number");
    assert_eq!(world.read_all(&one).unwrap(), b"A");
    // What is removed is removed, and not taken for what moved.
    world.remove("file2").unwrap();
    world.close();
    let left = applied::merged(&world.session(), Some(&world.base()));
    // The base has another file at `a` now, which only an option overwrites.
    let copy = world.scratch().join("copy");
    applied::copy(&world.base(), &copy);
    let opened = OpenSession::open(&world.session(), Some(&world.base())).unwrap();
    let force = ApplyOptions { force: true, ..applied::all() };
    assert_eq!(applied::applied(&opened, Some(&copy), &force).unwrap().skipped, []);
    applied::assert_same(&applied::on_host(&copy), &left);
    drop(opened);
    assert!(!left.contains_key(&b"file2"[..]));
    world.open_again();
}

#[test]
fn a_number_that_is_given_out_again_is_of_two_directories() {
    let mut world = World::new("d/x \"of d\"\nother/y \"of other\"");
    world.write("d/x", 0, b"OF").unwrap();
    let base = world.change_base();
    give_number(&base, "d", "other");
    fs::write(base.join("other/z"), "of other").unwrap();
    assert_eq!(world.stat("d").fileid, world.stat("other").fileid);
    for _ in 0..2 {
        assert_eq!((world.cat("d/x"), world.cat("other/z")), ("OF d".into(), "of other".into()));
        assert!(!world.exists("d/z"));
        assert!(!world.exists("other/x"));
        assert_eq!(world.ls("d"), ["x"]);
        assert_eq!(world.ls("other"), ["z"]);
    }
    let at = world.at("other");
    world.put("other/born", "born");
    world.put("d/born", "of d");
    for _ in 0..2 {
        assert_eq!(world.at("other"), at);
        assert_eq!(
            (world.ls("d"), world.ls("other")),
            (names(&["born", "x"]), names(&["born", "z"]))
        );
        assert_eq!((world.cat("d/born"), world.cat("other/born")), ("of d".into(), "born".into()));
        world.reopen();
    }
}

#[test]
fn what_has_one_number_is_renamed_over_each_other() {
    let mut world = World::new("a \"a\"\nfile \"file\"\nd/x \"of d\"\nother/y \"y\"");
    world.write("a", 0, b"A").unwrap();
    world.write("d/x", 0, b"OF").unwrap();
    let base = world.change_base();
    give_number(&base, "a", "file");
    give_number(&base, "d", "other");
    assert_eq!(world.stat("a").fileid, world.stat("file").fileid);
    assert_eq!(world.stat("d").fileid, world.stat("other").fileid);
    assert_eq!((world.ls("d"), world.ls("other")), (names(&["x"]), vec![]));
    world.rename("a", "file").unwrap();
    world.rename("d/x", "other/z").unwrap();
    for _ in 0..2 {
        assert!(!world.exists("a"), "it is not another name of the file");
        assert_eq!(world.cat("file"), "A");
        assert_eq!((world.ls("d"), world.ls("other")), (vec![], names(&["z"])));
        world.reopen();
    }
}

#[test]
fn a_directory_that_the_base_loses_and_gets_back_is_as_it_was() {
    let mut world = World::new("p/d/f \"f\"\np/d/g \"g\"\np/d/x \"x\"\np/d/s/t \"t\"");
    world.remove("p/d/x").unwrap();
    world.write("p/d/f", 0, b"F").unwrap();
    let away = world.scratch().join("away");
    let base = world.change_base();
    fs::rename(base.join("p/d"), &away).unwrap();
    world.reopen();
    for name in ["p/d/x", "p/d/s", "p/d/g"] {
        assert!(!world.exists(name));
    }
    assert_eq!(world.ls("p/d"), ["f"]);
    assert_eq!(world.rmdir("p/d"), Err(FsError::NotEmpty));
    let base = world.change_base();
    fs::rename(&away, base.join("p/d")).unwrap();
    for _ in 0..2 {
        assert_eq!(world.ls("p/d"), ["f", "g", "s"]);
        assert_eq!((world.cat("p/d/f"), world.cat("p/d/g")), ("F".into(), "g".into()));
        assert!(!world.exists("p/d/x"));
        world.reopen();
    }
    world.remove("p/d/f").unwrap();
    world.reopen();
    assert_eq!(world.ls("p/d"), ["g", "s"]);
}

#[test]
fn a_directory_that_is_replaced_is_listed_as_it_is_changed() {
    let mut world = World::new("d/x \"x\"\nkeep \"keep\"");
    // The writer knows where it is.
    assert_eq!(world.mkdir("d/x").err(), Some(FsError::Exists));
    let base = world.change_base();
    fs::rename(base.join("d"), base.join("d.old")).unwrap();
    fs::create_dir(base.join("d")).unwrap();
    fs::write(base.join("d/x"), "another").unwrap();
    assert_eq!(world.ls("d"), ["x"]);
    world.remove("d/x").unwrap();
    assert_eq!(world.ls("d"), Vec::<String>::new());
    world.put("d/new", "new");
    assert_eq!(world.ls("d"), ["new"]);
}

#[test]
fn a_directory_whose_base_half_goes_looks_changed() {
    let mut world = World::new(TREE);
    world.tick(-1_000_000_000);
    world.put("dir/born", "born");
    world.put("dir/sub/born", "born");
    for (gone, left) in [("dir/sub", "dir/sub"), ("dir", "dir")] {
        let before = world.stat(left);
        std::thread::sleep(Duration::from_millis(30));
        fs::remove_dir_all(world.change_base().join(gone)).unwrap();
        assert!(world.stat(left).ctime > before.ctime, "{gone}");
    }
    assert_eq!((world.ls("dir"), world.ls("dir/sub")), (names(&["born", "sub"]), names(&["born"])));
}

#[test]
fn what_comes_into_the_base_where_a_directory_was_made_stays_hidden() {
    let mut world = World::new(TREE);
    world.tick(-1_000_000_000);
    world.rm_rf("dir");
    world.mkdir("dir").unwrap();
    let before = world.stat("dir");
    std::thread::sleep(Duration::from_millis(30));
    fs::write(world.change_base().join("dir/late"), "late").unwrap();
    assert_eq!(world.ls("dir"), Vec::<String>::new());
    assert_eq!(world.stat("dir").ctime, before.ctime);
    world.reopen();
    assert_eq!(world.ls("dir"), Vec::<String>::new());
}

#[test]
fn a_base_that_vanishes_takes_nothing_else_along() {
    let mut world = World::new(TREE);
    world.put("born", "born");
    let (file, born) = (world.at("dir/file"), world.at("born"));
    let base = world.change_base();
    fs::rename(&base, world.scratch().join("away")).unwrap();
    fs::create_dir(&base).unwrap();
    // The open directory is still the same one, whatever its path is now.
    assert_eq!(world.read_all(&file).unwrap(), b"file");
    fs::remove_dir_all(world.scratch().join("away")).unwrap();
    assert!(is_lost(world.getattr(&file)));
    assert_eq!(world.read_all(&born).unwrap(), b"born");
    assert_eq!(world.ls(""), ["born"]);
    world.put("more", "more");
    assert_eq!(world.cat("more"), "more");
}

#[test]
fn content_that_changes_in_place_is_shown_as_it_is() {
    let mut world = World::new(TREE);
    let file = world.at("dir/file");
    assert_eq!(world.read_all(&file).unwrap(), b"file");
    let base = world.change_base();
    fs::write(base.join("dir/file"), "longer than before").unwrap();
    assert_eq!(world.read_all(&file).unwrap(), b"longer than before");
    fs::write(base.join("dir/file"), "s").unwrap();
    assert_eq!(world.read_at(&file, 0, 100).unwrap(), (b"s".to_vec(), true));
    world.write("dir/file", 1, b"!").unwrap();
    assert_eq!(world.cat("dir/file"), "s!");
}

#[test]
fn the_sessions_own_files_do_not_exist() {
    use crate::support::world::Setup;
    let base = Some("dir/file \"x\"\nother \"y\"".to_owned());
    let session_in_base = Some("dir/session.db".to_owned());
    let mut world = World::with(Setup { base, session_in_base, ..Setup::default() });
    for left in ["dir/session.db-compact", "dir/session.db-compact-journal"] {
        fs::write(world.change_base().join(left), "left by a kill").unwrap();
    }
    world.put("dir/born", "");
    assert_eq!(world.ls("dir"), ["born", "file"]);
    for suffix in ["", "-wal", "-shm", "-lock", "-compact"] {
        let path = format!("dir/session.db{suffix}");
        assert_eq!(world.find(&path).err(), Some(FsError::NotFound), "{path}");
        assert_eq!(world.remove(&path), Err(FsError::NotFound), "{path}");
    }
    world.reopen();
    world.rename("dir", "moved").unwrap();
    assert_eq!(world.ls("moved"), ["born", "file"]);
    assert_eq!(world.find("moved/session.db").err(), Some(FsError::NotFound));
    world.rm_rf("moved");
    assert_eq!(world.ls(""), ["other"]);
}

#[test]
fn a_moved_directory_whose_base_is_gone_shows_what_the_session_has_in_it() {
    let mut world = World::new(TREE);
    world.rename("dir", "moved").unwrap();
    world.rename("moved/sub", "sub").unwrap();
    world.put("moved/born", "born");
    fs::remove_dir_all(world.change_base().join("dir")).unwrap();
    world.close();
    // As of a session that is over another base than before.
    world.sql().execute("DELETE FROM acetate_inode WHERE holes = 0", []).unwrap();
    world.open_again();
    assert_eq!(world.ls(""), ["keep", "moved", "one", "sub", "two"]);
    assert_eq!(world.ls("sub"), [""; 0]);
    assert_eq!(world.ls("moved"), ["born"]);
    assert_eq!(world.getattr(&world.at("sub")).unwrap().nlink, 2);
}
