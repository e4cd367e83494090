//! What makes a server take memory: a walk through very many files, and very many clients.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::at::At;
use super::fixture::{LARGE, LARGE_BYTES, LARGE_SEED, check_content};
use super::nfs::{Client, Handle, mount};
use super::rpc::{Error, Result};

/// Connections that walk.
const WALKERS: u32 = 4;
/// GETATTRs on the way per connection.
const IN_FLIGHT: usize = 32;
/// READs on the way per connection, of so many bytes.
const READS_IN_FLIGHT: usize = 4;
const READ_BYTES: usize = 1 << 20;

/// Directories to list, and how many of those that are known are not done.
struct Todo {
    dirs: Vec<Handle>,
    unfinished: usize,
}

/// As `find` does it: lists every directory, and asks for the attributes of each entry. There
/// must be `expected` of these.
pub fn walk(at: &At, expected: u64) -> Result<()> {
    let start = Instant::now();
    let root = mount(at.mount, &at.export)?;
    let todo = Mutex::new(Todo { dirs: vec![root], unfinished: 1 });
    let todo = &todo;
    let entries = thread::scope(|scope| {
        let walkers: Vec<_> =
            (0..WALKERS).map(|index| scope.spawn(move || walk_one(at, index, todo))).collect();
        let joined = walkers.into_iter().map(|one| one.join().map_err(|_| "a walker panicked")?);
        joined.sum::<Result<u64>>()
    })?;
    if entries != expected {
        return Err(format!("{entries} entries and not {expected}").into());
    }
    let line = json!({
        "part": "memory", "what": "walk", "server": at.server, "entries": entries,
        "seconds": start.elapsed().as_secs_f64(),
    });
    println!("{line}");
    Ok(())
}

fn lock(todo: &Mutex<Todo>) -> Result<std::sync::MutexGuard<'_, Todo>> {
    todo.lock().map_err(|_| "a walker panicked".into())
}

fn walk_one(at: &At, index: u32, todo: &Mutex<Todo>) -> Result<u64> {
    let mut client = Client::open(at.nfs, index + 1)?;
    let mut entries = 0;
    loop {
        let next = {
            let mut todo = lock(todo)?;
            if todo.unfinished == 0 {
                return Ok(entries);
            }
            todo.dirs.pop()
        };
        let Some(dir) = next else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        let listed = list(&mut client, &dir, todo);
        lock(todo)?.unfinished -= 1;
        entries += listed?;
    }
}

/// The number of a directory's entries, whose subdirectories become work for all.
fn list(client: &mut Client, dir: &Handle, todo: &Mutex<Todo>) -> Result<u64> {
    let (mut cookie, mut verifier, mut entries) = (0, 0, 0);
    loop {
        let mut handles = Vec::new();
        let mut dirs = Vec::new();
        let page = client.list_each(dir, cookie, verifier, |_, handle, is_dir| {
            handles.push(handle.to_vec());
            if is_dir {
                dirs.push(handle.to_vec());
            }
        })?;
        for handle in &handles {
            if client.in_flight() >= IN_FLIGHT {
                client.receive_getattr()?;
            }
            client.send_getattr(handle)?;
        }
        while client.in_flight() > 0 {
            client.receive_getattr()?;
        }
        entries += handles.len() as u64;
        let mut todo = lock(todo)?;
        todo.unfinished += dirs.len();
        todo.dirs.append(&mut dirs);
        (cookie, verifier) = (page.cookie, page.verifier);
        if page.eof {
            return Ok(entries);
        }
    }
}

/// So many clients that each read the large file of the base at once, for a while.
pub fn storm(at: &At, connections: u32, time: Duration) -> Result<()> {
    let root = mount(at.mount, &at.export)?;
    let large = Client::open(at.nfs, 0)?.lookup(&root, LARGE)?.0;
    let large = &large;
    thread::scope(|scope| {
        let clients: Vec<_> = (0..connections)
            .map(|index| scope.spawn(move || read_on(at, index, large, time)))
            .collect();
        for client in clients {
            client.join().map_err(|_| "a client panicked")??;
        }
        Ok::<(), Error>(())
    })
}

fn read_on(at: &At, index: u32, large: &Handle, time: Duration) -> Result<()> {
    let mut client = Client::open(at.nfs, index + 1)?;
    let pieces = LARGE_BYTES / READ_BYTES as u64;
    let (start, mut next) = (Instant::now(), u64::from(index));
    loop {
        while client.in_flight() < READS_IN_FLIGHT && start.elapsed() < time {
            client.send_read(large, next % pieces * READ_BYTES as u64, READ_BYTES as u32)?;
            next += 1;
        }
        if client.in_flight() == 0 {
            return Ok(());
        }
        // So many at once may get less than they ask for.
        let look = |offset, data: &[u8]| check_content(LARGE_SEED, offset, data);
        client.receive_piece(large, READ_BYTES, look)?;
    }
}
