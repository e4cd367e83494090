//! Quotas: what a session takes is counted exactly, and what goes past a limit is refused.

use std::sync::Arc;

use acetate::delta::{DEFAULT_FILE_BYTES, Limits, StoreError, Usage};
use acetate::overlay::{CopyLimits, Group, Overlay, Scope};
use acetate::vfs::{
    CreateHow, CreateVerifier, FsError, FsStat, Locator, NewNode, SetAttr, Stability, Vfs,
};

use crate::support::client::{Client, mode, size};
use crate::support::counted::{AMPLE, assert_counted, usage};
use crate::support::world::{Setup, World};

const CHUNK: u64 = 512;

/// Copied up in the background, if it is changed.
const LARGE_BYTES: u64 = 20 * CHUNK + 100;

fn setup() -> Setup {
    let large = "l".repeat(LARGE_BYTES as usize);
    let base = format!(
        "dir/large \"{large}\"\ndir/small \"small\"\ndir/sub/deep \"deep\"\nlinked \"linked\"\n\
         again = linked\nempty/\nlink -> dir\n"
    );
    let copy_up = CopyLimits::of(1000, 2 * CHUNK);
    Setup { base: Some(base), chunk_bytes: CHUNK, copy_up, ..Setup::default() }
}

fn limit(world: &World, bytes: Option<u64>, files: Option<u64>) {
    world.wait(world.overlay.set_limits(move |limits| Limits { bytes, files, ..limits })).unwrap();
}

/// Leaves no room but for `bytes` and `files`.
fn leave(world: &World, bytes: u64, files: u64) {
    let used = usage(world);
    limit(world, Some(used.bytes + bytes), Some(used.files + files));
}

fn counted(world: &World) -> Usage {
    world.wait(world.overlay.quota()).unwrap().0
}

#[test]
fn each_kind_of_change_is_counted() {
    type Step = fn(&World);
    let steps: &[(&str, Step, (i64, i64))] = &[
        ("create", |w| drop(w.create("new", CreateHow::Guarded(mode(0o644)))), (0, 1)),
        ("grow", |w| w.write("new", 0, &[1; 700]).unwrap(), (700, 0)),
        ("overwrite", |w| w.write("new", 100, &[2; 300]).unwrap(), (0, 0)),
        ("sparse write", |w| w.write("new", 5000, &[3; 10]).unwrap(), (1024 - 700 + 512, 0)),
        ("grow by truncation", |w| w.truncate("new", 9000).unwrap(), (0, 0)),
        ("cut", |w| w.truncate("new", 600).unwrap(), (600 - 1536, 0)),
        ("a chunk and a hole of one byte", |w| w.truncate("new", 1025).unwrap(), (424, 0)),
        ("mkdir", |w| drop(w.mkdir("made")), (0, 1)),
        ("symlink", |w| drop(w.symlink("made", "to")), (4, 1)),
        ("link", |w| w.link("new", "made/new").unwrap(), (0, 1)),
        ("remove of one name", |w| w.remove("new").unwrap(), (0, -1)),
        ("of the last", |w| w.remove("made/new").unwrap(), (-1024, -1)),
        ("rmdir", |w| w.rmdir("made").unwrap(), (0, -1)),
        ("copy-up with its parents", |w| w.write("dir/sub/deep", 0, b"D").unwrap(), (4, 3)),
        ("of attributes", |w| w.chmod("dir/small", 0o600).unwrap(), (5, 1)),
        ("of a directory", |w| w.chmod("empty", 0o700).unwrap(), (0, 1)),
        ("of a link", |w| w.chown("link", 7, 7).unwrap(), (3, 1)),
        ("pending copy-up", |w| w.write("dir/large", 9, b"!").unwrap(), (LARGE_BYTES as i64, 1)),
        ("in the background", |w| assert!(w.copy_pieces(2)), (0, 0)),
        ("behind its end", |w| w.write("dir/large", LARGE_BYTES, b"!").unwrap(), (1, 0)),
        (
            "cut while pending",
            |w| w.truncate("dir/large", 2100).unwrap(),
            (2099 - LARGE_BYTES as i64, 0),
        ),
        ("and grown", |w| w.truncate("dir/large", 4000).unwrap(), (2560 - 2100, 0)),
        ("to its end", |w| assert_eq!(w.finish_copies(), 0), (0, 0)),
        ("copy-up of a linked file", |w| w.write("linked", 0, b"L").unwrap(), (6, 1)),
        ("its other name", |w| w.remove("again").unwrap(), (0, 1)),
        ("rename", |w| w.rename("linked", "moved").unwrap(), (0, 1)),
        ("rename over", |w| w.rename("moved", "dir/small").unwrap(), (-5, -1)),
        ("rename of a directory", |w| w.rename("dir", "there").unwrap(), (0, 1)),
        ("a failure", |w| assert!(w.rmdir("there").is_err()), (0, 0)),
        ("removal of what the base has", |w| w.remove("there/sub/deep").unwrap(), (-4, 0)),
    ];
    let mut world = World::with(setup());
    limit(&world, AMPLE.bytes, AMPLE.files);
    let mut before = assert_counted(&world);
    assert_eq!(before, Usage::default());
    for (step, change, (bytes, files)) in steps {
        change(&world);
        let after = assert_counted(&world);
        let grown = |after: u64, before: u64| after as i64 - before as i64;
        let growth = (grown(after.bytes, before.bytes), grown(after.files, before.files));
        assert_eq!(growth, (*bytes, *files), "{step}");
        before = after;
    }
    world.reopen();
    assert_eq!(assert_counted(&world), before);
    let root = vec![acetate::delta::MergedPath::root()];
    world.wait(world.overlay.discard(&world.caller, root)).unwrap();
    assert_eq!(assert_counted(&world), Usage::default());
}

