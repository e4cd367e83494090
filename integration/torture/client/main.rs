//! Loads the server over several connections, kills it (kill -9) at a random moment, starts it
//! again, and checks that all that was answered is there; again and again.
//! `integration/torture/run` drives it.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod calls;
mod change;
mod end;
mod lane;
// The benchmark's: neither shares anything with the server's code.
#[path = "../../perf/client/nfs.rs"]
#[allow(dead_code)]
mod nfs;
#[path = "../../../tests/torture/random.rs"]
#[allow(dead_code)]
mod random;
#[path = "../../perf/client/rpc.rs"]
mod rpc;
mod server;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use change::FIRST_MODE;
use end::End;
use lane::{BASE_FILE_BYTES, BASE_FILES, LARGE, LARGE_BYTES, Lane, base_content, base_directory};
use random::Random;
use rpc::{Error, Result};
use server::Server;

const USAGE: &str = "\
usage: kill9 make-base DIR
       kill9 run ACETATE SESSION BASE ADDRESS KILLS SEED CHECKER";

/// Connections.
const LANES: usize = 4;

/// The longest that the server lives, in milliseconds.
const MOST_MILLISECONDS: usize = 150;

/// One of so many ends is a SIGTERM.
const GENTLE: u64 = 10;

/// The session is checked by another program after the first end and then one of so many; nothing
/// divides both this and `GENTLE`, so that most of these are kills.
const CHECK: u64 = 7;

/// With fewer answered changes to a kill, the kills prove nothing.
const LEAST_ANSWERED: u64 = 10;

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
        ["run", program, session, base, address, kills, seed, checker] => {
            let server = Server {
                program: program.into(),
                session: session.into(),
                base: base.into(),
                address: address.parse()?,
                log: Path::new(session).with_extension("log"),
                process: None,
            };
            run(server, kills.parse()?, seed.parse()?, Path::new(checker))
        }
        // `cargo bench` without arguments is not the way to run this.
        _ => Err(USAGE.into()),
    }
}

fn make_base(dir: &Path) -> Result<()> {
    for lane in 0..LANES {
        let dir = dir.join(base_directory(lane));
        fs::create_dir_all(&dir)?;
        for file in 0..BASE_FILES {
            make_file(&dir.join(format!("f{file}")), &base_content(lane, file, BASE_FILE_BYTES))?;
        }
        make_file(&dir.join(LARGE), &base_content(lane, BASE_FILES, LARGE_BYTES))?;
    }
    Ok(())
}

fn make_file(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(FIRST_MODE))?)
}

fn run(mut server: Server, kills: u64, seed: u64, checker: &Path) -> Result<()> {
    let mut random = Random::new(seed);
    server.start()?;
    let root = nfs::mount(server.address, "/")?;
    let open = |index| Lane::open(server.address, &root, index as u32, seed);
    let mut lanes = (0..LANES).map(open).collect::<Result<Vec<_>>>()?;
    let (mut killed, mut checked) = (0, 0);
    for number in 1..=kills + kills / (GENTLE - 1) {
        let end = End::new(number % GENTLE == 0);
        let blame = |error: Error| format!("seed {seed}, end {number}: {error}");
        let lives = Duration::from_millis(random.below(MOST_MILLISECONDS) as u64);
        let outcomes = thread::scope(|scope| -> Result<Vec<_>> {
            let loads = lanes.iter_mut().map(|lane| scope.spawn(|| lane.load(&end)));
            let loads: Vec<_> = loads.collect();
            thread::sleep(lives);
            end.bring(&mut server)?;
            Ok(loads.into_iter().map(|load| load.join()).collect())
        })?;
        settle(outcomes).map_err(blame)?;
        killed += u64::from(!end.is_gentle);
        if number % CHECK == 1 {
            server.check(checker).map_err(blame)?;
            checked += u64::from(!end.is_gentle);
        }
        server.start()?;
        let address = server.address;
        let outcomes = thread::scope(|scope| -> Vec<_> {
            let checks = lanes.iter_mut().map(|lane| scope.spawn(move || lane.verify(address)));
            let checks: Vec<_> = checks.collect();
            checks.into_iter().map(|check| check.join()).collect()
        });
        settle(outcomes).map_err(blame)?;
    }
    server.stop()?;
    server.check(checker)?;
    let answered: u64 = lanes.iter().map(|lane| lane.answered).sum();
    let counts = format!("{killed} kills, {checked} checked, {answered} changes answered");
    if killed < kills || checked == 0 || answered < LEAST_ANSWERED * kills {
        return Err(format!("too few for a proof: {counts}").into());
    }
    println!("{counts}, all there");
    Ok(())
}

/// The first failure of several threads.
fn settle(outcomes: Vec<thread::Result<Result<()>>>) -> Result<()> {
    for outcome in outcomes {
        outcome.map_err(|_| "a thread panicked")??;
    }
    Ok(())
}
