//! Counts of events of this process, for the figures of a server (docs/OPERATIONS.md).
//!
//! Modules of any layer count in [`COUNTERS`]; the command that serves reads the counts. A process
//! has one set, as it has one server: several workspaces of one program share the counts.
//!
//! Nothing is counted before [`turn_on`]: a server that shows no figures pays for none.
//!
//! A count is divided into cells, and each thread adds to one of them, so threads that count at the
//! same time rarely write the same cache line.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Cells of a counter.
pub(crate) const CELLS: usize = 8;

/// Buckets of a histogram, without the last one, which has no upper bound.
pub(crate) const MAX_BUCKETS: usize = 8;

/// Upper bounds of the buckets of durations, in nanoseconds: 50 µs to 2.5 s.
pub(crate) const DURATIONS: &[u64; MAX_BUCKETS] =
    &[50_000, 200_000, 1_000_000, 5_000_000, 25_000_000, 100_000_000, 500_000_000, 2_500_000_000];

/// Upper bounds of the buckets of batches, in operations.
const OPERATIONS: &[u64; MAX_BUCKETS] = &[1, 2, 4, 8, 16, 32, 64, 128];

/// Upper bounds of the buckets of commits in a database, in nanoseconds: 1 ms to 10 s.
const COMMITS: &[u64; MAX_BUCKETS] = &[
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    50_000_000,
    250_000_000,
    1_000_000_000,
    10_000_000_000,
];

/// Whether this process counts.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Counts from now on, in the whole process.
pub fn turn_on() {
    IS_ON.store(true, Ordering::Relaxed);
}

/// Whether this process counts.
pub(crate) fn are_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

thread_local! {
    /// The cell of this thread.
    static CELL: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % CELLS
    };
}

/// The index of the current thread's cell, below [`CELLS`].
pub(crate) fn cell() -> usize {
    // A thread that ends has no cell any more.
    CELL.try_with(|cell| *cell).unwrap_or(0)
}

/// The counts of this process.
pub static COUNTERS: Counters = Counters {
    read_bytes: Counter::new(),
    written_bytes: Counter::new(),
    batches: Histogram::new(OPERATIONS),
    syncs: Histogram::new(DURATIONS),
    wal_checkpoints: Histogram::new(DURATIONS),
    copy_ups: Counter::new(),
    guard_refusals: Counter::new(),
    database: DatabaseCounts {
        commits: Histogram::new(COMMITS),
        retries: Counter::new(),
        doubts: Counter::new(),
        failed_renewals: Counter::new(),
        lost_leases: Counter::new(),
        last_fetch_nanos: AtomicU64::new(0),
    },
    caches: [const { CacheCounts { hits: Counter::new(), misses: Counter::new() } };
        Cache::ALL.len()],
};

/// Counts since the start of the process.
#[derive(Debug)]
pub struct Counters {
    /// Bytes of content in replies to READ.
    pub read_bytes: Counter,
    /// Bytes of content that WRITE accepted.
    pub written_bytes: Counter,
    /// Operations of each batch that was committed.
    pub batches: Histogram,
    /// Time of each fsync of the WAL that changes waited for, in nanoseconds.
    pub syncs: Histogram,
    /// Time of each checkpoint of the WAL, in nanoseconds.
    pub wal_checkpoints: Histogram,
    /// Changes that copied a base file up, or began its copy.
    pub copy_ups: Counter,
    /// Contents that a guard refused.
    pub guard_refusals: Counter,
    /// What sessions in databases do.
    pub database: DatabaseCounts,
    caches: [CacheCounts; Cache::ALL.len()],
}

/// Counts of sessions in databases.
#[derive(Debug)]
pub struct DatabaseCounts {
    /// Time of each batch until the database had kept it, in nanoseconds.
    pub commits: Histogram,
    /// Statements of batches that were sent again.
    pub retries: Counter,
    /// Statements of batches without an answer, whose fate was found out.
    pub doubts: Counter,
    /// Renewals of leases that failed.
    pub failed_renewals: Counter,
    /// Leases that were lost.
    pub lost_leases: Counter,
    /// Time of the last fetch of a whole replica; before the first one, 0. It is known before this
    /// process counts.
    last_fetch_nanos: AtomicU64,
}

impl DatabaseCounts {
    /// A replica was fetched in this time.
    pub(crate) fn fetched(&self, time: Duration) {
        self.last_fetch_nanos.store(nanos(time), Ordering::Relaxed);
    }

    /// The time of the last fetch of a whole replica.
    pub fn last_fetch(&self) -> Duration {
        Duration::from_nanos(self.last_fetch_nanos.load(Ordering::Relaxed))
    }
}

impl Counters {
    /// The counts of one cache.
    pub fn cache(&self, cache: Cache) -> &CacheCounts {
        &self.caches[cache as usize]
    }
}

/// A cache with counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// What the session has for a name in a directory.
    Children,
    /// Places of directories.
    Places,
    /// Paths of base objects that no session row affects.
    Locations,
    /// Searches that did not find a base object.
    Absent,
    /// Merged listings.
    Listings,
    /// Open directories of the base.
    BaseDirs,
    /// Open files of the base.
    BaseFiles,
    /// Listings of the base.
    BaseListings,
}