/// The attributes in a refusal are those of what was not changed: the client checks that of each.
#[test]
fn what_grows_past_a_limit_is_refused_and_changes_nothing() {
    let world = World::with(setup());
    world.put("file", "content");
    world.mkdir("made").unwrap();
    leave(&world, 3, 0);
    let before = assert_counted(&world);
    let (attr, root) = (world.stat("file"), world.stat(""));
    type Try = fn(&Client) -> Result<(), FsError>;
    let tries: &[(&str, Try)] = &[
        ("CREATE", |c| c.create("x", CreateHow::Guarded(mode(0o644))).map(drop)),
        ("EXCLUSIVE", |c| c.create("x", CreateHow::Exclusive(CreateVerifier([7; 8]))).map(drop)),
        ("MKDIR", |c| c.mkdir("x").map(drop)),
        ("SYMLINK", |c| c.symlink("to", "x").map(drop)),
        ("MKNOD", |c| c.make("x", NewNode::Fifo, SetAttr::default()).map(drop)),
        ("WRITE", |c| c.write("file", 7, b"more")),
        ("a synced WRITE", |c| {
            c.write_to(&c.at("file"), 7, b"more", Stability::FileSync).result.map(drop)
        }),
        ("WRITE of the base's", |c| c.write("dir/small", 0, b"S")),
        ("of a large one", |c| c.write("dir/large", 0, b"L")),
        ("SETATTR of the base's", |c| c.chmod("linked", 0o600)),
        ("RENAME", |c| c.rename("linked", "x")),
        ("RENAME of a directory", |c| c.rename("dir", "x")),
        ("LINK", |c| c.link("linked", "x")),
        ("REMOVE where a directory is copied up", |c| c.remove("dir/small")),
        ("REMOVE of what the base has", |c| c.remove("linked")),
        ("LINK of the session's own", |c| c.link("file", "x")),
    ];
    for (name, change) in tries {
        assert_eq!(change(&world), Err(FsError::Quota), "{name}");
        assert_eq!(assert_counted(&world), before, "{name}");
    }
    assert_eq!((world.stat("file"), world.stat("")), (attr, root));
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM fs_whiteout"), 0);

    // What takes no more goes on.
    world.write("file", 7, b"abc").unwrap();
    world.write("file", 0, b"CONTENT").unwrap();
    world.chmod("file", 0o600).unwrap();
    world.rename("file", "made/file").unwrap();
    assert_eq!(world.write("made/file", 10, b"d"), Err(FsError::Quota));
    world.truncate("made/file", 4).unwrap();
    world.write("made/file", 4, b"123456").unwrap();
    assert_eq!(world.mkdir("x").map(drop), Err(FsError::Quota));
    world.rm_rf("made");
    world.mkdir("x").unwrap();
    assert_eq!(assert_counted(&world).files, 1);
}

