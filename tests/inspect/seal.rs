//! Sessions made readable to the letter of the specification.

use std::fs;

use acetate::delta::Store;
use acetate::delta::sqlite::{CheckOptions, Host, OpenMode, RepairOptions, Session};
use acetate::inspect::InspectError;
use acetate::inspect::check::check;
use acetate::inspect::opened::OpenSession;
use acetate::inspect::repair::repair;
use acetate::inspect::seal::{Obstacles, SealPlan, obstacles, plan, seal};
use acetate::overlay::{CopyLimits, SealStep, Sealed, Sealing};
use acetate::vfs::Attr;

use crate::support::check::assert_consistent;
use crate::support::exported::{assert_same, merged};
use crate::support::spec_reader;
use crate::support::tree::{self, read_tree};
use crate::support::world::{Setup, World};

const CHUNK: u64 = 512;

/// A session that has something of all that sealing is about.
fn world() -> World {
    let large = "x".repeat(20 * CHUNK as usize);
    let many: String = (0..600).map(|n| format!("moved/many/f{n} \"{n}\"\n")).collect();
    let base = format!(
        "dir/large \"{large}\"\nmoved/inner \"x\"\nmoved/gone \"g\"\nmoved/sub/deep \"deep\"\n\
         place/inner \"of the place\"\nplace/only \"o\"\nhard/one \"h\"\nhard/two = hard/one\n\
         far/off/three = hard/one\nmoved/four = hard/one\n{many}"
    );
    let copy_up = CopyLimits::of(1000, CHUNK);
    let setup = Setup { base: Some(base), chunk_bytes: CHUNK, copy_up, ..Setup::default() };
    let mut world = World::with(setup);
    world.put("sparse", "s");
    world.truncate("sparse", 5000).unwrap();
    world.remove("moved/gone").unwrap();
    world.rm_rf("place");
    world.rename("moved", "place").unwrap();
    world.rename("place/sub", "place/inner-sub").unwrap();
    world.put("place/inner-sub/new", "new");
    world.write("hard/one", 0, b"H").unwrap();
    world.write("dir/large", 3 * CHUNK + 7, b"!").unwrap();
    world.close();
    world
}

fn sealed(world: &World, for_agentfs: bool) -> Sealed {
    seal(&world.session(), None, for_agentfs, &mut |_, _| ()).unwrap()
}

fn open(world: &World) -> OpenSession {
    OpenSession::open(&world.session(), None).unwrap()
}

#[track_caller]
fn assert_sealed(world: &World) {
    assert_eq!(plan(&open(world)).unwrap(), SealPlan::default());
    assert_consistent(&world.session());
    let sound = check(&world.session(), None, &CheckOptions { most: 10, quick: false }).unwrap();
    assert!(sound.is_sound(), "{sound:#?}");
}

#[test]
fn readers_of_the_specification_see_the_same_tree_and_so_do_we() {
    let mut world = world();
    let before = merged(&open(&world));
    let todo = plan(&open(&world)).unwrap();
    assert_eq!((todo.redirects, todo.objects), (2, 603));
    assert_eq!((todo.zero_bytes, todo.pending_bytes), (9 * CHUNK, 20 * CHUNK));
    assert!(todo.moved_bytes > 600);
    world.open_again();
    let handles: Vec<_> = ["place/inner-sub/deep", "far/off/three", "place/many/f7", "place"]
        .map(|path| (path, world.find(path).unwrap()))
        .to_vec();
    world.close();
    let did = sealed(&world, false);
    assert_eq!((did.redirects, did.names, did.finished, did.unfinished), (2, 3, 1, 0));
    assert_eq!(did.copied, 603);
    assert_eq!(did.zero_bytes, 5000 - CHUNK);
    assert_same(&merged(&open(&world)), &before, "sealed");
    assert_sealed(&world);
    world.open_again();
    for (path, found) in handles {
        let now = world.getattr(&found.object).unwrap();
        let used = now.used;
        assert_eq!(now, Attr { used, ..found.attr }, "{path} by its old handle");
    }
    let theirs = spec_reader::read_dense_tree(&world.session(), &world.base());
    tree::assert_same(&theirs, &read_tree(&world), "as the specification reads it");
    // And it goes on as ever.
    world.write("far/off/three", 1, b"i").unwrap();
    assert_eq!(world.cat("hard/two"), "Hi");
    world.rename("place", "moved").unwrap();
    assert!(!world.exists("moved/gone") && !world.exists("place/only"));
    assert_eq!(world.cat("moved/inner"), "x");
    world.close();
    assert_eq!(sealed(&world, false).copied, 0, "nothing of it is the base's any more");
    world.open_again();
}

