//! The client that wants to work: one call after another, as a program does.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::nfs::{Client, Handle, Stability, mount};
use super::rpc::Result;

/// Bytes of a READ and of a WRITE.
const PIECE_BYTES: usize = 16 << 10;
/// Bytes of a READ as a kernel sends it, of which so many are on the way.
const LARGE_BYTES: usize = 1 << 20;
const LARGE_IN_FLIGHT: usize = 4;

/// What a client gets done.
#[derive(Clone, Copy)]
pub struct Rates {
    /// One after another.
    pub calls_per_second: f64,
    /// Of READs of a megabyte.
    pub mib_per_second: f64,
}

pub struct Good {
    client: Client,
    root: Handle,
    base_file: Handle,
    own_file: Handle,
}

impl Good {
    pub fn open(address: SocketAddr) -> Result<Self> {
        let root = mount(address, "/")?;
        let mut client = Client::open(address, 0)?;
        let (base_file, _) = client.lookup(&root, "file")?;
        let own_file = client.create(&root, "own")?;
        Ok(Self { client, root, base_file, own_file })
    }

    /// Works for a while in both ways.
    pub fn work(&mut self, time: Duration) -> Result<Rates> {
        let calls_per_second = self.work_on_small(time)?;
        Ok(Rates { calls_per_second, mib_per_second: self.read_on(time)? })
    }

    /// Reads a large file for a while; returns the MiB per second.
    fn read_on(&mut self, time: Duration) -> Result<f64> {
        let (start, mut bytes) = (Instant::now(), 0);
        loop {
            while self.client.in_flight() < LARGE_IN_FLIGHT && start.elapsed() < time {
                self.client.send_read(&self.base_file, 0, LARGE_BYTES as u32)?;
            }
            if self.client.in_flight() == 0 {
                return Ok(bytes as f64 / LARGE_BYTES as f64 / start.elapsed().as_secs_f64());
            }
            bytes += self.client.receive_piece(&self.base_file, LARGE_BYTES, |_, _| Ok(()))?;
        }
    }

    /// Makes calls for a while; returns how many per second.
    fn work_on_small(&mut self, time: Duration) -> Result<f64> {
        let (start, mut calls) = (Instant::now(), 0_u32);
        let data = vec![b'w'; PIECE_BYTES];
        while start.elapsed() < time {
            self.client.lookup(&self.root, "file")?;
            self.client.send_getattr(&self.base_file)?;
            self.client.receive_getattr()?;
            self.client.send_read(&self.base_file, 0, PIECE_BYTES as u32)?;
            self.client.receive_read(PIECE_BYTES, |_, _| Ok(()))?;
            self.client.lookup_absent(&self.root, "absent")?;
            self.client.write(&self.own_file, 0, &data, Stability::Unstable)?;
            calls += 5;
        }
        Ok(f64::from(calls) / start.elapsed().as_secs_f64())
    }
}

/// How long a client that was not there yet takes to mount and to look at the root.
pub fn arrive(address: SocketAddr) -> Result<Duration> {
    let start = Instant::now();
    let root = mount(address, "/")?;
    Client::open(address, 9)?.lookup(&root, "file")?;
    Ok(start.elapsed())
}
