//! Which server may change a session: the one that holds its lease.
//!
//! The session's row in the database has an *epoch*, which moves when the holder changes, and a
//! *beat*, which moves at each renewal. A server takes the lease of another one after it has seen
//! the same epoch and beat for the whole term by its own clock; the holder trusts its lease for
//! less than the term since it sent the last renewal that succeeded. So no clock of two machines
//! is compared; their rates must differ by less than a twentieth.
//!
//! A holder that is late cannot change anything, as each change checks the epoch in the database.
//! The term only bounds for how long it may answer reads.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::counters::COUNTERS;

/// A moment on this machine's clock, which counts while the machine sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseTime(Duration);

impl LeaseTime {
    /// Now.
    pub fn now() -> Self {
        #[cfg(target_os = "linux")]
        let clock = rustix::time::ClockId::Boottime;
        // On macOS this clock counts sleep too.
        #[cfg(not(target_os = "linux"))]
        let clock = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(clock);
        let (secs, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
        Self(Duration::from_secs(secs) + Duration::from_nanos(nanos))
    }

    /// The moment that much later.
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// How often a call that waits for a renewal looks for it.
const VALID_POLL: Duration = Duration::from_millis(20);

/// Why a lease is lost: the session's row is older than what the holder knows.
pub const WENT_BACK: &str = "the database lacks changes that it has kept before: it was restored, \
    or a standby took over that was behind";

/// What the session's row says about its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    /// Moves when the holder changes.
    pub epoch: i64,
    /// Moves at each renewal.
    pub beat: i64,
    /// Who holds it, for people; `None` if it was released.
    pub holder: Option<String>,
    /// Where the holder serves the session.
    pub address: Option<String>,
    /// How long a holder that is silent keeps it.
    pub term: Duration,
}

/// The observations of a server that waits for a lease.
#[derive(Debug, Clone, Default)]
pub struct LeaseWatch {
    /// The last epoch and beat, and when they were first seen.
    seen: Option<(i64, i64, LeaseTime)>,
}

impl LeaseWatch {
    /// Whether the lease may be taken: it was released, or its holder was silent for the whole
    /// term. `now` is before the row was read.
    pub fn may_take(&mut self, row: &LeaseRow, now: LeaseTime) -> bool {
        if row.holder.is_none() {
            return true;
        }
        match self.seen {
            Some((epoch, beat, since)) if (epoch, beat) == (row.epoch, row.beat) => {
                now.since(since) >= row.term + row.term / 50
            }
            _ => {
                self.seen = Some((row.epoch, row.beat, now));
                false
            }
        }
    }

    /// The time until [`Self::may_take`] may first succeed, if the holder stays silent.
    pub fn wait(&self, term: Duration, now: LeaseTime) -> Duration {
        let all = term + term / 50;
        self.seen.map_or(all, |(_, _, since)| all.saturating_sub(now.since(since)))
    }
}

/// A lease that this server holds, or held.
#[derive(Debug)]
pub struct HeldLease {
    epoch: i64,
    term: Duration,
    /// In nanoseconds of [`LeaseTime`].
    trusted_until: AtomicU64,
    /// The number of the last batch that the database is known to have kept.
    kept_seq: AtomicI64,
    /// Whether a batch is on its way.
    is_shipping: AtomicBool,
    /// Why it is lost.
    lost: OnceLock<String>,
    losing: Notify,
}

impl HeldLease {
    /// A lease of this epoch; the statement that took it was sent at `sent`.
    pub fn taken(epoch: i64, term: Duration, sent: LeaseTime) -> Self {
        let (trusted_until, kept_seq) = (AtomicU64::new(0), AtomicI64::new(0));
        let (lost, losing, is_shipping) = (OnceLock::new(), Notify::new(), AtomicBool::new(false));
        let lease = Self { epoch, term, trusted_until, kept_seq, is_shipping, lost, losing };
        lease.renewed(sent);
        lease
    }

    /// Its epoch.
    pub fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Its term.
    pub fn term(&self) -> Duration {
        self.term
    }

    /// A renewal that was sent at `sent` succeeded.
    pub fn renewed(&self, sent: LeaseTime) {
        let until = sent.after(self.trusted()).0;
        let nanos = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        self.trusted_until.fetch_max(nanos, Ordering::AcqRel);
    }

    /// The database has kept the batch of this number.
    pub fn kept(&self, seq: i64) {
        self.kept_seq.fetch_max(seq, Ordering::AcqRel);
    }

    /// The number of the last batch that the database is known to have kept.
    pub fn kept_seq(&self) -> i64 {
        self.kept_seq.load(Ordering::Acquire)
    }

