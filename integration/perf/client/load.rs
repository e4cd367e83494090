//! One run: mounts a server, goes through all operations with so many connections, and prints
//! a JSON object for each.

use std::time::Duration;

use super::at::At;
use super::fixture::{LARGE, SMALL, SMALL_FILES, SMALL_PER_DIR, WIDE, small_name};
use super::measure::{Lane, Measured};
use super::nfs::{self, Client, Handle};
use super::operations;
use super::rpc::Result;

/// What is asked for on the command line.
pub struct Wanted {
    /// The server.
    pub at: At,
    /// Connections.
    pub connections: usize,
    /// What the results say of the round.
    pub round: u32,
    /// The time that each operation takes, where the tree does not set an end earlier.
    pub time: Duration,
    /// Only these operations, which must include those that the others build on; none for all.
    pub only: Vec<String>,
}

/// The served tree's handles, and the lanes.
pub struct Bench {
    /// The root's handle.
    pub root: Handle,
    /// Handles of the directories of small files.
    pub small_dirs: Vec<Handle>,
    /// Handles of the small files.
    pub small: Vec<Handle>,
    /// Handle of the wide directory.
    pub wide: Handle,
    /// Handle of the large file.
    pub large: Handle,
    /// Handle of a second large file, once it is written.
    pub written: Handle,
    /// The time of an operation.
    pub time: Duration,
    /// The connections.
    pub lanes: Vec<Lane>,
}

impl Bench {
    fn open(wanted: &Wanted) -> Result<Self> {
        let root = nfs::mount(wanted.at.mount, &wanted.at.export)?;
        let mut client = Client::open(wanted.at.nfs, 0)?;
        let small_root = client.lookup(&root, SMALL)?.0;
        let mut small_dirs = Vec::new();
        let mut small = Vec::new();
        for number in 0..SMALL_FILES {
            let (dir, name) = small_name(number);
            if number % SMALL_PER_DIR == 0 {
                small_dirs.push(client.lookup(&small_root, &dir)?.0);
            }
            small.push(client.lookup(&small_dirs[number / SMALL_PER_DIR], &name)?.0);
        }
        let wide = client.lookup(&root, WIDE)?.0;
        let large = client.lookup(&root, LARGE)?.0;
        let lanes = (0..wanted.connections).map(|index| {
            let mut client = Client::open(wanted.at.nfs, index as u32 + 1)?;
            let dir = client.mkdir(&root, &format!("lane-{index}"))?;
            let files = Vec::new();
            Ok(Lane {
                client,
                index,
                lanes: wanted.connections,
                dir,
                files,
                next: 0,
                written: None,
            })
        });
        let lanes = lanes.collect::<Result<_>>()?;
        let (written, time) = (Handle::new(), wanted.time);
        Ok(Self { root, small_dirs, small, wide, large, written, time, lanes })
    }
}

/// Measures everything.
pub fn run(wanted: &Wanted) -> Result<()> {
    let mut bench = Bench::open(wanted)?;
    let is_wanted = |name: &str| wanted.only.is_empty() || wanted.only.iter().any(|o| o == name);
    for operation in operations::ALL.iter().filter(|operation| is_wanted(operation.name)) {
        for lane in &mut bench.lanes {
            lane.next = 0;
        }
        let measured = (operation.run)(&mut bench);
        let measured = measured.map_err(|error| format!("{}: {error}", operation.name))?;
        print(wanted, operation.name, measured)?;
    }
    Ok(())
}

fn print(wanted: &Wanted, operation: &str, measured: Measured) -> Result<()> {
    let seconds = measured.time.as_secs_f64();
    if measured.units == 0 {
        return Err(format!("{operation}: nothing was measured").into());
    }
    let line = serde_json::json!({
        "part": "protocol",
        "server": wanted.at.server,
        "connections": wanted.connections,
        "round": wanted.round,
        "operation": operation,
        "units": measured.units,
        "seconds": seconds,
        "rate": measured.units as f64 / seconds,
        "server_us": measured.server_time.map(|time| 1e6 * time.as_secs_f64() / measured.units as f64),
    });
    println!("{line}");
    Ok(())
}
