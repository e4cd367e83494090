//! Uses many exports of templates at once, while the server opens and closes their sessions, is
//! killed, stopped and told to reload, and removes what nothing uses; checks that all that was
//! acknowledged is there, and that the server takes no more in the end. `integration/fleet/run` drives it.
#![allow(clippy::print_stdout, clippy::print_stderr)]

// The torture's and the benchmark's: none shares anything with the server's code.
mod caller;
#[path = "../../torture/client/calls.rs"]
#[allow(dead_code)]
mod calls;
mod course;
mod guest;
mod instance;
mod lane;
#[path = "../../perf/client/nfs.rs"]
#[allow(dead_code)]
mod nfs;
#[path = "../../../tests/torture/random.rs"]
#[allow(dead_code)]
mod random;
#[path = "../../perf/client/rpc.rs"]
mod rpc;
mod server;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use course::Course;
use guest::Guest;
use lane::Lane;
use random::Random;
use rpc::Result;
use server::{Server, Taken};

const USAGE: &str = "\
usage: fleet make-base DIR
       fleet run ACETATE DIR BASE ADDRESS INSTANCES SECONDS SEED";

/// Connections.
const LANES: usize = 8;

/// Clients that come and go.
const GUESTS: usize = 4;

/// What the exports file says of `max_open` in the first half, and in the second.
const MAX_OPEN: [usize; 3] = [12, 24, 48];
const CALM_OPEN: usize = 24;

/// Exports that share the session of one user.
pub const OF_A_USER: usize = 20;

/// The longest time between two events of the first half, in milliseconds; and of the second.
const MOST_MILLISECONDS: usize = 1500;
const CALM_MILLISECONDS: usize = 3000;

/// What the server may take more at the end than after the first quarter of its life, where all
/// sessions are closed: MiB, and descriptors.
const MORE_MIB: f64 = 16.0;
const MORE_DESCRIPTORS: usize = 8;

/// Steps that were acknowledged, for each export: with fewer the run proves nothing.
const LEAST_STEPS: u64 = 3;

/// Events of each kind: with fewer the run proves nothing.
const LEAST_EVENTS: u64 = 3;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["make-base", dir] => instance::make_base(Path::new(dir)),
        ["run", program, dir, base, address, instances, seconds, seed] => (|| {
            let server = Server::new(program, Path::new(dir), Path::new(base), address.parse()?);
            let seconds = Duration::from_secs(seconds.parse()?);
            run(server, instances.parse()?, seconds, seed.parse()?)
        })(),
        // `cargo bench` without arguments is not the way to run this.
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut server: Server, instances: usize, time: Duration, seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    server.configure(CALM_OPEN)?;
    server.start()?;
    let address = server.address;
    let mut lanes: Vec<Lane> = (0..LANES)
        .map(|index| Lane::new(address, (index..instances).step_by(LANES), index, seed))
        .collect();
    let mut guests: Vec<Guest> =
        (0..GUESTS).map(|index| Guest::new(address, index, seed)).collect();
    let course = Course::default();
    let happened = thread::scope(|scope| -> Result<Events> {
        let course = &course;
        let lanes = lanes.iter_mut().map(|lane| scope.spawn(move || lane.run(course)));
        let mut loads: Vec<_> = lanes.collect();
        let guests = guests.iter_mut().map(|guest| scope.spawn(move || guest.run(course)));
        loads.extend(guests);
        let happened = happen(&mut server, course, &mut random, time);
        if happened.is_err() {
            course.fail();
        }
        course.is_over.store(true, Ordering::SeqCst);
        let loaded: Vec<_> = loads.into_iter().map(|load| load.join()).collect();
        let happened = happened?;
        for load in loaded {
            load.map_err(|_| "a client panicked")??;
        }
        server.expired()?;
        Ok(happened)
    });
    let happened = happened.map_err(|error| format!("seed {seed}: {error}"))?;
    server.stop()?;
    tell(&happened, instances, &lanes, &guests)
}

