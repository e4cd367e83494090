//! The client that wants to work: one call after another, as a program does.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::nfs::{Client, Handle, Stability, mount};
use super::rpc::Result;

/// Bytes of a READ and of a WRITE.
const PIECE_BYTES: usize = 16 << 10;

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

    /// Works for a while; returns the calls per second.
    pub fn work(&mut self, time: Duration) -> Result<f64> {
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
