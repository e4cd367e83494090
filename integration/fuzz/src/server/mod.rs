//! A whole server over a small base, and a client that sends what the fuzzer says: calls that make
//! sense, calls with damage, and bytes that are none.
//!
//! Whatever comes, nothing panics, each answer is well-formed, no answer holds what lies outside
//! the base, the base stays as it is, and the session is sound at the end.

mod answers;
mod calls;
mod connection;
mod signal;
mod world;

use std::sync::OnceLock;

use crate::choices::Choices;
use answers::Found;
use calls::{Call, MOUNT, NFS};
use connection::{Answer, Connection};
pub use world::OUTSIDE;
use world::World;

/// Steps of one run.
const MAX_STEPS: usize = 40;
/// Handles that are remembered.
const MAX_HANDLES: usize = 64;
/// Raw bytes that are sent at once.
const MAX_RAW_BYTES: usize = 256;

/// Procedures by the byte that chooses them: all of NFS, then these.
const OTHERS: [(u32, u32); 14] = [
    (MOUNT, 0),
    (MOUNT, 1),
    (MOUNT, 2),
    (MOUNT, 3),
    (MOUNT, 5),
    (calls::NLM, 0),
    (calls::NLM, 1),
    (calls::NLM, 2),
    (calls::NLM, 3),
    (calls::NLM, 4),
    (calls::NLM, 20),
    (calls::NLM, 21),
    (calls::NLM, 22),
    (calls::NLM, 23),
];
/// NFS's procedures.
const NFS_PROCEDURES: u8 = 22;
/// Bytes from here on are steps that are no sound call.
const DAMAGE: u8 = 0xa0;
const RAW: u8 = 0xe0;
const RECONNECT: u8 = 0xf0;
const REOPEN: u8 = 0xfc;

/// The server's base, and its sessions, are made once for all runs of this process.
fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        signal::outlive_closed_connections();
        World::new()
    })
}

/// Runs the script that `data` is.
pub fn check(data: &[u8]) {
    run(data, |_, _, _| {});
}

/// Runs a script; `look` gets program, procedure and record of each sound call.
fn run(data: &[u8], mut look: impl FnMut(u32, u32, &[u8])) {
    let world = world();
    let mut choices = Choices::new(data);
    let mut session = world.session();
    let mut client = Connection::open(session.address());
    let mut handles = vec![root(&mut client)];
    for _ in 0..MAX_STEPS {
        if choices.is_empty() {
            break;
        }
        let kind = choices.byte();
        match kind {
            REOPEN.. => {
                drop(client);
                session.reopen();
                client = Connection::open(session.address());
            }
            RECONNECT.. => client = Connection::open(session.address()),
            RAW.. => Connection::open(session.address()).garbage(choices.bytes(MAX_RAW_BYTES)),
            _ => {
                let call = call(kind % DAMAGE, &mut choices, &handles);
                if kind < DAMAGE {
                    look(call.program, call.procedure, &call.record(0));
                    sound(&mut client, &call, &mut handles);
                } else if !damaged(&mut client, &call, &mut choices) {
                    client = Connection::open(session.address());
                }
            }
        }
    }
    drop(client);
    session.end();
}

fn root(client: &mut Connection) -> Vec<u8> {
    let call = Call { program: MOUNT, version: 3, procedure: 1, args: calls::opaque(b"/") };
    let Answer::Reply(reply) = client.ask(&call) else { panic!("MNT is not answered") };
    answers::check(&call, &reply).pop().expect("MNT gives a handle")
}

fn call(kind: u8, choices: &mut Choices<'_>, handles: &[Vec<u8>]) -> Call {
    let number = usize::from(kind) % (usize::from(NFS_PROCEDURES) + OTHERS.len());
    let (program, procedure) = match number.checked_sub(NFS_PROCEDURES.into()) {
        Some(other) => OTHERS[other],
        None => (NFS, number as u32),
    };
    Call::choose(program, procedure, choices, handles)
}

/// A call that decodes is answered, once, with results that decode.
fn sound(client: &mut Connection, call: &Call, handles: &mut Vec<Found>) {
    let Answer::Reply(reply) = client.ask(call) else {
        panic!("not answered: {call:?}");
    };
    for handle in answers::check(call, &reply) {
        if handles.len() < MAX_HANDLES && !handles.contains(&handle) {
            handles.push(handle);
        }
    }
}

/// A damaged call may be answered with anything that is RPC, or end the connection; whether it
/// goes on.
fn damaged(client: &mut Connection, call: &Call, choices: &mut Choices<'_>) -> bool {
    let mut record = call.record(client.next_xid());
    match choices.below(4) {
        0 => record.truncate(usize::from(choices.byte()) * record.len() / 256),
        1 => record.extend_from_slice(&[0xa5; 8][..choices.below(9)]),
        _ => {
            for _ in 0..=choices.below(3) {
                let at = usize::from(choices.byte()) * record.len() / 256;
                let bits = choices.byte();
                if let Some(byte) = record.get_mut(at) {
                    *byte ^= bits;
                }
            }
        }
    }
    client.send_damaged(&record, choices)
}

/// A script that calls each procedure, so that the corpus need not find them.
pub fn seeds() -> Vec<Vec<u8>> {
    let all = NFS_PROCEDURES + OTHERS.len() as u8;
    // Each call alone; then some that build on each other: every procedure over the handles and
    // names that the ones before brought.
    let alone = (0..all).map(|kind| vec![kind]);
    let runs = (0..8_u8).map(|choice| {
        let step = |kind: u8| [kind, choice, choice.wrapping_mul(3), choice, choice, choice];
        (0..all).rev().chain(0..all).map(|kind| kind.wrapping_mul(7) % all).flat_map(step).collect()
    });
    let broken =
        [DAMAGE, DAMAGE + 3, RAW, RECONNECT, REOPEN].map(|kind| vec![8, 0, 1, kind, 1, 2, 3]);
    alone.chain(runs).chain(broken).collect()
}

/// The records that the scripts of [`seeds`] send: program, procedure, record.
pub fn seed_records() -> Vec<(u32, u32, Vec<u8>)> {
    let mut records = Vec::new();
    for script in seeds() {
        run(&script, |program, procedure, record| {
            records.push((program, procedure, record.to_vec()));
        });
    }
    records
}
