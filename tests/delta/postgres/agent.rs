//! Processes that write the agent's tables at once.

use std::sync::Barrier;
use std::thread;

use acetate::delta::postgres::DatabaseAgentTables;
use acetate::delta::sqlite::{CallFilter, NewCall};

use super::Kept;

/// Connections at once.
const WRITERS: usize = 6;

/// How often all of them write the same.
const ROUNDS: usize = 10;

#[test]
fn one_key_has_one_row_and_each_call_its_number() {
    let kept = Kept::new();
    let barrier = Barrier::new(WRITERS);
    let write = |number: usize| {
        let tables = DatabaseAgentTables::open(&kept.url).unwrap();
        let mut faults = Vec::new();
        for round in 0..ROUNDS {
            barrier.wait();
            let set = tables.kv_set(&format!("key {round}"), &number.to_string(), 7);
            let call = NewCall {
                name: "tool",
                parameters: None,
                outcome: Ok("1"),
                started_at: 1,
                completed_at: 3,
                begin: None,
            };
            barrier.wait();
            faults.extend(set.err().into_iter().chain(tables.record_call(&call).err()));
        }
        faults
    };
    let faults: Vec<_> = thread::scope(|scope| {
        let write = &write;
        let writers = (0..WRITERS).map(|number| scope.spawn(move || write(number)));
        let writers: Vec<_> = writers.collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    assert!(faults.is_empty(), "{faults:?}");
    let tables = DatabaseAgentTables::open(&kept.url).unwrap();
    let keys: Vec<_> = tables.kv_keys(b"key").unwrap().into_iter().map(|key| key.key).collect();
    let expected: Vec<_> = (0..ROUNDS).map(|round| format!("key {round}").into_bytes()).collect();
    assert_eq!(keys, expected);
    let calls = tables.calls(&CallFilter::default()).unwrap();
    let numbers: Vec<_> = calls.iter().map(|call| call.id).collect();
    let expected: Vec<_> = (1..).take(WRITERS * ROUNDS).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn bytes_that_no_text_has_are_no_key() {
    let kept = Kept::new();
    let tables = DatabaseAgentTables::open(&kept.url).unwrap();
    for key in [&b"a\0b"[..], b"\xff"] {
        assert_eq!(tables.kv_get(key).unwrap(), None);
        assert_eq!(tables.kv_remove(key).unwrap(), None);
        assert_eq!(tables.kv_keys(key).unwrap(), []);
    }
    let error = tables.kv_set("a\0b", "1", 7).unwrap_err();
    assert!(error.to_string().contains("has no NUL"), "{error}");
}
