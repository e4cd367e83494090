//! Running the program.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

/// Sees to it that the programs which this process starts from now on get SIGINT as usual: also
/// where the tests were started with SIGINT ignored, as a shell does for `&` in a script, which
/// they would inherit.
pub fn let_interrupts_through() {
    let_through(SignalKind::interrupt());
}

/// The same for SIGHUP, which `nohup` lets be ignored.
pub fn let_hang_ups_through() {
    let_through(SignalKind::hangup());
}

/// What a process catches, its children have as by default; so it is caught here, and does what it
/// would have done.
fn let_through(kind: SignalKind) {
    static CAUGHT: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
    let mut caught = CAUGHT.lock().unwrap();
    if !caught.insert(kind.as_raw_value()) {
        return;
    }
    let was_ignored = is_ignored(kind);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut signals = {
        let _inside = runtime.enter();
        signal(kind).unwrap()
    };
    std::thread::spawn(move || {
        while runtime.block_on(signals.recv()).is_some() {
            if !was_ignored {
                std::process::exit(128 + kind.as_raw_value());
            }
        }
    });
}

/// Whether this process ignores a signal; `false` where the system does not tell.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    mask >> (kind.as_raw_value() - 1) & 1 == 1
}

/// The program, to be run in `directory`.
pub fn acetate(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_acetate"));
    command.current_dir(directory).args(args).env_remove("RUST_LOG");
    command
}

pub fn run(directory: &Path, args: &[&str]) -> Output {
    acetate(directory, args).output().unwrap()
}

/// What the program says on stderr before it fails with exit code 2.
pub fn failure(directory: &Path, args: &[&str]) -> String {
    let output = run(directory, args);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty(), "stdout is for data");
    said
}

/// A server that runs; killed if it is dropped.
pub struct Serving {
    child: Child,
    was_signalled: Cell<bool>,
    stderr: Option<Lines<BufReader<ChildStderr>>>,
    /// What it said until it listened.
    pub said: Vec<String>,
    pub addresses: Vec<SocketAddr>,
}

impl Serving {
    /// Serves with `args` at as many free ports of 127.0.0.1 as `ports` says.
    pub fn start(directory: &Path, ports: usize, args: &[&str]) -> Self {
        Self::start_as(acetate(directory, &["serve"]), ports, args)
    }

    /// The same as this command.
    pub fn start_as(mut command: Command, ports: usize, args: &[&str]) -> Self {
        for _ in 0..ports {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let mut child = command.args(args).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let (mut said, mut addresses) = (Vec::new(), Vec::new());
        while addresses.len() < ports {
            let line = stderr.next().unwrap_or_else(|| panic!("ended: {said:?}")).unwrap();
            if let Some(address) = line.strip_prefix("listening on ") {
                addresses.push(address.parse().unwrap());
            }
            said.push(line);
        }
        let was_signalled = Cell::new(false);
        Self { child, was_signalled, stderr: Some(stderr), said, addresses }
    }

    /// The next line on stderr.
    pub fn line(&mut self) -> String {
        self.stderr.as_mut().unwrap().next().expect("another line").unwrap()
    }

    /// From here on nobody reads what it says.
    pub fn close_stderr(&mut self) {
        self.stderr = None;
    }

    /// The command line, as ps shows it.
    #[cfg(target_os = "linux")]
    pub fn command_line(&self) -> Vec<u8> {
        std::fs::read(format!("/proc/{}/cmdline", self.child.id())).unwrap()
    }

    /// The memory that the process has in use, in bytes.
    #[cfg(target_os = "linux")]
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// The processes that the server has started, by number.
    #[cfg(target_os = "linux")]
    pub fn children(&self) -> Vec<String> {
        let parent = format!("\nPPid:\t{}\n", self.child.id());
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let found = processes.filter(|process| {
            let status = std::fs::read_to_string(process.path().join("status"));
            status.is_ok_and(|status| status.contains(&parent))
        });
        found.map(|process| process.file_name().into_string().unwrap()).collect()
    }

    /// The sessions that it has open and has not locked for SQLite in other processes, which would
    /// remove the WAL when they end. Its own SQLite's locks are not enough: a process loses them if
    /// it closes another descriptor of the file.
    ///
    /// The kernel is asked descriptor by descriptor: `/proc/locks` leaves out a lock if others go
    /// while it is read.
    #[cfg(target_os = "linux")]
    fn not_locked(&self) -> Vec<String> {
        let process = std::path::PathBuf::from(format!("/proc/{}", self.child.id()));
        let open = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let mut locks = BTreeMap::<String, String>::new();
        for descriptor in open {
            let Ok(name) = std::fs::read_link(descriptor.path()) else { continue };
            let information = process.join("fdinfo").join(descriptor.file_name());
            let information = std::fs::read_to_string(information).unwrap_or_default();
            let of_file = locks.entry(name.to_string_lossy().into_owned()).or_default();
            let lines = information.lines().filter(|line| line.starts_with("lock:"));
            lines.for_each(|line| *of_file += &format!("{line}\n"));
        }
        let is_locked = |of_file: &str| {
            let is_shared = |line: &str| line.contains("OFDLCK") && line.contains(" 1073741826 ");
            of_file.lines().any(is_shared)
        };
        let has_wal = |name: &str| locks.contains_key(&format!("{name}-wal"));
        let sessions = locks.iter().filter(|(name, held)| has_wal(name) && !is_locked(held));
        sessions.map(|(name, held)| format!("{name}: {held}")).collect()
    }

    pub fn signal(&self, name: &str) {
        #[cfg(target_os = "linux")]
        if !self.was_signalled.replace(true) {
            assert_eq!(self.not_locked(), [""; 0]);
        }
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Waits for the end; the rest of stderr comes with it.
    pub fn end(mut self) -> (ExitStatus, Vec<String>) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        let rest = self.stderr.take().into_iter().flatten().map(Result::unwrap).collect();
        (self.child.wait().unwrap(), rest)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        let not_locked = if self.was_signalled.get() { Vec::new() } else { self.not_locked() };
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
        #[cfg(target_os = "linux")]
        assert!(std::thread::panicking() || not_locked.is_empty(), "{not_locked:?}");
    }
}

/// An `acetate write` that has sent more than is held, and waits for the rest of its stdin.
pub struct HalfWritten {
    child: Child,
    stdin: ChildStdin,
}

impl HalfWritten {
    pub fn begin(directory: &Path, session: &str, path: &str) -> Self {
        let mut command = acetate(directory, &["write", session, path]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&vec![b'n'; 9 << 20]).unwrap();
        Self { child, stdin }
    }

    /// Goes on after its server has stopped: it is told so.
    #[track_caller]
    pub fn assert_told_to_stop(mut self) {
        let _ = self.stdin.write_all(b"n");
        drop(self.stdin);
        let output = self.child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("the server is stopping"), "{said}");
    }
}

/// What a program printed on stdout and on stderr; it exited with `code`.
#[track_caller]
pub fn said(output: &Output, code: i32) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    (out, err)
}
