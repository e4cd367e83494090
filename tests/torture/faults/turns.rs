//! One call below SQLite after the other fails, of each kind, until there are no more.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use acetate::vfs::FsError;

use super::FAULTS;
use crate::asked;
use crate::disk::{Call, Fault};

/// Without a word from the environment, one of so many calls fails, and the first few; but each
/// sync, of which there are not many.
const STRIDE: u32 = 25;

/// The first few.
const FIRST: u32 = 4;

/// What came of a row of [`FAULTS`].
pub struct Tally {
    row: usize,
    runs: AtomicU32,
    happened: AtomicU32,
    told: AtomicU32,
}

impl Tally {
    /// Which call failed.
    pub fn call(&self) -> Call {
        FAULTS[self.row].0
    }

    /// How often something was run.
    pub fn runs(&self) -> u32 {
        self.runs.load(Ordering::Relaxed)
    }

    /// How often the call failed.
    pub fn happened(&self) -> u32 {
        self.happened.load(Ordering::Relaxed)
    }

    /// Asserts that the call failed, and that somebody was told: else nobody would notice that
    /// there is no such call any more.
    pub fn assert_was_told(&self) {
        let (call, code, _) = FAULTS[self.row];
        let happened = self.happened();
        assert!(happened > 0, "{call:?} never failed with {code}");
        let told = self.told.load(Ordering::Relaxed);
        assert!(told > 0, "{call:?} failed with {code} {happened} times, and nobody was told");
    }

    /// Lets one call after the other fail.
    fn count(&self, lasts: bool, stride: u32, run: impl Fn(Fault, &[FsError]) -> Option<u32>) {
        let (call, code, may) = FAULTS[self.row];
        let is_looked_at =
            |nth: &u32| call == Call::Sync || *nth <= FIRST || nth.is_multiple_of(stride);
        for nth in (1..).filter(is_looked_at) {
            self.runs.fetch_add(1, Ordering::Relaxed);
            let Some(told) = run(Fault { call, nth, code, lasts }, may) else { return };
            self.happened.fetch_add(1, Ordering::Relaxed);
            self.told.fetch_add(told, Ordering::Relaxed);
        }
    }
}

/// Lets `run` meet each row of [`FAULTS`], in each of the `ways` to begin, once and from then on.
/// It says how often somebody was told, or that the call did not happen: then there are no more.
pub fn fail_in_turn<W: Copy + Sync>(
    ways: &[W],
    run: impl Fn(W, Fault, &[FsError]) -> Option<u32> + Sync,
) -> Vec<Tally> {
    let stride = asked("ACETATE_FAULTS").map_or(STRIDE, |stride| stride as u32);
    let none = AtomicU32::default;
    let tally = |row| Tally { row, runs: none(), happened: none(), told: none() };
    let tallies: Vec<_> = (0..FAULTS.len()).map(tally).collect();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let (turn, lasts) = (at / 2, at % 2 == 1);
                    let Some(tally) = tallies.get(turn / ways.len()) else { return };
                    let way = ways[turn % ways.len()];
                    tally.count(lasts, stride, |fault, may| run(way, fault, may));
                }
            });
        }
    });
    tallies
}
