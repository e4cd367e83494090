//! What an operation costs in a session that holds few files, and in one that holds very many;
//! and how soon a server answers that has just been started over one.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::at::At;
use super::many::{FILE_BYTES, PER_DIR, dir_name, file_name};
use super::measure::server_time;
use super::nfs::{Client, Handle, Stability, mount};
use super::rpc::Result;

/// Between two tries to reach a server that was just started.
const RETRY: Duration = Duration::from_micros(200);
/// A server has to answer within this time.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a file that is made.
const NEW_FILE_BYTES: usize = 4096;

/// The working set: 1,000 files, in as many directories as there are up to this, far apart.
const HOME_DIRS: usize = 10;

/// One connection to a server over a session of [`super::many::make_session`].
struct Walker {
    client: Client,
    root: Handle,
    /// Directories of the session.
    dirs: usize,
    /// Whether it keeps to its working set.
    is_at_home: bool,
    state: u64,
    /// Calls of this run so far, for names that are new.
    made: usize,
}

impl Walker {
    /// A number below `limit`, of the same sequence in every run (splitmix64).
    fn random(&mut self, limit: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }

    fn dir(&mut self) -> Result<Handle> {
        let number = if self.is_at_home {
            let home = self.dirs.min(HOME_DIRS);
            self.random(home) * (self.dirs / home)
        } else {
            self.random(self.dirs)
        };
        Ok(self.client.lookup(&self.root, &dir_name(number))?.0)
    }

    /// The name of a file in any directory.
    fn name(&mut self) -> String {
        let step = if self.is_at_home { self.dirs.min(HOME_DIRS) } else { 1 };
        file_name(self.random(PER_DIR / step) * step)
    }

    /// A file, looked up anywhere in the tree.
    fn file(&mut self) -> Result<Handle> {
        let (dir, name) = (self.dir()?, self.name());
        let (file, size) = self.client.lookup(&dir, &name)?;
        if size == FILE_BYTES as u64 { Ok(file) } else { Err("LOOKUP: not the file".into()) }
    }

    fn new_name(&mut self) -> String {
        self.made += 1;
        format!("new-{:06}", self.made)
    }
}

type Step = fn(&mut Walker) -> Result<()>;

/// What is made is removed again.
const STEPS: &[(&str, Step)] = &[
    ("lookup", |w| w.file().map(drop)),
    ("getattr", |w| {
        let file = w.file()?;
        w.client.getattr(&file, FILE_BYTES as u64)
    }),
    ("read", |w| {
        let file = w.file()?;
        w.client.send_read(&file, 0, FILE_BYTES as u32)?;
        w.client.receive_read(FILE_BYTES, |_, _| Ok(()))
    }),
    ("readdirplus", |w| {
        let dir = w.dir()?;
        w.client.list(&dir, 0, 0).map(drop)
    }),
    ("setattr", |w| {
        let file = w.file()?;
        w.client.chmod(&file, 0o600)
    }),
    ("create-write-commit-remove", |w| {
        let (dir, name) = (w.dir()?, w.new_name());
        let file = w.client.create(&dir, &name)?;
        let data = [8; NEW_FILE_BYTES];
        let written = w.client.write(&file, 0, &data, Stability::Unstable)?;
        w.client.commit(&file, written)?;
        w.client.remove(&dir, &name)
    }),
    ("rename", |w| {
        let (dir, name) = (w.dir()?, w.name());
        w.client.rename(&dir, &name, "renamed")?;
        w.client.rename(&dir, "renamed", &name)
    }),
];

/// Measures all steps, each for `time`, over a session of `files` files: first in the working
/// set, which is of the same size in every session, and then anywhere, where no cache helps.
pub fn run(at: &At, files: usize, round: u32, time: Duration) -> Result<()> {
    let root = mount(at.mount, &at.export)?;
    let client = Client::open(at.nfs, 1)?;
    let dirs = files / PER_DIR;
    let mut walker = Walker { client, root, dirs, is_at_home: true, state: 1, made: 0 };
    for (is_at_home, (what, step)) in
        [true, false].into_iter().flat_map(|at_home| STEPS.iter().map(move |step| (at_home, step)))
    {
        walker.is_at_home = is_at_home;
        // Half as long beforehand, so that what can be in memory is.
        let (_, _) = repeat(&mut walker, *step, time / 2)?;
        let server_start = server_time();
        let (units, seconds) = repeat(&mut walker, *step, time)?;
        let server_time = server_time().zip(server_start).map(|(end, start)| end - start);
        let each = |time: Duration| 1e6 * time.as_secs_f64() / units as f64;
        let line = json!({
            "part": "scale", "what": what, "server": at.server, "files": files, "round": round,
            "at_home": is_at_home,
            "value": each(seconds), "unit": "µs", "server_us": server_time.map(each),
        });
        println!("{line}");
    }
    Ok(())
}

fn repeat(walker: &mut Walker, step: Step, time: Duration) -> Result<(u64, Duration)> {
    let start = Instant::now();
    let mut units = 0;
    while start.elapsed() < time {
        step(walker)?;
        units += 1;
    }
    Ok((units, start.elapsed()))
}

/// Runs `command`, and measures from there how long it takes until NULL, and GETATTR of the root,
/// are answered. The server is killed afterwards.
pub fn start_up(at: &At, what: &str, command: &[&str]) -> Result<()> {
    let (program, args) = command.split_first().ok_or("no command")?;
    let start = Instant::now();
    let server = Command::new(program).args(args).stderr(Stdio::null()).spawn()?;
    let mut server = Killed(server);
    let mut client = loop {
        match Client::open(at.nfs, 1) {
            Ok(client) => break client,
            Err(error) if start.elapsed() > PATIENCE => return Err(error),
            Err(_) if server.0.try_wait()?.is_some() => return Err("the server ended".into()),
            Err(_) => thread::sleep(RETRY),
        }
    };
    client.null()?;
    let first_call = start.elapsed();
    let root = mount(at.mount, &at.export)?;
    client.send_getattr(&root)?;
    client.receive_getattr()?;
    let first_attributes = start.elapsed();
    let milliseconds = |time: Duration| 1e3 * time.as_secs_f64();
    for (call, time) in [("first answer", first_call), ("attributes of the root", first_attributes)]
    {
        let line = json!({
            "part": "scale", "what": format!("{what}: {call}"), "server": at.server,
            "value": milliseconds(time), "unit": "ms",
        });
        println!("{line}");
    }
    Ok(())
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _killed = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Makes `files` changes that no COMMIT follows: what a log holds that has to be recovered.
pub fn dirty(at: &At, round: &str, files: usize) -> Result<()> {
    let root = mount(at.mount, &at.export)?;
    let mut client = Client::open(at.nfs, 1)?;
    let dir = client.mkdir(&root, &format!("dirty-{round}"))?;
    for number in 0..files {
        let file = client.create(&dir, &file_name(number))?;
        client.write(&file, 0, &[9; NEW_FILE_BYTES], Stability::Unstable)?;
    }
    Ok(())
}
