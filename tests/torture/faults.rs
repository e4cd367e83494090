//! What a failing disk costs: a script of all kinds of changes runs again and again, and each
//! time another call below SQLite fails: the first, the second, … until there are no more.
//!
//! Each change is answered as it should be and is done or not, never half; the session checks
//! clean, and opens again. What a failed sync was to put on the medium counts as lost from then
//! on (the system reports it once, and takes the pages for clean): where the power is cut then, or
//! after another server of the same boot has promised more, all that was promised must be there
//! all the same, or the write verifier another.
//!
//! `ACETATE_FAULTS=n` looks at every n-th call, at the first few of each kind, and at each sync.
//! Whatever `n` is, each kind of fault happens, and a client is told of it.

mod creating;
mod opening;
mod turns;

use std::collections::BTreeMap;
use std::ffi::c_int;

use acetate::vfs::{CreateHow, FsError, Locator, NewNode, Stability, Vfs, WriteVerifier};
use bytes::Bytes;
use rusqlite::ffi::{
    SQLITE_BUSY, SQLITE_CANTOPEN, SQLITE_FULL, SQLITE_IOERR_FSTAT, SQLITE_IOERR_FSYNC,
    SQLITE_IOERR_READ, SQLITE_IOERR_SHMLOCK, SQLITE_IOERR_SHMMAP, SQLITE_IOERR_SHMSIZE,
    SQLITE_IOERR_TRUNCATE, SQLITE_IOERR_WRITE,
};

use self::turns::{Tally, fail_in_turn};
use crate::cut::{Cut, Progress};
use crate::disk::{Call, Event, Fault, Mark, Medium, Platter, Survival};
use crate::ground::{Ground, SESSION};
use crate::random::Random;
use crate::reference::Reference;
use crate::support::check::violations;
use crate::support::client::{Client, mode, size};
use crate::support::served::{Served, runtime};
use crate::support::tree::{Object, assert_same, read_tree};

/// What fails, with what, and what the client may be told then.
const FAULTS: [(Call, c_int, &[FsError]); 13] = [
    (Call::Write, SQLITE_FULL, &[FsError::NoSpace]),
    (Call::Write, SQLITE_IOERR_WRITE, BROKEN),
    (Call::Sync, SQLITE_IOERR_FSYNC, BROKEN),
    (Call::Read, SQLITE_IOERR_READ, BROKEN),
    (Call::Truncate, SQLITE_IOERR_TRUNCATE, BROKEN),
    (Call::Size, SQLITE_IOERR_FSTAT, BROKEN),
    (Call::Delete, SQLITE_IOERR_WRITE, BROKEN),
    (Call::Open, SQLITE_CANTOPEN, BROKEN),
    (Call::ShmMap, SQLITE_IOERR_SHMMAP, BROKEN),
    (Call::ShmMap, SQLITE_IOERR_SHMSIZE, &[FsError::NoSpace]),
    (Call::Lock, SQLITE_BUSY, &[FsError::TryLater]),
    (Call::WriteLock, SQLITE_IOERR_SHMLOCK, BROKEN),
    (Call::WriteLock, SQLITE_BUSY, &[FsError::TryLater]),
];

/// A disk that does not read, write or sync; it may end all writing.
const BROKEN: &[FsError] = &[FsError::Io, FsError::ReadOnly];

type Answer = Result<Option<WriteVerifier>, FsError>;
type Theirs = fn(&mut Reference) -> Result<(), FsError>;

/// One change, of objects that no other step makes or takes away.
struct Step {
    name: &'static str,
    ours: fn(&Client, &Handles) -> Answer,
    theirs: Theirs,
}

/// Handles of what the steps work on, from before anything failed.
struct Handles {
    root: Locator,
    a: Locator,
    b: Locator,
    e: Locator,
    linked: Locator,
    large: Locator,
    made: Locator,
    file: Locator,
}

fn write(client: &Client, at: &Locator, offset: u64, count: usize, how: Stability) -> Answer {
    let data = Bytes::from(vec![7; count]);
    let written = client.wait(client.overlay.write(&client.caller, at, offset, data, how));
    written.result.map(|written| Some(written.verifier))
}

fn rename(client: &Client, from: (&Locator, &[u8]), to: (&Locator, &[u8])) -> Answer {
    client.wait(client.overlay.rename(&client.caller, from, to)).result.map(|()| None)
}

fn make(client: &Client, name: &[u8], node: NewNode) -> Answer {
    let made = client.overlay.make_node(&client.caller, &Locator::ROOT, name, node, mode(0o750));
    client.wait(made).result.map(|_| None)
}

fn object(kind: acetate::vfs::FileKind, mode: u32, content: &[u8]) -> Object {
    Object { kind, mode, content: content.to_vec() }
}

