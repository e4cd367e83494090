//! What clients change in a served session while it is applied stays as they made it: each kind
//! of change at each moment. A twin session that is never applied says what that is.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;

use acetate::delta::{Ino, MergedPath};
use acetate::inspect::Result;
use acetate::inspect::apply::{
    AppliedChange, ApplyEvent, ApplyOptions, Consent, DroppedCopy, Report, SessionUpdater, apply,
    resume,
};
use acetate::overlay::CopyStep;
use acetate::vfs::{CreateHow, FileKind, FsError, Time};

use super::open;
use crate::support::applied::{Book, Exact, all, merged, on_host, planned};
use crate::support::client::size;
use crate::support::world::World;

/// What came of it.
type Done = std::result::Result<(), FsError>;

/// A change of a client.
type Change = (&'static str, fn(&World) -> Done);

const TREE: &str = r#"
    dir/file "content"
    dir/other "other"
    dir/sub/deep "deep"
    gone/a "a"
    gone/sub/b "b"
    hard/one "linked"
    hard/two = hard/one
    keep "keep"
    over "over"
    two/file "two"
    two/below/file "below"
"#;

/// With steps of each kind.
pub fn changed() -> World {
    let mut world = World::new(TREE);
    world.change_base();
    world.tick(60);
    world.write("dir/file", 0, b"CONTENT").unwrap();
    world.chmod("dir/other", 0o600).unwrap();
    world.rename("dir/sub", "sub").unwrap();
    world.put("new", "new");
    world.link("new", "linked").unwrap();
    world.mkdir("newdir").unwrap();
    world.put("newdir/file", "in newdir");
    world.rename("gone/sub", "out").unwrap();
    world.rm_rf("gone");
    world.write("hard/two", 0, b"LINKED").unwrap();
    world.rename("keep", "kept").unwrap();
    world.remove("over").unwrap();
    world.rename("two", "moved").unwrap();
    world.write("moved/file", 0, b"TWO").unwrap();
    world.tick(60);
    world
}

fn try_put(world: &World, path: &str, content: &str) -> Done {
    world.create(path, CreateHow::Unchecked(size(0)))?;
    world.write(path, 0, content.as_bytes())
}

fn mkdir(world: &World, path: &str) -> Done {
    world.mkdir(path).map(drop)
}

const CHANGES: &[Change] = &[
    ("create", |w| try_put(w, "created", "created")),
    ("create in a new directory", |w| try_put(w, "newdir/created", "created")),
    ("create in a moved directory", |w| try_put(w, "moved/created", "created")),
    ("write to a file", |w| w.write("dir/file", 0, b"AGAIN!!")),
    ("write to a new file", |w| w.write("new", 0, b"NEWER")),
    ("write to a file that only moved", |w| w.write("kept", 0, b"KEPT")),
    ("write to a linked file", |w| w.write("hard/one", 0, b"MORE")),
    ("truncate", |w| w.truncate("new", 1)),
    ("chmod a file", |w| w.chmod("new", 0o640)),
    ("chmod a file again", |w| w.chmod("dir/other", 0o644)),
    ("chmod a directory", |w| w.chmod("newdir", 0o700)),
    ("set the times of a directory", |w| w.utimes("moved", Time { secs: 5, nanos: 0 })),
    ("set the times of the base's directory", |w| w.utimes("dir", Time { secs: 5, nanos: 0 })),
    ("remove a new file", |w| w.remove("new")),
    ("remove a file of the base", |w| w.remove("dir/file")),
    ("remove a moved file", |w| w.remove("kept")),
    ("remove a file in a new directory", |w| w.remove("newdir/file")),
    ("remove one of two names", |w| w.remove("hard/one")),
    ("rmdir", |w| match w.ls("newdir") {
        names if names == ["file"] => w.remove("newdir/file").and_then(|()| w.rmdir("newdir")),
        _ => Err(FsError::NotEmpty),
    }),
    ("rename a new file", |w| w.rename("new", "new2")),
    ("rename a moved file", |w| w.rename("kept", "kept2")),
    ("rename a moved file back", |w| w.rename("kept", "keep")),
    ("rename a file of the base", |w| w.rename("dir/file", "file2")),
    ("rename over a file", |w| w.rename("new", "dir/other")),
    ("rename a new directory", |w| w.rename("newdir", "newdir2")),
    ("rename a moved directory", |w| w.rename("moved", "moved2")),
    ("rename a moved directory into another", |w| w.rename("moved", "newdir/moved")),
    ("rename what was moved out of a removed directory", |w| w.rename("out", "out2")),
    ("rename a directory above", |w| w.rename("dir", "dir2")),
    ("rename and make another one", |w| {
        w.rename("newdir", "newdir2").and_then(|()| mkdir(w, "newdir"))
    }),
    ("rename a moved one and make another one", |w| {
        w.rename("moved", "moved2").and_then(|()| mkdir(w, "moved"))
    }),
    ("link", |w| w.link("new", "new-link")),
    ("link a moved file", |w| w.link("kept", "kept-link")),
    ("replace by a directory", |w| w.remove("new").and_then(|()| mkdir(w, "new"))),
    ("replace by a link", |w| w.remove("kept").and_then(|()| w.symlink("x", "kept").map(drop))),
    ("make what was removed", |w| try_put(w, "over", "over again")),
    ("make a directory that was removed", |w| {
        mkdir(w, "gone").and_then(|()| try_put(w, "gone/a", "another a"))
    }),
];

/// Makes a change, if what it is about is there.
fn make(world: &World, change: fn(&World) -> Done) -> bool {
    let made = AssertUnwindSafe(|| change(world));
    std::panic::catch_unwind(made).is_ok_and(|made| made.is_ok())
}

/// When a client makes a change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Moment {
    Staging,
    /// Before this step.
    Step(usize),
    /// When all steps are done, and the session is about to be told.
    LettingGo,
}

