//! Power cuts and `kill -9` at each write of what makes, restores and removes checkpoints, and of
//! forks and merges: the session opens, its tree is the one before or the one after, and every
//! checkpoint that is there shows what it showed. A fork is whole, or is not there.
//!
//! Each write and sync of an action is a moment at which the power is cut, and at which another
//! run's server is killed. `ACETATE_POWER_CUTS=n`, with 2,000 or more, looks at each of these
//! moments in each way that a cut may leave it; without, in one.

use std::collections::BTreeMap;
use std::path::Path;

use acetate::delta::sqlite::{CheckOptions, Session};
use acetate::delta::{CheckpointId, MergedPath, RestoreOutcome, RestorePaths, RestoreRequest};
use acetate::inspect::check::check;
use acetate::inspect::opened::OpenSession;
use acetate::inspect::restore_paths::plan_restore_paths;
use acetate::overlay::{ChangeStep, StepsOutcome};
use acetate::vfs::{FileKind, FsError, Time};

use crate::asked;
use crate::disk::{Event, Medium, Platter, Survival};
use crate::ground::{Ground, LARGE, SESSION, host};
use crate::random::Random;
use crate::support::check::violations;
use crate::support::client::Client;
use crate::support::forked::{of_filesystem, plan, take_steps};
use crate::support::looked::{each_object, look};
use crate::support::served::runtime;

/// The ways in which a cut may leave the disk.
const SURVIVALS: [Survival; 4] =
    [Survival::Everything, Survival::Torn, Survival::Nothing, Survival::Some];

/// So many images are asked for by a long run.
const MANY_CUTS: u64 = 2000;

/// Changes of one action, at most; more would be an action that does not end.
const MOST_CHANGES: u32 = 2000;

/// Each object of a tree by its path: what it is and holds, and its ctime.
type Shown = BTreeMap<String, (String, Time)>;

/// A tree without ctimes, which a restore advances.
type Tree = BTreeMap<String, String>;

/// All that a session shows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    now: Tree,
    checkpoints: BTreeMap<i64, Shown>,
}

/// What is done while the power is cut.
#[derive(Debug, Clone, Copy)]
enum Action {
    Create,
    Restore(i64),
    /// Restores [`PATHS`] of the third checkpoint.
    RestorePaths,
    Remove(i64),
    /// Removes [`MUCH`], whose content is saved in pieces before.
    RemoveMuch,
    /// Cuts it.
    CutMuch,
    /// Makes a checkpoint, and a fork of it.
    Fork,
    /// Merges the fork of [`FORK_POINT`].
    Merge,
}

/// The checkpoints of [`prepare`]: three, then a restore of the second with its safety checkpoint,
/// changes, a fork, and changes after it.
const FIRST: i64 = 1;
const SECOND: i64 = 2;
const THIRD: i64 = 3;
const SAFETY: i64 = 4;
const FORK_POINT: i64 = 5;

/// The paths that are restored alone: the file whose content is still to be copied, one of two
/// names of a file, and a directory that moved, which was gone then.
const PATHS: [&str; 3] = ["/large", "/b/linked", "/ours-moved"];

/// A file with more content than a change itself saves.
const MUCH: &str = "a/much";

/// Its size, in bytes.
const MUCH_BYTES: usize = 1_200_000;

/// The fork that is merged.
const FORK: &str = "fork.db";

/// The fork that is made.
const NEW_FORK: &str = "new-fork.db";

/// Making one, restoring an older and the newest one, an undo of the restore before, restoring some
/// paths, removing the oldest, one between, and the newest (those of a prune, one by one), removing
/// and cutting much content, a fork, and a merge.
const ACTIONS: [Action; 13] = [
    Action::Create,
    Action::Restore(FIRST),
    Action::Restore(THIRD),
    Action::Restore(SAFETY),
    Action::RestorePaths,
    Action::Remove(FIRST),
    Action::Remove(SECOND),
    Action::Remove(THIRD),
    Action::Remove(SAFETY),
    Action::RemoveMuch,
    Action::CutMuch,
    Action::Fork,
    Action::Merge,
];

