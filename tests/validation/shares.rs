//! What exports share, and what one cannot take from another.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acetate::pattern::Pattern;
use acetate::validation::{
    ExportResources, GuardLimits, GuardResources, Guards, NotAccepted, Validator, ValidatorProgram,
};
use acetate::vfs::{FsError, Stability};
use bytes::Bytes;

use super::tree::{NEVER, Setup, setup_in};

fn desks(limits: GuardLimits) -> (Setup, Setup) {
    let all = GuardResources::new(limits, None);
    (setup_in("[0]\n", NEVER, &all), setup_in("[0]\n", NEVER, &all))
}

async fn append(file: &Setup, host: u8, text: &str) -> Result<(), FsError> {
    file.write(host, 4, text, Stability::Unstable).await.result.map(drop)
}

#[tokio::test]
async fn drafts_of_one_export_leave_room_for_those_of_another() {
    let limits = GuardLimits {
        drafts: 6,
        own_drafts: 2,
        own_bytes: 100,
        bytes: 1000,
        ..GuardLimits::default()
    };
    let (greedy, other) = desks(limits);
    // Its own, and half of what all share.
    for host in 1..=5 {
        assert_eq!(append(&greedy, host, "[1]\n").await, Ok(()), "{host}");
    }
    assert_eq!(append(&greedy, 6, "[1]\n").await, Err(FsError::TryLater));
    for host in 1..=5 {
        assert_eq!(append(&other, host, "[1]\n").await, Ok(()), "{host}");
    }
    assert_eq!(append(&other, 6, "[1]\n").await, Err(FsError::TryLater));
    assert_eq!(greedy.commit(1).await, Some(Ok(())));
    assert_eq!(append(&greedy, 6, "[1]\n").await, Ok(()), "given back");
}

#[tokio::test]
async fn the_content_of_drafts_is_shared_in_the_same_way() {
    let limits =
        GuardLimits { own_drafts: 2, own_bytes: 100, bytes: 200, ..GuardLimits::default() };
    let (greedy, other) = desks(limits);
    let long = "[12345]\n".repeat(12);
    assert_eq!(append(&greedy, 1, &long).await, Ok(()));
    assert_eq!(append(&greedy, 2, &long).await, Ok(()));
    assert_eq!(append(&greedy, 3, &long).await, Err(FsError::TryLater));
    assert_eq!(append(&other, 1, &long).await, Ok(()));
    assert_eq!(append(&other, 2, &long).await, Ok(()));
}

#[tokio::test]
async fn an_export_alone_takes_all_of_it() {
    let limits = GuardLimits {
        drafts: 6,
        own_drafts: 2,
        own_bytes: 100,
        bytes: 1000,
        ..GuardLimits::default()
    };
    let alone = setup_in("[0]\n", NEVER, &GuardResources::new(limits, None));
    for host in 1..=8 {
        assert_eq!(append(&alone, host, "[1]\n").await, Ok(()), "{host}");
    }
    assert_eq!(append(&alone, 9, "[1]\n").await, Err(FsError::TryLater));
}

#[tokio::test]
async fn a_refused_draft_gives_its_room_back() {
    let limits = GuardLimits { drafts: 0, own_drafts: 1, ..GuardLimits::default() };
    let file = setup_in("[0]\n", NEVER, &GuardResources::new(limits, None));
    assert_eq!(append(&file, 1, "no\n").await, Err(FsError::Invalid));
    file.stable(4, "[1]\n").await.unwrap();
    file.stable(8, "[2]\n").await.unwrap();
}

fn program(script: &str) -> Arc<Validator> {
    let argv = ["/bin/sh", "-c", script].map(OsString::from).to_vec();
    Arc::new(Validator::program(ValidatorProgram::new(argv, Duration::from_secs(60)).unwrap()))
}

fn exports(limits: GuardLimits) -> (Arc<ExportResources>, Arc<ExportResources>) {
    let all = GuardResources::new(limits, None);
    (export(&all), export(&all))
}

/// An export with guards.
fn export(all: &Arc<GuardResources>) -> Arc<ExportResources> {
    let guards = [(Pattern::new("/a").unwrap(), Validator::json())];
    all.export(&Guards::new(guards).unwrap()).unwrap()
}

async fn ask(export: &ExportResources, program: &Validator) -> Result<(), NotAccepted> {
    export.check(program, b"/a", &Bytes::new()).await
}

#[tokio::test]
async fn the_last_turn_of_programs_is_for_an_export_that_has_none() {
    let (busy, other) = exports(GuardLimits { programs: 2, ..GuardLimits::default() });
    let slow = program("sleep 30");
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let (busy, slow) = (Arc::clone(&busy), Arc::clone(&slow));
            tokio::spawn(async move { ask(&busy, &slow).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let start = Instant::now();
    assert_eq!(ask(&other, &program("true")).await, Ok(()));
    assert_eq!(ask(&other, &program("true")).await, Ok(()));
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    for task in tasks {
        task.abort();
    }
}

#[tokio::test]
async fn an_export_with_guards_alone_takes_all_turns() {
    let all = GuardResources::new(GuardLimits { programs: 2, ..GuardLimits::default() }, None);
    let (alone, _unguarded) = (export(&all), all.export(&Guards::default()).unwrap());
    let dir = tempfile::tempdir().unwrap();
    // Each ends once the other has begun.
    let meet = |mine: &str, other: &str| {
        let (mine, other) = (dir.path().join(mine), dir.path().join(other));
        program(&format!(
            "touch {}; while ! test -e {}; do sleep 0.1; done",
            mine.display(),
            other.display()
        ))
    };
    let (one, two) = (meet("1", "2"), meet("2", "1"));
    let met = tokio::join!(ask(&alone, &one), ask(&alone, &two));
    assert_eq!(met, (Ok(()), Ok(())));
}

#[tokio::test]
async fn who_waits_too_long_for_a_turn_is_told_to_try_later() {
    let limits =
        GuardLimits { programs: 1, wait: Duration::from_millis(50), ..GuardLimits::default() };
    let (busy, other) = exports(limits);
    let slow = program("sleep 30");
    let first = {
        let (busy, slow) = (Arc::clone(&busy), Arc::clone(&slow));
        tokio::spawn(async move { ask(&busy, &slow).await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(ask(&other, &slow).await, Err(NotAccepted::Busy));
    first.abort();
    let _ = first.await;
    assert_eq!(ask(&other, &program("true")).await, Ok(()), "the turn was given back");
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn a_program_has_a_bound_of_memory() {
    let (export, _) = exports(GuardLimits::default());
    // It was just started: the limit is there soon.
    let script = "sleep 1; test $(ulimit -d) = 1048576 || { ulimit -d; exit 1; }";
    assert_eq!(ask(&export, &program(script)).await, Ok(()));
}