const COMMIT: Step = Step {
    name: "COMMIT",
    ours: |client, at| {
        client.wait(client.overlay.commit(&client.caller, &at.root)).result.map(Some)
    },
    theirs: |_| Ok(()),
};

/// What a killed server left in the log.
const LEFT: Step = Step {
    name: "a change before",
    ours: |client, _| make(client, b"left", NewNode::Directory),
    theirs: |r| r.create(b"left", object(acetate::vfs::FileKind::Directory, 0o750, b"")),
};

/// A change after another server came.
const MORE: Step = Step {
    name: "a change after",
    ours: |client, _| make(client, b"more", NewNode::Directory),
    theirs: |r| r.create(b"more", object(acetate::vfs::FileKind::Directory, 0o750, b"")),
};

/// What rewrites all of the session. In the script it comes early: a later one would hide that
/// something was lost, which is only in the memory of the system by then.
const COMPACT: Step = Step {
    name: "compact",
    ours: |client, _| client.wait(client.overlay.compact()).map(|_| None),
    theirs: |_| Ok(()),
};

/// All kinds of changes.
const STEPS: [Step; 18] = [
    Step {
        name: "write to a file of several names",
        ours: |client, at| write(client, &at.linked, 3, 5000, Stability::Unstable),
        theirs: |r| r.write(b"a/a", 3, &[7; 5000]),
    },
    Step {
        name: "write to a file of the session",
        ours: |client, at| write(client, &at.file, 10, 30_000, Stability::Unstable),
        theirs: |r| r.write(b"made/file", 10, &[7; 30_000]),
    },
    COMMIT,
    Step {
        name: "create",
        ours: |client, at| {
            let how = CreateHow::Guarded(mode(0o640));
            let made = client.wait(client.overlay.create(&client.caller, &at.b, b"new", how));
            made.result.map(|_| None)
        },
        theirs: |r| r.create(b"b/new", object(acetate::vfs::FileKind::Regular, 0o640, b"")),
    },
    Step {
        name: "mkdir",
        ours: |client, _| make(client, b"directory", NewNode::Directory),
        theirs: |r| r.create(b"directory", object(acetate::vfs::FileKind::Directory, 0o750, b"")),
    },
    Step {
        name: "symlink",
        ours: |client, _| make(client, b"link", NewNode::Symlink(Bytes::from_static(b"x"))),
        theirs: |r| r.create(b"link", object(acetate::vfs::FileKind::Symlink, 0o777, b"x")),
    },
    Step {
        name: "rename a directory of the base",
        ours: |client, at| rename(client, (&at.a, b"b"), (&at.e, b"moved")),
        theirs: |r| r.rename(b"a/b", b"e/moved"),
    },
    Step {
        name: "write, synced",
        ours: |client, at| write(client, &at.large, 70_000, 9000, Stability::FileSync),
        theirs: |r| r.write(b"large", 70_000, &[7; 9000]),
    },
    Step {
        name: "link",
        ours: |client, at| {
            let linked = client.overlay.link(&client.caller, &at.linked, &at.made, b"linked");
            client.wait(linked).result.map(|()| None)
        },
        theirs: |r| r.link(b"a/a", b"made/linked"),
    },
    Step {
        name: "remove",
        ours: |client, at| {
            client.wait(client.overlay.remove(&client.caller, &at.b, b"a")).result.map(|()| None)
        },
        theirs: |r| r.remove(b"b/a"),
    },
    Step {
        name: "rmdir",
        ours: |client, at| {
            let removed = client.overlay.rmdir(&client.caller, &at.made, b"empty");
            client.wait(removed).result.map(|()| None)
        },
        theirs: |r| r.rmdir(b"made/empty"),
    },
    COMMIT,
    Step {
        name: "truncate",
        ours: |client, at| {
            let set = client.overlay.setattr(&client.caller, &at.large, size(100_000), None);
            client.wait(set).result.map(|()| None)
        },
        theirs: |r| r.truncate(b"large", 100_000),
    },
    Step {
        name: "chmod",
        ours: |client, at| {
            let set = client.overlay.setattr(&client.caller, &at.b, mode(0o700), None);
            client.wait(set).result.map(|()| None)
        },
        theirs: |r| r.chmod(b"b", 0o700),
    },
    Step {
        name: "rename over a file",
        ours: |client, at| rename(client, (&at.made, b"one"), (&at.made, b"two")),
        theirs: |r| r.rename(b"made/one", b"made/two"),
    },
    Step {
        name: "write again",
        ours: |client, at| write(client, &at.file, 0, 9000, Stability::Unstable),
        theirs: |r| r.write(b"made/file", 0, &[7; 9000]),
    },
    COMMIT,
    Step {
        name: "write that nobody syncs",
        ours: |client, at| write(client, &at.file, 40_000, 9000, Stability::Unstable),
        theirs: |r| r.write(b"made/file", 40_000, &[7; 9000]),
    },
];

