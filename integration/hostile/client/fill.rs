//! A client that fills what it may not: under a quota of 1 MiB, and in a session in memory.
//!
//! It makes changes that add no content, as fast as it can, where their paths are longest: RENAME,
//! LINK, SETATTR, and REMOVE of what the base has. The session's files must stay below a bound.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::nfs::{self, Client, Handle, Stability, mount};
use super::rpc::Result;
use super::server::Server;

const SETATTR: u32 = 2;
const REMOVE: u32 = 12;
const RENAME: u32 = 14;
const LINK: u32 = 15;

/// Clients at a time.
const CLIENTS: u32 = 6;
/// Changes under the quota: without a bound, their rows in the audit log take 600 MiB.
const CHANGES: u64 = 90_000;
/// How long a slow machine may take over them.
const TIME: Duration = Duration::from_secs(60);
/// How long the clients of a session in memory go on.
const MEMORY_TIME: Duration = Duration::from_secs(6);
/// Names of the directories above, with 200 bytes each: as long a path as may be.
const LEVELS: usize = 19;
/// What the session may take beside its quota, with its write-ahead log, in MiB: 128 for the audit
/// log, 100 for names, 64 for the write-ahead log, and the rest.
const MOST_MIB: u64 = 300;
/// What a session in memory may take, in MiB.
const MOST_MEMORY_MIB: u64 = 256;
/// How often the files are looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Both attacks, at servers of `program` over `base`; sessions are made in `dir`.
pub fn run(program: &Path, dir: &Path, base: &Path, address: SocketAddr) -> Result<()> {
    let disk = on_disk(program, dir, base, address)?;
    println!("| a quota of 1 MiB | {disk} MiB | of {MOST_MIB} MiB |");
    let memory = in_memory(program, dir, base, address)?;
    println!("| in memory | {memory} MiB | of {MOST_MEMORY_MIB} MiB |");
    match disk <= MOST_MIB && memory <= MOST_MEMORY_MIB {
        true => Ok(()),
        false => Err("a client filled more than it may".into()),
    }
}

fn on_disk(program: &Path, dir: &Path, base: &Path, address: SocketAddr) -> Result<u64> {
    let session = dir.join("fill.db");
    let made = Command::new(program).arg("init").arg(&session).arg("--base").arg(base).status()?;
    let mut quota = Command::new(program);
    quota.arg("quota").arg(&session).args(["--bytes", "1MiB"]).stdout(Stdio::null());
    if !made.success() || !quota.status()?.success() {
        return Err("the session cannot be made".into());
    }
    let mut server = Server {
        program: program.into(),
        session: session.clone(),
        base: base.into(),
        address,
        log: dir.join("fill.log"),
        process: None,
    };
    server.start()?;
    let most = attack(address, "/", &session, (CHANGES, TIME))?;
    server.stop()?;
    Ok(most)
}

fn in_memory(program: &Path, dir: &Path, base: &Path, address: SocketAddr) -> Result<u64> {
    let config = dir.join("fill.toml");
    let text = format!(
        "[[export]]\npath = \"/m\"\noptions = [\"insecure\", \"no_root_squash\"]\n\
         [[export.mount]]\nat = \"/\"\nbase = {:?}\nephemeral = true\n",
        base.display().to_string()
    );
    fs::write(&config, text)?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--config").arg(&config).arg("--listen").arg(address.to_string());
    let log = fs::File::create(dir.join("fill-memory.log"))?;
    let mut server = Running(command.stdin(Stdio::null()).stderr(log).spawn()?);
    let end = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).is_err() {
        if Instant::now() > end || server.0.try_wait()?.is_some() {
            return Err("the server in memory does not listen".into());
        }
        std::thread::sleep(LOOK);
    }
    // The server listens before it opens its sessions.
    let session = loop {
        match memory_session(server.0.id()) {
            Ok(session) => break session,
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => std::thread::sleep(LOOK),
        }
    };
    attack(address, "/m", &session, (u64::MAX, MEMORY_TIME))
}

/// Whatever happens, nothing is left running.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// The one session that the process `pid` has in memory.
fn memory_session(pid: u32) -> Result<PathBuf> {
    for place in ["/dev/shm".into(), std::env::temp_dir()] {
        for dir in fs::read_dir(&place)?.flatten() {
            let name = dir.file_name().into_string().unwrap_or_default();
            if !name.starts_with("acetate-") || !name.contains(&format!("-{pid}-")) {
                continue;
            }
            let files = fs::read_dir(dir.path())?.flatten().map(|file| file.path());
            let mut sessions = files.filter(|file| file.extension().is_some_and(|e| e == "db"));
            if let Some(session) = sessions.next() {
                return Ok(session);
            }
        }
    }
    Err("the session in memory is nowhere".into())
}

