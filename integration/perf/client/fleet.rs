//! Thousands of sessions behind one server: what it takes while they are closed, how fast it opens
//! them, and how they share it.
//!
//! The root handles of all sessions are in a file, one line of hexadecimal digits each, so that no
//! MNT opens a session before it is measured.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::at::At;
use super::measure::{Budget, Lane, SERVER_PROCESS, run as run_lanes};
use super::nfs::{Client, Handle, Refused, Stability, mount_connection, mount_over};
use super::rpc::{Error, Result};

/// Connections that make sessions, or open them in turn.
const MAKERS: usize = 4;

/// Bytes of each file that is written.
const FILE_BYTES: usize = 4096;

/// Syncs whose median is the time of one.
const SYNCS: usize = 200;

/// GETATTRs in flight of each connection of the flood.
const FLOOD_IN_FLIGHT: usize = 4;

/// Pause before a call that was answered with "later" is sent again.
const RETRY: Duration = Duration::from_millis(20);

/// Time for a server to start or to answer with something else than "later".
const PATIENCE: Duration = Duration::from_secs(120);

/// Interval of attempts to reach a server that starts.
const START_POLL: Duration = Duration::from_millis(1);

/// Time after which everything is closed where `idle_close` is a second.
const CLOSE_TIME: Duration = Duration::from_secs(120);

/// NFS3ERR_STALE, NFS3ERR_JUKEBOX and MNT3ERR_SERVERFAULT (RFC 1813 §2.6, §5.1.4).
const STALE: u32 = 70;
const JUKEBOX: u32 = 10008;
const SERVER_FAULT: u32 = 10006;

/// The priority (nice value) of the connections that flood: an attacker's processor is not the
/// server's.
const FLOOD_NICE: i32 = 19;

/// Does one piece of work of the part `fleet`; `handles` is the file of the root handles.
///
/// # Errors
/// A call failed, or its answer was not what it has to be.
pub fn run(at: &At, work: &str, handles: &Path, args: &[&str]) -> Result<()> {
    match (work, args) {
        ("make", [count]) => make(at, handles, count.parse()?),
        ("mount", [what, count]) => mount_new(at, what, count.parse()?),
        ("note", [what]) => note(at, what),
        ("space", [what, count, dir]) => space(at, what, count.parse()?, Path::new(dir)),
        ("sync", [dir]) => sync(at, Path::new(dir)),
        ("start", [what, command @ ..]) => start(at, what, command),
        ("open", [count]) => look_at(at, &read(handles, count.parse()?)?).map(drop),
        ("first", [what, count]) => {
            let times = look_at(at, &read(handles, count.parse()?)?)?;
            percentiles(at, what, times);
            Ok(())
        }
        ("work", [count]) => work_in(at, &read(handles, count.parse()?)?),
        ("spread", [clients, time]) => {
            let clients: usize = clients.parse()?;
            spread(at, &read(handles, clients)?, Duration::from_millis(time.parse()?))
        }
        ("flood", [connections, time]) => {
            let time = Duration::from_millis(time.parse()?);
            flood(at, &read(handles, 2)?, connections.parse()?, time)
        }
        ("cycle", [count, rounds]) => cycle(at, &read(handles, count.parse()?)?, rounds.parse()?),
        _ => Err("no such work in a fleet".into()),
    }
}

fn print(at: &At, what: &str, value: f64, unit: &str) {
    let line =
        json!({"part": "fleet", "what": what, "server": at.server, "value": value, "unit": unit});
    println!("{line}");
}

/// Prints the median and the time that one of a hundred exceeds, in milliseconds.
fn percentiles(at: &At, what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    for percent in [50, 99] {
        let index = (times.len() * percent).div_ceil(100).saturating_sub(1);
        let time = times.get(index).copied().unwrap_or_default();
        print(at, &format!("{what}: p{percent}"), 1e3 * time.as_secs_f64(), "ms");
    }
}

