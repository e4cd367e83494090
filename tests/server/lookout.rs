//! When a connection looks out for its next request, and when it goes to sleep at once.

use std::future::{pending, poll_fn, ready};
use std::pin::pin;
use std::task::Poll;

use acetate::server::{Lookout, LookoutPost};

/// Looks out for what does not come; how often it looked.
async fn miss(lookout: &mut Lookout, post: &LookoutPost) -> u32 {
    let mut polls = 0;
    let never = pin!(poll_fn(|_| {
        polls += 1;
        Poll::<()>::Pending
    }));
    assert_eq!(lookout.wait(post, never).await, None);
    polls
}

/// Requests for which it goes to sleep at once, until it looks out again, in vain.
async fn rests(lookout: &mut Lookout, post: &LookoutPost) -> u32 {
    let mut rests = 0;
    while miss(lookout, post).await == 0 {
        rests += 1;
    }
    rests
}

#[tokio::test]
async fn what_comes_in_time_is_seen() {
    let post = LookoutPost::new(2);
    // On a busy machine the time can be over before the next look: then once more.
    for _ in 0..100_000 {
        let mut polls = 0;
        let soon = poll_fn(|_| {
            polls += 1;
            if polls < 3 { Poll::Pending } else { Poll::Ready("here") }
        });
        let seen = Lookout::default().wait(&post, pin!(soon)).await;
        if seen.is_some() {
            assert_eq!((seen, polls), (Some("here"), 3));
            return;
        }
    }
    panic!("never seen");
}

#[tokio::test]
async fn a_connection_for_which_it_does_not_pay_does_it_less_and_less() {
    let (post, mut lookout) = (LookoutPost::new(2), Lookout::default());
    let mut waits = Vec::new();
    for _ in 0..9 {
        waits.push(rests(&mut lookout, &post).await);
    }
    assert_eq!(waits, [0, 1, 3, 7, 15, 31, 63, 63, 63]);
    // Now it pays: after 63 more requests, and then each time.
    let mut seen = 0;
    while lookout.wait(&post, pin!(ready(()))).await.is_none() {
        seen += 1;
    }
    assert_eq!(seen, 63);
    for _ in 0..3 {
        assert_eq!(lookout.wait(&post, pin!(ready(()))).await, Some(()));
    }
    assert!(miss(&mut lookout, &post).await > 0);
    assert_eq!(rests(&mut lookout, &post).await, 7, "four hits have made up for four misses");
}

#[tokio::test]
async fn one_connection_at_a_time_looks_out() {
    let (post, mut first, mut second) =
        (LookoutPost::new(2), Lookout::default(), Lookout::default());
    let mut other_polls = 0;
    {
        let post = &post;
        let never = pin!(pending::<()>());
        let mut looking = pin!(first.wait(post, never));
        poll_fn(|context| Poll::Ready(looking.as_mut().poll(context).is_pending())).await;
        other_polls += miss(&mut second, post).await;
    }
    assert_eq!(other_polls, 0);
    assert!(miss(&mut second, &post).await > 0, "the place is free again");
}

#[tokio::test]
async fn the_only_processor_is_left_to_the_client() {
    let (post, mut lookout) = (LookoutPost::new(1), Lookout::default());
    assert_eq!(miss(&mut lookout, &post).await, 0);
}
