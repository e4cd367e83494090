//! Content that takes exponentially long to check, and as many drafts as there can be, in one
//! export; beside it a client that writes guarded files in another.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::nfs::{Client, Handle, Refused, Stability, mount};
use super::rpc::Result;
use super::server::Server;

/// A node type with a branch for each `type`.
const TREE: &str = r##"{ "$ref": "#/$defs/node", "$defs": { "node": { "anyOf": [
    {"required": ["type"], "properties": {
        "type": {"const": "a"}, "children": {"items": {"$ref": "#/$defs/node"}}}},
    {"required": ["type"], "properties": {
        "type": {"const": "b"}, "children": {"items": {"$ref": "#/$defs/node"}}}},
    {"required": ["type"], "properties": {
        "type": {"const": "c"}, "children": {"items": {"$ref": "#/$defs/node"}}}},
    {"required": ["type"], "properties": {
        "type": {"const": "d"}, "children": {"items": {"$ref": "#/$defs/node"}}}}
]}}}"##;

/// Each string is valid, after 2^n steps.
const SLOW: &str = r#"{"items": {"pattern": "^(?:(?:a|a)+(?=c)c|a)"}}"#;

/// Connections that write each kind of content, and that keep drafts: one for each address.
const WRITERS: u8 = 4;
const DRAFTERS: u8 = 8;
/// Drafts of one address.
const DRAFTS: usize = 64;
const DRAFT_BYTES: usize = 200 << 10;
/// Drafts that the other export has at a time.
const OWN_DRAFTS: usize = 8;
/// How long a call of the other export may take, at most.
const MOST_WAIT: Duration = Duration::from_secs(8);
/// The server has to listen by then.
const START: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(10);
/// NFS3ERR_INVAL: content that is not valid.
const INVAL: u32 = 22;

