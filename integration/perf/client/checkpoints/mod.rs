//! Checkpoints: what one takes, what a restore takes and how long others wait meanwhile, and what
//! other operations take in a session that has them.

mod beside;
mod turns;

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use acetate::control::{Answer, CheckpointText, ControlConnection, Request, RestoreAnswer};
use acetate::delta::CheckpointKind;
use serde_json::json;

pub use beside::{beside, make_watched, remove_all};
pub use turns::{look, tax};

use super::at::At;
use super::many::{FILE_BYTES, PER_DIR, dir_name, file_name};
use super::nfs::{Client, Handle, mount};
use super::rpc::Result;

/// Times that something is repeated of which the median is told.
const TIMES: usize = 30;
/// The same for a command that takes long.
const FEW_TIMES: usize = 5;
/// The time after which no more than these are made.
const ENOUGH: Duration = Duration::from_secs(5);
/// Between two checkpoints or restores, so that the one before is done in every way.
const PAUSE: Duration = Duration::from_millis(10);

/// What makes and restores checkpoints of a served session, without a process for each.
struct Checkpointer {
    socket: ControlConnection,
}

impl Checkpointer {
    fn open(session: &Path) -> Result<Self> {
        let socket = ControlConnection::open(session)?.ok_or("the session is not served")?;
        Ok(Self { socket })
    }

    /// Makes a checkpoint; its id, and the time until the answer.
    fn create(&mut self) -> Result<(i64, Duration)> {
        let kind = CheckpointKind::Manual.as_str().to_owned();
        let new = CheckpointText { name: None, kind, labels: Default::default(), reuses: false };
        let start = Instant::now();
        match self.socket.ask(&Request::CreateCheckpoint(new))? {
            Answer::Checkpoint(Some(id)) => Ok((id, start.elapsed())),
            other => Err(format!("a checkpoint was answered with {other:?}").into()),
        }
    }

    /// Restores a checkpoint; the time until the answer.
    fn restore(&mut self, to: i64) -> Result<Duration> {
        let start = Instant::now();
        match self.socket.ask(&Request::Restore { to, seen: None })? {
            Answer::Restored(RestoreAnswer::Done { .. }) => Ok(start.elapsed()),
            other => Err(format!("a restore was answered with {other:?}").into()),
        }
    }
}

fn print(what: &str, value: f64, unit: &str) {
    let line = json!({
        "part": "checkpoints", "what": what, "server": "acetate", "value": value, "unit": unit,
    });
    println!("{line}");
}

fn milliseconds(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Makes checkpoints of a served session, each after `changes` changes, and says what a request
/// took.
pub fn create(at: &At, session: &Path, what: &str, changes: usize) -> Result<()> {
    let mut files = Files::open(at)?;
    let mut checkpointer = Checkpointer::open(session)?;
    checkpointer.create()?;
    let mut times = Vec::new();
    // Many changes take longer than what is measured.
    let count = if changes > TIMES { FEW_TIMES } else { TIMES };
    for _ in 0..count {
        for _ in 0..changes {
            files.chmod_next()?;
        }
        thread::sleep(PAUSE);
        times.push(checkpointer.create()?.1);
    }
    print(what, milliseconds(median(times)), "ms");
    Ok(())
}

/// Restores a checkpoint `TIMES` times, each after a change of `changes` files, and says what a
/// request took.
pub fn restore(at: &At, session: &Path, what: &str, changes: usize) -> Result<()> {
    let mut files = Files::open(at)?;
    let mut checkpointer = Checkpointer::open(session)?;
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let (to, _) = checkpointer.create()?;
        for _ in 0..changes {
            files.chmod_next()?;
        }
        thread::sleep(PAUSE);
        times.push(checkpointer.restore(to)?);
    }
    print(what, milliseconds(median(times)), "ms");
    Ok(())
}

/// Changes the mode of `count` files of a served session.
pub fn chmod(at: &At, count: usize) -> Result<()> {
    let mut files = Files::open(at)?;
    (0..count).try_for_each(|_| files.chmod_next())
}

/// Runs a command `TIMES` times, or for some seconds, and says what it took.
pub fn command(what: &str, command: &[&str]) -> Result<()> {
    let (mut times, start) = (Vec::new(), Instant::now());
    while times.len() < FEW_TIMES || times.len() < TIMES && start.elapsed() < ENOUGH {
        times.push(run(command)?);
        thread::sleep(PAUSE);
    }
    print(what, milliseconds(median(times)), "ms");
    Ok(())
}

/// Runs a command, and returns what it took. Exit status 1 is that there are differences.
fn run(command: &[&str]) -> Result<Duration> {
    let (program, args) = command.split_first().ok_or("no command")?;
    let start = Instant::now();
    let ended = Command::new(program).args(args).output()?;
    let took = start.elapsed();
    if matches!(ended.status.code(), Some(0 | 1)) {
        return Ok(took);
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    Err(format!("{command:?} ended with {}: {said}", ended.status).into())
}

/// The files of a session of [`super::many::make_session`], one after another.
struct Files {
    client: Client,
    root: Handle,
    dir: Option<(usize, Handle)>,
    next: usize,
    round: usize,
}

impl Files {
    fn open(at: &At) -> Result<Self> {
        let root = mount(at.mount, &at.export)?;
        Ok(Self { client: Client::open(at.nfs, 1)?, root, dir: None, next: 0, round: 0 })
    }

    /// Looks the next file up, and starts over after the last.
    fn next(&mut self) -> Result<Handle> {
        let number = self.next / PER_DIR;
        if self.dir.as_ref().is_none_or(|(current, _)| *current != number) {
            let Ok((dir, _)) = self.client.lookup(&self.root, &dir_name(number)) else {
                (self.next, self.round) = (0, self.round + 1);
                return if number == 0 { Err("there are no files".into()) } else { self.next() };
            };
            self.dir = Some((number, dir));
        }
        let dir = &self.dir.as_ref().ok_or("there is no directory")?.1;
        let (file, size) = self.client.lookup(dir, &file_name(self.next % PER_DIR))?;
        self.next += 1;
        if size == FILE_BYTES as u64 { Ok(file) } else { Err("LOOKUP: not the file".into()) }
    }

    fn chmod_next(&mut self) -> Result<()> {
        let file = self.next()?;
        // A mode that the file did not have.
        let mode = 0o400 + (std::process::id() as usize + self.round) % 0o377;
        self.client.chmod(&file, mode as u32)
    }
}
