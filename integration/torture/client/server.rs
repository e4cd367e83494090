//! The server under torture: started, killed and stopped.

use std::fs::OpenOptions;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::rpc::Result;

/// A server that does not listen by then has failed.
const START: Duration = Duration::from_secs(20);

/// Where it is asked again whether it listens.
const PAUSE: Duration = Duration::from_millis(2);

/// What is served, and by which program.
pub struct Server {
    pub program: PathBuf,
    pub session: PathBuf,
    pub base: PathBuf,
    pub address: SocketAddr,
    /// What the server says goes there.
    pub log: PathBuf,
    pub process: Option<Child>,
}

impl Server {
    /// Starts the server, and waits until it listens.
    pub fn start(&mut self) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.arg("serve").arg(&self.session).arg("--base").arg(&self.base);
        command.arg("--listen").arg(self.address.to_string()).arg("--insecure");
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let process = command.stdin(Stdio::null()).stderr(log).spawn()?;
        let process = self.process.insert(process);
        let end = Instant::now() + START;
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = process.try_wait()? {
                return Err(format!("the server ended at its start: {status}").into());
            }
            if Instant::now() > end {
                return Err("the server does not listen".into());
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// kill -9.
    pub fn kill(&mut self) -> Result<()> {
        let mut process = self.process.take().ok_or("no server runs")?;
        process.kill()?;
        process.wait()?;
        Ok(())
    }

    /// SIGTERM; it must end well.
    pub fn stop(&mut self) -> Result<()> {
        let mut process = self.process.take().ok_or("no server runs")?;
        let sent = Command::new("kill").arg(process.id().to_string()).status()?;
        let status = process.wait()?;
        if sent.success() && status.success() {
            return Ok(());
        }
        Err(format!("the server ended with {status} after SIGTERM").into())
    }

    /// Runs `checker` on a copy of the session as it lies there.
    pub fn check(&self, checker: &Path) -> Result<()> {
        let copy = self.session.with_file_name("copy.db");
        for suffix in ["", "-wal"] {
            let beside = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
            let _ = std::fs::remove_file(beside(&copy));
            if beside(&self.session).exists() {
                std::fs::copy(beside(&self.session), beside(&copy))?;
            }
        }
        let mut command = Command::new("python3");
        command.arg(checker).arg(&copy).arg("--base").arg(&self.base);
        let output = command.output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("the session is not sound: {}", String::from_utf8_lossy(&output.stdout)).into())
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
