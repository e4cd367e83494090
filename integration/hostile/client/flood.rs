//! Very many connections in one thread, which leaves the processor to others: an attacker has a
//! machine of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::nice;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime;

use super::attack::{Attack, Manner, Random, Target};
use super::rpc::Result;

/// The bit of a fragment's length that says that the record ends with it.
const LAST_FRAGMENT: u32 = 1 << 31;
/// As little of the processor as may be.
const NICE: i32 = 19;
/// After a connection was refused or closed.
const PAUSE: Duration = Duration::from_millis(5);
/// Until all are connected, at most.
const ARRIVAL: Duration = Duration::from_secs(60);
/// Between two bytes of one that is slow.
const SLOW: Duration = Duration::from_secs(1);

/// What was sent, by all connections.
#[derive(Default)]
struct Sent {
    connections: AtomicU64,
    bytes: AtomicU64,
}

pub struct Flood {
    stop: Arc<AtomicBool>,
    sent: Arc<Sent>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Flood {
    pub fn start(attack: Attack, target: Target, connections: usize) -> Result<Self> {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(Sent::default()));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&sent));
        let run = move || {
            // Of this thread alone.
            nice(NICE)?;
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                for number in 0..connections {
                    let (target, sent) = (target.clone(), Arc::clone(&counted));
                    tokio::spawn(attack_on(attack, target, number as u64 + 1, sent));
                }
                while !stopped.load(Ordering::Relaxed) {
                    tokio::time::sleep(PAUSE).await;
                }
            });
            // Its tasks go with it.
            Ok(())
        };
        Ok(Self { stop, sent, thread: std::thread::spawn(run) })
    }

    /// Waits until so many connections were made.
    pub fn wait_for(&self, connections: usize) -> Result<()> {
        let start = Instant::now();
        while self.sent.connections.load(Ordering::Relaxed) < connections as u64 {
            if start.elapsed() > ARRIVAL {
                return Err("the flood does not get going; the machine does too much else".into());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Ends all connections; says what they sent.
    pub fn stop(self) -> Result<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the flood panicked")??;
        let connections = self.sent.connections.load(Ordering::Relaxed);
        let mib = self.sent.bytes.load(Ordering::Relaxed) >> 20;
        Ok(format!("{connections} connections, {mib} MiB"))
    }
}

/// One connection after another, for ever.
async fn attack_on(attack: Attack, target: Target, seed: u64, sent: Arc<Sent>) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    loop {
        if let Ok(stream) = TcpStream::connect(target.address).await {
            sent.connections.fetch_add(1, Ordering::Relaxed);
            let _ended = one(stream, attack, &target, &mut random, &sent).await;
        }
        if attack.manner() == Manner::Brief {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn one(
    stream: TcpStream,
    attack: Attack,
    target: &Target,
    random: &mut Random,
    sent: &Sent,
) -> std::io::Result<()> {
    stream.set_zero_linger()?;
    let (mut from, mut to) = stream.into_split();
    for call in attack.begins_with(target, random) {
        to.write_all(&call).await?;
        sent.bytes.fetch_add(call.len() as u64, Ordering::Relaxed);
        let length = from.read_u32().await? & !LAST_FRAGMENT;
        from.read_exact(&mut vec![0; length as usize]).await?;
    }
    let drained = async {
        let mut buffer = [0; 4096];
        while attack.manner() == Manner::Deaf || from.read(&mut buffer).await? > 0 {
            if attack.manner() == Manner::Deaf {
                std::future::pending::<()>().await;
            }
        }
        Ok(())
    };
    let sending = async {
        loop {
            let bytes = attack.bytes(target, random);
            to.write_all(&bytes).await?;
            sent.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            match attack.manner() {
                Manner::Fast | Manner::Deaf => tokio::task::yield_now().await,
                Manner::Brief => return Ok(()),
                Manner::Slow => loop {
                    tokio::time::sleep(SLOW).await;
                    to.write_all(&[0]).await?;
                },
            }
        }
    };
    tokio::select! {
        ended = sending => ended,
        ended = drained => ended,
    }
}