impl Cache {
    /// All caches.
    pub const ALL: [Self; 8] = [
        Self::Children,
        Self::Places,
        Self::Locations,
        Self::Absent,
        Self::Listings,
        Self::BaseDirs,
        Self::BaseFiles,
        Self::BaseListings,
    ];

    /// The name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Children => "children",
            Self::Places => "places",
            Self::Locations => "locations",
            Self::Absent => "absent",
            Self::Listings => "listings",
            Self::BaseDirs => "base_dirs",
            Self::BaseFiles => "base_files",
            Self::BaseListings => "base_listings",
        }
    }

    /// Counts a hit if the look-up `found` something, else a miss; returns `found`.
    pub(crate) fn count<T>(self, found: Option<T>) -> Option<T> {
        let counts = COUNTERS.cache(self);
        match &found {
            Some(_) => counts.hits.add(1),
            None => counts.misses.add(1),
        }
        found
    }
}

/// The look-ups of a cache.
#[derive(Debug)]
pub struct CacheCounts {
    /// Those that found a valid entry.
    pub hits: Counter,
    /// The others.
    pub misses: Counter,
}

/// A part of a count, alone in its cache line.
#[derive(Debug)]
#[repr(align(64))]
struct CounterCell(AtomicU64);

/// A count that only grows.
#[derive(Debug)]
pub struct Counter([CounterCell; CELLS]);

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}

impl Counter {
    /// A counter at 0.
    pub const fn new() -> Self {
        Self([const { CounterCell(AtomicU64::new(0)) }; CELLS])
    }

    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        if are_on() {
            self.0[cell()].0.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// The sum so far.
    pub fn value(&self) -> u64 {
        self.0.iter().map(|cell| cell.0.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

/// Observations, counted in buckets.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64; MAX_BUCKETS],
    cells: [HistogramCell; CELLS],
}

/// A part of a histogram. The cells of `DURATIONS` are also used for calls.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct HistogramCell {
    counts: [AtomicU64; MAX_BUCKETS + 1],
    sum: AtomicU64,
}

impl HistogramCell {
    /// A cell without observations.
    pub(crate) const fn new() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; MAX_BUCKETS + 1], sum: AtomicU64::new(0) }
    }

    /// Counts an observation.
    pub(crate) fn observe(&self, bounds: &[u64; MAX_BUCKETS], value: u64) {
        let at = bounds.iter().position(|bound| value <= *bound).unwrap_or(MAX_BUCKETS);
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }
}

/// The observations of a histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramValue {
    /// Upper bounds of the buckets but the last.
    pub bounds: &'static [u64],
    /// Observations in each bucket, those above all bounds last.
    pub counts: Vec<u64>,
    /// Sum of the observations, in the unit of the bounds.
    pub sum: u64,
}

impl HistogramValue {
    /// The sum of `cells` with these bounds.
    pub(crate) fn of<'a>(
        bounds: &'static [u64; MAX_BUCKETS],
        cells: impl Iterator<Item = &'a HistogramCell>,
    ) -> Self {
        let mut value = Self { bounds, counts: vec![0; MAX_BUCKETS + 1], sum: 0 };
        for cell in cells {
            for (sum, count) in value.counts.iter_mut().zip(&cell.counts) {
                *sum += count.load(Ordering::Relaxed);
            }
            value.sum = value.sum.wrapping_add(cell.sum.load(Ordering::Relaxed));
        }
        value
    }

    /// The number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl Histogram {
    const fn new(bounds: &'static [u64; MAX_BUCKETS]) -> Self {
        Self { bounds, cells: [const { HistogramCell::new() }; CELLS] }
    }

    /// Counts an observation, in the unit of the histogram.
    pub fn observe(&self, value: u64) {
        if are_on() {
            self.cells[cell()].observe(self.bounds, value);
        }
    }

    /// Counts a duration, in a histogram of nanoseconds.
    pub fn observe_time(&self, time: Duration) {
        self.observe(nanos(time));
    }

    /// The observations so far.
    pub fn value(&self) -> HistogramValue {
        HistogramValue::of(self.bounds, self.cells.iter())
    }
}

/// A duration in nanoseconds.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn threads_count_together() {
        turn_on();
        let counter = Counter::new();
        thread::scope(|scope| {
            for _ in 0..2 * CELLS {
                scope.spawn(|| (0..1000).for_each(|_| counter.add(3)));
            }
        });
        assert_eq!(counter.value(), 2 * CELLS as u64 * 3000);
    }

    #[test]
    fn an_observation_is_in_the_first_bucket_that_has_it() {
        turn_on();
        let histogram = Histogram::new(OPERATIONS);
        [0, 1, 2, 3, 128, 129, 1000].into_iter().for_each(|value| histogram.observe(value));
        let value = histogram.value();
        assert_eq!(value.counts, [2, 1, 1, 0, 0, 0, 0, 1, 2]);
        assert_eq!((value.count(), value.sum), (7, 1263));
    }

    #[test]
    fn each_cache_has_counts_of_its_own() {
        for (at, cache) in Cache::ALL.into_iter().enumerate() {
            assert_eq!(cache as usize, at);
        }
    }
}