/// Lets all clients go on for so many changes, or so long; returns the most that the session's
/// files took, in MiB.
fn attack(
    address: SocketAddr,
    export: &str,
    session: &Path,
    (changes, time): (u64, Duration),
) -> Result<u64> {
    let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let with_content = changes == u64::MAX;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|index| {
            let (stop, made, export) = (Arc::clone(&stop), Arc::clone(&made), export.to_owned());
            std::thread::spawn(move || {
                change(address, &export, index, with_content, (&stop, &made))
            })
        })
        .collect();
    let (start, mut most) = (Instant::now(), 0);
    while start.elapsed() < time && made.load(Ordering::Relaxed) < changes {
        most = most.max(taken(session));
        std::thread::sleep(LOOK);
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().map_err(|_| "a client panicked")??;
    }
    let made = made.load(Ordering::Relaxed);
    eprintln!("{export}: {made} changes in {:.1} s", start.elapsed().as_secs_f64());
    Ok(most.max(taken(session)).div_ceil(1 << 20))
}

/// What a session and its write-ahead log take, in bytes.
fn taken(session: &Path) -> u64 {
    let file = |suffix| PathBuf::from(format!("{}{suffix}", session.display()));
    ["", "-wal", "-shm"]
        .map(|suffix| fs::metadata(file(suffix)).map_or(0, |at| at.len()))
        .iter()
        .sum()
}

/// Makes changes until it is told to stop, and counts those that were answered.
fn change(
    address: SocketAddr,
    export: &str,
    index: u32,
    with_content: bool,
    (stop, made): (&AtomicBool, &AtomicU64),
) -> Result<()> {
    let root = mount(address, export)?;
    let mut client = Client::open(address, index)?;
    let mut dir = client.mkdir(&root, &format!("c{index}"))?;
    for _ in 0..LEVELS {
        dir = client.mkdir(&dir, &"d".repeat(200))?;
    }
    let file = client.create(&dir, "a")?;
    if index == 0 {
        // What the base has is hidden at the longest paths.
        rename(&mut client, (&root, "many"), (&dir, "m"))?;
        let (many, _) = client.lookup(&dir, "m")?;
        for entry in 0..2000 {
            remove(&mut client, &many, &format!("entry-{entry}"))?;
        }
    }
    let data = vec![b'x'; 256 << 10];
    let mut offset = 0;
    for round in 0_u32.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (from, to) = if round % 2 == 0 { ("a", "b") } else { ("b", "a") };
        rename(&mut client, (&dir, from), (&dir, to))?;
        link(&mut client, &file, &dir, &format!("{round}"))?;
        setattr(&mut client, &file)?;
        made.fetch_add(3, Ordering::Relaxed);
        if with_content {
            // Until there is no more room.
            let written = client.write(&file, offset, &data, Stability::Unstable);
            offset += u64::from(written.is_ok()) * data.len() as u64;
        }
    }
    Ok(())
}

/// RENAME, whatever is answered: a refusal is what the bounds require.
fn rename(client: &mut Client, from: (&Handle, &str), to: (&Handle, &str)) -> Result<()> {
    client.rpc.call(
        RENAME,
        |call| call.opaque(from.0).opaque(from.1.as_bytes()).opaque(to.0).opaque(to.1.as_bytes()),
        |reply| {
            reply.u32()?;
            nfs::wcc(reply)?;
            nfs::wcc(reply)
        },
    )
}

/// LINK.
fn link(client: &mut Client, file: &Handle, dir: &Handle, name: &str) -> Result<()> {
    client.rpc.call(
        LINK,
        |call| call.opaque(file).opaque(dir).opaque(name.as_bytes()),
        |reply| {
            reply.u32()?;
            nfs::post_op(reply)?;
            nfs::wcc(reply)
        },
    )
}

/// REMOVE.
fn remove(client: &mut Client, dir: &Handle, name: &str) -> Result<()> {
    client.rpc.call(
        REMOVE,
        |call| call.opaque(dir).opaque(name.as_bytes()),
        |reply| {
            reply.u32()?;
            nfs::wcc(reply)
        },
    )
}

/// SETATTR of the mode.
fn setattr(client: &mut Client, file: &Handle) -> Result<()> {
    client.rpc.call(
        SETATTR,
        |call| call.opaque(file).u32(1).u32(0o600).u32(0).u32(0).u32(0).u32(0).u32(0).u32(0),
        |reply| {
            reply.u32()?;
            nfs::wcc(reply)
        },
    )
}
