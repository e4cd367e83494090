//! When a connection looks out for its next request, and when it goes to sleep at once.

use acetate::server::{BusyPoll, BusyPollPermit};

/// Looks out for what does not come; how often it looked.
fn miss(lookout: &mut BusyPoll, post: &BusyPollPermit) -> u32 {
    let mut glances = 0;
    let never = || {
        glances += 1;
        None::<()>
    };
    assert_eq!(lookout.wait(post, || true, never), None);
    glances
}

/// Requests for which it goes to sleep at once, until it looks out again, in vain.
fn rests(lookout: &mut BusyPoll, post: &BusyPollPermit) -> u32 {
    let mut rests = 0;
    while miss(lookout, post) == 0 {
        rests += 1;
    }
    rests
}

#[test]
fn what_comes_in_time_is_seen() {
    let post = BusyPollPermit::new(2);
    // On a busy machine the time can be over before the next look: then once more.
    for _ in 0..100_000 {
        let mut glances = 0;
        let soon = || {
            glances += 1;
            (glances == 3).then_some("here")
        };
        let seen = BusyPoll::default().wait(&post, || true, soon);
        if seen.is_some() {
            assert_eq!((seen, glances), (Some("here"), 3));
            return;
        }
    }
    panic!("never seen");
}

#[test]
fn a_connection_for_which_it_does_not_pay_does_it_less_and_less() {
    let (post, mut lookout) = (BusyPollPermit::new(2), BusyPoll::default());
    let waits: Vec<_> = (0..9).map(|_| rests(&mut lookout, &post)).collect();
    assert_eq!(waits, [0, 1, 3, 7, 15, 31, 63, 63, 63]);
    // Now it pays: after 63 more requests, and then each time.
    let mut seen = 0;
    while lookout.wait(&post, || true, || Some(())).is_none() {
        seen += 1;
    }
    assert_eq!(seen, 63);
    for _ in 0..3 {
        assert_eq!(lookout.wait(&post, || true, || Some(())), Some(()));
    }
    assert!(miss(&mut lookout, &post) > 0);
    assert_eq!(rests(&mut lookout, &post), 7, "four hits have made up for four misses");
}

#[test]
fn the_thread_is_left_to_others_as_soon_as_they_have_something_to_do() {
    let (post, mut lookout) = (BusyPollPermit::new(2), BusyPoll::default());
    let mut glances = 0;
    for _ in 0..100 {
        let never = || {
            glances += 1;
            None::<()>
        };
        assert_eq!(lookout.wait(&post, || false, never), None);
    }
    assert_eq!(glances, 0);
    // That says nothing about the client: it counts as no miss.
    assert!(miss(&mut lookout, &post) > 0);
    assert_eq!(rests(&mut lookout, &post), 1);
}

#[test]
fn one_connection_at_a_time_looks_out() {
    let (post, mut first, mut second) =
        (BusyPollPermit::new(2), BusyPoll::default(), BusyPoll::default());
    let seen = first.wait(&post, || true, || Some(miss(&mut second, &post)));
    assert_eq!(seen, Some(0));
    assert!(miss(&mut second, &post) > 0, "the place is free again");
}

#[test]
fn the_only_processor_is_left_to_the_client() {
    let (post, mut lookout) = (BusyPollPermit::new(1), BusyPoll::default());
    assert_eq!(miss(&mut lookout, &post), 0);
}