/// The world's server, before it is told what was applied.
struct Late<'a, F: FnMut(Moment)> {
    book: Book<'a>,
    at: &'a std::cell::RefCell<F>,
}

impl<F: FnMut(Moment)> SessionUpdater for Late<'_, F> {
    fn copy(&mut self, from: Ino) -> Result<CopyStep> {
        self.book.copy(from)
    }

    fn forget(&mut self, applied: &[AppliedChange], is_first: bool) -> Result<Vec<MergedPath>> {
        (self.at.borrow_mut())(Moment::LettingGo);
        self.book.forget(applied, is_first)
    }

    fn settle_moves(&mut self) -> Result<()> {
        self.book.settle_moves()
    }

    fn drop_unchanged(&mut self, copies: &[DroppedCopy]) {
        self.book.drop_unchanged(copies);
    }
}

/// Applies all; `at` is told each moment once.
pub fn apply_with(world: &World, options: &ApplyOptions, at: impl FnMut(Moment)) -> Report {
    let opened = open(world);
    let plan = planned(&opened, None, options).unwrap();
    let at = std::cell::RefCell::new(at);
    let mut book = Late { book: Book(world), at: &at };
    let mut is_staging = true;
    let mut watch = |event: ApplyEvent| {
        match event {
            ApplyEvent::Making { .. } if std::mem::take(&mut is_staging) => {
                (at.borrow_mut())(Moment::Staging);
            }
            ApplyEvent::Step { done, .. } => (at.borrow_mut())(Moment::Step(done)),
            ApplyEvent::Making { .. } | ApplyEvent::Copying(_) => {}
        }
        ControlFlow::Continue(())
    };
    apply(&opened, None, options, Consent::Shown(&plan), Some(&mut book), &mut watch).unwrap()
}

/// Objects by path: type, mode, content and the first of the names.
pub type Seen = BTreeMap<Vec<u8>, (FileKind, u32, Vec<u8>, Vec<u8>)>;

/// What clients see: without times of what has the host's, and owners.
pub fn seen(world: &World) -> Seen {
    stripped(&merged(&world.session(), Some(&world.base())))
}

fn stripped(tree: &Exact) -> Seen {
    let brief =
        |o: &crate::support::applied::Object| (o.kind, o.mode, o.content.clone(), o.first.clone());
    tree.iter().map(|(path, object)| (path.clone(), brief(object))).collect()
}

