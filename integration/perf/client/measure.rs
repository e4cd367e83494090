//! Lanes: connections that do the same work side by side, and how fast they get on together.

use std::fs;
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use super::nfs::{Client, Handle, Written};
use super::rpc::{Error, Result};

/// One connection, and what it has made so far.
pub struct Lane {
    /// The connection.
    pub client: Client,
    /// Its number, from 0.
    pub index: usize,
    /// How many lanes there are.
    pub lanes: usize,
    /// A directory that only this lane changes.
    pub dir: Handle,
    /// Files that it made there: name and handle.
    pub files: Vec<(String, Handle)>,
    /// Where it goes on in whatever it works through; reset before each operation.
    pub next: usize,
    /// What its last WRITE was answered.
    pub written: Option<Written>,
}

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// After this time.
    pub time: Duration,
    /// After so many units of work of all lanes together.
    pub units: u64,
}

impl Budget {
    /// A limit of time.
    pub const fn time(time: Duration) -> Self {
        Self { time, units: u64::MAX }
    }

    /// A limit of work.
    pub const fn units(units: u64) -> Self {
        Self { time: Duration::MAX, units }
    }

    /// The same with another limit of work.
    pub const fn at_most(self, units: u64) -> Self {
        Self { time: self.time, units }
    }
}

/// How far one lane is.
pub struct Pace {
    until: Option<Instant>,
    units: u64,
    done: u64,
}

impl Pace {
    fn start(budget: Budget, lanes: usize) -> Self {
        let until = Instant::now().checked_add(budget.time);
        Self { until, units: budget.units.div_ceil(lanes as u64), done: 0 }
    }

    /// Whether there is time and work left.
    pub fn more(&self) -> bool {
        self.done < self.units && self.until.is_none_or(|until| Instant::now() < until)
    }

    /// Counts units of work.
    pub fn add(&mut self, units: u64) {
        self.done += units;
    }
}

/// What was done, and in which time.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// Units of work.
    pub units: u64,
    /// From the common start to the last lane's end.
    pub time: Duration,
    /// The processor time that the server took meanwhile, where its process is known.
    pub server_time: Option<Duration>,
}

/// The number of the server's process; set once, at the start.
pub static SERVER_PROCESS: OnceLock<u32> = OnceLock::new();

/// The processor time of all the server's threads so far. Unlike rates, it hardly depends on
/// what else the machine does.
pub fn server_time() -> Option<Duration> {
    let tasks = fs::read_dir(format!("/proc/{}/task", SERVER_PROCESS.get()?)).ok()?;
    let nanos = tasks.map(|task| {
        let times = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        times.split(' ').next()?.parse::<u64>().ok()
    });
    nanos.sum::<Option<u64>>().map(Duration::from_nanos)
}

/// Lets all lanes work at once, each until its pace has no more, and waits for the last.
pub fn run<W>(lanes: &mut [Lane], budget: Budget, work: W) -> Result<Measured>
where
    W: Fn(&mut Lane, &mut Pace) -> Result<()> + Sync,
{
    let count = lanes.len();
    let barrier = Barrier::new(count + 1);
    let (work, barrier) = (&work, &barrier);
    thread::scope(|scope| {
        let threads: Vec<_> = lanes
            .iter_mut()
            .map(|lane| {
                scope.spawn(move || {
                    barrier.wait();
                    let mut pace = Pace::start(budget, count);
                    work(lane, &mut pace)?;
                    Ok::<u64, Error>(pace.done)
                })
            })
            .collect();
        barrier.wait();
        let (start, server_start) = (Instant::now(), server_time());
        let mut units = 0;
        for thread in threads {
            units += thread.join().map_err(|_| "a lane panicked")??;
        }
        let time = start.elapsed();
        let server_time = server_time().zip(server_start).map(|(end, start)| end - start);
        Ok(Measured { units, time, server_time })
    })
}
