//! A command that changes much, and how long other clients of the session wait beside it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::at::At;
use crate::nfs::{Client, Handle, Stability, mount};
use crate::rpc::{Error, Result};

use super::{milliseconds, print, run};

/// Between two calls of a client that waits for what it is answered.
const CALL_EACH: Duration = Duration::from_millis(2);
/// The file that is read and written meanwhile. It has to be there at the checkpoint.
const WATCHED: &str = "watched";
/// Bytes of a WRITE.
const WRITE_BYTES: usize = 100;

/// Makes what [`beside`] reads and writes.
pub fn make_watched(at: &At) -> Result<()> {
    let root = mount(at.mount, &at.export)?;
    let mut client = Client::open(at.nfs, 1)?;
    let file = client.create(&root, WATCHED)?;
    let written = client.write(&file, 0, &[1; WRITE_BYTES], Stability::Unstable)?;
    client.commit(&file, written)
}

/// Runs a command, and says what it took, and how long a GETATTR and a WRITE beside it took at
/// most.
pub fn beside(at: &At, what: &str, command: &[&str]) -> Result<()> {
    let root = mount(at.mount, &at.export)?;
    let (file, _) = Client::open(at.nfs, 1)?.lookup(&root, WATCHED)?;
    let is_done = AtomicBool::new(false);
    let (took, looked, wrote) = thread::scope(|scope| {
        let looker = scope.spawn(|| {
            slowest(at, 2, &is_done, |client| {
                client.send_getattr(&file)?;
                client.receive_getattr().map(drop)
            })
        });
        let writer = scope.spawn(|| {
            slowest(at, 3, &is_done, |client| {
                client.write(&file, 0, &[2; WRITE_BYTES], Stability::Unstable).map(drop)
            })
        });
        thread::sleep(20 * CALL_EACH);
        let took = run(command);
        is_done.store(true, Ordering::Relaxed);
        let join = |thread: thread::ScopedJoinHandle<'_, Result<Duration>>| {
            thread.join().map_err(|_| "a client panicked")?
        };
        Ok::<_, Error>((took?, join(looker)?, join(writer)?))
    })?;
    print(what, milliseconds(took), "ms");
    print(&format!("slowest GETATTR beside the {what}"), milliseconds(looked), "ms");
    print(&format!("slowest WRITE beside the {what}"), milliseconds(wrote), "ms");
    Ok(())
}

/// The longest time that a call took until all is done.
fn slowest(
    at: &At,
    index: u32,
    is_done: &AtomicBool,
    call: impl Fn(&mut Client) -> Result<()>,
) -> Result<Duration> {
    let mut client = Client::open(at.nfs, index)?;
    let mut slowest = Duration::ZERO;
    while !is_done.load(Ordering::Relaxed) {
        let start = Instant::now();
        call(&mut client)?;
        slowest = slowest.max(start.elapsed());
        thread::sleep(CALL_EACH);
    }
    Ok(slowest)
}

/// Removes all directories of the root with the files in them, as `rm -r` does.
pub fn remove_all(at: &At) -> Result<()> {
    let root = mount(at.mount, &at.export)?;
    let mut client = Client::open(at.nfs, 1)?;
    for (name, dir) in list(&mut client, &root, true)? {
        for (file, _) in list(&mut client, &dir, false)? {
            client.remove(&dir, &file)?;
        }
        client.rmdir(&root, &name)?;
    }
    Ok(())
}

/// Names and handles of the directories, or of all else, in a directory.
fn list(client: &mut Client, dir: &Handle, dirs: bool) -> Result<Vec<(String, Handle)>> {
    let (mut found, mut cookie, mut verifier) = (Vec::new(), 0, 0);
    loop {
        let page = client.list_each(dir, cookie, verifier, |name, handle, is_dir| {
            if is_dir == dirs {
                found.push((String::from_utf8_lossy(name).into_owned(), handle.to_vec()));
            }
        })?;
        (cookie, verifier) = (page.cookie, page.verifier);
        if page.eof {
            return Ok(found);
        }
    }
}
