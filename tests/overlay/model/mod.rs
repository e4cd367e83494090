//! Random operations against the overlay and a reference of two maps, reopening as one of the
//! operations.
//!
//! The reference (`reference.rs`) knows nothing of layers: paths lead to numbers, numbers to
//! objects. After every few steps the whole tree is compared, with every object's handle and
//! attributes since it was first seen; at every reopening the session's invariants, the base,
//! and the view of a reader that knows only the specification. Of a checkpoint and of a fork, the
//! reference is a copy; a merge is compared with one by numbers (`support/three_way`).
//!
//! A plain run does [`CASES`] fixed cases. `ACETATE_MODEL_CASES=20000 cargo test model` does as
//! many random ones; a failing case is printed shrunk, as a list of operations.

mod forks;
mod reference;
mod run;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// Cases of a plain run: about 20 seconds of a slow machine.
const CASES: u32 = 48;

/// Operations of a case at most.
const MAX_OPS: usize = 60;

/// Attempts to make a failing case smaller.
const MAX_SHRINK_STEPS: u32 = 1000;

/// One operation. Objects and names are picked by number, modulo what there is at that time.
#[derive(Debug, Clone)]
enum Op {
    Create(Place),
    Mkdir(Place),
    Symlink(Place),
    Write {
        object: u16,
        offset: u16,
        len: u16,
        byte: u8,
    },
    Truncate {
        object: u16,
        size: u16,
    },
    Chmod {
        object: u16,
        mode: u16,
    },
    Remove(Pick),
    Rmdir(Pick),
    Rename(Pick, Place),
    /// Onto an object that exists.
    Replace(Pick, u16),
    Link(u16, Place),
    Lookup(Place),
    Read(u16),
    /// In the background, so many pieces.
    Copy(u8),
    Reopen,
    /// For AgentFS or not.
    Seal(bool),
    Checkpoint,
    Restore(u16),
    RemoveCheckpoint(u16),
    Undo,
    /// At one of the checkpoints, or as it is.
    Fork(u16),
    InFork(Box<Op>),
    /// With the sides that are taken in conflicts, as bits.
    Merge(u16),
    Compare,
}

/// A name in a directory, whether or not it exists.
#[derive(Debug, Clone, Copy)]
struct Place {
    dir: u16,
    name: u8,
}

/// An object to work on.
#[derive(Debug, Clone, Copy)]
enum Pick {
    Existing(u16),
    Place(Place),
}

fn place() -> impl Strategy<Value = Place> {
    (any::<u16>(), any::<u8>()).prop_map(|(dir, name)| Place { dir, name })
}

fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![
        5 => any::<u16>().prop_map(Pick::Existing),
        1 => place().prop_map(Pick::Place),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let any = any::<u16>;
    prop_oneof![
        3 => place().prop_map(Op::Create),
        4 => place().prop_map(Op::Mkdir),
        1 => place().prop_map(Op::Symlink),
        4 => (any(), 0..3000u16, 0..1400u16, 1..255u8)
            .prop_map(|(object, offset, len, byte)| Op::Write { object, offset, len, byte }),
        2 => (any(), 0..3000u16).prop_map(|(object, size)| Op::Truncate { object, size }),
        2 => (any(), 0..0o1000u16).prop_map(|(object, mode)| Op::Chmod { object, mode }),
        6 => pick().prop_map(Op::Remove),
        5 => pick().prop_map(Op::Rmdir),
        9 => (pick(), place()).prop_map(|(from, to)| Op::Rename(from, to)),
        3 => (pick(), any()).prop_map(|(from, to)| Op::Replace(from, to)),
        3 => (any(), place()).prop_map(|(object, to)| Op::Link(object, to)),
        3 => place().prop_map(Op::Lookup),
        2 => any().prop_map(Op::Read),
        2 => (0..12u8).prop_map(Op::Copy),
        1 => Just(Op::Reopen),
        1 => prop::bool::ANY.prop_map(Op::Seal),
        3 => Just(Op::Compare),
    ]
}

/// An operation with checkpoints and forks among them. Sealing ends a session's life with clients,
/// so it is not one of these.
fn op_of_checkpoints() -> impl Strategy<Value = Op> {
    let any = any::<u16>;
    prop_oneof![
        18 => unsealed(),
        9 => unsealed().prop_map(|op| Op::InFork(Box::new(op))),
        2 => Just(Op::Checkpoint),
        1 => any().prop_map(Op::Restore),
        1 => Just(Op::Undo),
        1 => (0..4u16).prop_map(Op::RemoveCheckpoint),
        1 => any().prop_map(Op::Fork),
        2 => any().prop_map(Op::Merge),
    ]
}

fn unsealed() -> impl Strategy<Value = Op> {
    op().prop_filter("no seal", |op| !matches!(op, Op::Seal(_)))
}

#[test]
fn random_operations_match_the_reference() {
    check(op(), run::run);
}

#[test]
fn random_restores_and_merges_match_the_reference() {
    check(op_of_checkpoints(), run::run_restores);
}

fn check(op: impl Strategy<Value = Op>, run: fn(&[Op])) {
    let asked = std::env::var("ACETATE_MODEL_CASES").ok();
    let cases = asked.as_ref().map_or(CASES, |cases| cases.parse().expect("a number of cases"));
    let (failure_persistence, max_shrink_iters) = (None, MAX_SHRINK_STEPS);
    let config = Config { cases, failure_persistence, max_shrink_iters, ..Config::default() };
    let mut runner = match asked {
        Some(_) => TestRunner::new(config),
        None => {
            let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
            TestRunner::new_with_rng(config, rng)
        }
    };
    let ops = prop::collection::vec(op, 1..MAX_OPS);
    let outcome = runner.run(&ops, |ops| {
        run(&ops);
        Ok::<(), TestCaseError>(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}
