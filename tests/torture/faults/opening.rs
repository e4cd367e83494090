//! What a failing disk costs a session that is being opened: one call below SQLite after the other
//! fails until there are no more.
//!
//! Opening fails, and says with what, or succeeds; either way the session is what it was, opens
//! again, and keeps what it promises then.

use std::path::{Path, PathBuf};

use acetate::delta::sqlite::{OpenError, OpenMode, Session};
use acetate::delta::{Reader, Store, StoreError, StoreErrorKind, Writer};
use acetate::vfs::{FileKind, FsError, Stability, WriteVerifier};
use rusqlite::ffi::SQLITE_IOERR_FSYNC;

use super::turns::{Tally, fail_in_turn};
use super::{COMMIT, LEFT, MORE, Prepared, Step, kill, object, prepare, write};
use crate::cut::{Cut, Progress};
use crate::disk::{Call, Fault, Files, Medium, Platter, Survival};
use crate::ground::{SESSION, host};
use crate::random::Random;
use crate::reference::Reference;
use crate::support::check::violations;
use crate::support::served::{Served, runtime};
use crate::support::tree::{assert_same, read_tree};

/// Opening cuts no file, and deletes none.
const NEVER: [Call; 2] = [Call::Truncate, Call::Delete];

/// How the session was left by the one who had it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Closed cleanly.
    Closed,
    /// By a kill, with a change in the log that nobody synced.
    Killed,
    /// The same, and the machine was started anew.
    Rebooted,
}

type Parts = (Session, Box<dyn Writer>, Box<dyn Reader>);

/// Opens the session, with a connection that writes and one that reads.
fn open(path: &Path, boot: u64) -> Result<Parts, OpenError> {
    let session = Session::open(path, OpenMode::Serve, &host(boot))?;
    let parts = session.writer().and_then(|writer| Ok((writer, session.reader()?)));
    match parts {
        Ok((writer, reader)) => Ok((session, writer, reader)),
        Err(source) => Err(OpenError::Store { path: path.to_owned(), source }),
    }
}

/// Asserts that an error says what has failed.
fn assert_told(error: &StoreError, may: &[FsError], shown: &str) {
    let is_told = match may {
        [FsError::NoSpace] => error.kind == StoreErrorKind::Full,
        [FsError::TryLater] => error.kind == StoreErrorKind::Busy,
        _ => error.kind == StoreErrorKind::Io,
    };
    assert!(is_told, "{shown}: {error:?}");
}

/// A session that was left, and what is in it.
struct Place<'p> {
    prepared: &'p Prepared,
    medium: Medium,
    path: PathBuf,
    first: Files,
    now: Reference,
    /// The epoch that it was left in.
    epoch: u64,
    boot: u64,
}

impl<'p> Place<'p> {
    fn new(prepared: &'p Prepared, left: Left) -> Self {
        let medium = Medium::new(&prepared.files);
        let path = medium.path(SESSION).canonicalize().unwrap();
        let first = medium.disk.record();
        let (epoch, served) = prepared.ground.serve(&path, 1, false, &runtime()).unwrap();
        let boot = if left == Left::Rebooted { 2 } else { 1 };
        let now = prepared.reference.clone();
        let mut place = Self { prepared, medium, path, first, now, epoch, boot };
        if left == Left::Closed {
            served.stop().unwrap();
        } else {
            place.change(&LEFT, &served);
            place.kill(served);
        }
        place
    }

    fn change(&mut self, step: &Step, served: &Served) {
        (step.ours)(&served.root, &self.prepared.handles).unwrap();
        (step.theirs)(&mut self.now).unwrap();
    }

    fn kill(&self, served: Served) {
        kill(&self.medium, served);
    }

    /// Opens it with a fault; whether that was refused, if the fault happened.
    fn open_with(&self, fault: Fault, may: &[FsError], shown: &str) -> Option<bool> {
        self.medium.disk.arm(fault);
        let opened = open(&self.path, self.boot);
        let happened = self.medium.disk.disarm() > 0;
        let is_refused = match opened {
            Ok(_) => false,
            Err(OpenError::Store { path, source }) if happened => {
                assert_eq!(path, self.path, "{shown}");
                assert_told(&source, may, shown);
                true
            }
            Err(error) => panic!("{shown}: {error}"),
        };
        happened.then_some(is_refused)
    }

    /// Serves it, and kills the server once it has promised a change; the epoch that it was in.
    fn serve_and_promise(&mut self, shown: &str) -> u64 {
        let (epoch, served) =
            self.prepared.ground.serve(&self.path, self.boot, false, &runtime()).unwrap();
        assert_same(&read_tree(&served.root), &self.now.tree(), shown);
        self.change(&MORE, &served);
        let verifier = (COMMIT.ours)(&served.root, &self.prepared.handles).unwrap();
        assert_eq!(verifier, Some(WriteVerifier(epoch.to_be_bytes())), "{shown}");
        self.kill(served);
        epoch
    }

    /// Asserts that all of it is there when the power is cut.
    fn assert_is_kept(&self, verifier: u64, shown: &str) {
        let mut platter = Platter::new(&self.first);
        self.medium.disk.events().iter().for_each(|event| platter.apply(event));
        let mut random = Random::new(1);
        for survival in [Survival::Nothing, Survival::Torn] {
            let image = Medium::new(&platter.image(survival, &mut random));
            let (ground, states) = (&self.prepared.ground, std::slice::from_ref(&self.now));
            let (boot, progress) = (self.boot + 1, Progress::default());
            let cut = Cut { ground, states, seen: &[], verifier, boot, progress };
            let verdict = cut.verdict(&image, false);
            assert!(verdict.is_ok(), "{shown}, {survival:?}: {verdict:?}");
        }
    }
}

