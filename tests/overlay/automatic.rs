//! Checkpoints that the server makes by itself.

use std::time::{Duration, Instant};

use acetate::delta::sqlite::{Host, OpenMode, Session};
use acetate::delta::{CheckpointKeep, CheckpointKind, MadeCheckpoint, NewCheckpoint, Store};
use acetate::overlay::AutomaticCheckpoints;
use acetate::vfs::Time;
use tokio::runtime::Runtime;

use crate::support::world::{Setup, World};

const TREE: &str = "a \"a\"\nd/b \"b\"\n";

/// Long enough that no test lives to its end.
const NEVER: Duration = Duration::from_secs(3600);

const SHORT: Duration = Duration::from_millis(10);

fn world(checkpoints: AutomaticCheckpoints) -> World {
    World::with(Setup { base: Some(TREE.to_owned()), checkpoints, ..Setup::default() })
}

fn idle(gap: Duration) -> AutomaticCheckpoints {
    AutomaticCheckpoints { idle: Some(gap), ..AutomaticCheckpoints::default() }
}

/// Makes them until the runtime is dropped, as a server does.
#[must_use]
fn begin(world: &World) -> Runtime {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let overlay = world.overlay.clone();
    runtime.spawn(async move { overlay.checkpoint_when_idle().await });
    runtime
}

fn kinds(world: &World) -> Vec<String> {
    match world.sql_value::<i64>("SELECT count(*) FROM sqlite_schema WHERE name = 'acetate_op'") {
        0 => Vec::new(),
        _ if !has_any(world) => Vec::new(),
        _ => world.sql_list("SELECT kind FROM acetate_checkpoint ORDER BY id"),
    }
}

fn has_any(world: &World) -> bool {
    let named = "SELECT count(*) FROM sqlite_schema WHERE name = 'acetate_checkpoint'";
    world.sql_value::<i64>(named) > 0
}

