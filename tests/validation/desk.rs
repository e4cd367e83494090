//! Drafts: what is published, what is refused, and what whom is shown.

use acetate::validation::{GuardLimits, MAX_DRAFT_BYTES};
use acetate::vfs::{FsError, Stability};

use super::tree::{NEVER, setup, setup_with};

#[tokio::test]
async fn pieces_are_published_together_at_commit() {
    let file = setup("{}\n");
    file.set_size(1, 0).await.unwrap();
    file.piece(3, "[2]\n").await.unwrap();
    assert_eq!(file.piece(0, "[1]").await, Err(FsError::Invalid), "[1][2] is no line");
    assert_eq!((file.content().as_str(), file.published()), ("{}\n", 0));
    file.set_size(1, 0).await.unwrap();
    file.piece(4, "[2]\n").await.unwrap();
    file.piece(0, "[1]\n").await.unwrap();
    assert_eq!(file.commit(1).await, Some(Ok(())));
    assert_eq!((file.content().as_str(), file.published()), ("[1]\n[2]\n", 1));
    assert_eq!(file.commit(1).await, None);
}

#[tokio::test]
async fn a_stable_write_is_published_at_once() {
    let file = setup("{}\n");
    let written = file.write(1, 3, "[]\n", Stability::DataSync).await;
    let (written, wcc) = (written.result.unwrap(), written.context);
    assert_eq!((written.count, written.committed), (3, Stability::FileSync));
    assert_eq!(wcc.before.unwrap().size, 3);
    assert_eq!(wcc.after.unwrap().size, 6);
    assert_eq!(file.content(), "{}\n[]\n");
}

#[tokio::test]
async fn a_bad_line_is_refused_as_it_arrives() {
    let file = setup("{}\n");
    assert_eq!(file.piece(3, "[]\nno\n").await, Err(FsError::Invalid));
    assert_eq!(file.content(), "{}\n");
    let refusals = file.refusals();
    assert!(refusals.len() == 1 && refusals[0].starts_with("line 3: not JSON"), "{refusals:?}");
}

#[tokio::test]
async fn a_bad_stable_write_leaves_nothing_behind() {
    let file = setup("{}\n");
    file.set_size(1, 0).await.unwrap();
    assert_eq!(file.stable(0, "no").await, Err(FsError::Invalid));
    assert_eq!((file.content().as_str(), file.shown(1).size), ("{}\n", 3));
    file.stable(3, "[]\n").await.unwrap();
    assert_eq!(file.content(), "{}\n[]\n");
}

#[tokio::test]
async fn pieces_behind_a_refused_one_make_no_mixture() {
    let file = setup("[1]\n[2]\n[3]\n");
    file.set_size(1, 0).await.unwrap();
    file.piece(4, "[5]\n").await.unwrap();
    assert_eq!(file.piece(0, "no!\n").await, Err(FsError::Invalid));
    assert_eq!(file.piece(8, "[6]\n").await, Err(FsError::Invalid), "it was under way");
    assert_eq!(file.commit(1).await, Some(Err(FsError::Invalid)));
    assert_eq!(file.content(), "[1]\n[2]\n[3]\n");
    // Another client is not concerned, and a new beginning ends it.
    assert!(file.write(2, 12, "[4]\n", Stability::Unstable).await.result.is_ok());
    file.set_size(1, 0).await.unwrap();
    file.piece(0, "[7]\n").await.unwrap();
    assert_eq!(file.commit(1).await, Some(Ok(())));
    assert_eq!(file.content(), "[7]\n");
}

#[tokio::test]
async fn json_is_checked_as_a_whole() {
    let file = setup("{}").at("/a.json");
    file.set_size(1, 0).await.unwrap();
    file.piece(0, "{\"a\":").await.unwrap();
    file.piece(5, "1}").await.unwrap();
    assert_eq!(file.commit(1).await, Some(Ok(())));
    file.piece(0, "[\"b\"").await.unwrap();
    assert_eq!(file.commit(1).await, Some(Err(FsError::Invalid)));
    assert_eq!(file.content(), "{\"a\":1}");
}

