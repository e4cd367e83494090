//! The benchmark's client: loads an NFSv3 server with checked calls and says how fast they are
//! answered. `integration/perf/run` drives it; docs/PERFORMANCE.md says what it measures.
//!
//! It speaks the protocol with code of its own: what loads a server shares nothing with the
//! measured crate. Only `stock` uses that: it is another server over the same overlay.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod fixture;
mod load;
mod measure;
mod nfs;
mod operations;
mod rpc;
mod stock;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use rpc::Result;

const USAGE: &str = "\
usage: load make-tree DIR
       load serve-stock SESSION BASE ADDRESS
       load run SERVER NFS-ADDRESS MOUNT-ADDRESS EXPORT CONNECTIONS ROUND MILLISECONDS
                [OPERATION...]
With SERVER_PID in the environment, results have the server's processor time as well.";

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
        ["make-tree", dir] => fixture::make(Path::new(dir)),
        ["serve-stock", session, base, address] => {
            stock::serve(Path::new(session), Path::new(base), address)
        }
        ["run", server, nfs, mount, export, connections, round, milliseconds, ref only @ ..] => {
            if let Ok(process) = std::env::var("SERVER_PID") {
                measure::SERVER_PROCESS.get_or_init(|| process.parse().unwrap_or_default());
            }
            load::run(&load::Wanted {
                server: server.to_owned(),
                nfs: nfs.parse()?,
                mount: mount.parse()?,
                export: export.to_owned(),
                connections: connections.parse()?,
                round: round.parse()?,
                time: Duration::from_millis(milliseconds.parse()?),
                only: only.iter().map(|&name| name.to_owned()).collect(),
            })
        }
        // `cargo bench` without arguments is not the way to run this.
        _ => Err(USAGE.into()),
    }
}