#[test]
fn past_a_lowered_limit_things_can_only_become_less() {
    let mut world = World::with(setup());
    world.put("a", &"a".repeat(2000));
    world.put("b", "b");
    limit(&world, Some(100), Some(1));
    assert_eq!(world.write("b", 1, b"b"), Err(FsError::Quota));
    world.write("a", 0, b"A").unwrap();
    world.truncate("a", 1500).unwrap();
    world.reopen();
    assert_eq!(world.write("b", 1, b"b"), Err(FsError::Quota));
    assert_eq!(world.create("c", CreateHow::Guarded(mode(0o644))).err(), Some(FsError::Quota));
    world.rename("b", "a").unwrap();
    world.write("a", 1, b"more").unwrap();
    assert_eq!(assert_counted(&world), Usage { bytes: 5, files: 1 });
    limit(&world, None, None);
    world.put("c", &"c".repeat(2000));
    let stored = "SELECT count(*) FROM acetate_meta WHERE key LIKE 'quota%'";
    assert_eq!(world.sql_value::<i64>(stored), 0);
}

#[test]
fn what_is_not_committed_is_not_charged() {
    let mut world = World::with(setup());
    world.put("file", "content");
    leave(&world, 100, 1);
    let before = assert_counted(&world);
    let full = || StoreError::full("full");
    for _ in 0..5 {
        world.faults.fail("commit", 1, full());
        assert_eq!(world.write("file", 7, &[b'x'; 60]), Err(FsError::NoSpace));
        world.faults.fail("commit", 1, full());
        assert_eq!(world.truncate("file", 0), Err(FsError::NoSpace));
        world.faults.fail("put_inode", 1, full());
        assert!(world.mkdir("x").is_err());
        assert_eq!(assert_counted(&world), before);
    }
    world.write("file", 7, &[b'x'; 60]).unwrap();
    let before = assert_counted(&world);
    world.kill();
    assert_eq!(assert_counted(&world), before);
    assert_eq!(world.write("file", 67, &[b'x'; 60]), Err(FsError::Quota));
}

#[test]
fn nothing_is_written_while_nobody_can_count() {
    let mut world = World::with(setup());
    limit(&world, Some(10), None);
    world.reopen();
    world.faults.fail("count_usage", 1, StoreError::busy("busy"));
    assert_eq!(world.mkdir("x").map(drop), Err(FsError::TryLater));
    world.mkdir("x").unwrap();
}

#[test]
fn without_a_limit_nothing_is_counted() {
    let mut world = World::with(setup());
    world.put("file", "content");
    world.reopen();
    world.put("other", "other");
    world.wait(world.overlay.fsstat(&world.caller, &Locator::ROOT)).result.unwrap();
    assert_eq!(world.faults.calls("count_usage"), 0);
    limit(&world, AMPLE.bytes, None);
    world.put("another", "another");
    assert_counted(&world);
    assert_eq!(world.faults.calls("count_usage"), 1);
}

fn fsstat(world: &World) -> FsStat {
    world.wait(world.overlay.fsstat(&world.caller, &Locator::ROOT)).result.unwrap()
}