#[tokio::test]
async fn a_client_is_shown_that_it_emptied_a_file_and_no_more() {
    let file = setup("{}\n");
    let before = file.shown(1);
    file.set_size(1, 0).await.unwrap();
    let cut = file.shown(1);
    assert_eq!((cut.size, cut.used), (0, 0));
    assert!(cut.ctime > before.ctime && cut.mtime > before.mtime);
    assert_eq!(file.shown(2), before);
    let written = file.write(1, 0, "[1]\n[2]\n", Stability::Unstable).await.context;
    assert_eq!((written.before.unwrap().size, written.before.unwrap().ctime), (0, cut.ctime));
    let after = written.after.unwrap();
    assert!(after.size == 8 && after.ctime > cut.ctime, "the reply to who writes");
    assert_eq!((file.shown(1), file.shown(2)), (before.clone(), before), "what READ gives");
    assert_eq!(file.commit(1).await, Some(Ok(())));
    assert_eq!((file.shown(1).size, file.shown(1)), (8, file.shown(2)));
}

#[tokio::test]
async fn clients_have_drafts_of_their_own_and_the_last_one_stays() {
    let file = setup("[0]\n");
    file.piece(4, "[1]\n").await.unwrap();
    file.write(2, 4, "[2]\n", Stability::Unstable).await.result.unwrap();
    assert_eq!(file.commit(2).await, Some(Ok(())));
    assert_eq!(file.content(), "[0]\n[2]\n");
    assert_eq!(file.commit(1).await, Some(Ok(())));
    assert_eq!(file.content(), "[0]\n[1]\n");
}

#[tokio::test]
async fn a_stable_write_goes_over_what_was_published_a_moment_ago() {
    let file = setup("[0]\n");
    file.file.lock().unwrap().meanwhile.push(|file| {
        file.content = b"[9]\n".to_vec();
        file.ctime += 1;
    });
    file.stable(4, "[1]\n").await.unwrap();
    assert_eq!((file.content().as_str(), file.published()), ("[9]\n[1]\n", 1));
}

#[tokio::test]
async fn a_file_that_moves_is_validated_for_where_it_is() {
    let file = setup("[0]\n");
    file.piece(4, "[1]\n").await.unwrap();
    file.file.lock().unwrap().meanwhile.push(|file| file.path = "/a.json");
    assert_eq!(file.commit(1).await, Some(Err(FsError::Invalid)));
    assert_eq!(file.content(), "[0]\n");
    let file = setup("[0]\n");
    file.piece(4, "[1]\n").await.unwrap();
    file.file.lock().unwrap().meanwhile.push(|file| file.path = "/free");
    assert_eq!(file.commit(1).await, Some(Ok(())));
}

#[tokio::test]
async fn an_error_of_the_tree_is_passed_on() {
    let file = setup("[0]\n");
    file.piece(4, "[1]\n").await.unwrap();
    file.file.lock().unwrap().fails = Some(FsError::TryLater);
    assert_eq!(file.commit(1).await, Some(Err(FsError::TryLater)));
    assert_eq!(file.shown(1).size, 4);
    file.file.lock().unwrap().fails = None;
    assert_eq!(file.commit(1).await, Some(Ok(())), "it may be asked for again");
    file.piece(8, "[2]\n").await.unwrap();
    file.file.lock().unwrap().fails = Some(FsError::NoSpace);
    assert_eq!(file.commit(1).await, Some(Err(FsError::NoSpace)));
    assert_eq!((file.shown(1).size, file.refusals().len()), (8, 0));
}

