//! One address that takes all connections, with sound calls: slowly, as often as keeps each of them
//! busy, and as fast as it goes. Beside it a client at another address works on, and a new one
//! mounts. Fails where they do not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::nice;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime;

use super::attack;
use super::good::{self, Good};
use super::nfs::{Client, Handle, mount};
use super::rpc::Result;
use super::server::Server;

/// Connections: more than the server has places.
const CONNECTIONS: u64 = 1100;
/// The crowd's address, which is not the good client's.
const ADDRESS: &str = "127.0.0.2:0";
/// As little of the processor as may be.
const NICE: i32 = 19;
/// Until all are connected, at most.
const ARRIVAL: Duration = Duration::from_secs(60);
/// A new client has to be in by then.
const MOST_TO_MOUNT: Duration = Duration::from_secs(1);
/// After a connection was refused or closed.
const PAUSE: Duration = Duration::from_millis(5);

/// How often each connection calls, and what of its rate the good client has to keep.
#[derive(Clone, Copy)]
struct Manner {
    name: &'static str,
    what: &'static str,
    pause: Duration,
    least_ratio: f64,
}

const MANNERS: [Manner; 2] = [
    Manner {
        name: "crowd",
        what: "take all places from one address, with 275 calls a second",
        pause: Duration::from_secs(4),
        least_ratio: 0.5,
    },
    Manner {
        name: "crowd-busy",
        what: "take all places from one address, and call as fast as they can",
        pause: Duration::ZERO,
        least_ratio: 0.01,
    },
];

/// Runs those that are named, or all.
pub fn run(server: &mut Server, time: Duration, names: &[&str]) -> Result<()> {
    let chosen = MANNERS.iter().filter(|one| names.is_empty() || names.contains(&one.name));
    let mut failed = Vec::new();
    for manner in chosen {
        if let Some(failure) = one(server, time, *manner)? {
            failed.push(format!("{}: {failure}", manner.name));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ").into()) }
}

/// Returns what was not as it has to be.
fn one(server: &mut Server, time: Duration, manner: Manner) -> Result<Option<String>> {
    server.start()?;
    let address = server.address;
    let mut good = Good::open(address)?;
    let alone = good.work(time)?;
    let root = mount(address, "/")?;
    let (file, _) = Client::open(address, 1)?.lookup(&root, "file")?;
    let crowd = Crowd::start(address, &file, manner.pause)?;
    std::thread::sleep(time / 2);
    // Over the connection that it had before: an error ends the run.
    let beside = good.work(time)?;
    let arrival = good::arrive(address)?;
    let calls = crowd.stop()?;
    let ratio = beside.calls_per_second / alone.calls_per_second;
    println!(
        "| {} | {:.0}/s | {:.0}/s | {ratio:.3} | {:.0} MiB/s | {:.0} MiB/s | {:.2} | {:.0} ms | |",
        manner.what,
        alone.calls_per_second,
        beside.calls_per_second,
        alone.mib_per_second,
        beside.mib_per_second,
        beside.mib_per_second / alone.mib_per_second,
        arrival.as_secs_f64() * 1000.0,
    );
    eprintln!("{}: {calls} calls", manner.name);
    server.stop()?;
    let slow = format!("the client keeps {ratio:.4} of its rate, less than {}", manner.least_ratio);
    let late = format!("a new client takes {} ms to mount", arrival.as_millis());
    Ok(match (ratio < manner.least_ratio, arrival > MOST_TO_MOUNT) {
        (true, _) => Some(slow),
        (false, true) => Some(late),
        (false, false) => None,
    })
}

struct Crowd {
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Crowd {
    /// Returns once as many were there as are to be.
    fn start(address: SocketAddr, file: &Handle, pause: Duration) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (calls, come) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let stopped = Arc::clone(&stop);
        let counts = [Arc::clone(&calls), Arc::clone(&come)];
        let call: Arc<[u8]> = attack::getattr(file).into();
        let work = move || {
            // Of this thread alone.
            nice(NICE)?;
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                for _ in 0..CONNECTIONS {
                    tokio::spawn(attend(address, Arc::clone(&call), pause, counts.clone()));
                }
                while !stopped.load(Ordering::Relaxed) {
                    tokio::time::sleep(PAUSE).await;
                }
            });
            // Its tasks go with it.
            Ok(())
        };
        let crowd = Self { stop, calls, thread: std::thread::spawn(work) };
        let start = Instant::now();
        while come.load(Ordering::Relaxed) < CONNECTIONS {
            if start.elapsed() > ARRIVAL {
                return Err("the crowd does not come; the machine does too much else".into());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(crowd)
    }

    /// Ends all connections; returns how many calls were answered.
    fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the crowd panicked")??;
        Ok(self.calls.load(Ordering::Relaxed))
    }
}

/// One connection after another, for ever.
async fn attend(
    address: SocketAddr,
    call: Arc<[u8]>,
    pause: Duration,
    [calls, come]: [Arc<AtomicU64>; 2],
) {
    loop {
        if let Ok(mut stream) = connect(address).await {
            come.fetch_add(1, Ordering::Relaxed);
            while ask(&mut stream, &call).await.is_ok() {
                calls.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(pause).await;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    let from: SocketAddr = ADDRESS.parse().map_err(std::io::Error::other)?;
    socket.bind(from)?;
    socket.connect(address).await
}

/// Sends a call, and reads its reply.
async fn ask(stream: &mut TcpStream, call: &[u8]) -> std::io::Result<()> {
    stream.write_all(call).await?;
    let length = stream.read_u32().await? & (u32::MAX >> 1);
    stream.read_exact(&mut vec![0; length as usize]).await?;
    Ok(())
}