#[test]
fn fsstat_shows_the_tightest_limit() {
    let group =
        Arc::new(Group::new(Limits { bytes: Some(5000), files: None, ..Limits::default() }));
    let world = World::with(Setup { group: Some(group.clone()), ..setup() });
    let shown = |world: &World| {
        let stat = fsstat(world);
        (stat.total_bytes, stat.free_bytes, stat.available_bytes)
    };
    assert_eq!(shown(&world), (5000, 5000, 5000));
    world.put("file", &"x".repeat(1000));
    assert_eq!(shown(&world), (5000, 4000, 4000));
    limit(&world, Some(3000), Some(4));
    assert_eq!(shown(&world), (3000, 2000, 2000));
    let stat = fsstat(&world);
    assert_eq!((stat.total_files, stat.free_files, stat.available_files), (4, 3, 3));
    limit(&world, Some(10), Some(0));
    assert_eq!(shown(&world), (10, 0, 0));
    // The disk has less than that.
    group.set_limits(Limits::default());
    limit(&world, Some(u64::MAX), None);
    let disk = acetate::delta::sqlite::Session::open(
        &world.session(),
        acetate::delta::sqlite::OpenMode::Inspect,
        &acetate::delta::sqlite::Host::current().unwrap(),
    );
    let disk = acetate::delta::Store::disk_usage(&disk.unwrap()).unwrap();
    assert_eq!(fsstat(&world).total_bytes, disk.total_bytes);
}

#[test]
fn sessions_share_the_limits_of_a_group() {
    let group =
        Arc::new(Group::new(Limits { bytes: Some(1000), files: Some(3), ..Limits::default() }));
    let with_group = || Setup { group: Some(group.clone()), ..setup() };
    let (mut one, two) = (World::with(with_group()), World::with(with_group()));
    one.put("a", &"a".repeat(600));
    assert_eq!(two.mkdir("dir/new").map(drop).err(), None);
    assert_eq!(group.usage(), Usage { bytes: 600, files: 3 });
    assert_eq!(two.mkdir("x").map(drop), Err(FsError::Quota));
    one.remove("a").unwrap();
    two.put("b", &"b".repeat(1000));
    assert_eq!(one.create("a", CreateHow::Guarded(mode(0o644))).err(), Some(FsError::Quota));
    // A session that is gone takes nothing; what another takes counts when it comes.
    one.close();
    drop(one);
    assert_eq!(group.usage(), counted(&two));
    let mut three = World::with(setup());
    three.put("c", "content");
    three.close();
    group.set_limits(Limits { bytes: Some(1010), files: None, ..Limits::default() });
    drop(two);
    assert_eq!(group.usage(), Usage::default());
    three.open_again();
}

/// A session may be reached with and without a group's limits, and is counted either way.
#[test]
fn only_the_groups_that_a_change_came_through_are_asked() {
    let group = Arc::new(Group::new(Limits { bytes: Some(100), files: None, ..Limits::default() }));
    let world = World::with(setup());
    let mut scoped = Overlay::clone(&world.overlay);
    world.wait(scoped.join(&group)).unwrap();
    let mut again = scoped.clone();
    world.wait(again.join(&group)).unwrap();
    let mut bound = Client::clone(&world);
    bound.overlay = Arc::new(scoped);
    assert_eq!(bound.write("dir/small", 0, &[1; 101]), Err(FsError::Quota));
    assert_eq!(group.usage(), Usage::default());
    world.write("dir/small", 0, &[1; 101]).unwrap();
    assert_eq!(group.usage(), assert_counted(&world));
    assert_eq!(bound.write("dir/small", 101, &[1; 1]), Err(FsError::Quota));
    bound.truncate("dir/small", 50).unwrap();
    bound.write("dir/small", 50, &[1; 50]).unwrap();
    assert_eq!(group.usage(), assert_counted(&world));
    drop(bound);
    world.put("other", "other");
    assert_eq!(group.usage(), assert_counted(&world), "one of them is still in it");
    drop(again);
    assert_eq!(group.usage(), Usage::default());
    world.put("another", "another");
    assert_eq!(group.usage(), Usage::default());
}