fn nested(levels: usize) -> Vec<u8> {
    let (open, close) = (r#"{"type":"a","children":["#, "]}");
    (open.repeat(levels) + r#"{"type":"x"}"# + &close.repeat(levels)).into_bytes()
}

fn slow() -> Vec<u8> {
    format!("[{}\"a\"]", r#""aaaaaaaaaaaaaaaa","#.repeat(20_000)).into_bytes()
}

/// Runs the attack, prints a line, and fails where the other export or the memory suffers.
pub fn run(
    program: &Path,
    dir: &Path,
    address: SocketAddr,
    time: Duration,
    most_mib: u64,
) -> Result<()> {
    let mut server = start(program, dir, address)?;
    let mut other = Other::open(address)?;
    let alone = other.work(time)?;
    let attack = Attack::start(address, time);
    thread::sleep(time / 2);
    let beside = other.work(time * 2);
    let (refused, drafts) = attack.stop();
    let process = server.process.as_ref().ok_or("no server runs")?;
    let peak = super::peak_mib(process.id())?;
    let beside = beside.map_err(|error| format!("the other export: {error}"))?;
    println!(
        "guards: {refused} contents refused and {drafts} drafts kept in one export; another: \
         {:.0} and {:.0} guarded writes a second alone and beside, the longest {:.0} ms; \
         peak {peak} MiB",
        alone.per_second,
        beside.per_second,
        beside.longest.as_secs_f64() * 1000.0,
    );
    server.stop()?;
    if beside.longest > MOST_WAIT {
        return Err(format!("a write of the other export took {:?}", beside.longest).into());
    }
    if peak > most_mib {
        return Err(format!("guards: {peak} MiB, more than {most_mib} MiB").into());
    }
    Ok(())
}

fn start(program: &Path, dir: &Path, address: SocketAddr) -> Result<Server> {
    fs::create_dir_all(dir)?;
    let (tree, slow) = (dir.join("tree.schema.json"), dir.join("slow.schema.json"));
    fs::write(&tree, TREE)?;
    fs::write(&slow, SLOW)?;
    let export = |name: &str| {
        let session = dir.join(format!("{name}.db"));
        let guard = |pattern: &str, schema: &PathBuf| {
            format!("[[export.guard]]\npath = \"{pattern}\"\njson_schema = {schema:?}\n")
        };
        format!(
            "[[export]]\npath = \"/{name}\"\noptions = [\"no_root_squash\", \"insecure\"]\n\
             [[export.mount]]\nat = \"/\"\nsession = {session:?}\n{}{}",
            guard("*.tree", &tree),
            guard("*.slow", &slow)
        )
    };
    let file = dir.join("exports.toml");
    fs::write(&file, export("hostile") + &export("other"))?;
    let log = fs::File::create(dir.join("server.log"))?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--config").arg(&file);
    command.arg("--listen").arg(address.to_string());
    let mut process = command.stdin(Stdio::null()).stderr(log).spawn()?;
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        if let Some(status) = process.try_wait()? {
            return Err(format!("the server ended at its start: {status}").into());
        }
        if begun.elapsed() > START {
            return Err("the server does not listen".into());
        }
        thread::sleep(PAUSE);
    }
    let (program, base, log) = (program.into(), dir.into(), dir.join("server.log"));
    Ok(Server { program, session: file, base, address, log, process: Some(process) })
}

/// The client of the other export.
struct Other {
    client: Client,
    root: Handle,
    files: Vec<Handle>,
}

/// What it gets done.
struct Done {
    per_second: f64,
    longest: Duration,
}

impl Other {
    fn open(address: SocketAddr) -> Result<Self> {
        let root = mount(address, "/other")?;
        let mut client = Client::open(address, 100)?;
        let files = (0..OWN_DRAFTS).map(|number| client.create(&root, &format!("{number}.tree")));
        let files = files.collect::<Result<_>>()?;
        Ok(Self { client, root, files })
    }

    /// Drafts all its files, then commits them, over and over; every call has to succeed.
    fn work(&mut self, time: Duration) -> Result<Done> {
        let content = br#"{"type":"a","children":[{"type":"b"}]}"#;
        let (start, mut longest, mut writes) = (Instant::now(), Duration::ZERO, 0);
        while start.elapsed() < time {
            let mut written = Vec::new();
            for file in &self.files {
                let begun = Instant::now();
                written.push(self.client.write(file, 0, content, Stability::Unstable)?);
                longest = longest.max(begun.elapsed());
            }
            for (file, written) in self.files.iter().zip(written) {
                let begun = Instant::now();
                self.client.commit(file, written)?;
                longest = longest.max(begun.elapsed());
                writes += 1;
            }
            self.client.lookup(&self.root, "0.tree")?;
        }
        Ok(Done { per_second: f64::from(writes) / start.elapsed().as_secs_f64(), longest })
    }
}

/// Those who attack, and what they have done.
struct Attack {
    stop: Arc<AtomicBool>,
    refused: Arc<AtomicU64>,
    drafts: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Attack {
    /// Content that is slow to check at once, and drafts as well after a while: without room for
    /// drafts, nothing is checked.
    fn start(address: SocketAddr, before_drafts: Duration) -> Self {
        let mut attack = Self {
            stop: Arc::default(),
            refused: Arc::default(),
            drafts: Arc::default(),
            threads: Vec::new(),
        };
        for host in 2..2 + WRITERS {
            let (name, content) = match host % 2 {
                0 => (format!("{host}.slow"), slow()),
                _ => (format!("{host}.tree"), nested(30)),
            };
            let (stop, refused) = (Arc::clone(&attack.stop), Arc::clone(&attack.refused));
            attack.threads.push(thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let Ok((mut client, root)) = connect(address, host) else { continue };
                    let Ok(file) = client.create(&root, &name) else { continue };
                    while !stop.load(Ordering::Relaxed) {
                        let written = client.write(&file, 0, &content, Stability::FileSync);
                        let status =
                            written.err().and_then(|error| error.downcast::<Refused>().ok());
                        match status.map(|refused| refused.status) {
                            Some(INVAL) => _ = refused.fetch_add(1, Ordering::Relaxed),
                            // JUKEBOX: a client waits before it tries again.
                            _ => thread::sleep(PAUSE),
                        }
                    }
                }
            }));
        }
        for host in 50..50 + DRAFTERS {
            let (stop, drafts) = (Arc::clone(&attack.stop), Arc::clone(&attack.drafts));
            attack.threads.push(thread::spawn(move || {
                thread::sleep(before_drafts);
                let Ok((mut client, root)) = connect(address, host) else { return };
                for number in 0..DRAFTS {
                    let name = format!("{host}-{number}.tree");
                    let Ok(file) = client.create(&root, &name) else { continue };
                    let piece = vec![b' '; DRAFT_BYTES];
                    if client.write(&file, 0, &piece, Stability::Unstable).is_ok() {
                        drafts.fetch_add(1, Ordering::Relaxed);
                    }
                }
                while !stop.load(Ordering::Relaxed) {
                    thread::sleep(PAUSE);
                }
            }));
        }
        attack
    }

    /// Ends it; says how many contents were refused, and how many drafts were kept.
    fn stop(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // What it has to say is in the counts.
            let _ = thread.join();
        }
        (self.refused.load(Ordering::Relaxed), self.drafts.load(Ordering::Relaxed))
    }
}

/// The hostile export, from `127.0.0.<host>`.
fn connect(address: SocketAddr, host: u8) -> Result<(Client, Handle)> {
    let root = mount(address, "/hostile")?;
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from(([127, 0, 0, host], 0)).into())?;
    socket.connect(&address.into())?;
    Ok((Client::over(socket.into(), host.into())?, root))
}