    /// Whether a batch is on its way from now on: its statement locks the session's row, and renews
    /// the lease.
    pub fn set_shipping(&self, is_shipping: bool) {
        self.is_shipping.store(is_shipping, Ordering::Relaxed);
    }

    /// Whether a batch is on its way.
    pub fn is_shipping(&self) -> bool {
        self.is_shipping.load(Ordering::Relaxed)
    }

    /// Time since the last renewal that succeeded was sent.
    pub fn since_renewal(&self, now: LeaseTime) -> Duration {
        let until = Duration::from_nanos(self.trusted_until.load(Ordering::Acquire));
        (now.0 + self.trusted()).saturating_sub(until)
    }

    /// How long it is trusted after a renewal was sent.
    fn trusted(&self) -> Duration {
        self.term / 10 * 9
    }

    /// It is lost for good, for this reason.
    pub fn lose(&self, reason: &str) {
        if self.end(reason) {
            COUNTERS.database.lost_leases.add(1);
        }
    }

    /// It is given back.
    pub fn give_back(&self) {
        self.end("it was given back");
    }

    /// Whether it had not ended before.
    fn end(&self, reason: &str) -> bool {
        let is_first = self.lost.set(reason.to_owned()).is_ok();
        self.losing.notify_waiters();
        is_first
    }

    /// Whether it is lost for good.
    pub fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Completes when it is lost, with the reason.
    pub async fn until_lost(&self) -> String {
        loop {
            let losing = self.losing.notified();
            if let Some(reason) = self.lost.get() {
                return reason.clone();
            }
            losing.await;
        }
    }

    /// Completes once no other server can have it; never after it was lost.
    pub async fn until_valid(&self) {
        while !self.is_valid(LeaseTime::now()) {
            if self.is_lost() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(VALID_POLL).await;
        }
    }

    /// Waits until no other server can have it, for at most `limit`; not if it is lost.
    pub async fn await_valid(&self, limit: Duration) {
        if self.is_valid(LeaseTime::now()) {
            return;
        }
        let ends = async {
            tokio::select! {
                () = self.until_valid() => {}
                _ = self.until_lost() => {}
            }
        };
        let _late = tokio::time::timeout(limit, ends).await;
    }

    /// Whether no other server can have it at `now`.
    pub fn is_valid(&self, now: LeaseTime) -> bool {
        let until = Duration::from_nanos(self.trusted_until.load(Ordering::Acquire));
        !self.is_lost() && now.0 < until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Duration = Duration::from_secs(3);

    fn at(ms: u64) -> LeaseTime {
        LeaseTime(Duration::from_millis(ms))
    }

    fn row(epoch: i64, beat: i64) -> LeaseRow {
        let (holder, address) = (Some("a".to_owned()), None);
        LeaseRow { epoch, beat, holder, address, term: TERM }
    }

    #[test]
    fn a_released_lease_is_taken_at_once_and_a_silent_one_after_its_term() {
        let mut watch = LeaseWatch::default();
        assert!(watch.may_take(&LeaseRow { holder: None, ..row(1, 1) }, at(0)));
        assert!(!watch.may_take(&row(1, 1), at(100)));
        assert!(!watch.may_take(&row(1, 1), at(3_159)), "the two clocks may differ");
        assert_eq!(watch.wait(TERM, at(3_060)), Duration::from_millis(100));
        assert!(watch.may_take(&row(1, 1), at(3_160)));
        assert!(!watch.may_take(&row(1, 2), at(3_170)), "it is renewed");
        assert!(!watch.may_take(&row(2, 2), at(6_300)), "another one has it");
        assert!(watch.may_take(&row(2, 2), at(9_360)));
    }

    #[test]
    fn a_holder_trusts_its_lease_for_less_than_another_waits() {
        let lease = HeldLease::taken(7, TERM, at(1_000));
        assert!(lease.is_valid(at(3_699)) && !lease.is_valid(at(3_700)));
        lease.renewed(at(2_000));
        assert!(lease.is_valid(at(4_699)) && !lease.is_valid(at(4_700)));
        lease.renewed(at(1_500));
        assert!(lease.is_valid(at(4_699)), "an answer that comes late takes nothing away");
        lease.lose("another server has it");
        assert!(!lease.is_valid(at(2_000)) && lease.is_lost());
        lease.renewed(at(4_000));
        assert!(!lease.is_valid(at(4_001)), "lost is lost");
    }

    #[test]
    fn the_clock_moves_on() {
        let before = LeaseTime::now();
        assert!(LeaseTime::now() >= before && before.after(TERM) > before);
    }
}
