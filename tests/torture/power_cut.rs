//! What survives a power cut: an image of the disk is rebuilt at each sync and at random points
//! between, in each way that a cut may leave it. Each image opens, passes the checker, and holds
//! one of the states between the last that was promised and the last that was asked for; and
//! where something that was answered is gone, the write verifier is another.
//!
//! `ACETATE_POWER_CUTS=n` asks for n images, `ACETATE_POWER_CUT_SEED=n` for other lives, or, with
//! the seed that a failure names, for that one first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use acetate::vfs::FileId;

use crate::asked;
use crate::cut::{Cut, Progress};
use crate::disk::{Event, Files, Medium, Platter, Survival};
use crate::ground::Ground;
use crate::life::{Birth, Life};
use crate::random::Random;
use crate::reference::Reference;

/// Images without a word from the environment.
const CUTS: usize = 200;

/// Operations between one power cut and the next.
const STEPS: usize = 40;

/// Lives in a row: each but the first begins with what a cut left of the one before.
const LIVES: u64 = 3;

/// Images of a long log.
const LARGE_CUTS: usize = 24;

/// Of so many images, one is also worked with.
const WORKED_WITH: usize = 4;

const SURVIVALS: [Survival; 4] =
    [Survival::Nothing, Survival::Everything, Survival::Some, Survival::Torn];

/// A life that was cut off, as the disk remembers it.
struct Record {
    first: Files,
    events: Vec<Event>,
    states: Vec<Reference>,
    seen: Vec<(usize, FileId)>,
    verifier: u64,
    boot: u64,
    story: Vec<String>,
    /// Whether a sync puts anything on the medium.
    syncs: bool,
}

/// Lives as `how` says, and is cut off.
fn live(
    ground: &Ground,
    birth: Birth,
    seen: Vec<(usize, FileId)>,
    how: impl FnOnce(&mut Life<'_>),
) -> Record {
    let boot = birth.boot;
    let first = birth.medium.disk.record();
    let mut life = Life::new(ground, birth);
    life.seen = seen;
    how(&mut life);
    let (verifier, seen) = (u64::from_be_bytes(life.verifier.0), std::mem::take(&mut life.seen));
    let story = std::mem::take(&mut life.story);
    let (medium, states) = life.end();
    Record { first, events: medium.disk.events(), states, seen, verifier, boot, story, syncs: true }
}

fn random_steps(life: &mut Life<'_>) {
    for _ in 0..STEPS {
        life.step();
    }
}

/// Which moments are looked at: before and after each sync, and as many between.
fn moments(events: &[Event], random: &mut Random) -> Vec<(usize, Survival)> {
    let mut moments = Vec::new();
    for (at, event) in events.iter().enumerate() {
        if matches!(event, Event::Sync(_) | Event::SyncDirectory) {
            moments.push((at, *random.pick(&SURVIVALS)));
            moments.push((at + 1, Survival::Nothing));
            moments.push((random.below(events.len() + 1), *random.pick(&SURVIVALS)));
        }
    }
    moments.sort_by_key(|(at, _)| *at);
    moments
}

impl Record {
    /// Examines an image of each moment; returns those that are wrong, how many were looked at,
    /// and the last image with the state that it holds.
    fn judge(
        &self,
        ground: &Ground,
        moments: Vec<(usize, Survival)>,
        random: &mut Random,
    ) -> Judgement {
        let mut platter = Platter::new(&self.first);
        let mut cut = Cut {
            ground,
            states: &self.states,
            seen: &self.seen,
            verifier: self.verifier,
            boot: self.boot + 1,
            progress: Progress::default(),
        };
        let mut done = 0;
        let mut judgement = Judgement::default();
        for (at, survival) in moments {
            for event in &self.events[done..at] {
                if self.syncs || !matches!(event, Event::Sync(_)) {
                    platter.apply(event);
                }
                cut.progress.apply(event);
            }
            done = at;
            let image = platter.image(survival, random);
            let works = random.below(WORKED_WITH) == 0;
            judgement.looked_at += 1;
            match cut.verdict(&Medium::new(&image), works) {
                Ok(state) => {
                    judgement.last = Some(Last { image, state, answered: cut.progress.answered })
                }
                Err(why) => judgement.wrong.push(format!(
                    "cut at event {at} of {}, {survival:?}: {why}",
                    self.events.len()
                )),
            }
        }
        judgement
    }
}

#[derive(Default)]
struct Judgement {
    wrong: Vec<String>,
    looked_at: usize,
    last: Option<Last>,
}

/// The last image that was right.
struct Last {
    image: BTreeMap<String, Vec<u8>>,
    state: usize,
    answered: usize,
}

/// Several lives in a row; how many images were looked at.
fn torture(ground: &Ground, seed: u64) -> usize {
    let mut random = Random::new(seed);
    let strict = seed % 4 == 3;
    let (mut files, mut reference) = (ground.files.clone(), ground.reference.clone());
    let (mut looked_at, mut seen) = (0, Vec::new());
    for boot in 1..=LIVES {
        let medium = Medium::new(&files);
        let birth = Birth { medium, reference, strict, boot, seed: random.next() };
        let record = live(ground, birth, seen, random_steps);
        let judgement = record.judge(ground, moments(&record.events, &mut random), &mut random);
        looked_at += judgement.looked_at;
        assert!(
            judgement.wrong.is_empty(),
            "ACETATE_POWER_CUT_SEED={seed}, life {boot}, strict {strict}: {:#?}\n{:#?}",
            judgement.wrong,
            record.story
        );
        let last = judgement.last.expect("an image");
        reference = record.states[last.state].clone();
        files = last.image;
        let known = record.seen.into_iter().filter(|(state, _)| *state <= last.answered);
        seen = known.map(|(_, id)| (0, id)).collect();
    }
    looked_at
}

#[test]
fn what_was_promised_survives_a_power_cut() {
    let ground = Ground::new();
    let wanted = asked("ACETATE_POWER_CUTS").map_or(CUTS, |cuts| cuts as usize);
    let seed = AtomicU64::new(asked("ACETATE_POWER_CUT_SEED").unwrap_or(0));
    let looked_at = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while looked_at.load(Ordering::Relaxed) < wanted {
                    let seed = seed.fetch_add(1, Ordering::Relaxed);
                    looked_at.fetch_add(torture(&ground, seed), Ordering::Relaxed);
                }
            });
        }
    });
    ground.assert_base_untouched();
    println!("{} images", looked_at.into_inner());
}