impl Action {
    fn perform(self, prepared: &Prepared, client: &Client, session: &Path) -> Result<(), FsError> {
        match self {
            Self::Create => client.make_checkpoint().map(drop),
            Self::Restore(to) => restore(client, to),
            Self::RestorePaths => {
                let (to, paths) = prepared.paths.clone();
                let done = client.wait(client.overlay.restore_paths(&client.caller, to, paths));
                assert!(matches!(done.map_err(of_filesystem)?, RestoreOutcome::Restored(_)));
                Ok(())
            }
            Self::Remove(id) => {
                client.wait(client.overlay.remove_checkpoint(CheckpointId(id))).map(drop)
            }
            Self::RemoveMuch => client.remove(MUCH),
            Self::CutMuch => client.truncate(MUCH, 70_000),
            Self::Fork => {
                let at = client.make_checkpoint()?;
                let to = session.with_file_name(NEW_FORK);
                // A dead process can make no file.
                let forked = Session::fork_to(session, &to, &at, &host(2), &mut |_, _| {});
                forked.map(drop).map_err(|_| FsError::Io)
            }
            Self::Merge => {
                let (seen, steps) = prepared.merge.clone();
                let done = take_steps(client, seen, steps)?;
                assert!(matches!(done, StepsOutcome::Done { .. }), "{done:?}");
                Ok(())
            }
        }
    }

    /// Whether an answer means that the change is on the disk.
    fn is_synced(self) -> bool {
        !matches!(self, Self::RemoveMuch | Self::CutMuch)
    }

    /// Whether a session may show `found`, if the action was to lead from `before` to `after`. A
    /// restore and a merge make their checkpoint before, in a change of its own.
    fn allows(self, found: &State, before: &State, after: &State) -> bool {
        let is_safe = |found: &State| {
            matches!(self, Self::Restore(_) | Self::RestorePaths | Self::Merge)
                && found.now == before.now
                && found.checkpoints == after.checkpoints
        };
        found == before || found == after || is_safe(found)
    }
}

fn restore(client: &Client, to: i64) -> Result<(), FsError> {
    let restore = RestoreRequest { to: CheckpointId(to), seen: None, time: Time::default() };
    let done = client.wait(client.overlay.restore(&client.caller, restore));
    let done = done.map_err(of_filesystem)?;
    assert!(matches!(done, RestoreOutcome::Restored(_)), "{done:?}");
    Ok(())
}

fn checkpoint(client: &Client) -> i64 {
    client.checkpoint().id.0
}

/// The base, and the files of a session with checkpoints and changes of all kinds.
struct Prepared {
    ground: Ground,
    files: BTreeMap<String, Vec<u8>>,
    before: State,
    /// The row of the log that the plan of the merge has seen, and the steps.
    merge: (i64, Vec<ChangeStep>),
    /// The restore of paths, as it is planned.
    paths: (RestoreRequest, RestorePaths),
}

fn prepare() -> Prepared {
    let ground = Ground::new();
    let medium = Medium::new(&ground.files);
    let path = medium.path(SESSION);
    let runtime = runtime();
    let served = ground.serve(&path, 1, false, &runtime).unwrap().1;
    let client = &served.root;
    client.mkdir("made").unwrap();
    client.put("made/file", &"then".repeat(5000));
    client.put("made/goes", "goes");
    client.put(MUCH, &"much".repeat(MUCH_BYTES / 4));
    client.write("c", 0, b"changed").unwrap();
    assert_eq!(checkpoint(client), FIRST);
    client.write("made/file", 9000, &[7; 3000]).unwrap();
    client.remove("made/goes").unwrap();
    client.rename("a/b", "e/moved").unwrap();
    // Most of it is still to be copied.
    client.write(LARGE, 70_000, &[8; 9000]).unwrap();
    runtime.block_on(client.overlay.copy_piece()).unwrap();
    assert_eq!(checkpoint(client), SECOND);
    client.truncate(LARGE, 120_000).unwrap();
    client.rm_rf("e/moved");
    client.link("made/file", "b/linked").unwrap();
    client.put("later", "later");
    assert_eq!(checkpoint(client), THIRD);
    client.put("later", "still later");
    client.chmod("d", 0o700).unwrap();
    restore(client, SECOND).unwrap();
    client.put("last", "last");
    client.remove("made/file").unwrap();
    client.symlink("x", "link").unwrap();
    let point = client.checkpoint();
    assert_eq!(point.id.0, FORK_POINT);
    let fork = medium.path(FORK);
    Session::fork_to(&path, &fork, &point, &host(1), &mut |_, _| {}).unwrap();
    client.put("ours", "ours");
    client.rename("e/moved", "ours-moved").unwrap();
    served.stop().unwrap();
    let merge = change_fork(&ground, &fork, &path);
    let before = State::read(&medium);
    let known: Vec<_> = before.checkpoints.keys().copied().collect();
    assert_eq!(known, [1, 2, 3, SAFETY, FORK_POINT]);
    let mut trees: Vec<_> = before.checkpoints.values().map(without_ctimes).collect();
    trees.push(before.now.clone());
    for (at, tree) in trees.iter().enumerate() {
        assert!(!trees[..at].contains(tree), "two moments show the same");
    }
    let mut files = medium.files();
    files.retain(|name, _| name.starts_with(SESSION));
    let paths = plan_paths(&path);
    Prepared { ground, files, before, merge, paths }
}

