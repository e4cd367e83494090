//! In the place of the service manager: its notification socket, and the sockets that it passes.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cli::program::{Serving, acetate};

/// How long the server may take to say something: no measure, only an end of waiting.
const DEADLINE: Duration = Duration::from_secs(60);

/// A notification socket.
pub struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

/// What a datagram assigns, by the order of its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message(pub Vec<(String, String)>);

impl Message {
    pub fn has(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value)
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn status(&self) -> &str {
        self.get("STATUS").unwrap_or_default()
    }
}

impl Manager {
    pub fn new(dir: &Path) -> Self {
        let path = dir.join("notify");
        Self { socket: UnixDatagram::bind(&path).unwrap(), path }
    }

    /// A server that notifies this manager, with these variables too.
    pub fn start(&self, command: Command, args: &[&str], more: &[(&str, &str)]) -> Serving {
        let mut command = command;
        command.env("NOTIFY_SOCKET", &self.path).envs(more.iter().copied());
        Serving::start_as(command, 0, args)
    }

    /// The next message; `None` if none comes for `wait`.
    pub fn within(&self, wait: Duration) -> Option<Message> {
        self.socket.set_read_timeout(Some(wait)).unwrap();
        let mut bytes = [0; 8192];
        let length = self.socket.recv(&mut bytes).ok()?;
        let text = std::str::from_utf8(&bytes[..length]).unwrap();
        let lines = text.lines().map(|line| {
            let (name, value) = line.split_once('=').expect("an assignment");
            (name.to_owned(), value.to_owned())
        });
        Some(Message(lines.collect()))
    }

    pub fn next(&self) -> Message {
        self.within(DEADLINE).expect("a message")
    }

    /// The messages up to the first that assigns this, which is the last of them.
    pub fn until(&self, name: &str, value: &str) -> Vec<Message> {
        let end = Instant::now() + DEADLINE;
        let mut all = Vec::new();
        loop {
            assert!(Instant::now() < end, "no {name}={value}: {all:?}");
            all.push(self.next());
            if all.last().unwrap().has(name, value) {
                return all;
            }
        }
    }

    /// All messages that are there, once the server has ended.
    pub fn rest(&self) -> Vec<Message> {
        std::iter::from_fn(|| self.within(Duration::from_millis(1))).collect()
    }
}

/// `acetate serve` in `directory`, which gets one or two sockets as descriptors 3 and 4.
pub fn with_sockets(directory: &Path, sockets: Vec<OwnedFd>, names: Option<&str>) -> Command {
    let variables = format!("LISTEN_FDS={} LISTEN_PID=$$", sockets.len());
    let mut command = with_variables(directory, sockets, &variables);
    if let Some(names) = names {
        command.env("LISTEN_FDNAMES", names);
    }
    command
}

/// The same with these variables. A shell puts the sockets in their places: it gets them as its
/// own stdin and stdout, and becomes the server.
pub fn with_variables(directory: &Path, sockets: Vec<OwnedFd>, variables: &str) -> Command {
    let mut sockets = sockets.into_iter();
    let (first, second) = (sockets.next(), sockets.next());
    assert!(sockets.next().is_none());
    let moves = if second.is_some() { "3<&0 4<&1" } else { "3<&0" };
    let script = format!("{variables} exec \"$@\" {moves} 0</dev/null 1>/dev/null");
    let program = acetate(directory, &[]);
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).arg(program.get_program()).arg("serve");
    command.current_dir(directory).env_remove("RUST_LOG");
    command.stdin(first.map_or(Stdio::null(), Stdio::from));
    if let Some(second) = second {
        command.stdout(Stdio::from(second));
    }
    command
}

/// A listening socket that this process holds, and its address.
pub fn held_socket() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Another descriptor of the same socket.
pub fn passed(listener: &TcpListener) -> OwnedFd {
    listener.try_clone().unwrap().into()
}

/// The server's lines up to the first that begins so.
pub fn lines_until(server: &mut Serving, start: &str) -> Vec<String> {
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.starts_with(start)) {
        lines.push(server.line());
    }
    lines
}