/// The first `count` root handles.
fn read(handles: &Path, count: usize) -> Result<Vec<Handle>> {
    let text = fs::read_to_string(handles)?;
    let read = text.lines().take(count).map(|line| {
        let pairs = line.as_bytes().chunks(2);
        let byte = |pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?);
        pairs.map(byte).collect::<Result<Handle>>()
    });
    let read = read.collect::<Result<Vec<_>>>()?;
    if read.len() == count { Ok(read) } else { Err("there are fewer sessions".into()) }
}

/// Repeats a call while the answer is that it cannot be done now.
fn patiently<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        match call() {
            Err(error) if is_later(&error) && start.elapsed() < PATIENCE => thread::sleep(RETRY),
            answer => return answer,
        }
    }
}

fn status(error: &Error) -> Option<u32> {
    error.downcast_ref::<Refused>().map(|refused| refused.status)
}

fn is_later(error: &Error) -> bool {
    matches!(status(error), Some(JUKEBOX | SERVER_FAULT))
}

fn look(client: &mut Client, object: &Handle) -> Result<u64> {
    client.send_getattr(object)?;
    client.receive_getattr()
}

/// Mounts `count` exports, which makes their sessions, and writes their root handles to `handles`.
fn make(at: &At, handles: &Path, count: usize) -> Result<()> {
    let made = thread::scope(|scope| {
        let makers: Vec<_> = (0..MAKERS)
            .map(|maker| {
                scope.spawn(move || {
                    let mut connection = mount_connection(at.mount)?;
                    let numbers = (maker..count).step_by(MAKERS);
                    let mount = |number| {
                        let path = format!("{}/{number}", at.export);
                        patiently(|| mount_over(&mut connection, &path))
                    };
                    numbers.map(mount).collect::<Result<Vec<_>>>()
                })
            })
            .collect();
        let made = makers.into_iter().map(|maker| maker.join().map_err(|_| "a maker panicked")?);
        made.collect::<Result<Vec<_>>>()
    })?;
    let mut file = File::create(handles)?;
    for number in 0..count {
        let handle = &made[number % MAKERS][number / MAKERS];
        let digits: String = handle.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(file, "{digits}")?;
    }
    Ok(())
}

/// Times MNTs of exports that do not exist yet.
fn mount_new(at: &At, what: &str, count: usize) -> Result<()> {
    let mut connection = mount_connection(at.mount)?;
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        let start = Instant::now();
        patiently(|| mount_over(&mut connection, &format!("{}/{number}", at.export)))?;
        times.push(start.elapsed());
    }
    percentiles(at, what, times);
    Ok(())
}

/// What the server takes: memory in MiB, threads and descriptors.
fn taken() -> Result<(f64, f64, f64)> {
    let process = SERVER_PROCESS.get().ok_or("SERVER_PID is not set")?;
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let field = |name: &str| -> Result<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.ok_or("no such field of the process")?.parse()?)
    };
    let descriptors = fs::read_dir(format!("/proc/{process}/fd"))?.count();
    Ok((field("VmRSS:")? / 1024.0, field("Threads:")?, descriptors as f64))
}

/// Prints what the server takes.
fn note(at: &At, what: &str) -> Result<()> {
    let (memory, threads, descriptors) = taken()?;
    print(at, &format!("memory, {what}"), memory, "MiB");
    print(at, &format!("threads, {what}"), threads, "");
    print(at, &format!("descriptors, {what}"), descriptors, "");
    Ok(())
}

/// Prints the space on the disk of `count` sessions in the directory `dir`, of each.
fn space(at: &At, what: &str, count: usize, dir: &Path) -> Result<()> {
    let mut bytes = 0;
    for number in 0..count {
        for suffix in ["", "-wal", "-shm", "-lock", "-control"] {
            let file = dir.join(format!("{number}.db{suffix}"));
            bytes += file.symlink_metadata().map_or(0, |found| found.blocks() * 512);
        }
    }
    print(at, what, bytes as f64 / count as f64 / 1024.0, "KiB");
    Ok(())
}

