//! Connections that each use exports of their own, one call after another.

use std::net::{Ipv4Addr, SocketAddr};

use super::caller::Caller;
use super::course::Course;
use super::instance::Instance;
use super::nfs::Client;
use super::random::Random;
use super::rpc::Result;

/// Exports that a lane uses at a time, and one step in so many takes another one in.
const CLOSE_BY: usize = 6;
const MOVES: usize = 10;

/// A connection.
pub struct Lane {
    pub caller: Caller,
    random: Random,
    instances: Vec<Instance>,
    /// The exports that are in use: the first of them, in the order of `instances`.
    at: usize,
    next: u64,
    /// Steps that were acknowledged.
    pub steps: u64,
}

impl Lane {
    /// A lane over the exports with these numbers.
    pub fn new(
        server: SocketAddr,
        instances: impl Iterator<Item = usize>,
        index: usize,
        seed: u64,
    ) -> Self {
        let caller = Caller::new(server, Ipv4Addr::LOCALHOST, index);
        let random = Random::new(seed ^ (index as u64 + 1) << 32);
        let instances = instances.map(Instance::new).collect();
        // No other lane has the same numbers.
        let next = (index as u64 + 1) << 40;
        Self { caller, random, instances, at: 0, next, steps: 0 }
    }

    /// Makes steps until all is over; then checks all.
    pub fn run(&mut self, course: &Course) -> Result<()> {
        self.run_on(course).inspect_err(|_| course.fail())
    }

    fn run_on(&mut self, course: &Course) -> Result<()> {
        while course.goes_on() {
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
        let instance = &mut self.instances[index];
        let handle = self.caller.mount(&instance.path)?;
        match instance.root.replace(handle.clone()) {
            Some(known) if known != handle => {
                Err(format!("{} has another handle", instance.path).into())
            }
            _ => Ok(()),
        }
    }

    /// Makes calls to an export until they succeed.
    fn call(
        &mut self,
        work: impl FnMut(&mut Instance, &mut Client) -> Result<()>,
        index: usize,
    ) -> Result<()> {
        self.caller.call(&mut self.instances[index], work)
    }
}
