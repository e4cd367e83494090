//! Connections that each use exports of their own, one call after another.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::calls::status;
use super::instance::Instance;
use super::nfs::{Client, mount_connection, mount_over};
use super::random::Random;
use super::rpc::{Connection, Error, Result};

/// Pause before a call is sent again, or a server that is gone is looked for.
const RETRY: Duration = Duration::from_millis(20);

/// Time after which a call that is always answered with "later" has failed.
const PATIENCE: Duration = Duration::from_secs(90);

/// NFS3ERR_JUKEBOX and MNT3ERR_SERVERFAULT (RFC 1813 §2.6, §5.1.4).
const LATER: [u32; 2] = [10008, 10006];

/// Exports that a lane uses at a time, and one step in so many takes another one in.
const CLOSE_BY: usize = 6;
const MOVES: usize = 10;

/// What lanes and events tell each other.
#[derive(Default)]
pub struct Course {
    /// All is to be checked now, and then to end.
    pub is_over: AtomicBool,
    /// No calls are to be made.
    pub is_quiet: AtomicBool,
    /// Lanes that make none.
    pub resting: AtomicUsize,
    failed: AtomicBool,
}

impl Course {
    /// Whether a lane has failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Has all lanes end.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::SeqCst);
    }
}

/// A connection.
pub struct Lane {
    address: SocketAddr,
    index: usize,
    random: Random,
    instances: Vec<Instance>,
    /// The exports that are in use: the first of them, in the order of `instances`.
    at: usize,
    client: Option<Client>,
    mounts: Option<Connection>,
    next: u64,
    /// Steps that were acknowledged.
    pub steps: u64,
    /// Answers of "later".
    pub later: u64,
    /// The longest time that a call took, with all its repetitions.
    pub longest: Duration,
}

impl Lane {
    /// A lane over the exports with these numbers.
    pub fn new(
        address: SocketAddr,
        instances: impl Iterator<Item = usize>,
        index: usize,
        seed: u64,
    ) -> Self {
        let random = Random::new(seed ^ (index as u64 + 1) << 32);
        let (client, mounts, longest) = (None, None, Duration::ZERO);
        let (at, steps, later) = (0, 0, 0);
        let instances = instances.map(Instance::new).collect();
        // No other lane has the same numbers.
        let next = (index as u64 + 1) << 40;
        Self { address, index, random, instances, at, client, mounts, next, steps, later, longest }
    }

    /// Makes steps until all is over; then checks all.
    pub fn run(&mut self, course: &Course) -> Result<()> {
        self.run_on(course).inspect_err(|_| course.fail())
    }

    fn run_on(&mut self, course: &Course) -> Result<()> {
        while !course.is_over.load(Ordering::SeqCst) && !course.has_failed() {
            if course.is_quiet.load(Ordering::SeqCst) {
                course.resting.fetch_add(1, Ordering::SeqCst);
                while course.is_quiet.load(Ordering::SeqCst) && !course.has_failed() {
                    thread::sleep(RETRY);
                }
                course.resting.fetch_sub(1, Ordering::SeqCst);
            }
            self.step()?;
        }
        if course.has_failed() {
            return Ok(());
        }
        for index in 0..self.instances.len() {
            if self.instances[index].root.is_some() {
                for name in self.instances[index].all_files() {
                    self.call(|instance, client| instance.check(client, &name), index)?;
                }
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        if self.random.below(MOVES) == 0 {
            self.at = (self.at + 1) % self.instances.len();
        }
        let index = (self.at + self.random.below(CLOSE_BY)) % self.instances.len();
        let kind = self.random.below(10);
        if self.instances[index].root.is_none() || kind == 0 {
            return self.mount(index);
        }
        let name = self.instances[index].any_file(&mut self.random);
        match kind {
            1..6 => {
                self.next += 1;
                let (number, is_stable) = (self.next, self.random.below(2) == 0);
                self.instances[index].sends(&name, number);
                self.call(|instance, client| instance.write(client, &name, is_stable), index)?;
            }
            6..9 => self.call(|instance, client| instance.check(client, &name), index)?,
            _ => self.call(|instance, client| instance.list(client), index)?,
        }
        self.steps += 1;
        Ok(())
    }

    /// Mounts an export; its handle is always the same.
    fn mount(&mut self, index: usize) -> Result<()> {
        let (address, path) = (self.address, self.instances[index].path.clone());
        let handle = self.again(&path, |lane| {
            let mut connection = match lane.mounts.take() {
                Some(connection) => connection,
                None => mount_connection(address)?,
            };
            let handle = mount_over(&mut connection, &path);
            if handle.as_ref().err().is_none_or(|error| status(error).is_some()) {
                lane.mounts = Some(connection);
            }
            handle
        })?;
        match &self.instances[index].root {
            Some(known) if *known != handle => Err(format!("{path} has another handle").into()),
            _ => {
                self.instances[index].root = Some(handle);
                Ok(())
            }
        }
    }

    /// Makes calls to an export until they succeed.
    fn call(
        &mut self,
        mut work: impl FnMut(&mut Instance, &mut Client) -> Result<()>,
        index: usize,
    ) -> Result<()> {
        let path = self.instances[index].path.clone();
        self.again(&path, |lane| {
            let mut client = match lane.client.take() {
                Some(client) => client,
                None => Client::open(lane.address, lane.index as u32)?,
            };
            let done = work(&mut lane.instances[index], &mut client);
            // After any other failure, nothing is known of the connection.
            if done.as_ref().err().is_none_or(|error| status(error).is_some()) {
                lane.client = Some(client);
            }
            done
        })
    }

    /// Repeats what fails because the server is gone, or because it says "later".
    fn again<T>(&mut self, path: &str, mut work: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        let start = Instant::now();
        loop {
            let answer = work(self);
            self.longest = self.longest.max(start.elapsed());
            let error = match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let is_later = status(&error).is_some_and(|status| LATER.contains(&status));
            self.later += u64::from(is_later);
            if !(is_later || is_gone(&error)) || start.elapsed() > PATIENCE {
                let waited = start.elapsed();
                return Err(format!("{path}, after {waited:.1?}: {error}").into());
            }
            thread::sleep(RETRY);
        }
    }
}

/// Whether there is no server; not whether it only kept silent.
fn is_gone(error: &Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, UnexpectedEof};
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind.is_some_and(|kind| {
        matches!(kind, BrokenPipe | ConnectionRefused | ConnectionReset | UnexpectedEof)
    })
}