/// What the script begins with: some of it is made by the session.
struct Prepared {
    ground: Ground,
    files: BTreeMap<String, Vec<u8>>,
    reference: Reference,
    handles: Handles,
}

fn prepare() -> Prepared {
    let ground = Ground::new();
    let medium = Medium::new(&ground.files);
    let served = ground.serve(&medium.path(SESSION), 1, false, &runtime()).unwrap().1;
    let mut reference = ground.reference.clone();
    let handles = make_objects(&served.root, &mut reference);
    served.stop().unwrap();
    Prepared { ground, files: medium.files(), reference, handles }
}

fn make_objects(client: &Client, reference: &mut Reference) -> Handles {
    client.mkdir("made").unwrap();
    client.mkdir("made/empty").unwrap();
    for name in ["made/file", "made/one", "made/two"] {
        client.put(name, name);
    }
    let directory = |mode| object(acetate::vfs::FileKind::Directory, mode, b"");
    reference.create(b"made", directory(0o755)).unwrap();
    reference.create(b"made/empty", directory(0o755)).unwrap();
    for name in ["made/file", "made/one", "made/two"] {
        let attr = client.stat(name);
        let made = object(acetate::vfs::FileKind::Regular, attr.mode, name.as_bytes());
        reference.create(name.as_bytes(), made).unwrap();
    }
    let at = |path: &str| client.at(path);
    Handles {
        root: Locator::ROOT,
        a: at("a"),
        b: at("b"),
        e: at("e"),
        linked: at("a/a"),
        large: at("large"),
        made: at("made"),
        file: at("made/file"),
    }
}

/// What the client knows.
struct Known {
    states: Vec<Reference>,
    now: Reference,
    verifier: WriteVerifier,
    stable: usize,
    answered: usize,
    shown: String,
}

impl Known {
    /// A step's answer; returns whether it was an error.
    fn hear(&mut self, medium: &Medium, step: &Step, answer: Answer, may: &[FsError]) -> bool {
        let mut next = self.now.clone();
        (step.theirs)(&mut next).unwrap();
        let number = self.states.len();
        match answer {
            Ok(verifier) => {
                self.now = next.clone();
                self.states.push(next);
                medium.disk.mark(Mark::Issued(number));
                self.answered = number;
                if verifier == Some(self.verifier) && step.name.starts_with("COMMIT")
                    || step.name == "write, synced"
                {
                    self.stable = number;
                }
                false
            }
            Err(error) => {
                assert!(may.contains(&error), "{}, {}: {error}", self.shown, step.name);
                // The commit itself may be what failed: then nobody knows.
                self.states.push(next);
                true
            }
        }
    }

    /// Another process, in the same boot: a client that asks for what it has written is told the
    /// truth about it, and all that is there from then on is promised to it.
    fn restart(&mut self, prepared: &Prepared, medium: &Medium) {
        let path = medium.path(SESSION);
        let (epoch, served) = prepared.ground.serve(&path, 1, false, &runtime()).unwrap();
        let verifier = WriteVerifier(epoch.to_be_bytes());
        let tree = read_tree(&served.root);
        let mut may_be = (self.stable..self.states.len()).rev();
        let found = may_be.find(|&at| crate::life::is_state(&self.states[at], &tree));
        let found = found.unwrap_or_else(|| panic!("{}: after a restart", self.shown));
        assert!(found >= self.answered || verifier != self.verifier, "{}", self.shown);
        let mut last = self.states.swap_remove(found);
        for step in [&MORE, &COMMIT] {
            let answer = (step.ours)(&served.root, &prepared.handles);
            let promised = (step.name == COMMIT.name).then_some(verifier);
            assert_eq!(answer, Ok(promised), "{}, {}", self.shown, step.name);
            (step.theirs)(&mut last).unwrap();
        }
        kill(medium, served);
        assert_eq!(violations(&path), Vec::<String>::new(), "{}", self.shown);
        (self.states, self.verifier) = (vec![last], verifier);
        (self.stable, self.answered) = (0, 0);
    }

    /// Cuts the power after all that the disk did: what was promised is there, and what was
    /// answered as well, or the verifier tells.
    fn assert_survives_a_cut(&self, ground: &Ground, medium: &Medium, platter: &mut Platter) {
        medium.disk.events().iter().for_each(|event| platter.apply(event));
        let mut random = Random::new(self.states.len() as u64);
        let (stable, answered) = (self.stable, self.answered);
        let progress = Progress { stable, answered, issued: self.states.len() - 1 };
        let (states, verifier) = (&self.states[..], u64::from_be_bytes(self.verifier.0));
        for survival in [Survival::Nothing, Survival::Torn] {
            let image = Medium::new(&platter.image(survival, &mut random));
            let cut = Cut { ground, states, seen: &[], verifier, boot: 2, progress };
            let verdict = cut.verdict(&image, false);
            assert!(verdict.is_ok(), "{}, {survival:?}: {verdict:?}", self.shown);
        }
    }
}