/// Plans the restore of [`PATHS`].
fn plan_paths(session: &Path) -> (RestoreRequest, RestorePaths) {
    let now = look(session, None);
    let to = now.session().checkpoint(CheckpointId(THIRD)).unwrap().unwrap();
    let paths = PATHS.map(|path| MergedPath::from_bytes(path.as_bytes()).unwrap());
    let plan = plan_restore_paths(&now, None, &to, &paths).unwrap();
    let to = RestoreRequest { to: to.id, seen: Some(plan.seen), time: Time::default() };
    (to, plan.scope.unwrap().closed)
}

/// Changes the fork, and plans its merge.
fn change_fork(ground: &Ground, fork: &Path, session: &Path) -> (i64, Vec<ChangeStep>) {
    let served = ground.serve(fork, 1, false, &runtime()).unwrap().1;
    let client = &served.root;
    client.put("theirs", &"theirs".repeat(3000));
    client.mkdir("new").unwrap();
    client.rename("last", "new/last").unwrap();
    client.write(LARGE, 200_000, b"theirs").unwrap();
    client.rm_rf("d");
    // Each has the other's place: both wait elsewhere.
    client.rename("b", "swapped").unwrap();
    client.rename("made", "b").unwrap();
    client.rename("swapped", "made").unwrap();
    served.stop().unwrap();
    let (plan, steps) = plan(session, fork, &[]).unwrap();
    assert_eq!(plan.conflicts, []);
    (plan.seen, steps)
}

fn without_ctimes(shown: &Shown) -> Tree {
    shown.iter().map(|(path, (what, _))| (path.clone(), what.clone())).collect()
}

impl State {
    /// All that a session shows to commands.
    fn read(medium: &Medium) -> Self {
        let path = medium.path(SESSION);
        let now = look(&path, None);
        let all = now.session().checkpoints().unwrap();
        let then = all.iter().map(|one| (one.id.0, tree(&look(&path, Some(one)))));
        Self { checkpoints: then.collect(), now: without_ctimes(&tree(&now)) }
    }
}

fn tree(opened: &OpenSession) -> Shown {
    let mut all = BTreeMap::new();
    each_object(opened, &mut |object, content| {
        let attr = object.attr();
        let links = if attr.kind == FileKind::Directory { 0 } else { attr.nlink };
        let (kind, mode, number, mtime) = (attr.kind, attr.mode, attr.fileid, attr.mtime);
        let content = crc32fast::hash(&content);
        let what = format!("{kind:?} {mode:o} {links} {number:?} {mtime:?} {content}");
        all.insert(object.path().display().to_string(), (what, attr.ctime));
    });
    all
}

/// Asserts that a fork is whole, or not there.
fn check_fork(medium: &Medium, prepared: &Prepared, is_answered: bool, what: &str) {
    let path = medium.path(NEW_FORK);
    assert!(!is_answered || path.exists(), "{what}: no fork");
    if path.exists() {
        let forked = without_ctimes(&tree(&look(&path, None)));
        assert_eq!(forked, prepared.before.now, "{what}: the fork");
        assert_eq!(violations(&path), Vec::<String>::new(), "{what}: the fork");
    }
}

/// Looks at what is left: it can be served and is sound, and shows one of the states that it may.
fn examine(
    prepared: &Prepared,
    medium: &Medium,
    (action, after): (Action, Option<&State>),
    is_answered: bool,
    what: &str,
) -> State {
    let path = medium.path(SESSION);
    let served = prepared.ground.serve(&path, 2, false, &runtime());
    let (_, served) = served.unwrap_or_else(|error| panic!("{what}: it does not open: {error}"));
    served.stop().unwrap();
    let found = State::read(medium);
    let after = after.unwrap_or(&found);
    let is_allowed = match is_answered {
        true => found == *after,
        false => action.allows(&found, &prepared.before, after),
    };
    assert!(is_allowed, "{what}: {found:#?}\nbefore: {:#?}\nafter: {after:#?}", prepared.before);
    assert_eq!(violations(&path), Vec::<String>::new(), "{what}");
    let soundness = check(&path, None, &CheckOptions { most: 10, quick: false }).unwrap();
    assert!(soundness.is_sound(), "{what}: {soundness:?}");
    found
}

