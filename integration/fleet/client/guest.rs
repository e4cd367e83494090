//! Clients that use an export, leave, and come back later: the server may have removed it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::caller::Caller;
use super::calls::{STALE, status};
use super::course::Course;
use super::instance::Instance;
use super::random::Random;
use super::rpc::Result;

/// What the exports file says of `expire`.
pub const EXPIRE: Duration = Duration::from_secs(3);

/// How much older an instance may look after a kill, and what a busy machine takes.
const TOLERANCE: Duration = Duration::from_secs(2);

/// The longest time between two visits, in milliseconds.
const MOST_MILLISECONDS: usize = 4000;

/// Exports of one guest.
const EXPORTS: usize = 6;

/// The file in each of them.
const FILE: &str = "note";

/// An export that a guest knows.
struct Visited {
    instance: Instance,
    /// No later than the last use; none if the export is not known to exist.
    used: Option<Instant>,
}

/// A client with an address of its own.
pub struct Guest {
    pub caller: Caller,
    visited: Vec<Visited>,
    random: Random,
    next: u64,
    /// Visits.
    pub visits: u64,
    /// Exports that were removed between two visits.
    pub expired: u64,
}

impl Guest {
    /// The guest with this number.
    pub fn new(server: SocketAddr, index: usize, seed: u64) -> Self {
        let from = Ipv4Addr::new(127, 0, 1, index as u8 + 1);
        let visited = (0..EXPORTS).map(|export| Visited {
            instance: Instance::expiring(index * EXPORTS + export),
            used: None,
        });
        Self {
            caller: Caller::new(server, from, index),
            visited: visited.collect(),
            random: Random::new(seed ^ (index as u64 + 1) << 48),
            // No lane and no other guest has the same numbers.
            next: (index as u64 + 1) << 52,
            visits: 0,
            expired: 0,
        }
    }

    /// Visits exports until all is over.
    pub fn run(&mut self, course: &Course) -> Result<()> {
        while course.goes_on() {
            self.visit().inspect_err(|_| course.fail())?;
            course.pause(Duration::from_millis(self.random.below(MOST_MILLISECONDS) as u64));
        }
        Ok(())
    }

    /// Mounts an export, checks what it has, and writes to it. What is acknowledged stays for
    /// `expire`; an export that was removed is a new one, and its old handles are stale.
    fn visit(&mut self) -> Result<()> {
        let Visited { instance, used } = &mut self.visited[self.random.below(EXPORTS)];
        let caller = &mut self.caller;
        let root = caller.mount(&instance.path)?;
        if let Some(before) = instance.root.replace(root.clone())
            && before != root
        {
            let path = &instance.path;
            if used.is_some_and(|used| used.elapsed() + TOLERANCE < EXPIRE) {
                return Err(format!("{path} is removed too early").into());
            }
            let answer = caller.call(instance, |_, client| {
                let found = client.mode_and_size(&before);
                let is_stale = found.as_ref().err().and_then(status) == Some(STALE);
                if is_stale { Ok(()) } else { found.map(drop).and(Err("it is found".into())) }
            });
            answer.map_err(|error| format!("the handle of what was removed: {error}"))?;
            instance.forget();
            self.expired += 1;
        }
        caller.call(instance, |instance, client| instance.check(client, FILE))?;
        self.next += 1;
        instance.sends(FILE, self.next);
        let sent = Instant::now();
        caller.call(instance, |instance, client| instance.write(client, FILE, true))?;
        *used = Some(sent);
        self.visits += 1;
        // A connected client keeps what it has used.
        self.caller.disconnect();
        Ok(())
    }
}
