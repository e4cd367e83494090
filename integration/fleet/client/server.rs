//! The server: its exports file, its life, and what it takes.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::guest::EXPIRE;
use super::nfs::Client;
use super::rpc::Result;

/// A server that does not answer by then has failed.
const START: Duration = Duration::from_secs(60);

/// Interval of attempts to reach it.
const PAUSE: Duration = Duration::from_millis(2);

/// Time to close all sessions without calls; `idle_close` is a second.
const CLOSE: Duration = Duration::from_secs(60);

/// Time to remove all exports that expire, once nothing uses them.
const REMOVAL: Duration = Duration::from_secs(60);

/// The exports: a session of their own over the base, and one that the exports of a user share;
/// and exports that expire.
const TEMPLATE: &str = r#"
[[template]]
path = "/chat/{user}/{chat}"
allow = { user = "[a-z0-9]+", chat = "[a-z0-9]+" }
options = ["insecure", "no_root_squash"]

  [[template.mount]]
  at = "/"
  session = "chats/{user}/{chat}.db"
  base = "BASE"

  [[template.mount]]
  at = "/.user"
  session = "users/{user}.db"
  shared = true

[[template]]
path = "/guest/{name}"
allow = { name = "[a-z0-9]+" }
options = ["insecure", "no_root_squash"]
expire = "EXPIRE"

  [[template.mount]]
  at = "/"
  session = "guests/{name}.db"
"#;

/// What is served, and by which program.
pub struct Server {
    program: PathBuf,
    dir: PathBuf,
    base: PathBuf,
    pub address: SocketAddr,
    process: Option<Child>,
}

/// What the server takes.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    pub mib: f64,
    pub descriptors: usize,
    /// Sessions that are open.
    pub sessions: usize,
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mib, descriptors, sessions } = self;
        write!(f, "{mib:.1} MiB, {descriptors} descriptors, {sessions} sessions")
    }
}

impl Server {
    /// A server whose sessions and exports file are in `dir`.
    pub fn new(program: &str, dir: &Path, base: &Path, address: SocketAddr) -> Self {
        let (program, dir, base) = (program.into(), dir.to_owned(), base.to_owned());
        Self { program, dir, base, address, process: None }
    }

    /// Writes the exports file, with this `max_open`.
    pub fn configure(&self, max_open: usize) -> Result<()> {
        let head = format!("idle_close = \"1s\"\nmax_open = {max_open}\n");
        let text = TEMPLATE.replace("BASE", &self.base.display().to_string());
        let text = head + &text.replace("EXPIRE", &format!("{}s", EXPIRE.as_secs()));
        let new = self.dir.join("exports.new");
        fs::write(&new, text)?;
        Ok(fs::rename(new, self.dir.join("exports.toml"))?)
    }

    /// Starts the server, and waits until it answers: it listens before it has read its exports.
    pub fn start(&mut self) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.arg("serve").arg("--config").arg(self.dir.join("exports.toml"));
        command.arg("--listen").arg(self.address.to_string());
        // By itself the allocator keeps much of what it freed, in an arena for each few threads:
        // growth by that would hide a leak.
        command.env("MALLOC_ARENA_MAX", "2").env("MALLOC_MMAP_THRESHOLD_", "65536");
        let log = self.dir.join("server.log");
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let process = command.stdin(Stdio::null()).stderr(log).spawn()?;
        let process = self.process.insert(process);
        let end = Instant::now() + START;
        while Client::open(self.address, 0).and_then(|mut client| client.null()).is_err() {
            if let Some(status) = process.try_wait()? {
                return Err(format!("the server ended at its start: {status}").into());
            }
            if Instant::now() > end {
                return Err("the server does not answer".into());
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn process(&mut self) -> Result<&mut Child> {
        let process = self.process.as_mut().ok_or("no server runs")?;
        match process.try_wait()? {
            Some(status) => Err(format!("the server ended by itself: {status}").into()),
            None => Ok(process),
        }
    }

    /// kill -9.
    pub fn kill(&mut self) -> Result<()> {
        let process = self.process()?;
        process.kill()?;
        process.wait()?;
        self.process = None;
        Ok(())
    }

    /// SIGTERM; it must end well.
    pub fn stop(&mut self) -> Result<()> {
        self.signal("-TERM")?;
        let status = self.process.take().ok_or("no server runs")?.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(format!("the server ended with {status} after SIGTERM").into())
    }

    /// SIGHUP.
    pub fn reload(&mut self) -> Result<()> {
        self.signal("-HUP")
    }

    fn signal(&mut self, signal: &str) -> Result<()> {
        let process = self.process()?.id().to_string();
        let sent = Command::new("kill").args([signal, &process]).status()?;
        if sent.success() { Ok(()) } else { Err("the signal was not sent".into()) }
    }

    /// What it takes now.
    pub fn taken(&mut self) -> Result<Taken> {
        let process = self.process()?.id();
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmRSS")?;
        let (mut descriptors, mut sessions) = (0, 0);
        for descriptor in fs::read_dir(format!("/proc/{process}/fd"))? {
            descriptors += 1;
            let file = fs::read_link(descriptor?.path()).unwrap_or_default();
            sessions += usize::from(file.extension().is_some_and(|it| it == "db-lock"));
        }
        Ok(Taken { mib: kib.parse::<f64>()? / 1024.0, descriptors, sessions })
    }

    /// Waits until no session of an export that expires is left.
    pub fn expired(&self) -> Result<()> {
        let end = Instant::now() + REMOVAL;
        loop {
            let left = fs::read_dir(self.dir.join("guests"))?.count();
            if left == 0 {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("{left} files of exports that expire are left").into());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until all sessions are closed; returns what it takes then.
    pub fn closed(&mut self) -> Result<Taken> {
        let end = Instant::now() + CLOSE;
        loop {
            let taken = self.taken()?;
            if taken.sessions == 0 {
                return Ok(taken);
            }
            if Instant::now() > end {
                return Err(format!("sessions stay open without calls: {taken}").into());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Whatever happens, nothing is left running.
impl Drop for Server {
    fn drop(&mut self) {
        if self.process.is_some() {
            let _ = self.kill();
        }
    }
}