/// A person's hard link, in a directory that the session has not touched.
#[test]
fn a_name_that_a_copied_up_file_got_in_the_base_gets_an_entry() {
    let mut world = World::new("dir/file \"content\"\ndir/other \"o\"\nfar/off/other \"other\"");
    world.write("dir/file", 0, b"C").unwrap();
    world.write("dir/other", 0, b"O").unwrap();
    let base = world.change_base();
    fs::hard_link(base.join("dir/file"), base.join("far/off/new")).unwrap();
    assert_eq!(world.cat("far/off/new"), "Content");
    world.close();
    assert_eq!(sealed(&world, false).names, 1);
    assert_sealed(&world);
    assert_eq!(sealed(&world, false), Sealed::default());
    world.open_again();
    let theirs = spec_reader::read_dense_tree(&world.session(), &world.base());
    tree::assert_same(&theirs, &read_tree(&world), "as the specification reads it");
    assert_eq!((world.cat("far/off/new"), world.stat("dir/file").nlink), ("Content".into(), 2));
    // It is still one file.
    world.write("far/off/new", 0, b"K").unwrap();
    world.remove("dir/file").unwrap();
    assert_eq!((world.cat("far/off/new"), world.stat("far/off/new").nlink), ("Kontent".into(), 1));
}

#[test]
fn a_sealed_session_has_nothing_to_seal() {
    let world = world();
    sealed(&world, false);
    let before = super::all_rows(&world.session());
    assert_eq!(sealed(&world, false), Sealed::default());
    let after = super::all_rows(&world.session());
    let changed = after.iter().filter(|row| !before.contains(row)).collect::<Vec<_>>();
    let is_counter = |row: &&&String| {
        ["acetate_meta", "sqlite_sequence"].iter().any(|table| row.starts_with(table))
    };
    assert_eq!(changed.iter().filter(|row| !is_counter(row)).count(), 0, "{changed:?}");
}

#[test]
fn a_repair_keeps_a_session_sealed_for_agentfs() {
    let world = world();
    sealed(&world, true);
    let broken = "UPDATE fs_inode SET nlink = 7 WHERE ino = (SELECT max(ino) FROM fs_inode)";
    world.sql().execute(broken, []).unwrap();
    let options = RepairOptions { backup: None, dry_run: false, most: 100 };
    let (repaired, left) = repair(&world.session(), None, &options, &mut |_, _| ()).unwrap();
    assert!(left.is_some(), "{repaired:?}");
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM fs_origin"), 0);
    assert_sealed(&world);
}

#[test]
fn for_agentfs_there_are_no_origins_and_ours_stay() {
    let mut world = world();
    world.open_again();
    let (number, attr) = (world.stat("hard/two").fileid, world.stat("place/inner"));
    world.close();
    let count = |world: &World, table: &str| {
        world.sql_value::<i64>(&format!("SELECT count(*) FROM {table}"))
    };
    sealed(&world, true);
    assert_eq!(count(&world, "fs_origin"), 0);
    assert!(count(&world, "acetate_origin") > 600);
    assert_sealed(&world);
    world.open_again();
    assert_eq!(world.stat("hard/two").fileid, number);
    // The space that it takes is the session's now.
    let used = world.stat("place/inner").used;
    assert_eq!(world.stat("place/inner"), Attr { used, ..attr.clone() });
    world.chmod("place/inner", 0o600).unwrap();
    world.reopen();
    assert_eq!(world.stat("place/inner").fileid, attr.fileid);
    world.close();
    sealed(&world, false);
    assert_eq!(count(&world, "fs_origin"), count(&world, "acetate_origin"));
    assert_sealed(&world);
}

