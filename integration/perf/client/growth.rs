//! How a session grows: at the first write to a large file of the base, and by very much content.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::at::At;
use super::fixture::{LARGE, LARGE_BYTES, LARGE_SEED, check_content, content};
use super::nfs::{Client, Handle, Stability, mount};
use super::rpc::{Error, Result};

/// Where the first byte is written: in the middle of a piece that is read.
const FIRST_BYTE_OFFSET: u64 = LARGE_BYTES / 2 + 12_345;
/// Bytes of a READ.
const PIECE_BYTES: u64 = 1 << 20;
/// A session that has not grown for so long is done.
const CALM: Duration = Duration::from_secs(2);
/// How long to wait for that.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at the session's files.
const LOOK: Duration = Duration::from_millis(2);
/// Connections that fill a session.
const FILLERS: usize = 4;
/// The smallest and the largest file of a filled session, in bytes.
const LEAST_BYTES: f64 = 4096.0;
const MOST_BYTES: f64 = (1 << 20) as f64;

/// A session's file and its log, and the largest that they were.
struct Session {
    file: PathBuf,
    log: PathBuf,
    peak: AtomicU64,
    log_peak: AtomicU64,
}

fn byte_len(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

impl Session {
    fn new(path: &Path) -> Self {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let (peak, log_peak) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { file: path.to_owned(), log: log.into(), peak, log_peak }
    }

    fn look(&self) -> u64 {
        let (file, log) = (byte_len(&self.file), byte_len(&self.log));
        self.peak.fetch_max(file + log, Ordering::Relaxed);
        self.log_peak.fetch_max(log, Ordering::Relaxed);
        file + log
    }

    /// Does `work`, and looks at the files all the time.
    fn watch<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    self.look();
                    thread::sleep(LOOK);
                }
            });
            let worked = work();
            is_done.store(true, Ordering::Relaxed);
            worked
        })
    }

    /// Waits until the session grows no more.
    fn settle(&self) -> Result<()> {
        let start = Instant::now();
        let (mut last, mut since) = (self.look(), Instant::now());
        while since.elapsed() < CALM {
            if start.elapsed() > PATIENCE {
                return Err("the session does not stop growing".into());
            }
            thread::sleep(LOOK);
            let now = self.look();
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(())
    }
}

fn print(part: &str, at: &At, what: &str, value: f64, unit: &str) {
    let line =
        json!({"part": part, "what": what, "server": at.server, "value": value, "unit": unit});
    println!("{line}");
}

/// Writes a byte into the large file of the base, and reads all of the file meanwhile.
pub fn first_byte(at: &At, session: &Path) -> Result<()> {
    let session = Session::new(session);
    let root = mount(at.mount, &at.export)?;
    let mut client = Client::open(at.nfs, 1)?;
    let (large, _) = client.lookup(&root, LARGE)?;
    let before = session.look();
    let start = Instant::now();
    let written = client.write(&large, FIRST_BYTE_OFFSET, b"!", Stability::Unstable)?;
    let answered = start.elapsed();
    client.commit(&large, written)?;
    let durable = start.elapsed();
    session.watch(|| {
        let slowest = read_all(&mut client, &large)?;
        let milliseconds = |time: Duration| 1e3 * time.as_secs_f64();
        let print = |what: &str, value: f64| print("first-byte", at, what, value, "ms");
        print("WRITE of a byte answered", milliseconds(answered));
        print("the byte durable (WRITE + COMMIT)", milliseconds(durable));
        print("slowest READ of 1 MiB meanwhile", milliseconds(slowest));
        Ok(())
    })?;
    session.settle()?;
    client.lookup(&root, LARGE)?;
    read_all(&mut client, &large)?;
    let times = |bytes: u64| (bytes - before) as f64 / LARGE_BYTES as f64;
    let peak = session.peak.load(Ordering::Relaxed);
    print("first-byte", at, "the session's growth at its peak", times(peak), "of the file");
    print(
        "first-byte",
        at,
        "the session's growth in the end",
        times(session.look()),
        "of the file",
    );
    Ok(())
}