/// However changes of several sessions meet, never more than the limit is taken, and all of it
/// can be.
#[test]
fn a_group_is_exact_under_concurrent_changes() {
    const SESSIONS: usize = 3;
    const LIMIT: u64 = 40;
    let group =
        Arc::new(Group::new(Limits { bytes: None, files: Some(LIMIT), ..Limits::default() }));
    let worlds = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..SESSIONS)
            .map(|_| {
                let group = group.clone();
                scope.spawn(move || {
                    let world = World::with(Setup { group: Some(group.clone()), ..setup() });
                    for i in 0..60 {
                        let made = world.mkdir(format!("d{i}"));
                        assert!(matches!(made, Ok(_) | Err(FsError::Quota)), "{made:?}");
                        assert!(group.usage().files <= LIMIT);
                        if i % 4 == 3 {
                            let _ = world.rmdir(format!("d{}", i - 2));
                        }
                    }
                    world
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let sum =
        |worlds: &[World]| worlds.iter().map(|world| assert_counted(world).files).sum::<u64>();
    assert_eq!(group.usage().files, sum(&worlds));
    for i in 0.. {
        if worlds[0].mkdir(format!("e{i}")).is_err() {
            break;
        }
    }
    assert_eq!((group.usage().files, sum(&worlds)), (LIMIT, LIMIT));
}

#[test]
fn a_file_grows_no_further_than_the_largest_size() {
    let world = World::with(setup());
    let sizes = |world: &World| {
        let file = world.at("dir/small");
        world.wait(world.overlay.fsinfo(&world.caller, &file)).result.unwrap().max_file_bytes
    };
    world.put("file", "content");
    world.wait(world.overlay.set_limits(|limits| Limits { file_bytes: None, ..limits })).unwrap();
    assert_eq!(sizes(&world), DEFAULT_FILE_BYTES, "as ext4 has it");
    assert_eq!(world.setattr("file", size(1 << 62)), Err(FsError::TooLarge));
    world.setattr("file", size(DEFAULT_FILE_BYTES)).unwrap();
    world.setattr("file", size(20)).unwrap();
    let most = Some(10);
    world.wait(world.overlay.set_limits(move |l| Limits { file_bytes: most, ..l })).unwrap();
    assert_eq!(sizes(&world), 10);
    // One that is larger may shrink and be changed where it is, and not grow.
    assert_eq!(world.setattr("file", size(21)), Err(FsError::TooLarge));
    world.write("file", 15, b"12345").unwrap();
    assert_eq!(world.write("file", 15, b"123456"), Err(FsError::TooLarge));
    world.setattr("file", size(11)).unwrap();
    world.setattr("file", size(5)).unwrap();
    assert_eq!(world.write("file", 5, b"123456"), Err(FsError::TooLarge));
    world.write("file", 5, b"12345").unwrap();
    // The base has larger ones, which are copied up all the same.
    world.chmod("dir/large", 0o600).unwrap();
    world.write("dir/large", 0, b"x").unwrap();
    assert_eq!(world.write("dir/large", LARGE_BYTES, b"x"), Err(FsError::TooLarge));
}

#[test]
fn an_export_limits_the_size_of_its_files_beside_the_session() {
    let world = World::with(setup());
    world.put("file", "content");
    let most = |bytes: Option<u64>| {
        let overlay = world.overlay.within(Scope { file_bytes: bytes, ..Scope::default() });
        let file = world.at("file");
        let info = world.wait(overlay.fsinfo(&world.caller, &file)).result.unwrap();
        let set = world.wait(overlay.setattr(&world.caller, &file, size(1000), None)).result;
        (info.max_file_bytes, set)
    };
    assert_eq!(most(Some(100)), (100, Err(FsError::TooLarge)));
    assert_eq!(most(Some(1000)), (1000, Ok(())));
    let own = |bytes| move |limits| Limits { file_bytes: bytes, ..limits };
    world.setattr("file", size(0)).unwrap();
    world.wait(world.overlay.set_limits(own(Some(50)))).unwrap();
    assert_eq!(most(Some(100)), (50, Err(FsError::TooLarge)), "the lower one of both");
    world.wait(world.overlay.set_limits(own(None))).unwrap();
    assert_eq!(most(Some(1 << 50)), (1 << 50, Ok(())), "what is set is not the usual");
}
