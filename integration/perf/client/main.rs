//! The benchmark's client: loads an NFSv3 server with checked calls and says how fast they are
//! answered. `integration/perf/run` drives it; docs/PERFORMANCE.md says what it measures.
//!
//! It speaks the protocol with code of its own: what loads a server shares nothing with the
//! measured crate. Only `stock` uses that: it is another server over the same overlay.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod at;
mod checkpoints;
mod fixture;
mod fleet;
mod growth;
mod load;
mod many;
mod measure;
mod memory;
mod nfs;
mod operations;
mod rpc;
mod scale;
mod stock;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use at::At;
use rpc::Result;

const USAGE: &str = "\
usage: load make-tree DIR
       load make-files DIR COUNT
       load make-session SESSION COUNT
       load make-checkpoints SESSION COUNT
       load time WHAT COMMAND...
       load serve-stock SESSION BASE ADDRESS
       load run SERVER NFS-ADDRESS MOUNT-ADDRESS EXPORT CONNECTIONS ROUND MILLISECONDS
                [OPERATION...]
       load WORK SERVER NFS-ADDRESS MOUNT-ADDRESS EXPORT ARGUMENT...
WORK and its arguments: scale FILES ROUND MILLISECONDS; dirty ROUND FILES; start-up WHAT COMMAND...;
       mount; walk ENTRIES; storm CONNECTIONS MILLISECONDS; first-byte SESSION; fill SESSION BYTES;
       checkpoint SESSION WHAT CHANGES; restore SESSION WHAT CHANGES; chmod COUNT; make-watched;
       beside WHAT COMMAND...; remove-all;
       look or tax OTHER-NFS-ADDRESS SESSION WHAT MILLISECONDS;
       fleet WHAT HANDLES ARGUMENT...
With SERVER_PID in the environment, results have the server's processor time as well.";

fn main() -> ExitCode {
    if let Some(process) = std::env::var("SERVER_PID").ok().and_then(|text| text.parse().ok()) {
        measure::SERVER_PROCESS.get_or_init(|| process);
    }
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
        ["make-files", dir, count] => many::make_files(Path::new(dir), count.parse()?),
        ["make-session", session, count] => many::make_session(Path::new(session), count.parse()?),
        ["make-checkpoints", session, count] => {
            many::make_checkpoints(Path::new(session), count.parse()?)
        }
        ["time", what, ref command @ ..] => checkpoints::command(what, command),
        ["serve-stock", session, base, address] => {
            stock::serve(Path::new(session), Path::new(base), address)
        }
        ["run", server, nfs, mount, export, connections, round, milliseconds, ref only @ ..] => {
            load::run(&load::Wanted {
                at: At::new(server, nfs, mount, export)?,
                connections: connections.parse()?,
                round: round.parse()?,
                time: Duration::from_millis(milliseconds.parse()?),
                only: only.iter().map(|&name| name.to_owned()).collect(),
            })
        }
        [work, server, nfs, mount, export, ref args @ ..] => {
            do_work(work, &At::new(server, nfs, mount, export)?, args)
        }
        // `cargo bench` without arguments is not the way to run this.
        _ => Err(USAGE.into()),
    }
}

fn do_work(work: &str, at: &At, args: &[&str]) -> Result<()> {
    let milliseconds = |text: &str| Ok::<_, rpc::Error>(Duration::from_millis(text.parse()?));
    match (work, args) {
        ("scale", [files, round, time]) => {
            scale::run(at, files.parse()?, round.parse()?, milliseconds(time)?)
        }
        ("dirty", [round, files]) => scale::dirty(at, round, files.parse()?),
        ("start-up", [what, command @ ..]) => scale::start_up(at, what, command),
        ("mount", []) => nfs::mount(at.mount, &at.export).map(drop),
        ("walk", [entries]) => memory::walk(at, entries.parse()?),
        ("storm", [connections, time]) => {
            memory::storm(at, connections.parse()?, milliseconds(time)?)
        }
        ("first-byte", [session]) => growth::first_byte(at, Path::new(session)),
        ("fleet", [what, handles, args @ ..]) => fleet::run(at, what, Path::new(handles), args),
        ("fill", [session, bytes]) => growth::fill(at, Path::new(session), bytes.parse()?),
        _ => checkpoint_work(work, at, args),
    }
}

fn checkpoint_work(work: &str, at: &At, args: &[&str]) -> Result<()> {
    match (work, args) {
        ("checkpoint", [session, what, changes]) => {
            checkpoints::create(at, Path::new(session), what, changes.parse()?)
        }
        ("restore", [session, what, changes]) => {
            checkpoints::restore(at, Path::new(session), what, changes.parse()?)
        }
        ("chmod", [count]) => checkpoints::chmod(at, count.parse()?),
        ("make-watched", []) => checkpoints::make_watched(at),
        ("beside", [what, command @ ..]) => checkpoints::beside(at, what, command),
        ("remove-all", []) => checkpoints::remove_all(at),
        ("look" | "tax", [other, session, what, time]) => {
            let measure = if work == "look" { checkpoints::look } else { checkpoints::tax };
            let without = At::new(&at.server, other, other, &at.export)?;
            let time = Duration::from_millis(time.parse()?);
            measure(at, &without, Path::new(session), what, time)
        }
        _ => Err(USAGE.into()),
    }
}