/// Reads and checks the whole large file; the longest time that a READ took.
fn read_all(client: &mut Client, large: &Handle) -> Result<Duration> {
    let mut slowest = Duration::ZERO;
    for offset in (0..LARGE_BYTES).step_by(PIECE_BYTES as usize) {
        let start = Instant::now();
        client.send_read(large, offset, PIECE_BYTES as u32)?;
        client.receive_read(PIECE_BYTES as usize, |offset, data| {
            let within = FIRST_BYTE_OFFSET.checked_sub(offset).filter(|&at| at < PIECE_BYTES);
            if within.is_some_and(|at| data[at as usize] != b'!') {
                return Err("the byte that was written is not there".into());
            }
            check_content(LARGE_SEED, offset, data)
        })?;
        slowest = slowest.max(start.elapsed());
    }
    Ok(slowest)
}

/// Bytes of a file: as many files between 4 and 8 KiB as between 512 and 1024 (log-uniform).
fn file_bytes(number: u64) -> usize {
    let word = content(number + 1, 0, 8);
    let word = word.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
    let part = word as f64 / u64::MAX as f64;
    (LEAST_BYTES * (MOST_BYTES / LEAST_BYTES).powf(part)) as usize
}

/// Writes files of 4 KiB to 1 MiB until there are `bytes` bytes, says how large the session is,
/// and removes them all again.
pub fn fill(at: &At, session: &Path, bytes: u64) -> Result<()> {
    let session = Session::new(session);
    let before = session.look();
    let root = mount(at.mount, &at.export)?;
    let start = Instant::now();
    let written = session.watch(|| each(at, &root, bytes, write_files))?;
    let seconds = start.elapsed().as_secs_f64();
    let (size, log) = (session.look() - before, byte_len(&session.log));
    let gib = |bytes: u64| bytes as f64 / (1 << 30) as f64;
    let per_byte = |size: u64| size as f64 / written as f64;
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    print("size", at, "content written", gib(written), "GiB");
    print("size", at, "writing it", mib(written) / seconds, "MiB/s");
    print("size", at, "the session with its log", per_byte(size), "of the content");
    print("size", at, "the session without its log", per_byte(size - log), "of the content");
    session.watch(|| each(at, &root, bytes, remove_files))?;
    let log_peak = session.log_peak.load(Ordering::Relaxed);
    print("size", at, "the log at its peak", mib(log_peak), "MiB");
    Ok(())
}

/// Runs `work` in as many directories as there are fillers, each with its share of the bytes.
fn each(
    at: &At,
    root: &Handle,
    bytes: u64,
    work: fn(&At, &Handle, usize, u64) -> Result<u64>,
) -> Result<u64> {
    thread::scope(|scope| {
        let fillers: Vec<_> = (0..FILLERS)
            .map(|index| scope.spawn(move || work(at, root, index, bytes / FILLERS as u64)))
            .collect();
        let joined = fillers.into_iter().map(|one| one.join().map_err(|_| "a filler panicked")?);
        joined.sum::<Result<u64>>()
    })
}

/// The lengths of a filler's files.
fn lengths(index: usize, bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    let mut left = bytes;
    (0..).map_while(move |number| {
        let length = file_bytes(((index as u64) << 32) + number);
        if left == 0 {
            return None;
        }
        left = left.saturating_sub(length as u64);
        Some((number, length))
    })
}

fn write_files(at: &At, root: &Handle, index: usize, bytes: u64) -> Result<u64> {
    let mut client = Client::open(at.nfs, index as u32 + 1)?;
    let data = content(LARGE_SEED + 3, 0, MOST_BYTES as usize);
    let dir = client.mkdir(root, &format!("filled-{index}"))?;
    let mut written = 0;
    for (number, length) in lengths(index, bytes) {
        let file = client.create(&dir, &format!("file-{number:06}"))?;
        let answer = client.write(&file, 0, &data[..length], Stability::Unstable)?;
        client.commit(&file, answer)?;
        written += length as u64;
    }
    Ok(written)
}

fn remove_files(at: &At, root: &Handle, index: usize, bytes: u64) -> Result<u64> {
    let mut client = Client::open(at.nfs, index as u32 + 1)?;
    let name = format!("filled-{index}");
    let (dir, _) = client.lookup(root, &name)?;
    let mut removed = 0;
    for (number, _) in lengths(index, bytes) {
        client.remove(&dir, &format!("file-{number:06}"))?;
        removed += 1;
    }
    client.rmdir(root, &name)?;
    Ok::<u64, Error>(removed)
}