/// Prints the time of a sync of a page on the disk of `dir`.
fn sync(at: &At, dir: &Path) -> Result<()> {
    let path = dir.join("synced");
    let mut file = File::create(&path)?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        file.write_all(&[7; FILE_BYTES])?;
        let start = Instant::now();
        file.sync_data()?;
        times.push(start.elapsed());
    }
    fs::remove_file(path)?;
    percentiles(at, "a sync of 4 KiB on the sessions' disk", times);
    Ok(())
}

/// Starts a server, times its first answer, and ends it by SIGTERM.
fn start(at: &At, what: &str, command: &[&str]) -> Result<()> {
    let (program, args) = command.split_first().ok_or("no command")?;
    let start = Instant::now();
    let mut server = Command::new(program).args(args).stderr(Stdio::null()).spawn()?;
    let answered = loop {
        match Client::open(at.nfs, 1).and_then(|mut client| client.null()) {
            Ok(()) => break Ok(start.elapsed()),
            Err(error) if start.elapsed() > PATIENCE => break Err(error),
            Err(_) if server.try_wait()?.is_some() => break Err("the server ended".into()),
            Err(_) => thread::sleep(START_POLL),
        }
    };
    Command::new("kill").arg(server.id().to_string()).status()?;
    server.wait()?;
    print(at, what, 1e3 * answered?.as_secs_f64(), "ms");
    Ok(())
}

/// GETATTR of each, one after another; returns the time of each.
fn look_at(at: &At, roots: &[Handle]) -> Result<Vec<Duration>> {
    let mut client = Client::open(at.nfs, 1)?;
    let mut times = Vec::with_capacity(roots.len());
    for root in roots {
        let start = Instant::now();
        patiently(|| look(&mut client, root))?;
        times.push(start.elapsed());
    }
    Ok(times)
}

/// CREATE, WRITE, COMMIT and READDIRPLUS in each.
fn work_in(at: &At, roots: &[Handle]) -> Result<()> {
    let mut client = Client::open(at.nfs, 1)?;
    for root in roots {
        patiently(|| put(&mut client, root, "file"))?;
        patiently(|| client.list(root, 0, 0))?;
    }
    Ok(())
}

/// CREATE, WRITE and COMMIT.
fn put(client: &mut Client, dir: &Handle, name: &str) -> Result<()> {
    let file = client.create(dir, name)?;
    let written = client.write(&file, 0, &[7; FILE_BYTES], Stability::Unstable)?;
    client.commit(&file, written)
}

/// The rate of new files over as many connections as there are sessions: one in each session,
/// against all in the first session.
fn spread(at: &At, roots: &[Handle], time: Duration) -> Result<()> {
    let count = roots.len();
    let mut rates = Vec::new();
    for is_spread in [true, false] {
        let mut lanes = Vec::with_capacity(count);
        for (index, root) in roots.iter().enumerate() {
            let mut client = Client::open(at.nfs, index as u32 + 1)?;
            let root = if is_spread { root } else { &roots[0] };
            let name = format!("lane-{is_spread}-{index}");
            let dir = patiently(|| client.mkdir(root, &name))?;
            let (files, written) = (Vec::new(), None);
            lanes.push(Lane { client, index, lanes: count, dir, files, next: 0, written });
        }
        let measured = run_lanes(&mut lanes, Budget::time(time), |lane, pace| {
            while pace.more() {
                let name = lane.next.to_string();
                put(&mut lane.client, &lane.dir, &name)?;
                lane.next += 1;
                pace.add(1);
            }
            Ok(())
        })?;
        let rate = measured.units as f64 / measured.time.as_secs_f64();
        let what = if is_spread { "one in each of" } else { "all in one of" };
        print(at, &format!("new files, {count} clients, {what} {count} sessions"), rate, "/s");
        rates.push(rate);
    }
    // Less is better in the table.
    let what = format!("new files of {count} clients: rate in one session, divided by spread");
    print(at, &what, rates[1] / rates[0], "times");
    Ok(())
}

