//! What a server reports of its leases.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::lease::{HeldLease, LeaseTime};

/// The leases of this process.
static LEASES: Mutex<Vec<Weak<HeldLease>>> = Mutex::new(Vec::new());

/// The leases of this process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaseFigures {
    /// Leases that were taken, and neither lost nor given back.
    pub held: usize,
    /// Those that are not valid now, because the database does not renew them.
    pub invalid: usize,
    /// The longest time since one of them was renewed.
    pub silence: Duration,
    /// The largest epoch of one of them.
    pub epoch: i64,
}

/// Reports a lease until it is dropped.
pub(super) fn show(lease: &Arc<HeldLease>) {
    let mut leases = LEASES.lock();
    leases.retain(|lease| lease.strong_count() > 0);
    leases.push(Arc::downgrade(lease));
}

/// The leases of this process now.
pub fn lease_figures() -> LeaseFigures {
    let now = LeaseTime::now();
    let leases: Vec<_> = LEASES.lock().iter().filter_map(Weak::upgrade).collect();
    sum(&leases, now)
}

fn sum(leases: &[Arc<HeldLease>], now: LeaseTime) -> LeaseFigures {
    let mut figures = LeaseFigures::default();
    for lease in leases.iter().filter(|lease| !lease.is_lost()) {
        figures.held += 1;
        figures.invalid += usize::from(!lease.is_valid(now));
        figures.silence = figures.silence.max(lease.since_renewal(now));
        figures.epoch = figures.epoch.max(lease.epoch());
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Duration = Duration::from_secs(10);

    #[test]
    fn leases_that_ended_do_not_count() {
        let start = LeaseTime::now();
        let taken = |epoch, seconds| {
            let sent = start.after(Duration::from_secs(seconds));
            Arc::new(HeldLease::taken(epoch, TERM, sent))
        };
        let leases = [taken(3, 0), taken(2, 4), taken(9, 0), taken(8, 0)];
        leases[2].lose("a reason");
        leases[3].give_back();
        let at = |seconds| sum(&leases, start.after(Duration::from_secs(seconds)));
        let seconds = Duration::from_secs;
        let expected = LeaseFigures { held: 2, invalid: 0, silence: seconds(5), epoch: 3 };
        assert_eq!(at(5), expected);
        assert_eq!(at(9), LeaseFigures { invalid: 1, silence: seconds(9), ..expected });
        assert_eq!(sum(&[], start), LeaseFigures::default());
    }
}