/// Opens the session with one fault, and once more; how often that was refused, if the fault
/// happened at all.
fn run(prepared: &Prepared, left: Left, fault: Fault, may: &[FsError]) -> Option<u32> {
    let shown = format!("{left:?}, {fault:?}");
    let mut place = Place::new(prepared, left);
    let is_refused = place.open_with(fault, may, &shown)?;
    assert_eq!(violations(&place.path), Vec::<String>::new(), "{shown}");
    let before = place.epoch;
    let epoch = place.serve_and_promise(&shown);
    assert_eq!(epoch > before, left == Left::Rebooted, "{shown}: epoch {before}, then {epoch}");
    place.assert_is_kept(epoch, &shown);
    Some(u32::from(is_refused))
}

#[test]
fn a_session_that_cannot_be_opened_is_what_it_was() {
    let prepared = prepare();
    let ways = [Left::Closed, Left::Killed, Left::Rebooted];
    let tallies = fail_in_turn(&ways, |left, fault, may| run(&prepared, left, fault, may));
    prepared.ground.assert_base_untouched();
    for tally in &tallies {
        if NEVER.contains(&tally.call()) {
            assert_eq!(tally.happened(), 0, "{:?}", tally.call());
        } else {
            tally.assert_was_told();
        }
    }
    println!("{} runs", tallies.iter().map(Tally::runs).sum::<u32>());
}

/// Who comes after a server whose sync failed has the same log, of which a part is in the memory of
/// the system only; no later sync brings that to the medium, nor what stands behind it.
#[test]
fn what_is_promised_after_a_failed_sync_and_a_restart_is_kept() {
    let prepared = prepare();
    let mut place = Place::new(&prepared, Left::Killed);
    let (_, served) = prepared.ground.serve(&place.path, 1, false, &runtime()).unwrap();
    let (call, code) = (Call::Sync, SQLITE_IOERR_FSYNC);
    place.medium.disk.arm(Fault { call, nth: 1, code, lasts: true });
    assert_eq!((COMMIT.ours)(&served.root, &prepared.handles), Err(FsError::Io));
    assert!(place.medium.disk.disarm() > 0);
    place.kill(served);
    let epoch = place.serve_and_promise("after a failed sync");
    place.assert_is_kept(epoch, "after a failed sync");
}

/// A change of content and nothing else that the tree shows: its page is not among those that
/// making directories changes.
const OVERWRITE: Step = Step {
    name: "write over a file",
    ours: |client, at| write(client, &at.file, 0, 4, Stability::Unstable),
    theirs: |r| r.write(b"made/file", 0, &[7; 4]),
};

/// A session in which a sync failed that was to save some directories and a file's content; with
/// the states of its tree from the last promise on, and its epoch. `None` where the timer was
/// faster.
fn with_a_failed_sync(prepared: &Prepared) -> Option<(Place<'_>, Vec<Reference>, u64)> {
    let mut place = Place::new(prepared, Left::Closed);
    let (epoch, served) = prepared.ground.serve(&place.path, 1, false, &runtime()).unwrap();
    let mut make = |number: u32| {
        let name = format!("directory {number}");
        served.root.mkdir(&name).unwrap();
        let made = object(FileKind::Directory, 0o755, b"");
        place.now.create(name.as_bytes(), made).unwrap();
        place.now.clone()
    };
    let promised = (0..20).map(&mut make).last()?;
    (COMMIT.ours)(&served.root, &prepared.handles).unwrap();
    let mut states = vec![promised];
    states.extend((20..40).map(make));
    place.change(&OVERWRITE, &served);
    states.push(place.now.clone());
    let (call, code) = (Call::Sync, SQLITE_IOERR_FSYNC);
    place.medium.disk.arm(Fault { call, nth: 1, code, lasts: true });
    let answer = (COMMIT.ours)(&served.root, &prepared.handles);
    place.medium.disk.disarm();
    place.kill(served);
    (answer == Err(FsError::Io)).then_some((place, states, epoch))
}

/// Wherever the power is cut while the next server writes that log once more, and goes on: what the
/// failed sync was to save may be gone, and nothing from before.
#[test]
fn a_cut_while_the_next_server_begins_takes_nothing_that_was_promised() {
    let prepared = prepare();
    let failed = (0..10).find_map(|_| with_a_failed_sync(&prepared));
    let (mut place, mut states, epoch) = failed.expect("a sync that fails");
    let mut platter = Platter::new(&place.first);
    place.medium.disk.events().iter().for_each(|event| platter.apply(event));
    place.serve_and_promise("after a failed sync");
    states.push(place.now.clone());
    let issued = states.len() - 1;
    let progress = Progress { stable: 0, answered: issued - 1, issued };
    let (ground, states) = (&prepared.ground, &states[..]);
    let mut random = Random::new(2);
    for (at, event) in place.medium.disk.events().iter().enumerate() {
        platter.apply(event);
        for survival in [Survival::Nothing, Survival::Torn] {
            let image = Medium::new(&platter.image(survival, &mut random));
            let cut = Cut { ground, states, seen: &[], verifier: epoch, boot: 2, progress };
            let verdict = cut.verdict(&image, false);
            assert!(verdict.is_ok(), "event {at}, {survival:?}: {verdict:?}");
        }
    }
}