#[track_caller]
fn assert_seen(world: &World, twin: &World, what: &str) {
    let (got, wanted) = (seen(world), seen(twin));
    let paths = got.keys().chain(wanted.keys());
    let differ: std::collections::BTreeSet<_> = paths
        .filter(|path| got.get(*path) != wanted.get(*path))
        .map(|path| {
            let show = |tree: &Seen| {
                tree.get(path).map(|(kind, mode, content, _)| {
                    format!("{kind:?} {mode:o} {}", content.escape_ascii())
                })
            };
            format!("{}: {:?}, not {:?}", path.escape_ascii(), show(&got), show(&wanted))
        })
        .collect();
    assert!(differ.is_empty(), "{what}: {differ:#?}");
}

/// Asserts that every file of the host has what it had, or what was planned.
#[track_caller]
fn assert_planned_or_old(world: &World, known: &[Vec<u8>], what: &str) {
    for (path, object) in on_host(&world.base()) {
        let name = path.escape_ascii();
        assert!(!path.starts_with(b".acetate-kept"), "{what}: {name}");
        let is_known = object.kind != FileKind::Regular || known.contains(&object.content);
        assert!(is_known, "{what}: {name}: {}", object.content.escape_ascii());
    }
}

/// Makes changes at moments, and asserts that nothing of them is lost.
#[track_caller]
fn check(changes: &[(Moment, Change)], what: &str) {
    let (mut world, twin) = (changed(), changed());
    let contents = |tree: &Exact| tree.values().map(|o| o.content.clone()).collect::<Vec<_>>();
    let mut known = contents(&on_host(&world.base()));
    known.extend(contents(&merged(&world.session(), Some(&world.base()))));
    let mut left: Vec<_> = changes.to_vec();
    let mut made = Vec::new();
    let report = apply_with(&world, &all(), |now| {
        left.retain(|(moment, (_, change))| {
            let is_now = *moment == now;
            if is_now {
                world.tick(1);
                made.push((*change, make(&world, *change)));
            }
            !is_now
        });
    });
    for (change, was_made) in made {
        if was_made {
            change(&twin).unwrap();
        }
    }
    assert_planned_or_old(&world, &known, what);
    assert_seen(&world, &twin, &format!("{what}: {:?}", report.skipped));
    // So it is with a new server, and with what is applied then.
    world.reopen();
    assert_seen(&world, &twin, &format!("{what}, reopened: {:?}", report.skipped));
    let report = apply_with(&world, &ApplyOptions { force: true, ..all() }, |_| {});
    assert_eq!(report.skipped, [], "{what}");
    assert_seen(&world, &twin, &format!("{what}, applied again"));
    let (host, wanted) = (stripped(&on_host(&world.base())), seen(&twin));
    assert_eq!(host.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{what}");
}

fn steps() -> usize {
    let world = changed();
    let mut last = 0;
    apply_with(&world, &all(), |moment| {
        if let Moment::Step(step) = moment {
            last = step;
        }
    });
    last
}

#[test]
fn each_change_at_each_moment() {
    let last = steps();
    let mut failed = Vec::new();
    for change in CHANGES {
        let mut moments = vec![Moment::Staging, Moment::LettingGo];
        moments.extend([0, last / 3, last * 2 / 3].map(Moment::Step));
        for moment in moments {
            let what = format!("{} at {moment:?} of {last}", change.0);
            let checked = std::panic::catch_unwind(|| check(&[(moment, *change)], &what));
            failed.extend(checked.is_err().then_some(what));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn random_changes_at_random_moments() {
    let last = steps();
    let mut failed = Vec::new();
    for seed in 0..25_u64 {
        // xorshift64*: the same every time.
        let mut state = seed * 2 + 0x9e37_79b9_7f4a_7c15;
        let mut random = |below: usize| {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below
        };
        let mut changes = Vec::new();
        for _ in 0..1 + random(4) {
            let moment = match random(last + 3) {
                0 => Moment::Staging,
                1 => Moment::LettingGo,
                step => Moment::Step(step - 2),
            };
            changes.push((moment, CHANGES[random(CHANGES.len())]));
        }
        let names: Vec<_> = changes.iter().map(|(at, (name, _))| (at, name)).collect();
        let what = format!("seed {seed}: {names:?}");
        let checked = std::panic::catch_unwind(|| check(&changes, &what));
        failed.extend(checked.is_err().then_some(what));
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// What was skipped, or kept by the session.
fn skipped(change: fn(&World) -> Done, moment: Moment) -> Vec<String> {
    let world = changed();
    let report = apply_with(&world, &all(), |now| {
        if now == moment {
            change(&world).unwrap();
        }
    });
    // What the session keeps does not count as applied.
    assert!(report.done().all(|done| report.skipped.iter().all(|s| s.path != done.path)));
    report.skipped.iter().map(|s| format!("{}: {}", s.path.display(), s.why)).collect()
}

#[test]
fn what_changed_is_named() {
    let changed = |path: &str| format!("/{path}: a client changed it after the plan was made");
    let skipped_at = |change: fn(&World) -> Done| skipped(change, Moment::Staging);
    assert_eq!(skipped_at(|w| w.remove("dir/file")), [changed("dir/file")]);
    assert_eq!(skipped_at(|w| w.rename("kept", "kept2")), [changed("kept")]);
    let why = skipped_at(|w| w.rename("out", "out2"));
    let gone = "/gone: what was moved out of it changed after the plan was made".to_owned();
    assert_eq!(why, [changed("out"), gone]);
    let kept = |path: &str| {
        format!("/{path}: a client changed it during apply; the session keeps the change")
    };
    let skipped = skipped(|w| w.write("new", 0, b"x"), Moment::LettingGo);
    assert_eq!(skipped, [kept("linked"), kept("new")]);
}

/// A run is killed between two steps, clients go on, and the next run finishes it.
#[test]
fn changes_between_a_kill_and_the_next_run() {
    let last = steps();
    let mut failed = Vec::new();
    for (name, change) in CHANGES {
        for at in [last / 3, last * 2 / 3] {
            let what = format!("{name} after a kill before step {at}");
            let checked = std::panic::catch_unwind(|| {
                let (world, twin) = (changed(), changed());
                let opened = open(&world);
                let plan = planned(&opened, None, &all()).unwrap();
                let mut stop = |event: ApplyEvent| match event {
                    ApplyEvent::Step { done, .. } if done == at => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                };
                let mut book = Book(&world);
                let report =
                    apply(&opened, None, &all(), Consent::Shown(&plan), Some(&mut book), &mut stop)
                        .unwrap();
                assert!(report.broken_off.is_some());
                world.tick(1);
                if make(&world, *change) {
                    change(&twin).unwrap();
                }
                let mut go_on = |_: ApplyEvent| ControlFlow::Continue(());
                let report = resume(&opened, None, Some(&mut book), &mut go_on).unwrap().unwrap();
                assert_seen(&world, &twin, &format!("{what}: {:?}", report.skipped));
            });
            failed.extend(checked.is_err().then_some(what));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Not chosen is what moved out of it before.
#[test]
fn a_directory_that_moved_is_followed_from_everywhere() {
    let mut world = World::new(TREE);
    world.change_base();
    world.rename("two/below", "below").unwrap();
    world.rename("two", "moved").unwrap();
    let before = seen(&world);
    let options = super::only(&["moved"]);
    let report = apply_with(&world, &options, |_| {});
    assert_eq!(report.skipped, []);
    assert!(world.base().join("moved/below/file").exists());
    assert_eq!(seen(&world), before);
    world.reopen();
    assert_eq!(seen(&world), before);
}

/// Directories of the base that change places, with entries of the session's in them: each base
/// directory shows through one directory at a time, in whatever order their rows are removed.
#[test]
fn directories_that_change_places_are_let_go_of() {
    /// What it is, directories that get an entry first, and renames.
    type Places = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);
    let places: [Places; 4] = [
        ("a swap", &[], &[("a", "t"), ("b", "a"), ("t", "b")]),
        ("a circle", &[], &[("a", "t"), ("b", "a"), ("c", "b"), ("t", "c")]),
        ("a chain", &["b", "a"], &[("b", "d"), ("a", "b")]),
        ("a chain, the other way", &["a", "b"], &[("b", "d"), ("a", "b")]),
    ];
    for (what, first, renames) in places {
        let mut world = World::new("a/1 \"A\"\nb/1 \"B\"\nc/1 \"C\"\n");
        world.change_base();
        for dir in first {
            world.put(format!("{dir}/made"), dir);
        }
        for (from, to) in renames {
            world.rename(from, to).unwrap();
        }
        world.mkdir("b/new").unwrap();
        let before = seen(&world);
        let report = apply_with(&world, &all(), |_| {});
        assert_eq!(report.skipped, [], "{what}");
        assert_eq!(seen(&world), before, "{what}");
        let on_host = on_host(&world.base());
        let merged = merged(&world.session(), Some(&world.base()));
        assert_eq!(stripped(&on_host), stripped(&merged), "{what}");
        world.reopen();
        assert_eq!(seen(&world), before, "{what}");
        assert_eq!(planned(&open(&world), None, &all()).unwrap().changes, [], "{what}");
    }
}

/// While directories of the base are on their way, what shows them is neither empty nor free, and
/// no handle is stale: the client asks again.
#[test]
fn a_moved_directory_is_never_shown_empty() {
    let world = changed();
    let dirs = ["moved", "moved/below", "sub"].map(|dir| (dir, world.at(dir), world.ls(dir).len()));
    let file = world.at("moved/below/file");
    let mut stalled = 0;
    let report = apply_with(&world, &all(), |now| {
        for (dir, handle, whole) in &dirs {
            match world.page(handle, 0, usize::MAX, false) {
                Ok((found, _)) => assert_eq!(found.len(), whole + 2, "{dir} at {now:?}"),
                Err(error) => {
                    assert_eq!(error, FsError::TryLater, "{dir} at {now:?}");
                    stalled += 1;
                }
            }
        }
        let refused = |done: Done, what: &str, usual: FsError| {
            let error = done.expect_err(what);
            assert!([usual, FsError::TryLater].contains(&error), "{what} at {now:?}: {error:?}");
        };
        refused(world.rmdir("moved"), "rmdir", FsError::NotEmpty);
        refused(world.rmdir("sub"), "rmdir of another", FsError::NotEmpty);
        refused(world.mkdir("moved/below").map(drop), "mkdir", FsError::Exists);
        refused(world.rename("newdir", "moved"), "rename over it", FsError::NotEmpty);
        match world.getattr(&file) {
            Ok(attr) => assert_eq!(attr.size, 5),
            Err(error) => assert_eq!(error, FsError::TryLater, "{now:?}"),
        }
    });
    assert_eq!(report.skipped, []);
    assert!(stalled > 0);
    for (dir, _, whole) in &dirs {
        assert_eq!(world.ls(dir).len(), *whole, "{dir}");
    }
    // Its path in the base is another one.
    assert_eq!(world.getattr(&file), Err(FsError::Stale));
}

/// Whoever moves a directory during apply has not touched what is in it: the session has no more of
/// that than before, and takes it for no drift. What was removed first stays away.
#[test]
fn a_directory_that_moves_during_apply_takes_along_what_was_applied_in_it() {
    let last = steps();
    let moved: Change = ("rename a directory above", |w| w.rename("dir", "dir2"));
    let removed: Change = ("remove a file, and rename the directory above", |w| {
        w.remove("dir/file").and_then(|()| w.rename("dir", "dir2"))
    });
    for moment in [Moment::Step(last), Moment::LettingGo] {
        check(&[(moment, removed)], &format!("{} at {moment:?}", removed.0));
        let world = changed();
        apply_with(&world, &all(), |now| {
            if now == moment {
                moved.1(&world).unwrap();
            }
        });
        assert_eq!(planned(&open(&world), None, &all()).unwrap().drifted, [], "{moment:?}");
        assert_eq!(world.cat("dir2/file"), "CONTENT");
    }
}
