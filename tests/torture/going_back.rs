//! Power cuts and `kill -9` at each write of what makes, restores and removes checkpoints: the
//! session opens, its tree is the one before or the one after, and every checkpoint that is there
//! shows what it showed.
//!
//! Each write and sync of an action is a moment at which the power is cut, and at which another
//! run's server is killed. `ACETATE_POWER_CUTS=n`, with 2,000 or more, looks at each of these
//! moments in each way that a cut may leave it; without, in one.

use std::collections::BTreeMap;

use acetate::delta::sqlite::{CheckOptions, OpenMode, Session};
use acetate::delta::{
    CheckpointId, CheckpointKind, MadeCheckpoint, NewCheckpoint, RestoreOutcome, RestoreRequest,
};
use acetate::inspect::check::check;
use acetate::inspect::opened::OpenSession;
use acetate::inspect::walk::{WalkControl, walk};
use acetate::overlay::TreeChangeError;
use acetate::vfs::{FileKind, FsError, Time};

use crate::asked;
use crate::disk::{Event, Medium, Platter, Survival};
use crate::ground::{Ground, LARGE, SESSION, host};
use crate::random::Random;
use crate::support::check::violations;
use crate::support::client::Client;
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
    Remove(i64),
}

/// The checkpoints of [`prepare`]: three, then a restore of the second with its safety checkpoint,
/// and changes after it.
const FIRST: i64 = 1;
const SECOND: i64 = 2;
const THIRD: i64 = 3;
const SAFETY: i64 = 4;

/// Making one, restoring an older and the newest one, an undo of the restore before, and removing
/// the oldest, one between, and the newest: those of a prune, one by one.
const ACTIONS: [Action; 8] = [
    Action::Create,
    Action::Restore(FIRST),
    Action::Restore(THIRD),
    Action::Restore(SAFETY),
    Action::Remove(FIRST),
    Action::Remove(SECOND),
    Action::Remove(THIRD),
    Action::Remove(SAFETY),
];

impl Action {
    fn perform(self, client: &Client) -> Result<(), FsError> {
        let time = Time::default();
        match self {
            Self::Create => client.wait(client.overlay.create_checkpoint(new())).map(drop),
            Self::Restore(to) => {
                let restore = RestoreRequest { to: CheckpointId(to), seen: None, time };
                let done = client.wait(client.overlay.restore(&client.caller, restore));
                let done = done.map_err(|error| match error {
                    TreeChangeError::Fs(error) => error,
                    needed => panic!("{needed}"),
                })?;
                assert!(matches!(done, RestoreOutcome::Restored(_)), "{done:?}");
                Ok(())
            }
            Self::Remove(id) => {
                client.wait(client.overlay.remove_checkpoint(CheckpointId(id))).map(drop)
            }
        }
    }

    /// Whether a session may show `found`, if the action was to lead from `before` to `after`. A
    /// restore makes its checkpoint before, in a change of its own.
    fn allows(self, found: &State, before: &State, after: &State) -> bool {
        let is_safe = |found: &State| {
            matches!(self, Self::Restore(_))
                && found.now == before.now
                && found.checkpoints == after.checkpoints
        };
        found == before || found == after || is_safe(found)
    }
}

fn new() -> NewCheckpoint {
    NewCheckpoint {
        name: None,
        kind: CheckpointKind::Manual,
        labels: BTreeMap::new(),
        time: Time::default(),
        reuses: false,
        needed: None,
    }
}

fn checkpoint(client: &Client) -> i64 {
    match client.wait(client.overlay.create_checkpoint(new())).unwrap() {
        MadeCheckpoint::Made(made) => made.id.0,
        other => panic!("{other:?}"),
    }
}

/// The base, and the files of a session with checkpoints and changes of all kinds.
struct Prepared {
    ground: Ground,
    files: BTreeMap<String, Vec<u8>>,
    before: State,
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
    Action::Restore(SECOND).perform(client).unwrap();
    client.put("last", "last");
    client.remove("made/file").unwrap();
    client.symlink("x", "link").unwrap();
    served.stop().unwrap();
    let before = State::read(&medium);
    assert_eq!(before.checkpoints.keys().copied().collect::<Vec<_>>(), [1, 2, 3, SAFETY]);
    let mut trees: Vec<_> = before.checkpoints.values().map(without_ctimes).collect();
    trees.push(before.now.clone());
    for (at, tree) in trees.iter().enumerate() {
        assert!(!trees[..at].contains(tree), "two moments show the same");
    }
    Prepared { ground, files: medium.files(), before }
}

fn without_ctimes(shown: &Shown) -> Tree {
    shown.iter().map(|(path, (what, _))| (path.clone(), what.clone())).collect()
}

impl State {
    /// All that a session shows to commands.
    fn read(medium: &Medium) -> Self {
        let session = open(medium);
        let all = session.checkpoints().unwrap();
        let now = without_ctimes(&tree(session));
        let checkpoints = all.iter().map(|one| {
            let mut session = open(medium);
            session.show_at(one);
            (one.id.0, tree(session))
        });
        Self { now, checkpoints: checkpoints.collect() }
    }
}

fn open(medium: &Medium) -> Session {
    Session::open(&medium.path(SESSION), OpenMode::Inspect, &host(2)).unwrap()
}

fn tree(session: Session) -> Shown {
    let opened = OpenSession::over(session, None).unwrap();
    let mut all = BTreeMap::new();
    opened
        .with_tree(|view| {
            let root = view.root().unwrap();
            walk(view, &root, &mut |_, object, _| {
                let attr = object.attr();
                let mut content = Vec::new();
                if attr.kind == FileKind::Regular {
                    content.resize(attr.size as usize, 0);
                    let read = view.read(object, 0, &mut content).unwrap();
                    assert_eq!(read, content.len(), "{:?}", object.path());
                }
                if attr.kind == FileKind::Symlink {
                    content = view.target(object).unwrap().to_vec();
                }
                let is_dir = attr.kind == FileKind::Directory;
                let links = if is_dir { 0 } else { attr.nlink };
                let (kind, mode, number, mtime) = (attr.kind, attr.mode, attr.fileid, attr.mtime);
                let content = crc32fast::hash(&content);
                let what = format!("{kind:?} {mode:o} {links} {number:?} {mtime:?} {content}");
                all.insert(object.path().display().to_string(), (what, attr.ctime));
                Ok(WalkControl::Deeper)
            })
            .map(drop)
        })
        .unwrap();
    all
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
    action.perform(&served.root).unwrap();
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
        Action::Remove(id) => {
            let mut left = before.clone();
            left.checkpoints.remove(&id);
            assert_eq!(after, left, "{action:?}");
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
                let is_answered = at == events.len();
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
            let is_answered = action.perform(&served.root).is_ok();
            medium.disk.kill();
            let _ = served.stop();
            medium.disk.revive();
            let what = format!("{action:?}, killed at change {changes}");
            examine(&prepared, &medium, (action, Some(&after)), is_answered, &what);
            if is_answered {
                break;
            }
            killed_at = changes;
        }
        assert!(killed_at > 1, "{action:?} was never killed");
    });
    prepared.ground.assert_base_untouched();
}
