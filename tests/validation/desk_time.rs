//! What becomes of drafts that nobody goes on with.

use std::time::Duration;

use acetate::validation::{GuardLimits, Periods};
use acetate::vfs::FsError;

use super::tree::{NEVER, Setup, setup, setup_with};

const SOON: Duration = Duration::from_millis(40);

fn quick(content: &str, periods: Periods) -> Setup {
    setup_with(content, periods, GuardLimits::default())
}

/// Waits until something is so.
async fn until(what: impl Fn() -> bool) {
    for _ in 0..500 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came to that");
}

#[tokio::test]
async fn what_was_only_cut_is_published_after_a_while() {
    let file = quick("[1]\n[2]\n", Periods { quiet: SOON, ..NEVER });
    file.set_size(1, 4).await.unwrap();
    assert_eq!(file.content(), "[1]\n[2]\n");
    until(|| file.content() == "[1]\n").await;
    until(|| file.shown(1) == file.shown(2)).await;
    assert_eq!(file.refusals().len(), 0);
}

#[tokio::test]
async fn what_is_not_valid_yet_waits_for_what_follows() {
    let file = quick("[1]", Periods { quiet: SOON, ..NEVER }).at("/a.json");
    file.set_size(1, 0).await.unwrap();
    tokio::time::sleep(SOON * 5).await;
    assert_eq!((file.content().as_str(), file.shown(1).size), ("[1]", 3), "nothing is no JSON");
    file.stable(0, "[2]").await.unwrap();
    assert_eq!((file.content().as_str(), file.refusals().len()), ("[2]", 0));
}

#[tokio::test]
async fn what_was_cut_begins_from_nothing_however_late_content_comes() {
    let periods = Periods { quiet: SOON, idle: SOON, ..NEVER };
    let file = quick("[1, 2]", periods).at("/a.json");
    let before = file.verifier();
    file.set_size(1, 0).await.unwrap();
    tokio::time::sleep(SOON * 5).await;
    assert_eq!((file.content().as_str(), file.commit(1).await), ("[1, 2]", None));
    file.piece(0, "[3]").await.unwrap();
    assert_eq!(file.commit(1).await, Some(Ok(())));
    assert_eq!(file.content(), "[3]");
    file.set_size(1, 0).await.unwrap();
    tokio::time::sleep(SOON * 5).await;
    file.stable(0, "4").await.unwrap();
    assert_eq!((file.content().as_str(), file.refusals().len()), ("4", 0));
    assert_eq!(file.verifier(), before, "nothing was lost");
}

#[tokio::test]
async fn what_was_cut_is_forgotten_in_the_end_and_that_is_said() {
    let periods = Periods { idle: SOON, cut: SOON * 3, ..NEVER };
    let file = quick("[1]", periods).at("/a.json");
    file.set_size(1, 0).await.unwrap();
    until(|| file.desk.is_idle()).await;
    assert_eq!(file.refusals(), ["given up: cut to nothing, and no content came"]);
    file.stable(1, "2").await.unwrap();
    assert_eq!(file.content(), "[2]");
}

#[tokio::test]
async fn what_was_cut_makes_room_for_drafts() {
    let limits = GuardLimits { drafts: 1, own_drafts: 0, ..GuardLimits::default() };
    let file = setup_with("[1]", Periods { idle: SOON, ..NEVER }, limits).at("/a.json");
    file.set_size(1, 0).await.unwrap();
    assert_eq!(file.set_size(2, 0).await, Err(FsError::TryLater));
    tokio::time::sleep(SOON * 5).await;
    file.set_size(2, 0).await.unwrap();
    until(|| !file.refusals().is_empty()).await;
    assert_eq!(file.set_size(1, 0).await, Err(FsError::TryLater));
    tokio::time::sleep(SOON * 5).await;
    file.stable(1, "3").await.unwrap();
    assert_eq!(file.content(), "[3]", "the first client's cut was given up");
}

#[tokio::test]
async fn pieces_wait_for_their_commit() {
    let file = quick("[1]\n", Periods { quiet: SOON, ..NEVER });
    file.set_size(1, 0).await.unwrap();
    file.piece(0, "[2]\n").await.unwrap();
    tokio::time::sleep(SOON * 5).await;
    assert_eq!(file.content(), "[1]\n");
    assert_eq!(file.commit(1).await, Some(Ok(())));
    assert_eq!(file.content(), "[2]\n");
}

#[tokio::test]
async fn what_nobody_goes_on_with_is_given_up_and_said() {
    let file = quick("[1]\n", Periods { idle: SOON, ..NEVER });
    let before = file.verifier();
    file.piece(4, "[2]\n").await.unwrap();
    until(|| !file.refusals().is_empty()).await;
    until(|| file.verifier() != before).await;
    assert!(file.refusals()[0].starts_with("given up"), "{:?}", file.refusals());
    assert_eq!((file.content().as_str(), file.shown(1).size), ("[1]\n", 4));
    assert_eq!(file.commit(1).await, None);
}

#[tokio::test]
async fn a_refusal_is_forgotten_once_nothing_is_under_way() {
    let file = quick("[1]\n", Periods { refused: SOON, ..NEVER });
    assert_eq!(file.piece(4, "no\n").await, Err(FsError::Invalid));
    assert_eq!(file.piece(4, "[2]\n").await, Err(FsError::Invalid));
    tokio::time::sleep(SOON * 5).await;
    assert_eq!(file.piece(4, "[2]\n").await, Ok(()));
}

#[tokio::test]
async fn the_end_publishes_what_was_cut_and_gives_up_the_rest() {
    let file = setup("[1]\n[2]\n");
    file.set_size(1, 4).await.unwrap();
    file.desk.close().await;
    assert_eq!(file.content(), "[1]\n");
    let before = file.verifier();
    file.piece(4, "[3]\n").await.unwrap();
    file.desk.close().await;
    assert_eq!(file.content(), "[1]\n");
    assert_ne!(file.verifier(), before);
}