/// Waits until there are so many.
#[track_caller]
fn wait_for(world: &World, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while kinds(world).len() < count {
        assert!(Instant::now() < deadline, "{:?}", kinds(world));
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(kinds(world), vec!["idle"; count]);
}

fn of_kind(kind: CheckpointKind) -> NewCheckpoint {
    let time = Time::default();
    NewCheckpoint { name: None, kind, labels: Default::default(), time, reuses: true, needed: None }
}

#[test]
fn one_is_made_at_the_start_and_after_each_burst() {
    let mut world = world(idle(SHORT));
    let runtime = begin(&world);
    wait_for(&world, 1);
    std::thread::sleep(20 * SHORT);
    assert_eq!(kinds(&world), ["idle"], "nothing changed");
    for burst in 0..3 {
        // One commit, so that no machine is slow enough to make two bursts of it.
        world.write("a", burst, b"x").unwrap();
        wait_for(&world, burst as usize + 2);
        std::thread::sleep(5 * SHORT);
        assert_eq!(kinds(&world).len(), burst as usize + 2, "nothing changed");
    }
    drop(runtime);
    world.reopen();
    // Nothing changed while no server ran.
    let runtime = begin(&world);
    std::thread::sleep(10 * SHORT);
    assert_eq!(kinds(&world).len(), 4);
    world.remove("d/b").unwrap();
    wait_for(&world, 5);
    drop(runtime);
    world.close();
}

#[test]
fn changes_that_go_on_and_looks_make_none() {
    let mut world = world(idle(NEVER));
    let runtime = begin(&world);
    wait_for(&world, 1);
    world.write("a", 0, b"x").unwrap();
    world.cat("d/b");
    world.mkdir("d").unwrap_err();
    std::thread::sleep(5 * SHORT);
    assert_eq!(kinds(&world), ["idle"]);
    // What the end of a server makes.
    world.wait(world.overlay.checkpoint_if_changed()).unwrap();
    world.wait(world.overlay.checkpoint_if_changed()).unwrap();
    assert_eq!(kinds(&world), ["idle", "idle"]);
    drop(runtime);
    world.close();
}

#[test]
fn a_change_before_the_server_was_killed_is_in_one() {
    let mut world = world(idle(NEVER));
    let runtime = begin(&world);
    wait_for(&world, 1);
    world.write("a", 0, b"x").unwrap();
    drop(runtime);
    world.kill();
    let runtime = begin(&world);
    wait_for(&world, 2);
    drop(runtime);
    world.close();
}

#[test]
fn a_session_makes_those_that_it_is_told_to() {
    for (mode, asked) in [(AutomaticCheckpoints::OFF, 0), (AutomaticCheckpoints::default(), 1)] {
        let mut world = world(mode);
        world.write("a", 0, b"x").unwrap();
        let made = |kind| world.wait(world.overlay.create_checkpoint(of_kind(kind))).unwrap();
        let tool = made(CheckpointKind::Tool);
        assert_eq!(tool == MadeCheckpoint::Off, asked == 0, "{tool:?}");
        // Both end at once, and make none.
        world.wait(world.overlay.checkpoint_when_idle());
        world.wait(world.overlay.checkpoint_if_changed()).unwrap();
        let kinds = kinds(&world);
        assert_eq!(kinds.len(), asked);
        let made = made(CheckpointKind::Manual);
        assert!(!matches!(made, MadeCheckpoint::Off));
        world.close();
    }
}

/// The gap is waited for again after a failure, without a change.
#[test]
fn a_failure_is_tried_again() {
    let mut world = world(idle(SHORT));
    let runtime = begin(&world);
    wait_for(&world, 1);
    let before = kinds(&world).len();
    world.write("a", 0, b"x").unwrap();
    world.faults.fail("commit", 1, acetate::delta::StoreError::full("full"));
    wait_for(&world, before + 1);
    drop(runtime);
    world.close();
}

/// What the session says counts for whoever makes the next one, and is there after a reopen.
#[test]
fn a_session_keeps_as_many_as_it_says() {
    let mut world = world(AutomaticCheckpoints::default());
    world.close();
    let mut session =
        Session::open(&world.session(), OpenMode::Serve, &Host::current().unwrap()).unwrap();
    let keep = CheckpointKeep {
        newest: 3,
        hourly_secs: 4 * 3600,
        daily_secs: Some(3 * 86_400),
        max_bytes: None,
    };
    session.record_checkpoint_keep(keep).unwrap();
    assert_eq!(session.checkpoint_keep().unwrap(), keep);
    session.writer().unwrap().close().unwrap();
    drop(session);
    world.open_again();
    for quarter in 0..24 * 5 * 4 {
        world.tick(900);
        world.write("a", quarter, b"x").unwrap();
        let new = of_kind(CheckpointKind::Tool);
        assert!(matches!(
            world.wait(world.overlay.create_checkpoint(new)),
            Ok(MadeCheckpoint::Made(_))
        ));
    }
    let times =
        "SELECT concat(time) FROM acetate_checkpoint WHERE kind <> 'removed' ORDER BY id DESC";
    let times = world.sql_list(times).into_iter().map(|time| time.parse::<i64>().unwrap());
    let ages: Vec<_> = times.map(|time| world.now() - time).collect();
    assert_eq!(ages[..3], [0, 900, 1800]);
    let hourly = ages[3..].iter().filter(|age| **age < 4 * 3600).count();
    let daily = ages.iter().filter(|age| **age >= 4 * 3600).count();
    assert!((4..=5).contains(&hourly) && (3..=4).contains(&daily), "{ages:?}");
    assert!(ages.iter().all(|age| *age < 3 * 86_400), "{ages:?}");
    // As usual again.
    world.close();
    let mut session =
        Session::open(&world.session(), OpenMode::Serve, &Host::current().unwrap()).unwrap();
    session.record_checkpoint_keep(CheckpointKeep::default()).unwrap();
    session.writer().unwrap().close().unwrap();
    let stored = "SELECT count(*) FROM acetate_meta WHERE key LIKE 'checkpoints%'";
    assert_eq!(world.sql_value::<i64>(stored), 0);
}