/// The log is folded into the database when it is long enough, and then starts over: what the
/// random lives are too short for.
#[test]
fn a_log_that_starts_over_loses_nothing() {
    let ground = Ground::new();
    let mut random = Random::new(3);
    let (medium, reference) = (Medium::new(&ground.files), ground.reference.clone());
    let birth = Birth { medium, reference, strict: false, boot: 1, seed: 3 };
    let record = live(&ground, birth, Vec::new(), |life| life.fill_log());
    let is_start = |event: &Event| matches!(event, Event::Write(1, 0, _));
    let starts: Vec<_> =
        (0..record.events.len()).filter(|at| is_start(&record.events[*at])).collect();
    // How often depends on how far the thread that folds it in gets beside the writer.
    assert!(starts.len() > 1, "the log does not start over");
    let folded = record.events.iter().position(|event| matches!(event, Event::Write(0, ..)));
    let folded = folded.expect("the log is folded in");
    assert!(folded < starts[1]);
    // The images are large: some of those while it is folded in, and when it starts over.
    let mut around: Vec<_> = moments(&record.events, &mut random);
    around.retain(|(at, _)| (folded - 2..starts[1] + 40).contains(at));
    for _ in 0..LARGE_CUTS {
        let at = folded + random.below(starts[1] + 40 - folded);
        around.push((at, *random.pick(&SURVIVALS)));
    }
    around.sort_by_key(|(at, _)| *at);
    let judgement = record.judge(&ground, around, &mut random);
    assert!(judgement.wrong.is_empty(), "{:#?}", judgement.wrong);
}

/// An image with the tree of two states holds the one whose handles lead to its objects.
#[test]
fn a_cut_between_two_states_with_one_tree_is_told_by_the_handles() {
    let ground = Ground::new();
    let mut random = Random::new(4);
    let (medium, reference) = (Medium::new(&ground.files), ground.reference.clone());
    let birth = Birth { medium, reference, strict: false, boot: 1, seed: 4 };
    let record = live(&ground, birth, Vec::new(), |life| life.replace_directory());
    let every = (0..=record.events.len()).map(|at| (at, Survival::Nothing)).collect();
    let judgement = record.judge(&ground, every, &mut random);
    assert_eq!(judgement.wrong, Vec::<String>::new());
}

/// The test of the test: where syncs do nothing, what was promised is lost, and that is seen.
#[test]
fn a_disk_that_only_pretends_to_sync_is_found_out() {
    let ground = Ground::new();
    let mut random = Random::new(5);
    let medium = Medium::new(&ground.files);
    let reference = ground.reference.clone();
    let birth = Birth { medium, reference, strict: true, boot: 1, seed: 5 };
    let mut record = live(&ground, birth, Vec::new(), random_steps);
    let moments = moments(&record.events, &mut random);
    let judgement = record.judge(&ground, moments.clone(), &mut random);
    assert_eq!(judgement.wrong, Vec::<String>::new());
    record.syncs = false;
    let judgement = record.judge(&ground, moments, &mut random);
    assert!(!judgement.wrong.is_empty(), "{} images", judgement.looked_at);
}