/// The rate of GETATTRs of one client, alone and while connections flood another session.
fn flood(at: &At, roots: &[Handle], connections: usize, time: Duration) -> Result<()> {
    let [one, other] = roots else { return Err("two sessions are needed".into()) };
    look_at(at, roots)?;
    let alone = getattr_rate(at, one, time)?;
    let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let beside = thread::scope(|scope| {
        let (is_over, answered) = (&is_over, &answered);
        let floods: Vec<_> = (0..connections)
            .map(|index| scope.spawn(move || keep_asking(at, index, other, (is_over, answered))))
            .collect();
        while answered.load(Ordering::Relaxed) < connections as u64 {
            thread::sleep(START_POLL);
        }
        let beside = getattr_rate(at, one, time);
        is_over.store(true, Ordering::Relaxed);
        for flood in floods {
            flood.join().map_err(|_| "a connection panicked")??;
        }
        beside
    })?;
    print(at, "GETATTR alone", alone, "/s");
    print(at, &format!("GETATTR beside a flood of {connections}"), beside, "/s");
    let what = format!("GETATTR: rate alone, divided by beside {connections} of another session");
    print(at, &what, alone / beside, "times");
    Ok(())
}

fn getattr_rate(at: &At, object: &Handle, time: Duration) -> Result<f64> {
    let mut client = Client::open(at.nfs, 0)?;
    let (start, mut count) = (Instant::now(), 0_u32);
    while start.elapsed() < time {
        look(&mut client, object)?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

fn keep_asking(
    at: &At,
    index: usize,
    object: &Handle,
    (is_over, answered): (&AtomicBool, &AtomicU64),
) -> Result<()> {
    // Of this thread alone, on Linux.
    rustix::process::setpriority_process(None, FLOOD_NICE)?;
    let mut client = Client::open(at.nfs, index as u32 + 1)?;
    while !is_over.load(Ordering::Relaxed) {
        while client.in_flight() < FLOOD_IN_FLIGHT {
            client.send_getattr(object)?;
        }
        client.receive_getattr()?;
        answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Opens all sessions in turn, several times, where few may be open: what the server takes more
/// when all are closed again, and the number of handles that were stale.
fn cycle(at: &At, roots: &[Handle], rounds: usize) -> Result<()> {
    // What the first sessions make once belongs to the start.
    look_at(at, &roots[..roots.len().min(100)])?;
    let before = closed()?;
    let (stale, start) = (AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        let stale = &stale;
        let openers: Vec<_> = (0..MAKERS)
            .map(|opener| scope.spawn(move || open_in_turn(at, roots, (opener, rounds), stale)))
            .collect();
        for opener in openers {
            opener.join().map_err(|_| "an opener panicked")??;
        }
        Ok::<(), Error>(())
    })?;
    let opened = (rounds * roots.len()) as f64;
    let rate = opened / start.elapsed().as_secs_f64();
    let after = closed()?;
    let what = format!("{rounds} times {} sessions in turn", roots.len());
    print(at, &format!("in turn: sessions opened, {what}"), rate, "/s");
    print(at, "in turn: memory above the start", after.0 - before.0, "MiB");
    print(at, "in turn: descriptors above the start", after.2 - before.2, "");
    print(at, "in turn: stale handles", stale.into_inner() as f64, "");
    Ok(())
}

fn open_in_turn(
    at: &At,
    roots: &[Handle],
    (opener, rounds): (usize, usize),
    stale: &AtomicU64,
) -> Result<()> {
    let mut client = Client::open(at.nfs, opener as u32 + 1)?;
    for root in (0..rounds).flat_map(|_| roots.iter().skip(opener).step_by(MAKERS)) {
        match patiently(|| look(&mut client, root)) {
            Err(error) if status(&error) == Some(STALE) => {
                stale.fetch_add(1, Ordering::Relaxed);
            }
            answer => drop(answer?),
        }
    }
    Ok(())
}

/// What the server takes once its threads and descriptors become no fewer: all is closed.
fn closed() -> Result<(f64, f64, f64)> {
    let (start, mut last, mut same) = (Instant::now(), taken()?, 0);
    while same < 3 && start.elapsed() < CLOSE_TIME {
        thread::sleep(Duration::from_secs(1));
        let now = taken()?;
        same = if (now.1, now.2) == (last.1, last.2) { same + 1 } else { 0 };
        last = now;
    }
    Ok(last)
}