/// What was before the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// A clean end.
    Closed,
    /// A server that was killed, with a change that nobody synced.
    Killed,
    /// The same, and the session is compacted behind a change that nobody synced either.
    KilledToBeCompacted,
}

/// Runs the script with one fault; how many changes it stopped, if it happened at all.
fn run(prepared: &Prepared, before: Before, fault: Fault, may: &[FsError]) -> Option<u32> {
    let Prepared { ground, files, reference, handles } = prepared;
    let shown = format!("{before:?}, {fault:?}");
    let medium = Medium::new(files);
    let path = medium.path(SESSION);
    let runtime = runtime();
    let now = reference.clone();
    let first = medium.disk.record();
    let (mut epoch, mut served) = ground.serve(&path, 1, false, &runtime).unwrap();
    let verifier = WriteVerifier(epoch.to_be_bytes());
    let states = vec![now.clone()];
    let mut known = Known { states, now, verifier, stable: 0, answered: 0, shown };
    if before != Before::Closed {
        known.hear(&medium, &LEFT, (LEFT.ours)(&served.root, handles), &[]);
        kill(&medium, served);
        (epoch, served) = ground.serve(&path, 1, false, &runtime).unwrap();
        assert_eq!(verifier, WriteVerifier(epoch.to_be_bytes()), "{}", known.shown);
    }
    medium.disk.arm(fault);
    let compacts = before == Before::KilledToBeCompacted;
    let (early, late) = STEPS.split_at(if compacts { 2 } else { 0 });
    let script = early.iter().chain(compacts.then_some(&COMPACT)).chain(late);
    let mut refused = 0;
    for step in script {
        let failed = known.hear(&medium, step, (step.ours)(&served.root, handles), may);
        refused += u32::from(failed);
        if failed && !fault.lasts {
            let what = format!("{}, after {}", known.shown, step.name);
            assert_same(&read_tree(&served.root), &known.now.tree(), &what);
        }
    }
    let hits = medium.disk.disarm();
    assert_same(&read_tree(&served.root), &known.now.tree(), &known.shown);
    kill(&medium, served);
    let mut platter = Platter::new(&first);
    known.assert_survives_a_cut(ground, &medium, &mut platter);
    known.restart(prepared, &medium);
    known.assert_survives_a_cut(ground, &medium, &mut platter);
    (hits > 0).then_some(refused)
}

/// Ends a server as `kill -9` does.
fn kill(medium: &Medium, served: Served) {
    medium.disk.kill();
    let _ = served.stop();
    medium.disk.revive();
}

#[test]
fn whatever_call_fails_is_answered_and_undone() {
    let prepared = prepare();
    let ways = [Before::Closed, Before::Killed, Before::KilledToBeCompacted];
    let tallies = fail_in_turn(&ways, |before, fault, may| run(&prepared, before, fault, may));
    prepared.ground.assert_base_untouched();
    tallies.iter().for_each(Tally::assert_was_told);
    println!("{} runs", tallies.iter().map(Tally::runs).sum::<u32>());
}

/// Whether the last that the disk did for its user was to sync.
fn is_synced(medium: &Medium) -> bool {
    let is_sync = |event| match event {
        Event::Sync(_) => Some(true),
        Event::Write(..) => Some(false),
        _ => None,
    };
    medium.disk.events().into_iter().rev().find_map(is_sync).unwrap_or(true)
}

/// A real one, that holds the lock for longer than anybody waits (the layer makes the wait short).
#[test]
fn another_writer_makes_clients_try_later() {
    let prepared = prepare();
    let medium = Medium::new(&prepared.files);
    let path = medium.path(SESSION);
    let (_, served) = prepared.ground.serve(&path, 1, false, &runtime()).unwrap();
    medium.disk.record();
    let other = rusqlite::Connection::open(&path).unwrap();
    let mut reference = prepared.reference.clone();
    for step in &STEPS {
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        // A COMMIT has nothing to do where the timer was faster.
        let is_done = is_synced(&medium) && step.name == COMMIT.name;
        let refused = (step.ours)(&served.root, &prepared.handles).err();
        assert_eq!(refused, (!is_done).then_some(FsError::TryLater), "{}", step.name);
        other.execute_batch("ROLLBACK").unwrap();
        (step.ours)(&served.root, &prepared.handles).unwrap();
        (step.theirs)(&mut reference).unwrap();
    }
    assert_same(&read_tree(&served.root), &reference.tree(), "after all steps");
    drop(other);
    served.stop().unwrap();
    assert_eq!(violations(&path), Vec::<String>::new());
}