#[tokio::test]
async fn drafts_have_bounds() {
    let none_of_its_own = GuardLimits { own_drafts: 0, own_bytes: 0, ..GuardLimits::default() };
    let limits = GuardLimits { drafts: 3, client_drafts: 1, bytes: 20, ..none_of_its_own };
    let file = setup_with("[0]\n", NEVER, limits);
    file.piece(4, "[1]\n[2]\n").await.unwrap();
    assert_eq!(file.piece(12, "[3]\n[4]\n[5]\n").await, Err(FsError::TryLater), "bytes");
    let other = |host| file.write(host, 4, "[1]\n", Stability::Unstable);
    assert!(other(2).await.result.is_ok());
    assert_eq!(other(3).await.result.unwrap_err(), FsError::TryLater, "bytes of another");
    assert_eq!(file.commit(1).await, Some(Ok(())));
    assert_eq!(file.content().len(), 12, "the draft has stayed");
    assert_eq!(file.commit(2).await, Some(Ok(())));
    assert!(other(4).await.result.is_ok(), "given back");

    let file = setup("[0]\n");
    assert_eq!(file.piece(MAX_DRAFT_BYTES, "x").await, Err(FsError::TooLarge));
    assert_eq!(file.set_size(1, MAX_DRAFT_BYTES + 1).await, Err(FsError::TooLarge));
}

#[tokio::test]
async fn an_empty_file_that_is_cut_to_nothing_needs_no_draft() {
    let file = setup("").at("/a.json");
    let before = file.shown(1);
    file.set_size(1, 0).await.unwrap();
    assert_eq!(file.shown(1), before);
    assert_eq!(file.commit(1).await, None);
}

#[tokio::test]
async fn a_draft_that_is_given_up_changes_the_verifier() {
    let file = setup("[0]\n");
    let first = file.verifier();
    file.piece(4, "[1]\n").await.unwrap();
    assert_eq!(file.verifier(), first);
    file.desk.abandon(&super::tree::client(1), &super::tree::FILE).await;
    assert_ne!(file.verifier(), first);
    assert_eq!((file.commit(1).await, file.shown(1).size), (None, 4));
    let second = file.verifier();
    file.desk.abandon(&super::tree::client(1), &super::tree::FILE).await;
    assert_eq!(file.verifier(), second, "there was none");
}

#[tokio::test]
async fn a_change_of_the_whole_tree_ends_drafts() {
    let file = setup("[1]\n");
    file.piece(4, "[2]\n").await.unwrap();
    file.file.lock().unwrap().tree_changes += 1;
    assert_eq!(file.piece(8, "[3]\n").await, Err(FsError::Invalid), "it was under way");
    assert_eq!(file.commit(1).await, Some(Err(FsError::Invalid)));
    assert_eq!(file.content(), "[1]\n");
    assert!(file.refusals()[0].starts_with("given up: the whole tree was changed"));
    // A program that writes again begins anew.
    file.set_size(1, 0).await.unwrap();
    file.piece(0, "[4]\n").await.unwrap();
    assert_eq!(file.commit(1).await, Some(Ok(())));
    assert_eq!(file.content(), "[4]\n");
}

#[tokio::test]
async fn a_change_of_the_whole_tree_ends_a_cut() {
    let file = setup("[1]\n");
    file.set_size(1, 0).await.unwrap();
    assert_eq!(file.shown(1).size, 0);
    file.file.lock().unwrap().tree_changes += 1;
    for _ in 0..1000 {
        if file.shown(1).size == 4 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(file.shown(1).size, 4);
    assert_eq!((file.content().as_str(), file.published()), ("[1]\n", 0));
    file.stable(4, "[2]\n").await.unwrap();
    assert_eq!(file.content(), "[1]\n[2]\n");
}

#[tokio::test]
async fn what_is_being_checked_while_the_whole_tree_changes_is_not_published() {
    let file = setup("[1]\n");
    file.piece(4, "[2]\n").await.unwrap();
    file.file.lock().unwrap().meanwhile = vec![|file| file.tree_changes += 1];
    assert_eq!(file.commit(1).await, Some(Err(FsError::Invalid)));
    assert_eq!(file.content(), "[1]\n");
}
