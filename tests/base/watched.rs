//! Calls that take long, and calls that never end.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use acetate::base::{
    Base, BaseError, BasePath, HostDir, HostDirOptions, MAX_STUCK_CALLS, WatchedBase,
};

use super::tree;
use crate::support::hanging_base::HangingBase;

fn until(condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(20), "it never comes to that");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_base_that_takes_long_is_slow_for_a_while() {
    let dir = tree();
    let base = HangingBase::new(dir.path());
    let watched = WatchedBase::new(base.clone());
    watched.stat(&BasePath::root()).unwrap();
    assert!(!watched.is_slow());
    base.hang(true);
    thread::scope(|scope| {
        scope.spawn(|| watched.stat(&BasePath::root()).unwrap());
        until(|| watched.is_slow());
        assert!(!watched.is_stuck());
        base.hang(false);
    });
    assert!(watched.is_slow(), "it may do so again");
    assert!(watched.oldest_call().is_zero());
}

#[test]
fn a_base_with_too_many_stuck_calls_is_not_asked_until_they_end() {
    let dir = tree();
    let base = HangingBase::new(dir.path());
    let watched = WatchedBase::new(base.clone());
    base.hang(true);
    thread::scope(|scope| {
        for _ in 0..MAX_STUCK_CALLS {
            scope.spawn(|| watched.stat(&BasePath::root()).unwrap());
        }
        until(|| base.waiting() == MAX_STUCK_CALLS);
        until(|| watched.is_stuck());
        // By the clock that the calls are measured with, all of them are.
        thread::sleep(Duration::from_millis(100));
        let began = Instant::now();
        let refused = watched.stat(&BasePath::root());
        assert!(matches!(refused, Err(BaseError::Unresponsive)), "{refused:?}");
        assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
        assert!(WatchedBase::take_refused());
        assert!(!WatchedBase::take_refused());
        base.hang(false);
    });
    watched.stat(&BasePath::root()).unwrap();
    assert!(!watched.is_stuck());
}

#[test]
fn a_directory_of_this_machine_is_not_remote() {
    let dir = tree();
    let base = HostDir::open(dir.path(), HostDirOptions::default()).unwrap();
    assert!(!base.is_remote());
    assert!(!WatchedBase::new(Arc::new(base)).is_slow());
}
