//! The watchdog: the service manager ends a server that is no longer live, and starts another one.

use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

use super::ServiceNotifier;

/// The time between two messages that the manager allows, in microseconds.
const PERIOD_VARIABLE: &str = "WATCHDOG_USEC";

/// The process that the period is for.
const PROCESS_VARIABLE: &str = "WATCHDOG_PID";

/// The server is looked at so many times in a period. After a stall it is live again at the next
/// look.
const LOOKS: u32 = 8;

/// The shortest interval between two looks.
const MIN_LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The time between two messages that the manager allows; `None` without a watchdog.
pub(in crate::cli::serve) fn watchdog_period() -> Option<Duration> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let is_ours = match std::env::var_os(PROCESS_VARIABLE) {
        Some(_) => number(PROCESS_VARIABLE) == Some(std::process::id().into()),
        None => true,
    };
    number(PERIOD_VARIABLE).filter(|micros| *micros > 0 && is_ours).map(Duration::from_micros)
}

/// Notifies the manager twice a `period`, but not while the server is not live. Never completes;
/// has to run as a task of the runtime, because a runtime without a free thread is not live either.
pub(in crate::cli::serve) async fn keep_watchdog(
    notifier: ServiceNotifier,
    period: Duration,
    mut is_live: impl FnMut() -> bool,
) {
    let mut looks = interval((period / LOOKS).max(MIN_LOOK_INTERVAL));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<Instant> = None;
    loop {
        looks.tick().await;
        // A look before the half would be followed by one after it.
        let is_due = last.is_none_or(|last| last.elapsed() + period / LOOKS > period / 2);
        if is_due && is_live() {
            notifier.watchdog();
            last = Some(Instant::now());
        }
    }
}
