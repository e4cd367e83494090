//! Very many connections that send what no client should, beside one client that wants to work:
//! what that client still gets done, and what memory the server takes. `integration/hostile/run`
//! drives it.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod attack;
mod crowd;
mod fill;
mod flood;
mod good;
mod guards;
// The benchmark's, and the torture's: none shares anything with the server's code.
#[path = "../../perf/client/nfs.rs"]
#[allow(dead_code)]
mod nfs;
#[path = "../../perf/client/rpc.rs"]
mod rpc;
#[path = "../../torture/client/server.rs"]
#[allow(dead_code)]
mod server;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use attack::{Attack, Target};
use flood::Flood;
use rpc::Result;
use server::Server;

const USAGE: &str = "\
usage: flood make-base DIR
       flood fill ACETATE DIR BASE ADDRESS
       flood guards ACETATE DIR ADDRESS SECONDS MOST_MIB
       flood run ACETATE SESSION BASE ADDRESS CONNECTIONS SECONDS MOST_MIB [ATTACK...]";

/// Entries of the directory that is listed over and over.
const ENTRIES: usize = 2000;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match start(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: &[String]) -> Result<()> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["make-base", dir] => make_base(Path::new(dir)),
        ["guards", program, dir, address, seconds, most] => {
            let time = Duration::from_secs_f64(seconds.parse()?);
            let (program, dir) = (Path::new(program), Path::new(dir));
            guards::run(program, dir, address.parse()?, time, most.parse()?)
        }
        ["fill", program, dir, base, address] => {
            fill::run(Path::new(program), Path::new(dir), Path::new(base), address.parse()?)
        }
        ["run", program, session, base, address, connections, seconds, most, ref attacks @ ..] => {
            let server = Server {
                program: program.into(),
                session: session.into(),
                base: base.into(),
                address: address.parse()?,
                log: Path::new(session).with_extension("log"),
                process: None,
            };
            let run = Run {
                server,
                connections: connections.parse()?,
                time: Duration::from_secs_f64(seconds.parse()?),
                most_mib: most.parse()?,
            };
            run.all(attacks)
        }
        // `cargo bench` without arguments is not the way to run this.
        _ => Err(USAGE.into()),
    }
}

fn make_base(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir.join("many"))?;
    fs::write(dir.join("file"), vec![b'x'; 1 << 20])?;
    for entry in 0..ENTRIES {
        fs::write(dir.join(format!("many/entry-{entry}")), "")?;
    }
    Ok(())
}

struct Run {
    server: Server,
    connections: usize,
    time: Duration,
    most_mib: u64,
}

impl Run {
    /// Runs attacks one by one, each at a server of its own, and prints a line for each.
    fn all(mut self, names: &[&str]) -> Result<()> {
        println!(
            "| {} connections that | calls alone | beside | ratio | READ of 1 MiB alone | beside \
             | ratio | a new client | peak |",
            self.connections
        );
        println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|");
        let chosen = Attack::ALL.iter().filter(|a| names.is_empty() || names.contains(&a.name()));
        let mut too_much = Vec::new();
        for &attack in chosen {
            let peak = self.one(attack)?;
            if peak > self.most_mib {
                too_much.push(format!("{}: {peak} MiB", attack.name()));
            }
        }
        let crowded = crowd::run(&mut self.server, self.time, names);
        match too_much.is_empty() {
            true => crowded,
            false => {
                Err(format!("more than {} MiB: {}", self.most_mib, too_much.join(", ")).into())
            }
        }
    }

    /// Returns the most memory that the server had, in MiB.
    fn one(&mut self, attack: Attack) -> Result<u64> {
        self.server.start()?;
        let address = self.server.address;
        let mut good = good::Good::open(address)?;
        let alone = good.work(self.time)?;
        let root = nfs::mount(address, "/")?;
        let (many, _) = nfs::Client::open(address, 1)?.lookup(&root, "many")?;
        let (file, _) = nfs::Client::open(address, 2)?.lookup(&root, "file")?;
        let flood = Flood::start(attack, Target { address, many, file }, self.connections)?;
        // All are there, and have sent something, before it counts.
        flood.wait_for(self.connections)?;
        std::thread::sleep(self.time / 2);
        let beside = good.work(self.time)?;
        let arrival = good::arrive(address)?;
        let sent = flood.stop()?;
        let peak = self.peak_mib()?;
        println!(
            "| {} | {:.0}/s | {:.0}/s | {:.2} | {:.0} MiB/s | {:.0} MiB/s | {:.2} | {:.0} ms \
             | {peak} MiB |",
            attack.what(),
            alone.calls_per_second,
            beside.calls_per_second,
            beside.calls_per_second / alone.calls_per_second,
            alone.mib_per_second,
            beside.mib_per_second,
            beside.mib_per_second / alone.mib_per_second,
            arrival.as_secs_f64() * 1000.0,
        );
        eprintln!("{}: {sent}", attack.name());
        self.server.stop()?;
        Ok(peak)
    }

    fn peak_mib(&self) -> Result<u64> {
        peak_mib(self.server.process.as_ref().ok_or("no server runs")?.id())
    }
}

/// The most memory that a process had, in MiB.
fn peak_mib(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no VmHWM")?;
    Ok(kib.parse::<u64>()?.div_ceil(1024))
}