/// Performs an action on a copy of the session; what the disk did for it, and what is left.
fn record(prepared: &Prepared, action: Action) -> (Platter, Vec<Event>, State) {
    let medium = Medium::new(&prepared.files);
    let served = prepared.ground.serve(&medium.path(SESSION), 2, false, &runtime()).unwrap().1;
    let platter = Platter::new(&medium.disk.record());
    action.perform(prepared, &served.root, &medium.path(SESSION)).unwrap();
    let events = medium.disk.events();
    medium.disk.kill();
    let _ = served.stop();
    medium.disk.revive();
    let after = examine(prepared, &medium, (action, None), true, &format!("{action:?}"));
    let Prepared { before, .. } = prepared;
    match action {
        Action::Create => assert_eq!(after.checkpoints.len(), before.checkpoints.len() + 1),
        Action::Restore(to) => {
            assert_eq!(after.now, without_ctimes(&before.checkpoints[&to]), "{action:?}");
            assert_eq!(after.checkpoints.len(), before.checkpoints.len() + 1);
        }
        Action::RestorePaths => {
            let then = without_ctimes(&before.checkpoints[&THIRD]);
            for path in ["/large", "/b/linked", "/made/file", "/ours-moved", "/e/moved"] {
                assert_eq!(after.now.get(path), then.get(path), "{path}");
            }
            assert_ne!(after.now["/large"], before.now["/large"]);
            for path in ["/ours", "/last", "/later", "/d"] {
                assert_eq!(after.now.get(path), before.now.get(path), "{path}");
            }
            assert_eq!(after.checkpoints.len(), before.checkpoints.len() + 1);
        }
        Action::Remove(id) => {
            let mut left = before.clone();
            left.checkpoints.remove(&id);
            assert_eq!(after, left, "{action:?}");
        }
        Action::RemoveMuch | Action::CutMuch => {
            let much = format!("/{MUCH}");
            let is_removed = matches!(action, Action::RemoveMuch);
            assert_eq!(after.now.contains_key(&much), !is_removed);
            assert_ne!(after.now.get(&much), before.now.get(&much));
            assert_eq!(after.checkpoints, before.checkpoints);
        }
        Action::Fork => {
            check_fork(&medium, prepared, true, "the fork");
            assert_eq!(after.now, before.now);
            assert_eq!(after.checkpoints.len(), before.checkpoints.len() + 1);
        }
        Action::Merge => {
            assert_ne!(after.now, before.now);
            assert!(after.now.contains_key("/new/last") && after.now.contains_key("/ours"));
            assert_eq!(after.checkpoints.len(), before.checkpoints.len() + 1);
        }
    }
    (platter, events, after)
}

/// Runs `work` with each action, on all processors.
fn each_action(work: impl Fn(Action) + Sync) {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(action) =
                    ACTIONS.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    work(*action);
                }
            });
        }
    });
}

#[test]
fn a_power_cut_at_any_write_leaves_the_tree_before_or_after() {
    let prepared = prepare();
    let is_long = asked("ACETATE_POWER_CUTS").is_some_and(|cuts| cuts >= MANY_CUTS);
    each_action(|action| {
        let (mut platter, events, after) = record(&prepared, action);
        let writes = events.iter().filter(|event| matches!(event, Event::Write(..))).count();
        assert!(writes > 1, "{action:?} writes {writes} times");
        let mut random = Random::new(events.len() as u64);
        for at in 0..=events.len() {
            let ways = if is_long { &SURVIVALS[..] } else { &SURVIVALS[at % 4..=at % 4] };
            for &survival in ways {
                let image = Medium::new(&platter.image(survival, &mut random));
                let what = format!("{action:?}, {survival:?}, event {at} of {}", events.len());
                let is_answered = at == events.len() && action.is_synced();
                examine(&prepared, &image, (action, Some(&after)), is_answered, &what);
            }
            events.get(at).iter().for_each(|event| platter.apply(event));
        }
    });
    prepared.ground.assert_base_untouched();
}

#[test]
fn a_kill_at_any_write_leaves_the_tree_before_or_after() {
    let prepared = prepare();
    each_action(|action| {
        let (_, _, after) = record(&prepared, action);
        let mut killed_at = 0;
        for changes in 1.. {
            assert!(changes < MOST_CHANGES, "{action:?} does not end");
            let medium = Medium::new(&prepared.files);
            let path = medium.path(SESSION);
            let served = prepared.ground.serve(&path, 2, false, &runtime()).unwrap().1;
            medium.disk.kill_after(changes);
            let is_answered = action.perform(&prepared, &served.root, &path).is_ok();
            medium.disk.kill();
            let _ = served.stop();
            medium.disk.revive();
            let what = format!("{action:?}, killed at change {changes}");
            examine(&prepared, &medium, (action, Some(&after)), is_answered, &what);
            if matches!(action, Action::Fork) {
                check_fork(&medium, &prepared, is_answered, &what);
            }
            if is_answered {
                break;
            }
            killed_at = changes;
        }
        assert!(killed_at > 1, "{action:?} was never killed");
    });
    prepared.ground.assert_base_untouched();
}