/// Says what was done; an error if that was too little.
fn tell(happened: &Events, instances: usize, lanes: &[Lane], guests: &[Guest]) -> Result<()> {
    let callers: Vec<_> = lanes.iter().map(|lane| &lane.caller).collect();
    let callers = || callers.iter().copied().chain(guests.iter().map(|guest| &guest.caller));
    let steps: u64 = lanes.iter().map(|lane| lane.steps).sum();
    let visits: u64 = guests.iter().map(|guest| guest.visits).sum();
    let expired: u64 = guests.iter().map(|guest| guest.expired).sum();
    let later: u64 = callers().map(|caller| caller.later).sum();
    let longest = callers().map(|caller| caller.longest).max().unwrap_or_default();
    let Events { kills, stops, reloads } = happened;
    let counts = format!(
        "{instances} exports, {kills} kills, {stops} stops, {reloads} reloads, {steps} steps \
         acknowledged, {expired} exports expired between {visits} visits, {later} answers of \
         \"later\", the longest wait {longest:.1?}"
    );
    let least = LEAST_STEPS * instances as u64;
    let events = [*kills, *stops, *reloads, expired];
    if steps < least || events.iter().any(|count| *count < LEAST_EVENTS) {
        return Err(format!("too few for a proof: {counts}").into());
    }
    println!("{counts}, all there");
    Ok(())
}

/// What happened to the server.
#[derive(Default)]
struct Events {
    kills: u64,
    stops: u64,
    reloads: u64,
}

/// Half of the time with kills, stops and reloads, the other half with reloads alone, in which the
/// server's memory and descriptors must not grow.
fn happen(
    server: &mut Server,
    course: &Course,
    random: &mut Random,
    time: Duration,
) -> Result<Events> {
    let mut events = Events::default();
    let half = Instant::now() + time / 2;
    while Instant::now() < half && !course.has_failed() {
        thread::sleep(Duration::from_millis(random.below(MOST_MILLISECONDS) as u64));
        match random.below(8) {
            0..2 => {
                server.kill()?;
                server.start()?;
                events.kills += 1;
            }
            2..4 => {
                server.stop()?;
                server.start()?;
                events.stops += 1;
            }
            4..7 => {
                server.configure(*random.pick(&MAX_OPEN))?;
                server.reload()?;
                events.reloads += 1;
            }
            _ => drop(quiet(server, course)?),
        }
    }
    server.stop()?;
    server.configure(CALM_OPEN)?;
    server.start()?;
    let mut first = None;
    for quarter in 0..4 {
        let end = Instant::now() + time / 8;
        while Instant::now() < end && !course.has_failed() {
            thread::sleep(Duration::from_millis(random.below(CALM_MILLISECONDS) as u64));
            server.reload()?;
            events.reloads += 1;
        }
        if course.has_failed() {
            return Ok(events);
        }
        let now = quiet(server, course)?;
        eprintln!("quarter {quarter}, all closed: {now}");
        compare(first.get_or_insert(now), &now)?;
    }
    Ok(events)
}

fn compare(first: &Taken, now: &Taken) -> Result<()> {
    if now.mib > first.mib + MORE_MIB || now.descriptors > first.descriptors + MORE_DESCRIPTORS {
        return Err(format!("the server took {first}, and later {now}").into());
    }
    Ok(())
}

/// Has all clients pause until the server has closed all sessions; returns what it takes then.
fn quiet(server: &mut Server, course: &Course) -> Result<Taken> {
    course.is_quiet.store(true, Ordering::SeqCst);
    while course.resting.load(Ordering::SeqCst) < LANES + GUESTS && !course.has_failed() {
        thread::sleep(Duration::from_millis(10));
    }
    let closed = server.closed();
    course.is_quiet.store(false, Ordering::SeqCst);
    if course.has_failed() { server.taken() } else { closed }
}