#[test]
fn interrupted_after_any_step_it_is_valid_and_goes_on() {
    let world = world();
    let before = merged(&open(&world));
    let mut steps = 0;
    loop {
        // So many steps of a run that is then killed: nothing but the commits is left of it.
        let path = world.session();
        let host = Host::current().unwrap();
        let session = Session::open(&path, OpenMode::Serve, &host).unwrap();
        let base = acetate::base::HostDir::open(&world.base(), Default::default()).unwrap();
        let mut sealing = Sealing::new(std::sync::Arc::new(base), std::sync::Arc::new(now));
        let mut writer = session.writer().unwrap();
        let mut over = false;
        for _ in 0..2 {
            writer.begin(false).unwrap();
            match sealing.step(writer.txn()).unwrap() {
                SealStep::Made => writer.commit().unwrap(),
                SealStep::Skipped => writer.abort().unwrap(),
                SealStep::Over => {
                    writer.abort().unwrap();
                    over = true;
                    break;
                }
            }
            steps += 1;
        }
        drop((writer, session));
        assert_consistent(&path);
        assert_same(&merged(&open(&world)), &before, "between two steps");
        if over || steps > 60 {
            break;
        }
    }
    // Each run begins with looking for what is left, and does one thing more.
    assert!(steps > 4, "{steps}");
    sealed(&world, false);
    assert_sealed(&world);
    assert_same(&merged(&open(&world)), &before, "in the end");
}

fn now() -> acetate::vfs::Time {
    acetate::vfs::Time { secs: 2_000_000_100, nanos: 0 }
}

#[test]
fn what_is_lost_is_named_and_not_taken_for_zeros() {
    let mut world = world();
    fs::write(world.change_base().join("dir/large"), "another").unwrap();
    let did = sealed(&world, false);
    assert_eq!((did.unfinished, did.finished), (1, 0));
    assert_eq!(did.first_unfinished[0].as_bytes(), b"/dir/large");
    let rows = "SELECT count(*) FROM fs_data WHERE ino IN (SELECT delta_ino FROM acetate_copy_up)";
    assert_eq!(world.sql_value::<i64>(rows), 1, "what was written");
    assert_eq!(did.redirects, 2, "the rest is done");
}

#[test]
fn without_the_base_nothing_is_done() {
    let mut world = world();
    let base = world.change_base();
    fs::remove_dir_all(&base).unwrap();
    let gone = seal(&world.session(), None, false, &mut |_, _| ()).unwrap_err();
    assert!(matches!(gone, InspectError::Base { is_recorded: true, .. }), "{gone}");
    fs::create_dir(&base).unwrap();
}

#[test]
fn a_served_session_is_refused() {
    let world = World::new("file \"content\"");
    let refused = seal(&world.session(), None, false, &mut |_, _| ()).unwrap_err();
    assert!(refused.to_string().contains("in use by another server"), "{refused}");
}

#[test]
fn obstacles_for_agentfs_are_named() {
    let mut world = World::new("file \"content\"\ndir/in \"it\"");
    world.put(&b"odd \xff"[..], "x");
    world.symlink(&b"\xfe"[..], "link").unwrap();
    world.put("dir/live", "hidden by another program");
    world.close();
    assert_eq!(obstacles(&world.session()).unwrap().hidden, 0);
    let sql = "INSERT INTO fs_whiteout (path, created_at) VALUES ('/dir', 0)";
    world.sql().execute(sql, []).unwrap();
    let Obstacles { odd_names, hidden, first_hidden } = obstacles(&world.session()).unwrap();
    assert_eq!(odd_names.count, 2);
    assert_eq!(odd_names.first, [b"/odd \xff".to_vec(), b"/link".to_vec()]);
    assert!(hidden > 0 && first_hidden.contains(&b"/dir".to_vec()), "{first_hidden:?}");
    world.sql().execute("DELETE FROM fs_whiteout", []).unwrap();
}
